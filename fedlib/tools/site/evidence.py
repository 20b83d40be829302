"""What has been measured, as the files in `figures/reference/evidence` say it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fedlib.report.paper import PAPERS, TITLES
from fedlib.studies import layout
from fedlib.studies.pages import FOLDER
from fedlib.studies.study import Study, study

NUMBERS = ("value", "std", "n_seeds", "paper", "paper_std", "difference")


class Evidence(NamedTuple):
    """The files of the evidence.

    Attributes:
        board: all printed numbers with ours beside them.
        ledger: all claims with their verdict, and `check`, the predicate that decides.
        summary: printed, measured, and the number of claims by verdict, a row for each paper.
        studies: what each paper needs, by name.
        costs: for each paper how many runs each of its items needs, how many are missing and their hours.
        says: for each paper what to look at in each of its figures that was measured.
        apart: where the numbers of tables are not the printed ones, and what looks for the cause; see
            `fedlib.studies.differences`.
        folder: where the files are.
    """

    board: pd.DataFrame
    ledger: pd.DataFrame
    summary: pd.DataFrame
    studies: Mapping[str, Study]
    costs: Mapping[str, pd.DataFrame]
    says: Mapping[str, Mapping[str, str]]
    apart: pd.DataFrame
    folder: Path


def read(folder: Path = FOLDER) -> Evidence:
    """Read the evidence.

    Args:
        folder: where `scoreboard.csv`, `ledger.csv`, `summary.csv`, `differences.csv` and a folder for each paper are.

    Returns:
        The evidence.
    """
    studies = {paper: study(paper) for paper in PAPERS}
    return Evidence(
        table(folder / "scoreboard.csv"),
        pd.read_csv(folder / "ledger.csv", dtype=str, keep_default_na=False),
        pd.read_csv(folder / "summary.csv"),
        studies,
        {paper: one.items() for paper, one in studies.items()},
        {paper: sentences(one, folder / paper) for paper, one in studies.items()},
        pd.read_csv(folder / "differences.csv"),
        folder,
    )


def sentences(one: Study, folder: Path) -> dict[str, str]:
    """What each figure in a folder says."""
    return {name: one.says(name) for name in one.shown if (folder / f"{name}.svg").exists()}


def table(path: Path) -> pd.DataFrame:
    """A table of numbers: text as text, an empty text stays one."""
    frame = pd.read_csv(path, keep_default_na=False, dtype=str)
    for name in NUMBERS:
        frame[name] = pd.to_numeric(frame[name])
    return frame.astype({"n_seeds": int})


def paper_name(paper: str) -> str:
    """Its name as in the summary."""
    return TITLES[paper]


def names(evidence: Evidence, paper: str) -> list[str]:
    """The tables and figures of a paper: those that it prints, in its order, then those that belong to its claims."""
    board, ledger = evidence.board, evidence.ledger
    printed = board.loc[board["paper_id"] == paper, "item"]
    claimed = ledger.loc[ledger["paper"] == paper, ["item", "figure"]].to_numpy().ravel()
    return list(dict.fromkeys([*evidence.studies[paper].shown, *printed, *claimed]))


def numbers(evidence: Evidence, paper: str, item: str) -> pd.DataFrame:
    """The numbers of an item, printed or measured; no rows if there are none."""
    board = evidence.board
    rows = board[(board["paper_id"] == paper) & (board["item"] == item)]
    path = evidence.folder / paper / f"{item}.csv"
    if rows.empty and path.exists():  # not a number of the paper, but of a claim
        rows = table(path)
    return rows.reset_index(drop=True)


def counted(rows: pd.DataFrame) -> str:
    """How many of the printed numbers have been measured, and how many on data that stand in for the paper's."""
    printed = rows[rows["paper"].notna()]
    measured = printed["difference"].notna()
    more = int((printed["value"].notna() & (printed["stand_in"] != "")).sum())
    other = f"; for {more} more, other data stand in for the paper's" if more else ""
    return f"{measured.sum()} of {len(printed)} printed numbers have been measured{other}"


def side_by_side(evidence: Evidence, paper: str, item: str) -> pd.DataFrame:
    """All numbers of an item as in the paper: its rows and columns, in each place the paper's number and ours.

    Returns:
        Text in cells. The columns have two levels: data and setting, and "paper" or "full size" (ours).
    """
    full, about = numbers(evidence, paper, item), evidence.studies[paper].item(item)
    return layout.wide(layout.long_table(full, full.iloc[:0], about), about.rows)
