"""Parts of figures: panels, dots, lines with their names at the end, the line of chance, boxes and arrows."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from fedlib.report.style import BLACK, GREY, LINES, PRINTED, WIDE, integer_ticks

GAP = 9.5  # least distance of two names at the ends of lines, in points
Point = tuple[float, float]
End = tuple[float, float, str]  # of a line: x, y, colour
Dots = tuple[str, Sequence[float], str]  # name, values of the seeds, colour
HALO = [withStroke(linewidth=3, foreground="white")]  # of words on lines


def plot_nothing(sentence: str = "Not measured at this size.") -> Figure:
    """Draw a figure that says why it is empty."""
    figure, ax = plt.subplots(figsize=(WIDE, 0.7))
    figure.set_label(sentence)  # its alternative text
    ax.text(0.5, 0.5, sentence, ha="center", va="center", color=GREY)
    ax.set_axis_off()
    return figure


def panels(n: int, height: float | Sequence[float], across: int = 2, **options: object) -> tuple[Figure, list[Axes]]:
    """Make n axes, at most `across` in a row; `height`: height(s) of the rows in inches; `options`: `plt.subplots`."""
    across = min(across, n)
    down = -(-n // across)
    heights = [height] * down if isinstance(height, float | int) else list(height)
    options |= {"figsize": (WIDE, sum(heights)), "height_ratios": heights, "squeeze": False}
    figure, axes = plt.subplots(down, across, **options)  # type: ignore[arg-type]
    for ax in axes.flat[n:]:
        ax.remove()
    return figure, list(axes.flat[:n])


def dots(ax: Axes, groups: Sequence[Dots], paper: Mapping[str, float] = {}, digits: int = 1) -> None:
    """Draw a line for each group of dots, with a large one at their mean, and a bar at `paper[name]`."""
    for y, (name, values, color) in enumerate(groups):
        mean = float(np.mean(values))
        look = {"color": color, "clip_on": False}  # dots on the frame are not cut off
        ax.plot(values, [y] * len(values), "o", alpha=0.35, markersize=4, markeredgewidth=0, **look)
        ax.plot(mean, y, "o", markersize=6, **look)
        above = {"xytext": (0, 4.5), "textcoords": "offset points", "ha": "center", "path_effects": HALO}
        ax.annotate(f"{mean:.{digits}f}".replace("-", "\N{MINUS SIGN}"), (mean, y), color=color, **above)
        if np.isfinite(paper.get(name, np.nan)):
            [bar] = ax.plot(paper[name], y, "|", markersize=14, **PRINTED)  # visible behind a dot
            if not ax.figure.legends:
                ax.figure.legend([bar], ["printed"], loc="outside upper right", handlelength=1)
    ax.set_yticks(range(len(groups)), [name for name, *_ in groups])
    ax.set_ylim(len(groups) - 0.1, -0.75)
    ax.margins(x=0.1)
    ax.grid(axis="y", visible=False)


def seeds_and_mean(ax: Axes, curves: pd.DataFrame, color: str, **look: object) -> End:
    """Draw a thin line for each seed (column of `curves`) and a thick one for the mean; returns the end of the mean."""
    if curves.shape[1] > 1:
        ax.plot(curves.index, curves, color=color, linewidth=0.6, alpha=0.45)
    if pd.api.types.is_integer_dtype(curves.index):
        integer_ticks(ax.xaxis)
    mean = curves.mean(axis=1).sort_index()
    ax.plot(mean.index, mean, **{"color": color, "linewidth": 1.8, **look})
    return float(mean.index[-1]), float(mean.iloc[-1]), color


def name_ends(
    ax: Axes, ends: Mapping[str, End], chance: float = np.nan, reference: str = "chance", **text: object
) -> None:
    """Write names at the ends of lines, moved apart, and `reference` at a line of `chance`; set the limits first."""
    if ends and np.isfinite(chance):
        mark_chance(ax, chance, text="")
        ends = {**ends, reference: (max(x for x, *_ in ends.values()), chance, GREY)}
    ax.autoscale_view()  # if limits are automatic
    order = sorted(ends, key=lambda name: ends[name][1])
    points = 72 / ax.figure.dpi
    heights = [float(ax.transData.transform(ends[name][:2])[1]) * points for name in order]
    for name, old, new in zip(order, heights, apart(heights, GAP), strict=True):
        x, y, color = ends[name]
        look = {"textcoords": "offset points", "va": "center", "annotation_clip": False, "path_effects": HALO, **text}
        ax.annotate(name, (x, y), (5, new - old), color=color, **look)


def apart(places: Sequence[float], gap: float) -> list[float]:
    """Move sorted places as little as possible so that neighbours are `gap` apart; touching ones keep their mean."""
    steps = gap * np.arange(len(places))
    return (isotonic_regression(np.asarray(places) - steps).x + steps).tolist()


def if_near(at: float, values: ArrayLike) -> float:
    """The level of chance; NaN if its distance below the values exceeds the range of the values."""
    return np.nan if np.nanmin(values) - at > np.nanmax(values) - np.nanmin(values) else at


def mark_chance(ax: Axes, at: float, along: str = "x", text: str = "chance") -> None:
    """Draw a dotted line at the level of chance, parallel to the axis "x" or "y"; NaN: none."""
    if np.isnan(at):
        return
    draw = ax.axhline if along == "x" else ax.axvline
    draw(at, color=GREY, linestyle=LINES[":"], linewidth=1, zorder=0)
    if text:
        place, where = ((0, at), ax.get_yaxis_transform()) if along == "x" else ((at, 0), ax.get_xaxis_transform())
        ax.annotate(text, place, (3, 2), where, "offset points", color=GREY, va="bottom")


def box(
    ax: Axes, middle: Point, size: Point, text: str, color: str = BLACK, frozen: bool = False, **look: object
) -> None:
    """Draw a box with a text, grey and dashed if `frozen`; `look`: further properties of the box."""
    (x, y), (width, height) = middle, size
    color = GREY if frozen else color
    shape = f"round,pad=0,rounding_size={0.15 * min(size)}"
    look = {"facecolor": "white", "edgecolor": color, "linestyle": "--" if frozen else "-", "linewidth": 1.3, **look}
    ax.add_patch(FancyBboxPatch((x - width / 2, y - height / 2), width, height, boxstyle=shape, **look))  # type: ignore[arg-type]
    ax.text(x, y, text, ha="center", va="center", color=color)


def arrow(ax: Axes, start: Point, end: Point, color: str = BLACK, width: float = 1.3, bend: float = 0.0) -> None:
    """Draw an arrow."""
    look = {"arrowstyle": "-|>", "mutation_scale": 7 + 2 * width, "connectionstyle": f"arc3,rad={bend}"}
    ax.add_patch(FancyArrowPatch(start, end, color=color, linewidth=width, zorder=0, **look))
