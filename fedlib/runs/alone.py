"""Mutual exclusion of runs in threads: PyTorch has one random state and one default type per process."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

_TURN = Lock()
_INSIDE: ContextVar[bool] = ContextVar("inside", default=False)  # this thread, or the one that has started it


@contextmanager
def alone() -> Iterator[None]:
    """Context for one thread at a time; contexts nested in it, also in threads that it starts, do not wait."""
    if _INSIDE.get():
        yield
        return
    with _TURN:
        token = _INSIDE.set(True)
        try:
            yield
        finally:
            _INSIDE.reset(token)
