"""A claim of a paper: the comparisons that decide it, made from measured numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from fedlib.report.paper import KEY, reported
from fedlib.studies.item import Cell, Key
from fedlib.studies.number import UNMEASURED, Number, largest, point
from fedlib.studies.tasks import Probe
from fedlib.studies.verdict import Case


class Numbers:
    """The measured numbers of a study; a call with the identity of a number returns it and records it in `asked`.

    Args:
        paper: name of the paper.
        clients: see `Study.clients`.
        cells: all numbers of the study.
        measured: those with values, one row per number and seed; see `Study.measured`.
        training: see `Study.training`.
        protocol: a further protocol, which is preferred; see `Item.protocols`.
    """

    def __init__(
        self,
        paper: str,
        clients: int,
        cells: Sequence[Cell],
        measured: pd.DataFrame,
        training: Mapping[str, int] = {},
        protocol: str = "",
    ):
        self._paper_std = (reported(paper).drop_duplicates(KEY).set_index(KEY)["std"] / clients**0.5).to_dict()
        self._values = measured.groupby(KEY, sort=False)["value"].agg(list).to_dict() if len(measured) else {}
        self._stand_in = {c.key: ", ".join(filter(None, (c.stand_in, c.shortened(training)))) for c in cells}
        self._further = f"_{protocol}"
        self._exact = {c.key for c in cells if c.tasks and all(isinstance(t, Probe) and t.exact for t in c.tasks)}
        self.asked: list[Key] = []

    @property
    def seeds(self) -> str:
        """Number of seeds of the recorded numbers: "2", "1 to 3", or "" if none was measured by seeds."""
        n = {len(self._values[key]) for key in self.asked if key in self._values and key not in self._exact}
        return " to ".join(map(str, sorted({min(n), max(n)}))) if n else ""

    def __call__(self, item: str, method: str, dataset: str, setting: str, metric: str = "accuracy") -> Number:
        """The mean over seeds; its noise is the larger of their standard deviation and the paper's."""
        key = (item, method, dataset, setting, metric)
        self.asked.append(key)
        paper_std, further = self._paper_std.get(key, np.nan), (item + self._further, *key[1:])
        key = further if further in self._stand_in else key
        values = [value for value in self._values.get(key, []) if np.isfinite(value)]
        if not values:
            return UNMEASURED
        both = np.std(values, ddof=1) if len(values) > 1 else np.nan, paper_std
        stds = [float(std) for std in both if np.isfinite(std)]
        sure = bool(stds) or key in self._exact
        return point(float(np.mean(values)), max(stds, default=0.0), self._stand_in.get(key, ""), sure)


class Claim(NamedTuple):
    """The rule that decides a claim.

    Attributes:
        id: as in the paper's `claims.csv`, which has the text and the predicate of the claim.
        rule: `rule(numbers)` yields its comparisons.
        quantifier: see `judge`.
        least: see `judge`.
        figure: the item that shows the numbers.
    """

    id: str
    rule: Callable[[Numbers], Iterable[Case]]
    quantifier: Literal["all", "most", "identity"] = "all"
    least: int = 0
    figure: str = ""

    def cases(self, numbers: Numbers) -> list[Case]:
        """The comparisons of the claim."""
        return [*self.rule(numbers)]


def numbers_of(item: str, method: str, dataset: str, setting: str, metric: str = "accuracy") -> Callable[..., Number]:
    """A family of numbers: `family(numbers, *parts)` is the number whose identity has these parts in place of {}."""
    identity = "|".join((item, method, dataset, setting, metric))
    return lambda numbers, *parts: numbers(*identity.format(*parts).split("|"))


Column = Sequence[str]  # data set, setting and, if given, metric


def lead(numbers: Numbers, item: str, method: str, rivals: Collection[str], column: Column) -> Number:
    """The number of a method minus the largest of its rivals in a column of a table."""
    return numbers(item, method, *column) - largest(numbers(item, rival, *column) for rival in rivals)


def leads(
    numbers: Numbers, item: str, method: str, rivals: Collection[str], columns: Iterable[Column], least: float = 0
) -> list[Case]:
    """The lead of a method in every column; it must be larger than `least`."""
    return [Case(" ".join(column), lead(numbers, item, method, rivals, column) - least) for column in columns]
