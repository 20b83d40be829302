"""Packages that not everybody needs: extras, and packages that are imported late."""

from importlib import import_module
from types import ModuleType, TracebackType
from typing import Any

DISTRIBUTION = "fedlib-papers"


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'


class NotInstalled(ModuleNotFoundError):
    """A package of an extra is not installed."""


class Needs:
    """A context in which a package that cannot be found is one sentence that says which extra has it.

    Attributes:
        extra: the extra.
        what: what needs the package, as the sentence begins.

    Example:
        >>> from fedlib.extras import Needs
        >>> with Needs("notebooks", "The gallery"):
        ...     import not_there
        Traceback (most recent call last):
        fedlib.extras.NotInstalled: The gallery needs not_there, ...: pip install "fedlib-papers[notebooks]".
    """

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
    """A module that is imported when it is first used: `kmedoids = Late("kmedoids")` is a late `import kmedoids`.

    A fingerprint of code knows it by its name, like the module itself.

    Example:
        >>> from fedlib.extras import Late
        >>> stats = Late("scipy.stats")
        >>> stats.rankdata([3, 1, 2])
        array([3., 1., 2.])
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)
