"""A data set as one `.npz` file: the format of users' images and of decoded archives."""

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedlib.data.dataset import TEST, TRAIN, VALIDATION, Dataset
from fedlib.files import write_file

_SPLITS = {"train": TRAIN, "test": TEST, "validation": VALIDATION}
_KEYS = {f"{field}_{split}" for field in ("x", "y", "domain", "writer", "source") for split in _SPLITS} | {
    "classes",
    "domains",
}
_UNREADABLE = (OSError, EOFError, ValueError, KeyError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
LARGE, DENSE = 2**30, 200  # bytes and compression ratio above which a file is refused


def read_npz(path: str | os.PathLike[str]) -> Dataset:
    """Read a data set from one `.npz` file. Nothing is unpickled.

    Required arrays: `x_train`, `x_test`, uint8 [N, H, W] or [N, H, W, C], and `y_train`, `y_test`, whole numbers [N].
    Optional: `x_validation`, `y_validation`; the names `classes` (default: "0", "1", ...); for every split `domain_*`
    (positions in the names `domains`, default: "0", "1", ...) or `writer_*` (any ids; each writer is a domain), and
    `source_*` (whole numbers, equal for images made from the same original).

    Args:
        path: the file.

    Returns:
        The data set; its images are in the order train, test, validation.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, or an array is missing or has another type or shape; the message names the
            file.

    Example:
        >>> import numpy as np
        >>> from fedlib.data import read_npz
        >>> x, y = np.zeros((2, 8, 8), np.uint8), np.array([0, 1])
        >>> np.savez("mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        >>> read_npz("mine.npz")
        Dataset('mine': 4 images 1x8x8, 2 classes, 1 domain(s), fingerprint ...)
    """
    path = Path(path)
    arrays = _read_arrays(path)
    try:
        return _assemble(path.stem, arrays)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write_npz(path: str | os.PathLike[str], data: Dataset) -> None:
    """Write a data set to one uncompressed `.npz` file in the layout of `read_npz`.

    The file is written under a temporary name and then renamed, so that it is never incomplete.

    Args:
        path: the file; missing folders are made, an existing file is replaced.
        data: the data set.

    Example:
        >>> import fedlib as fl
        >>> from fedlib.data import read_npz, write_npz
        >>> data = fl.load("characters", writers=5)
        >>> write_npz("mine/copy.npz", data)
        >>> len(read_npz("mine/copy.npz")) == len(data)
        True
    """
    arrays = {"classes": np.array(data.classes), "domains": np.array(data.domains)}
    for split, code in _SPLITS.items():
        rows = data.split == code
        if rows.any() or split != "validation":
            arrays[f"x_{split}"] = data.x[rows].transpose(0, 2, 3, 1)
            arrays[f"y_{split}"] = data.y[rows]
            arrays[f"domain_{split}"] = data.domain[rows]
            if data.source is not None:
                arrays[f"source_{split}"] = data.source[rows]

    def save(temporary: Path) -> None:
        with temporary.open("xb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_file(path, save)


def check_expansion(zipped: zipfile.ZipFile) -> None:
    """Raise `ValueError` for an archive that would fill the memory: a small file that expands to a very large one."""
    for member in zipped.infolist():
        if member.file_size > max(LARGE, DENSE * member.compress_size):
            raise ValueError(f"{member.filename} would expand to {member.file_size} bytes")


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as zipped:
            check_expansion(zipped)
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files if key in _KEYS}
    except FileNotFoundError:
        raise
    except _UNREADABLE as error:
        known = {"allow_pickle": "object arrays are not read", "would expand": str(error)}
        reason = next((known[sign] for sign in known if sign in str(error)), "it is damaged or incomplete")
        raise ValueError(f"{path} cannot be read as a .npz of images: {reason}.") from error


def _assemble(name: str, arrays: Mapping[str, np.ndarray]) -> Dataset:
    missing = [k for k in ("x_train", "y_train", "x_test", "y_test") if k not in arrays]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing; a data set needs x_train, y_train, x_test, y_test.")
    splits = [split for split in _SPLITS if f"x_{split}" in arrays]
    images = [_images(f"x_{split}", arrays[f"x_{split}"]) for split in splits]
    if len({x.shape[1:] for x in images}) > 1:
        shapes = ", ".join(f"x_{s} {x.shape[1:]}" for s, x in zip(splits, images, strict=True))
        raise ValueError(f"the images of all splits must have one shape [C, H, W], but they are {shapes}.")
    counts = dict(zip(splits, map(len, images), strict=True))
    y = _whole_numbers("y", arrays, counts)
    domain, domains = _domains(name, arrays, counts)
    source = _whole_numbers("source", arrays, counts) if "source_train" in arrays else None
    classes = _names("classes", arrays, int(y.max(initial=-1)) + 1)
    split = np.repeat(np.array([_SPLITS[s] for s in splits], np.uint8), list(counts.values()))
    x = np.empty((len(y), *images[0].shape[1:]), np.uint8)  # contiguous [N, C, H, W]
    return Dataset(name, np.concatenate(images, out=x), y, classes, split, domain, domains, source)


def _images(key: str, x: np.ndarray) -> np.ndarray:
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        raise ValueError(f"{key} is {x.dtype} of shape {x.shape}; it must be uint8 [N, H, W] or [N, H, W, C].")
    if x.ndim == 4 and x.shape[3] not in (1, 3):
        raise ValueError(f"{key} has shape {x.shape}; the last axis of [N, H, W, C] must be 1 (grey) or 3 (colour).")
    return x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)  # [N, C, H, W]


def _per_image(field: str, arrays: Mapping[str, np.ndarray], counts: Mapping[str, int]) -> np.ndarray:
    """The arrays `<field>_<split>` of all splits as one array [N]; `ValueError` for a wrong length."""
    values = []
    for split, n in counts.items():
        key = f"{field}_{split}"
        if key not in arrays:
            raise ValueError(f"{key} missing; x_{split} has {n} images.")
        if arrays[key].shape != (n,):
            raise ValueError(f"{key} has shape {arrays[key].shape}, but x_{split} has {n} images; both must agree.")
        values.append(arrays[key])
    return np.concatenate(values)


def _whole_numbers(field: str, arrays: Mapping[str, np.ndarray], counts: Mapping[str, int]) -> np.ndarray:
    values = _per_image(field, arrays, counts)
    if values.dtype.kind not in "iu":
        raise ValueError(f"{field}_train and {field}_test are {values.dtype}; they must be whole numbers.")
    return values.astype(np.int64)


def _domains(
    name: str, arrays: Mapping[str, np.ndarray], counts: Mapping[str, int]
) -> tuple[np.ndarray, tuple[str, ...]]:
    if "domain_train" in arrays:
        domain = _whole_numbers("domain", arrays, counts)
        return domain, _names("domains", arrays, int(domain.max(initial=-1)) + 1)
    if "writer_train" in arrays:
        writers, domain = np.unique(_per_image("writer", arrays, counts), return_inverse=True)
        return domain.astype(np.int64), tuple(map(str, writers.tolist()))
    return np.zeros(sum(counts.values()), np.int64), (name,)


def _names(key: str, arrays: Mapping[str, np.ndarray], count: int) -> tuple[str, ...]:
    """The names in the array `key`; without it "0", "1", ..., `count` names."""
    if key not in arrays:
        return tuple(map(str, range(count)))
    if arrays[key].ndim != 1:
        raise ValueError(f"{key} has shape {arrays[key].shape}; it must be a list of names.")
    return tuple(str(n.decode() if isinstance(n, bytes) else n) for n in arrays[key].tolist())
