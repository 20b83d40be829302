"""Official data sets through torchvision's readers, at torchvision's paths: MNIST, EMNIST, USPS, SVHN and CIFAR."""

import string
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedlib.data.dataset import TEST, TRAIN, Dataset
from fedlib.data.download import fetch
from fedlib.extras import Late

readers = Late("torchvision.datasets")
DIGITS = tuple(string.digits)
_File = tuple[str, Path, str]  # URL, path, MD5


def cifar10(root: Path) -> Dataset:
    """CIFAR-10 (Krizhevsky 2009): 50,000 + 10,000 colour images, 3x32x32, 10 classes."""
    return _cifar("cifar10", readers.CIFAR10, root)


def cifar100(root: Path) -> Dataset:
    """CIFAR-100 (Krizhevsky 2009): 50,000 + 10,000 colour images, 3x32x32, 100 fine classes."""
    return _cifar("cifar100", readers.CIFAR100, root)


def mnist(root: Path) -> Dataset:
    """MNIST (LeCun et al. 1998): 60,000 + 10,000 grey images, 1x28x28, 10 digits."""
    reader, raw = readers.MNIST, root / "MNIST" / "raw"
    files = [(reader.mirrors[0] + name, raw / name, md5) for name, md5 in reader.resources]
    splits = _read("mnist", lambda train, **how: reader(root, train=train, **how), files)
    return join("mnist", ((s.data.numpy()[:, None], s.targets.numpy()) for s in splits), DIGITS)


def emnist_byclass(root: Path) -> Dataset:
    """EMNIST by class (Cohen et al. 2017): 814,255 grey images, 1x28x28, upright, 62 characters 0-9, A-Z, a-z."""
    reader = readers.EMNIST
    files = [(reader.url, root / "EMNIST" / "raw" / reader.url.rpartition("/")[2], reader.md5)]
    splits = _read("emnist_byclass", lambda train, **how: reader(root, "byclass", train=train, **how), files)
    upright = ((s.data.numpy().transpose(0, 2, 1)[:, None], s.targets.numpy()) for s in splits)
    return join("emnist_byclass", upright, tuple(splits[0].classes))


def svhn(root: Path) -> Dataset:
    """SVHN (Netzer et al. 2011): 73,257 + 26,032 colour images of house numbers, 3x32x32, 10 digits."""
    reader, folder = readers.SVHN, root / "svhn"
    files, names = _two(reader, folder), {True: "train", False: "test"}
    splits = _read("svhn", lambda train, **how: reader(folder, names[train], **how), files)
    return join("svhn", ((s.data, s.labels) for s in splits), DIGITS)


def usps(root: Path) -> Dataset:
    """USPS (Le Cun et al. 1990): 7,291 + 2,007 grey images of postal codes, 1x16x16, 10 digits."""
    reader, folder = readers.USPS, root / "usps"
    splits = _read("usps", lambda train, **how: reader(folder, train=train, **how), _two(reader, folder))
    return join("usps", ((s.data[:, None], s.targets) for s in splits), DIGITS)


def _two(reader: type[Any], folder: Path) -> list[_File]:
    """The train and the test file of a reader."""
    return [(url, folder / name, md5) for url, name, md5 in (reader.split_list[s] for s in ("train", "test"))]


def _cifar(name: str, reader: type[Any], root: Path) -> Dataset:
    files = [(reader.url, root / reader.filename, reader.tgz_md5)]
    splits = _read(name, lambda train, **how: reader(root, train=train, **how), files)
    images = ((s.data.transpose(0, 3, 1, 2), s.targets) for s in splits)
    return join(name, images, tuple(splits[0].classes))


def _read(name: str, reader: Callable[..., Any], files: Iterable[_File]) -> tuple[Any, Any]:
    """Torchvision's objects for the train and the test split; missing or damaged files are downloaded."""
    unreadable = (OSError, EOFError, RuntimeError, ValueError)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)  # old pickles of CIFAR
        try:
            return reader(train=True, download=False), reader(train=False, download=False)
        except unreadable:
            paths = [fetch(*file) for file in files]
        try:
            return reader(train=True, download=True), reader(train=False, download=True)
        except unreadable as error:
            where = ", ".join(map(str, paths))
            raise ValueError(f"{name} could not be read from {where} ({error}); delete these files.") from error


def join(name: str, splits: Iterable[tuple[np.ndarray, Iterable[int]]], classes: tuple[str, ...]) -> Dataset:
    """Data set of a train and a test split: images [n, C, H, W] and labels [n] each."""
    train, test = splits
    sizes = [len(train[0]), len(test[0])]
    x = np.concatenate([train[0], test[0]], out=np.empty((sum(sizes), *train[0].shape[1:]), np.uint8))
    y = np.concatenate([np.asarray(train[1], np.int64), np.asarray(test[1], np.int64)])
    split = np.repeat(np.array([TRAIN, TEST], np.uint8), sizes)
    return Dataset(name, x, y, classes, split, np.zeros(len(y), np.int64), (name,))
