"""Data sets of the Hugging Face Hub, from small repositories of parquet files in the same layout on this machine."""

import sys
from pathlib import Path

import numpy as np
import pytest
from archives import encoded, pictures
from refusals import one_sentence, refused

import fedlib as fl

datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install 'fedlib-papers[hf]'")
NAMES = ["ant", "bee", "cat"]


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch) -> Path:
    """An empty data folder; nothing is asked of the network, and nothing is kept in the user's cache."""
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    return tmp_path / "data"


def write(folder: Path, parts: dict[str, np.ndarray], image: str = "image", label: str = "label", **columns) -> Path:
    """A repository: a parquet file for each split, with images as PNG files, classes and further columns."""
    for split, x in parts.items():
        rows = {image: [{"bytes": encoded(one, "PNG"), "path": None} for one in x], label: np.arange(len(x)) % 3}
        features = {image: datasets.Image(), label: datasets.ClassLabel(names=NAMES)}
        for name, (feature, values) in columns.items():
            rows[name], features[name] = values(len(x)), feature
        (folder / "data").mkdir(parents=True, exist_ok=True)
        made = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
        made.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


def colour(n: int, seed: int = 0) -> np.ndarray:
    return pictures(n, 6, 5, 3, seed=seed)


def grey(n: int, seed: int = 0) -> np.ndarray:
    return pictures(n, 6, 5, seed=seed)


def test_images_have_official_splits_and_one_channel_or_three_where_some_are_coloured(tmp_path):
    folder = write(tmp_path / "mine", {"train": colour(9), "test": colour(4, 1), "extra": colour(2, 2)})
    data = fl.load(f"hf:{folder}")
    np.testing.assert_array_equal(data.x, np.concatenate([colour(9), colour(4, 1)]).transpose(0, 3, 1, 2))
    assert data.y.tolist() == [*(i % 3 for i in range(9)), *(i % 3 for i in range(4))]
    assert (data.split.tolist(), data.classes, data.domains) == ([0] * 9 + [1] * 4, tuple(NAMES), (f"hf:{folder}",))
    assert data.source is None
    data = fl.load(f"hf:{write(tmp_path / 'grey', {'train': grey(6), 'test': grey(3, 1)})}")
    np.testing.assert_array_equal(data.x, np.concatenate([grey(6), grey(3, 1)])[:, None])
    data = fl.load(f"hf:{write(tmp_path / 'both', {'train': grey(6), 'test': colour(3, 1)})}")
    np.testing.assert_array_equal(data.x[:6], np.repeat(grey(6)[:, None], 3, axis=1))
    np.testing.assert_array_equal(data.x[6:], colour(3, 1).transpose(0, 3, 1, 2))


def folders(root: Path, classes: tuple[str, ...], **parts: int) -> Path:
    """A folder for each split with a folder for each class, with so many pictures."""
    for code, (split, n) in enumerate(parts.items()):
        for name in classes:
            (root / split / name).mkdir(parents=True)
            for i, x in enumerate(colour(n, seed=code)):
                (root / split / name / f"{split} {i}.png").write_bytes(encoded(x, "PNG"))
    return root


def test_a_class_with_the_name_of_a_split_stays_in_its_split(tmp_path):
    """CIFAR-100 has a class "train"; the patterns of `datasets` find `test/train/*.png` among the training images."""
    data = fl.load(f"hf:{folders(tmp_path / 'mine', ('bee', 'test', 'train'), train=5, test=2)}")
    assert data.classes == ("bee", "test", "train")
    assert (np.bincount(data.split).tolist(), np.bincount(data.y[data.split == 1]).tolist()) == ([15, 6], [2, 2, 2])
    both = [{x.tobytes() for x in data.x[data.split == code]} for code in (0, 1)]
    assert not both[0] & both[1]


def test_a_file_in_two_splits_is_refused(tmp_path):
    folder = folders(tmp_path / "mine", ("bee", "cat"), train=3, test=2)
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n"
        "  - {split: train, path: '*/*/*.png'}\n  - {split: test, path: 'test/*/*.png'}\n---\n"
    )
    refused(r"has the file .*test.*\.png in two splits; an image may be in one only\.", fl.load, f"hf:{folder}")


