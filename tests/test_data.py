"""The `Dataset` value, `.npz` files, `load`, files that want to harm, and the embedded data sets."""

import io
import os
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from archives import leaf_json, pictures
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import python
from refusals import one_sentence, refused

import fedlib as fl
from fedlib import Dataset, datasets, load
from fedlib.data import EMBEDDED, OFFICIAL, femnist, glyphs, ink, npz, official, read_npz, scans, write_npz


def tiny(channels: int = 3) -> Dataset:
    """Twelve images of three classes in two domains."""
    i, x = np.arange(12), pictures(12, channels, 5, 4)
    return Dataset("tiny", x, i % 3, ("a", "b", "c"), (i > 7).astype(np.uint8), i // 6, ("left", "right"))


def arrays(**changes: np.ndarray) -> dict[str, np.ndarray]:
    """The content of a good file, with changes; None removes a key."""
    good = {"x_train": pictures(6, 5, 4, 3), "x_test": pictures(3, 5, 4, 3, seed=1)}
    good |= {"y_train": np.arange(6) % 3, "y_test": np.arange(3)}
    return {key: value for key, value in (good | changes).items() if value is not None}


def saved(folder: Path, **changes: np.ndarray) -> Path:
    np.savez(folder / "own.npz", **arrays(**changes))
    return folder / "own.npz"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    return tmp_path


def test_mean_and_std_equal_numpy_on_the_scaled_pixels_in_any_order():
    data, order = tiny(), np.random.default_rng(0).permutation(12)
    pixels = data.x.astype(np.float64) / 255
    for moment, expected in {"mean": pixels.mean(axis=(0, 2, 3)), "std": pixels.std(axis=(0, 2, 3))}.items():
        value = getattr(data, moment)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        np.testing.assert_array_equal(getattr(data.subset(order), moment), value)
        assert (value.dtype, value.shape) == (np.float32, (3,))
    constant = replace(data, x=np.full((12, 3, 5, 4), 51, np.uint8))
    np.testing.assert_allclose(constant.mean, 0.2, rtol=1e-6)
    np.testing.assert_array_equal(constant.std, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"x": pictures(12, 3, 5, 4, seed=1)},
        {"y": (np.arange(12) + 1) % 3},
        {"split": np.zeros(12, np.uint8)},
        {"domain": np.zeros(12, np.int64)},
        {"classes": ("a", "b", "x")},
        {"domains": ("left", "x")},
        {"x": tiny().x.reshape(12, 3, 4, 5)},
        {"source": np.arange(12)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_fingerprint_changes_with_every_part_of_the_content(change):
    assert replace(tiny(), **change).fingerprint != tiny().fingerprint


def test_the_fingerprint_does_not_depend_on_the_name_or_on_the_memory_layout():
    data = tiny()
    assert re.fullmatch("[0-9a-f]{16}", data.fingerprint)
    assert replace(data, name="other", x=np.asfortranarray(data.x)).fingerprint == data.fingerprint


def test_a_subset_holds_the_images_asked_for_in_their_order():
    data, wanted = tiny(), [5, 0, 10]
    part = data.subset(wanted)
    for field in ("x", "y", "split", "domain"):
        np.testing.assert_array_equal(getattr(part, field), getattr(data, field)[wanted])
    assert part.source is None
    np.testing.assert_array_equal(replace(data, source=np.arange(12) - 3).subset(wanted).source, [2, -3, 7])
    mask = np.isin(np.arange(12), wanted)
    assert data.subset(mask).fingerprint == data.subset(sorted(wanted)).fingerprint


def test_a_subset_that_cannot_be_is_refused():
    for words, index in (("0 to 11", 12), ("-1", -1), ("an empty class", 3)):
        refused(words, tiny().subset, [0, index])
    for words, indices in (("whole", [0.5]), ("whole", []), ("12", [True])):
        refused(words, tiny().subset, indices)


TRAIN, TEST = pictures(6, 9, 7, 3), pictures(3, 9, 7, 3, seed=1)
FORMS = {  # the images of both splits as people have them, and what they are as uint8
    "channels last": (lambda x: x, lambda x: x),
    "channels first": (lambda x: x.transpose(0, 3, 1, 2), lambda x: x),
    "whole numbers": (lambda x: x.astype(np.int64), lambda x: x),
    "16 bits with values of 8": (lambda x: x.astype(np.uint16), lambda x: x),
    "whole floats": (lambda x: x.astype(np.float32), lambda x: x),
    "floats from 0 to 1": (lambda x: (x / 255).astype(np.float32), lambda x: x),
    "halves": (lambda x: np.where(x > 99, 0.5, 0), lambda x: np.where(x > 99, 128, 0)),
    "booleans": (lambda x: x > 99, lambda x: np.where(x > 99, 255, 0)),
    "one kind in train": (lambda x: x.astype(float) if len(x) == 6 else x, lambda x: x),
}


@pytest.mark.parametrize("form", FORMS)
def test_images_as_people_have_them(form, tmp_path):
    given, expected = FORMS[form]
    data = read_npz(saved(tmp_path, x_train=given(TRAIN), x_test=given(TEST)))
    np.testing.assert_array_equal(data.x.transpose(0, 2, 3, 1), np.concatenate([expected(TRAIN), expected(TEST)]))
    assert data.x.dtype == np.uint8
    assert data.x.flags.c_contiguous
    np.testing.assert_array_equal(data.split, [0] * 6 + [1] * 3)
    assert (data.classes, data.domains) == (("0", "1", "2"), ("own",))


def test_the_range_of_the_values_is_that_of_all_splits(tmp_path):
    """Test images that happen to be dark are not made brighter than training images."""
    dark = np.clip(TEST, 0, 1).astype(float)
    data = read_npz(saved(tmp_path, x_train=TRAIN.astype(float), x_test=dark))
    np.testing.assert_array_equal(data.x[6:].transpose(0, 2, 3, 1), dark)


LABELS = {  # labels of train and test, with `classes` or without, and the classes of the nine images
    "text": (["cat", "ant", "bee"] * 2, ["bee", "cat", "ant"], None, "cat ant bee cat ant bee bee cat ant"),
    "bytes": ([b"b", b"a"] * 3, [b"a", b"b", b"a"], None, "b a b a b a a b a"),
    "text in an order": (["b", "a"] * 3, ["a", "b", "a"], ["b", "a"], "b a b a b a a b a"),
    "from 1": ([1, 2, 3, 1, 2, 3], [3, 2, 1], None, "1 2 3 1 2 3 3 2 1"),
    "with gaps": ([10, 2, 2, 10, 2, 2], [7, 7, 2], None, "10 2 2 10 2 2 7 7 2"),
    "floats": ([0.0, 1, 2, 0, 1, 2], [2.0, 1, 0], None, "0 1 2 0 1 2 2 1 0"),
    "flags": ([True, False] * 3, [True, False, True], None, "1 0 1 0 1 0 1 0 1"),
    "in a column": ([[0], [1], [2], [0], [1], [2]], [[2], [1], [0]], ["x", "y", "z"], "x y z x y z z y x"),
    "a class only in test": ([0, 1] * 3, [2, 1, 0], None, "0 1 0 1 0 1 2 1 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", LABELS)
def test_labels_as_people_have_them(case, tmp_path):
    train, test, classes, expected = LABELS[case]
    labels = {"y_train": np.array(train), "y_test": np.array(test), "classes": classes and np.array(classes)}
    data = read_npz(saved(tmp_path, **labels))
    assert [data.classes[label] for label in data.y] == expected.split()
    in_order = {"text in an order": ("b", "a"), "with gaps": ("2", "7", "10")}
    assert data.classes == in_order.get(case, tuple(sorted(set(expected.split()))))


def test_grey_images_of_writers_without_splits_are_divided_by_a_test_fraction_only(tmp_path):
    x, y = pictures(40, 9, 7), np.arange(40) % 4 + 1
    np.savez(tmp_path / "own.npz", x=x, y=y, writer=np.arange(40) % 5 * 3, source=np.arange(40) // 2)
    data = read_npz(tmp_path / "own.npz")
    assert data.x.shape == (40, 1, 9, 7)
    assert (data.split == 0).all()
    assert (data.classes, data.domains) == (("1", "2", "3", "4"), ("0", "3", "6", "9", "12"))
    assert data.domain.tolist() == [i % 5 for i in range(40)]
    assert data.source.tolist() == [i // 2 for i in range(40)]
    federation = fl.federate(data, fl.iid(), clients=2, test_fraction=0.3)
    assert sum(map(len, federation.train)) + sum(map(len, federation.test)) == 40
    refused("'own' has no official test split, so", fl.federate, data, fl.iid(), clients=2, test_fraction=None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": tiny().x.astype(np.float32)}, "x is float32"),
        ({"x": tiny().x[:, 0]}, "x is uint8 of shape"),
        ({"y": np.arange(12, dtype=np.int32) % 3}, "y is int32"),
        ({"y": np.arange(11) % 3}, "y is int64 of shape"),
        ({"y": [0] * 12}, "y is a list; it must be an array, int64 of shape (12,), one per image."),
        ({"y": np.arange(12) % 4}, "y has values from 0 to 3, but there are 3 classes"),
        ({"y": np.arange(12) % 3 - 1}, "y has values from -1"),
        ({"y": np.arange(12) % 2}, "an empty class: class 2 ('c') has no sample"),
        ({"split": np.full(12, 3, np.uint8)}, "split has values from 3 to 3"),
        ({"domain": np.full(12, 2)}, "domain has values from 2 to 2"),
        ({"source": np.zeros(12)}, "source is float64 of shape (12,)"),
        ({"source": np.zeros(11, int)}, "source is int64 of shape (11,)"),
        ({"source": np.arange(12) % 7}, "source 1 is in the official test split and another one"),
    ],
)
def test_a_faulty_data_set_is_refused_in_one_sentence(change, words):
    refused(re.escape(words), replace, tiny(), **change)


WRITTEN = {"colour": tiny(), "grey": tiny(channels=1), "sources": replace(tiny(), source=np.arange(12) // 2 - 1)}
WRITTEN["validation"] = replace(tiny(), split=np.repeat(np.array([0, 1, 2], np.uint8), 4))


@pytest.mark.parametrize("data", WRITTEN.values(), ids=WRITTEN)
def test_what_is_written_is_read_back(data, tmp_path):
    write_npz(tmp_path / "tiny.npz", data)
    again = read_npz(tmp_path / "tiny.npz")
    assert (again.fingerprint, again.name) == (data.fingerprint, "tiny")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["tiny.npz"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    write_npz(tmp_path / "tiny.npz", tiny())

    def full(file: object, **_: np.ndarray) -> None:
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space left"):
        write_npz(tmp_path / "tiny.npz", tiny(channels=1))
    assert read_npz(tmp_path / "tiny.npz").fingerprint == tiny().fingerprint
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["tiny.npz"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y_test": None}, "y_test missing"),
        ({"x_train": None, "y_train": None}, "x_train, y_train missing"),
        ({"x_train": pictures(6, 5, 4, 3).astype(complex)}, "x_train is complex128 of shape (6, 5, 4, 3)"),
        ({"x_train": pictures(6, 5, 7, 2)}, "x_train has shape (6, 5, 7, 2); images have 1 (grey) or 3 (colour)"),
        ({"x_train": pictures(6, 5, 7, 4)}, "transparency is the fourth channel, which x[..., :3] leaves out"),
        ({"x_train": pictures(6, 5, 4, 3) / 255 - 0.5}, "so save (255 * (x - x.min()) / (x.max() - x.min())).astype("),
        ({"x_train": pictures(6, 5, 4, 3) / 255.0}, "x_train and x_test have values from 0 to"),  # of two kinds
        ({"x_train": np.full((6, 5, 4, 3), np.nan)}, "x_train and x_test have values from nan to nan"),
        ({"x_train": pictures(6, 5, 4, 3).astype(np.uint16) * 257}, "so save (x // 257).astype('uint8')"),
        ({"x_train": pictures(6, 5, 4, 3).astype(np.uint16) * 16}, "so save (255 * (x - x.min())"),  # of 12 bits
        ({"x_train": pictures(6, 5, 4, 3) % 2 * 1, "x_test": np.ones((3, 5, 4, 3), int)}, "so save (255 * x).astype("),
        ({"x_test": pictures(3, 5, 4, 3) > 99}, "x_train is uint8, x_test is bool; either all or none may be bool."),
        ({"x_valid": pictures(3, 5, 4), "y_valid": np.arange(3)}, "x_valid and y_valid are of no known split; known"),
        ({"x": pictures(6, 5, 4, 3)}, "x and x_train exclude each other; either all arrays have splits or none."),
        ({key: None for key in arrays()} | {"x": pictures(6, 5, 4)}, "y missing; a file needs"),
        ({"y_train": np.eye(6, 3)}, "(one-hot labels become classes with .argmax(1))"),
        ({"y_train": np.array(["a"] * 6)}, "y is text in one split and numbers in another"),
        ({"y_train": np.array(["a"] * 6), "y_test": np.array(["b"] * 3), "classes": np.array(["a"])}, "label 'b' is"),
        ({"x_train": pictures(6, 20)}, "x_train is uint8 of shape (6, 20)"),
        ({"x_test": pictures(3, 5, 5, 3)}, "must have one shape"),
        ({"y_train": np.arange(5) % 3}, "y_train has shape (5,), but x_train has 6 images"),
        ({"y_train": np.arange(6) % 3 + 0.5}, "values that are not whole numbers"),
        ({"y_train": np.full(6, np.nan)}, "y has float64 values that are not whole numbers"),
        ({"y_train": np.arange(6) % 3 * 2, "classes": np.array(["a", "b", "c", "d", "e"])}, "an empty class"),
        ({"y_train": np.arange(6) % 3 - 1}, "y has the label -1; images without a class must be left out."),
        ({"classes": np.array(["a", "b", "c", "d"])}, "an empty class: class 3 ('d')"),
        ({"classes": np.array(["a", "b"])}, "there are 2 classes"),
        ({"writer_train": np.arange(6)}, "writer_test missing"),
        ({"domain_train": np.zeros(6, int), "domain_test": np.zeros(2, int)}, "domain_test has shape (2,)"),
        ({"source_train": np.arange(6)}, "source_test missing"),
        ({"source_train": np.arange(6), "source_test": np.arange(3)}, "source 0 is in the official test split"),
        ({"y_test": np.array([0, 1, None])}, "object arrays are not read, save names with .astype(str)"),
        ({"x_train": pictures(0, 5, 4, 3), "y_train": np.arange(0), "classes": np.array([*"abcd"])}, "an empty class"),
    ],
)
def test_a_faulty_file_is_refused_in_one_sentence_that_names_it(change, words, tmp_path):
    path = saved(tmp_path, **change)
    assert str(path) in refused(re.escape(words), read_npz, path)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 0.999), compressed=st.booleans())
def test_a_truncated_file_is_refused_wherever_it_ends(share, compressed, tmp_path):
    path = tmp_path / "own.npz"
    (np.savez_compressed if compressed else np.savez)(path, **arrays())
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    refused(rf"{re.escape(str(path))}.*damaged or incomplete", read_npz, path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 0.999), flip=st.integers(1, 255))
def test_a_damaged_byte_is_noticed_or_changes_nothing(share, flip, tmp_path):
    path = tmp_path / "own.npz"
    np.savez_compressed(path, **arrays())
    good, content = read_npz(path), bytearray(path.read_bytes())
    content[int(share * len(content))] ^= flip
    path.write_bytes(content)
    try:
        outcome = read_npz(path).fingerprint
    except ValueError as error:
        outcome = str(error)
    assert outcome == good.fingerprint or str(path) in outcome


@pytest.mark.parametrize("flag", [0x01, 0x20, 0x40])
def test_a_member_that_is_marked_as_encrypted_or_patched_is_refused(flag, tmp_path):
    path = saved(tmp_path)
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] ^= flag  # the general flags of the last member in the directory
    content[content.rindex(b"PK\x03\x04") + 6] ^= flag
    path.write_bytes(content)
    refused("cannot be read", read_npz, path)


def test_a_file_in_the_root_is_a_data_set_comes_before_the_official_one_and_is_read_again_when_it_changes(root):
    expected = read_npz(saved(root))
    (root / "cifar10.npz").write_bytes((root / "own.npz").read_bytes())
    assert load("own").fingerprint == expected.fingerprint
    np.testing.assert_array_equal(load("cifar10", root=root).x, expected.x)
    assert "own" in datasets()
    assert set(EMBEDDED) | set(OFFICIAL) <= set(datasets(root / "missing"))
    saved(root)
    first = load("own")
    assert load("own") is first
    saved(root, classes=np.array(["a", "b", "longer"]))
    assert load("own").classes == ("a", "b", "longer")
    size = (path := saved(root, classes=np.array(["a", "b", "change"]))).stat().st_size
    os.utime(path, (0, 0))
    assert load("own").classes == ("a", "b", "change")
    assert saved(root, classes=np.array(["a", "b", "others"])).stat().st_size == size
    assert load("own").classes == ("a", "b", "others")


def test_an_unknown_name_one_that_is_taken_and_a_root_that_cannot_be_made_are_refused(root):
    assert str(root / "cifar-10.npz") in refused("did you mean 'cifar10'", load, "cifar-10")
    np.savez(root / "digits.npz", **arrays())
    refused("rename the file", load, "digits")
    refused(r"the data folder .* cannot be made", load, "cifar10", root=root / "digits.npz" / "root")


@pytest.mark.parametrize(("name", "allowed"), [("digits", "copies, seed"), ("mnist", "none"), ("domainnet", "none")])
def test_an_unknown_option_is_refused(name, allowed, root):
    saved(root).rename(root / "domainnet.npz")  # the user's own
    refused(f"no option 'size'; allowed: {allowed}", load, name, size=3)


class Payload:  # makes the folder when it is unpickled
    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("key", ["x_train", "y_test", "classes", "unknown"])
def test_a_pickled_object_in_an_npz_is_never_loaded(key, tmp_path):
    victim = tmp_path / "victim"
    path = saved(tmp_path, **{key: np.array([Payload(victim)], dtype=object)})
    if key == "unknown":  # what is not asked for is not looked into
        assert len(read_npz(path)) == 9
    else:
        refused("object arrays are not read", read_npz, path)
    assert not victim.exists()


def test_a_pickled_object_in_a_file_of_torch_is_never_loaded(tmp_path):
    file = io.BytesIO()
    torch.save((Payload(tmp_path / "victim"), torch.zeros(1)), file)
    with one_sentence("it does not hold images and labels: UnpicklingError"):
        official._pictures(file.getvalue())
    assert not (tmp_path / "victim").exists()


def test_an_npz_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "LARGE", 2**20)
    path = tmp_path / "own.npz"
    np.savez_compressed(path, **arrays(x_train=np.zeros((2**12, 32, 32), np.uint8)))  # 4 MiB of zeros
    assert path.stat().st_size < 2**14
    assert str(path) in refused(r"x_train\.npy would expand to 4194432 bytes\.", read_npz, path)


def test_an_array_that_says_it_is_larger_than_any_memory_is_refused(tmp_path):
    path = saved(tmp_path, x_train=None)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (2**46, 4, 4)})
    with zipfile.ZipFile(path, "a") as zipped:
        zipped.writestr("x_train.npy", header.getvalue())
    refused("it is damaged or incomplete", read_npz, path)


