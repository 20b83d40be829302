"""Archives of image files, decoded once to a `.npz` file: CINIC-10, Tiny-ImageNet and DomainNet."""

import io
import tarfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from PIL import Image
from tqdm import tqdm

from fedlib.checks import check_count, check_number
from fedlib.data.dataset import TEST, TRAIN, VALIDATION, Dataset
from fedlib.data.download import fetch
from fedlib.data.npz import read_npz, write_npz

CINIC10_URL = "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz"
CINIC10_MD5 = "6ee4d0c996905fe93221de577967a372"
TINYIMAGENET_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINYIMAGENET_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"

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
    """Read the images `<split>/<class>/<name>.png` in one pass and sort them by name."""
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
    """RGB pixels of one image file, resized if a size is given: uint8 [H, W, 3]."""
    with Image.open(io.BytesIO(file)) as image:
        colour = image.convert("RGB")
        return np.asarray(colour.resize((size, size), Image.Resampling.BILINEAR) if size else colour)


def _stack(name: str, pictures: Iterable[tuple[int, int, str, np.ndarray]], classes: tuple[str, ...]) -> Dataset:
    """Data set of images (split, label, file name, uint8 [H, W, 3]), sorted by split, label and file name."""
    pictures = sorted(pictures, key=lambda picture: picture[:3])
    if not pictures:
        raise ValueError("it has no images at the expected paths")
    x = np.empty((len(pictures), 3, *pictures[0][3].shape[:2]), np.uint8)
    for row, (*_, picture) in zip(x, pictures, strict=True):
        row[:] = picture.transpose(2, 0, 1)
    split, y = (np.array([picture[i] for picture in pictures]) for i in (0, 1))
    domain = np.zeros(len(y), np.int64)
    return Dataset(name, x, y.astype(np.int64), classes, split.astype(np.uint8), domain, (name,))


# -- DomainNet ------------------------------------------------------------------------------------------------------

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
N_CLASSES = 345
BASE = "http://csr.bu.edu/ftp/visda/2019/multi-source/"
SHA256 = {  # the lists without duplicate images, then the archives
    "domainnet/txt/clipart_train.txt": "affdadf5f95a7583e6b98030a3d35007e2613ee4dd942393c5a705ec2b429312",
    "domainnet/txt/clipart_test.txt": "62c8e36aaba1c41ad9e249099739707220a44c08f167b37ef420f34a31628a6b",
    "domainnet/txt/infograph_train.txt": "36b44cbd41a2915e0dc73b4f4be8862a6f3c220f93c8d63fb2439beeae3aefda",
    "domainnet/txt/infograph_test.txt": "413cfa54ac92e7e6b242f4f09fbd9c8ace85c4deaf3cb6c81ff6b68264460136",
    "domainnet/txt/painting_train.txt": "f1da38d50a702fddf1329f85bc607d7a2abcae7e6aec75e1fd49cc1bd340d47b",
    "domainnet/txt/painting_test.txt": "11472b13b5188e09f06918b12eebb660588c97a20e43e268d9b02e3e37eb8f97",
    "domainnet/txt/quickdraw_train.txt": "3a5edd3bc215772010eebc87f158707703dd7e48091d13b816af81326a9d1c0f",
    "domainnet/txt/quickdraw_test.txt": "2a00a60650a453c65c356da748fec54084a197272137c440e7d52d08947357bf",
    "domainnet/txt/real_train.txt": "19d483256d24aef19e581b65eda8333fd918aef3eb733fe499ff384120e3a289",
    "domainnet/txt/real_test.txt": "2b3f75bcde309aeb5931292084b2162e936b5f189e3bb1ad716f0f74c460864c",
    "domainnet/txt/sketch_train.txt": "72f4bc6afa5702a1ccba800d0053c1427de87439dfaf246dbc9a2e71abfec54f",
    "domainnet/txt/sketch_test.txt": "3fb48fca18c507c4321f007c3f62b308ec232ff6928cbfe2af64e76ec366e840",
    "groundtruth/clipart.zip": "f8f248a3e8bbc9868c523ae24e6601b4c2ad102afc60c0efeb4f3255df22354d",
    "infograph.zip": "891e14f476317e97b6f06d6498c11d0a5b8d0c8b57210765ed9beb072da611fa",
    "groundtruth/painting.zip": "fa47e6d405503ea0286cabd767f176bd30e988b63ddd7b9db16cf030c9770015",
    "quickdraw.zip": "9f37df2a8c3733703dbb35ad9964202a65f675ca30137756457537536b485d84",
    "real.zip": "d7fe010b430c5b510f85d657d38c4a1924822695fabea4fef57bd00dba251d63",
    "sketch.zip": "23a7dbae7016b343e934399beaa8a68728fb5e570ebe2c71df9b75cf91c499fc",
}


