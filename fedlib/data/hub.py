"""Data sets of the Hugging Face Hub: `load("hf:owner/name")`, through the package `datasets`."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from fedlib.checks import check_kind
from fedlib.data.dataset import TEST, TRAIN, VALIDATION, Dataset
from fedlib.data.npz import read_npz, write_npz
from fedlib.extras import Needs

PREFIX = "hf:"
SPLITS = {"train": TRAIN, "test": TEST, "validation": VALIDATION, "valid": VALIDATION, "val": VALIDATION}
WRITERS = ("writer_id", "writer", "user_id", "client_id", "domain")
_NAME = r"(?P<repository>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?"


def hub(
    path: str, root: Path, config: str = "", revision: str = "", image: str = "", label: str = "", writer: str = ""
) -> Dataset:
    """Data set of the Hub, or of a folder in the layout of a repository.

    The splits train, test and validation are the official ones; the validation split replaces a missing test split, and
    other splits are left out. Grey images have one channel; if some are coloured, all have three.

    Args:
        path: "hf:owner/name", "hf:owner/name@revision" or "hf:" and an existing folder.
        root: folder of the data. A set of the Hub is cached in `<root>/hf`.
        config: configuration, for a repository with several.
        revision: branch, tag or commit of the repository, instead of "@revision".
        image: column of the images. Default: the only one with the feature `Image`.
        label: column of the classes. Default: the only one with the feature `ClassLabel`.
        writer: column of the writers; each value is a domain. Default: the first existing one of `WRITERS`, or none.
    """
    given = {"config": config, "revision": revision, "image": image, "label": label, "writer": writer}
    for option, value in given.items():
        check_kind(option, value, str, "a name")
    repository = path.removeprefix(PREFIX)
    if repository and Path(repository).expanduser().is_dir():
        return _decode(path, str(Path(repository).expanduser()), given)
    if not (match := re.fullmatch(_NAME, repository)) or (revision and match["revision"]):
        raise ValueError(f"dataset={path!r} is not allowed; use hf:owner/name, hf:owner/name@revision or hf:FOLDER.")
    given["revision"] = revision or match["revision"] or ""
    words = [match["repository"], *(f"{option}={value}" for option, value in given.items() if value)]
    file = root / "hf" / f"{' '.join(words).replace('/', '--')}.npz"
    if not file.exists():
        write_npz(file, _decode(path, match["repository"], given))
    return replace(read_npz(file), name=path)


def _decode(name: str, repository: str, given: dict[str, str]) -> Dataset:
    with Needs("hf", f"The data set {name!r}"):
        import datasets  # imported late: the import takes a second
        from datasets import exceptions
    columns = {"image": given["image"], "label": given["label"], "writer": given["writer"]}
    try:
        of, files = given["revision"] or None, _files(repository)
        loaded: Any = datasets.load_dataset(repository, given["config"] or None, revision=of, **files)
    except exceptions.DatasetNotFoundError as error:
        raise ValueError(f"dataset={name!r} is unknown: {_first_line(error)}.") from error
    except (ValueError, exceptions.DatasetsError) as error:
        raise ValueError(f"{name} cannot be read: {_first_line(error)}.") from error
    except OSError as error:
        raise ConnectionError(
            f"{name} could not be downloaded ({_first_line(error)}); download the files of its repository "
            f"into a folder by hand and load them with fl.load('hf:FOLDER')."
        ) from error
    parts = [(SPLITS[split], loaded[split]) for split in loaded if split in SPLITS]
    if not parts:
        raise ValueError(f"{name} has no split train, test or validation, but {', '.join(loaded)}.")
    if TEST not in [code for code, _ in parts]:
        parts = [(TEST if code == VALIDATION else code, part) for code, part in parts]
    parts.sort(key=lambda part: part[0])
    features = parts[0][1].features
    columns["writer"] = columns["writer"] or next((column for column in WRITERS if column in features), "")
    others = {column: feature for column, feature in features.items() if column != columns["writer"]}
    for option, kind in {"image": datasets.Image, "label": datasets.ClassLabel}.items():
        columns[option] = columns[option] or _the_only(name, option, kind, others)
    unknown = [column for column in columns.values() if column and column not in features]
    if unknown:
        raise ValueError(f"{name} has no column {unknown[0]!r}; it has {', '.join(features)}.")
    return _assemble(name, parts, columns)


def _files(repository: str) -> dict[str, Any]:
    """File patterns by split of a folder with split folders: a class may have the name of a split."""
    folder = Path(repository)
    if not folder.is_dir() or (folder / "README.md").exists():
        return {}
    files = {split: f"{split}/**" for split in SPLITS if (folder / split).is_dir()}
    return {"data_files": files} if files else {}


def _the_only(name: str, option: str, kind: type, features: dict[str, Any]) -> str:
    """Name of the only column of a kind."""
    fitting = [column for column, feature in features.items() if isinstance(feature, kind)]
    if len(fitting) != 1:
        listed = f"{len(fitting)} columns" if fitting else "no column"
        raise ValueError(
            f"{name} has {listed} with the feature {kind.__name__}; choose one by {option}='...': "
            f"{', '.join(fitting or features)}."
        )
    return fitting[0]


def _assemble(name: str, parts: list[tuple[int, Any]], columns: dict[str, str]) -> Dataset:
    raw = [part.select_columns([columns["image"]]).with_format("arrow") for _, part in parts]
    x = _stack(name, _each(name, raw, columns["image"]), sum(len(part) for _, part in parts))
    y, classes = _numbers(parts, columns["label"])
    if y.min(initial=0) < 0:
        raise ValueError(f"{name} has images without a label; their class is {y.min()}.")
    domain, domains = _numbers(parts, columns["writer"]) if columns["writer"] else (np.zeros(len(y), np.int64), (name,))
    split = np.repeat(np.array([code for code, _ in parts], np.uint8), [len(part) for _, part in parts])
    return Dataset(name, x, y, classes, split, domain, domains)


def _each(name: str, raw: Sequence[Any], column: str) -> Iterator[Any]:
    """Encoded images of all splits; `ValueError` for a file in two splits."""
    split_of: dict[str, int] = {}
    for split, part in enumerate(raw):
        for batch in part.iter(1_000):
            for file in batch[column].to_pylist():
                in_a_file = isinstance(file, dict) and not file["bytes"]
                if in_a_file and split_of.setdefault(file["path"], split) != split:
                    raise ValueError(f"{name} has the file {file['path']} in two splits; an image may be in one only.")
                yield file


def _stack(name: str, files: Iterable[Any], n: int) -> np.ndarray:
    """The decoded images, uint8 [N, C, H, W]."""
    x, size = np.empty(0, np.uint8), ""
    for i, file in enumerate(tqdm(files, total=n, desc=f"decoding {name}", unit=" images", disable=None)):
        picture = _pixels(name, i, file)
        this = "x".join(map(str, picture.shape[1:]))
        if i == 0:
            x, size = np.empty((n, *picture.shape), np.uint8), this
        if this != size:
            raise ValueError(f"{name} has images of {size} and of {this} pixels; all must have the same size.")
        if len(picture) > len(x[0]):
            x = np.repeat(x, 3, axis=1)
        x[i] = picture
    return x


def _pixels(name: str, i: int, file: dict[str, Any]) -> np.ndarray:
    """Pixels of an image: uint8 [1, H, W] if it is grey, else [3, H, W]."""
    try:
        content = io.BytesIO(file["bytes"]) if file["bytes"] is not None else file["path"]
        with Image.open(content) as picture:
            grey = picture.mode in ("1", "L")
            pixels = np.asarray(picture.convert("L" if grey else "RGB"))
    except (OSError, ValueError, TypeError, AttributeError, Image.DecompressionBombError) as error:
        raise ValueError(f"{name}: image {i} cannot be decoded ({_first_line(error)}).") from error
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def _numbers(parts: Sequence[tuple[int, Any]], column: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Column as positions [N] in names: the names of its ClassLabel, or its sorted distinct values."""
    values = [value for _, part in parts for value in part[column]]
    names = getattr(parts[0][1].features[column], "names", None)
    if names:
        return np.array(values, np.int64), tuple(names)
    distinct, positions = np.unique(np.array(values), return_inverse=True)
    return positions.astype(np.int64), tuple(map(str, distinct.tolist()))


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
