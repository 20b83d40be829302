"""Branches and who chooses which: figures of pFedMB, and what they say."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.papers.pfedmb.draw import LAYERS, WEIGHTING, rows_that_count
from fedlib.report.marks import arrow, box, mark_chance, name_ends, panels, plot_nothing, seeds_and_mean
from fedlib.report.style import BLACK, GREY, PALETTE, RED, WIDE
from fedlib.studies.study import Study

# -- Figs. 1 and 2: the method -----------------------------------------------------------------------------------------


def fig1_2(study: Study) -> Figure:
    """A layer with three branches, and three clients that share them."""
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(WIDE, 4.8))
    for ax, title in ((upper, "one layer of one client"), (lower, "the clients share the branches")):
        ax.set(xlim=(0, 10), ylim=(0, 10), title=title)
        ax.set_axis_off()
    for b, (y, alpha) in enumerate(zip((8, 5, 2), (0.1, 0.8, 0.1), strict=True)):
        box(upper, (3.2, y), (1.8, 1.8), f"$W_{b + 1}$", PALETTE[b])
        arrow(upper, (1.2, 5), (2.3, y), GREY, 1)
        arrow(upper, (4.1, y), (7.0, 5), PALETTE[b], 0.6 + 4 * alpha)
        text = rf"$\alpha_{b + 1}={alpha}$"
        upper.text(5.4, (7.5, 5.7, 2.4)[b], text, ha="center", color=PALETTE[b])
    upper.text(0.7, 5, "$x$", ha="center", va="center", fontsize=11)
    upper.text(7.4, 5, "+", ha="center", va="center", fontsize=13)
    arrow(upper, (7.8, 5), (9.6, 5), width=1)
    chosen = np.array([[0.9, 0.05, 0.05], [0.85, 0.1, 0.05], [0.05, 0.15, 0.8]])  # [clients, branches]
    for b, x in enumerate((2, 5, 8)):
        box(lower, (x, 8.7), (1.8, 1.8), f"$W_{b + 1}$", PALETTE[b])
    for i, x in enumerate((2, 5, 8)):
        box(lower, (x, 2.4), (2.5, 1.8), f"client {i + 1}")
        lower.text(x, 0.4, r"$\alpha$ = " + ", ".join(f"{a:g}" for a in chosen[i]), ha="center")
        for b, to in enumerate((2, 5, 8)):
            arrow(lower, (x, 3.3), (to, 7.8), PALETTE[b], 0.3 + 4 * chosen[i, b])
    return figure


# -- who uses which branch: Fig. 3 -------------------------------------------------------------------------------------


def map_of(ax: Axes, alpha: np.ndarray, title: str) -> None:
    """A heat map of alpha [clients, branches], with a line between pairs."""
    ax.imshow(alpha, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    for line in range(2, len(alpha), 2):
        ax.axhline(line - 0.5, color="white", linewidth=1.2)
    ax.set(xticks=range(alpha.shape[1]), xticklabels=range(1, alpha.shape[1] + 1), yticks=range(len(alpha)))
    ax.set_title(title)
    ax.tick_params(length=0)
    ax.grid(False)
    ax.spines[:].set_visible(False)


def mark(figure: Figure, axes: np.ndarray) -> None:
    """The colour bar of heat maps of alpha."""
    figure.colorbar(
        axes.flat[0].images[0], ax=axes.ravel().tolist(), label=r"$\alpha$", aspect=25, pad=0.02, shrink=0.8
    )


def hero(study: Study) -> Figure:
    """A panel for each pair: the weights of the branches over the rounds, for both clients of the pair."""
    rows = [row for row in rows_that_count(study, "fig3", "pfedmb") if "alpha" in row.kept]
    if not rows:
        return plot_nothing()
    rounds, alpha = rows[0].kept["alpha_rounds"], np.array(rows[0].kept["alpha"])  # [rounds, clients, B]
    figure, axes = panels(5, 1.5, across=2, sharex=True, sharey=True)
    for pair, ax in enumerate(axes):
        for client, line in ((2 * pair, "-"), (2 * pair + 1, (0, (2, 1)))):
            for b in range(alpha.shape[2]):
                ax.plot(rounds, alpha[:, client, b], color=PALETTE[b], linestyle=line, linewidth=1.5)
        winner = int(alpha[-1, 2 * pair : 2 * pair + 2].mean(0).argmax())
        ax.set_title(f"clients {2 * pair} and {2 * pair + 1}: classes {2 * pair}, {2 * pair + 1}")
        ax.text(0.97, 0.97, f"branch {winner + 1}", transform=ax.transAxes, ha="right", va="top", color=PALETTE[winner])
        ax.set(ylim=(0, 1.25), yticks=(0, 0.5, 1), xticks=(rounds[0], rounds[-1]))
    for ax in axes[-2:]:
        ax.set_xlabel("round")
        ax.tick_params(labelbottom=True)
    figure.supylabel(r"weight $\alpha$ of a branch; solid and dashed: the two clients", fontsize=8)
    return figure


def says_hero(study: Study) -> str:
    """How far the pairs are in the seed that is drawn, and in the others."""
    rows = [row for row in rows_that_count(study, "fig3", "pfedmb") if "alpha" in row.kept]
    if not rows:
        return "Nothing to say yet: no run has finished at this size."
    own = np.array(rows[0].kept["alpha"])[-1].argmax(1)
    agree, used = int(sum(own[0::2] == own[1::2])), rows[0].kept["branches_used"][-1]
    perfect = sum(row.kept["rand_indices"][-1] >= 0.999 for row in rows)
    last, seeds = rows[0].kept["alpha_rounds"][-1], "seeds" if len(rows) > 1 else "seed"
    return (
        f"Look at the two kinds of line in each panel, one for each client: after round {last} "
        f"both clients of a pair prefer the same branch in {agree} of 5 pairs, and the pairs prefer {used} different "
        f"branches. Nobody told them who is alike. With {perfect} of {len(rows)} {seeds} the choices are exactly the "
        f"five pairs."
    )


def fig3(study: Study) -> Figure:
    """Heat maps of alpha: left with weighting, right without, a row for each of some rounds."""
    found = {method: rows_that_count(study, "fig3", method)[:1] for method in WEIGHTING}
    found = {method: rows[0] for method, rows in found.items() if rows and "alpha" in rows[0].kept}
    if not found:
        return plot_nothing()
    rounds = next(iter(found.values())).kept["alpha_rounds"]
    some = np.unique(np.geomspace(1, len(rounds), min(4, len(rounds))).round().astype(int) - 1)
    size = (WIDE, 0.6 + 1.3 * len(some))
    figure, axes = plt.subplots(len(some), len(found), figsize=size, sharex=True, sharey=True, squeeze=False)
    for column, (method, one) in zip(axes.T, found.items(), strict=True):
        for ax, at in zip(column, some, strict=True):
            map_of(ax, np.array(one.kept["alpha"][at]), WEIGHTING[method] if ax in axes[0] else "")
        column[-1].set_xlabel("branch")
    for ax, at in zip(axes[:, 0], some, strict=True):
        ax.set_ylabel(f"round {rounds[at]}\nclient")
    mark(figure, axes)
    return figure


def rounds_of(study: Study) -> list[int]:
    """The rounds of which Fig. 3 has alpha."""
    rows = [row for row in rows_that_count(study, "fig3", "pfedmb") if "alpha" in row.kept]
    return rows[0].kept["alpha_rounds"] if rows else []


def at_round(study: Study, t: int) -> Figure:
    """The heat maps of one round side by side: with weighting, and without; for a slider."""
    found = {method: rows_that_count(study, "fig3", method)[0] for method in WEIGHTING}
    figure, axes = plt.subplots(1, 2, figsize=(WIDE, 2.6), sharey=True)
    for ax, (method, one) in zip(axes, found.items(), strict=True):
        at, rand = one.kept["alpha_rounds"].index(t), one.kept["rand_indices"][t - 1]
        map_of(ax, np.array(one.kept["alpha"][at]), f"{WEIGHTING[method]}: Rand index {rand:.2f}")
        ax.set_xlabel("branch")
    axes[0].set_ylabel("client")
    mark(figure, axes)
    return figure


def fig3_rand(study: Study) -> Figure:
    """How well the choices give back the pairs, by round."""
    figure, ax = plt.subplots(figsize=(WIDE, 2.3))
    ends = {}
    for method, words in WEIGHTING.items():
        rows = [
            row.kept["rand_indices"] for row in rows_that_count(study, "fig3", method) if "rand_indices" in row.kept
        ]
        if rows:
            color = RED if method == "pfedmb" else BLACK
            curves = pd.DataFrame(rows, columns=range(1, len(rows[0]) + 1)).T
            ends[words] = seeds_and_mean(ax, curves, color)
    if not ends:
        plt.close(figure)
        return plot_nothing()
    ax.set(xlabel="round", ylabel="adjusted Rand index", ylim=(-0.05, 1.08))
    mark_chance(ax, 0, text="choices at random")
    name_ends(ax, ends)
    return figure


def says_fig3(study: Study) -> str:
    """Who is nearer to one branch for each pair, and who is there first."""
    found = {
        method: [row.kept for row in rows_that_count(study, "fig3", method) if "rand_indices" in row.kept]
        for method in WEIGHTING
    }
    if not all(found.values()):
        return "With and without weighting cannot be compared yet: one of them has not been run."
    end, mean = ({m: float(np.mean([f(k["rand_indices"]) for k in kept])) for m, kept in found.items()}
                 for f in (lambda rand: rand[-1], np.mean))  # fmt: skip
    used = {method: float(np.mean([k["branches_used"][-1] for k in kept])) for method, kept in found.items()}
    gap = mean["pfedmb"] - mean["pfedmb-avg"]
    faster = "earlier with weighting" if gap > 0.01 else "earlier without weighting" if gap < -0.01 else "equally fast"
    return (
        f"At the end the five pairs use {used['pfedmb']:.3g} branches with weighting and {used['pfedmb-avg']:.3g} "
        f"without (mean over seeds); the Rand index ends at {end['pfedmb']:.2f} and {end['pfedmb-avg']:.2f}. As a mean "
        f"over all rounds it is {mean['pfedmb']:.2f} and {mean['pfedmb-avg']:.2f}: the pairs are found {faster}."
    )


def layers(study: Study) -> Figure:
    """Heat maps of alpha at the end, one for each layer."""
    rows = [row for row in rows_that_count(study, "layers", "pfedmb") if "layers" in row.kept]
    if not rows:
        return plot_nothing()
    kept = rows[0].kept
    figure, axes = panels(len(LAYERS), 1.7, across=3, sharex=True, sharey=True)
    for ax, (name, words) in zip(axes, LAYERS.items(), strict=True):
        map_of(ax, np.array(kept["alpha"][name]), f"{words}\nRand index {kept['rand_indices'][name][-1]:.2f}")
        ax.set(xlabel="branch", ylabel="client")
        ax.label_outer()
    mark(figure, np.array(axes))
    return figure


def says_layers(study: Study) -> str:
    """The layer whose choices follow the pairs most, and the one with the least."""
    frame = study.numbers("layers", metric="rand_indices")
    if frame.empty:
        return "Nothing to say yet: the run with one alpha for each layer has not finished."
    rand = frame.groupby("layer", sort=False)["value"].mean()
    top, low = str(rand.idxmax()), str(rand.idxmin())
    return (
        f"The choices follow the pairs most in layer {LAYERS[top]} (Rand index {rand[top]:.2f}) and least in "
        f"{LAYERS[low]} ({rand[low]:.2f}): with an alpha of its own, each layer finds its own groups of clients."
    )
