"""The claims ledger: the claims of a paper, the measured numbers, and a verdict on each claim."""

import numpy as np
import pandas as pd

from fedlib.checks import check_choice
from fedlib.report.paper import FOLDER, PAPERS

VERDICTS: dict[bool | None, str] = {True: "holds", False: "does not hold", None: "not tested at this size"}


class Ledger:
    """All claims of one paper, in its order, with a verdict on each.

    A claim is judged at most once, so that a later cell of a notebook cannot change a verdict. To judge again, make a
    new ledger.

    Args:
        paper: one of `PAPERS`.

    Raises:
        ValueError: the paper is unknown.

    Example:
        >>> import fedlib as fl
        >>> ledger = fl.report.Ledger("pfedsim")
        >>> ledger.record("ps02", True, measured="CKA of layer 0 is 0.93")
        'holds'
        >>> ledger.counts()
        {'holds': 1, 'does not hold': 0, 'not tested at this size': 24}
    """

    def __init__(self, paper: str):
        check_choice("paper", paper, PAPERS)
        self.paper = paper
        self._claims = pd.read_csv(FOLDER / paper / "claims.csv", dtype=str, keep_default_na=False)
        self._records: dict[str, tuple[bool | None, str, str]] = {}

    def record(self, id: str, holds: bool | None, measured: str = "", note: str = "") -> str:
        """Judge one claim.

        Args:
            id: identifier of the claim, a value of the column `id` of `frame()`.
            holds: whether the claim holds; None: it could not be tested at this size.
            measured: the numbers behind the verdict, "CS 0.91 > 0.50 > 0.38"; needed unless `holds` is None.
            note: what differs from the paper.

        Returns:
            The verdict.

        Raises:
            ValueError: the claim is unknown or already judged, or the numbers are missing.
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
        """List every claim in the order of the paper.

        Returns:
            One row per claim: id, item, claim, verdict, measured, note, check (its predicate).
        """
        frame = self._claims.copy()
        columns = zip(*(self._records.get(id, (None, "", "")) for id in frame["id"]), strict=True)
        holds, measured, note = map(list, columns)
        frame["verdict"] = [VERDICTS[value] for value in holds]
        frame["measured"], frame["note"] = measured, note
        return frame[["id", "item", "claim", "verdict", "measured", "note", "check"]]

    def counts(self) -> dict[str, int]:
        """Count the claims by verdict.

        Returns:
            The number of claims for each of the three verdicts.
        """
        verdicts = self.frame()["verdict"]
        return {verdict: int((verdicts == verdict).sum()) for verdict in VERDICTS.values()}