@pytest.mark.parametrize("name", ["../own", "/own", "folder/own", ".."])
def test_the_name_of_a_data_set_leads_to_no_other_folder(name, tmp_path):
    (tmp_path / "root").mkdir()
    saved(tmp_path)
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


def test_cifar10_has_the_published_channel_means(data_root):
    data = load("cifar10", root=data_root)
    np.testing.assert_allclose(data.mean, [0.4914, 0.4822, 0.4465], atol=1e-3)
    assert data.x.shape == (60000, 3, 32, 32)
    np.testing.assert_array_equal(np.bincount(data.split), [50000, 10000])
    np.testing.assert_array_equal(np.bincount(data.y), [6000] * 10)


def test_the_writers_of_mnist_are_its_domains(data_root):
    data = load("mnist", root=data_root)
    assert data.x.shape == (70000, 1, 28, 28)
    train, test = (np.unique(data.domain[data.split == part]) for part in (0, 1))
    assert (len(train), len(test), len(np.intersect1d(train, test))) == (539, 297, 0)


SETS = {  # shape, classes, domains, and options that make it small
    "characters": ((6200, 1, 28, 28), 62, 100, {"writers": 10}),
    "digit_pairs": ((6000, 3, 32, 32), 100, 1, {"per_class": 5}),
    "digit_styles": ((6000, 3, 32, 32), 10, 6, {"per_style": 100}),
    "digits": ((5391, 3, 32, 32), 10, 1, {"copies": 1}),
}
each_set = pytest.mark.parametrize("name", EMBEDDED)


