"""Figures of reassembled networks: blocks, the networks that they come from, and the stitches between them (pFedHR)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.path import Path

from fedlib.report.style import PALETTE, bare

Link = tuple[int, int]  # (network in the pool, h): h counts blocks from 1
WIDE, HIGH = 0.8, 0.62  # size of a block, in a cell of 1 x 1
STITCH: dict[str, Any] = dict(
    marker="D", markersize=4, markerfacecolor="white", markeredgecolor="black", linestyle="none", zorder=4
)
LEAST_ROWS = 4  # keeps the shape of boxes if there are few candidates


def stitched(before: Link | None, link: Link) -> bool:
    """True if a stitch connects a block with the one before it (None: the start), unless they are neighbours."""
    return link[1] != 1 if before is None else before != (link[0], link[1] - 1)


def plot_chain(networks: Sequence[Sequence[str]], labels: Sequence[str], chain: Sequence[Link], ax: Axes) -> Axes:
    """Draw a candidate inside the networks that its blocks come from."""
    chosen, ends = set(chain), max(map(len, networks)) + 1
    for b, names in enumerate(networks):
        for h, name in enumerate(names, 1):
            _box(ax, (h, b), name, PALETTE[b], (b, h) in chosen)
    for before, (b, h) in zip([None, *chain], chain, strict=False):
        start = (0, b) if before is None else (before[1], before[0])
        _arrow(ax, start, (h, b), stitched(before, (b, h)))
    b, h = chain[-1]
    if h < len(networks[b]):
        _box(ax, (ends, b), "new", "#7A7A7A", True)
        _arrow(ax, (h, b), (ends, b), stitch=False)
    ax.text(0, chain[0][0], "x", ha="center", va="center")
    ax.set(xlim=(-0.4, ends + 0.6), ylim=(len(networks) - 0.4, -0.6), xticks=range(1, ends))
    ax.set_yticks(range(len(networks)), labels)
    key = [Line2D([], [], label="stitch", **STITCH)]
    ax.legend(handles=key, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.1, frameon=False)
    bare(ax)
    return ax


def plot_candidates(
    networks: Sequence[Sequence[str]], candidates: Sequence[Sequence[Link]], notes: Sequence[str], ax: Axes
) -> Axes:
    """Draw candidates, one in each row: their blocks in the colours of the networks, a diamond for every stitch."""
    longest = max(map(len, candidates))
    for m, (chain, note) in enumerate(zip(candidates, notes, strict=True)):
        for position, (before, (b, h)) in enumerate(zip([None, *chain], chain, strict=False)):
            _box(ax, (position, m), networks[b][h - 1], PALETTE[b], True)
            if stitched(before, (b, h)):
                ax.plot(position - 0.5, m, **STITCH)
        ax.text(longest - 0.35, m, note, va="center", fontsize=7)
    ax.set(xlim=(-0.8, longest + 1.2), ylim=(max(len(candidates), LEAST_ROWS) - 0.4, -0.6), xticks=[])
    ax.set_yticks(range(len(candidates)), [str(m + 1) for m in range(len(candidates))])
    bare(ax)
    return ax


def plot_block_map(distances: np.ndarray, names: Sequence[str], groups: Sequence[int], ax: Axes) -> Axes:
    """Draw the similarity of blocks, CKA of inputs + CKA of outputs = 1 / distance, with a frame for each group."""
    order = np.argsort(groups, kind="stable")
    similarity = 1 / distances[np.ix_(order, order)]
    image = ax.imshow(similarity, vmin=0, vmax=2, cmap="viridis")
    edges = [0, *(np.flatnonzero(np.diff(np.asarray(groups)[order])) + 1), len(order)]
    for low, high in pairwise(edges):
        size = high - low
        ax.add_patch(Rectangle((low - 0.5, low - 0.5), size, size, fill=False, edgecolor="white", linewidth=1.5))
    ax.set_yticks(range(len(order)), [str(names[i]) for i in order], fontsize=min(7, 180 / len(order)))
    ax.set_xticks([])
    ax.grid(False)
    ax.tick_params(length=0)
    ax.figure.colorbar(image, ax=ax, label="CKA in + CKA out", fraction=0.05, pad=0.02, aspect=20)
    return ax


def _box(ax: Axes, centre: tuple[float, float], name: str, color: str, chosen: bool) -> None:
    x, y = centre
    face, edge, alpha = (color, "black", None) if chosen else ("white", color, 0.6)
    corner = (x - WIDE / 2, y - HIGH / 2)
    ax.add_patch(Rectangle(corner, WIDE, HIGH, linewidth=0.8, zorder=2, facecolor=face, edgecolor=edge, alpha=alpha))
    bright = np.dot(to_rgb(color), (0.2126, 0.7152, 0.0722)) > 0.5  # relative luminance
    ink = ("black" if bright else "white") if chosen else "#6E6E6E"
    ax.text(x, y, name, ha="center", va="center", fontsize=5.5, color=ink, zorder=5)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], stitch: bool) -> None:
    """Draw an arrow, straight to another row or the next block; within a row it passes above the blocks between."""
    tail, tip = (start[0] + (WIDE / 2 if start[0] else 0.15), start[1]), (end[0] - WIDE / 2, end[1])
    lane = start[1] - (0.43 if start[1] == end[1] and end[0] > start[0] + 1 else 0)
    way = [tail, (tail[0] + 0.1, lane), (tip[0] - 0.1, lane), tip] if lane != start[1] else [tail, tip]
    line = FancyArrowPatch(path=Path(way), arrowstyle="-|>", mutation_scale=7, linewidth=1.0, color="black", zorder=3)
    ax.add_patch(line)
    if stitch:
        ax.plot((tail[0] + tip[0]) / 2, (way[1][1] + way[-2][1]) / 2, **STITCH)
