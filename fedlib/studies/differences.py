"""Differences from the printed results, and the controls that examine their causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from fedlib.report.paper import KEY
from fedlib.report.style import METRIC_LABELS, data_label, label, setting_label
from fedlib.studies.layout import printed_item

if TYPE_CHECKING:
    from fedlib.studies.item import Cell
    from fedlib.studies.study import Study

POINTS = 3.0
IN_PERCENT = {"accuracy": "", **METRIC_LABELS}
FARTHEST = [*KEY[1:], "value", "paper", "difference"]


def percentages(board: pd.DataFrame) -> pd.DataFrame:
    """The rows of a scoreboard that compare a measured percentage with the printed one."""
    return board[board["metric"].isin(IN_PERCENT) & board["difference"].notna()]


def first_protocol(board: pd.DataFrame) -> pd.DataFrame:
    """The rows of a scoreboard with the first protocol of each table."""
    return board[[not printed_item(item)[1] for item in board["item"]]]


def differences(study: Study, points: float) -> pd.DataFrame:
    """Compare the measured percentages, except those on substitute data, with the printed ones: one row per table.

    A table with a further protocol has a row of its own, for the numbers whose runs differ.

    Columns: item, measured (number of percentages), apart (number of those that differ by more than `points`), the
    largest difference (name, method, dataset, setting, metric, value, paper, difference), and lines of text (says): the
    difference, the sentence of each control, the controls that have not been run, the runs that diverged.
    """
    lines = []
    for item, rows in percentages(study.scoreboard()).groupby("item", sort=False):
        far, n = rows["difference"].abs(), len(rows)
        apart = int((far > points).sum())
        line = {"item": item, "measured": n, "apart": apart} | rows.loc[far.idxmax(), FARTHEST].to_dict()
        name = named(study.cells, item, *(line[key] for key in KEY[1:4]))
        line["name"] = ", ".join(filter(None, [name, IN_PERCENT[line["metric"]]]))
        if apart:
            verb = "is" if apart == 1 else "are"
            text = f"{apart} of {n} measured numbers {verb} more than {points:g} points from the printed ones. "
            text += f"The largest difference is {line['name']}: {line['value']:.1f}, printed {line['paper']:.1f}."
            says = [text, *_controls(study, printed_item(item)[0])]
        elif n == 1:
            says = [f"The measured number is within {points:g} points of the printed one."]
        else:
            says = [f"All {n} measured numbers are within {points:g} points of the printed ones."]
        lines.append(line | {"says": "\n".join(filter(None, [*says, study.diverged(item)]))})
    return pd.DataFrame(lines, columns=["item", "measured", "apart", "name", *FARTHEST, "says"])


def named(cells: Sequence[Cell], item: str, method: str, dataset: str, setting: str) -> str:
    """Name of a number: the parts of its key that differ within its table."""
    others = [cell for cell in cells if cell.item == item]
    common = set.intersection(*({cell.dataset, *cell.setting.split(";")} for cell in others))
    words = [word for word in setting.split(";") if word not in common]
    return ", ".join([label(method), *([] if dataset in common else [data_label(dataset)]), *map(setting_label, words)])


def _controls(study: Study, item: str) -> list[str]:
    """The sentence of each control of a table, and the names of the controls that have not been run."""
    texts, waiting = [], []
    for control in (one for one in study.shown.values() if item in one.explains):
        cells, says = [cell for cell in study.cells if cell.item == control.name], study.says(control.name)
        done = study.frame.loc[study.frame["item"] == control.name, KEY].drop_duplicates()
        so_far = "" if len(done) == len(cells) else f" ({len(done)} of {len(cells)} numbers so far)"
        texts += [f'The control "{control.name}"{so_far}: {says}'] if says else []
        waiting += [] if says else [f'"{control.name}"']
    if waiting:
        texts.append(f"Not run yet: the control{'s' * (len(waiting) > 1)} {', '.join(waiting)}.")
    return texts or ["No control examines the cause."]