@each_set
def test_an_embedded_set_has_its_classes_and_domains_in_both_splits_and_no_image_blank_or_twice(name):
    data, (shape, n_classes, n_domains, _) = load(name), SETS[name]
    assert (data.name, data.x.shape) == (name, shape)
    assert len(data.classes) == len(set(data.classes)) == n_classes
    assert len(data.domains) == len(set(data.domains)) == n_domains
    for part in (0, 1):
        rows = data.split == part
        assert np.bincount(data.y[rows], minlength=n_classes).min() > 0
        assert np.bincount(data.domain[rows], minlength=n_domains).min() > 0
    assert 0.15 < (data.split == 1).mean() < 0.25
    flat = data.x.reshape(len(data), -1)
    assert len(np.unique(flat, axis=0)) == len(flat)
    assert (flat.max(axis=1).astype(int) - flat.min(axis=1)).min() > 40


of_scans = pytest.mark.parametrize(
    ("make", "options"),
    [(scans.digits, {"copies": 1}), (scans.digit_pairs, {"per_class": 10}), (scans.digit_styles, {"per_style": 200})],
    ids=["digits", "digit_pairs", "digit_styles"],
)


def test_every_sheet_has_scans_of_all_digits_and_is_held_out_as_a_whole():
    _, digit, sheet, held_out = scans.scans()
    counts = np.bincount(10 * sheet + digit, minlength=500)
    assert (counts.min(), counts.max()) == (3, 4)
    np.testing.assert_array_equal(held_out, sheet % 5 == 0)


