"""The claims ledger: what a paper states, what was measured, and whether it holds."""

import numpy as np
import pandas as pd

from fedlib.checks import check_choice
from fedlib.report.paper import FOLDER, PAPERS

VERDICTS = {True: "holds", False: "does not hold", None: "not tested at this size"}


class Ledger:
    """All claims of one paper in its order; each is judged at most once.

    Recording a claim twice is an error: the first verdict stays, so that no later cell can quietly overrule
    it. To record again after a change, run the cell that makes the ledger again.
    """

    def __init__(self, paper: str):
        check_choice("paper", paper, PAPERS)
        self.paper = paper
        self._claims = pd.read_csv(FOLDER / paper / "claims.csv", dtype=str, keep_default_na=False)
        self._records: dict[str, tuple[bool | None, str, str]] = {}

    def record(self, id: str, holds: bool | None, measured: str = "", note: str = "") -> str:
        """Judge one claim and return its verdict; `holds=None` means it could not be tested at this size.

        `measured` gives the numbers behind the verdict ("CS 0.91 > 0.50 > 0.38") and is needed unless `holds`
        is None; `note` says what differs from the paper.
        """
        check_choice("id", id, self._claims["id"])
        if id in self._records:
            raise ValueError(f"claim {id!r} is already recorded: {VERDICTS[self._records[id][0]]}.")
        if holds is not None:
            if not isinstance(holds, bool | np.bool_):
                raise ValueError(f"holds={holds!r} is not allowed; it must be True, False or None.")
            holds = bool(holds)
            if not measured:
                raise ValueError(f"claim {id!r} needs the measured numbers behind its verdict; measured is empty.")
        self._records[id] = (holds, measured, note)
        return VERDICTS[holds]

    def frame(self) -> pd.DataFrame:
        """Every claim in the paper's order: id, item, claim, verdict, measured, note, check (predicate)."""
        frame = self._claims.copy()
        columns = zip(*(self._records.get(id, (None, "", "")) for id in frame["id"]), strict=True)
        holds, measured, note = map(list, columns)
        frame["verdict"] = [VERDICTS[value] for value in holds]
        frame["measured"], frame["note"] = measured, note
        return frame[["id", "item", "claim", "verdict", "measured", "note", "check"]]

    def counts(self) -> dict[str, int]:
        """How many claims have each verdict; all three verdicts are listed."""
        verdicts = self.frame()["verdict"]
        return {verdict: int((verdicts == verdict).sum()) for verdict in VERDICTS.values()}
