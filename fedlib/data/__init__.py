"""Data sets by name: own `.npz` files, embedded sets that need no download, and the official ones."""

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_dir

from fedlib.checks import check_choice, check_kind
from fedlib.data import archives, digit5, domainnet, femnist, glyphs, official, scans, styles
from fedlib.data.dataset import Dataset
from fedlib.data.npz import read_npz, write_npz

__all__ = ["EMBEDDED", "OFFICIAL", "Dataset", "data_root", "datasets", "load", "read_npz", "write_npz"]

EMBEDDED: dict[str, Callable[..., Dataset]] = {
    "characters": glyphs.characters,
    "digit_pairs": scans.digit_pairs,
    "digit_styles": styles.digit_styles,
    "digits": scans.digits,
}
OFFICIAL: dict[str, Callable[..., Dataset]] = {
    "cifar10": official.cifar10,
    "cifar100": official.cifar100,
    "cinic10": archives.cinic10,
    "digit5": digit5.digit5,
    "domainnet": domainnet.domainnet,
    "emnist_byclass": official.emnist_byclass,
    "femnist": femnist.femnist,
    "mnist": official.mnist,
    "mnist_m": digit5.mnist_m,
    "svhn": official.svhn,
    "synthetic_digits": digit5.synthetic_digits,
    "tinyimagenet": archives.tinyimagenet,
    "usps": official.usps,
}


def load(name: str, root: str | os.PathLike | None = None, **options: float | Sequence[str]) -> Dataset:
    """The data set called `name`; one sentence (`ValueError`, `ConnectionError`) when it cannot be had.

    Embedded sets (`EMBEDDED`) are made in memory from `options` such as `seed`; they write nothing, and
    their names are reserved. For every other name, `<root>/<name>.npz` comes first (`read_npz` says what
    is in it); then the official sets (`OFFICIAL`) are read from `root`, downloaded when they are missing;
    of these only two have options: "domainnet", which part of it, at what size; "digit5", which domains,
    of how many images. The same object may be returned twice: treat its arrays as read-only.
    """
    root = data_root(root)
    check_name(name, root)
    own = root / f"{name}.npz"
    if name in EMBEDDED:
        if own.exists():
            raise ValueError(f"{own} has the name of the embedded data set {name!r}; rename the file to load it.")
        _check_options(name, options, EMBEDDED[name])
        return EMBEDDED[name](**options)
    _check_options(name, options, read_npz if own.exists() else OFFICIAL[name])
    if own.exists():
        found = own.stat()
        return _read_once(own, found.st_mtime_ns, found.st_size)
    with _alone(root, name):
        return read_npz(own) if own.exists() else OFFICIAL[name](root, **options)


def datasets(root: str | os.PathLike | None = None) -> tuple[str, ...]:
    """The names that `load` knows, sorted: embedded, official and the `.npz` files in `root`."""
    own = (path.stem for path in data_root(root).glob("*.npz"))
    return tuple(sorted({*EMBEDDED, *OFFICIAL, *own}))


def data_root(root: str | os.PathLike | None = None) -> Path:
    """The folder of the data: `root`, else the environment variable `FEDLIB_DATA`, else the user's cache."""
    check_kind("root", root, str | os.PathLike | None, "the path of a folder")
    return Path(root or os.environ.get("FEDLIB_DATA") or user_cache_dir("fedlib")).expanduser()


def check_name(name: str, root: str | os.PathLike | None = None) -> None:
    """Raise `ValueError` unless `load(name, root)` knows the name; says where a `.npz` may be put."""
    try:
        check_choice("dataset", name, datasets(root))
    except ValueError as error:
        raise ValueError(f"{error} Your own set may be put at {data_root(root) / f'{name}.npz'}.") from None


def _check_options(name: str, options: dict[str, object], make: Callable[..., Dataset]) -> None:
    """Raise `ValueError` unless `options` are arguments of `make` (its place on the disk is none)."""
    allowed = set(inspect.signature(make).parameters) - {"root", "path"}
    unknown = sorted(set(options) - allowed)
    if unknown:
        listed = ", ".join(sorted(allowed)) or "none"
        raise ValueError(f"the data set {name!r} has no option {unknown[0]!r}; allowed: {listed}.")


@contextmanager
def _alone(root: Path, name: str) -> Iterator[None]:
    """Wait until no other process makes the same data set; a folder that cannot be written needs no wait."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"the data folder {root} cannot be made ({error.strerror})"
        raise ValueError(f"{reason}; name another one in FEDLIB_DATA or as root.") from error
    with FileLock(root / f".{name}.lock") if os.access(root, os.W_OK) else nullcontext():
        yield


@lru_cache(maxsize=4)
def _read_once(path: Path, modified: int, size: int) -> Dataset:
    """`read_npz`, kept in memory as long as the file on disk does not change."""
    return read_npz(path)
