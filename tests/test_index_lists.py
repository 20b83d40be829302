"""Partitions from outside: equal lists give the same run, and invalid ones an error of one sentence."""

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import python
from refusals import refused

import fedlib as fl

LISTS = [[7, 0, 3], [1, 2], list(range(100, 140))]
PARTS = [{"train": one[:1], "val": [], "test": one[1:]} for one in LISTS]
SETTING = dict(rounds=1, join_ratio=1.0, lr=0.05, progress=False)
FILES = {
    "json": lambda file: file.write(json.dumps(LISTS).encode()),
    "json by name": lambda file: file.write(json.dumps({str(i): LISTS[i] for i in (2, 0, 1)}).encode()),
    "json by part": lambda file: file.write(json.dumps(PARTS).encode()),
    "npz": lambda file: np.savez(file, *map(np.array, LISTS)),
    "npz by name": lambda file: np.savez_compressed(file, **{str(i): np.uint16(one) for i, one in enumerate(LISTS)}),
}


def written(path: Path, form: str) -> Path:
    with path.open("wb") as file:
        FILES[form](file)
    return path


def federate(data, partition, **given):
    return fl.federate(data, partition, clients=3, **given)


@pytest.mark.parametrize("form", FILES)
def test_a_file_gives_each_client_the_images_that_it_names(tiny, tmp_path, form):
    federation = federate(tiny, fl.partition_file(written(tmp_path / "mine", form)))
    for part, one in enumerate(LISTS):
        assert sorted([*federation.train[part], *federation.test[part]]) == sorted(one)
    same = federate(tiny, fl.index_lists(LISTS))
    assert federation.fingerprint == same.fingerprint
    assert str(federation.partition) == str(same.partition)


def test_the_lists_enter_the_address_of_a_run(tiny):
    moved = [[7, 0, 4], *LISTS[1:]]
    results = [fl.run("fedavg", federate(tiny, fl.index_lists(lists)), **SETTING) for lists in (LISTS, moved, LISTS)]
    names = [result.folder.name for result in results]
    assert names[0] == names[2] != names[1]
    assert len({str(fl.index_lists(lists)) for lists in (LISTS, moved)}) == 2
    assert results[0].config["partition"].startswith("index_lists(clients=3, sha256=")


def test_with_the_official_split_positions_count_the_other_images():
    data = fl.load("digits", copies=1)
    assert (data.split != 0).any()
    positions = np.flatnonzero(data.split != 1)
    lists = [[0, 2, 900], list(range(10, 60)), list(range(100, 400))]
    federation = federate(data, fl.index_lists(lists), test_fraction=None)
    for train, one in zip(federation.train, lists, strict=True):
        assert sorted(train) == sorted(positions[one])


@pytest.mark.parametrize(
    ("lists", "sentence"),
    [
        ([], "there is no client; give one list"),
        ([[0], []], "client 1 has no image"),
        ([[0], [-1]], "the list of client 1 must hold positions of images, whole numbers from 0"),
        ([[0], [1.0]], "the list of client 1 must hold"),
        ([[0], [True]], "the list of client 1 must hold"),
        ([[0], ["1"]], "the list of client 1 must hold"),
        ([[0], [[1], [2]]], "the list of client 1 must hold"),
        ([[0], [[1], [2, 3]]], "the list of client 1 must hold"),
        ([[0], None], "the list of client 1 must hold"),
        ([[5, 0], [1, 5]], "image 5 is in the lists of clients 0 and 1; it may occur only once"),
        ([[5, 0], [1, 2, 1]], "image 1 is in the lists of clients 1 and 1"),
    ],
)
def test_wrong_lists_are_one_sentence(lists, sentence, tmp_path):
    refused(rf"index_lists: .*{sentence}", fl.index_lists, lists)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(lists))
    refused(rf"mine\.json: .*{sentence}", fl.partition_file, path)


def test_other_numbers_of_clients_or_images_are_refused_when_dealt_out(tiny):
    refused("clients=4 is not allowed; index_lists has 3 clients", fl.federate, tiny, fl.index_lists(LISTS), clients=4)
    with pytest.raises(ValueError, match="index_lists names image 240, but there are only 240, counted from 0"):
        federate(tiny, fl.index_lists([[0, 1], [2, 3], [4, 240]]))
    assert federate(tiny, fl.index_lists([[0, 1], [2, 3], [4, 239]])).sizes.tolist() == [2, 2, 2]


def test_a_file_that_is_none_is_one_sentence(tmp_path):
    path = tmp_path / "mine"
    for content in (b"", b"{", b"7", b'"0"', b"PK\x03\x04", b"\x93NUMPY", b"\xff\xfe", b"[" * 100_000):
        path.write_bytes(content)
        refused(r"mine is not a partition file: it is neither JSON nor \.npz of lists \(", fl.partition_file, path)
    refused(r"nowhere' cannot be read \(No such file", fl.partition_file, tmp_path / "nowhere")
    path.write_text('{"a": [0], "1": [1]}')
    refused(r"the clients are named a, 1; their names must be 0, 1, 2, \.\.\.", fl.partition_file, path)
    path.write_text('{"0": [0], "2": [1]}')
    refused(r"the clients are named 0, 2; their names", fl.partition_file, path)


