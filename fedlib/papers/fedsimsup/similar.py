"""Who is like whom, and who is in whose model: figures of FedSimSup, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.papers.fedsimsup.draw import (
    kept,
    mean_of,
)
from fedlib.report.marks import plot_nothing
from fedlib.report.partition_plots import plot_partition
from fedlib.report.style import WIDE
from fedlib.studies.tasks import Kept

if TYPE_CHECKING:
    from fedlib.studies.study import Study


def authors(study: Study) -> Figure:
    """Whose uploads are in whose theta, beside the similarities that decide it."""
    found = kept(study, "authors")
    return draw_authors(found[0][1]) if found else plot_nothing()


def draw_authors(found: Kept) -> Figure:
    """Similarities, and beside them the authors of every theta with them and with equal weights, by main class."""
    names = {"s_ij": "who is in $\\theta_i$, weights $s_{ij}$", "equal": "who is in $\\theta_i$, equal weights"}
    figure, axes = plt.subplot_mosaic([["s", "s_ij"], [".", "equal"]], figsize=(WIDE, 5.6), layout="compressed")
    top = max(0.05, *(float(np.quantile(found["authors"][weights], 0.97)) for weights in names))
    maps = {"s": ("label similarity $s_{ij}$", found["s"], "Blues", 1.0)}
    maps |= {weights: (title, found["authors"][weights], "Reds", top) for weights, title in names.items()}
    for name, (title, matrix, cmap, last) in maps.items():
        ax = axes[name]
        shade = ax.imshow(matrix, cmap=cmap, vmin=0, vmax=last)
        by_main_class(ax, found["main"])
        ax.set_title(title)
        percent = None if name == "s" else lambda value, _: f"{100 * value:.0f} %"
        ticks = [0, last / 2, last]
        figure.colorbar(shade, ax=ax, location="bottom", aspect=22, pad=0.03, format=percent, ticks=ticks)
        if name in found and name != "s":
            ax.set_xlabel(f"from similar clients: {found[name]:.0f} %", fontweight="bold")
    axes["s"].set(xlabel="client, by its main class", ylabel="model of client, by its main class")
    return figure


def by_main_class(ax: Axes, main: Sequence[int], names: Sequence[str] | None = None) -> None:
    """Name the clients of a matrix by their main class, with a line between classes."""
    starts = [k for k, c in enumerate(main) if k == 0 or c != main[k - 1]]
    middles = [(a + b - 1) / 2 for a, b in zip(starts, [*starts[1:], len(main)], strict=True)]
    words = [names[main[k]] if names else str(main[k]) for k in starts]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(middles, words)
        axis.set_tick_params(length=0, pad=1)
    for k in starts[1:]:
        ax.axhline(k - 0.5, color="#999999", linewidth=0.35)
        ax.axvline(k - 0.5, color="#999999", linewidth=0.35)
    ax.grid(False)
    ax.spines[:].set_visible(False)


def authors_say(study: Study) -> str:
    """How much of what others contribute comes from similar clients."""
    frame = study.numbers("authors")
    ours, equal, chance = (mean_of(frame, weights=weights) for weights in ("s_ij", "equal", "chance"))
    if np.isnan([ours, equal, chance]).any():
        return ""
    verdict = f"{ours / equal:.1f} times as much as" if equal else "against"
    meaning = "similarity decides who is in whose model" if ours > 1.5 * equal else "similarity changes little"
    return (
        f"Look at the blocks on the diagonal: on average, {ours:.0f} % of what others contribute to a θ comes from "
        f"similar clients (cosine above 0.5), {verdict} the {equal:.0f} % with equal weights; {chance:.0f} % of all "
        f"pairs are similar. It means: {meaning}. Nobody but client i is in its supervisor."
    )


def similarity(study: Study) -> Figure:
    """Similarities of the first clients by main class: classes dealt out evenly, and Dirichlet."""
    found = partitions(study)
    if not found:
        return plot_nothing()
    figure, axes = plt.subplots(1, len(found), figsize=(WIDE, 2.9), layout="compressed", squeeze=False)
    for ax, (title, own) in zip(axes[0], found, strict=True):
        counts = np.array(own["counts"], float)
        order = counts.argmax(1).argsort(kind="stable")
        unit = counts[order] / np.linalg.norm(counts[order], axis=1, keepdims=True)
        shade = ax.imshow(unit @ unit.T, cmap="Blues", vmin=0, vmax=1)
        by_main_class(ax, counts.argmax(1)[order].tolist())
        ax.set_title(f"{title}:\n{own['distinct']:,} values of $s_{{ij}}$", loc="left")
        ax.set_xlabel(f"{own['zero']:.0f} % of pairs\nshare no class")
    axes[0, 0].set_ylabel("client, by its main class")
    figure.colorbar(shade, ax=axes[0].tolist(), label="label similarity $s_{ij}$", aspect=18, fraction=0.05)
    return figure


def partitions(study: Study) -> list[tuple[str, Kept]]:
    """The two partitions of Fig. 5, by name."""
    wanted = {task.name for cell in study.cells if cell.item == "fig5" for task in cell.tasks}
    found = [(task, own) for task, own in kept(study, "similarity") if task.name in wanted]
    words = {"pat": "{:g} classes each", "dir": "Dir({:g})"}
    return [(words[str(task.arguments[3])].format(task.arguments[4]), own) for task, own in found]


def similarity_says(study: Study) -> str:
    """How many values similarities take in both partitions."""
    found = dict(partitions(study))
    if len(found) < 2:
        return ""
    (coarse, few), (fine, many) = found.items()
    more = "more" if many["distinct"] > few["distinct"] else "not more"
    return (
        f"Look at the shades: with {coarse} the similarities take {few['distinct']} values, with {fine} "
        f"{many['distinct']}. It means: a Dirichlet partition says {more} about who is like whom."
    )


def fig5(study: Study) -> Figure:
    """Both partitions, one circle per client and class."""
    found = partitions(study)
    if not found:
        return plot_nothing()
    figure, axes = plt.subplots(1, len(found), figsize=(WIDE, 2.3), squeeze=False, sharey=True)
    for ax, (title, own) in zip(axes[0], found, strict=True):
        plot_partition(np.array(own["counts"]), ax, size_key=False)
        ax.set_title(title, loc="left")
        ax.label_outer()
    return figure


def fig5_says(study: Study) -> str:
    """The share of the main class in both partitions."""
    words = [f"{own['share of top class']:.0%} with {title}" for title, own in partitions(study)]
    if len(words) < 2:
        return ""
    return f"Look at the largest circle of each column: a client's main class is, on average, {' and '.join(words)}."
