"""The README's code runs, and what it lists is what there is."""

import inspect
import re
from pathlib import Path

import pytest
import torch

import fedlib as fl
from fedlib.algorithm import ALGORITHMS
from fedlib.report import PAPERS, label, reported

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_first_example_runs():
    assert "rounds=20" in CODE[0]
    scope = {}
    exec(CODE[0].replace("rounds=20", "rounds=2, progress=False"), scope)
    assert set(scope["res"].accuracy) == {"round", "client", "n_test", "accuracy", "loss", "when"}
    assert {"accuracy", "bytes_down", "bytes_up", "seconds"} <= set(scope["res"].summary().index)


def test_the_sweep_of_the_readme_runs(federation):
    code = next(code for code in CODE if "fl.sweep" in code).replace("rounds=20", "rounds=2")
    scope = {"fl": fl, "fed": federation}
    *_, last = code.splitlines()
    exec(code.replace(last, f"table = {last}".replace("cells)", "cells, jobs=1, progress=False)")), scope)
    assert len(scope["table"]) == 9


def test_the_method_of_the_readme_is_fedavg_when_its_server_goes_all_the_way(federation, tmp_path, monkeypatch):
    file = tmp_path / "mine.py"  # @fl.algorithm reads the source
    file.write_text(next(code for code in CODE if "@fl.algorithm" in code))
    monkeypatch.syspath_prepend(tmp_path)
    import mine

    setting = dict(rounds=3, join_ratio=0.5, lr=0.05, progress=False)
    whole, half = (fl.run(mine.slow_server(lr), federation, **setting).models for lr in (1.0, 0.5))
    average = fl.run("fedavg", federation, **setting).models
    del ALGORITHMS["slow_server"]
    assert all(torch.allclose(whole[name], w, atol=1e-6) for name, w in average.items())
    assert not all(torch.allclose(half[name], w, atol=1e-3) for name, w in average.items())


def test_the_readme_lists_the_methods_there_are():
    (listed,) = re.findall(r"\| Methods \| `([^`]*)`", README)
    assert listed.split() == sorted(fl.algorithms())


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^):#]+)\)", README))))
def test_links_lead_somewhere(link):
    assert (Path(__file__).parent.parent / link).exists()


def test_the_numbers_of_the_readme_are_those_of_the_reference_run():
    table = (Path(__file__).parent.parent / "figures/reference/pfedsim/table3_wide.md").read_text(encoding="utf-8")
    assert table.split("\n\n", 1)[1] in README


@pytest.mark.parametrize("name", fl.algorithms())
def test_the_table_of_methods_says_what_source_papers_and_tests_say(name):
    [row] = re.findall(rf"^\| `{name}` \| (.*) \|$", README, re.MULTILINE)
    source, papers, tests = row.split(" | ")
    first = inspect.getmodule(inspect.unwrap(ALGORITHMS[name])).__doc__.splitlines()[0]
    assert source == first.partition(":")[0].rstrip(".")
    printed = [paper for paper in PAPERS if name in set(reported(paper)["method"].str.split(r"[-+]").str[0])]
    assert papers == (", ".join(map(label, printed)) or "-")
    for file in re.findall(r"\((tests/\S+)\)", tests):
        text = (Path(__file__).parent.parent / file).read_text(encoding="utf-8")
        assert re.search(rf"\b{name}\(|[\"']{name}[\"']", text), file
