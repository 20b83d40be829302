"""Partitions from outside: index lists, partition files, and Flower's partitioners."""

import copy
import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedlib.data.npz import check_expansion
from fedlib.extras import Needs
from fedlib.federation.partition import Partition, Shares

TO_JSON = (
    "json.dump(pickle.load(open('partition.pkl', 'rb'))['data_indices'], open('partition.json', 'w'), "
    "default=lambda array: array.tolist())"
)
TO_IMAGES = (
    "save the images of all clients in one .npz with x_train, y_train, writer_train (the client), x_test, y_test and "
    "writer_test, which fl.load reads, and divide them by fl.domains()"
)


class Partitioner(Protocol):
    """The interface of flwr_datasets.partitioner, as far as `flower` needs it."""

    dataset: Any
    num_partitions: Any

    def load_partition(self, partition_id: int) -> Any:
        """Rows of the data set for one client."""


def index_lists(lists: Iterable[Sequence[int] | np.ndarray]) -> Partition:
    """Give each client the images in its list.

    Images are counted from 0 in the order of the data set: train, test, validation. `test_fraction=None` excludes the
    official test images from the count, and `public` the public ones. Images in no list are not used. A run's address
    depends on the content of the lists.

    Args:
        lists: positions of each client's images, one list per client.

    Returns:
        The partition.

    Raises:
        ValueError: a list is empty or contains anything but whole numbers from 0, or an image is in two lists. In
            `federate`: an image does not exist, or the number of clients differs.

    Example:
        >>> lists = [[0, 1, 2, 3], range(10, 30)]
        >>> fl.federate(fl.load("digits", copies=1), fl.index_lists(lists), clients=2).sizes
        array([ 4, 20])
    """
    if not isinstance(lists, Iterable) or isinstance(lists, str | bytes):
        raise ValueError(f"lists={lists!r} is not allowed; it must hold a list of positions for each client.")
    return _given(list(lists), "index_lists")


def partition_file(path: str | PathLike[str]) -> Partition:
    """Give each client the images listed in a file.

    JSON: one list of positions per client, `[[0, 5], [1, 2]]` or `{"0": [0, 5], "1": [1, 2]}`; a client with parts,
    `{"train": [0], "test": [5]}`, gets all of them, and `federate` splits them anew. `.npz`: one array per client, as
    `np.savez(path, *lists)` writes it, or named "0", "1", ...

    Args:
        path: the file. Pickles are refused, because reading one can execute any code.

    Returns:
        The partition; see `index_lists`.

    Raises:
        ValueError: the file does not exist, is a pickle or damaged, or its lists are not allowed; see `index_lists`.

    Example:
        >>> import json
        >>> with open("mine.json", "w") as file:
        ...     json.dump({"0": [0, 1, 2, 3], "1": list(range(10, 30))}, file)
        >>> fl.federate(fl.load("digits", copies=1), fl.partition_file("mine.json"), clients=2).sizes
        array([ 4, 20])
    """
    if not isinstance(path, str | PathLike):
        raise ValueError(f"path={path!r} is not allowed; it must be the name of a file.")
    path = Path(path)
    lists = _read(path)
    if isinstance(lists, Mapping):
        number = {int(match[1]): name for name in lists if (match := re.fullmatch(r"(?:arr_)?(\d+)", name))}
        if sorted(number) != list(range(len(lists))):
            raise ValueError(f"{path}: the clients are named {', '.join(lists)}; their names must be 0, 1, 2, ...")
        lists = [lists[number[i]] for i in range(len(number))]
    return _given([_all_parts(one) for one in lists], str(path))


def flower(partitioner: Partitioner) -> Partition:
    """Divide the images by a partitioner of `flwr_datasets.partitioner`, or one with the same interface.

    The partitioner gets a `datasets.Dataset` with the integer columns "label", "domain" and "position" and one row
    per image; `partition_by` names a column. It has its own seed: the seed of `federate` draws only the split into
    train and test.

    Args:
        partitioner: the partitioner, without a data set. It is copied, never changed.

    Returns:
        The partition. A run's address depends on the images of each client.

    Raises:
        ValueError: the partitioner has a data set already, or it lacks `num_partitions` or `load_partition`. In
            `federate`: the number of partitions is not `clients`, a partition is empty, or an image is in two.
        ModuleNotFoundError: `datasets` is not installed.

    Example:
        >>> from flwr_datasets.partitioner import DirichletPartitioner
        >>> skewed = DirichletPartitioner(num_partitions=3, partition_by="label", alpha=0.5)
        >>> int(fl.federate(fl.load("digits", copies=1), fl.flower(skewed), clients=3).sizes.sum())
        1797
    """
    kind = type(partitioner).__name__
    if not {"num_partitions", "load_partition"} <= set(dir(partitioner)):
        raise ValueError(f"partitioner is of type {kind}; it must have num_partitions and load_partition(i).")
    if getattr(partitioner, "dataset", None) is not None:
        raise ValueError(f"the {kind} already has a data set; create it without one, because fl.federate sets it.")
    with Needs("hf", "fl.flower"):
        from datasets import Dataset  # imported late: the import takes a second

    def assign(y, domain, n_clients, rng):
        mine = copy.deepcopy(partitioner)
        mine.dataset = Dataset.from_dict({"label": y, "domain": domain, "position": np.arange(len(y))})
        if mine.num_partitions != n_clients:
            raise ValueError(f"clients={n_clients} is not allowed; the {kind} makes {mine.num_partitions} partitions.")
        return _checked([list(mine.load_partition(i)["position"]) for i in range(n_clients)], kind)

    return Partition("flower", {"partitioner": kind} | _settings(partitioner), assign)


