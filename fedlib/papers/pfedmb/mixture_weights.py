"""pFedMB: the weights alpha of the branches (Figs. 1 to 3), and the groups of clients that they form."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import fedlib as fl
from fedlib.papers.pfedmb.measure import best, best_rows, choices_by_layer
from fedlib.papers.pfedmb.sizes import PAIRS, B, paired, tried_on_pairs
from fedlib.report.marks import arrow, box, panels
from fedlib.report.panels import line_panels
from fedlib.report.style import BLACK, GREY, PALETTE, RED, WIDE
from fedlib.studies.item import Cell, drawing, enough, item
from fedlib.studies.rows import Row
from fedlib.studies.tasks import Kept

WEIGHTING = {"pfedmb": "with weighting", "pfedmb-avg": "without"}
LAYERS = {"conv1.0": "convolution 1", "conv2.0": "convolution 2", "fc1.0": "linear 1", "fc2.0": "linear 2"}
LAYERS |= {"classifier": "classifier"}  # from input to output, in words


def traced(study, method: str = "pfedmb", item: str = "fig3") -> list[Kept]:
    """Kept values of the best run of each seed, of runs that keep alpha."""
    return enough([row.kept for row in best_rows(study, item, method) if "alpha" in row.kept])


def alpha_maps(maps: Mapping[str, object], across: int) -> Figure:
    """Heat maps of alpha [clients, branches] by title, with lines between pairs."""
    figure, axes = panels(len(maps), 1.7, across, sharex=True, sharey=True)
    for ax, (title, alpha) in zip(axes, maps.items(), strict=True):
        clients, branches = np.shape(alpha)
        image = ax.imshow(np.array(alpha), vmin=0, vmax=1, cmap="viridis", aspect="auto")
        for y in range(2, clients, 2):
            ax.axhline(y - 0.5, color="white", linewidth=1.2)
        ax.set(title=title, xlabel="branch", ylabel="client", yticks=range(clients))
        ax.set_xticks(range(branches), range(1, branches + 1))
        ax.label_outer()
        ax.tick_params(length=0)
        ax.grid(False)
    figure.colorbar(image, ax=axes, label=r"$\alpha$", aspect=25, pad=0.02, shrink=0.8)
    return figure


@drawing(
    "Figs. 1 and 2: a layer with three branches, and clients that share them; wide arrows have a large alpha.",
    scheme=True,
)
def fig1_and_2(study):
    """Above: a weighted sum of three branches. Below: three clients, two of which mainly use the same branch."""
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(WIDE, 4.8))
    for ax, title in ((upper, "one layer of one client"), (lower, "the clients share the branches")):
        ax.set(xlim=(0, 10), ylim=(0, 10), title=title)
        ax.set_axis_off()
    for b, (y, at, alpha) in enumerate(zip((8, 5, 2), (7.5, 5.7, 2.4), (0.1, 0.8, 0.1), strict=True)):
        box(upper, (3.2, y), (1.8, 1.8), f"$W_{b + 1}$", PALETTE[b])
        arrow(upper, (1.2, 5), (2.3, y), GREY, 1)
        arrow(upper, (4.1, y), (7.0, 5), PALETTE[b], 0.6 + 4 * alpha)
        upper.text(5.4, at, rf"$\alpha_{b + 1}={alpha}$", ha="center", color=PALETTE[b])
    upper.text(0.7, 5, "$x$", ha="center", va="center", fontsize=11)
    upper.text(7.4, 5, "+", ha="center", va="center", fontsize=13)
    arrow(upper, (7.8, 5), (9.6, 5), width=1)
    weights = ((0.9, 0.05, 0.05), (0.85, 0.1, 0.05), (0.05, 0.15, 0.8))  # [clients, branches]
    for i, (x, alphas) in enumerate(zip((2, 5, 8), weights, strict=True)):
        box(lower, (x, 8.7), (1.8, 1.8), f"$W_{i + 1}$", PALETTE[i])
        box(lower, (x, 2.4), (2.5, 1.8), f"client {i + 1}")
        lower.text(x, 0.4, r"$\alpha$ = " + ", ".join(f"{a:g}" for a in alphas), ha="center")
        for b, a in enumerate(alphas):
            arrow(lower, (x, 3.3), (2 + 3 * b, 7.8), PALETTE[b], 0.3 + 4 * a)
    return figure


@drawing("Weights alpha of five branches (colours) by round; solid and dashed: the two clients of a pair.")
def mixture_weights(study):  # the runs of Fig. 3
    """Five panels, one for each pair of clients, with the weights of five branches over the rounds."""
    kept, *_ = traced(study)
    rounds, alpha = kept["alpha_rounds"], np.array(kept["alpha"])  # [rounds, clients, B]
    figure, axes = panels(5, 1.5, across=2, sharex=True, sharey=True)
    for one, ax in zip(range(0, 10, 2), axes, strict=True):
        for (client, line), b in product(((one, "-"), (one + 1, (0, (2, 1)))), range(alpha.shape[2])):
            ax.plot(rounds, alpha[:, client, b], color=PALETTE[b], linestyle=line, linewidth=1.5)
        top = int(alpha[-1, one : one + 2].mean(0).argmax())
        ax.text(0.97, 0.97, f"branch {top + 1}", transform=ax.transAxes, ha="right", va="top", color=PALETTE[top])
        title = f"clients {one} and {one + 1}: classes {one}, {one + 1}"
        ax.set(title=title, ylim=(0, 1.25), yticks=(0, 0.5, 1), xticks=(rounds[0], rounds[-1]))
    for ax in axes[-2:]:
        ax.set_xlabel("round")
        ax.tick_params(labelbottom=True)
    figure.supylabel(r"weight $\alpha$ of a branch; solid and dashed: the two clients", fontsize=8)
    return figure


@mixture_weights.says
def _(study):
    kept = traced(study)
    top, used = np.array(kept[0]["alpha"])[-1].argmax(1), kept[0]["branches_used"][-1]
    exact = sum(one["rand_indices"][-1] >= 0.999 for one in kept)
    return (
        f"After round {kept[0]['alpha_rounds'][-1]} both clients of a pair prefer the same branch (colour) in "
        f"{(top[::2] == top[1::2]).sum()} of 5 pairs, and the pairs prefer {used} different branches, although no "
        f"client knows the labels of another. The clusters are exactly the five pairs in {exact} of {len(kept)} seeds."
    )


@item(
    "Fig. 3: weights alpha of ten clients (rows) for five branches (columns); white lines separate the pairs.",
    rows="metric",
)
def fig3(sizes):
    """Heat maps of alpha after some of the rounds, left with weighted averaging and right without."""
    names = ("within", "between", "branches_used", "mean_branches", "all_apart", "rand_indices")
    for method, name in product(WEIGHTING, names):
        tasks = tried_on_pairs(sizes, method)
        yield Cell(method, "cifar10", PAIRS, tasks, partial(of_choices, name), name, sizes.seeds)


def of_choices(name: str, *rows: Row) -> float:
    """A number of Fig. 3, from the best run; NaN if it has diverged."""
    kept = best(rows).kept
    if "branches_used" not in kept:
        return np.nan
    used = kept["branches_used"]
    return float({**kept, "mean_branches": [np.mean(used)], "all_apart": [used[-1] == 5]}[name][-1])


@fig3.shows
def _(study):
    rand = rand_by_round(study).pivot_table(index="round", columns="method", values="value")[[*WEIGHTING]]
    (mean, mean_without), (end, end_without) = rand.mean(), rand.iloc[-1]
    n, (used, used_without) = len(traced(study)), study.means("fig3", "method", *WEIGHTING, metric="branches_used")
    yield (
        f"The maps show seed 0; the numbers are means over {n} seed{'s' * (n != 1)}. "
        f"In the last round the five pairs prefer {used:.3g} branches with weighted averaging (left) and "
        f"{used_without:.3g} without (right); the adjusted Rand index (ARI) of branches and pairs is {end:.2f} and "
        f"{end_without:.2f}, and its mean over all rounds {mean:.2f} and {mean_without:.2f}."
    )
    rounds = alpha_rounds(study)
    some = np.geomspace(1, len(rounds), min(4, len(rounds))).round().astype(int)
    yield alpha_at(study, [rounds[t - 1] for t in dict.fromkeys(some)])


def alpha_rounds(study) -> list[int]:
    """The rounds for which Fig. 3 has alpha."""
    return traced(study)[0]["alpha_rounds"]


def alpha_at(study, rounds: Sequence[int]) -> Figure:
    """Heat maps of alpha after some rounds, with weighting and without."""
    first, maps = {words: traced(study, method)[0] for method, words in WEIGHTING.items()}, {}
    for t, (words, kept) in product(rounds, first.items()):
        title = f"round {t}, {words}\nARI {kept['rand_indices'][t - 1]:.2f}"
        maps[title] = kept["alpha"][kept["alpha_rounds"].index(t)]
    return alpha_maps(maps, across=len(first))


def rand_by_round(study) -> pd.DataFrame:
    """Adjusted Rand index of the choices with the pairs: method, seed, round, value."""
    runs = [(method, seed, kept) for method in WEIGHTING for seed, kept in enumerate(traced(study, method))]
    table = [(m, seed, t, value) for m, seed, kept in runs for t, value in enumerate(kept["rand_indices"], 1)]
    return pd.DataFrame(table, columns=["method", "seed", "round", "value"])


@drawing("Fig. 3 as one number: adjusted Rand index of preferred branches and pairs by round (1: equal; 0: chance).")
def fig3_rand_index(study):  # the runs of Fig. 3
    """Adjusted Rand index by round, with weighted averaging (red) and without (black); thin lines are seeds."""
    look = {"pfedmb": {"color": RED}, "pfedmb-avg": {"color": BLACK}}
    text = {"named": WEIGHTING.get, "look": look.get, "ylabel": "adjusted Rand index", "ylim": (-0.05, 1.08)}
    return line_panels(rand_by_round(study), "round", (), chance=0.0, **text)


@item(
    "A separate alpha for each layer: its values in the last round, and the adjusted Rand index (ARI) with the pairs.",
    rows="layer",
)
def alpha_by_layer(sizes):
    """Five heat maps of alpha, ten clients by five branches, one for each layer of the network."""
    task = paired(sizes, fl.pfedmb(B, alpha_lr=sizes.pair_alpha_lr, gain=sizes.gain), keep=choices_by_layer)
    last = {name: lambda row, name=name: row.kept.get("rand_indices", {}).get(name, [np.nan])[-1] for name in LAYERS}
    for layer, read in last.items():
        yield Cell("pfedmb", "cifar10", f"{PAIRS};layer={layer}", (task,), read, "rand_indices")


@alpha_by_layer.shows
def _(study):
    rand = study.means("alpha_by_layer", "layer")
    low, top = (f"{LAYERS[layer]} ({rand[layer]:.2f})" for layer in (rand.idxmin(), rand.idxmax()))
    text = "With a separate alpha, each layer forms its own clusters: the adjusted Rand index (ARI) with the pairs"
    yield f"{text} is highest in {top} and lowest in {low}."
    first, *_ = traced(study, item="alpha_by_layer")
    rand, maps = first["rand_indices"], first["alpha"]
    maps = {f"{words}\nARI {rand[name][-1]:.2f}": maps[name] for name, words in LAYERS.items() if name in maps}
    yield alpha_maps(maps, across=3)
