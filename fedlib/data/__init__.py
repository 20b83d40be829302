"""Data sets by name: your `.npz` files, embedded sets that need no download, and official sets."""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_dir

from fedlib.checks import check_choice, check_kind
from fedlib.data import archives, femnist, glyphs, hub, official, scans
from fedlib.data.dataset import Dataset
from fedlib.data.npz import read_npz, write_npz
from fedlib.data.scans import digit_masks

__all__ = ["EMBEDDED", "OFFICIAL", "Dataset", "data_root", "datasets", "digit_masks", "is_here", "load"]
__all__ += ["read_npz", "write_npz"]

EMBEDDED: dict[str, Callable[..., Dataset]] = {
    "characters": glyphs.characters,
    "digit_pairs": scans.digit_pairs,
    "digit_styles": scans.digit_styles,
    "digits": scans.digits,
}
OFFICIAL: dict[str, Callable[..., Dataset]] = {
    "cifar10": official.cifar10,
    "cifar100": official.cifar100,
    "cinic10": archives.cinic10,
    "digit5": official.digit5,
    "domainnet": archives.domainnet,
    "emnist_byclass": official.emnist_byclass,
    "femnist": femnist.femnist,
    "mnist": official.mnist,
    "mnist_m": official.mnist_m,
    "svhn": official.svhn,
    "synthetic_digits": official.synthetic_digits,
    "tinyimagenet": archives.tinyimagenet,
    "usps": official.usps,
}
FILES = {  # for each official set, a file that its download leaves in the data folder
    "cifar10": "cifar-10-batches-py/test_batch",
    "cifar100": "cifar-100-python/test",
    "cinic10": "CINIC-10.tar.gz",
    "domainnet": "domainnet/*/domainnet.npz",
    "emnist_byclass": "EMNIST/raw/emnist-byclass-test-images-idx3-ubyte",
    "femnist": "femnist/*",
    "mnist": "MNIST/raw/t10k-images-idx3-ubyte",
    "svhn": "svhn/test_32x32.mat",
    "tinyimagenet": "tiny-imagenet-200.zip",
    "usps": "usps/usps.t.bz2",
}


def load(name: str, root: str | os.PathLike[str] | None = None, **options: float | Sequence[str]) -> Dataset:
    """Load a data set by name.

    Embedded sets (`EMBEDDED`) are made in memory, write nothing, and have reserved names. For every other name the
    file `<root>/<name>.npz` is read if it exists (see `read_npz`). Otherwise an official set (`OFFICIAL`) is read
    from `root` and downloaded if it is missing. A name "hf:owner/name" is a data set of the Hugging Face Hub, and
    "hf:FOLDER" a local copy of such a repository; see `fedlib.data.hub.hub`.

    Args:
        name: one of `datasets()`, or "hf:owner/name", "hf:owner/name@revision" or "hf:FOLDER".
        root: folder of the data. Default: the environment variable `FEDLIB_DATA`, else the user's cache.
        **options: arguments of an embedded set, such as `seed`, of the official sets "digit5" and "domainnet", or of
            a set of the Hub: `config`, `revision`, and the columns `image`, `label` and `writer`. All other sets take
            none.

    Returns:
        The data set. Repeated calls may return the same object: treat its arrays as read-only.

    Raises:
        ValueError: the name or an option is unknown, or a file is damaged.
        ConnectionError: a download failed.
        ModuleNotFoundError: the set needs a package of an extra that is not installed.

    Example:
        >>> fl.load("digits", copies=1)
        Dataset('digits': 1,797 images 3x32x32, 10 classes, 1 domain(s), fingerprint 847e41fa2538ddbc)
    """
    root = data_root(root)
    if isinstance(name, str) and name.startswith(hub.PREFIX):
        _check_options(name, options, hub.hub)
        with _locked(root, "hf"):
            return hub.hub(name, root, **options)  # pyright: ignore[reportArgumentType] - it checks them
    try:
        check_choice("dataset", name, datasets(root))
    except ValueError as error:
        raise ValueError(f"{error} Put your own set at {root / f'{name}.npz'}.") from None
    path = root / f"{name}.npz"
    if name in EMBEDDED:
        if path.exists():
            raise ValueError(f"{path} has the name of the embedded data set {name!r}; rename the file to load it.")
        _check_options(name, options, EMBEDDED[name])
        return EMBEDDED[name](**options)
    _check_options(name, options, read_npz if path.exists() else OFFICIAL[name])
    if path.exists():
        file = path.stat()
        return _read_once(path, file.st_mtime_ns, file.st_size)
    with _locked(root, name):
        return read_npz(path) if path.exists() else OFFICIAL[name](root, **options)


def datasets(root: str | os.PathLike[str] | None = None) -> tuple[str, ...]:
    """List the data sets that `load` knows: embedded sets, official sets, and the `.npz` files in `root`.

    Args:
        root: folder of the data; default as in `load`.

    Returns:
        Their names in alphabetical order.

    Example:
        >>> fl.datasets()[:5]
        ('characters', 'cifar10', 'cifar100', 'cinic10', 'digit5')
    """
    files = (path.stem for path in data_root(root).glob("*.npz"))
    return tuple(sorted({*EMBEDDED, *OFFICIAL, *files}))


def is_here(name: str, root: str | os.PathLike[str] | None = None, **options: object) -> bool:
    """Check that `load(name, root, **options)` needs no download.

    Args:
        name: name of a data set.
        root: folder of the data; default as in `load`.
        **options: options of `load`; only the domains of Digit-5 matter.

    Returns:
        True for embedded sets, `.npz` files, and official sets whose files exist.

    Example:
        >>> from fedlib.data import is_here
        >>> is_here("digits"), is_here("cifar10", "an empty folder")
        (True, False)
    """
    folder = data_root(root)
    if name == "digit5":
        return all(is_here(domain, root) for domain in options.get("domains", official.DOMAINS))  # type: ignore[attr-defined]
    if name in EMBEDDED or (folder / f"{name}.npz").exists():
        return True
    return name in FILES and any(folder.glob(FILES[name]))


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder of the data.

    Args:
        root: the folder. Default: the environment variable `FEDLIB_DATA`, else the user's cache.

    Returns:
        The path; the folder need not exist yet.

    Example:
        >>> from fedlib.data import data_root
        >>> data_root("images").name
        'images'
    """
    check_kind("root", root, str | os.PathLike | None, "the path of a folder")
    return Path(root or os.environ.get("FEDLIB_DATA") or user_cache_dir("fedlib")).expanduser()


def _check_options(name: str, options: Mapping[str, object], make: Callable[..., Dataset]) -> None:
    """Raise `ValueError` unless `options` are arguments of `make` other than `root` and `path`."""
    allowed = set(inspect.signature(make).parameters) - {"root", "path"}
    unknown = sorted(set(options) - allowed)
    if unknown:
        listed = ", ".join(sorted(allowed)) or "none"
        raise ValueError(f"the data set {name!r} has no option {unknown[0]!r}; allowed: {listed}.")


@contextmanager
def _locked(root: Path, name: str) -> Iterator[None]:
    """Lock a data set against other processes that create it; no lock in a read-only folder."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"the data folder {root} cannot be made ({error.strerror})"
        raise ValueError(f"{reason}; choose another one by FEDLIB_DATA or root.") from error
    with FileLock(root / f".{name}.lock") if os.access(root, os.W_OK) else nullcontext():
        yield


@lru_cache(maxsize=4)
def _read_once(path: Path, modified: int, size: int) -> Dataset:
    """`read_npz` with a cache in memory, valid while the file on disk does not change."""
    return read_npz(path)
