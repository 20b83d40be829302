"""The papers' numbers: names, merging with measured rows, readings, claims."""

import ast
import inspect
import math
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest

import fedlib as fl
import fedlib.report as report
from fedlib.models import MODELS
from fedlib.report.claims import VERDICTS, Ledger
from fedlib.report.paper import FOLDER, PAPERS, PRINTED_METHODS, QUANTITIES
from fedlib.report.style import METHODS, VARIANTS, base_method
from fedlib.runs.setting import setting

ROWS = {
    "pfedsim": (296, 25),
    "fedcs": (54, 21),
    "pfedhr": (120, 20),
    "pfedmb": (64, 20),
    "fedsimsup": (176, 20),
}
ROOT = Path(__file__).parent.parent
PLACE = r"Section|Table|Fig\.|Figs\.|Equation|Algorithm|Appendix"
NAMED = re.compile(r"(?:(\w+)'s\s+readings?\s+)?(?<![#\w])(A\d\d?(?:(?:,\s+|\s+and\s+)A\d\d?)*)(?!\w)")


def measured(*rows):
    return pd.DataFrame(rows, columns=["method", "dataset", "setting", "mean", "std", "n_seeds"])


@pytest.mark.parametrize("paper", PAPERS)
def test_every_printed_method_has_a_name_here_or_is_a_quantity(paper):
    raw = pd.read_csv(FOLDER / paper / "reported.csv", dtype=str, keep_default_na=False)
    assert set(raw["method"]) <= PRINTED_METHODS.keys() | set(QUANTITIES)
    frame = report.reported(paper)
    assert len(frame) == ROWS[paper][0]
    assert frame["mean"].notna().all()
    assert frame["mean"].dtype == frame["std"].dtype == float
    names = set(frame["method"]) - set(QUANTITIES)
    assert names <= {*METHODS, *VARIANTS}
    assert all(report.label(name) for name in names)


def test_the_mapping_has_no_unused_name_and_reaches_every_algorithm_but_one():
    printed = set().union(*(report.reported(paper)["printed"] for paper in PAPERS))
    assert printed == PRINTED_METHODS.keys() | set(QUANTITIES)
    assert len(METHODS) == 28
    assert {base_method(name) for name in PRINTED_METHODS.values()} == set(METHODS) - {"fedsim"}


def test_reported_gives_a_fresh_frame_each_time():
    frame = report.reported("fedcs")
    frame.loc[:, "mean"] = 0
    assert report.reported("fedcs")["mean"].min() > 0
    with pytest.raises(ValueError, match="did you mean 'fedcs'"):
        report.reported("fedc")


def test_over_seeds_gives_sample_std_and_no_std_for_one_seed():
    frame = pd.DataFrame(
        {
            "method": ["pfedsim", "fedavg", "pfedsim"],
            "dataset": "cifar10",
            "setting": "dir=0.1",
            "seed": [0, 0, 1],
            "accuracy": [80.0, 30.0, 82.0],
        }
    )
    table = report.over_seeds(frame)
    assert list(table["method"]) == ["pfedsim", "fedavg"]
    assert table.loc[0, "mean"] == 81
    assert table.loc[0, "std"] == pytest.approx(math.sqrt(2))
    assert math.isnan(table.loc[1, "std"])
    assert list(table["n_seeds"]) == [2, 1]
    with pytest.raises(ValueError, match="lacks f1; it has method"):
        report.over_seeds(frame, "f1")


def test_beside_finds_the_printed_number_of_each_row_and_keeps_their_order():
    ours = measured(
        ("fedavg", "cifar10", "dir=0.5", 50.0, 1.0, 3),
        ("fedap", "cifar10", "dir=0.1", 80.0, 2.0, 3),
        ("local_only", "cifar10", "dir=0.1", 84.0, 1.0, 3),
        ("fedavg", "digits", "dir=0.5", 60.0, 1.0, 3),
    )
    table = report.beside(ours, "pfedsim", "table3")
    assert list(table["method"]) == ["fedavg", "fedap", "local_only", "fedavg"]
    assert list(table["paper"][[0, 2]]) == [40.90, 84.30]
    assert table.loc[0, "paper_std"] == 2.48
    assert table.loc[0, "difference"] == pytest.approx(9.1)
    assert table.loc[3, ["paper", "paper_std", "difference"]].isna().all()
    assert list(table["value"]) == [50, 80, 84, 60]
    assert list(table["n_seeds"]) == [3, 3, 3, 3]


