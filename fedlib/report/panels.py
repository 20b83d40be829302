"""Small multiples of measured numbers: methods as dots, lines with their names at the end, dumbbells, shaded dots.

Each function draws a frame with a row per number and seed: method, value, paper (the printed number, a black bar), and
columns that name the panels, `by`. `title(*key)` is the title of a panel, `named(method)` the name of a line and
`look(method)` its style, with a colour at least. `chance` is the position of a dotted line, or a function of the rows
of a panel (no line if it is NaN or far from them), and `reference` its name. With `sharex` all panels have one scale.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from fedlib.report.marks import dots, if_near, mark_chance, name_ends, panels, plot_nothing, seeds_and_mean
from fedlib.report.style import PRINTED, data_label, label, method_style, setting_label

Columns = Sequence[str]
Words = Callable[..., str]  # writes a key or a name
OfRows = Callable[[pd.DataFrame], float]  # of the rows of a panel


def in_words(*key: object) -> str:
    """The title of a panel, data and setting: "CIFAR-10, 10 clients, Dir(0.1)"."""
    parts = (part for words in key[1:] for part in str(words).split(";"))
    return ", ".join([data_label(str(key[0])), *map(setting_label, parts)])


def line_style(method: str) -> dict[str, Any]:
    """Colour and line style of a method, without its marker."""
    return {name: value for name, value in method_style(method).items() if name != "marker"}


def method_panels(
    numbers: pd.DataFrame,
    by: Columns = ("data", "setting"),
    title: Words = in_words,
    chance: OfRows | float = np.nan,
    *,
    named: Words = label,
    look: Callable[[str], Mapping[str, Any]] = method_style,
    xlabel: str = "accuracy [%]",
    best_first: bool = False,  # otherwise in the order of the frame
    reference: str = "chance",
    sharex: bool = True,
) -> Figure:
    """Draw a panel for each column of a table: a line of dots for each method."""
    if numbers.empty:
        return plot_nothing()
    figure, parts = _parts(numbers, by, title, lambda rows: 0.8 + 0.32 * rows["method"].nunique(), sharex)
    for ax, rows in parts:
        if best_first:
            mean = rows.groupby("method")["value"].transform("mean")
            rows = rows.loc[mean.sort_values(ascending=False, kind="stable").index]
        lines = [(str(method), own) for method, own in rows.groupby("method", sort=False)]
        points = [(named(method), own["value"].tolist(), look(method)["color"]) for method, own in lines]
        dots(ax, points, {named(method): own["paper"].iloc[0] for method, own in lines})
        seen = (numbers if sharex else rows)[["value", "paper"]].to_numpy(float)
        mark_chance(ax, if_near(chance(rows) if callable(chance) else chance, seen), "y", reference)
    figure.axes[-1].set_xlabel(xlabel)
    return figure


def line_panels(
    numbers: pd.DataFrame,
    x: str,
    by: Columns = ("data", "setting"),
    title: Words = in_words,
    chance: OfRows | float = np.nan,
    *,
    y: str = "value",
    line: str = "method",
    named: Words = label,
    look: Callable[[str], Mapping[str, Any]] = line_style,
    xlabel: str = "",
    ylabel: str = "accuracy [%]",
    ends: bool = False,
    height: float = 2.4,
    reference: str = "chance",
    sharex: bool = True,
    printed: str = "",
    **scale: object,
) -> Figure:
    """Draw a panel for each data set and setting: a line for each method, thin for each seed, thick for the mean."""
    # The columns `x`, `y`, `line` and `printed` of the frame are the position on the axis, the value, the name of a
    # line and its printed number, a dash at its end. With `ends` the last value follows the name of a line. `scale` are
    # limits and scales of all panels, as for `ax.set`.
    if numbers.empty:
        return plot_nothing()
    dashes = []
    figure, parts = _parts(numbers, by, title, lambda _: height, sharex)
    for ax, rows in parts:
        places = {}
        for name, values in rows.groupby(line, sort=False):
            place = seeds_and_mean(ax, values.pivot_table(index=x, columns="seed", values=y), **look(str(name)))
            places[named(str(name)) + (f" {place[1]:.0f}" if ends else "")] = place
            if printed and np.isfinite(values[printed].iloc[0]):
                mark = PRINTED | {"color": place[2], "markersize": 12, "clip_on": False}
                dashes = ax.plot(place[0], values[printed].iloc[0], "_", **mark)
        ax.set(ylabel=ylabel, **scale)
        for axis in (ax.xaxis, ax.yaxis):
            if axis.get_scale() == "log":  # 1, 2 and 5 times powers of ten, as decimals
                axis.set(major_locator=LogLocator(subs=(1, 2, 5)), minor_formatter=NullFormatter())
                axis.set_major_formatter("{x:g}")
        level = chance(rows) if callable(chance) else chance
        name_ends(ax, places, level if "ylim" in scale else if_near(level, rows[y]), reference=reference)
    figure.axes[-1].set_xlabel(xlabel or x)
    if dashes:
        dash = Line2D([], [], marker="_", markersize=12, **PRINTED)  # black, for lines of all colours
        figure.legend([dash], ["printed"], loc="outside upper right", handlelength=1)
    return figure


def dumbbell_panels(
    table: pd.DataFrame,  # a row for each data set and method, its index
    ends: tuple[str, str],  # the two columns in words
    chance: float = np.nan,
    *,
    named: Words = label,
    look: Callable[[str], Mapping[str, Any]] = method_style,
    xlabel: str = "accuracy [%]",
) -> Figure:
    """Draw a panel for each data set: for each method a line from a hollow to a full dot, and their difference."""
    if table.empty:
        return plot_nothing()
    figure, parts = _parts(table, table.index.names[:1], in_words, lambda rows: 0.8 + 0.3 * len(rows))
    for ax, rows in parts:
        rows = rows.droplevel(0)
        for y, (method, (start, end)) in enumerate(rows.iterrows()):
            color, side = look(str(method))["color"], 1 if end >= start else -1
            ax.plot([start, end], [y, y], color=color, linewidth=1.2, alpha=0.6)
            ax.plot(start, y, "o", color=color, markerfacecolor="white", markersize=5.5)
            ax.plot(end, y, "o", color=color, markersize=5.5)
            text = {"ha": "left" if side > 0 else "right", "va": "center", "color": color}
            words = f"{end - start:+.1f}".replace("-", "\N{MINUS SIGN}")
            ax.annotate(words, (end, y), (6 * side, 0), "data", "offset points", **text)
        ax.margins(x=0.15)
        ax.set_ylim(len(rows) - 0.1, -0.6)
        ax.set_yticks(range(len(rows)), [named(str(method)) for method in rows.index])
        ax.grid(axis="y", visible=False)
        mark_chance(ax, if_near(chance, table.to_numpy()), "y")
    figure.axes[-1].set_xlabel(f"{xlabel}\nhollow: {ends[0]}; filled: {ends[1]}")
    return figure


def shaded_panels(
    numbers: pd.DataFrame,
    kind: str,
    by: Columns = ("data",),
    title: Words = in_words,
    *,
    named: Words = label,
    xlabel: str = "accuracy [%]",
) -> Figure:
    """Draw a panel for each data set: a line of dots for each method, darker for later values of the column `kind`."""
    if numbers.empty:
        return plot_nothing()
    kinds = numbers[kind].unique()  # with the same shade in every panel
    across = 2 if max(len(str(name)) for name in kinds) < 25 else 1  # names in a row of the legend
    legend = 0.1 + 0.2 * -(-(1 + len(kinds)) // across)
    figure, parts = _parts(numbers, by, title, lambda rows: 0.8 + 0.32 * rows["method"].nunique(), legend=legend)
    for ax, rows in parts:
        table = rows.pivot_table(index="method", columns=kind, values="value", sort=False)
        printed, table = rows.groupby("method")["paper"].first().reindex(table.index), table.reindex(columns=kinds)
        places = np.arange(len(table))[::-1]
        for shade, name in zip(plt.get_cmap("Blues")(np.linspace(0.35, 1, len(kinds))), table, strict=True):
            ax.plot(table[name], places, "o", color=shade, label=name)
        if printed.notna().any():
            ax.plot(printed, places, "|", markersize=16, **PRINTED, label="printed")
        ax.set(yticks=places, yticklabels=table.index.map(named), ylim=(-0.6, len(table) - 0.4))
    figure.axes[-1].set_xlabel(xlabel)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=across)
    return figure


def _parts(
    numbers: pd.DataFrame, by: Sequence[Any], title: Words, height: OfRows, sharex: bool = True, legend: float = 0.0
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """A figure with a panel for each value of the columns `by`, with their rows; room for a `legend` below them."""
    groups = dict(list(numbers.groupby([*by], sort=False))) if by else {(): numbers}
    heights = [height(rows) for rows in groups.values()]
    heights[-1] += legend
    figure, axes = panels(len(groups), heights, across=1, sharex=sharex)
    for ax, key in zip(axes, groups if by else (), strict=False):
        ax.set_title(title(*key), loc="left")
    return figure, list(zip(axes, groups.values(), strict=True))
