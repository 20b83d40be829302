"""The papers' numbers: names, merging with measured rows, readings, claims."""

import ast
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from refusals import refused

import fedlib as fl
import fedlib.report as report
from fedlib.algorithm import LOOKS
from fedlib.models import MODELS
from fedlib.report.paper import FOLDER, PAPERS, QUANTITIES, printed_names
from fedlib.report.style import base_method
from fedlib.runs.setting import setting

ROWS = {"pfedsim": (296, 25), "fedcs": (54, 21), "pfedhr": (120, 20), "pfedmb": (64, 20), "fedsimsup": (176, 20)}
ROOT = Path(__file__).parent.parent
PLACE = r"Section|Table|Fig\.|Figs\.|Equation|Algorithm|Appendix"
NAMED = re.compile(r"(?:(\w+)'s\s+readings?\s+)?(?<![#\w])(A\d\d?(?:(?:,\s+|\s+and\s+)A\d\d?)*)(?!\w)")


@pytest.mark.parametrize("paper", PAPERS)
def test_every_printed_method_has_a_name_here_or_is_a_quantity(paper):
    raw = pd.read_csv(FOLDER / paper / "reported.csv", dtype=str, keep_default_na=False)
    assert set(raw["method"]) <= printed_names().keys() | set(QUANTITIES)
    frame = report.reported(paper)
    assert len(frame) == ROWS[paper][0]
    assert len(pd.read_csv(FOLDER / paper / "claims.csv")) == ROWS[paper][1]
    assert frame["mean"].notna().all()
    assert frame["mean"].dtype == frame["std"].dtype == float
    names = set(frame["method"]) - set(QUANTITIES)
    assert names <= {*fl.algorithms(), *(name for look in LOOKS.values() for name in look.variants)}
    assert all(report.label(name) for name in names)


def test_every_name_that_papers_print_is_used_and_reaches_every_method_but_five():
    printed = set().union(*(report.reported(paper)["printed"] for paper in PAPERS)) - set(QUANTITIES)
    names = printed_names()
    assert {name for look in LOOKS.values() for name in look.printed} <= printed
    methods = {base_method(names[name]) for name in printed}
    assert methods == set(fl.algorithms()) - {"apfl", "ditto", "fedbabu", "fedsim", "scaffold"}


def test_reported_gives_a_fresh_frame_each_time():
    frame = report.reported("fedcs")
    frame.loc[:, "mean"] = 0
    assert report.reported("fedcs")["mean"].min() > 0
    refused("did you mean 'fedcs'", report.reported, "fedc")


@pytest.mark.parametrize("paper", PAPERS)
def test_every_reading_has_its_number_and_says_what_is_open_where_and_what_is_done(paper):
    frame = report.readings(paper)
    assert list(frame.columns) == ["reading", "question", "choice", "where"]
    assert list(frame["reading"]) == [f"A{i}" for i in range(1, len(frame) + 1)]
    assert frame["question"].str.contains(PLACE, flags=re.IGNORECASE).all()
    for column in ("question", "choice"):
        assert frame[column].str.fullmatch(r"\S.*\S\.").all()
    refused("did you mean 'fedcs'", report.readings, "fedc")


@pytest.mark.parametrize("paper", PAPERS)
def test_what_decides_a_reading_is_there(paper):
    for where in filter(None, "; ".join(report.readings(paper)["where"]).split("; ")):
        if where.startswith("fedlib."):
            assert pkgutil.resolve_name(where) is not None
            continue
        tree = ast.parse(where, mode="eval").body
        if not isinstance(tree, ast.Call):  # a name of the public surface
            assert eval(where, vars(fl)) is not None
            continue
        name, arguments = ast.unparse(tree.func), {own.arg: ast.literal_eval(own.value) for own in tree.keywords}
        if name == "run":
            assert set(arguments.pop("model", "lenet5").split("+")) <= set(MODELS)
            setting(**{"rounds": 1} | arguments)
        elif name == "load":
            assert {ast.literal_eval(own) for own in tree.args} <= set(fl.datasets())
        elif name == "federate":
            inspect.signature(fl.federate).bind_partial(**arguments)
        else:
            assert isinstance(eval(where, vars(fl)), fl.Algorithm | fl.Partition)


def named_readings(path: Path, text: str) -> Iterator[tuple[str, str]]:
    """Paper and number of each reading that a text names; the paper is said before it, or by the file's path."""
    [own] = [paper for paper in PAPERS if paper in path.relative_to(ROOT).as_posix()] or [""]
    for said, numbers in NAMED.findall(text):
        yield from ((said.lower() or own, number) for number in re.findall(r"A\d+", numbers))


def test_every_reading_that_code_and_notebooks_name_is_in_the_table_of_its_paper():
    texts = {path: path.read_text(encoding="utf-8") for path in [*ROOT.glob("fedlib/**/*.py"), *ROOT.glob("*.md")]}
    texts |= {path: path.read_text(encoding="utf-8") for path in ROOT.glob("fedlib/papers/*/claims.csv")}
    texts |= {path: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/*.py") if path != Path(__file__)}
    for path in ROOT.glob("notebooks/*.ipynb"):
        texts[path] = "\n\n".join(cell.source for cell in nbformat.read(path, 4).cells)
    named = {(path.relative_to(ROOT), *one) for path, text in texts.items() for one in named_readings(path, text)}
    there = {(paper, reading) for paper in PAPERS for reading in report.readings(paper)["reading"]}
    assert len(named) > 20
    assert {one for one in named if one[1:] not in there} == set()
