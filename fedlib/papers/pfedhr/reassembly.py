"""pFedHR: one round (Table 1, Figs. 2 and 7): data and traffic, blocks, groups and candidates."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, pairwise, product
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.path import Path
from torch.utils._pytree import tree_leaves

import fedlib as fl
from fedlib.methods.pfedhr.record import Round
from fedlib.papers.pfedhr import accuracy, distillation
from fedlib.papers.pfedhr.measure import GROUPS, unpacked
from fedlib.papers.pfedhr.sizes import PRINTED, PROFILES, SPLITS, both_kinds, style
from fedlib.report.charts import plot_partition
from fedlib.report.marks import arrow, box, panels
from fedlib.report.panels import line_panels
from fedlib.report.sentences import trend
from fedlib.report.style import BLACK, GREY, PALETTE, TEXT, WIDE, bare
from fedlib.studies.item import Cell, drawing, enough, item
from fedlib.studies.rows import Row
from fedlib.studies.tasks import Kept, Probe, images, profile_of

Link = tuple[int, int]  # (network in the pool, h): h counts blocks from 1
Chain = Sequence[Link]
Networks = Sequence[Sequence[str]]  # names of the blocks of each network
WIDTH, HEIGHT = 0.8, 0.62  # of a block, in a cell of 1 x 1
STITCH: dict[str, Any] = {"marker": "D", "markersize": 4, "markerfacecolor": "white", "markeredgecolor": "black"}
STITCH |= {"linestyle": "none", "zorder": 4}
LEAST_ROWS = 4  # keeps the shape of boxes if there are few candidates


@item("Table 1, measured: use of public labels (1: yes), and bytes sent by a client.", digits=0)
def table1(sizes):
    for kind, method in both_kinds(sizes.rivals):
        task = Probe("table1", needs, (profile_of(sizes, PROFILES), method, kind), exact=True, sizes=str(sizes))
        for metric in ("uses labels", "bytes up"):
            yield Cell(method, "", f"public={kind}", (task,), metric, metric)


def needs(seed: int, profile: str, method: str, kind: str) -> Kept:
    """Use of public labels (1 if shuffling them changes the weights), and bytes that a client sends."""
    sizes, rng = PROFILES[profile], np.random.default_rng(seed)
    data = images(style("pen", "", 200))
    data = data.subset(rng.permutation(len(data))[:100])
    tiny = fl.federate(data, SPLITS["iid"], 4, test_fraction=0.2, public=0.2)
    blind = tiny.with_public(replace(tiny.public, y=rng.permutation(tiny.public.y)))
    setting = dict(rounds=2, local_epochs=1, batch_size=sizes.batch_size, lr=sizes.lr, optimizer="adam", seed=seed)
    algorithm = sizes._replace(server_epochs=1, warm_up=1).method(method, kind)
    seen, unseen = (fl.run(algorithm, one, "+".join(sizes.models), **setting, progress=False) for one in (tiny, blind))
    same = all(map(torch.equal, tree_leaves(seen.models), tree_leaves(unseen.models)))
    return {"uses labels": int(not same), "bytes up": int(seen.rounds["bytes_up"].iloc[0]) // 4}


@drawing("Number of images by class and client.")
def partitions(study):  # the data of Table 2
    """One circle per client and class, with area proportional to the number of images, for IID and Non-IID."""
    figure, axes = panels(len(accuracy.SPLIT), 2.1, across=1)
    for ax, (split, name) in zip(axes, accuracy.SPLIT.items(), strict=True):
        [task, *_] = [c.tasks[0] for c in study.cells if c.item == "table2" and f"split={split}" in c.setting]
        plot_partition(task.arguments(0)["federation"].train_counts, ax)
        ax.set_title(name, loc="left")
    return figure


@drawing("Fig. 2: one round of pFedHR.", scheme=True)
def fig2(study):
    """Blocks of three networks, three groups of blocks, two candidates, and the clients that learn from them."""
    figure, ax = plt.subplots(figsize=(WIDE, 4.6))
    ax.set(xlim=(-0.4, 6.6), ylim=(-4.1, 3.3))
    ax.set_axis_off()

    def chain(x: float, y: float, name: str, at: float, step: float, blocks: list[tuple[int, str]]) -> None:
        ax.text(x, y, name, ha="center", va="center")
        for k, (b, block) in enumerate(blocks):
            look = {"facecolor": PALETTE[b], "edgecolor": BLACK, "linewidth": 0.6}
            box(ax, (at + step * k, y), (0.3, 0.5), block, **look)

    for x, y, text in (
        (1.4, 3.0, "1 cut the uploads\ninto blocks"),
        (4.9, 3.0, "2 group similar blocks\n(equations 3, 4)"),
        (2.9, -0.85, "3 chain a block of each group,\nstitch, train on public images"),
        (3.1, -3.9, "4 each client learns from its labels and from\nthe candidate most similar to its own network"),
    ):
        ax.text(x, y, text, ha="center", va="center")
    for b, blocks in enumerate(("CCFF", "CCCFF", "CCCCFF")):
        chain(0.1, 2 - b, f"client {b + 1}", 0.8, 0.36, [(b, block) for block in blocks])
    for k, block in enumerate("CCF"):
        chain(4.2, 2 - k, f"group {k + 1}", 4.9, 0.36, [(b, block) for b in range(3)])
    for m, order in enumerate(((1, 2, 0), (2, 0, 1))):
        chain(4.7, -1.7 - m, f"teacher of client {2 - m}", 2.4, 0.6, list(zip(order, "CCF", strict=True)))
        ax.plot([2.7, 3.3], [-1.7 - m] * 2, "D", color="white", markeredgecolor="black", markersize=4)
    arrow(ax, (3.1, 1), (3.7, 1))
    arrow(ax, (5.6, -0.4), (4.2, -1.4), bend=-0.35)
    arrow(ax, (2.0, -2.2), (0.1, -0.5), bend=-0.3)
    return figure


def stitched(before: Link | None, link: Link) -> bool:
    """True if a stitch connects a block with the one before it (None: the start), unless they are neighbours."""
    return link[1] != 1 if before is None else before != (link[0], link[1] - 1)


def plot_chain(networks: Networks, labels: Sequence[str], colors: Sequence[str], chain: Chain, ax: Axes) -> None:
    """Draw a candidate inside the networks that its blocks come from, each in its colour."""
    chosen, ends = set(chain), max(map(len, networks)) + 1
    for b, names in enumerate(networks):
        for h, name in enumerate(names, 1):
            _box(ax, (h, b), name, colors[b], (b, h) in chosen)
    for before, (b, h) in zip([None, *chain], chain, strict=False):
        start = (0, b) if before is None else (before[1], before[0])
        _arrow(ax, start, (h, b), stitched(before, (b, h)))
    b, h = chain[-1]
    if h < len(networks[b]):
        _box(ax, (ends, b), "new", GREY, True)
        _arrow(ax, (h, b), (ends, b), stitch=False)
    ax.text(0, chain[0][0], "x", ha="center", va="center")
    ax.set(xlim=(-0.4, ends + 0.6), ylim=(len(networks) - 0.4, -0.6), xticks=range(1, ends), xlabel="depth")
    ax.set_yticks(range(len(networks)), labels)
    key = [Line2D([], [], label="stitch", **STITCH)]
    ax.legend(handles=key, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.1, frameon=False)
    bare(ax)


def plot_candidates(networks: Networks, candidates: Sequence[Chain], notes: Sequence[str], ax: Axes) -> None:
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


def plot_block_map(distances: np.ndarray, names: Sequence[str], groups: Sequence[int], ax: Axes) -> None:
    """Draw the similarity of blocks, CKA of inputs + CKA of outputs = 1 / distance, with a frame for each group."""
    order = np.argsort(groups, kind="stable")
    image = ax.imshow(1 / distances[np.ix_(order, order)], vmin=0, vmax=2, cmap="viridis")
    edges = [0, *(np.flatnonzero(np.diff(np.asarray(groups)[order])) + 1), len(order)]
    for low, high in pairwise(edges):
        size = high - low
        ax.add_patch(Rectangle((low - 0.5, low - 0.5), size, size, fill=False, edgecolor="white", linewidth=1.5))
    ax.set_yticks(range(len(order)), [str(names[i]) for i in order], fontsize=min(7, 180 / len(order)))
    ax.set_xticks([])
    ax.grid(False)
    ax.tick_params(length=0)
    ax.figure.colorbar(image, ax=ax, label="CKA in + CKA out", fraction=0.05, pad=0.02, aspect=20)


def _box(ax: Axes, centre: tuple[float, float], name: str, color: str, chosen: bool) -> None:
    x, y = centre
    face, edge, alpha = (color, "black", None) if chosen else ("white", color, 0.6)
    corner = (x - WIDTH / 2, y - HEIGHT / 2)
    ax.add_patch(Rectangle(corner, WIDTH, HEIGHT, linewidth=0.8, zorder=2, facecolor=face, edgecolor=edge, alpha=alpha))
    bright = np.dot(to_rgb(color), (0.2126, 0.7152, 0.0722)) > 0.5  # relative luminance
    ink = ("black" if bright else "white") if chosen else "#6E6E6E"
    ax.text(x, y, name, ha="center", va="center", fontsize=5.5, color=ink, zorder=5)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], stitch: bool) -> None:
    """Draw an arrow, straight to another row or the next block; within a row it passes above the blocks between."""
    tail, tip = (start[0] + (WIDTH / 2 if start[0] else 0.15), start[1]), (end[0] - WIDTH / 2, end[1])
    lane = start[1] - (0.43 if start[1] == end[1] and end[0] > start[0] + 1 else 0)
    way = [tail, (tail[0] + 0.1, lane), (tip[0] - 0.1, lane), tip] if lane != start[1] else [tail, tip]
    line = FancyArrowPatch(path=Path(way), arrowstyle="-|>", mutation_scale=7, linewidth=1.0, color="black", zorder=3)
    ax.add_patch(line)
    if stitch:
        ax.plot((tail[0] + tip[0]) / 2, (way[1][1] + way[-2][1]) / 2, **STITCH)


def first_run(study) -> Row:
    """The run in the figures: the first seed of pFedHR on the first data set and split."""
    rows = distillation.first(study)
    [task, seed] = rows.loc[rows["teacher"] == PRINTED, ["tasks", "seed"]].iloc[0]
    return study.rows[task, seed]


def pool(row: Row, seen: Round) -> tuple[list[list[str]], list[str]]:
    """Names of the blocks of every upload, and the client and architecture of each upload."""
    names = list(row.kept["architectures"].items())
    short = [names[n][0].split("_")[0].upper() for n in seen.networks]
    whose = [f"client {i} ({net})" for i, net in zip(seen.clients, short, strict=True)]
    return [names[n][1] for n in seen.networks], whose


@drawing("The last round of a run: blocks, groups and candidates.")
def last_round(study):  # a run of Table 2
    """Similarity of all pairs of blocks, with frames around groups, and the candidates as rows of blocks."""
    row = first_run(study)
    seen = unpacked(row.kept["full"][-1])
    blocks, whose = pool(row, seen)
    figure, (left, right) = plt.subplots(2, 1, figsize=(WIDE, 5.6), height_ratios=[1.5, 1])
    words = [f"{whose[b].removeprefix('client ')} {blocks[b][h - 1]}" for b, h in seen.group]
    plot_block_map(seen.distance, words, list(seen.group.values()), left)
    left.set_title("similarity of blocks; frames are groups")
    pairs = list(zip(seen.clients, seen.match, strict=True))
    clients = [", ".join(str(i) for i, m in pairs if m == j) for j in range(len(seen.candidates))]
    if seen.candidates:
        plot_candidates(blocks, seen.candidates, [own and f"to {own}" for own in clients], right)
    right.set_title("candidates, and the clients that learn from them")
    handles = [Rectangle((0, 0), 1, 1, color=PALETTE[b]) for b in range(len(whose))]
    right.legend(handles, whose, loc="lower center", bbox_to_anchor=(0.45, -0.35), ncols=2)
    return figure


@last_round.says
def _(study):
    last = first_run(study).kept["full"][-1]
    t, seen = last["round"], unpacked(last)
    mixed = sum(len({b for b, _ in chain}) > 1 for chain in seen.candidates)
    right, used = [100 * share for share in seen.right if share >= 0], len({j for j in seen.match if j >= 0})
    text = f"{mixed} of {len(seen.candidates)} candidates of round {t} combine blocks of several clients (colours)"
    shares = " to ".join(dict.fromkeys(f"{end:.0f}" for end in (min(right, default=0), max(right, default=0))))
    taught = f"{used} of them are teachers, with an accuracy of {shares} % on their clients' training images"
    return f"{text}; {taught}." if right else f"{text}."


@item("Candidates per round (M) and rounds without a candidate (none) [%], by the number of groups.", rows="K")
def candidates(sizes):
    """Candidates per round, and rounds without a candidate, by the number of groups."""
    for i, (metric, name) in product(range(len(GROUPS)), {"M": "M by groups", "none": "none by groups"}.items()):
        for cell in accuracy.of_pfedhr(sizes, **{metric: lambda row, i=i, name=name: row.kept[name][i]}):
            yield cell._replace(setting=f"{cell.setting};K={GROUPS[i]}")


@candidates.shows
def _(study):
    numbers = study.numbers("candidates").astype({"K": int})
    mean = numbers.pivot_table(index="K", columns="metric", values="value")
    text = trend(mean["M"], "groups", "The number of candidates per round", "")
    most = " and ".join(map(str, mean.index[mean["none"] == mean["none"].max()]))
    yield f"{text} With {most} groups {mean['none'].max():.0f} % of the rounds have no candidate."
    numbers = accuracy.by_labels(numbers.assign(method=numbers["split"].map(accuracy.SPLIT)))
    by, look = ["data", "metric"], accuracy.split_style
    yield line_panels(numbers, "K", by, accuracy.panel, named=str, look=look, xlabel="groups K", ylabel="", height=1.9)


@item("Candidates of the search and their composition; shares of rounds and of clients [%].", rows="metric")
def composition(sizes):  # the smallest changes of the mean from K to K + 1, K = 2 to 5; the largest share, K = 2 to 8
    reads = {
        "fall of M": lambda row: float(-np.diff(row.kept["M by groups"][:5]).max()),
        "rise of none": lambda row: float(np.diff(row.kept["none by groups"][:5]).min()),
        "most without any": lambda row: float(max(row.kept["none by groups"])),
    }
    metrics = ("two or more", "kinds", "repeated", "kept", "fewer groups", "unmatched")
    return accuracy.of_pfedhr(sizes, *metrics, **reads)


@item("Fig. 7: teacher of one client in the first and in the last round; shares [%].", rows="metric")
def fig7(sizes):
    """Blocks of all uploads in two rounds; those of one client's teacher are filled and joined by arrows."""
    return accuracy.of_pfedhr(sizes, "changed", "sources", "legal")


