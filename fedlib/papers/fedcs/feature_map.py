"""FedCS: the map P = S Phi (Fig. 1, equations 5, 12 and 13), and the one model of Section 5."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from torch import Tensor
from torch.func import vmap

import fedlib as fl
from fedlib.methods.fedcs import alignment as ra
from fedlib.papers.fedcs.diagnosis import GROUPS, RULES, SPREAD, server_step, toy
from fedlib.papers.fedcs.groups import domain_names
from fedlib.papers.fedcs.scores import distinct
from fedlib.papers.fedcs.sizes import CONTROL, OURS, PROFILES, WHITE, federation_of, of_fedcs, run
from fedlib.report.marks import arrow, box, dots, mark_chance, name_ends
from fedlib.report.panels import line_panels, method_panels
from fedlib.report.style import BLACK, BLUE, GREY, PALETTE, RED, TEXT, WIDE, data_label, label
from fedlib.studies.item import Cell, Unmeasured, drawing, enough, item
from fedlib.studies.tasks import Kept, Probe, profile_of

SPACES = {"z": "before", "c": "after", "c, later": "after more alignments"}
RATIOS = {  # of equation 5: name and colour
    "J ratio of components": ("principal components", GREY, "grey"),
    "J ratio": ("P at the end of the run", BLUE, "blue"),
    "J ratio, later": ("P after more alignments", RED, "red"),
}


@drawing("Fig. 1 (a): a linear map P = S Phi in front of a layer, updated without gradients.", scheme=True)
def scheme(study):
    """Scheme of the network: image, convolutions, z, the map P, c, linear layers, class; S and Phi make P."""
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
    box(ax, (22, 9), (42, 12), "$S \\approx \\Sigma_W^{-1/2}$\nwhitens a client's features", BLUE)
    box(ax, (77, 9), (42, 12), "$\\Phi$: directions in which\nclients differ most", RED)
    arrow(ax, (30, 15), (51, 27.5), BLUE, bend=-0.1)
    arrow(ax, (69, 15), (57, 27.5), RED, bend=0.1)
    ax.text(51.5, 18, "$P = S\\,\\Phi$", ha="center")
    text = "every 5 rounds: the sampled clients update $S$ and $\\Phi$ with their own $z$,\nthe server averages"
    ax.text(49, 0.2, text, ha="center", va="top", color=GREY)
    return figure


def diagnosed(sizes, metric: str, *settings: str, toy_value: str = "", on_toy: Mapping[str, str] = {}):
    """Values of every run of FedCS, and of the toy problem: by step-size rule (`toy_value`) or setting (`on_toy`)."""
    for data in sizes.data:
        for method, setting in product(of_fedcs(sizes, data), settings):
            yield Cell(method, data, setting, (run(sizes, data, method),), setting, metric, sizes.seeds[data])
    rules = {f"{rule};alignments={sizes.toy_rounds}": f"{toy_value} {rule}" for rule in RULES if toy_value}
    for setting, name in (rules | dict(on_toy)).items():
        yield Cell("fedcs", "toy", setting, (Probe("toy", toy, (sizes.toy_rounds,)),), name, metric, sizes.seeds["toy"])


@item(
    "Fig. 1 (b, c): client groups in feature space; share [%] of images nearest to the centre of their group.", digits=1
)
def fig1(sizes):
    """Above: five client groups before and after the map, as ellipses. Below: share nearest to their own centre."""
    settings = [f"separability of {space}" for space in SPACES]
    yield from diagnosed(sizes, "separability", *settings)
    task = run(sizes, sizes.side, CONTROL[WHITE])
    for setting in settings[: 3 if CONTROL[WHITE] in sizes.aligned_at else 2]:
        yield Cell(WHITE, sizes.side, setting, (task,), setting, "separability", sizes.control_seeds)


def separability(study) -> tuple[str, str, dict, dict[str, list[float]]]:
    """Data set, method, planes and shares by seed of Fig. 1, in z, in c and in c after whitening only ("random")."""
    for data, method in product(("digit5", "mnist", "cifar10"), reversed(OURS)):  # the first one that is measured
        rows = [row for row in study.rows_behind("fig1", dataset=data, method=method) if "plane" in row.kept]
        if rows:
            planes = {space: rows[0].kept["plane"][space] for space in SPACES if space in rows[0].kept["plane"]}
            shares = {space: [row.kept[f"separability of {space}"] for row in rows] for space in planes}
            for row in study.rows_behind("fig1", dataset=data, method=WHITE):
                random = [row.kept[key] for key in map("separability of {}".format, SPACES) if key in row.kept]
                shares["random"] = [*shares.get("random", []), *random[-1:]]
            return data, method, planes, shares
    raise Unmeasured


@fig1.shows
def _(study):
    data, method, planes, shares = separability(study)
    share = {space: np.mean(own) for space, own in shares.items()}
    words = {"c": "after the map at the end of the run", "c, later": "after more alignments of the frozen network"}
    words["random"] = "after whitening only (blue)"
    told = ", ".join(f"{share[space]:.0f} % {text}" for space, text in words.items() if space in share)
    numbers = study.numbers("fig1").query("method != @WHITE")
    table = numbers.pivot_table(index=["data", "method"], columns="setting", values="value", sort=False)
    table.columns = table.columns.str.removeprefix("separability of ")
    cases = []
    for space, when in {"c": "at the end of the run", "c, later": "after more alignments"}.items():
        ends = table.reindex(columns=["z", space]).dropna()
        cases += [f"in {(ends[space] > ends['z']).sum()} of {len(ends)} cases {when}"] if len(ends) else []
    place = data_label(numbers.loc[numbers["dataset"] == data, "data"].iloc[0])
    start = f"{share['z']:.0f} % of test images lie nearest to the centre of their own group before the map"
    end = f"The groups are separated better after the map than before it {', and '.join(cases)}"
    yield f"With {label(method)} on {place}, {start}, {told}. {end} (one case for each data set and layer)."
    groups = domain_names(study) if data == "digit5" else [f"group {g}" for g in range(GROUPS)]
    figure, last = plt.figure(figsize=(WIDE, 4.6)), [*planes][-1]
    upper, lower = figure.subfigures(2, 1, height_ratios=[2.9, 1.7])
    for ax, space in zip(upper.subplots(1, 2), ("z", last), strict=True):
        draw_clouds(ax, planes[space], groups[:5] if space == last else [])
        ax.set_title(f"{SPACES[space]}: {np.mean(shares[space]):.0f} % nearest\nto their own group's centre")
    lines = {"z": ("z", GREY), "c": ("c, end of the run", BLACK), "random": ("c, whitening only", BLUE)}
    lines[last] = "c, more alignments" if last != "c" else "c, end of the run", RED
    ax = lower.subplots()
    dots(ax, [(text, shares[space], color) for space, (text, color) in lines.items() if space in shares])
    mark_chance(ax, 100 / len(groups), "y")
    ax.set(xlabel="nearest to their own group's centre [%], all seeds", xlim=(0, 105))
    yield figure


def draw_clouds(ax, plane: Kept, names: Sequence[str]) -> None:
    """Points, ellipses of 1.5 standard deviations and centres of groups, with their names."""
    clouds = zip(plane["mean"], plane["covariance"], plane["points"], PALETTE, strict=False)
    for middle, covariance, points, color in clouds:
        values, vectors = np.linalg.eigh(np.array(covariance))
        sides, angle = 3 * np.sqrt(np.maximum(values[::-1], 0)), np.degrees(np.arctan2(*vectors[::-1, -1]))
        ax.plot(*np.array(points).T, ".", color=color, markersize=2, alpha=0.5)
        ax.add_patch(Ellipse(middle, *sides, angle=angle, color=color, alpha=0.16, linewidth=0))
        ax.plot(*middle, "o", color=color, markersize=6, markeredgecolor="white")
    ax.set(xlim=(-2.7, 2.7), ylim=(-2.7, 2.7), xlabel="direction 1", ylabel="direction 2", xticks=[], yticks=[])
    ax.grid(False)
    name_ends(ax, {name: (*plane["mean"][g], PALETTE[g]) for g, name in enumerate(names)}, weight="bold")


@item("Equation 5: J of nine columns of P, relative to its maximum.", digits=3)
def eq5(sizes):
    """J relative to its maximum, for principal components (grey), P at the end (blue), P aligned further (red)."""
    return diagnosed(sizes, "j_ratio", *RATIOS, toy_value="J ratio")


@eq5.shows
def _(study):
    numbers = distinct(study, "eq5").query("dataset != 'toy'")
    ranges = 100 * numbers.groupby("setting")["value"].agg(["min", "max"])
    words = "{:.0f} to {:.0f} % for {} ({})".format
    told = ", ".join(words(*ranges.loc[k], name, color) for k, (name, _, color) in RATIOS.items() if k in ranges.index)
    yield f"Relative to its maximum, J is {told}." if told else ""
    lines = numbers["method"].map(label) + ": " + numbers["setting"].map(RATIOS.get).str[0]
    colors = dict(zip(lines, numbers["setting"].map(RATIOS.get).str[1], strict=True))
    look = {"named": str, "look": lambda line: {"color": colors[line]}, "xlabel": "J relative to its maximum [%]"}
    yield method_panels(numbers.assign(method=lines, value=100 * numbers["value"]), ["data"], **look)


@item("Equation 12 on the toy problem: |cosine| of four columns of Phi with the true directions.", digits=4)
def eq12(sizes):
    """Bars of |cosine| for four columns, with the upper triangle (red) and the lower one (grey)."""
    columns = product(("upper", "lower"), range(1, len(SPREAD) + 1))
    return diagnosed(sizes, "cosine", on_toy={f"column {k}, {part}": f"{part} {k}" for part, k in columns})


@eq12.shows
def _(study):
    numbers = study.numbers("eq12")
    numbers[["column", "triangle"]] = numbers["setting"].str.split(", ", expand=True)
    table = numbers.pivot_table("value", "column", "triangle", sort=False)
    start = f"The smallest |cosine| of a column with its true direction is {table['upper'].min():.3f} with the upper"
    yield f"{start} triangle (red), and the largest {table['lower'].max():.3f} with the lower one (grey)."
    figure, ax = plt.subplots(figsize=(WIDE, 2.1))
    table.plot.bar(ax=ax, width=0.76, color=[RED, GREY], ylim=(0, 1.25), xlabel="", rot=0)
    ax.set(ylabel="|cosine| with the truth", yticks=[0, 0.5, 1])
    ax.legend(["upper triangle kept", "lower triangle kept"], ncols=2, loc="upper center")
    yield figure


@item("Equation 13: residual of S (0: the within-client scatter is exactly whitened).", digits=3)
def eq13(sizes):
    """Residual of S over further alignments of the frozen network."""
    yield from diagnosed(sizes, "digits", on_toy={"exact": "digits"})
    yield from diagnosed(sizes, "residual", "residual", "residual, later", toy_value="residual")


@eq13.shows
def _(study):
    numbers, tables = distinct(study, "eq13"), []
    mean = numbers.groupby("setting")["value"].mean()
    ranges = numbers.groupby("setting")["value"].agg(["min", "max"])
    rules = {key.split(";")[0]: value for key, value in mean.items() if "alignments" in key}
    words = {rule: rule.replace(", not centred", "") + " rates" + " without centring" * ("," in rule) for rule in rules}
    told = ", ".join(f"{value:.2f} with {words[rule]}" for rule, value in rules.items())
    texts = [f"On the toy problem the final residual is {told}."] if told else []
    if {"residual", "residual, later"} <= {*mean.index}:
        (low, high), (later_low, later_high) = ranges.loc[["residual", "residual, later"]].to_numpy()
        lag = ": S lags behind the changing features" if low > later_high else ""
        text = f"The residual is {low:.1f} to {high:.1f} at the end of a run, and {later_low:.2f} to {later_high:.2f} "
        texts.insert(0, f"{text}after more alignments of the frozen network{lag}.")
    yield " ".join(texts)
    runs = numbers[["dataset", "data", "method"]].drop_duplicates()
    for dataset, data, method in runs.itertuples(index=False, name=None):
        for row in study.rows_behind("eq13", dataset=dataset, method=method):
            if "lag" in row.kept:
                path = pd.DataFrame(row.kept["lag"], columns=["alignments", "residual"])
                tables.append(path.assign(data=data, method=method, seed=row.seed))
    words = {"xlabel": "further alignments of the frozen network", "ylabel": "residual of $S$"}
    yield line_panels(pd.concat(enough(tables)), "alignments", ["data"], y="residual", yscale="log", **words)


@item(
    "Section 5: number of different models, and their bitwise equality (1: equal) after unseen clients swap images.",
    digits=0,
)
def sec5(sizes):
    source = sizes.data["mnist"]._replace(stands_for="")  # any images will do to compare bits
    task = Probe("one_model", two_rounds, (profile_of(sizes, PROFILES),), source, sizes=str(sizes))
    for method, metric in product(of_fedcs(sizes, "mnist"), ("models", "same_bits")):
        yield Cell(method, "mnist", "label-shift", (task,), f"{metric} {method}", metric)


def two_rounds(seed: int, profile: str) -> Kept:
    """Number of models after two rounds, and their equality to the bit if unseen clients exchange their images."""
    sizes, found = PROFILES[profile], {}
    federation = federation_of(sizes, "mnist")
    n = federation.n_clients - federation.unseen
    exchanged = {part: (*own[:n], *own[n:][::-1]) for part in ("train", "test") if (own := getattr(federation, part))}
    for method in of_fedcs(sizes, "mnist"):
        arguments = run(sizes, "mnist", method, rounds=2, evaluate_every=2, client_metrics=False).arguments(seed)
        one, other = (
            fl.run(**arguments | {"federation": f, "progress": False})
            for f in (federation, replace(federation, **exchanged))
        )
        assert one.config["federation"] != other.config["federation"]
        pairs = [(tensor, other.models[name]) for name, tensor in one.models.items()]
        found[f"models {method}"] = max(len(tensor.unique(dim=0)) for tensor, _ in pairs)
        found[f"same_bits {method}"] = int(all(torch.equal(a, b) for a, b in pairs))
    return found


@sec5.says
def _(study):
    if (study.numbers("sec5")["value"] == 1).all():
        return "All clients have one model, and it stays the same to the bit if unseen clients exchange their images."
    return "The clients have different models, or their model depends on the images of unseen clients."


STEPS = (0, 1, 2, 3, 5, 10, 20, 40)  # alignments: the slider of the notebook


@lru_cache(maxsize=1)
def five_clients() -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Five clients in the plane, as parallel elongated clouds [5, 80, 2]; S and Phi after every alignment."""
    drawn = torch.Generator().manual_seed(7)
    offsets = torch.linspace(-2, 2, 5)[:, None] * torch.tensor([0.5, 1.0])
    noise = torch.randn(5, 80, 2, generator=drawn) * torch.tensor([3.0, 0.4])
    z = (offsets[:, None] + noise).double()
    state = {"Phi": ra.orthonormal(torch.randn(2, 2, generator=drawn).double())}
    path = [(torch.eye(2).double() / 3, state["Phi"])]
    for _ in range(STEPS[-1]):
        passed = vmap(lambda own, sent=state: ra.ra_pass(own[None], sent, "normalised"))(z)
        state = server_step(state, {name: t.mean(0) for name, t in passed.items()}, 1.0)
        path.append((state["S"], state["Phi"]))
    return z, path


def clouds(step: float) -> Figure:
    """The five clients before the map, after S alone, and after P = S Phi, with S and Phi after `step` alignments."""
    z, path = five_clients()
    S, Phi = path[int(step)]
    figure, axes = plt.subplots(1, 3, figsize=(TEXT, 2.6))
    titles = ("$z$", f"$S z$ after {int(step)} alignments", "$\\Phi^\\top S z$: the same, rotated")
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
