"""The measured results, from the files in `figures/reference/evidence`."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fedlib.report.paper import KEY, PAPERS
from fedlib.studies import layout
from fedlib.studies.pages import FOLDER
from fedlib.studies.rows import Row
from fedlib.studies.study import Study, study

NUMBERS = ("value", "std", "n_seeds", "paper", "paper_std", "difference")


class Evidence(NamedTuple):
    """The files of the evidence."""

    board: pd.DataFrame  # the scoreboard: all printed numbers beside ours
    ledger: pd.DataFrame  # all claims with their verdict, and `check`, the predicate that decides
    summary: pd.DataFrame  # counts of numbers and of claims by verdict: a row for each paper, and one for all
    studies: Mapping[str, Study]  # by paper
    costs: Mapping[str, pd.DataFrame]  # by paper: runs of each item, missing runs and their hours
    says: Mapping[str, Mapping[str, str]]  # by paper and item: the sentence of each measured figure
    apart: pd.DataFrame  # the differences from the printed results, and the controls for their cause
    folder: Path


def read(folder: Path = FOLDER) -> Evidence:
    """Read the evidence from `scoreboard.csv`, `ledger.csv`, `summary.csv`, `differences.csv`, and the studies."""
    studies, says = {paper: study(paper) for paper in PAPERS}, {}
    for paper, one in studies.items():
        measured = [name for name in one.shown if (folder / paper / f"{name}.svg").exists()]
        says[paper] = {name: one.says(name) for name in measured}
    costs = {paper: one.items() for paper, one in studies.items()}
    ledger = pd.read_csv(folder / "ledger.csv", dtype=str, keep_default_na=False)
    summary, apart = pd.read_csv(folder / "summary.csv").fillna(""), pd.read_csv(folder / "differences.csv")
    return Evidence(table(folder / "scoreboard.csv"), ledger, summary, studies, costs, says, apart, folder)


def runs(one: Study) -> dict[tuple[str, ...], list[Row]]:
    """The rows behind every measured number of a study, by its key."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for *key, seed, tasks in one.frame[[*KEY, "seed", "tasks"]].itertuples(index=False, name=None):
        found.setdefault(tuple(key), []).extend(one.rows[task, seed] for task in tasks.split())
    return found


def table(path: Path) -> pd.DataFrame:
    """A table of numbers; text columns remain text, also if empty."""
    texts = pd.read_csv(path, keep_default_na=False, dtype=str)
    return texts.assign(**{name: pd.to_numeric(texts[name]) for name in NUMBERS}).astype({"n_seeds": int})


def names(evidence: Evidence, paper: str) -> list[str]:
    """The tables and figures of a paper: those of its study, in their order, then others with printed numbers."""
    printed = evidence.board.loc[evidence.board["paper_id"] == paper, "item"]
    every = map(layout.printed_item, [*evidence.studies[paper].shown, *printed])
    return list(dict.fromkeys(item for item, _ in every))


def numbers(evidence: Evidence, paper: str, item: str) -> pd.DataFrame:
    """The numbers of an item, printed or measured; no rows if there are none."""
    rows, path = evidence.board.query("paper_id == @paper and item == @item"), evidence.folder / paper / f"{item}.csv"
    if rows.empty and path.exists():  # the paper does not print them, a claim needs them
        rows = table(path)
    return rows.reset_index(drop=True)


def counted(rows: pd.DataFrame) -> str:
    """The number of printed numbers that have been measured, and of those measured on substitute data."""
    printed = rows[rows["paper"].notna()]
    more = (printed["value"].notna() & (printed["stand_in"] != "")).sum()
    other = f"; {more} more have been measured on substitute data" if more else ""
    return f"{printed['difference'].count()} of {len(printed)} printed numbers have been measured{other}"


def side_by_side(evidence: Evidence, paper: str, item: str) -> pd.DataFrame:
    """All numbers of an item in the paper's rows and columns; column levels: place, and "paper" or ours."""
    study = evidence.studies[paper]
    full, about = numbers(evidence, paper, item), study.item(item)
    others = [study.further(other) for other in about.others]
    return layout.wide(layout.by_source(full, full.iloc[:0], others, about), about.rows)
