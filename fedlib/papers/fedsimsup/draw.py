"""What the figures of FedSimSup share: measurements by name, places in words, bars, dots and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.report.marks import name_ends, seeds_and_mean
from fedlib.report.style import BLUE, RED, WIDE, data_label
from fedlib.studies.layout import parts_of
from fedlib.studies.tasks import Kept, Probe, Run, Task

if TYPE_CHECKING:
    from fedlib.studies.study import Study


CLASSES = {"cifar10": 10, "cifar100": 100, "femnist": 62}


ALL_ALIKE = "all $s_{ij}=1$"


def kept(study: Study, name: str) -> list[tuple[Probe, Kept]]:
    """The measurements with this label, in the order in which they are declared, each with its first seed."""
    tasks = [task for task in study.tasks.values() if isinstance(task, Probe) and task.label == name]
    found = [(task, study.rows_of(task)) for task in tasks]
    return [(task, rows[0].kept) for task, rows in found if rows]


def where(study: Study, item: str, dataset: str, setting: str) -> str:
    """A place in words: the data that were used, the partition, the clients."""
    task = next(
        cell.tasks[0] for cell in study.cells if (cell.item, cell.dataset, cell.setting) == (item, dataset, setting)
    )
    name = data_label(dataset)
    words = [f"{task.images.name} for {name}" if task.images.stands_for else name]
    words += filter(None, [partition(setting)])
    return ", ".join([*words, f"{task.clients} clients"] if isinstance(task, Run) else words)


def partition(setting: str) -> str:
    """Who owns which samples, in words; "" for the partition by writers."""
    parts = parts_of(setting)
    return f"Dir({parts['dir']})" if "dir" in parts else f"{parts['pat']} classes each" if "pat" in parts else ""


def by_place(study: Study, item: str) -> list[tuple[str, str, pd.DataFrame]]:
    """The columns of a table that have numbers: data set, its place in words, and the numbers."""
    groups = study.numbers(item).groupby(["dataset", "setting"], sort=False)
    return [(str(data), where(study, item, str(data), str(setting)), own) for (data, setting), own in groups]


def chance(dataset: str, setting: str) -> float:
    """The accuracy [%] of guessing: among the classes of a client, where all clients have as many; else among all."""
    return 100 / int(parts_of(setting).get("pat", CLASSES[dataset]))


def mean_of(frame: pd.DataFrame, **parts: str) -> float:
    """The mean of the numbers with these parts; NaN if there are none."""
    for name, value in parts.items():
        frame = frame[frame[name] == value] if name in frame else frame.iloc[:0]
    return float(frame["value"].mean())


def bars(values: Mapping[str, float], texts: Sequence[str], xlabel: str) -> Figure:
    """A bar for each name with a text at its end; the first one is theta's."""
    figure, ax = plt.subplots(figsize=(WIDE, 0.8 + 0.3 * len(values)))
    ax.barh(list(values), list(values.values()), color=[BLUE, *[RED] * (len(values) - 1)], height=0.6)
    for k, (value, text) in enumerate(zip(values.values(), texts, strict=True)):
        ax.annotate(text, (value, k), (4, 0), textcoords="offset points", va="center")
    ax.set(xlabel=xlabel, xlim=(0, 1.6 * max(values.values())))
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    return figure


def curves(study: Study, cells: Sequence[tuple[str, Task]]) -> pd.DataFrame:
    """The evaluations of runs, by name: name, seed, round, accuracy."""
    tables = [
        row.curve().query("when == @row.when").assign(name=name, seed=row.seed)
        for name, task in cells
        for row in study.rows_of(task)
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def draw_curves(ax: Axes, frame: pd.DataFrame, styles: Mapping[str, tuple[str, str]], chance: float) -> None:
    """A line per name, the mean over seeds, each seed a thin one, the name at its end; `styles`: name and colour."""
    ends = {}
    for name, own in frame.groupby("name", sort=False):
        text, colour = styles[str(name)]
        ends[text] = seeds_and_mean(ax, own.pivot_table(index="round", columns="seed", values="accuracy"), colour)
    ax.set(xlabel="round", ylabel="accuracy [%]", ylim=(0, None))
    ax.xaxis.get_major_locator().set_params(integer=True)
    name_ends(ax, ends, chance)
