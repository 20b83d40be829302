"""Studies for tests: at the papers' size without substitute data, and with numbers as they are given."""

import matplotlib.pyplot as plt
import pandas as pd

from fedlib.report.paper import KEY, reported
from fedlib.studies.study import Study


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


def with_numbers(study: Study, frame: pd.DataFrame) -> Study:
    """The study as if its runs had given these numbers; see `Study.frame`."""
    usual = {"seed": 0, "seconds": 1.0, "commit": None, "tasks": ""}
    study = study.replace(rows={})
    vars(study)["frame"] = frame.assign(**{name: value for name, value in usual.items() if name not in frame})
    return study


def judged(study: Study, *frames: pd.DataFrame) -> pd.DataFrame:
    """The ledger with these numbers from two seeds that agree."""
    return with_numbers(study, pd.concat([*frames, *frames])).ledger().set_index("id")


def verdicts(study: Study, *frames: pd.DataFrame) -> pd.Series:
    """The verdict on every claim with these numbers."""
    return judged(study, *frames)["verdict"]


def drawn_and_said(study: Study, item: str) -> str:
    """The sentence of an item, whose figure is drawn, too."""
    if study.item(item).drawing:
        study.figure(item).canvas.draw()
        plt.close("all")
    says = study.says(item)
    assert says == "" or (says.endswith(".") and "nan" not in says), says
    return says
