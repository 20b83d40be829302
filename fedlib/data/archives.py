"""Archives of image files, CINIC-10 and Tiny-ImageNet, decoded once to `<root>/<name>.npz`."""

import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image
from tqdm import tqdm

from fedlib.data.dataset import TEST, TRAIN, VALIDATION, Dataset
from fedlib.data.download import fetch
from fedlib.data.npz import read_npz, write_npz

CINIC10_URL = "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz"
CINIC10_MD5 = "6ee4d0c996905fe93221de577967a372"
TINYIMAGENET_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINYIMAGENET_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"

_Picture = tuple[int, int, str, np.ndarray]  # split, label, file name, uint8 [H, W, 3]
_DAMAGED = (OSError, EOFError, KeyError, ValueError, tarfile.TarError, zipfile.BadZipFile, zlib.error)


def cinic10(root: Path) -> Dataset:
    """CINIC-10 (Darlow et al. 2018): 90,000 train, validation and test images each, 3x32x32, 10 classes."""
    archive = fetch(CINIC10_URL, root / "CINIC-10.tar.gz", md5=CINIC10_MD5)
    return _keep(root / "cinic10.npz", archive, _read_cinic10)


def tinyimagenet(root: Path) -> Dataset:
    """Tiny-ImageNet (Le and Yang 2015): 100,000 train and 10,000 test images, 3x64x64, 200 classes."""
    # The official test labels are not public: the test split here is the official validation split.
    archive = fetch(TINYIMAGENET_URL, root / "tiny-imagenet-200.zip", md5=TINYIMAGENET_MD5)
    return _keep(root / "tinyimagenet.npz", archive, _read_tinyimagenet)


def _keep(path: Path, archive: Path, decode: Callable[[Path, str], Dataset]) -> Dataset:
    """Decode the archive to `path` and read it back."""
    with decoding(archive):
        data = decode(archive, path.stem)
    write_npz(path, data)
    return read_npz(path)


@contextmanager
def decoding(archive: Path) -> Iterator[None]:
    """Turn errors of decoding into a `ValueError` that names `archive`."""
    try:
        yield
    except _DAMAGED as error:
        raise ValueError(f"{archive} could not be decoded ({error}); delete it to download it again.") from error


def _read_cinic10(archive: Path, name: str) -> Dataset:
    """Read the pictures `<split>/<class>/<name>.png` in one pass and sort them by name."""
    codes = {"train": TRAIN, "test": TEST, "valid": VALIDATION}
    pictures = []
    with tarfile.open(archive, "r:gz") as tar:
        for member in tqdm(tar, desc=f"decoding {name}", unit=" files", disable=None):
            split, label, file = ("", "", *PurePosixPath(member.name).parts)[-3:]
            if member.isfile() and split in codes and file.endswith(".png"):
                content = tar.extractfile(member).read()  # pyright: ignore[reportOptionalMemberAccess] - it is a file
                pictures.append((codes[split], label, file, pixels(content)))
    classes = tuple(sorted({label for _, label, _, _ in pictures}))
    return _stack(name, ((s, classes.index(label), file, x) for s, label, file, x in pictures), classes)


def _read_tinyimagenet(archive: Path, name: str) -> Dataset:
    """Read `train/<wnid>/images/*.JPEG`, and `val/images/*.JPEG` with labels from `val/val_annotations.txt`."""
    pictures = []
    with zipfile.ZipFile(archive) as zipped:
        base = "tiny-imagenet-200/"
        wnids = zipped.read(base + "wnids.txt").decode().split()
        words = dict(line.split("\t") for line in zipped.read(base + "words.txt").decode().splitlines())
        annotations = zipped.read(base + "val/val_annotations.txt").decode().splitlines()
        wnid_of = dict(line.split("\t")[:2] for line in annotations)
        for member in tqdm(zipped.namelist(), desc=f"decoding {name}", unit=" files", disable=None):
            folder, _, file = member.removeprefix(base).rpartition("/")
            if file.endswith(".JPEG") and folder.startswith(("train/", "val/")):
                split, wnid = (TEST, wnid_of[file]) if folder.startswith("val/") else (TRAIN, folder.split("/")[1])
                pictures.append((split, wnids.index(wnid), file, pixels(zipped.read(member))))
    return _stack(name, pictures, tuple(words[wnid].split(",")[0] for wnid in wnids))


def pixels(file: bytes, size: int | None = None) -> np.ndarray:
    """RGB pixels of one picture, resized if a size is given: uint8 [H, W, 3]."""
    with Image.open(io.BytesIO(file)) as image:
        colour = image.convert("RGB")
        return np.asarray(colour.resize((size, size), Image.Resampling.BILINEAR) if size else colour)


def _stack(name: str, pictures: Iterable[_Picture], classes: tuple[str, ...]) -> Dataset:
    """Data set of the pictures, sorted by split (train, test, validation), label and file name."""
    pictures = sorted(pictures, key=lambda picture: picture[:3])
    if not pictures:
        raise ValueError("it holds no pictures where they are expected")
    x = np.empty((len(pictures), 3, *pictures[0][3].shape[:2]), np.uint8)
    for row, (*_, picture) in zip(x, pictures, strict=True):
        row[:] = picture.transpose(2, 0, 1)
    split, y = (np.array([picture[i] for picture in pictures]) for i in (0, 1))
    domain = np.zeros(len(y), np.int64)
    return Dataset(name, x, y.astype(np.int64), classes, split.astype(np.uint8), domain, (name,))
