"""The rows of evidence as one file: read with pandas only, and compared with the files of the rows."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest

from fedlib.studies.rows import FOLDER
from fedlib.tools import parquet as dataset

PAPER = "pfedhr"
FILES = [json.loads(path.read_text()) for path in sorted((FOLDER / PAPER).glob("*.json"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dataset")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "PAPERS", (PAPER,))
        assert dataset.main(folder) == 0
    return folder


@pytest.fixture(scope="module")
def rows(folder) -> pd.DataFrame:
    return pd.read_parquet(folder / "rows.parquet")


def test_every_file_of_a_row_is_a_row(rows):
    assert sorted(zip(rows["task"], rows["seed"], strict=True)) == sorted((one["task"], one["seed"]) for one in FILES)
    assert list(rows) == list(dataset.COLUMNS)
    assert all(len(items) for items in rows["items"])


def test_accuracies_are_those_of_the_file(rows):
    table, checked = rows.set_index(["task", "seed"]), 0
    for one in FILES:
        row = table.loc[(one["task"], one["seed"])]
        if "config" not in one:
            assert pd.isna(row["accuracy"])
            assert json.loads(row["kept"]) == one["kept"]
            continue
        shown = [each for each in one["evaluations"] if each["when"] == one["when"]]
        assert row["curve_round"].tolist() == [each["round"] for each in shown]
        n_test = np.array(one["n_test"])
        assert row["accuracy"] == pytest.approx(100 * sum(shown[-1]["correct"]) / n_test.sum())
        assert row["client_accuracy"] == pytest.approx(100 * np.array(shown[-1]["correct"]) / n_test)
        assert row["curve_accuracy"] == pytest.approx([100 * sum(each["correct"]) / n_test.sum() for each in shown])
        assert json.loads(row["config"]) == one["config"]
        assert (row["algorithm"], row["bytes_up"]) == (one["config"]["algorithm"], one["bytes_up"])
        checked += len(set(n_test.tolist())) > 1
    assert checked


def test_metadata_describe_the_file_and_all_of_its_columns(folder, rows):
    metadata = json.loads((folder / "croissant.json").read_text())
    [file], [records] = metadata["distribution"], metadata["recordSet"]
    assert file["sha256"] == hashlib.sha256((folder / file["contentUrl"]).read_bytes()).hexdigest()
    fields = {field["source"]["extract"]["column"]: field for field in records["field"]}
    assert list(fields) == list(rows)
    lists = {name for name in rows if any(isinstance(value, np.ndarray) for value in rows[name])}
    assert {name for name, field in fields.items() if field.get("repeated")} == lists
    assert f"{len(rows)}, of" in (folder / "README.md").read_text()
