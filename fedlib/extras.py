"""Optional packages (extras), and packages that are imported late."""

from importlib import import_module
from types import ModuleType, TracebackType
from typing import Any

DISTRIBUTION = "fedlib-papers"


def install(extra: str) -> str:
    """Command that installs an extra."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'


class NotInstalled(ModuleNotFoundError):
    """The error for a missing package of an extra."""


class Needs:
    """Context that reports a missing package in one sentence: `what` needs it, and `extra` installs it."""

    def __init__(self, extra: str, what: str):
        self.extra, self.what = extra, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, ModuleNotFoundError) and not isinstance(error, NotInstalled):
            package = (error.name or "a package").partition(".")[0]
            if package != "fedlib":
                sentence = f"{self.what} needs {package}, which is not installed: {install(self.extra)}."
                raise NotInstalled(sentence, name=error.name) from None


class Late(ModuleType):
    """A module that is imported at first use; it enters fingerprints by name, like the module itself."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)
