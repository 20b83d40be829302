"""Numbers with noise, as intervals: a measured number is a point, an unmeasured one is unbounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Number(NamedTuple):
    """An interval that contains a number, and its noise.

    Attributes:
        low: lower bound, or -inf.
        high: upper bound, or inf.
        noise: the larger of our standard deviation over seeds and the printed one; with one seed the printed one.
        stand_in: the substitute data or the shorter training behind it; "" for those of the paper.
        low_sure: whether the noise of the lower bound is known; it is not with one seed and no printed deviation.
        high_sure: the same for the upper bound.
        is_fact: whether it is 1 for a true statement, or -1 for a false one.
    """

    low: float
    high: float
    noise: float = 0.0
    stand_in: str = ""
    low_sure: bool = True
    high_sure: bool = True
    is_fact: bool = False

    @property
    def known(self) -> bool:
        """True for a point."""
        return self.low == self.high

    @property
    def missing(self) -> bool:
        """True for an unbounded number."""
        return self.low == -math.inf and self.high == math.inf

    @property
    def sure(self) -> bool:
        """Whether the noise of both bounds is known."""
        return self.low_sure and self.high_sure

    @property
    def value(self) -> float:
        """Value of a point, otherwise NaN."""
        return self.low if self.known else math.nan

    def __add__(self, other: Number | float) -> Number:  # a number, not a tuple
        other = _number(other)
        noise = max(self.noise, other.noise)  # of the noisier one, also for a difference (the rule of the ledger)
        return _joined([self, other], self.low + other.low, self.high + other.high, noise)

    __radd__ = __add__

    def __sub__(self, other: Number | float) -> Number:
        return self + -1 * _number(other)

    def __rsub__(self, other: float) -> Number:
        return _number(other) - self

    def __mul__(self, factor: float) -> Number:
        lower, upper = (self.low * factor, self.low_sure), (self.high * factor, self.high_sure)
        (low, low_sure), (high, high_sure) = (lower, upper) if factor >= 0 else (upper, lower)
        return self._replace(low=low, high=high, low_sure=low_sure, high_sure=high_sure, noise=self.noise * abs(factor))

    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> Number:
        """Ratio of two points, with the larger of their relative noises."""
        if not (self.known and other.known and other.value):
            return UNMEASURED
        ratio = self.value / other.value
        noise = abs(ratio) * max(self.noise / abs(self.value or 1), other.noise / abs(other.value))
        return _joined([self, other], ratio, ratio, noise)

    def __abs__(self) -> Number:
        if self.missing:
            return self
        low, high = max(self.low, -self.high, 0.0), max(-self.low, self.high)
        return self._replace(low=low, high=high, low_sure=self.sure, high_sure=self.sure)


UNMEASURED = Number(-math.inf, math.inf)


def point(value: float, noise: float = 0.0, stand_in: str = "", sure: bool = True) -> Number:
    """A known number."""
    return Number(value, value, noise, stand_in, sure, sure)


def kth_largest(numbers: Iterable[Number], k: int) -> Number:
    """The k-th largest number, k from 1; an interval if unknown numbers leave it open."""
    # A bound is sure if it needs no number of unknown noise: one sure number proves that the largest is not below it.
    numbers = list(numbers)
    low, high = (sorted(bounds, reverse=True)[k - 1] for bounds in zip(*(n[:2] for n in numbers), strict=True))
    low_sure = sum(number.low >= low for number in numbers if number.low_sure) >= k
    high_sure = sum(number.high <= high for number in numbers if number.high_sure) > len(numbers) - k
    measured = [number for number in numbers if not number.missing]
    chosen = [number for number in measured if number.low == low or number.high == high]
    if not chosen:
        return Number(low, high)
    return Number(low, high, chosen[0].noise, joined_stand_ins(measured), low_sure, high_sure, chosen[0].is_fact)


def largest(numbers: Iterable[Number]) -> Number:
    """The largest number; bounded from below as soon as one is known."""
    return kth_largest(numbers, 1)


def smallest(numbers: Iterable[Number]) -> Number:
    """The smallest number; bounded from above as soon as one is known."""
    numbers = list(numbers)
    return kth_largest(numbers, len(numbers))


def mean(numbers: Iterable[Number]) -> Number:
    """The mean; its noise is that of a mean of independent numbers."""
    numbers = list(numbers)
    low, high = (sum(bounds) / len(numbers) for bounds in zip(*(n[:2] for n in numbers), strict=True))
    noise = math.sqrt(sum(number.noise**2 for number in numbers)) / len(numbers)
    return _joined(numbers, low, high, noise)


def strictly(number: Number) -> Number:
    """A number that must be larger than zero: zero becomes -1, which counts against the claim."""
    return number._replace(low=-1.0, high=-1.0) if number.value == 0 else number


def fact(right: bool, *about: Number) -> Number:
    """A fact as the effect of a case: 1 if true, else -1; unmeasured unless all numbers behind it are points."""
    if not all(number.known for number in about):
        return UNMEASURED
    value, sure = 1.0 if right else -1.0, all(number.sure for number in about)
    return Number(value, value, 0.0, joined_stand_ins(about), sure, sure, is_fact=True)


def equal(one: Number, other: Number | float) -> Number:
    """The fact that two numbers are equal."""
    other = _number(other)
    return fact(one.value == other.value, one, other)


def _number(value: Number | float) -> Number:
    return value if isinstance(value, Number) else point(float(value))


def _joined(numbers: Sequence[Number], low: float, high: float, noise: float) -> Number:
    """A number made of others; the noise of a bound is known if it is known for all of theirs."""
    sure = all(number.low_sure for number in numbers), all(number.high_sure for number in numbers)
    return Number(low, high, noise, joined_stand_ins(numbers), *sure)


def joined_stand_ins(numbers: Sequence[Number]) -> str:
    """All substitute data and shorter training behind some numbers, each once."""
    return ", ".join(dict.fromkeys(part for number in numbers for part in number.stand_in.split(", ") if part))