def test_a_validation_part_is_one_or_the_test_part_that_is_missing(tmp_path):
    parts = {"train": grey(6), "validation": grey(3, 1), "test": grey(3, 2)}
    data = fl.load(f"hf:{write(tmp_path / 'three', parts)}")
    assert data.split.tolist() == [0] * 6 + [1] * 3 + [2] * 3
    np.testing.assert_array_equal(data.x[6:9, 0], grey(3, 2))
    data = fl.load(f"hf:{write(tmp_path / 'two', {'train': grey(6), 'valid': grey(3, 1)})}")
    assert data.split.tolist() == [0] * 6 + [1] * 3


WRITERS = {
    "words": (datasets.Value("string"), lambda n: [f"f{i // 5:04}" for i in range(n)]),
    "classes": (datasets.ClassLabel(names=["f0000", "f0001"]), lambda n: [i // 5 for i in range(n)]),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_writers_are_the_domains_and_may_be_the_clients(tmp_path, kind):
    """FEMNIST's layout on the Hub: no test split, and a column that says who wrote a character."""
    more = {"domain": (datasets.Value("string"), lambda n: ["paper"] * n), "writer_id": WRITERS[kind]}
    folder = write(tmp_path / "femnist", {"train": grey(10)}, label="character", **more)  # of two columns the first one
    data = fl.load(f"hf:{folder}")
    assert (data.domains, data.domain.tolist()) == (("f0000", "f0001"), [0] * 5 + [1] * 5)
    assert (data.split == 0).all()
    federation = fl.federate(data, fl.domains(), clients=2, test_fraction=0.2)
    assert [sorted({*data.domain[one]}) for one in federation.train] == [[0], [1]]


def test_columns_can_be_named(tmp_path):
    """CIFAR-100's layout: two columns of classes."""
    coarse = (datasets.ClassLabel(names=["x", "y"]), lambda n: [i % 2 for i in range(n)])
    who = (datasets.Value("int64"), lambda n: [7 + i % 2 for i in range(n)])
    parts = {"train": grey(6), "test": grey(4, 1)}
    folder = write(tmp_path / "two", parts, image="img", label="fine", coarse=coarse, who=who)
    refused(r"has 2 columns with the feature ClassLabel; choose one .*: fine, coarse\.", fl.load, f"hf:{folder}")
    data = fl.load(f"hf:{folder}", label="coarse", image="img", writer="who")
    assert (data.classes, data.domains) == (("x", "y"), ("7", "8"))
    assert data.y.tolist() == data.domain.tolist() == [i % 2 for i in (*range(6), *range(4))]
    by_number = fl.load(f"hf:{folder}", label="who")
    assert (by_number.classes, by_number.y.tolist()) == (("7", "8"), data.domain.tolist())


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub with one repository, `owner/name`; what is asked of it is noted."""
    folder, asked, real = write(tmp_path / "hub", {"train": grey(6), "test": grey(3)}), [], datasets.load_dataset

    def load_dataset(path, name=None, *, revision=None):
        asked.append((path, name, revision))
        return real(str(folder), name)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def test_the_second_load_needs_neither_the_network_nor_the_package(hub, root, monkeypatch):
    first = fl.load("hf:owner/name")
    assert hub == [("owner/name", None, None)]
    monkeypatch.setitem(sys.modules, "datasets", None)
    again = fl.load("hf:owner/name")
    assert first.name == again.name == "hf:owner/name"
    assert first.fingerprint == again.fingerprint
    assert [file.name for file in (root / "hf").glob("*.npz")] == ["owner--name.npz"]
    assert not any(name.startswith("hf") for name in fl.datasets())
    with pytest.raises(ModuleNotFoundError, match=r"'hf:owner/other' needs datasets, .*\"fedlib-papers\[hf\]\"\."):
        fl.load("hf:owner/other")


def test_another_revision_configuration_or_column_is_another_file_and_a_wrong_one_is_one_sentence(hub, root):
    fl.load("hf:owner/name@v1.0")
    fl.load("hf:owner/name", revision="v1.0")
    fl.load("hf:owner/name", revision="v2", label="label")
    fl.load("hf:owner/name", config="default", image="image", label="label", writer="label")
    assert hub == [("owner/name", None, "v1.0"), ("owner/name", None, "v2"), ("owner/name", "default", None)]
    files = {file.name.removeprefix("owner--name ") for file in (root / "hf").glob("*.npz")}
    named = "config=default image=image label=label writer=label.npz"
    assert files == {"revision=v1.0.npz", "revision=v2 label=label.npz", named}
    refused(r"^hf:owner/name cannot be read: .*cropped.* not found[^\n]*$", fl.load, "hf:owner/name", config="cropped")
    assert hub[-1] == ("owner/name", "cropped", None)


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (ConnectionError("no 'route'"), ConnectionError, r"could not be downloaded \(no 'route'\)"),
        (
            TimeoutError(),
            ConnectionError,
            r"could not be downloaded \(TimeoutError\); download the files of its repository",
        ),
        (datasets.exceptions.DatasetNotFoundError("It\nis gone."), ValueError, "'hf:owner/name' is unknown: It."),
        (datasets.exceptions.DataFilesNotFoundError("No files."), ValueError, "name cannot be read: No files."),
        (ValueError("Odd\nfiles"), ValueError, "hf:owner/name cannot be read: Odd."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_goes_wrong_on_the_way_is_one_sentence(monkeypatch, root, error, kind, sentence):
    def load_dataset(*_, **__):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with one_sentence(sentence, kind):
        fl.load("hf:owner/name")
    assert not list((root / "hf").glob("*"))


def without(column: str):
    return lambda folder: write(folder, {"train": grey(6), "test": grey(3)}, **{column: f"my_{column}"})


def undecodable(folder: Path) -> Path:
    rows = {"image": [{"bytes": b"not a picture", "path": None}], "label": [0]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a"])})
    folder.mkdir()
    datasets.Dataset.from_dict(rows, features=features).to_parquet(folder / "train.parquet")
    return folder


def unlabelled(folder: Path) -> Path:
    return write(folder, {"train": grey(6)}, hidden=(datasets.ClassLabel(names=NAMES), lambda n: [-1] * n))


WRONG = {
    "no label": (unlabelled, {"label": "hidden"}, "has images without a label; their class is -1"),
    "sizes": (lambda folder: write(folder, {"train": grey(6), "test": pictures(3, 4, 5)}), {}, "of 6x5 and of 4x5 pix"),
    "column": (without("image"), {"image": "picture"}, "has no column 'picture'; it has my_image, label"),
    "writer": (without("image"), {"writer": "who"}, "has no column 'who'; it has my_image, label"),
    "no image": (without("image"), {"image": "label"}, r"image 0 cannot be decoded \("),
    "no picture": (undecodable, {}, r"image 0 cannot be decoded \(cannot identify image file"),
    "splits": (lambda folder: write(folder, {"train_extra": grey(6)}), {}, "no split train, test or validation, but"),
    "option": (without("image"), {"size": "32"}, "no option 'size'; allowed: config, image, label, revision, writer"),
    "type": (without("image"), {"writer": 3}, "writer is of type int; it must be a name"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_repository_is_one_sentence(tmp_path, what):
    make, options, sentence = WRONG[what]
    refused(sentence, fl.load, f"hf:{make(tmp_path / 'mine')}", **options)


@pytest.mark.parametrize("name", ["hf:", "hf:a/b/c", "hf:a b", "hf:owner/name@", "hf:../../nowhere"])
def test_a_name_that_is_none_is_refused(name, root):
    refused("is not allowed; use hf:owner/name, hf:owner/name@revision or hf:FOLD", fl.load, name)
    refused("is not allowed", fl.load, "hf:owner/name@v1", revision="v2")