def test_beside_compares_a_stand_in_data_set_without_renaming_it():
    ours = measured(("pfedmb", "digits", "clients=15;classes=2", 91.0, 0.5, 3))
    table = report.beside(ours, "pfedmb", "table2", stands_for={"digits": "cifar10"})
    assert table.loc[0, "dataset"] == "digits"
    assert (
        table.loc[0, "paper"]
        == report.reported("pfedmb")
        .query("item == 'table2' and method == 'pfedmb' and setting == 'clients=15;classes=2'")["mean"]
        .item()
    )


def test_beside_compares_a_setting_with_the_one_it_stands_for():
    ours = measured(("fedavg", "characters", "clients=30;natural", 50.0, 0.5, 3))
    stands_for = {"characters": "femnist", "clients=30;natural": "clients=3597;natural"}
    table = report.beside(ours, "fedsimsup", "table1", stands_for=stands_for)
    assert table.loc[0, ["dataset", "setting", "paper"]].tolist() == ["characters", "clients=30;natural", 79.76]


def test_beside_tells_metrics_apart_and_asks_for_the_column_that_does():
    row = {"method": "fedcs-fc1", "dataset": "mnist", "setting": "label-shift", "mean": 90.0}
    table = report.beside(
        pd.DataFrame([{**row, "metric": m} for m in ("weighted_auc", "weighted_f1")]), "fedcs", "table1"
    )
    printed = report.reported("fedcs").query("item == 'table1' and method == 'fedcs-fc1'")
    assert list(table["paper"]) == list(printed["mean"])
    assert table["std"].isna().all()
    with pytest.raises(ValueError, match="the paper's table1 has several rows"):
        report.beside(pd.DataFrame([row]), "fedcs", "table1")


def test_beside_refuses_doubled_rows_and_names_that_match_nothing():
    row = ("fedavg", "cifar10", "dir=0.5", 50.0, 1.0, 3)
    with pytest.raises(ValueError, match="measured has several rows"):
        report.beside(measured(row, row), "pfedsim", "table3")
    with pytest.raises(ValueError, match="no measured row has a number in table3"):
        report.beside(measured(("fedavg", "cifar10", "alpha=0.5", 50.0, 1.0, 3)), "pfedsim", "table3")
    with pytest.raises(ValueError, match="did you mean 'table3'"):
        report.beside(measured(row), "pfedsim", "table 3")


def test_wide_lays_out_measured_and_printed_numbers_as_the_paper_does():
    ours = measured(
        ("fedavg", "cifar10", "dir=0.5", 50.0, 1.0, 3),
        ("pfedsim", "cifar10", "dir=0.5", 61.0, np.nan, 1),
        ("fedavg", "cifar10", "dir=0.1", 30.0, 1.0, 3),
    )
    table = report.wide(report.beside(ours, "pfedsim", "table3"))
    assert list(table.index) == ["FedAvg", "pFedSim"]
    assert list(table.columns) == ["cifar10, dir=0.5", "cifar10, dir=0.1"]
    assert table.iloc[0, 0] == "50.00 ± 1.00 (paper 40.90 ± 2.48)"
    assert table.iloc[1, 0].startswith("61.00 (paper ")
    assert table.iloc[1, 1] == ""


def test_format_pm_shows_what_is_known():
    assert report.format_pm(79.1, 0.516) == "79.10 ± 0.52"
    assert report.format_pm(79.1) == "79.10"
    assert report.format_pm(float("nan"), 1.0) == "-"
    assert report.format_pm(0.9166, 0.01, digits=3) == "0.917 ± 0.010"


