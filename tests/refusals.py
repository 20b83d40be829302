"""Refusals of wrong arguments and files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def one_sentence(match: str, kind: type[Exception] = ValueError) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an error whose message matches and is one line."""
    with pytest.raises(kind, match=match) as refusal:
        yield refusal
    assert "\n" not in str(refusal.value)


def refused(match: str, call: Callable[..., Any], /, *given: Any, **named: Any) -> str:
    """The ValueError of a call: one line that matches and ends with a full stop."""
    with one_sentence(match) as refusal:
        call(*given, **named)
    sentence = str(refusal.value)
    assert sentence.endswith(".")
    return sentence
