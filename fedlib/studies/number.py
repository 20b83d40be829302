"""Measured numbers with their noise, and what is missing; a claim is arithmetic on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple


class Number(NamedTuple):
    """A number that a claim needs.

    Attributes:
        value: the mean over seeds; NaN if nothing was measured.
        noise: its uncertainty, in the same unit: the larger of our standard deviation over seeds and the paper's; with
            one seed the paper's alone.
        name: what it is, for the sentence beside a verdict.
        complete: whether all that the number needs was measured. `largest` and `smallest` of several numbers go on with
            those that are there, which makes them bounds.
        stand_in: the data that stand in for those of the paper, "" if it is theirs.
        sure: whether the noise is known; it is not with one seed and no printed standard deviation.
    """

    value: float
    noise: float = 0.0
    name: str = ""
    complete: bool = True
    stand_in: str = ""
    sure: bool = True

    @property
    def missing(self) -> bool:
        """Whether nothing was measured."""
        return math.isnan(self.value)

    def __add__(self, other: Number | float) -> Number:  # type: ignore[override]  # a number, not a tuple
        return _joined(lambda a, b: a + b, self, _number(other), " + ")

    def __radd__(self, other: float) -> Number:
        return _number(other) + self

    def __sub__(self, other: Number | float) -> Number:
        return _joined(lambda a, b: a - b, self, _number(other), " - ")

    def __rsub__(self, other: float) -> Number:
        return _number(other) - self

    def __mul__(self, factor: float) -> Number:  # type: ignore[override]
        return self._replace(value=self.value * factor, noise=self.noise * abs(factor), name=f"{factor:g} {self.name}")

    __rmul__ = __mul__  # type: ignore[assignment]

    def __truediv__(self, other: Number) -> Number:
        """A ratio; its noise is that of both, relative to them."""
        ratio = self.value / other.value if other.value else math.nan
        noise = abs(ratio) * max(self.noise / abs(self.value or 1), other.noise / abs(other.value or 1))
        return _joined(lambda a, b: ratio, self, other, " / ")._replace(noise=noise)

    def __abs__(self) -> Number:
        return self._replace(value=abs(self.value), name=f"|{self.name}|")


def missing(name: str) -> Number:
    """A number that nobody has measured."""
    return Number(math.nan, name=name, complete=False)


def largest(numbers: Iterable[Number]) -> Number:
    """The largest of those that were measured: a lower bound of the largest of all."""
    return _extreme(max, "largest", list(numbers))


def smallest(numbers: Iterable[Number]) -> Number:
    """The smallest of those that were measured: an upper bound of the smallest of all."""
    return _extreme(min, "smallest", list(numbers))


def mean(numbers: Iterable[Number]) -> Number:
    """The mean; missing if one of them is. Its noise is that of a mean of independent numbers."""
    numbers = list(numbers)
    value = sum(number.value for number in numbers) / len(numbers)
    noise = math.sqrt(sum(number.noise**2 for number in numbers)) / len(numbers)
    complete, sure = all(number.complete for number in numbers), all(number.sure for number in numbers)
    return Number(value, noise, "mean", complete, _stand_in(numbers), sure)


def strictly(number: Number) -> Number:
    """A number that must be larger than zero, where zero counts against it."""
    return number._replace(value=-1.0) if number.value == 0 else number


def open_if_negative(bound: Number) -> Number:
    """A bound from below that says nothing while it is negative: what is not measured yet may turn it."""
    return bound if bound.complete or bound.value > 0 else missing(bound.name)


def fact(right: bool, *about: Number) -> Number:
    """What is right or wrong, as the effect of a case: 1 or -1; missing if one of the numbers that it is about is."""
    value = math.nan if any(number.missing for number in about) else 1.0 if right else -1.0
    complete, sure = all(number.complete for number in about), all(number.sure for number in about)
    return Number(value, complete=complete, stand_in=_stand_in(about), sure=sure)


def _number(value: Number | float) -> Number:
    return value if isinstance(value, Number) else Number(float(value), name=f"{value:g}")


def _joined(operation: Callable[[float, float], float], a: Number, b: Number, sign: str) -> Number:
    """Of two numbers; the noise of a difference is that of the noisier one (the rule of the ledger)."""
    value, noise = operation(a.value, b.value), max(a.noise, b.noise)
    name, complete = f"{a.name}{sign}{b.name}", a.complete and b.complete
    return Number(value, noise, name, complete, _stand_in([a, b]), a.sure and b.sure)


def _extreme(choose: Callable[..., Number], word: str, numbers: list[Number]) -> Number:
    measured = [number for number in numbers if not number.missing]
    if not measured:
        return missing(f"{word} of {len(numbers)}")
    chosen = choose(measured, key=lambda number: number.value)
    complete, sure = all(number.complete for number in numbers), all(number.sure for number in measured)
    return chosen._replace(complete=complete, sure=sure, stand_in=_stand_in(measured))


def _stand_in(numbers: Sequence[Number]) -> str:
    return ", ".join(dict.fromkeys(number.stand_in for number in numbers if number.stand_in))