class Evil:
    def __reduce__(self):
        return pytest.fail, ("a pickle was read",)


def test_pickles_are_refused_with_the_way_to_convert_them(tiny, tmp_path):
    path = tmp_path / "partition.pkl"
    path.write_bytes(pickle.dumps({"data_indices": Evil()}))
    sentence = refused("is a pickle, and reading one can execute any code; if you trust it", fl.partition_file, path)
    arrays = [{"train": np.array(one[:1]), "val": [], "test": one[1:]} for one in LISTS]  # as FL-bench has it
    path.write_bytes(pickle.dumps({"separation": {}, "data_indices": arrays}))
    convert = sentence.partition("trust it, run ")[2].rstrip(".")
    python("-c", f"import json, pickle; {convert}", cwd=tmp_path)
    converted = federate(tiny, fl.partition_file(tmp_path / "partition.json"))
    assert converted.fingerprint == federate(tiny, fl.index_lists(LISTS)).fingerprint


def test_images_in_pickles_are_refused_with_the_way_to_convert_them(tmp_path):
    """PFLlib has a folder with `train/0.npz`, whose array `data` is a pickled dict."""
    (tmp_path / "train").mkdir()
    file = tmp_path / "train" / "0.npz"
    np.savez(file, data=np.array({"x": np.zeros((2, 1, 8, 8)), "y": [0, 1]}, dtype=object))
    for path in (file, tmp_path):
        refused(r"PFLlib's .*save the images of all clients in one \.npz with x_train", fl.partition_file, path)


class Halves:
    """A partitioner with Flower's interface and nothing of its code."""

    def __init__(self, clients: int = 2):
        self.dataset = None
        self.clients = clients
        self._secret = [1]

    @property
    def num_partitions(self) -> int:
        return self.clients

    def load_partition(self, partition_id: int):
        return self.dataset.select(range(partition_id, len(self.dataset), self.clients))


def test_anything_with_flowers_interface_deals_out(tiny):
    pytest.importorskip("datasets")
    partition = fl.flower(Halves())
    assert str(partition) == "flower(partitioner=Halves, clients=2)"
    federation = fl.federate(tiny, partition, clients=2)
    assert sorted([*federation.train[1], *federation.test[1]]) == list(range(1, 240, 2))
    again = fl.federate(tiny, partition, clients=2)  # the partitioner was copied, not used up
    assert again.fingerprint == federation.fingerprint
    lists = fl.index_lists([range(0, 240, 2), range(1, 240, 2)])
    assert fl.federate(tiny, lists, clients=2).fingerprint == federation.fingerprint
    refused("clients=3 is not allowed; the Halves makes 2 partitions", fl.federate, tiny, partition, clients=3)


def test_flowers_own_partitioners_deal_out(tiny):
    flwr = pytest.importorskip("flwr_datasets.partitioner")
    skewed = [
        fl.flower(flwr.DirichletPartitioner(num_partitions=3, partition_by="label", alpha=alpha, seed=1))
        for alpha in (0.5, 5.0, 0.5)
    ]
    first, second, third = (federate(tiny, partition) for partition in skewed)
    assert federate(tiny, skewed[0]).fingerprint == first.fingerprint  # it takes one data set: ours is a copy
    assert first.sizes.sum() == len(tiny)
    assert first.fingerprint == third.fingerprint != second.fingerprint
    assert "alpha=0.5" in str(skewed[0])
    assert str(skewed[0]) == str(skewed[2]) != str(skewed[1])
    by_domain = fl.federate(tiny, fl.flower(flwr.NaturalIdPartitioner(partition_by="domain")), clients=2)
    for train, domain in zip(by_domain.train, (0, 1), strict=True):
        assert set(tiny.domain[train]) == {domain}
    assert fl.run("fedavg", first, **SETTING).folder.name != fl.run("fedavg", second, **SETTING).folder.name


def test_a_partitioner_that_cannot_be_used_is_one_sentence(tiny, monkeypatch):
    pytest.importorskip("datasets")
    refused(r"partitioner is of type float; it must have num_partitions and load_part", fl.flower, 0.5)
    used = Halves()
    used.dataset = "mine"
    refused("the Halves already has a data set; create it without one", fl.flower, used)
    greedy, idle = Halves(), Halves()
    monkeypatch.setattr(Halves, "load_partition", lambda self, i: self.dataset.select(range(5 * (self is not None))))
    refused("Halves: image 0 is in the lists of clients 0 and 1", fl.federate, tiny, fl.flower(greedy), clients=2)
    monkeypatch.setattr(Halves, "load_partition", lambda self, i: self.dataset.select([]))
    with pytest.raises(ValueError, match="Halves: client 0 has no image; every client needs at least one"):
        fl.federate(tiny, fl.flower(idle), clients=2)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r'fl\.flower needs datasets, .*pip install "fedlib-papers\[hf\]"'):
        fl.flower(Halves())


def test_a_file_is_read_when_the_partition_is_made(tiny, tmp_path):
    path = written(tmp_path / "mine", "json")
    partition = fl.partition_file(path)
    path.unlink()
    assert federate(tiny, partition).sizes.tolist() == [3, 2, 40]
