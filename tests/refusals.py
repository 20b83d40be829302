"""Refusals of wrong arguments and files."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def one_sentence(match: str, kind: type[Exception] = ValueError) -> Iterator[pytest.ExceptionInfo]:
    """Expect an error whose message matches and is one line."""
    with pytest.raises(kind, match=match) as refusal:
        yield refusal
    assert "\n" not in str(refusal.value)
