"""Charts: rows of heat maps, learning curves, the numbers of a table, and the images of the clients."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure

from fedlib.federation import Federation
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
        raise ValueError(
            f"{len(titles)} titles for matrices of shapes {sorted(shapes)}; use maps of one shape, with one title each."
        )
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


def plot_points(frame: pd.DataFrame, chance: float = np.nan) -> Figure:
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
            look = {"color": color, "markersize": 10 if marker == "|" else 4, "elinewidth": 0.8, "markeredgewidth": 1.3}
            look["label"] = "printed" if source == "paper" else source
            ax.errorbar(some["value"], y, xerr=some["std"].fillna(0), fmt=marker, **look)
        words = set(place.split(", "))
        names = here[["source", "column"]].drop_duplicates().itertuples(index=False, name=None)
        others = [f"\n{source}: {name}" for source, name in names if not words.issuperset(name.split(", "))]
        ax.set_title(place + "".join(others), loc="left")
        ax.set(ylim=(-0.9, len(rows) - 0.4), xlabel="accuracy [%]")
        ax.set_yticks(range(len(rows)), rows)
        mark_chance(ax, chance, "y")
    lines = zip(SOURCES, *axes[0].get_legend_handles_labels(), strict=True)
    shown = [(line, name) for source, line, name in lines if (frame["source"] == source).any()]
    figure.legend(*zip(*shown, strict=True), loc="outside upper right", ncols=3)
    return figure


def plot_partition(
    counts: np.ndarray, ax: Axes | None = None, classes: Sequence[str] | None = None, *, size_key: bool = True
) -> Axes:
    """Draw the number of images by client and class: one circle for each pair, with area proportional to the number.

    The largest circle fills its cell; with many clients cells are thin, and it may extend into neighbouring ones.

    Args:
        counts: images, [n_clients, n_classes]; see `Federation.counts`.
        ax: axes to draw on. Default: the current ones.
        classes: names of the classes. Default: their numbers.
        size_key: whether to write the number of images of the largest circle above the axes.

    Returns:
        The axes.

    Raises:
        ValueError: `counts` or `classes` have another shape.

    Source:
        pFedSim, Fig. 3.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.1, min_size=10), clients=3)
        >>> ax = fl.report.plot_partition(federation.counts(), classes=federation.data.classes)
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('client', 'class')
    """
    counts = np.asarray(counts)
    if counts.ndim != 2 or not counts.size or (counts < 0).any():
        raise ValueError(f"counts has shape {counts.shape}; it must be [clients, classes] without negative numbers.")
    clients, labels = counts.shape
    if classes is not None and len(classes) != labels:
        raise ValueError(f"classes has {len(classes)} names; counts has {labels} classes.")
    ax = plt.gca() if ax is None else ax
    ax.set(xlim=(-0.9, clients - 0.1), ylim=(-0.9, labels - 0.1), xlabel="client", ylabel="class")
    integer_ticks(ax.xaxis)
    if classes is not None and labels <= 20:
        ax.set_yticks(range(labels), classes)
    else:
        integer_ticks(ax.yaxis)

    box = ax.get_window_extent()
    sides: dict[Literal["x", "y"], float] = {"x": box.width / clients, "y": box.height / labels}
    thin = min(sides, key=lambda side: sides[side])
    room = max(sides.values()) / sides[thin]  # long side of a cell / thin side
    largest = np.clip({"x": clients, "y": labels}[thin] / 30, 0.95, np.clip(room, 2.0, 3.5))
    client, label = np.nonzero(counts)
    diameter = np.sqrt(counts[client, label] / max(counts.max(), 1)) * largest
    diameter = np.maximum(diameter, 0.1)  # in cells of the thin side; one sample stays visible
    places = {"offsets": np.column_stack([client, label]), "offset_transform": ax.transData, "units": thin}
    look = {"facecolors": BLUE, "edgecolors": "white", "linewidths": 0.2, "alpha": 0.8}
    ax.add_collection(EllipseCollection(diameter, diameter, np.zeros(len(diameter)), **places, **look), autolim=False)
    if size_key:
        ax.set_title(f"largest circle: {counts.max():,} samples", loc="right", fontsize=7, color="#444444")
    return ax


def plot_clients(federation: Federation, clients: Sequence[int] = (0, 1, 2), images: int = 8) -> Figure:
    """Draw some training images of some clients, a row for each client, with its share of each class.

    Args:
        federation: the clients.
        clients: numbers of the clients to show.
        images: number of images of each client.

    Returns:
        The figure.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.1, min_size=10), clients=3)
        >>> len(fl.report.plot_clients(federation, images=4).axes)
        12
    """
    data, side = federation.data, (TEXT - 0.6) / images
    size = (TEXT, len(clients) * min(side + 0.1, 0.8))
    figure, axes = plt.subplots(len(clients), images, figsize=size, squeeze=False)
    for row, client in zip(axes, clients, strict=True):
        own = federation.train[client]
        own = own[np.argsort(data.y[own], kind="stable")]  # by class
        for ax, i in zip(row, own[np.linspace(0, len(own) - 1, images).astype(int)], strict=True):
            ax.imshow(data.x[i].transpose(1, 2, 0), cmap="gray_r")  # the colour map is for images of one channel
            ax.set_title(data.classes[data.y[i]], fontsize=7, pad=1)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        row[0].set_ylabel(f"client {client}", rotation=0, ha="right", va="center")
    return figure