@of_scans
def test_images_show_scans_of_their_source_only(make, options, monkeypatch):
    real, made = scans.scans(), []
    source = real.sheet if make is scans.digit_pairs else np.arange(len(real.digit))
    monkeypatch.setattr(scans, "_others", lambda rng, scan: 0 * scan)  # fragments are of scan 0
    for mask in (real.mask, np.where((source % 2 == 0)[:, None, None], real.mask, 0.0)):  # odd sources are blank
        monkeypatch.setattr(scans, "scans", lambda mask=mask: real._replace(mask=mask))
        made.append(make.__wrapped__(**options))
    same = (made[0].x == made[1].x).all(axis=(1, 2, 3))
    np.testing.assert_array_equal(same, made[0].source % 2 == 0)


@pytest.mark.parametrize("part", [0, 1], ids=["train", "test"])
@of_scans
def test_the_images_of_a_split_show_scans_of_that_split_only(make, options, part, monkeypatch):
    expected = make(**options)
    real = scans.scans()
    erased = np.where((real.held_out == part)[:, None, None], real.mask, 0.0)  # the other split's scans are blank
    monkeypatch.setattr(scans, "scans", lambda: real._replace(mask=erased))
    data = make.__wrapped__(**options)
    same = (data.x == expected.x).all(axis=(1, 2, 3))
    assert same[expected.split == part].all()
    assert not same[expected.split != part].any()


