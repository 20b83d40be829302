"""Downloads, and the official data sets from small archives in their layout, served on this machine."""

import gzip
import io
import pickle
import re
import shutil
import string
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import archives as small
import numpy as np
import pytest
import torchvision.datasets as tv
from archives import FileServer, encoded, md5, pictures, serve, sha256, tar_gz, zipped
from PIL import Image
from refusals import one_sentence, refused
from scipy.io import savemat

import fedlib as fl
from fedlib.data import OFFICIAL, Dataset, archives, femnist, is_here, official
from fedlib.data.download import fetch

CONTENT = pictures(1, 10_000).tobytes()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    with serve(tmp_path / "served") as running:
        (running.folder / "file.bin").write_bytes(CONTENT)
        yield running


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def publish(server: FileServer, name: str, content: bytes) -> tuple[str, str]:
    """Put a file on the server: its URL and MD5."""
    (server.folder / name).write_bytes(content)
    return server.url + name, md5(content)


def replace(monkeypatch: pytest.MonkeyPatch, target: object, **values: Any) -> None:
    for name, value in values.items():
        monkeypatch.setattr(target, name, value)


def load(name: str, root: Path, **options: Any) -> Dataset:
    """`fl.load`; afterwards the set is known to be there."""
    data = fl.load(name, root, **options)
    assert is_here(name, root) or name == "digit5"  # of which some domains may do
    return data


@pytest.mark.parametrize("name", [*OFFICIAL])
def test_an_official_set_is_not_there_before_its_download(name, root):
    for folder in ("svhn", "domainnet", "MNIST/raw", "cifar-10-batches-py"):
        (root / folder).mkdir(parents=True)
    assert not is_here(name, root)


def test_a_file_is_fetched_once_and_one_put_by_hand_must_be_the_right_one(server, root):
    for _ in range(2):
        path = fetch(server.url + "file.bin", root / "deep" / "file.bin", md5=md5(CONTENT))
    assert path.read_bytes() == CONTENT
    assert server.ranges == [None]
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]
    (root / "file.bin").write_bytes(b"other")
    refused("is not the expected file", fetch, server.url + "file.bin", root / "file.bin", md5=md5(CONTENT))
    assert (root / "file.bin").read_bytes() == b"other"
    assert server.ranges == [None]


