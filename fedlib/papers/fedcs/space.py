"""The alignment of FedCS: figures of the map P = S Phi and of feature space, and what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from torch import Tensor
from torch.func import vmap

from fedlib.methods.fedcs import alignment as ra
from fedlib.papers.fedcs.draw import (
    WHITE,
    data_name,
    distinct,
    group_names,
    runs_of,
)
from fedlib.report import PALETTE, label
from fedlib.report.marks import arrow, box, dots, mark_chance, name_ends, plot_nothing, seeds_and_mean
from fedlib.report.style import BLACK, BLUE, GREY, RED, TEXT, WIDE
from fedlib.studies.rows import Row
from fedlib.studies.study import Study

# -- the figures -------------------------------------------------------------------------------------------------------


def scheme(study: Study) -> Figure:
    """Fig. 1 (a): where the map sits in the network and who makes it."""
    figure, ax = plt.subplots(figsize=(WIDE, 2.6))
    ax.set(xlim=(-1, 99), ylim=(-2, 38))
    ax.set_axis_off()
    places = {"image": (6, 12, GREY), "convolutions": (29, 22, BLACK), "$c = P^\\top z$": (54, 15, RED)}
    places |= {"FC1 to FC3": (76, 18, BLACK), "class": (93, 11, GREY)}
    for text, (x, width, color) in places.items():
        box(ax, (x, 32), (width, 8), text, color)
    for start, end in ((12, 18), (40, 46.5), (61.5, 67), (85, 87.5)):
        arrow(ax, (start, 32), (end, 32))
    ax.text(43, 33.5, "$z$", ha="center")
    ax.text(64, 33.5, "$c$", ha="center")
    box(ax, (22, 9), (42, 12), "$S \\approx \\Sigma_W^{-1/2}$\nmakes a client's cloud round", BLUE)
    box(ax, (77, 9), (42, 12), "$\\Phi$: first axis where\nclients differ most", RED)
    arrow(ax, (30, 15), (51, 27.5), BLUE, bend=-0.1)
    arrow(ax, (69, 15), (57, 27.5), RED, bend=0.1)
    ax.text(51.5, 18, "$P = S\\,\\Phi$", ha="center")
    text = "every 5 rounds: the sampled clients update $S$ and $\\Phi$ with their own $z$,\nthe server averages"
    ax.text(49, 0.2, text, ha="center", va="top", color=GREY)
    return figure


def fig1(study: Study) -> Figure:
    """Fig. 1 (b, c): groups of clients before and after the alignment, and how well their centres tell them apart."""
    name, rows = shown_planes(study)
    if not rows:
        return plot_nothing()
    planes = rows[0].kept["plane"]
    after = "c, later" if "c, later" in planes else "c"
    groups = group_names(study, name)[: len(planes["z"]["mean"])]
    figure = plt.figure(figsize=(WIDE, 4.6))
    upper, lower = figure.subfigures(2, 1, height_ratios=[2.9, 1.7])
    for ax, space, text in zip(upper.subplots(1, 2), ("z", after), ("before", "after more alignments"), strict=True):
        clouds_of(ax, planes[space], groups if space == after else [])
        mean = np.mean([row.kept[f"separability of {space}"] for row in rows])
        ax.set_title(f"{text}: {mean:.0f} % nearest\nto their own group's centre")
    values = study.numbers("fig1")
    values = values[values["dataset"] == name].groupby(["method", "setting"])["value"].apply(list)
    ours = next(method for method, _ in values.index if method != WHITE)
    blind = next((key for key in (f"separability of {after}", "separability of c") if (WHITE, key) in values.index), "")
    bars = [("z", ours, "separability of z", GREY), ("c, whitening only", WHITE, blind, BLUE)]
    bars += [("c, FedCS", ours, f"separability of {after}", RED)]
    found = [(text, values[method, key], color) for text, method, key, color in bars if (method, key) in values.index]
    share = lower.subplots()
    dots(share, found)
    mark_chance(share, 100 / max(len(group_names(study, name)), 1), "y")
    share.set(xlabel="nearest to their own group's centre [%], all seeds", xlim=(0, 105))
    return figure


def shown_planes(study: Study) -> tuple[str, list[Row]]:
    """The data set of Fig. 1, with feature shift if it is there, and its rows with the map nearest to the output."""
    for name in ("digit5", "mnist", "cifar10"):
        runs = runs_of(study, "fig1", name)
        for method in ("fedcs-fc3", "fedcs-fc2", "fedcs-fc1"):
            rows = [row for row in runs.get(method, []) if "plane" in row.kept]
            if rows:
                return name, rows
    return "", []


def clouds_of(ax: Axes, plane: Mapping[str, Sequence[Any]], groups: Sequence[str]) -> None:
    """Points, ellipses of 1.5 standard deviations and centres of groups, with their names."""
    for g, (middle, covariance, points) in enumerate(
        zip(*(plane[k] for k in ("mean", "covariance", "points")), strict=True)
    ):
        values, vectors = np.linalg.eigh(np.array(covariance))
        width, height = 3 * np.sqrt(np.maximum(values[::-1], 0))
        angle = np.degrees(np.arctan2(*vectors[::-1, -1]))
        ax.plot(*np.array(points).T, ".", color=PALETTE[g], markersize=2, alpha=0.5)
        ax.add_patch(Ellipse(middle, width, height, angle=angle, color=PALETTE[g], alpha=0.16, linewidth=0))
        ax.plot(*middle, "o", color=PALETTE[g], markersize=6, markeredgecolor="white")
    ax.set(xlim=(-2.7, 2.7), ylim=(-2.7, 2.7), xlabel="direction 1", ylabel="direction 2", xticks=[], yticks=[])
    ax.grid(False)
    name_ends(ax, {name: (*plane["mean"][g], PALETTE[g]) for g, name in enumerate(groups)}, weight="bold")


def eq5(study: Study) -> Figure:
    """Equation 5: the share of the largest J that nine columns of P reach."""
    rows = study.numbers("eq5")
    rows = rows[rows["dataset"] != "toy"]
    texts = {"J ratio of components": "principal components", "J ratio": "P, at the end", "J ratio, later": "P, later"}
    colors = {"J ratio of components": GREY, "J ratio": BLUE, "J ratio, later": RED}
    names = distinct(study.replace(cells=[c for c in study.cells if c.dataset != "toy"]), "eq5")
    values = rows.groupby(["dataset", "method", "setting"], sort=False)["value"].apply(list)
    groups = [
        (
            f"{data_name(study, name)}, {label(method)}: {texts[key]}",
            [100 * value for value in values[name, method, key]],
            colors[key],
        )
        for name in names
        for method in dict.fromkeys(rows["method"])
        for key in texts
        if (name, method, key) in values.index
    ]
    if not groups:
        return plot_nothing()
    figure, ax = plt.subplots(figsize=(WIDE, 0.7 + 0.32 * len(groups)))
    dots(ax, groups)
    ax.set(xlabel="of the largest J [%]", xlim=(0, 105))
    return figure


def eq12(study: Study) -> Figure:
    """Equation 12: cosines of four columns with the true directions, for either triangle."""
    rows = study.numbers("eq12").groupby("setting", sort=False)["value"].mean()
    if rows.empty:
        return plot_nothing()
    figure, ax = plt.subplots(figsize=(WIDE, 2.1))
    for k, (tau, color) in enumerate((("upper", RED), ("lower", GREY))):
        values = [rows.get(f"column {j + 1}, {tau}", np.nan) for j in range(4)]
        ax.bar(np.arange(4) + 0.38 * (k - 0.5), values, 0.36, color=color, label=f"{tau} triangle kept")
    ax.set(
        ylabel="|cosine| with the truth",
        ylim=(0, 1.25),
        xticks=range(4),
        xticklabels=[f"column {j}" for j in (1, 2, 3, 4)],
    )
    ax.set_yticks([0, 0.5, 1])
    ax.legend(ncols=2, loc="upper center")
    return figure


def eq13(study: Study) -> Figure:
    """Equation 13: how far S still is from the whitening, after a run and while the frozen network is aligned on."""
    lines = {}
    for name in distinct(study, "eq13"):
        for method, rows in runs_of(study, "eq13", name).items():
            paths = [row.kept["lag"] for row in rows if row.kept.get("lag")]
            if paths:
                lines[f"{data_name(study, name)}, {label(method)}"] = np.mean(np.array(paths, float), axis=0)
    if not lines:
        return plot_nothing()
    figure, ax = plt.subplots(figsize=(WIDE, 2.3))
    ax.set(xlabel="further alignments of the frozen network", ylabel="residual of $S$", yscale="log")
    ends = {}
    for (text, path), color in zip(lines.items(), PALETTE, strict=False):
        ends[text] = seeds_and_mean(ax, pd.DataFrame(path[:, 1:], index=path[:, 0]), color)
    name_ends(ax, ends)
    return figure


# -- the slider --------------------------------------------------------------------------------------------------------


STEPS = (0, 1, 2, 3, 5, 10, 20, 40)


@lru_cache(maxsize=1)
def five_clients() -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Five clients in the plane, long clouds side by side, [5, 80, 2]; S and Phi after every alignment."""
    drawn = torch.Generator().manual_seed(7)
    offsets = torch.linspace(-2, 2, 5)[:, None] * torch.tensor([0.5, 1.0])
    noise = torch.randn(5, 80, 2, generator=drawn) * torch.tensor([3.0, 0.4])
    z = (offsets[:, None] + noise).double()
    state = {"Phi": ra.orthonormal(torch.randn(2, 2, generator=drawn).double())}
    path = [(torch.eye(2).double() / 3, state["Phi"])]
    for _ in range(STEPS[-1]):
        passed = vmap(lambda own, sent=state: ra.ra_pass(own[None], sent, "normalised"))(z)
        mean = {name: t.mean(0) for name, t in passed.items()}
        state = {"S": mean["S"], "Phi": ra.orthonormal(mean["Phi"]), "z_g": mean["z"]}
        path.append((state["S"], state["Phi"]))
    return z, path


