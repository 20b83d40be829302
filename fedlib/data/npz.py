"""Data sets as `.npz` files: the format of users' images and of decoded archives."""

import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedlib.data.dataset import TEST, TRAIN, VALIDATION, Dataset
from fedlib.files import write_file

_SPLITS = {"train": TRAIN, "test": TEST, "validation": VALIDATION}
_FIELDS = ("x", "y", "domain", "writer", "source")
_KEYS = {f"{field}_{split}" for field in _FIELDS for split in _SPLITS} | {*_FIELDS, "classes", "domains"}
_UNREADABLE = (OSError, EOFError, ValueError, KeyError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
LARGE, DENSE = 2**30, 200  # bytes and compression ratio above which a file is refused


def read_npz(path: str | os.PathLike[str]) -> Dataset:
    """Read a data set from one `.npz` file. Nothing is unpickled.

    Required arrays: `x` and `y`, or with an official test split `x_train`, `y_train`, `x_test` and `y_test`. Optional:
    `x_validation`, `y_validation`; the names `classes`; for every split `domain_*` (positions in the names `domains`,
    default: "0", "1", ...) or `writer_*` (any ids; each writer is a domain), and `source_*` (whole numbers, equal for
    images made from the same original). Without splits the names are `domain`, `writer` and `source`.

    Images are [N, H, W], [N, H, W, C] or [N, C, H, W], with 1 or 3 channels: uint8, booleans, whole numbers from 0 to
    255 in any type, or numbers from 0 to 1. Labels are [N] or [N, 1]: positions in `classes`, or names of classes;
    without `classes` any whole numbers from 0. Classes without names are named by their labels.

    Args:
        path: the file.

    Returns:
        The data set; its images are in the order train, test, validation.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, or an array is missing or has another type or shape; the message names the
            file.

    Example:
        >>> from fedlib.data import read_npz
        >>> x, y = np.zeros((2, 8, 8), np.uint8), np.array([0, 1])
        >>> np.savez("mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        >>> read_npz("mine.npz")
        Dataset('mine': 4 images 1x8x8, 2 classes, 1 domain(s), fingerprint ...)
    """
    path = Path(path)
    arrays = _read_arrays(path)
    _check_known(path)
    try:
        return _assemble(path.stem, arrays)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write_npz(path: str | os.PathLike[str], data: Dataset) -> None:
    """Write a data set to one uncompressed `.npz` file in the layout of `read_npz`.

    The file is written under a temporary name and then renamed, so that it is never incomplete.

    Args:
        path: the file; missing folders are created, an existing file is replaced.
        data: the data set.

    Example:
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
        known = {"allow_pickle": "object arrays are not read, save names with .astype(str)", "would expand": str(error)}
        reason = next((known[sign] for sign in known if sign in str(error)), "it is damaged or incomplete")
        raise ValueError(f"{path} cannot be read as a .npz of images: {reason}.") from error


def _check_known(path: Path) -> None:
    """Raise `ValueError` for images and labels of a split that does not exist, such as x_valid and y_valid."""
    with zipfile.ZipFile(path) as zipped:
        names = {name.removesuffix(".npy") for name in zipped.namelist()}
    for split in sorted(name.removeprefix("x_") for name in names if name.startswith("x_")):
        if split not in _SPLITS and f"y_{split}" in names:
            raise ValueError(f"{path}: x_{split} and y_{split} are of no known split; known are {', '.join(_SPLITS)}.")


def _assemble(name: str, arrays: Mapping[str, np.ndarray]) -> Dataset:
    bare = [field for field in _FIELDS if field in arrays]
    split = [key for key in arrays if key not in (*_FIELDS, "classes", "domains")]
    if bare and split:
        raise ValueError(f"{bare[0]} and {split[0]} exclude each other; either all arrays have splits or none.")
    if missing := [k for k in (("x", "y") if bare else ("x_train", "y_train", "x_test", "y_test")) if k not in arrays]:
        raise ValueError(f"{', '.join(missing)} missing; a file needs x and y, or x_train, y_train, x_test and y_test.")
    splits = [""] if bare else [split for split in _SPLITS if f"x_{split}" in arrays]
    keys = [_key("x", split) for split in splits]
    images = _pixels(keys, [_channels_first(key, arrays[key]) for key in keys])
    if len({x.shape[1:] for x in images}) > 1:
        shapes = ", ".join(f"{key} {x.shape[1:]}" for key, x in zip(keys, images, strict=True))
        raise ValueError(f"the images of all splits must have one shape [C, H, W], but they are {shapes}.")
    counts = dict(zip(splits, map(len, images), strict=True))
    y, classes = _labels(arrays, counts)
    domain, domains = _domains(name, arrays, counts)
    source = _whole_numbers("source", arrays, counts) if _key("source", splits[0]) in arrays else None
    code = np.repeat(np.array([_SPLITS.get(s, TRAIN) for s in splits], np.uint8), list(counts.values()))
    x = np.empty((len(y), *images[0].shape[1:]), np.uint8)  # contiguous [N, C, H, W]
    return Dataset(name, np.concatenate(images, out=x), y, classes, code, domain, domains, source)


def _key(field: str, split: str) -> str:
    return f"{field}_{split}" if split else field


def _channels_first(key: str, x: np.ndarray) -> np.ndarray:
    """Images with the channel axis second: [N, C, H, W]."""
    if x.ndim not in (3, 4) or x.dtype.kind not in "buif":
        raise ValueError(f"{key} is {x.dtype} of shape {x.shape}; use uint8 [N, H, W], [N, H, W, C] or [N, C, H, W].")
    if x.ndim == 3 or x.shape[3] in (1, 3):
        return x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
    if x.shape[1] in (1, 3):
        return x
    four = " (transparency is the fourth channel, which x[..., :3] leaves out)" if x.shape[3] == 4 else ""
    raise ValueError(f"{key} has shape {x.shape}; images have 1 (grey) or 3 (colour) channels{four}.")


def _pixels(keys: Sequence[str], images: list[np.ndarray]) -> list[np.ndarray]:
    """Images of all splits as uint8, with one scale for all."""
    _check_masks(keys, images)
    kinds = {x.dtype.kind if x.dtype != np.uint8 else "pixels" for x in images}
    if kinds == {"pixels"}:
        return images
    low, high = float(min(x.min(initial=0) for x in images)), float(max(x.max(initial=0) for x in images))
    if kinds == {"b"} or ("f" in kinds and 0 <= low <= high <= 1):
        return [np.rint(255.0 * x).astype(np.uint8) for x in images]
    if low >= 0 and 1 < high <= 255 and all((x == np.rint(x)).all() for x in images if x.dtype.kind == "f"):
        return [x.astype(np.uint8) for x in images]
    how = "255 * (x - x.min()) / (x.max() - x.min())"
    if "f" not in kinds and low >= 0:
        how = "255 * x" if high <= 1 else "x // 257" if high > 4095 else how  # 257: of 16 bits
    raise ValueError(
        f"{' and '.join(keys)} have values from {low:g} to {high:g}; images are whole numbers from 0 to 255 or numbers "
        f"from 0 to 1, so save ({how}).astype('uint8')."
    )


def _check_masks(keys: Sequence[str], images: Sequence[np.ndarray]) -> None:
    """Raise `ValueError` if one split has booleans and another one pixels: True would be 1 of 255."""
    types = {key: x.dtype for key, x in zip(keys, images, strict=True)}
    if len({dtype.kind == "b" for dtype in types.values()}) > 1:
        raise ValueError(f"{', '.join(f'{key} is {types[key]}' for key in keys)}; either all or none may be bool.")


def _per_image(field: str, arrays: Mapping[str, np.ndarray], counts: Mapping[str, int]) -> np.ndarray:
    """Values of a field, concatenated over the splits, [N]; `ValueError` for a wrong length."""
    values = []
    for split, n in counts.items():
        key, images = _key(field, split), _key("x", split)
        if key not in arrays:
            raise ValueError(f"{key} missing; {images} has {n} images.")
        shape = arrays[key].shape
        if shape not in ((n,), (n, 1)):
            hot = " (one-hot labels become classes with .argmax(1))" if field == "y" and len(shape) == 2 else ""
            raise ValueError(f"{key} has shape {shape}, but {images} has {n} images; both must agree{hot}.")
        values.append(arrays[key].reshape(n))
    if len({value.dtype.kind in "SU" for value in values}) > 1:
        raise ValueError(f"{field} is text in one split and numbers in another; it must be the same in all.")
    return np.concatenate(values)


def _labels(arrays: Mapping[str, np.ndarray], counts: Mapping[str, int]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as positions [N] in the class names, and the class names."""
    values = _per_image("y", arrays, counts)
    if values.dtype.kind in "SU":
        values = _texts(values)
        names = _names("classes", arrays, 0) or tuple(sorted({*values}))
        if unknown := sorted({*values} - {*names}):
            raise ValueError(f"the label {unknown[0]!r} is not in classes.")
        return np.array([names.index(value) for value in values]), names
    values = _whole_numbers("y", arrays, counts)
    distinct = np.unique(values)
    if distinct.min(initial=0) < 0:
        raise ValueError(f"y has the label {distinct[0]}; images without a class must be left out.")
    if "classes" in arrays or len(distinct) == distinct.max(initial=-1) + 1:
        return values, _names("classes", arrays, len(distinct))
    return np.searchsorted(distinct, values), tuple(map(str, distinct.tolist()))


def _texts(values: np.ndarray) -> list[str]:
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values.tolist()]


