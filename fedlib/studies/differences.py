"""Where our numbers are not the printed ones, and what looks for the cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from fedlib.report.paper import KEY
from fedlib.report.style import data_label, label

if TYPE_CHECKING:
    from fedlib.studies.study import Study

POINTS = 3.0
IN_PERCENT = {"accuracy": "", "weighted_f1": "weighted F1", "weighted_auc": "weighted AUC"}
FARTHEST = [*KEY[1:], "value", "paper", "difference"]


def percentages(board: pd.DataFrame) -> pd.DataFrame:
    """The rows of a scoreboard that compare a measured percentage with the printed one."""
    return board[board["metric"].isin(IN_PERCENT) & board["difference"].notna()]


def differences(study: Study, points: float, measured: pd.DataFrame) -> pd.DataFrame:
    """Compare what was measured at the paper's size with what is printed, table by table.

    Args:
        study: at the paper's size. Numbers of data that only stand for the paper's are left out.
        points: differences up to here, in points of percent, do not count.
        measured: the numbers; see `Study.measured`.

    Returns:
        One row per table of which printed percentages have been measured: item, measured (how many), apart (how many of
        these differ by more than `points`), the farthest one (its name, method, dataset, setting, metric, value, paper,
        difference), and all of it in lines of text (says): what differs, what each control of this table says, which
        controls are still to be run, which runs diverged.
    """
    lines = []
    numbers = measured.drop_duplicates(KEY)["item"].value_counts()
    for item in dict.fromkeys(cell.item for cell in study.cells):
        rows = study.table(item, measured)
        rows = rows[rows["metric"].isin(IN_PERCENT) & rows["difference"].notna() & (rows["stand_in"] == "")]
        if rows.empty:
            continue
        far = rows["difference"].abs()
        line = {"item": item, "measured": len(rows), "apart": int((far > points).sum())}
        line |= {name: rows.loc[far.idxmax(), name] for name in FARTHEST}
        line["name"] = _name(study, line)
        n, apart = len(rows), line["apart"]
        if apart:
            verb = "is" if apart == 1 else "are"
            told = f"{apart} of {n} measured numbers {verb} more than {points:g} points from the printed ones. "
            told += f"The farthest is {line['name']}: {line['value']:.1f}, printed {line['paper']:.1f}."
            says = [told, *_controls(study, item, numbers)]
        elif n == 1:
            says = [f"The measured number is within {points:g} points of the printed one."]
        else:
            says = [f"All {n} measured numbers are within {points:g} points of the printed ones."]
        lines.append(line | {"says": "\n".join(filter(None, [*says, lost(study, item)]))})
    return pd.DataFrame(lines, columns=["item", "measured", "apart", "name", *FARTHEST, "says"])


def lost(study: Study, item: str) -> str:
    """Which runs of an item have no numbers because they diverged, and when."""
    rows = sorted((row for row in study.known().values() if row.diverged is not None), key=lambda row: row.seed)
    found: dict[tuple[str, int], str] = {}
    for cell in study.only(item).cells if rows else ():
        tasks = {task.name for task in cell.tasks}
        for row in rows:
            if row.task in tasks:
                name = f"{_named(study, *cell.key[:4])}, seed {row.seed} (round {row.diverged})"
                found.setdefault((row.task, row.seed), name)
    names = "; ".join(found.values())
    return f"Without a number, because the loss is not finite any more: {names}." if found else ""


def _name(study: Study, line: Mapping[str, object]) -> str:
    """A number by its name, with its metric unless that is accuracy."""
    name = _named(study, *(str(line[key]) for key in KEY[:4]))
    return ", ".join(filter(None, [name, IN_PERCENT[str(line["metric"])]]))


def _named(study: Study, item: str, method: str, dataset: str, setting: str) -> str:
    """A number by what only some of its table have in their names."""
    cells = [cell for cell in study.cells if cell.item == item]
    common = set.intersection(*({cell.dataset, *cell.setting.split(";")} for cell in cells))
    words = [word for word in setting.split(";") if word not in common]
    return ", ".join([label(method), *([] if dataset in common else [data_label(dataset)]), *words])


def _controls(study: Study, item: str, numbers: Mapping[str, int]) -> list[str]:
    """What each control of a table says, and which have not been run; `numbers` are measured ones by item."""
    texts, waiting = [], []
    for name in study.controls.get(item, ()):
        done, whole, says = numbers.get(name, 0), sum(cell.item == name for cell in study.cells), study.says(name)
        so_far = "" if done == whole else f" ({done} of {whole} numbers so far)"
        texts += [f'The control "{name}"{so_far}: {says}'] if says else []
        waiting += [] if says else [f'"{name}"']
    if waiting:
        texts.append(
            f"Open until {'these controls are' if len(waiting) > 1 else 'this control is'} run: {', '.join(waiting)}."
        )
    return texts or ["No control looks for the cause."]
