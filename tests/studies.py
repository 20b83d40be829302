"""Studies for tests: at the papers' size without substitute data, with numbers as they are given, or with made rows."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from fedlib.report.paper import KEY, reported
from fedlib.studies import rows, runner
from fedlib.studies.claim import Numbers
from fedlib.studies.item import Cell
from fedlib.studies.study import Study
from fedlib.studies.tasks import Run
from fedlib.studies.verdict import judge


def official(study: Study) -> Study:
    """The study if all of it had been measured on the paper's own data."""
    cells = [cell._replace(tasks=cell.official or cell.tasks, official=()) for cell in study.cells]
    return study.replace(cells=cells)


def given(*numbers: tuple) -> pd.DataFrame:
    """Numbers (item, method, dataset, setting, metric, value) as a frame."""
    return pd.DataFrame(numbers, columns=[*KEY, "value"])


def printed(paper: str) -> pd.DataFrame:
    """The paper's numbers as if they had been measured."""
    return reported(paper).rename(columns={"mean": "value"})[[*KEY, "value"]]


def changed(numbers: pd.DataFrame, value: float, *key: str) -> pd.DataFrame:
    """The numbers with another value for one of them: item, method, dataset and setting, and its metric if needed."""
    here = (numbers[KEY[: len(key)]] == list(key)).all(axis=1)
    assert here.sum() == 1
    return numbers.assign(value=numbers["value"].mask(here, value))


def with_numbers(study: Study, frame: pd.DataFrame, **training: int) -> Study:
    """The study as if its runs had given these numbers (see `Study.frame`), with the printed training or a shorter one.

    The latter is `Study.training`.
    """
    usual = {"seed": 0, "seconds": 1.0, "commit": None, "tasks": ""}
    study = study.replace(rows={}, training=training)
    vars(study)["frame"] = frame.assign(**{name: value for name, value in usual.items() if name not in frame})
    return study


def judged(study: Study, *frames: pd.DataFrame) -> pd.DataFrame:
    """The ledger with these numbers from two seeds that agree."""
    return with_numbers(study, pd.concat([*frames, *frames])).ledger().set_index("id")


def verdicts(study: Study, *frames: pd.DataFrame) -> pd.Series:
    """The verdict on every claim with these numbers, without all else that is in the ledger."""
    numbers = Numbers(study.paper, study.clients, study.cells, pd.concat([*frames, *frames]))
    found = {claim.id: judge(claim.cases(numbers), claim.quantifier, claim.least) for claim in study.claims}
    return pd.Series({name: one.verdict for name, one in found.items()})


def row(task: str, seed: int = 0, *evaluations: tuple, **facts: Any) -> rows.Row:
    """A row made by hand; an evaluation: round, "before" or "after", number of correct answers by client, and loss."""
    names = ("round", "when", "correct", "loss")
    found = [dict(zip(names, (*one, 1.0)[:4], strict=True)) for one in evaluations]
    usual = {"when": "before", "evaluations": found, "kept": {}, "seconds": 1.0, "commit": None}
    return rows.Row(task, seed, usual | facts)


def with_kept(study: Study, item: str, *kept: dict[str, Any], dataset: str = "") -> Study:
    """The study with nothing but rows of the runs behind an item (on one data set): those of seed s keep `kept[s]`."""
    cells = [cell for cell in study.cells if cell.item == item and dataset in ("", cell.dataset)]
    names = {task.name for cell in cells for task in cell.tasks}
    return study.replace(rows={(name, s): row(name, s, kept=own) for name in names for s, own in enumerate(kept)})


def done(study: Study, folder: Path) -> Study:
    """The study with the rows of all its runs, which are written to files and read again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "check_clean", lambda: "0123")
        jobs = runner.missing([study], folder=folder / "rows")
        assert runner.work(jobs, time.time() + 600, folder / "rows", folder / "store") == len(jobs) > 0
    return study.replace(rows=rows.read(study.paper, folder / "rows"))


def arguments(run: Run) -> dict[str, Any]:
    """All arguments of a run by name."""
    images = {"images" if name == "name" else name: value for name, value in run.images._asdict().items()}
    rest = {"partition": str(run.partition), "clients": run.clients, "model": run.model, "public images": run.public}
    return {"method": run.algorithm.name, **images, **rest, **run.setting, **run.federate, **run.algorithm.hyper}


def differences(one: Run, other: Run) -> dict[str, Any]:
    """The arguments in which a run differs from another one, by name; only equal runs share their name."""
    new, old = arguments(one), arguments(other)
    found = {name: new.get(name) for name in {**new, **old} if repr(new.get(name)) != repr(old.get(name))}
    assert bool(found) == (one.name != other.name)
    return found


@contextmanager
def each_number_once() -> Iterator[None]:
    """While this lasts, a number of the same rows is computed once, for however many studies and items."""
    known: dict[tuple, float] = {}
    number = Cell.number

    def once(cell: Cell, *rows: rows.Row) -> float:
        key = cell.read, rows
        if key not in known:
            known[key] = number(cell, *rows)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cell, "number", once)
        yield


def drawn_and_said(study: Study, item: str, rendered: bool = True) -> str:
    """The sentence of an item; its figure is made, and drawn if `rendered`."""
    if study.item(item).drawing:
        figure = study.figure(item)
        if rendered:
            figure.draw_without_rendering()
        plt.close("all")
    says = study.says(item)
    assert says == "" or (says.endswith(".") and "nan" not in says), says
    return says


def all_drawn_and_said(study: Study, *silent: str) -> None:
    """Draw all items with some rows (the first seed of every other run; of all but Local-Only), then with all rows.

    An item without a measured number has no sentence; with all rows, every item but the `silent` ones has one.
    """
    names = list(dict.fromkeys(name for name, _ in study.rows))
    of_runs = {cell.item for cell in study.cells}
    for part in (names[1::2], [name for name in names if not name.startswith("local_only")], names):
        keys = [key for key in study.rows if key[0] in part and (part is names or key[1] == 0)]
        one = study.replace(rows={key: study.rows[key] for key in keys})
        for name, item in study.shown.items():
            said, measured = drawn_and_said(one, name, part is names), len(one.numbers(name)) > 0
            assert not said or measured or name not in of_runs, name
            assert said or part is not names or not item.sentence or not measured or name in silent, name
