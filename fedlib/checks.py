"""Argument checks: every error is one sentence that names the argument, its value and the allowed values.

A check returns the value as a Python type, so a NumPy number is the same argument as a Python number.
"""

import difflib
import math
import numbers
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import numpy as np


class Limit(NamedTuple):
    """A limit of a hyper-parameter, as in `momentum: Annotated[float, at_least(0), below(1)]`."""

    name: str  # "at_least", "above", "at_most" or "below"
    value: float

    def __repr__(self) -> str:
        return f"{self.name}({self.value:g})"


def at_least(low: float) -> Limit:
    """Limit: the value is `low` or more."""
    return Limit("at_least", low)


def above(low: float) -> Limit:
    """Limit: the value is more than `low`."""
    return Limit("above", low)


def at_most(high: float) -> Limit:
    """Limit: the value is `high` or less."""
    return Limit("at_most", high)


def below(high: float) -> Limit:
    """Limit: the value is less than `high`."""
    return Limit("below", high)


# Annotations of hyper-parameters; others are written out.
Whole = Annotated[int, at_least(0)]
Count = Annotated[int, at_least(1)]
Positive = Annotated[float, above(0)]
NonNegative = Annotated[float, at_least(0)]
Share = Annotated[float, above(0), at_most(1)]
Fraction = Annotated[float, at_least(0), at_most(1)]


def plain(value: Any) -> Any:
    """Convert a number, flag or string of NumPy or another library to a Python type: `np.float32(0.1)` to 0.1."""
    if isinstance(value, np.bool_):
        return bool(value)
    if type(value) in (bool, int, float) or not isinstance(value, numbers.Real | np.str_):
        return value
    if isinstance(value, np.str_):
        return str(value)
    return int(value) if isinstance(value, numbers.Integral) else float(str(value) if np.isscalar(value) else value)


def check_annotation(argument: str, value: Any, annotation: object) -> Any:
    """Return `value` as a Python type; raise `ValueError` unless it fits `annotation`."""
    # Checked annotations: bool, int, float, a `Literal` of strings, a number with limits (`Annotated`), or `... | None`
    value = plain(value)
    if get_origin(annotation) is UnionType or NoneType in get_args(annotation):
        if value is not None:
            for kind in get_args(annotation):
                check_annotation(argument, value, kind)
        return value
    kind, *limits = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    limit = dict(limits)
    low, high = limit.get("at_least", limit.get("above", -math.inf)), limit.get("at_most", limit.get("below", math.inf))
    if get_origin(kind) is Literal:
        check_choice(argument, value, get_args(kind))
    elif kind is bool:
        check_flag(argument, value)
    elif kind is int:
        check_count(argument, value, low, high)
    elif kind is float:
        check_number(argument, value, low, high, open_low="above" in limit, open_high="below" in limit)
    return value


def check_choice(argument: str, value: object, allowed: Iterable[str]) -> None:
    """Raise `ValueError` unless `value` is one of `allowed`, and suggest the closest name."""
    allowed = sorted(allowed)
    if value not in allowed:
        close = difflib.get_close_matches(str(value), allowed, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"{argument}={value!r} is unknown{hint}; allowed: {', '.join(allowed)}.")


def check_number(
    argument: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return `value` as a Python number; raise `ValueError` unless it is finite and from `low` to `high`."""
    number: Any = plain(value)
    if not (
        isinstance(number, int | float)
        and not isinstance(number, bool)
        and math.isfinite(number)
        and (low < number if open_low else low <= number)
        and (number < high if open_high else number <= high)
    ):
        left, right = "(" if open_low or low == -math.inf else "[", ")" if open_high or high == math.inf else "]"
        raise ValueError(f"{argument}={value!r} is not allowed; it must be a number in {left}{low:g}, {high:g}{right}.")
    return number


def check_count(argument: str, value: object, low: float = 1, high: float = math.inf) -> int:
    """Return `value` as an `int`; raise `ValueError` unless it is a whole number with `low <= value <= high`."""
    number: Any = plain(value)
    if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
        limit = f"at least {low:g}" if high == math.inf else f"from {low} to {high:g}"
        raise ValueError(f"{argument}={value!r} is not allowed; it must be a whole number, {limit}.")
    return number


def check_flag(argument: str, value: object) -> bool:
    """Return `value` as a `bool`; raise `ValueError` unless it is True or False."""
    flag: Any = plain(value)
    if not isinstance(flag, bool):
        raise ValueError(f"{argument}={value!r} is not allowed; it must be True or False.")
    return flag


def check_kind(argument: str, value: object, kind: type | UnionType, wanted: str) -> None:
    """Raise `ValueError` unless `value` is an instance of `kind`; `wanted` describes it in the error."""
    if not isinstance(value, kind):
        raise ValueError(f"{argument} is of type {type(value).__name__}; it must be {wanted}.")
