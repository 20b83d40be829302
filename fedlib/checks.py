"""Argument checks: every refusal is one sentence that names the argument, the value and what is allowed."""

import difflib
import math
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin


class Limit(NamedTuple):
    """What an annotation says of a number: `Annotated[float, at_least(0), below(1)]`."""

    name: str
    value: float

    def __repr__(self) -> str:
        return f"{self.name}({self.value:g})"


def at_least(low: float) -> Limit:
    return Limit("at_least", low)


def above(low: float) -> Limit:
    return Limit("above", low)


def at_most(high: float) -> Limit:
    return Limit("at_most", high)


def below(high: float) -> Limit:
    return Limit("below", high)


def check_annotation(argument: str, value: object, annotation: Any) -> None:
    """Raise `ValueError` unless `value` is what `annotation` says.

    It may be bool, int, float, a `Literal` of strings, a number with limits (`Annotated`), or one of these or None.
    Anything else says nothing.
    """
    if get_origin(annotation) is UnionType or NoneType in get_args(annotation):
        if value is not None:
            for kind in get_args(annotation):
                check_annotation(argument, value, kind)
        return
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