class _Picture(NamedTuple):
    """One line of an official list; its fields are the sort key."""

    split: int
    domain: int
    label: int  # 0 to 344
    member: str  # path in the archive: <domain>/<class>/<file>


def domainnet(root: Path, n_classes: int = 20, fraction: float = 1.0, size: int = 64, seed: int = 0) -> Dataset:
    """DomainNet, cleaned: 345 classes in six domains, 586,575 images, resized to 3 x `size` x `size`.

    pFedSim (B.3) uses 20 unnamed classes at 64x64. Its text mentions 30 % of their images, but its Table 8(a) counts
    36,549, among them 10,000 of quickdraw, which has 500 per class: all images, so `fraction` is 1.0.

    The archives (18 GB), the official lists and the result stay in `<root>/domainnet`. Decoding needs 6 * size**2 bytes
    per image in memory (0.9 GB for the paper's setting).

    Args:
        root: folder of the data.
        n_classes: number of classes drawn from the 345.
        fraction: share of the images of every class in every domain, at least one image, in (0, 1].
        size: height and width in pixels.
        seed: seed of the draws of classes and images. Smaller draws are subsets of larger ones.
    """
    n_classes = check_count("n_classes", n_classes, 1, N_CLASSES)
    fraction = check_number("fraction", fraction, 0, 1, open_low=True)
    size = check_count("size", size)
    seed = check_count("seed", seed, 0)
    folder = root / "domainnet"
    path = folder / f"{n_classes}_classes_{float(fraction)}_{size}px_seed_{seed}" / "domainnet.npz"
    if not path.exists():
        names = {url: url.rpartition("/")[2] for url in SHA256}
        files = {name: fetch(BASE + url, folder / name, sha256=SHA256[url]) for url, name in names.items()}
        chosen = _choose(_listed(files), n_classes, fraction, seed)
        write_npz(path, _decode(files, chosen, size))
    return read_npz(path)


def _listed(files: dict[str, Path]) -> list[_Picture]:
    """Images of all official lists."""
    pictures = []
    for domain, name in enumerate(DOMAINS):
        for split, suffix in ((TRAIN, "train"), (TEST, "test")):
            for line in files[f"{name}_{suffix}.txt"].read_text().splitlines():
                member, label = line.rsplit(" ", 1)
                pictures.append(_Picture(split, domain, int(label), member))
    return pictures


def _choose(listed: list[_Picture], n_classes: int, fraction: float, seed: int) -> list[_Picture]:
    """A `fraction` of each of `n_classes` classes in each domain, sorted."""
    labels = np.random.default_rng(seed).permutation(sorted({picture.label for picture in listed}))
    wanted, by_class = set(labels[:n_classes].tolist()), defaultdict(list)
    for picture in listed:
        if picture.label in wanted:
            by_class[picture.domain, picture.label].append(picture)
    chosen = []
    for key, pictures in by_class.items():
        order = np.random.default_rng((seed, *key)).permutation(len(pictures))
        chosen += [pictures[i] for i in order[: max(1, round(fraction * len(pictures)))]]
    return sorted(chosen)


def _decode(files: dict[str, Path], chosen: list[_Picture], size: int) -> Dataset:
    """Read the chosen images, one by one."""
    x = np.empty((len(chosen), 3, size, size), np.uint8)
    for domain, name in enumerate(DOMAINS):
        rows = [i for i, picture in enumerate(chosen) if picture.domain == domain]
        with decoding(files[f"{name}.zip"]), zipfile.ZipFile(files[f"{name}.zip"]) as zipped:
            for i in tqdm(rows, desc=f"decoding {name}", unit=" files", disable=None):
                x[i] = pixels(zipped.read(chosen[i].member), size).transpose(2, 0, 1)
    names = {picture.label: picture.member.split("/")[1] for picture in chosen}
    labels, y = np.unique([picture.label for picture in chosen], return_inverse=True)
    classes = tuple(names[label] for label in labels.tolist())
    split = np.array([picture.split for picture in chosen], np.uint8)
    domain = np.array([picture.domain for picture in chosen], np.int64)
    return Dataset("domainnet", x, y.astype(np.int64), classes, split, domain, DOMAINS)
