"""Argument checks: every error is one sentence that names the argument, its value and the allowed values."""

import difflib
import math
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Literal, NamedTuple, get_args, get_origin


class Limit(NamedTuple):
    """A limit of a hyper-parameter in its annotation.

    Attributes:
        name: "at_least", "above", "at_most" or "below".
        value: the limit.

    Example:
        >>> from typing import Annotated
        >>> from fedlib.checks import at_least, below, check_annotation
        >>> check_annotation("momentum", 1.5, Annotated[float, at_least(0), below(1)])
        Traceback (most recent call last):
        ValueError: momentum=1.5 is not allowed; it must be a number in [0, 1).
    """

    name: str
    value: float

    def __repr__(self) -> str:
        return f"{self.name}({self.value:g})"


def at_least(low: float) -> Limit:
    """The value may be `low` or more."""
    return Limit("at_least", low)


def above(low: float) -> Limit:
    """The value must be more than `low`."""
    return Limit("above", low)


def at_most(high: float) -> Limit:
    """The value may be `high` or less."""
    return Limit("at_most", high)


def below(high: float) -> Limit:
    """The value must be less than `high`."""
    return Limit("below", high)


def check_annotation(argument: str, value: object, annotation: object) -> None:
    """Raise `ValueError` unless `value` fits `annotation`.

    The annotation is bool, int, float, a `Literal` of strings, a number with limits (`Annotated`), or one of these
    `| None`. Values with any other annotation are not checked.
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
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Raise `ValueError` unless `value` is a finite number in the interval from `low` to `high`."""
    if not (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and (low < value if open_low else low <= value)
        and (value < high if open_high else value <= high)
    ):
        left, right = "(" if open_low or low == -math.inf else "[", ")" if open_high or high == math.inf else "]"
        raise ValueError(f"{argument}={value!r} is not allowed; it must be a number in {left}{low:g}, {high:g}{right}.")


def check_count(argument: str, value: object, low: float = 1, high: float = math.inf) -> None:
    """Raise `ValueError` unless `value` is an integer with `low <= value <= high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        limit = f"at least {low:g}" if high == math.inf else f"from {low} to {high:g}"
        raise ValueError(f"{argument}={value!r} is not allowed; it must be a whole number, {limit}.")


def check_flag(argument: str, value: object) -> None:
    """Raise `ValueError` unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{argument}={value!r} is not allowed; it must be True or False.")


def check_kind(argument: str, value: object, kind: type | UnionType, wanted: str) -> None:
    """Raise `ValueError` unless `value` is an instance of `kind`; `wanted` describes it in the error."""
    if not isinstance(value, kind):
        raise ValueError(f"{argument} is of type {type(value).__name__}; it must be {wanted}.")
