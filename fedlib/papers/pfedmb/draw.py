"""What the figures of pFedMB share: the rows that count, and places in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from fedlib.studies.rows import Row
from fedlib.studies.study import Study

PAIR = np.repeat(range(5), 2)  # the pair of each of the ten clients of section V-B


PAIRS = "clients=10;pairs=5"


CHOICES = ("within", "between", "branches_used", "mean_branches", "all_apart", "rand_indices")  # numbers of Fig. 3


WEIGHTING = {"pfedmb": "with weighting", "pfedmb-avg": "without"}


LAYERS = {  # of LeNet-5, from input to output, in words
    "conv1.0": "convolution 1",
    "conv2.0": "convolution 2",
    "fc1.0": "linear 1",
    "fc2.0": "linear 2",
    "classifier": "classifier",
}


def best(rows: Sequence[Row]) -> Row:
    """Of several runs the one that validates best."""
    return max(rows, key=lambda row: row.kept["validation"])


def rows_that_count(study: Study, item: str, method: str) -> list[Row]:
    """For each seed the row that counts, of the first number of an item that this method has."""
    known, names = study.known(), []
    for cell in study.cells:
        if (cell.item, cell.method) == (item, method):
            names = [task.name for task in cell.tasks]
            break
    seeds = sorted({seed for name, seed in known if name in names})
    whole = [seed for seed in seeds if all((name, seed) in known for name in names)]
    return [best([known[name, seed] for name in names]) for seed in whole]


def evaluated(config: Mapping[str, object]) -> Literal["before", "after"]:
    """When a run is evaluated: after fine-tuning, if it has any."""
    return "after" if config["tune_epochs"] else "before"


def reported_curve(row: Row) -> pd.Series:
    """Accuracy [%] by round, mean over clients."""
    curve = row.curve().query(f"when == '{evaluated(row.facts['config'])}'")
    return pd.Series(curve["client_mean"].to_numpy(), index=curve["round"])


def place(dataset: str, setting: str) -> str:
    """A column of Table II in words."""
    clients, kind = setting.split(";")[0].removeprefix("clients="), setting.split(";")[1]
    kinds = {"classes=2": "two classes each", "dir=0.4": "Dir(0.4)", "classes=20": "twenty classes each"}
    words = "five pairs" if kind == "pairs=5" else kinds[kind]
    return f"{clients} clients, {words}" + (" (CIFAR-100)" if dataset == "cifar100" else "")


def chance(setting: str) -> float:
    """The accuracy [%] of guessing, if all clients have two classes in equal shares; NaN elsewhere."""
    return 50.0 if "pairs=5" in setting or "classes=2;" in f"{setting};" else np.nan