def test_an_interrupted_transfer_is_resumed_where_it_broke_off_twice_without_help(server, root):
    server.cut = 1500
    with pytest.raises(ConnectionError, match=r"put the file by hand at .*file\.bin"):
        fetch(server.url + "file.bin", root / "file.bin")
    assert server.ranges == [None, "bytes=1500-", "bytes=3000-"]
    assert (root / "file.bin.part").read_bytes() == CONTENT[:4500]
    assert not (root / "file.bin").exists()
    server.cut = 2000
    fetch(server.url + "file.bin", root / "file.bin", md5=md5(CONTENT))
    assert server.ranges[3:] == ["bytes=4500-", "bytes=6500-", "bytes=8500-"]
    assert (root / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_wrong_checksum_deletes_the_partial_file(algorithm, server, root):
    with one_sentence(f"its {algorithm} is [0-9a-f]+ instead of 00; put the right file"):
        fetch(server.url + "file.bin", root / "file.bin", **{algorithm: "00"})
    assert list(root.iterdir()) == []


def test_a_complete_partial_file_is_used_and_one_of_other_content_noticed_so_that_the_next_try_is_clean(server, root):
    root.mkdir()
    (root / "file.bin.part").write_bytes(b"other")
    refused("did not deliver the expected file", fetch, server.url + "file.bin", root / "file.bin", md5=md5(CONTENT))
    for name in ("file.bin", "complete.bin"):
        (root / "complete.bin.part").write_bytes(CONTENT)
        assert fetch(server.url + "file.bin", root / name, md5=md5(CONTENT)).read_bytes() == CONTENT


def test_a_missing_file_and_an_absent_server_give_one_sentence(server, root):
    for name, reason in (("none.bin", "404 Not Found"), ("file.bin", "refused")):
        start, place = (re.escape(str(place)) for place in (server.url + name, root / name))
        with one_sentence(rf"^{name} .* from {start} .*{reason}.*put the file by hand at {place}\.$", ConnectionError):
            fetch(server.url + name, root / name)
        if name == "none.bin":
            server.shutdown()
            server.server_close()


Made = tuple[np.ndarray, np.ndarray, int, str]  # images, labels, how many of them are to train, and the last class


def cifar(server: FileServer, monkeypatch: pytest.MonkeyPatch, n_classes: int) -> Made:
    """An image of each class in each of its files; the last file of images is the test part."""
    reader, labels = {10: (tv.CIFAR10, "labels"), 100: (tv.CIFAR100, "fine_labels")}[n_classes]
    names = [name for name, _ in (*reader.train_list, *reader.test_list)]
    n, y = n_classes * len(names), np.arange(n_classes)
    x = pictures(n, 3, 32, 32)
    batches = [{"data": part.reshape(n_classes, -1), labels: y.tolist()} for part in np.split(x, len(names))]
    contents = map(pickle.dumps, [*batches, {reader.meta["key"]: [f"class {c}" for c in y]}])
    files = dict(zip([*names, reader.meta["filename"]], contents, strict=True))
    archive = tar_gz({f"{reader.base_folder}/{name}": content for name, content in files.items()})
    url, archive_md5 = publish(server, reader.filename, archive)
    *train, test, meta = ([name, md5(content)] for name, content in files.items())
    replace(monkeypatch, reader, url=url, tgz_md5=archive_md5, train_list=train, test_list=[test])
    monkeypatch.setitem(reader.meta, "md5", meta[1])
    return x, np.tile(y, len(names)), n - n_classes, f"class {n_classes - 1}"


def test_cifar10_is_read_from_an_archive_put_by_hand_and_repaired_when_damaged(server, root, monkeypatch):
    cifar(server, monkeypatch, n_classes=10)
    root.mkdir()
    (root / "cifar-10-python.tar.gz").write_bytes((server.folder / "cifar-10-python.tar.gz").read_bytes())
    first = load("cifar10", root=root).fingerprint
    (root / "cifar-10-batches-py" / "data_batch_2").write_bytes(b"damaged")
    assert load("cifar10", root=root).fingerprint == first
    assert server.ranges == []


def test_two_that_load_at_the_same_time_download_once(server, root, monkeypatch):
    cifar(server, monkeypatch, n_classes=10)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: load("cifar10", root=root).fingerprint, range(4)))
    assert len(set(found)) == 1
    assert server.ranges == [None]


def test_an_absent_archive_and_a_damaged_file_without_a_checksum_give_one_sentence(server, root, monkeypatch):
    monkeypatch.setattr(tv.CIFAR10, "url", server.url + "none.tar.gz")
    expected = re.escape(f"put the file by hand at {root / 'cifar-10-python.tar.gz'}.")
    with pytest.raises(ConnectionError, match=expected):
        load("cifar10", root=root)
    lists = {split: [server.url + "file.bin", name, None] for split, name in (("train", "a.bz2"), ("test", "b.bz2"))}
    monkeypatch.setattr(tv.USPS, "split_list", lists)
    assert str(root / "usps" / "a.bz2") in refused("usps could not be read from", load, "usps", root=root)


