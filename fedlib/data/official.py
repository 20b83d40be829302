"""Official data sets through torchvision's readers, at torchvision's paths: MNIST, EMNIST, USPS, SVHN and CIFAR.

Digit-5 and its two domains without a reader, MNIST-M and Synthetic Digits, follow.
"""

import gzip
import io
import tarfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fedlib.checks import check_count
from fedlib.data.archives import decoding
from fedlib.data.dataset import TEST, TRAIN, Dataset
from fedlib.data.download import fetch
from fedlib.data.npz import read_npz, write_npz
from fedlib.data.scans import DIGITS
from fedlib.extras import Late

readers = Late("torchvision.datasets")
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


# -- Digit-5 --------------------------------------------------------------------------------------------------------

# The authors' links (Ganin and Lempitsky, ICML 2015) are not permanent; these copies have checksums.
RELEASES = "https://github.com/liyxi/{}/releases/download/data/"
MNIST_M = {
    "mnist_m_train.pt.tar.gz": "191ed53db9933bd85cc9700558847391",
    "mnist_m_test.pt.tar.gz": "e11cb4d7fff76d7ec588b1134907db59",
}
SYNTHETIC_DIGITS = {
    "synth_train.pt.gz": "d0e99daf379597e57448a89fc37ae5cf",
    "synth_test.pt.gz": "669d94c04d1c91552103e9aded0ee625",
}
DOMAINS = ("mnist", "mnist_m", "svhn", "usps", "synthetic_digits")
SIZE = 32


def mnist_m(root: Path) -> Dataset:
    """MNIST-M (Ganin and Lempitsky 2015): MNIST's digits on patches of photographs, 60,000 + 10,000, 3x28x28."""
    return _keep("mnist_m", root, "mnist-m", MNIST_M, _from_tar)


def synthetic_digits(root: Path) -> Dataset:
    """Synthetic Digits (Ganin and Lempitsky 2015): rendered from fonts, 479,400 + 9,553 colour images, 3x32x32."""
    return _keep("synthetic_digits", root, "synthetic-digits", SYNTHETIC_DIGITS, gzip.decompress)


def digit5(root: Path, domains: Sequence[str] = DOMAINS, per_domain: int | None = None, seed: int = 0) -> Dataset:
    """Digit-5 (Peng et al. 2019): several data sets of digits, each one a domain, 3x32x32; grey images become RGB.

    Args:
        root: folder of the data; missing data sets are downloaded.
        domains: names of the data sets. If you choose other than the five, report your choice.
        per_domain: images drawn from each domain. Default: the size of the smallest one (9,298, USPS).
        seed: seed of the draw.
    """
    from fedlib.data import load  # imported late: it imports this module

    sets = [load(name, root) for name in domains]
    check_count("number of domains", len(sets), 2)
    smallest = min(map(len, sets))
    n = smallest if per_domain is None else per_domain
    check_count("per_domain", n, 10, smallest)
    seed = check_count("seed", seed, 0)
    rng = np.random.default_rng(seed)
    drawn = [np.sort(rng.permutation(len(data))[:n]) for data in sets]
    pairs = list(zip(sets, drawn, strict=True))
    return Dataset(
        "digit5",
        np.concatenate([_colour(data.x[chosen]) for data, chosen in pairs]),
        np.concatenate([data.y[chosen] for data, chosen in pairs]),
        DIGITS,
        np.concatenate([data.split[chosen] for data, chosen in pairs]),
        np.repeat(np.arange(len(sets)), n),
        tuple(domains),
    )


def _colour(x: np.ndarray) -> np.ndarray:
    """RGB images of 32x32 pixels: uint8 [n, C, H, W] -> [n, 3, 32, 32]."""
    x = x if x.shape[1] == 3 else x.repeat(3, axis=1)
    if x.shape[2:] == (SIZE, SIZE):
        return x
    out = np.empty((len(x), 3, SIZE, SIZE), np.uint8)
    for row, image in zip(out, x.transpose(0, 2, 3, 1), strict=True):
        row[:] = np.asarray(Image.fromarray(image).resize((SIZE, SIZE), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    return out


def _keep(name: str, root: Path, release: str, files: dict[str, str], unpack: Callable[[bytes], bytes]) -> Dataset:
    """Decode the train and the test file to `<root>/<name>.npz`."""
    splits = []  # train, test
    for file, md5 in files.items():
        path = fetch(RELEASES.format(release) + file, root / name / file, md5=md5)
        with decoding(path):
            splits.append(_pictures(unpack(path.read_bytes())))
    write_npz(root / f"{name}.npz", join(name, splits, DIGITS))
    return read_npz(root / f"{name}.npz")


def _from_tar(file: bytes) -> bytes:
    """Content of the only file in an archive."""
    with tarfile.open(fileobj=io.BytesIO(file), mode="r:gz") as tar:
        [member] = [member for member in tar if member.isfile()]
        return tar.extractfile(member).read()  # pyright: ignore[reportOptionalMemberAccess] - it is a file


def _pictures(file: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 3, H, W] and labels [n] of a file of `torch.save`; only tensors are unpickled."""
    try:
        x, y = torch.load(io.BytesIO(file), map_location="cpu", weights_only=True)
        return x.numpy().transpose(0, 3, 1, 2), y.numpy().astype(np.int64)
    except Exception as error:  # torch raises many types for a damaged file
        raise ValueError(f"it does not hold images and labels: {type(error).__name__}") from error
