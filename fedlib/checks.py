"""Argument checks: every refusal is one sentence that names the argument, the value and what is allowed."""

import difflib
import math
from collections.abc import Iterable
from types import UnionType


def check_choice(argument: str, value: object, allowed: Iterable[str]) -> None:
    """Raise `ValueError` unless `value` is one of `allowed`; suggests the closest name."""
    allowed = sorted(allowed)
    if value not in allowed:
        close = difflib.get_close_matches(str(value), allowed, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"{argument}={value!r} is unknown{hint}; allowed: {', '.join(allowed)}.")


def check_number(
    argument: str,
    value: float,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Raise `ValueError` unless `value` is a finite number in the interval from `low` to `high`."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    above = number and (value > low or (value == low and not open_low))
    below = number and (value < high or (value == high and not open_high))
    if not (above and below):
        left, right = "(" if open_low or low == -math.inf else "[", ")" if open_high or high == math.inf else "]"
        raise ValueError(f"{argument}={value!r} is not allowed; it must be a number in {left}{low:g}, {high:g}{right}.")


def check_count(argument: str, value: int, low: int = 1, high: float = math.inf) -> None:
    """Raise `ValueError` unless `value` is an integer with `low <= value <= high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        limit = f"at least {low}" if high == math.inf else f"from {low} to {high:g}"
        raise ValueError(f"{argument}={value!r} is not allowed; it must be a whole number, {limit}.")


def check_flag(argument: str, value: bool) -> None:
    """Raise `ValueError` unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{argument}={value!r} is not allowed; it must be True or False.")


def check_kind(argument: str, value: object, kind: type | UnionType, wanted: str) -> None:
    """Raise `ValueError` unless `value` is an instance of `kind`; `wanted` says in words what that is."""
    if not isinstance(value, kind):
        raise ValueError(f"{argument} is of type {type(value).__name__}; it must be {wanted}.")
