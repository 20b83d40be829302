"""Files that want to harm: nothing in them is run, nothing is written outside, no memory is filled."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from archives import leaf_json, pictures
from refusals import one_sentence, refused

from fedlib.data import femnist, load, npz, official


class Payload:
    """Makes the folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    """Those of a data set of two classes."""
    x, y = pictures(8, 4, 4), np.arange(8) % 2
    return {"x_train": x, "y_train": y, "x_test": x, "y_test": y}


@pytest.mark.parametrize("key", ["x_train", "y_test", "classes", "unknown"])
def test_a_pickled_object_in_an_npz_is_never_loaded(key, arrays, tmp_path):
    path, victim = tmp_path / "own.npz", tmp_path / "victim"
    np.savez(path, **arrays | {key: np.array([Payload(victim)], dtype=object)})
    if key == "unknown":  # what is not asked for is not looked into
        assert len(npz.read_npz(path)) == 16
    else:
        refused("object arrays are not read", npz.read_npz, path)
    assert not victim.exists()


def test_a_pickled_object_in_a_file_of_torch_is_never_loaded(tmp_path):
    file = io.BytesIO()
    torch.save((Payload(tmp_path / "victim"), torch.zeros(1)), file)
    with one_sentence("it does not hold images and labels: UnpicklingError"):
        official._pictures(file.getvalue())
    assert not (tmp_path / "victim").exists()


def test_an_npz_that_would_fill_the_memory_is_refused(arrays, tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "LARGE", 2**20)
    path = tmp_path / "own.npz"
    np.savez_compressed(path, **arrays | {"x_train": np.zeros((2**12, 32, 32), np.uint8)})  # 4 MiB of zeros
    assert path.stat().st_size < 2**14
    assert str(path) in refused(r"x_train\.npy would expand to 4194432 bytes\.", npz.read_npz, path)


def test_an_array_that_says_it_is_larger_than_any_memory_is_refused(arrays, tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, **{key: array for key, array in arrays.items() if key != "x_train"})
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (2**46, 4, 4)})
    with zipfile.ZipFile(path, "a") as zipped:
        zipped.writestr("x_train.npy", header.getvalue())
    refused("it is damaged or incomplete", npz.read_npz, path)


@pytest.mark.parametrize("name", ["../own", "/own", "folder/own", ".."])
def test_the_name_of_a_data_set_leads_to_no_other_folder(name, arrays, tmp_path):
    (tmp_path / "root").mkdir()
    np.savez(tmp_path / "own.npz", **arrays)
    refused("is unknown", load, name, root=tmp_path / "root")


def test_an_archive_of_femnist_writes_nothing_but_the_data_set(tmp_path, monkeypatch):
    root = tmp_path / "root"
    root.mkdir()
    content = leaf_json({"w": (pictures(62, 28, 28), list(range(62)))})
    with zipfile.ZipFile(root / "femnist_all_data.zip", "w") as zipped:
        for name in ("../all_data/a.json", "../../outside.txt", "/tmp_outside.json"):
            zipped.writestr(name, content)
    assert len(load("femnist", root=root)) == 62
    written = {path.name for path in tmp_path.rglob("*")}
    assert written == {"root", "femnist_all_data.zip", "femnist.npz", ".femnist.lock"}
    monkeypatch.setattr(npz, "LARGE", 2**10)
    monkeypatch.setattr(npz, "DENSE", 1)
    with zipfile.ZipFile(root / "femnist_all_data.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("all_data/a.json", content)
    refused(r"could not be decoded \(all_data/a\.json would expand", femnist.femnist, root)