def clouds(step: float) -> Figure:
    """The five clients before the map of an alignment, after S alone, and after P = S Phi."""
    z, path = five_clients()
    S, Phi = path[int(step)]
    figure, axes = plt.subplots(1, 3, figsize=(TEXT, 2.6))
    titles = ("$z$", f"$S z$ after {int(step)} alignments", "$\\Phi^\\top S z$: the same, turned")
    spaces = [points - points.mean((0, 1)) for points in (z, z @ S, z @ S @ Phi)]
    sides = [1.1 * float(points.norm(dim=-1).max()) for points in spaces]
    for ax, points, side, title in zip(axes, spaces, sides, titles, strict=True):
        for cloud, color in zip(points, PALETTE, strict=False):
            ax.plot(*cloud.T, ".", color=color, markersize=3, alpha=0.6)
            ax.plot(*cloud.mean(0), "o", color=color, markersize=7, markeredgecolor="white")
        ax.set(title=title, xlabel="direction 1", xlim=(-side, side), ylim=(-side, side), xticks=[], yticks=[])
        ax.set_aspect("equal")
        ax.grid(False)
    axes[0].set_ylabel("direction 2")
    return figure


# -- sentences ---------------------------------------------------------------------------------------------------------


def says_fig1(study: Study) -> str:
    """How well groups can be told apart before the map, after it, and with random directions."""
    name, rows = shown_planes(study)
    if not rows:
        return ""
    values = study.numbers("fig1")
    values = values[values["dataset"] == name].groupby(["method", "setting"])["value"].mean()
    method = next(m for m, _ in values.index if m != WHITE)
    later, during = (method, "separability of c, later") in values.index, values.get((method, "separability of c"))
    after = "separability of c, later" if later else "separability of c"
    z, c = values[method, "separability of z"], values[method, after]
    text = (
        f"Look at the centres: {z:.0f} % of test images lie nearest to the centre of their own group before the map, "
    )
    text += f"{during:.0f} % after the map as the run left it, " if later else ""
    text += f"{c:.0f} % after " + ("more alignments of the frozen network" if later else "it")
    blind = [values[WHITE, key] for key in (after, "separability of c") if (WHITE, key) in values.index]
    if blind:
        text += f", {blind[0]:.0f} % with random directions in place of learned ones"
    found = c > max([z, *blind[:1]])
    text += (
        ": the directions do tell the groups apart" if found else ": the directions do not tell the groups apart better"
    )
    return text + "."