@fig7.shows
def _(study):
    row = first_run(study)
    rounds = {full["round"]: unpacked(full) for full in row.kept["full"]}
    taught = [{i for i, m in zip(seen.clients, seen.match, strict=True) if m >= 0} for seen in rounds.values()]
    client = min(enough(set.intersection(*taught)))
    chains = {t: seen.candidates[seen.match[seen.clients.index(client)]] for t, seen in rounds.items()}
    told = " and ".join(f"{len({upload for upload, _ in chain})} clients in round {t}" for t, chain in chains.items())
    text = f"The teacher of client {client} consists of blocks (filled) from the uploads of {told}"
    yield f"{text}. Each colour is a client, grey a new classifier."
    colors = dict(zip(sorted({i for seen in rounds.values() for i in seen.clients}), cycle(PALETTE), strict=False))
    figure, axes = panels(len(rounds), 1.6, across=1)
    for ax, (t, seen) in zip(axes, rounds.items(), strict=True):
        plot_chain(*pool(row, seen), [colors[i] for i in seen.clients], chains[t], ax)
        right = 100 * seen.right[seen.clients.index(client)]
        ax.set_title(f"round {t}: teacher of client {client}, accuracy {right:.0f} %", loc="left")
    yield figure


def draw_teachers(row: Row, t: int) -> Figure:
    """The teachers of round t, one row for each client: their blocks, and the accuracies of teacher and client."""
    rows, names = row.accuracy.set_index(["round", "client"])["accuracy"], list(row.kept["architectures"].values())
    taught = [lesson[1:] for lesson in row.kept["lessons"] if lesson[0] == t]
    kinds = {owner: n for _, _, blocks in taught for owner, n, _ in blocks}
    clients = sorted(kinds.keys() | {i for i, *_ in taught})
    seat = {client: position for position, client in enumerate(clients)}
    chains = [[(seat[owner], h) for owner, _, h in blocks] for *_, blocks in taught]
    notes = [f"teacher {right:.0f} %, client {rows[t, i]:.0f} %" for i, right, _ in taught]
    figure, ax = plt.subplots(figsize=(TEXT, 2.4))
    plot_candidates([names[kinds.get(client, 0)] for client in clients], chains, notes, ax)
    ax.set_yticks(range(len(taught)), [f"client {i}" for i, *_ in taught])
    for (i, *_), tick in zip(taught, ax.get_yticklabels(), strict=True):
        tick.set_color(PALETTE[seat[i]])
    ax.set_xlim(ax.get_xlim()[0], ax.get_xlim()[1] + 1.2)
    ax.set_title(f"after round {t}: the teacher of each client (colours: clients; diamonds: stitches)", loc="left")
    return figure
