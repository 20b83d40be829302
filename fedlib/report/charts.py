"""Charts: rows of heat maps, and learning curves."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from fedlib.report.marks import mark_chance, panels, plot_nothing
from fedlib.report.style import BLACK, BLUE, COLUMN, RED, TEXT, bare, integer_ticks, label, method_style

ANNOTATED = 12  # matrices with at most this many rows and columns can have numbers in their cells


def plot_heatmaps(
    matrices: Sequence[np.ndarray],
    titles: Sequence[str],
    vmin: float = 0.0,
    vmax: float = 1.0,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    bar: str = "",
    width: float | None = None,
) -> Figure:
    """Draw a row of heat maps on one scale with one colour bar, and numbers in the cells if they fit.

    Args:
        matrices: the maps, [rows, columns] each, of one shape.
        titles: one title per map.
        vmin: value at the lower end of the scale.
        vmax: value at the upper end of the scale.
        rows: names of the rows. Default: their numbers.
        columns: names of the columns. Default: their numbers.
        xlabel: label of the columns.
        ylabel: label of the rows.
        bar: label of the colour bar.
        width: width of the figure in inches. Default: `TEXT` for several maps, `COLUMN` for one.

    Returns:
        The figure.

    Raises:
        ValueError: the maps have different shapes, or there is not one title per map.

    Example:
        >>> figure = fl.report.plot_heatmaps([np.eye(3), np.ones((3, 3))], titles=["before", "after"], bar="cosine")
        >>> [ax.get_title() for ax in figure.axes]
        ['before', 'after', '']
    """
    matrices = [np.asarray(matrix, dtype=float) for matrix in matrices]
    shapes = {matrix.shape for matrix in matrices}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2 or len(titles) != len(matrices):
        raise ValueError(f"{len(titles)} titles for matrices of shapes {sorted(shapes)}; use one shape, a title each.")
    (height, breadth), n = matrices[0].shape, len(matrices)
    width = width or (TEXT if n > 1 else COLUMN)
    cell = (width - 1.0) / n / breadth  # inches
    signed = min(np.nanmin(matrix, initial=0) for matrix in matrices) < 0
    size = min(7.0, cell * 72 / (3.3 if signed else 2.6))  # points: "-0.92" or "0.92" fits into a cell
    tall = min(max(cell, 0.2 if height < 6 else 0.0), 0.5)  # few rows: not flatter than a line of text
    room = (width, tall * height + 0.65)
    figure, axes = plt.subplots(1, n, figsize=room, sharey=True, squeeze=False, layout="compressed")
    for ax, matrix, title in zip(axes[0], matrices, titles, strict=True):
        image = ax.imshow(matrix, vmin=vmin, vmax=vmax, aspect=tall / cell)
        ax.set_title(title)
        ax.set_xlabel(xlabel)
        bare(ax)
        _name_cells(ax.xaxis, columns, breadth)
        _name_cells(ax.yaxis, rows, height)
        if max(height, breadth) <= ANNOTATED and cell >= 0.17:
            for (row, column), value in np.ndenumerate(matrix):
                red, green, blue, _ = image.to_rgba(value)
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
                text = "-" if np.isnan(value) else f"{value:.2f}".replace("-", "\N{MINUS SIGN}")
                look = {"fontsize": size, "color": "white" if dark else "black"}  # legible on the cell
                ax.text(column, row, text, ha="center", va="center", **look)
    axes[0, 0].set_ylabel(ylabel)
    figure.colorbar(axes[0, -1].images[0], ax=axes[0].tolist(), label=bar, fraction=0.05, pad=0.02, aspect=12)
    return figure


def _name_cells(axis: Axis, names: Sequence[str] | None, number: int) -> None:
    if names is not None:
        axis.set_ticks(range(number), names)
    elif number <= ANNOTATED:
        axis.set_ticks(range(0, number, 1 if number <= 6 else 3))
    else:
        integer_ticks(axis, 5)


def plot_curves(frame: pd.DataFrame, ax: Axes | None = None, *, legend: bool | str = "outside") -> Axes:
    """Draw one line per method: the mean over seeds, in a band of plus and minus one standard deviation.

    Args:
        frame: one row per seed and point of every line: method, round, accuracy.
        ax: axes to draw on. Default: the current ones.
        legend: "outside": to the right of the axes; True: inside; False: none.

    Returns:
        The axes.

    Raises:
        ValueError: a column is missing, there are no rows, or a method is unknown.

    Example:
        >>> curves = pd.DataFrame({"method": "fedavg", "round": [1, 2], "accuracy": [20.0, 30.0]})
        >>> ax = fl.report.plot_curves(curves)
        >>> ax.get_legend_handles_labels()[1]
        ['FedAvg']
    """
    missing = [column for column in ("method", "round", "accuracy") if column not in frame]
    if missing or not len(frame):
        raise ValueError(f"the frame lacks {', '.join(missing) or 'rows'}; it needs method, round and accuracy.")
    ax = plt.gca() if ax is None else ax
    for name, rows in frame.groupby("method", sort=False):
        curve = rows.groupby("round")["accuracy"].agg(["mean", "std"])
        style = method_style(str(name))
        every = max(1, round(len(curve) / 6))  # about six markers
        ax.plot(curve.index, curve["mean"], label=label(str(name)), markevery=every, **style)
        if curve["std"].notna().any():
            low, high = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
            ax.fill_between(curve.index, low, high, color=style["color"], alpha=0.15, linewidth=0)
    ax.set(xlabel="round", ylabel="accuracy")
    integer_ticks(ax.xaxis)
    if legend == "outside":
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.03), borderaxespad=0.3)
    elif legend:
        ax.legend()
    return ax


SOURCES = {"paper": ("|", BLACK), "full size": ("o", RED), "here": ("D", BLUE)}  # marker and colour


def plot_points(frame: pd.DataFrame, *, xlabel: str = "accuracy [%]", chance: float | None = None) -> Figure:
    """Draw the numbers of a table as points, one panel per column, the printed beside the measured ones."""
    tried = frame.loc[frame["source"] != "paper", "place"]
    frame = frame[frame["place"].isin(tried)]
    if frame.empty:
        return plot_nothing()
    places, rows = frame["place"].unique(), frame["row"].unique().tolist()[::-1]
    figure, axes = panels(len(places), 0.19 * len(rows) + 1.0, across=1 if len(places) < 4 else 2, sharey=True)
    for ax, place in zip(axes, places, strict=True):
        here = frame[frame["place"] == place]
        for source, (marker, color) in SOURCES.items():
            some = here[here["source"] == source]
            y = [rows.index(row) for row in some["row"]]
            bars = some["std"].fillna(0)
            look = {"color": color, "markersize": 10 if marker == "|" else 4, "elinewidth": 0.8, "markeredgewidth": 1.3}
            look["label"] = "printed" if source == "paper" else source
            ax.errorbar(some["value"], y, xerr=bars, fmt=marker, **look)
        words = set(place.split(", "))
        names = here[["source", "column"]].drop_duplicates().itertuples(index=False, name=None)
        others = [f"\n{source}: {name}" for source, name in names if not words.issuperset(name.split(", "))]
        ax.set_title(place + "".join(others), loc="left")
        ax.set(ylim=(-0.9, len(rows) - 0.4), xlabel=xlabel)
        ax.set_yticks(range(len(rows)), rows)
        mark_chance(ax, np.nan if chance is None else chance, "y")
    lines = zip(SOURCES, *axes[0].get_legend_handles_labels(), strict=True)
    shown = [(line, name) for source, line, name in lines if (frame["source"] == source).any()]
    figure.legend(*zip(*shown, strict=True), loc="outside upper right", ncols=3)
    return figure