def test_the_mask_of_a_digit_is_where_its_colour_is_seen(monkeypatch):
    real, pictures = ink.contrasting, []
    for shade in (0.0, 1.0):
        monkeypatch.setattr(ink, "contrasting", lambda *args, shade=shade: np.full_like(real(*args), shade))
        pictures.append(scans.digits.__wrapped__(copies=1, seed=2).x[:, 0].astype(int))
    changed, mask = pictures[1] - pictures[0], scans.digit_masks(copies=1, seed=2)
    assert mask.shape == changed.shape
    assert (changed[mask == 0] <= 1).all()  # rounded
    assert (changed[mask >= 128] > 25).all()  # at least 0.8 ink, of which a line leaves 0.4
    assert 0.02 < (mask >= 128).mean(axis=(1, 2)).min() < (mask >= 128).mean(axis=(1, 2)).max() < 0.5


def test_writers_may_write_every_character_several_times():
    data = load("characters", writers=5, copies=3)
    assert (np.bincount(data.domain * 62 + data.y) == 3).all()
    assert len(np.unique(data.x.reshape(len(data), -1), axis=0)) == 5 * 62 * 3
    assert data.source is None  # every one is written anew
    data = load("characters")
    assert (np.bincount(data.domain * 62 + data.y) == 1).all()  # none is in both splits