def _given(lists: list[Any], where: str) -> Partition:
    shares = _checked(lists, where)
    digest = hashlib.sha256()
    for share in shares:
        digest.update(len(share).to_bytes(8, "little") + share.astype("<i8").tobytes())

    def assign(y, domain, n_clients, rng):
        if n_clients != len(shares):
            raise ValueError(f"clients={n_clients} is not allowed; {where} has {len(shares)} clients.")
        last = max(int(share.max()) for share in shares)
        if last >= len(y):
            raise ValueError(f"{where} names image {last}, but there are only {len(y)}, counted from 0.")
        return shares

    return Partition("index_lists", {"clients": len(shares), "sha256": digest.hexdigest()[:16]}, assign)


def _checked(lists: list[Any], where: str) -> Shares:
    """Lists as int64 arrays; `ValueError` for a list without positions or an image in two lists."""
    shares = []
    for i, one in enumerate(lists):
        try:
            share = np.asarray(one)
        except ValueError:  # nested lists of different lengths
            share = np.empty((1, 0))
        if share.ndim != 1 or (share.size and (share.dtype.kind not in "iu" or share.min() < 0)):
            raise ValueError(f"{where}: the list of client {i} must hold positions of images, whole numbers from 0.")
        if not share.size:
            raise ValueError(f"{where}: client {i} has no image; every client needs at least one.")
        shares.append(share.astype(np.int64))
    if not shares:
        raise ValueError(f"{where}: there is no client; give one list of positions per client.")
    owner = np.repeat(np.arange(len(shares)), list(map(len, shares)))
    images = np.concatenate(shares)
    order = np.argsort(images, kind="stable")
    twice = np.flatnonzero(np.diff(images[order]) == 0)
    if len(twice):
        first, second = order[twice[0]], order[twice[0] + 1]
        raise ValueError(
            f"{where}: image {images[first]} is in the lists of clients {owner[first]} and {owner[second]}; "
            f"it may occur only once."
        )
    return shares


def _read(path: Path) -> Any:
    """Content of a partition file, with its lists unchecked."""
    if path.is_dir():
        raise ValueError(f"path={str(path)!r} is a folder; if its files hold images, as PFLlib's do, {TO_IMAGES}.")
    try:
        with path.open("rb") as file:
            start = file.read(2)
        if start == b"PK":
            with zipfile.ZipFile(path) as zipped:
                check_expansion(zipped)
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        if start[:1] != b"\x80":
            content = json.loads(path.read_bytes())
            if isinstance(content, list | dict):
                return content
            raise ValueError("it is neither a list nor a dict")
    except OSError as error:
        raise ValueError(f"path={str(path)!r} cannot be read ({error.strerror or error}).") from error
    except (ValueError, EOFError, KeyError, RecursionError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error):
            raise ValueError(f"{path} holds pickled objects; if they are images, as PFLlib's, {TO_IMAGES}.") from None
        raise ValueError(f"{path} is not a partition file: it is neither JSON nor .npz of lists ({error}).") from error
    raise ValueError(f"{path} is a pickle, and reading one can execute any code; if you trust it, run {TO_JSON}.")


def _all_parts(one: Any) -> Any:
    """List of a client; its lists by part (train, val, test) are joined."""
    return [position for part in one.values() for position in part] if isinstance(one, Mapping) else one


def _settings(partitioner: object) -> dict[str, object]:
    """Attributes of a partitioner for tables: numbers, strings, and the value of a constant array."""
    settings = {}
    for name, value in vars(partitioner).items():
        if isinstance(value, np.ndarray) and value.size and (value == value.flat[0]).all():
            value = value.flat[0].item()
        if type(value) in (int, float, str):
            settings[name.lstrip("_")] = value
    return settings