def says_eq5(study: Study) -> str:
    """The share of the largest J at the end and later."""
    rows = study.numbers("eq5")
    values = rows[rows["dataset"].isin(distinct(study, "eq5")) & (rows["dataset"] != "toy")]
    values = values.groupby("setting")["value"].mean()
    if "J ratio" not in values:
        return ""
    text = f"Look at the colours: at the end of a run P reaches {100 * values['J ratio']:.0f} % of the largest J, "
    text += f"plain principal components {100 * values['J ratio of components']:.0f} %"
    if "J ratio, later" in values:
        text += (
            f", and P {100 * values['J ratio, later']:.0f} % once the network stands still and the alignment goes on"
        )
    return text + "."


def says_eq12(study: Study) -> str:
    """The worst column of one triangle and the best of the other."""
    rows = study.numbers("eq12").groupby("setting")["value"].mean()
    if rows.empty:
        return ""
    upper, lower = ([v for key, v in rows.items() if str(key).endswith(tau)] for tau in ("upper", "lower"))
    text = "Look at the first bar of each pair: with the upper triangle no column has a "
    return text + f"|cosine| below {min(upper):.2f}, with the lower one none has more than {max(lower):.2f}."


def says_eq13(study: Study) -> str:
    """Residuals at the end and later."""
    rows = study.numbers("eq13")
    values = rows[rows["dataset"].isin(distinct(study, "eq13")) & (rows["dataset"] != "toy")]
    values = values[values["metric"] == "residual"].groupby("setting")["value"].mean()
    said = []
    if {"residual", "residual, later"} <= {*values.index}:
        said.append(
            f"Look at the slope: S is far behind at the end of a run (residual {values['residual']:.1f}) and gets to "
            f"{values['residual, later']:.2f} only when the features stop moving."
        )
    toy = rows[(rows["dataset"] == "toy") & (rows["metric"] == "residual")].groupby("setting")["value"].mean()
    told = ", ".join(f"{value:.2f} ({str(key).split(';')[0]} rates)" for key, value in toy.items())
    return " ".join([*said, f"On the toy problem the residual ends at {told}."] if told else said)