@each_set
def test_the_same_seed_gives_the_same_images_and_another_seed_others(name):
    options, make = SETS[name][3], EMBEDDED[name].__wrapped__
    first = make(**options, seed=3)
    assert make(**options, seed=3).fingerprint == first.fingerprint
    assert load(name, **options).fingerprint != first.fingerprint


def test_an_embedded_set_is_made_once_writes_nothing_and_is_the_same_in_another_process_with_other_threads(tmp_path):
    root = tmp_path / "root"
    assert load("digits", root=root) is load("digits", root=root)
    assert not root.exists()
    made = "load('digits', copies=1).fingerprint, load('characters', writers=10).fingerprint"
    other = python("-c", f"from fedlib.data import load; print({made})", OMP_NUM_THREADS=2)
    assert tuple(other.stdout.split()) == eval(made)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [("digits", "copies", 0), ("digits", "seed", -1), ("digit_pairs", "per_class", 1),
     ("digit_styles", "per_style", 2000), ("characters", "writers", 1.5), ("characters", "copies", 0)],
)  # fmt: skip
def test_a_size_that_cannot_be_is_refused(name, option, value):
    refused(f"{option}={value} is not allowed", load, name, **{option: value})


def test_fonts_have_all_characters_and_no_two_of_a_font_look_alike():
    masks = glyphs.glyphs().reshape(len(glyphs.FONTS), 62, -1)
    assert masks.sum(axis=2).min() > 20
    for font in masks:
        assert len(np.unique(font, axis=0)) == 62


