"""FEMNIST (Caldas et al., LEAF, 2018): handwritten characters by writer, from LEAF's JSON files."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from fedlib.data.archives import decoding
from fedlib.data.dataset import TEST, TRAIN, Dataset
from fedlib.data.download import fetch
from fedlib.data.glyphs import CHARACTERS
from fedlib.data.npz import check_expansion, read_npz, write_npz

# LEAF publishes scripts, not files. FederatedScope's files (Xie et al. 2023) have no checksums; their numbers of
# samples are checked instead.
URL = "https://federatedscope.oss-cn-beijing.aliyuncs.com/femnist_all_data.zip"
FOLDERS = {"all_data": TRAIN, "train": TRAIN, "test": TEST}
SIZE = 28


class _Writer(NamedTuple):
    """Images of one writer in one file; the first two fields are the sort key."""

    split: int
    name: str
    x: np.ndarray  # uint8 [n, 1, 28, 28]
    y: np.ndarray  # int64 [n]


def femnist(root: Path) -> Dataset:
    """FEMNIST: grey images, 1x28x28, dark on light, 62 characters 0-9, A-Z, a-z; every writer is a domain.

    3,550 writers and 805,263 images in LEAF's paper, 3,597 and 814,277 in the full set. One client per writer, with a
    tenth of the writer's characters for testing (FedSimSup, section 4.1):

        data = fl.load("femnist")
        fl.federate(data, fl.domains(), clients=len(data.domains), test_fraction=0.1)

    Unless `<root>/femnist` has the folder `all_data`, or `train` and `test`, of LEAF's scripts, an archive of
    `all_data`, which has no test split, is downloaded. The result stays in `<root>/femnist.npz`.
    """
    source = root / "femnist"
    if not any(source.glob("*/*.json")):
        source = fetch(URL, root / "femnist_all_data.zip")
    with decoding(source):
        data = _stack([writer for path, content in _files(source) for writer in _writers(path, content)])
    path = root / "femnist.npz"
    write_npz(path, data)
    return read_npz(path)


def _files(source: Path) -> Iterator[tuple[PurePosixPath, object]]:
    """JSON files of a folder or an archive, one at a time: a hundred writers take a gigabyte of memory."""
    if source.is_dir():
        for path in tqdm(sorted(source.glob("*/*.json")), desc="decoding femnist", unit=" files", disable=None):
            yield PurePosixPath(path.as_posix()), json.loads(path.read_bytes())
        return
    with zipfile.ZipFile(source) as zipped:
        check_expansion(zipped)
        for name in tqdm(sorted(zipped.namelist()), desc="decoding femnist", unit=" files", disable=None):
            if name.endswith(".json"):
                yield PurePosixPath(name), json.loads(zipped.read(name))


def _writers(path: PurePosixPath, content: object) -> Iterator[_Writer]:
    """Writers of one file: {"users": [...], "num_samples": [...], "user_data": {user: {"x": [[784]], "y": []}}}."""
    if path.parent.name not in FOLDERS:
        return
    if not isinstance(content, dict) or not {"users", "num_samples", "user_data"} <= content.keys():
        raise ValueError(f"{path.name} is not in LEAF's format")
    for name, n in zip(content["users"], content["num_samples"], strict=True):
        user = content["user_data"][name]
        x, y = np.asarray(user["x"], np.float64), np.asarray(user["y"], np.int64)
        if x.shape != (n, SIZE**2) or y.shape != (n,):
            raise ValueError(f"{path.name} lists {n} images of {name}, but has {x.shape} pixels, {y.shape} labels")
        if not (x.size and x.min() >= 0 and x.max() <= 1):
            raise ValueError(f"{path.name} has pixels of {name} outside [0, 1]")
        pixels = np.rint(255 * x).astype(np.uint8).reshape(-1, 1, SIZE, SIZE)
        yield _Writer(FOLDERS[path.parent.name], str(name), pixels, y)


def _stack(writers: list[_Writer]) -> Dataset:
    """Data set of the images, sorted by split (train, test) and writer."""
    if not writers:
        raise ValueError("it has no JSON files in folders all_data, train or test")
    writers = sorted(writers, key=lambda writer: writer[:2])
    sizes = [len(writer.y) for writer in writers]
    domains, domain = np.unique([writer.name for writer in writers], return_inverse=True)
    return Dataset(
        "femnist",
        np.concatenate([writer.x for writer in writers]),
        np.concatenate([writer.y for writer in writers]),
        tuple(CHARACTERS),
        np.repeat(np.array([writer.split for writer in writers], np.uint8), sizes),
        np.repeat(domain.astype(np.int64), sizes),
        tuple(domains.tolist()),
    )
