"""The code of the README and of the site's pages runs, and everything that they name exists."""

import re
import sys
import types
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from refusals import refused
from test_fingerprint import in_a_file

import fedlib as fl
from fedlib.algorithm import ALGORITHMS
from fedlib.report.playground import Setting
from fedlib.tools.site import library

ROOT = Path(__file__).parent.parent
TEXTS = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")]
README, CONTRIBUTING, CHANGELOG = (text.read_text(encoding="utf-8") for text in TEXTS)
METHODS = (ROOT / "fedlib" / "methods" / "README.md").read_text(encoding="utf-8")
SITE = ROOT / "fedlib" / "tools" / "site" / "pages"
PAGES = [*sorted(SITE.glob("*.md")), ROOT / "fedlib" / "methods" / "README.md"]
DATA = (SITE / "data.md").read_text(encoding="utf-8")
WITH_CODE = README, *(page.read_text(encoding="utf-8") for page in PAGES)
CODE = [code for text in WITH_CODE for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that imports code from a file: a run reads the source."""
    monkeypatch.syspath_prepend(tmp_path)
    return lambda code: in_a_file(code, tmp_path, "of_the_readme")


def test_the_readme_is_one_screen_of_what_and_why_and_the_version_has_its_changes():
    assert len(README.splitlines()) <= 126
    assert f"## [{fl.__version__}]" in CHANGELOG


def test_the_examples_of_a_run_a_sweep_and_a_model_run(federation, module):
    assert "rounds=20" in CODE[0]
    scope = {}
    exec(CODE[0].replace("rounds=20", "rounds=2, progress=False"), scope)
    assert set(scope["res"].accuracy) == {"round", "client", "n_test", "accuracy", "loss", "when"}
    assert {"accuracy", "bytes_down", "bytes_up", "seconds"} <= set(scope["res"].summary().index)
    code = next(code for code in CODE if "fl.sweep" in code).replace("rounds=20", "rounds=2")
    scope = {"fl": fl, "fed": federation}
    *_, last = code.splitlines()
    exec(code.replace(last, f"table = {last}".replace("cells)", "cells, jobs=1, progress=False)")), scope)
    assert len(scope["table"]) == 9
    model, run = next(code for code in CODE if "def mlp" in code).split("\n\n\nres = ")
    scope = {"fl": fl, "fed": federation, "mlp": module(model).mlp}
    result = eval(run.replace("rounds=20", "rounds=1, progress=False"), scope)
    assert result.config["model"] == "mlp"
    assert (result.models["3.weight"][0] != result.models["3.weight"][1]).any()


def test_the_methods_of_the_readme_are_fedavg_with_a_server_that_goes_all_the_way_and_local_only(federation, module):
    mine = module(next(code for code in CODE if "def slow_server" in code))
    setting = dict(rounds=3, join_ratio=0.5, lr=0.05, progress=False)
    whole, half = (fl.run(mine.slow_server(lr), federation, **setting).models for lr in (1.0, 0.5))
    average = fl.run("fedavg", federation, **setting).models
    own = Setting(method="slow_server", hyper="server_lr=0.25").algorithm()  # it is in the playground and in figures
    assert own.hyper == {"server_lr": 0.25}
    assert fl.report.label("slow_server(server_lr=0.25)") == "slow_server(server_lr=0.25)"
    curve = fl.run(own, federation, **setting).curve()
    ax = fl.report.plot_curves(curve.assign(method="slow_server"))
    assert ax.get_legend_handles_labels()[1] == ["slow_server"]
    del ALGORITHMS["slow_server"]
    refused("method='slow_server' is unknown", fl.report.method_style, "slow_server")
    assert all(torch.allclose(whole[name], w, atol=1e-6) for name, w in average.items())
    assert not all(torch.allclose(half[name], w, atol=1e-3) for name, w in average.items())
    personal = module(next(code for code in CODE if "def pulled" in code))
    free, pulled = (fl.run(personal.pulled(lam), federation, **setting).models for lam in (0.0, 1.0))
    alone = fl.run("local_only", federation, **setting).models
    assert all(torch.equal(free[name], w) for name, w in alone.items())
    assert not all(torch.allclose(pulled[name], w, atol=1e-3) for name, w in alone.items())


def test_the_logger_of_the_readme_gets_every_round_and_every_evaluation(federation, monkeypatch):
    """With a writer that only remembers, in TensorBoard's place; a stored result is logged like a new one."""

    def writer():
        written.append([])
        return nullcontext(SimpleNamespace(add_scalar=lambda *point: written[-1].append(point)))

    written, stub = [], types.ModuleType("torch.utils.tensorboard")
    stub.SummaryWriter = writer
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    code = next(code for code in CODE if "SummaryWriter" in code).replace("rounds=20", "rounds=3")
    scope = {"fl": fl, "fed": federation}
    exec(code, scope)
    exec(code, scope)
    first, again = written
    result = scope["res"]
    assert [t for name, _, t in first if name == "rounds done"][:3] == [1, 2, 3]
    accuracy = result.accuracy.groupby("round")["accuracy"].mean()
    assert {t: value for name, value, t in first if name == "accuracy"} == pytest.approx(accuracy.to_dict())
    for name, column in (("train loss", "train_loss"), ("bytes up", "bytes_up")):
        found = [(t, value) for own, value, t in first if own == name]
        assert found == list(result.rounds[["round", column]].itertuples(index=False, name=None))
    assert [own for own in again if own[0] != "rounds done"] == [own for own in first if own[0] != "rounds done"]


def test_the_methods_and_models_that_are_listed_are_those_there_are():
    assert re.findall(r"^\| `(\w+)` \|", METHODS, re.MULTILINE) == sorted(fl.algorithms())
    (listed,) = re.findall(r"There are `([^`]*)`", DATA)
    assert listed.split() == [name for name in fl.models() if not name.endswith("_thin")]
    (listed,) = re.findall(r"^`(iid [^`]*)`", DATA, re.MULTILINE)
    assert all(callable(getattr(fl, name)) for name in listed.split())


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    links = set(re.findall(r"\]\(([^):#]+)", page.read_text(encoding="utf-8")))
    made = {link for link in links if link.endswith(".html")}  # pages of the site, see test_site
    assert {link for link in links - made if not (page.parent / link).exists()} == set()


def test_the_files_and_targets_that_contributors_are_told_of_are_there():
    files = set(re.findall(r"\b(?:fedlib|notebooks|tests)/[\w/]+\.(?:py|toml|ipynb)\b", CONTRIBUTING))
    targets = set(re.findall(r"\bmake ([a-z-]+)", CONTRIBUTING))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert len(files) > 15
    assert {file for file in files if not (ROOT / file).exists()} == set()
    assert {"lint", "test"} <= targets <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_the_table_of_methods_is_that_of_their_files_and_tests(tmp_path):
    (tmp_path / "README.md").write_text(METHODS, encoding="utf-8")
    assert library.write_readme(tmp_path / "README.md") == METHODS  # make methods
    [row] = re.findall(r"^\| `fedprox` \| (.*) \|$", METHODS, re.MULTILINE)
    source, papers, tests = row.split(" | ")
    assert source == "FedProx (Li et al., MLSys 2020, Algorithm 2)"
    assert papers == "pFedSim, pFedHR, pFedMB, FedSimSup"
    assert "[oracles_shared](../../tests/test_oracles_shared.py)" in tests
    assert all("oracles_" in line for line in METHODS.splitlines() if line.startswith("| `"))
