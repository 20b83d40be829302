"""Evidence: one small JSON file for each finished run or measurement of a study."""

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlib.files import write_text
from fedlib.report.provenance import environment, processor
from fedlib.runs.result import Evaluations, RunResult
from fedlib.studies.tasks import Kept, Probe, Run, Task

FOLDER = Path(__file__).resolve().parent.parent.parent / "figures" / "reference" / "runs"
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Row(Evaluations):
    """The record of a finished run, or of a measurement."""

    task: str  # its name
    seed: int
    facts: Mapping[str, Any]  # the content of the file

    @property
    def when(self) -> str:
        """Evaluated "after" fine-tuning, or "before"."""
        return self.facts["when"]

    @property
    def validation(self) -> None:
        """Evaluations on validation images are not kept."""

    @property
    def kept(self) -> Kept:
        """Further values of the run, or those of the measurement, by name."""
        return self.facts.get("kept", {})

    @property
    def diverged(self) -> int | None:
        """Round of the first evaluation with a loss that is not finite; None if the last loss is finite."""
        lost = [one["round"] for one in self.facts.get("evaluations", ()) if one["loss"] is None]
        return lost[0] if lost and self.facts["evaluations"][-1]["loss"] is None else None

    @cached_property
    def accuracy(self) -> pd.DataFrame:
        """As `RunResult.accuracy`: the accuracy [%] of every client in every evaluation."""
        n_test, evaluations = np.array(self.facts["n_test"]), self.facts["evaluations"]
        table = {
            "round": np.repeat([one["round"] for one in evaluations], len(n_test)),
            "client": np.tile(np.arange(len(n_test)), len(evaluations)),
            "n_test": np.tile(n_test, len(evaluations)),
            "accuracy": np.concatenate([100 * np.array(one["correct"]) / n_test for one in evaluations]),
            "when": np.repeat([one["when"] for one in evaluations], len(n_test)),
        }
        return pd.DataFrame(table)


def row_of(task: Task, seed: int, result: RunResult | Kept, seconds: float = 0.0) -> Row:
    """Row of a finished run, or of a measurement with its duration (`seconds`), without provenance."""
    facts: dict[str, Any] = {"task": task.name, "seed": seed, "commit": None}
    if isinstance(task, Probe):
        assert isinstance(result, Mapping)
        return Row(task.name, seed, facts | {"seconds": round(seconds, 2), "kept": dict(result)})
    assert isinstance(result, RunResult)
    seconds = round(float(result.rounds["seconds"].sum()), 2)
    frame, evaluations = result.accuracy, []
    for (done, when), rows in frame.groupby(["round", "when"], sort=False):
        correct = (rows["accuracy"] * rows["n_test"] / 100).round().astype(int).tolist()
        loss = float(np.average(rows["loss"], weights=rows["n_test"]))
        evaluations.append({"round": int(done), "when": when, "correct": correct, "loss": _finite(loss)})
    train_loss = [_finite(value) for value in result.rounds["train_loss"]]
    facts |= {"config": dict(result.config), "when": result.when, "evaluations": evaluations}
    n_test = frame.drop_duplicates("client")["n_test"].tolist()
    facts |= {"n_test": n_test, "seconds": seconds, "seconds_of_rounds": seconds}
    facts |= {"train_loss": train_loss[:: max(1, len(train_loss) // 50)]}
    facts |= result.rounds[["bytes_down", "bytes_up"]].sum().astype(int).to_dict()
    return Row(task.name, seed, facts | {"kept": dict(task.keep(result)) if task.keep else {}})


def facts_of(task: Task, seed: int, result: RunResult | Kept, seconds: float = 0.0) -> dict[str, Any]:
    """Content of the file of a row, with the commit, code and packages behind it."""
    known, row = environment(), row_of(task, seed, result, seconds)
    facts = {name: known[name] for name in ("commit", "packages", "python")}
    device = row.facts["config"]["device"] if isinstance(task, Run) else "cpu"
    machine = f"{platform.system()} {platform.machine()}, {processor(device)}"
    facts |= {"format": FORMAT, "code": code(task, row), "machine": machine}
    return {**row.facts, **facts}


def _finite(loss: float) -> float | None:
    """A loss to five digits; None if the run has diverged, because JSON has no infinity."""
    return round(float(loss), 5) if np.isfinite(loss) else None


def path_of(paper: str, task: str, seed: int, folder: Path = FOLDER) -> Path:
    """The file of a row."""
    return folder / paper / f"{task}-s{seed}.json"


def write(paper: str, facts: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Write a row completely or not at all."""
    path = path_of(paper, facts["task"], facts["seed"], folder)
    return write_text(path, json.dumps(facts, separators=(",", ":"), sort_keys=True, allow_nan=False) + "\n")


def read(paper: str, folder: Path = FOLDER) -> dict[tuple[str, int], Row]:
    """All rows of a paper, by task and seed."""
    return {(row.task, row.seed): row for row in map(_read, sorted((folder / paper).glob("*.json")))}


def read_one(paper: str, task: Task, seed: int, folder: Path = FOLDER) -> Row | None:
    """The row of one run, or None."""
    path = path_of(paper, task.name, seed, folder)
    return _read(path) if path.exists() else None


def _read(path: Path) -> Row:
    facts = json.loads(path.read_text(encoding="utf-8"))
    return Row(facts["task"], facts["seed"], facts)


def code(task: Task, row: Row) -> str:
    """The fingerprint of today's code of a run or measurement, with the backend of its row."""
    return task.code(row.facts["config"]["backend"] if isinstance(task, Run) else "loop")


def changed(task: Task, row: Row) -> bool:
    """True if the code has changed since the row was measured; never for a row of this session."""
    return "code" in row.facts and row.facts["code"] != code(task, row)