@pytest.mark.parametrize("paper", PAPERS)
def test_every_reading_has_its_number_and_says_what_is_open_where_and_what_is_done(paper):
    frame = report.readings(paper)
    assert list(frame.columns) == ["reading", "question", "choice", "where"]
    assert list(frame["reading"]) == [f"A{i}" for i in range(1, len(frame) + 1)]
    assert frame["question"].str.contains(PLACE, flags=re.IGNORECASE).all()
    for column in ("question", "choice"):
        assert frame[column].str.fullmatch(r"\S.*\S\.").all()
    with pytest.raises(ValueError, match="did you mean 'fedcs'"):
        report.readings("fedc")


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
    [own] = [paper for paper in PAPERS if paper in path.as_posix()] or [""]
    for said, numbers in NAMED.findall(text):
        yield from ((said.lower() or own, number) for number in re.findall(r"A\d+", numbers))


def test_a_reading_is_found_with_its_paper():
    def found(path, text):
        return list(named_readings(Path(path), text))

    both = "two of them (readings A1, A3 and A12), and pFedHR's\n    reading A5"
    assert found("methods/fedcs/x.py", both) == [("fedcs", "A1"), ("fedcs", "A3"), ("fedcs", "A12"), ("pfedhr", "A5")]
    assert found("models/x.py", "pFedMB's readings A1 and A2; reading A4") == [
        ("pfedmb", "A1"), ("pfedmb", "A2"), ("", "A4"),
    ]  # fmt: skip
    assert found("methods/pfedsim.py", "#A34700, #A3, BA2, A100, A7b") == []


def test_every_reading_that_code_and_notebooks_name_is_in_the_table_of_its_paper():
    texts = {path: path.read_text(encoding="utf-8") for path in [*ROOT.glob("fedlib/**/*.py"), *ROOT.glob("*.md")]}
    texts |= {path: path.read_text(encoding="utf-8") for path in ROOT.glob("fedlib/papers/*/claims.csv")}
    texts |= {path: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/*.py") if path != Path(__file__)}
    for path in ROOT.glob("notebooks/*.ipynb"):
        texts[path] = "\n\n".join(cell.source for cell in nbformat.read(path, 4).cells)
    named = {
        (path.relative_to(ROOT), *one) for path in texts for one in named_readings(path.relative_to(ROOT), texts[path])
    }
    there = {(paper, reading) for paper in PAPERS for reading in report.readings(paper)["reading"]}
    assert len(named) > 20
    assert {one for one in named if one[1:] not in there} == set()


@pytest.mark.parametrize("paper", PAPERS)
def test_a_new_ledger_lists_every_claim_in_order_as_not_tested(paper):
    frame = Ledger(paper).frame()
    assert len(frame) == ROWS[paper][1]
    assert list(frame["id"]) == sorted(frame["id"])
    assert set(frame["verdict"]) == {"not tested at this size"}
    assert frame["claim"].str.len().min() > 20
    assert frame["check"].str.len().min() > 20


def test_recorded_claims_show_their_verdict_and_numbers():
    ledger = Ledger("pfedsim")
    assert ledger.record("ps03", np.bool_(True), "CS 0.91 > 0.50 > 0.38 > 0.20") == "holds"
    assert ledger.record("ps01", False, "layer 3 lowest", note="8 clients") == "does not hold"
    assert ledger.record("ps24", None, note="needs DomainNet") == "not tested at this size"
    frame = ledger.frame().set_index("id")
    assert frame.loc["ps03", "measured"] == "CS 0.91 > 0.50 > 0.38 > 0.20"
    assert frame.loc["ps01", "note"] == "8 clients"
    assert list(frame.index[:3]) == ["ps01", "ps02", "ps03"]
    assert ledger.counts() == dict(zip(VERDICTS.values(), (1, 1, 23), strict=True))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("ps99", True, "1"), "id='ps99' is unknown"),
        (("ps01", True, "1"), "'ps01' is already recorded: holds"),
        (("ps02", "yes", "1"), "holds='yes' is not allowed; it must be True, False or None"),
        (("ps02", 1, "1"), "holds=1 is not allowed"),
        (("ps02", True), "'ps02' needs the measured numbers"),
    ],
)
def test_the_ledger_refuses_what_is_no_verdict(arguments, sentence):
    ledger = Ledger("pfedsim")
    ledger.record("ps01", True, "0.3 < 0.9")
    with pytest.raises(ValueError, match=sentence):
        ledger.record(*arguments)
    assert ledger.counts()["holds"] == 1
