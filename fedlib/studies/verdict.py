"""The one rule by which every claim of a paper is judged."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from fedlib.report.style import with_labels
from fedlib.studies.number import Number, joined_stand_ins

HOLDS, REFUTED, CONSISTENT = "holds", "refuted", "consistent so far"
UNDECIDED, NOT_TESTED, IDENTITY = "undecided", "not tested", "identity"
MEANING = {  # in the order of columns, bars and lists
    HOLDS: "enough comparisons support the claim, by more than the noise",
    REFUTED: "too many comparisons contradict the claim, by more than the noise, for it to hold",
    CONSISTENT: "some of its comparisons support the claim, at least so far, and none contradicts it",
    UNDECIDED: "a measured difference lies within the noise or contradicts the claim without refuting it (yet), or the "
    "paper's text does not confirm the verdict with inferred settings",
    IDENTITY: "true by construction; no training decides it",
    NOT_TESTED: "its comparisons have not been measured yet, or their bounds decide none of them",
}
VERDICTS = tuple(MEANING)

SIDES = "for", "for so far", "against", "against so far", "within the noise", "open"
FOR, FOR_SO_FAR, AGAINST, AGAINST_SO_FAR, NOISE, OPEN = SIDES


class Case(NamedTuple):
    """One comparison that a claim makes.

    Attributes:
        where: its column, data set or pair.
        effect: measured effect minus the margin of the claim; positive if it supports the claim.
    """

    where: str
    effect: Number

    @property
    def side(self) -> str:
        """The side of the case: for (against) the claim if the whole interval is beyond the noise above (below) zero.

        It counts only "so far" on substitute data, with shorter training than printed, and if the noise of the bound
        next to zero is unknown (one seed, and no printed standard deviation).
        """
        low, high, noise, stand_in, low_sure, high_sure, _ = effect = self.effect
        if high < -noise:
            return AGAINST if high_sure and not stand_in else AGAINST_SO_FAR
        if low > noise or low == noise == 0:
            return FOR if low_sure and not stand_in else FOR_SO_FAR
        if effect.known:
            return NOISE
        return OPEN

    def __str__(self) -> str:
        low, high, noise, *_ = effect = self.effect
        where, bound = with_labels(self.where), low if low > -math.inf else high
        if effect.is_fact:
            return f"{where}: {'true' if low > 0 else 'false'}"
        sign = "" if effect.known else ">= " if low > -math.inf else "<= "
        if not effect.known and max(-low, high) < math.inf:
            return f"{where}: {_signed(low)} to {_signed(high)}"
        return f"{where}: {sign}{_signed(bound)}{f' ± {_signed(noise)[1:]}' if noise else ''}"


def _signed(value: float) -> str:
    """A number with two decimals, or with two significant digits from 0.0001 to 0.1."""
    return f"{value:+.2g}" if 1e-4 <= abs(value) < 0.1 else f"{value:+.2f}"


class Verdict(NamedTuple):
    """The state of a claim.

    Attributes:
        verdict: one of `VERDICTS`.
        measured: the cases in words: the number of each side, and every effect.
        stand_in: the substitute data and the shorter training, or "".
    """

    verdict: str
    measured: str
    stand_in: str = ""


def judge(cases: Sequence[Case], quantifier: Literal["all", "most", "identity"] = "all", least: int = 0) -> Verdict:
    """Judge a claim by its cases.

    "holds" needs every case (or with "most" at least `least` of them) for the claim; "refuted" so many against it that
    it cannot hold. Otherwise it is "undecided" if a measured case lies within the noise or is against it, "consistent
    so far" if one is for it, and "not tested" if all are open. Substitute data and training shorter than printed can
    neither prove nor refute a claim: their cases count only "so far".

    Args:
        cases: the comparisons that the claim makes, measured or not.
        quantifier: "all" or "most" cases must be for the claim, or it is an "identity", which no training decides.
        least: with "most", the number of cases that must be for the claim.

    Returns:
        The verdict.

    Example:
        >>> from fedlib.studies.number import UNMEASURED, point
        >>> from fedlib.studies.verdict import Case, judge
        >>> ahead, behind = Case("cifar10", point(2.0, 0.5)), Case("emnist", point(-3.0, 0.5))
        >>> judge([ahead]).verdict, judge([ahead, behind]).verdict
        ('holds', 'refuted')
        >>> judge([ahead, Case("emnist", UNMEASURED)]).verdict
        'consistent so far'
        >>> judge([ahead, Case("emnist", point(0.2, 0.5))]).verdict
        'undecided'
    """
    if not cases:
        return Verdict(NOT_TESTED, "")
    if quantifier == "identity":
        cases = [case._replace(effect=case.effect._replace(low_sure=True, high_sure=True)) for case in cases]
    sides = Counter(case.side for case in cases)
    needed = least if quantifier == "most" else len(cases)
    measured = [case for case in cases if not case.effect.missing]
    if sides[OPEN] == len(cases):
        verdict = NOT_TESTED
    elif sides[FOR] >= needed:
        verdict = IDENTITY if quantifier == "identity" else HOLDS
    elif sides[AGAINST] > len(cases) - needed:
        verdict = REFUTED
    else:
        verdict = UNDECIDED if sides[NOISE] or sides[AGAINST] or sides[AGAINST_SO_FAR] else CONSISTENT
    stand_in = joined_stand_ins([case.effect for case in cases])
    text = ", ".join(f"{sides[side]} {side}" for side in SIDES if sides[side] or side in (FOR, AGAINST))
    return Verdict(verdict, f"{text}. {'; '.join(map(str, measured))}" if measured else "", stand_in)


def interval(cases_of_seeds: Sequence[Sequence[Case]]) -> str:
    """The 95 % confidence interval of the smallest mean effect of a claim in words, by Student's t over seeds."""
    # It is chosen among the comparisons measured with all of at least two seeds whose effect differs between them; ""
    # without such comparisons.
    effects = pd.DataFrame([{case.where: case.effect.value for case in cases} for cases in cases_of_seeds])
    effects = effects[np.isfinite(effects).any(axis=1)]
    effects = effects.loc[:, np.isfinite(effects).all() & (effects.max() > effects.min())]
    if effects.empty:
        return ""
    where = effects.mean().idxmin()
    low, high = stats.ttest_1samp(effects[where], 0).confidence_interval(0.95)
    return f"{_signed(low)} to {_signed(high)}, {with_labels(where)}, {len(effects)} seeds"