def test_a_map_moves_ink_to_where_it_says():
    mask = np.zeros((1, 9, 9))
    mask[0, 4, 6] = 1  # half way to the right edge
    one, none = np.ones((1, 2)), np.zeros(1)

    def place(angle: float = 0, slant: float = 0, shift: tuple[float, float] = (0, 0)) -> list[int]:
        maps = ink.affine(none + angle, one, none + slant, np.array([shift]))
        return np.argwhere(ink.warp(mask, maps, (9, 9))[0] > 0.9).tolist()

    assert place() == [[4, 6]]
    assert place(angle=90) == [[2, 4]]  # counter-clockwise: up
    assert place(shift=(2 / 9, 4 / 9)) == [[6, 7]]
    assert place(slant=0.5) == [[4, 6]]  # the middle line stays


def test_a_thicker_pen_covers_more_blank_paper_stays_blank_and_contrasting_colours_keep_their_distance():
    mask = scans.scans().mask[:20]
    thin, thick = (ink.stroke(mask, np.full(20, weight)) for weight in (-0.1, 0.2))
    assert (thick.sum(axis=(1, 2)) > thin.sum(axis=(1, 2))).all()
    np.testing.assert_array_equal(ink.stroke(np.zeros((1, 4, 4)), np.array([0.2])), 0)
    rng = np.random.default_rng(0)
    paper = rng.uniform(0.05, 0.95, (500, 3))
    gap = np.abs(ink.brightness(ink.contrasting(rng, paper, 0.3)) - ink.brightness(paper))
    assert (gap >= 0.3).mean() > 0.98


def test_the_scans_are_scikit_learn_s_wherever_it_keeps_its_file(monkeypatch):
    quickly = scans._table()
    monkeypatch.setattr(scans, "find_spec", lambda name: None)
    assert np.array_equal(scans._table(), quickly)
    assert quickly.shape == (1797, 65)