def _whole_numbers(field: str, arrays: Mapping[str, np.ndarray], counts: Mapping[str, int]) -> np.ndarray:
    values = _per_image(field, arrays, counts)
    if values.dtype.kind not in "buif" or not (values == np.rint(values)).all():
        raise ValueError(f"{field} has {values.dtype} values that are not whole numbers.")
    return values.astype(np.int64)


def _domains(name: str, arrays: Mapping[str, np.ndarray], counts: dict[str, int]) -> tuple[np.ndarray, tuple[str, ...]]:
    first = next(iter(counts))
    if _key("domain", first) in arrays:
        domain = _whole_numbers("domain", arrays, counts)
        return domain, _names("domains", arrays, int(domain.max(initial=-1)) + 1)
    if _key("writer", first) in arrays:
        writers, domain = np.unique(_per_image("writer", arrays, counts), return_inverse=True)
        return domain.astype(np.int64), tuple(map(str, writers.tolist()))
    return np.zeros(sum(counts.values()), np.int64), (name,)


def _names(key: str, arrays: Mapping[str, np.ndarray], count: int) -> tuple[str, ...]:
    """Names in the array `key`; without the array `count` names "0", "1", ..."""
    if key not in arrays:
        return tuple(map(str, range(count)))
    if arrays[key].ndim != 1:
        raise ValueError(f"{key} has shape {arrays[key].shape}; it must be a list of names.")
    return tuple(_texts(arrays[key]))
