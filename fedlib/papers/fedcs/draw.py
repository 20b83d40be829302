"""What the figures of FedCS share: rows and numbers by method, and how methods and data are named and drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedlib.report import label, method_style
from fedlib.report.style import BLUE, data_label
from fedlib.studies.rows import Row
from fedlib.studies.study import Study

CHANCE = 10  # per cent: ten classes


LIGHT = "#C8C8C8"


WHITE = "fedcs (whitening only)"  # the control: S learns, Phi stays as it was drawn


ADAPTING = ("fedavg+ft", "fedbn", "fedrep", "fedalt", "fedsim", "fedper")


OTHER_DIGITS = {"mnist_m": "MNIST-M-style", "digits": "digits in colour", "printed_digits": "printed digits"}


def runs_of(study: Study, item: str, dataset: str = "") -> dict[str, list[Row]]:
    """The rows of an item's methods, as far as they are there."""
    cells = {c.method: c for c in study.cells if c.item == item and dataset in ("", c.dataset)}
    found = {method: study.rows_of(cell.tasks[0]) for method, cell in cells.items()}
    return {method: rows for method, rows in found.items() if rows}


def means(study: Study, item: str, metric: str = "weighted_f1", *by: str) -> pd.Series:
    """The mean over seeds, by method or by other columns."""
    rows = study.numbers(item, metric=metric)
    return rows.groupby(list(by) or ["method"], sort=False)["value"].mean()


def paired(study: Study, item: str, one: str, other: str, **where: str) -> np.ndarray:
    """One method less another, seed by seed."""
    rows = study.numbers(item)
    for column, value in where.items():
        rows = rows[rows[column] == value]
    table = rows.pivot_table(index="seed", columns="method", values="value")
    return (table[one] - table[other]).dropna().to_numpy() if {one, other} <= {*table} else np.array([])


def compared(difference: np.ndarray) -> str:
    """A difference between two methods, seed by seed, in words."""
    if len(difference) < 2:
        return f"{difference.mean():+.1f} points, with one seed: too few to tell" if len(difference) else "not measured"
    text = f"{difference.mean():+.1f} ± {difference.std(ddof=1):.1f} points over {len(difference)} seeds, "
    larger = abs(difference.mean()) > difference.std(ddof=1)
    return text + ("more than it varies from seed to seed" if larger else "no more than it varies from seed to seed")


def distinct(study: Study, item: str) -> list[str]:
    """The data sets of an item; where the same images stand for two of them, the first one."""
    found = {}
    for cell in study.cells:
        if cell.item == item and study.rows_of(cell.tasks[0]):
            found.setdefault(cell.tasks[0].images._replace(stands_for=""), cell.dataset)
    return list(found.values())


def group_names(study: Study, name: str) -> list[str]:
    """The names of domains, or of groups."""
    cell = next((c for c in study.cells if c.item == "fig5" and name == "digit5"), None)
    found = study.rows_of(cell.tasks[0]) if cell else []
    if not cell or not found:
        return [f"domain {d}" for d in range(5)] if name == "digit5" else [f"group {g}" for g in range(10)]
    others = OTHER_DIGITS if cell.tasks[0].images.stands_for else {}
    return [others.get(domain) or data_label(domain) for domain in found[0].kept["domains"]]


def trained_and_new(row: Row, metric: str = "f1", moment: str = "before") -> tuple[list[int], np.ndarray]:
    """The rounds of the evaluations, and means over clients that train and over unseen ones: [evaluations, 2]."""
    groups = np.array(row.kept[f"groups {metric} {moment}"], float)
    return row.kept[f"rounds {moment}"], np.stack([groups[:, :-2].mean(1), groups[:, -2:].mean(1)], axis=1)


def moment_of(method: str, row: Row) -> str:
    """Whether a method counts before or after fine-tuning."""
    return "after" if method in ADAPTING and "rounds after" in row.kept else "before"


def named(method: str) -> str:
    """The method's name in a figure."""
    return "whitening only" if method == WHITE else label(method)


def look(method: str) -> dict[str, object]:
    """Colour and line of a method in a figure."""
    if method == WHITE:
        return {"color": BLUE, "linestyle": "-"}
    style = method_style(method)
    return {"color": style["color"], "linestyle": "-" if method.startswith("fedcs") else style["linestyle"]}


def data_name(study: Study, dataset: str) -> str:
    """What was trained on, as a word: the stand-in's name where there is one."""
    images = next((t.images for c in study.cells if c.dataset == dataset for t in c.tasks if t.images.name), None)
    if images is None or not images.stands_for:
        return data_label(dataset)
    if images.name == "digit5":
        return "five sets of digits"
    return "drawing styles" if len(images.domains) > 1 else "pen"


def signed(points: float) -> str:
    """A gain or a loss in words."""
    return f"{points:+.1f}".replace("-", "\N{MINUS SIGN}")


def dumbbells(ax: Axes, pairs: Sequence[tuple[str, float, float, str]], names: tuple[str, str]) -> None:
    """From a hollow to a full dot for each (name, from, to, colour); `names` stand above the first one."""
    for y, (_, start, end, color) in enumerate(pairs):
        ax.plot([start, end], [y, y], color=color, linewidth=1.2, alpha=0.6)
        ax.plot(start, y, "o", color=color, markerfacecolor="white", markersize=5.5)
        ax.plot(end, y, "o", color=color, markersize=5.5)
        side, ha = (1, "left") if end >= start else (-1, "right")
        ax.annotate(
            signed(end - start), (end, y), (6 * side, 0), "data", "offset points", ha=ha, va="center", color=color
        )
    ax.set_yticks(range(len(pairs)), [name for name, *_ in pairs])
    ax.set_ylim(len(pairs) - 0.1, -0.6)
    ax.margins(x=0.2)
    ax.grid(axis="y", visible=False)
    ax.set_title(f"hollow: {names[0]}; full: {names[1]}", loc="left")
