"""Small multiples of measured numbers: methods as dots, lines with their names at the end, dumbbells, shaded dots."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.report.marks import mark_chance, method_dots, name_ends, panels, plot_nothing, seeds_and_mean, shaded_dots
from fedlib.report.style import data_label, label, method_style


def in_words(*key: object) -> str:
    """The title of a panel: data and setting."""
    return ", ".join([data_label(str(key[0])), *map(str, key[1:])])


def line_style(method: str) -> dict[str, Any]:
    """Colour and line style of a method, without its marker."""
    return {name: value for name, value in method_style(method).items() if name != "marker"}


def method_panels(
    numbers: pd.DataFrame,
    by: Sequence[str] = ("data", "setting"),
    title: Callable[..., str] = in_words,
    chance: Callable[[pd.DataFrame], float] | float = np.nan,
    *,
    named: Callable[[str], str] = label,
    look: Callable[[str], Mapping[str, Any]] = method_style,
    xlabel: str = "accuracy [%]",
    best_first: bool = False,
    reference: str = "chance",
    sharex: bool = True,
) -> Figure:
    """Draw a panel for each column of a table: a line of dots for each method, with crosses at the printed numbers.

    Args:
        numbers: a row per number and seed: method, value, paper, and the columns of `by`.
        by: the columns that name a panel.
        title: `title(*key)` is its title.
        chance: the place of its dotted line, or a function of its rows; NaN: none.
        named: `named(method)` is the name of a line.
        look: `look(method)["color"]` is its colour.
        xlabel: label of the axis.
        best_first: whether the methods are sorted by their mean; else they keep the order of the frame.
        reference: name of the dotted line.
        sharex: whether all panels have one scale.

    Returns:
        The figure.
    """
    groups = [(key, rows) for key, rows in numbers.groupby([*by], sort=False)] if len(numbers) else []
    if not groups:
        return plot_nothing()
    heights = [0.8 + 0.32 * rows["method"].nunique() for _, rows in groups]
    figure, axes = panels(len(groups), heights, across=1, sharex=sharex)
    for ax, (key, rows) in zip(axes, groups, strict=True):
        if best_first:
            mean = rows.groupby("method")["value"].transform("mean")
            rows = rows.loc[mean.sort_values(ascending=False, kind="stable").index]
        method_dots(ax, rows, named, look)
        mark_chance(ax, chance(rows) if callable(chance) else chance, "y", reference)
        ax.set_title(title(*key), loc="left")
    axes[-1].set_xlabel(xlabel)
    return figure


def line_panels(
    numbers: pd.DataFrame,
    x: str,
    by: Sequence[str] = ("data", "setting"),
    title: Callable[..., str] = in_words,
    chance: Callable[[pd.DataFrame], float] | float = np.nan,
    *,
    y: str = "value",
    line: str = "method",
    named: Callable[[str], str] = label,
    look: Callable[[str], Mapping[str, Any]] = line_style,
    xlabel: str = "",
    xscale: str = "linear",
    ylabel: str = "accuracy [%]",
    ylim: tuple[float, float | None] | None = None,
    yscale: str = "linear",
    ends: bool = False,
    height: float = 2.4,
    reference: str = "chance",
    sharex: bool = True,
    printed: str = "",
) -> Figure:
    """Draw a panel for each data set and setting: a line for each method, thin for each seed, thick for the mean.

    Args:
        numbers: a row per number and seed: seed, and the columns `x`, `y`, `line` and `by`.
        x: the column along the axis, of numbers.
        by: the columns that name a panel; (): there is one panel.
        title: `title(*key)` is its title.
        chance: the height of its dotted line, or a function of its rows; NaN: none.
        y: the column of the values.
        line: the column that names a line.
        named: `named(line)` is the name at its end.
        look: `look(line)` are its properties, its colour among them.
        xlabel: label below the last panel. Default: `x`.
        xscale: as in matplotlib.
        ylabel: label of every panel.
        ylim: limits of every panel.
        yscale: "linear" or "log".
        ends: whether the last value stands behind the name of a line.
        height: of a panel, in inches.
        reference: name of the dotted line.
        sharex: whether all panels have one scale along the axis.
        printed: the column of the printed number of a line, a cross at its end; NaN: none. Default: no crosses.

    Returns:
        The figure.
    """
    if numbers.empty:
        return plot_nothing()
    groups = [(key, rows) for key, rows in numbers.groupby([*by], sort=False)] if by else [((), numbers)]
    crosses = []
    figure, axes = panels(len(groups), height, across=1, sharex=sharex)
    for ax, (key, rows) in zip(axes, groups, strict=True):
        places = {}
        for name, values in rows.groupby(line, sort=False):
            table = values.pivot_table(index=x, columns="seed", values=y)
            place = seeds_and_mean(ax, table, **look(str(name)))
            places[named(str(name)) + (f" {place[1]:.0f}" if ends else "")] = place
            if printed and np.isfinite(values[printed].iloc[0]):
                crosses = ax.plot(place[0], values[printed].iloc[0], "x", color=place[2], clip_on=False)
        ax.set(ylabel=ylabel, xscale=xscale, yscale=yscale, **({"ylim": ylim} if ylim else {}))
        if by:
            ax.set_title(title(*key), loc="left")
        name_ends(ax, places, chance(rows) if callable(chance) else chance, reference=reference)
    axes[-1].set_xlabel(xlabel or x)
    if crosses:
        figure.legend(crosses, ["paper"], loc="outside upper right", handlelength=1)
    return figure


def dumbbell_panels(
    table: pd.DataFrame,
    ends: tuple[str, str],
    chance: float = np.nan,
    *,
    named: Callable[[str], str] = label,
    look: Callable[[str], Mapping[str, Any]] = method_style,
    xlabel: str = "accuracy [%]",
    xlim: tuple[float, float] = (0, 105),
) -> Figure:
    """Draw a panel for each data set: for each method a line from a hollow dot to a full one, and their difference.

    Args:
        table: a row for each data set and method (index: data, method), and two columns of values.
        ends: the columns in words.
        chance: place of the dotted line; NaN: none.
        named: `named(method)` is the name of a line.
        look: `look(method)["color"]` is its colour.
        xlabel: label of the axis.
        xlim: its limits.

    Returns:
        The figure.
    """
    if table.empty:
        return plot_nothing()
    groups = [(str(data), rows.droplevel(0)) for data, rows in table.groupby(level=0, sort=False)]
    figure, axes = panels(len(groups), [0.8 + 0.3 * len(rows) for _, rows in groups], across=1, sharex=True)
    for ax, (data, rows) in zip(axes, groups, strict=True):
        for y, (method, (start, end)) in enumerate(rows.iterrows()):
            color, side = look(str(method))["color"], 1 if end >= start else -1
            ax.plot([start, end], [y, y], color=color, linewidth=1.2, alpha=0.6)
            ax.plot(start, y, "o", color=color, markerfacecolor="white", markersize=5.5)
            ax.plot(end, y, "o", color=color, markersize=5.5)
            text = {"ha": "left" if side > 0 else "right", "va": "center", "color": color}
            words = f"{end - start:+.1f}".replace("-", "\N{MINUS SIGN}")
            ax.annotate(words, (end, y), (6 * side, 0), "data", "offset points", **text)
        ax.set(xlim=xlim, ylim=(len(rows) - 0.1, -0.6))
        ax.set_yticks(range(len(rows)), [named(str(method)) for method in rows.index])
        ax.grid(axis="y", visible=False)
        mark_chance(ax, chance, "y")
        ax.set_title(data_label(data), loc="left")
    axes[-1].set_xlabel(f"{xlabel}; hollow: {ends[0]}; full: {ends[1]}")
    return figure


def shaded_panels(
    numbers: pd.DataFrame,
    kind: str,
    by: Sequence[str] = ("data",),
    title: Callable[..., str] = in_words,
    *,
    named: Callable[[str], str] = label,
    xlabel: str = "accuracy [%]",
    xlim: tuple[float, float] = (0, 100),
) -> Figure:
    """Draw a panel for each data set: a line of dots for each method, the darker the later the kind.

    A red bar is at the printed number.

    Args:
        numbers: a row per number and seed: method, value, paper, and the columns `kind` and `by`.
        kind: the column that names a shade; its values in the order in which they come.
        by: the columns that name a panel.
        title: `title(*key)` is its title.
        named: `named(method)` is the name of a line.
        xlabel: label of the axis.
        xlim: its limits.

    Returns:
        The figure.
    """
    if numbers.empty:
        return plot_nothing()
    groups = list(numbers.groupby([*by], sort=False))
    heights = [0.8 + 0.32 * rows["method"].nunique() for _, rows in groups]
    heights[-1] += 0.5  # with the legend
    figure, axes = panels(len(groups), heights, across=1, sharex=True)
    for ax, (key, rows) in zip(axes, groups, strict=True):
        table = rows.pivot_table(index="method", columns=kind, values="value", sort=False)
        table = table.reindex(columns=numbers[kind].unique())  # the same shade in every panel
        shaded_dots(ax, table.rename(named), rows.groupby("method")["paper"].first().rename(named))
        ax.set_title(title(*key), loc="left")
        ax.set_ylim(-0.6, len(table) - 0.4)
    axes[-1].set(xlim=xlim, xlabel=xlabel)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