def mnist(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> Made:
    x, y = pictures(40, 28, 28), np.arange(40) % 10
    kinds = {"images-idx3": x, "labels-idx1": y}
    parts = {f"train-{kind}-ubyte.gz": values[:30] for kind, values in kinds.items()}
    parts |= {f"t10k-{kind}-ubyte.gz": values[30:] for kind, values in kinds.items()}
    resources = [(name, publish(server, name, small.idx_gz(values))[1]) for name, values in parts.items()]
    replace(monkeypatch, tv.MNIST, mirrors=[server.url], resources=resources)
    return x, y, 30, "9"


def emnist_byclass(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Its files have the images on their sides."""
    x, y = pictures(124, 28, 28), np.arange(124) % 62
    files = {
        f"gzip/emnist-byclass-{part}-{kind}-ubyte.gz": small.idx_gz(values)
        for part, rows in (("train", slice(62)), ("test", slice(62, None)))
        for kind, values in (("images-idx3", x[rows].transpose(0, 2, 1)), ("labels-idx1", y[rows]))
    }
    url, archive_md5 = publish(server, "gzip.zip", zipped(files))
    replace(monkeypatch, tv.EMNIST, url=url, md5=archive_md5)
    return x, y, 62, "z"


def two_files(server: FileServer, names: list[str], contents: list[bytes]) -> dict[str, list[str]]:
    published = [publish(server, name, content) for name, content in zip(names, contents, strict=True)]
    both = zip(("train", "test"), names, published, strict=True)
    return {split: [url, name, sum_] for split, name, (url, sum_) in both}


def usps(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Its files are texts with pixels from -1 to 1."""
    x, y = pictures(20, 16, 16), np.arange(20) % 10
    files = [small.libsvm_bz2((x[rows] + 0.5) / 127.5 - 1, y[rows].tolist()) for rows in (slice(10), slice(10, None))]
    monkeypatch.setattr(tv.USPS, "split_list", two_files(server, ["usps.bz2", "usps.t.bz2"], files))
    return x, y, 10, "9"


def svhn(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Its files say 10 for the first class."""
    x, y, files = pictures(20, 3, 32, 32), np.arange(20) % 10, [io.BytesIO(), io.BytesIO()]
    for file, rows in zip(files, (slice(12), slice(12, None)), strict=True):
        labels = np.where(y[rows] == 0, 10, y[rows]).astype(np.uint8)[:, None]
        savemat(file, {"X": x[rows].transpose(2, 3, 1, 0), "y": labels})
    names = ["train_32x32.mat", "test_32x32.mat"]
    monkeypatch.setattr(tv.SVHN, "split_list", two_files(server, names, [file.getvalue() for file in files]))
    return x, y, 12, "9"


DIGITS_5 = {  # name: side of its images, how a file is packed
    "mnist_m": (28, lambda split, content: tar_gz({f"mnist_m_{split}.pt": content})),
    "synthetic_digits": (32, lambda split, content: gzip.compress(content)),
}


def digits_5(server: FileServer, monkeypatch: pytest.MonkeyPatch, name: str) -> Made:
    side, pack = DIGITS_5[name]
    x, y = pictures(30, side, side, 3), np.arange(30) % 10
    files = getattr(official, name.upper())
    for file, rows in zip(list(files), (slice(20), slice(20, None)), strict=True):
        content = pack("train" if rows.stop else "test", small.torch_file(x[rows], y[rows]))
        monkeypatch.setitem(files, file, publish(server, file, content)[1])
    monkeypatch.setattr(official, "RELEASES", server.url)
    return x.transpose(0, 3, 1, 2), y, 20, "9"


SMALL = {make.__name__: make for make in (mnist, emnist_byclass, usps, svhn)}
SMALL |= {name: partial(digits_5, name=name) for name in DIGITS_5}
SMALL |= {f"cifar{n}": partial(cifar, n_classes=n) for n in (10, 100)}


@pytest.mark.parametrize("name", SMALL)
def test_an_official_set_is_read_as_it_is(name, server, root, monkeypatch):
    x, y, n_train, last = SMALL[name](server, monkeypatch)
    data = load(name, root=root)
    np.testing.assert_array_equal(data.x.reshape(x.shape), x)  # grey images without an axis of channels
    np.testing.assert_array_equal(data.y, y)
    np.testing.assert_array_equal(data.split, np.arange(len(y)) >= n_train)
    assert (data.classes[-1], data.domains) == (last, (name,))
    assert len(data.classes) == len(set(data.classes)) == y.max() + 1
    files = len(server.ranges)
    if name in DIGITS_5:  # decoded once, into a file beside
        shutil.rmtree(root / name)
    assert load(name, root=root).fingerprint == data.fingerprint
    assert len(server.ranges) == files  # downloaded once


def test_cinic10_is_decoded_once_into_a_file_beside(server, root, monkeypatch):
    x = pictures(9, 32, 32, 3)
    grey = encoded(x[0, :, :, 0], "PNG")
    files = {
        "./valid/dog/b.png": encoded(x[8], "PNG"),  # members come in any order
        "./README": b"text",
        "./train/cat/b.png": encoded(x[1], "PNG"),
        "./train/cat/a.png": grey,
        "./test/dog/a.png": encoded(x[5], "PNG"),
        "./train/dog/a.png": encoded(x[2], "PNG"),
    }
    url, archive_md5 = publish(server, "CINIC-10.tar.gz", tar_gz(files))
    replace(monkeypatch, archives, CINIC10_URL=url, CINIC10_MD5=archive_md5)
    data = load("cinic10", root=root)
    expected = [np.repeat(x[0, :, :, :1], 3, axis=2), x[1], x[2], x[5], x[8]]
    np.testing.assert_array_equal(data.x.transpose(0, 2, 3, 1), expected)
    np.testing.assert_array_equal(data.split, [0, 0, 0, 1, 2])
    np.testing.assert_array_equal(data.y, [0, 0, 1, 1, 1])
    assert data.classes == ("cat", "dog")
    (root / "CINIC-10.tar.gz").unlink()
    assert load("cinic10", root=root).fingerprint == data.fingerprint
    assert server.ranges == [None]


def test_tinyimagenet_has_the_labelled_images_only(server, root, monkeypatch):
    base, x = "tiny-imagenet-200/", [encoded(np.full((64, 64, 3), 40 * i, np.uint8), "JPEG") for i in range(6)]
    files = {
        base + "wnids.txt": b"n02\nn01\n",
        base + "words.txt": b"n01\tgoldfish, Carassius auratus\nn02\ttench\nn03\tunused\n",
        base + "val/val_annotations.txt": b"val_0.JPEG\tn01\t0\t0\t9\t9\nval_1.JPEG\tn02\t0\t0\t9\t9\n",
        base + "val/images/val_0.JPEG": x[4],
        base + "val/images/val_1.JPEG": x[5],
        base + "train/n01/n01_boxes.txt": b"n01_0.JPEG\t0\t0\t9\t9\n",
        base + "train/n01/images/n01_1.JPEG": x[1],
        base + "train/n01/images/n01_0.JPEG": x[0],
        base + "train/n02/images/n02_0.JPEG": x[2],
        base + "test/images/test_0.JPEG": x[3],
    }
    url, archive_md5 = publish(server, "tiny-imagenet-200.zip", zipped(files))
    replace(monkeypatch, archives, TINYIMAGENET_URL=url, TINYIMAGENET_MD5=archive_md5)
    data = load("tinyimagenet", root=root)
    assert (data.x.shape, data.classes) == ((5, 3, 64, 64), ("tench", "goldfish"))
    np.testing.assert_array_equal(data.y, [0, 1, 1, 0, 1])
    np.testing.assert_array_equal(data.split, [0, 0, 0, 1, 1])
    np.testing.assert_allclose(data.x[:, 0, 0, 0], [80, 0, 40, 200, 160], atol=2)


@pytest.fixture
def held(server: FileServer, root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """A small DomainNet on the server: what its images hold, uint8 [9, 12, 3] each."""
    files, held = small.domainnet_files()
    for name, content in files.items():
        (server.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (server.folder / name).write_bytes(content)
    assert files.keys() == archives.SHA256.keys()
    monkeypatch.setattr(archives, "BASE", server.url)
    monkeypatch.setattr(archives, "SHA256", {name: sha256(files[name]) for name in archives.SHA256})
    return held


def test_domainnet_has_the_listed_images_and_is_decoded_once_for_each_choice_of_options(held, server, root):
    data = load("domainnet", root=root, n_classes=3, size=4)
    order = sorted(held, key=lambda member: (member[-5] in "34", member))  # train, then test; domains by name
    expected = [Image.fromarray(held[member]).resize((4, 4), Image.Resampling.BILINEAR) for member in order]
    np.testing.assert_array_equal(data.x, np.stack(expected).transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(data.split, [member[-5] in "34" for member in order])
    assert [data.domains[d] for d in data.domain] == [member.split("/")[0] for member in order]
    assert [data.classes[y] for y in data.y] == [member.split("/")[1] for member in order]
    assert (data.name, data.classes) == ("domainnet", ("ant", "bee", "t-shirt"))
    assert load("domainnet", root=root, n_classes=3, size=5).x.shape[2:] == (5, 5)
    assert server.ranges == [None] * 18
    for path in (root / "domainnet").glob("*.*"):
        if path.is_file():
            path.unlink()
    assert load("domainnet", root=root, n_classes=3, size=4).fingerprint == data.fingerprint


def test_a_part_of_domainnet_is_drawn_from_every_class_in_every_domain(held, root):
    def images(**options: float) -> set[bytes]:
        data = load("domainnet", root=root, size=9, **options)
        counts = np.bincount(data.domain * len(data.classes) + data.y)
        assert len(counts) == 6 * len(data.classes)
        assert set(counts.tolist()) <= {1, *(max(1, round(n * options["fraction"])) for n in (5, 2))}
        return {x.tobytes() for x in data.x}

    few, some, all_ = (images(n_classes=3, fraction=fraction) for fraction in (0.01, 0.6, 1))
    assert few < some < all_
    assert [len(few), len(some), len(all_)] == [18, 17 * 3 + 1, 17 * 5 + 2]
    assert images(n_classes=2, fraction=0.6) < some
    assert images(n_classes=3, fraction=0.6, seed=1) != some


def test_a_part_of_domainnet_that_cannot_be_is_refused_before_anything_is_fetched(held, server, root):
    for option, values in {"n_classes": (346, 0), "fraction": (0, 1.1), "size": (0,), "seed": (-1,)}.items():
        for value in values:
            refused(f"{option}={value} is not allowed", load, "domainnet", root=root, **{option: value})
    assert server.ranges == []


def test_a_file_of_domainnet_that_is_missing_or_damaged_is_named(held, server, root):
    real = server.folder / "real.zip"
    content = real.read_bytes()
    real.unlink()
    with pytest.raises(ConnectionError, match=rf"put the file by hand at {re.escape(str(root))}/domainnet/real\.zip\."):
        load("domainnet", root=root, n_classes=3)
    (root / "domainnet" / "real.zip").write_bytes(content[:-1])
    refused(r"real\.zip is not the expected file: its sha256 is", load, "domainnet", root=root, n_classes=3)


def writers() -> dict[str, tuple[np.ndarray, list[int]]]:
    """Three writers of 20, 31 and 62 characters; the last one writes all of them."""
    sizes = {"f0002_b": 20, "f0000_c": 31, "f0001_a": 62}
    return {name: (pictures(n, 28, 28, seed=n), np.arange(n).tolist()) for name, n in sizes.items()}


def one_writer(x: np.ndarray, y: list[int]) -> bytes:
    return zipped({"all_data/a.json": small.leaf_json({"w": (x, y)})})


@pytest.fixture
def all_data(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of as many files as LEAF likes, and what a Mac leaves in it."""
    parts = {name: small.leaf_json({name: own}) for name, own in writers().items()}
    files = {f"all_data/all_data_{i}.json": content for i, content in enumerate(parts.values())}
    files |= {"all_data/": b"", "__MACOSX/._all_data_0.json": small.leaf_json({}), "README.md": b"text"}
    monkeypatch.setattr(femnist, "URL", publish(server, "femnist_all_data.zip", zipped(files))[0])


def test_the_writers_of_femnist_are_its_domains_and_may_be_its_clients(all_data, server, root):
    data = load("femnist", root=root)
    assert data.domains == ("f0000_c", "f0001_a", "f0002_b")
    for i, name in enumerate(data.domains):
        x, y = writers()[name]
        np.testing.assert_array_equal(data.x[data.domain == i, 0], x)
        np.testing.assert_array_equal(data.y[data.domain == i], y)
    assert (not data.split.any(), sorted(data.domain) == data.domain.tolist()) == (True, True)
    assert "".join(data.classes) == string.digits + string.ascii_uppercase + string.ascii_lowercase
    federation = fl.federate(data, fl.domains(), clients=len(data.domains), test_fraction=0.1)
    assert [np.unique(data.domain[own]).tolist() for own in federation.train] == [[0], [1], [2]]
    assert [len(own) for own in federation.test] == [3, 6, 2]
    (root / "femnist_all_data.zip").unlink()
    assert load("femnist", root=root).fingerprint == data.fingerprint
    assert server.ranges == [None]


def test_what_leafs_scripts_have_made_is_read_from_its_folder(all_data, server, root):
    for part, rows in {"train": slice(15), "test": slice(15, None)}.items():
        folder = root / "femnist" / part
        folder.mkdir(parents=True)
        content = small.leaf_json({name: (x[rows], y[rows]) for name, (x, y) in writers().items()})
        (folder / f"all_data_0_{part}_9.json").write_bytes(content)
    data = load("femnist", root=root)
    assert server.ranges == []
    assert np.bincount(data.split).tolist() == [3 * 15, 5 + 16 + 47]
    x, y = writers()["f0001_a"]
    order = np.argsort(data.split[data.domain == 1], kind="stable")
    np.testing.assert_array_equal(data.x[data.domain == 1, 0][order], x)
    np.testing.assert_array_equal(data.y[data.domain == 1][order], y)


PNG = encoded(pictures(32, 32, 3), "PNG")
FAULTS = {  # of a set: its file as it is, and what is wrong with it
    "cinic10, truncated": (tar_gz({f"train/{c}/a.png": PNG for c in ("cat", "dog")})[:2000], ""),
    "cinic10, no pictures": (tar_gz({"README": b"text"}), ""),
    "cinic10, not an archive": (CONTENT, ""),
    "cinic10, not a picture": (tar_gz({"train/cat/a.png": b"text"}), ""),
    "domainnet, not an archive": (CONTENT, ""),
    "domainnet, an image is missing": (zipped({"sketch/README": b"text"}), ""),
    "domainnet, not an image": (zipped({name: b"x" for name in small.domainnet_files()[1] if "sketch/" in name}), ""),
    "femnist, not an archive": (CONTENT, "not a zip file"),
    "femnist, no file": (zipped({"README.md": b"text"}), "it has no JSON files"),
    "femnist, not JSON": (zipped({"all_data/a.json": b"text"}), "Expecting value"),
    "femnist, a list": (zipped({"all_data/a.json": b"[]"}), r"a\.json is not in LEAF's format"),
    "femnist, a wrong size": (one_writer(pictures(2, 28, 28), [1]), "lists 1 images of w"),
    "femnist, another size": (one_writer(pictures(2, 27, 28), [1, 2]), "lists 2 images of w"),
    "femnist, bytes": (one_writer(np.full((1, 28, 28), 65_025), [1]), r"outside \[0, 1\]"),
    "femnist, few classes": (one_writer(pictures(2, 28, 28), [1, 2]), "an empty class"),
    "mnist_m, text": (tar_gz({"mnist_m_train.pt": b"text"}), "it does not hold images and labels"),
    "mnist_m, an empty file": (tar_gz({"mnist_m_train.pt": b""}), "it does not hold images and labels"),
    "mnist_m, not an archive": (CONTENT, "not a gzip file"),
    "mnist_m, no file": (tar_gz({}), "not enough values"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_cannot_be_decoded_gives_one_sentence_and_no_file(fault, held, server, root, monkeypatch):
    (content, reason), name = FAULTS[fault], fault.partition(",")[0]
    digits_5(server, monkeypatch, "mnist_m")
    options = {"n_classes": 3} if name == "domainnet" else {}
    file = {"cinic10": "CINIC-10.tar.gz", "domainnet": "sketch.zip", "femnist": "femnist_all_data.zip"}
    file = file.get(name, "mnist_m_train.pt.tar.gz")
    url, sum_ = publish(server, file, content)
    replace(monkeypatch, archives, CINIC10_URL=url, CINIC10_MD5=sum_)
    monkeypatch.setattr(femnist, "URL", url)
    monkeypatch.setitem(archives.SHA256, "sketch.zip", sha256(content))
    monkeypatch.setitem(official.MNIST_M, "mnist_m_train.pt.tar.gz", sum_)
    refused(rf"{re.escape(file)} could not be decoded \(.*{reason}", load, name, root, **options)
    assert not list(root.rglob("*.npz"))


def test_digit5_joins_as_many_images_of_each_domain_in_colour(server, root, monkeypatch):
    digits_5(server, monkeypatch, "synthetic_digits")
    root.mkdir()
    grey, y = pictures(24, 16, 16), np.arange(24) % 10
    np.savez(root / "usps.npz", x_train=grey[:20], y_train=y[:20], x_test=grey[20:], y_test=y[20:])
    data = load("digit5", root=root, domains=("usps", "synthetic_digits"))
    assert (data.x.shape, data.domains) == ((48, 3, 32, 32), ("usps", "synthetic_digits"))
    assert np.bincount(data.domain).tolist() == [24, 24]
    larger = [np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.BILINEAR)) for image in grey]
    np.testing.assert_array_equal(data.x[:24], np.repeat(np.stack(larger)[:, None], 3, axis=1))
    np.testing.assert_array_equal(data.y[:24], y)
    np.testing.assert_array_equal(data.split[:24], np.repeat([0, 1], [20, 4]))
    drawn = {image.tobytes() for image in data.x[24:]}
    assert drawn < {image.tobytes() for image in load("synthetic_digits", root=root).x}
    few, other = (load("digit5", root=root, domains=data.domains, per_domain=22, seed=s) for s in (0, 1))
    assert np.bincount(few.domain).tolist() == [22, 22]
    assert few.fingerprint != other.fingerprint
    assert is_here("digit5", root, domains=data.domains)
    assert is_here("digit5", root, domains=("usps", "digits"))  # one of them is embedded
    assert not is_here("digit5", root)
    assert not is_here("digit5", root, domains=("usps", "svhn"))


def test_a_digit5_that_cannot_be_is_refused(root):
    root.mkdir()
    x, y, two = pictures(24, 16, 16), np.arange(24) % 10, ("usps", "usps2")
    for name in two:
        np.savez(root / f"{name}.npz", x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:])
    refused("number of domains=1 is not allowed; .*, at least 2", load, "digit5", root=root, domains=("usps",))
    refused("dataset='letters' is unknown", load, "digit5", root=root, domains=("usps", "letters"))
    refused("per_domain=25 is not .*, from 10 to 24", load, "digit5", root=root, domains=two, per_domain=25)
    refused("seed=-1 is not allowed", load, "digit5", root=root, domains=two, seed=-1)
