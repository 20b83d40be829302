"""What the figures of pFedHR share: runs by teacher, and their names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedlib.report.style import BLACK, BLUE, BROWN, GREEN, GREY, ORANGE, PINK, RED, SKY, data_label
from fedlib.studies.rows import Row
from fedlib.studies.study import Study
from fedlib.studies.tasks import Run

NOBODY, PRINTED, KNOWS_NOTHING, ALL_KNOWING = "none", "as printed", "knows nothing", "all-knowing"  # who teaches
TEACHERS = {  # how they are drawn
    NOBODY: ("no teacher", GREY),
    PRINTED: ("pFedHR", RED),
    "random candidate": ("any candidate", ORANGE),
    "better stitched": ("better stitched", BLUE),
    "stitched without ReLU": ("no ReLU", SKY),
    "ends in a client's head": ("client's head", PINK),
    "kept until the next one": ("kept longer", BROWN),
    KNOWS_NOTHING: ("untrained", BLACK),
    ALL_KNOWING: ("all-knowing", GREEN),
}
CHANCE = {"iid": 10.0, "noniid": 50.0}  # per cent, of the classes that a client is tested on
SPLIT = {"iid": "IID", "noniid": "Non-IID"}
NARROW = -5.0  # rho of pFedBayes in a control of Table 4
OF_THEM = " images of "  # fewer than the paper has
KIND = {"labeled": "labelled", "unlabeled": "unlabelled", "none": "no public images"}
# -- rows ---------------------------------------------------------------------------------------------------------


def paired(frame: pd.DataFrame, by: Sequence[str], x: str) -> pd.DataFrame:
    """The rows of the seeds that have every value of `x` that their group has; all rows if there is no such seed."""
    n_values = frame.groupby(list(by))[x].transform("nunique")
    complete = frame[frame.groupby([*by, "seed"])[x].transform("nunique") == n_values]
    return complete if len(complete) else frame


def taught_by(study: Study, teacher: str, dataset: str, split: str) -> dict[int, Row]:
    """The runs with this teacher, by seed."""
    wanted = f"split={split};"
    for cell in study.cells:
        here = cell.item == "other_teachers" and cell.dataset == dataset and wanted in cell.setting
        if here and cell.setting.endswith(f"teacher={teacher}"):
            return {row.seed: row for row in study.rows_of(cell.tasks[0])}
    return {}


def places(study: Study) -> list[tuple[str, str]]:
    """The data sets and splits with a run of pFedHR, IID first."""
    found = {
        (cell.dataset, part)
        for cell in study.cells
        if cell.item == "other_teachers"
        for part in SPLIT
        if f"split={part};" in cell.setting
    }
    ordered = sorted(found, key=lambda pair: (pair[1] != "iid", pair[0] != "svhn", pair[0]))
    return [pair for pair in ordered if taught_by(study, PRINTED, *pair)]


def curves(rows: dict[int, Row]) -> pd.DataFrame:
    """Accuracy [%] by round (rows) and seed (columns), mean over clients."""
    return pd.DataFrame({seed: row.accuracy.groupby("round")["accuracy"].mean() for seed, row in rows.items()})


def lessons(rows: dict[int, Row]) -> pd.DataFrame:
    """Every teacher of these runs: seed, round, client, right [%], own (share of blocks that were the client's)."""
    table = []
    for seed, row in rows.items():
        for t, client, right, blocks in row.kept.get("lessons", []):
            own = np.mean([owner == client for owner, *_ in blocks])
            table.append((seed, t, client, right, own, len({owner for owner, *_ in blocks})))
    return pd.DataFrame(table, columns=["seed", "round", "client", "right", "own", "sources"])


def named(study: Study, dataset: str) -> str:
    """The data themselves, where they stand in for those of the paper."""
    found = [t.images for cell in study.cells for t in cell.tasks if cell.dataset == dataset and isinstance(t, Run)]
    if not found:
        return data_label(dataset)
    [images, *_] = found
    name = data_label(images.domains[0] if images.domains else images.name)
    return f"{images.few}{OF_THEM}{name}" if images.few and images.name == images.stands_for else name


def titles(study: Study, keys: Sequence[Sequence[object]]) -> list[str]:
    """What differs between panels, in words; and that a data set has fewer images than the paper's."""
    words = [[SPLIT.get(str(w), KIND.get(str(w), named(study, str(w)))) for w in key] for key in keys]
    return [
        ", ".join(w for k, w in enumerate(row) if OF_THEM in w or len({other[k] for other in words}) > 1)
        for row in words
    ]
