"""The tables and figures of pFedHR: pure functions of the rows of a study, and how its items are shown."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import fedlib as fl
from fedlib.papers.pfedhr.draw import CHANCE, NARROW, NOBODY, SPLIT, named, paired, titles
from fedlib.papers.pfedhr.teachers import (
    draw_candidates,
    draw_fig2,
    draw_fig7,
    draw_other_teachers,
    draw_pupils,
    draw_round,
    draw_teachers,
    say_candidates,
    say_other_teachers,
    say_pupils,
    say_round,
    say_teachers,
)
from fedlib.report.marks import dots, mark_chance, name_ends, panels, plot_nothing, seeds_and_mean, shaded_dots
from fedlib.report.sentences import beside_printed, nearer_to_print, points_ahead
from fedlib.report.style import BLACK, GREY, ORANGE, PALETTE, data_label, label, method_style
from fedlib.studies.old import Item
from fedlib.studies.study import Study

VARIED = {"fig3": ("share", "public share"), "fig4": ("K", "groups K"), "fig5": ("S", "depth S of a stitch")}
VARIED |= {"fig6": ("Es", "epochs on the server")}
PUBLIC = {"labeled": "labels", "unlabeled": "no labels", "none": "no public images"}
PAPER_DROPS = {"iid": (1.74, 3.92), "noniid": (2.57, 5.31)}  # printed on the bars of Fig. 5: % of the accuracy at S = 1

# -- tables and sweeps --------------------------------------------------------------------------------------------


def table(study: Study, item: str) -> Figure:
    """Accuracies by method, a panel for each column: every seed and the mean, with lines at chance and Local-Only."""
    frame = study.numbers(item, metric="accuracy")
    if frame.empty:
        return plot_nothing()
    columns = ["models", "dataset", "split"]
    alone = study.numbers("table2", metric="accuracy").query("method == 'local_only'")
    groups = list(frame[frame["method"] != "local_only"].groupby(columns, sort=False))
    heights = [0.8 + 0.32 * own.groupby(["public", "method"]).ngroups for _, own in groups]
    figure, axes = panels(len(groups), heights, across=1, sharex=True)
    words = titles(study.only(item), [key for key, _ in groups])
    for ax, (_, own), title in zip(axes, groups, words, strict=True):
        dataset, split = own["dataset"].iloc[0], own["split"].iloc[0]
        kinds = len(set(own["public"])) > 1
        lines, paper = [], {}
        for (p, m), rows in own.groupby(["public", "method"], sort=False):
            name = label(str(m)) + (f", {PUBLIC.get(str(p), p)}" if kinds else "")
            lines.append((name, rows["value"].tolist(), colour(m)))
            paper[name] = rows["paper"].iloc[0]
        dots(ax, lines, paper)
        mark_chance(ax, CHANCE[split], "y")
        base = alone[(alone["dataset"] == dataset) & (alone["split"] == split)]["value"]
        if len(base) and item != "table4":
            ax.axvline(base.mean(), color=GREY, linestyle="--")
            at = float(base.mean()), 1
            ax.annotate("Local-Only", at, (0, 2), ax.get_xaxis_transform(), "offset points", color=GREY, ha="center")
        ax.set(xlim=(0, 100))
        ax.set_title(title, loc="left", pad=13)
    axes[-1].set_xlabel("accuracy [%]")
    return figure


def colour(method: object) -> str:
    """The colour of a method."""
    return method_style(str(method))["color"]


def draw_table2(study: Study) -> Figure:
    """Table 2 as dots."""
    return table(study, "table2")


def say_table2(study: Study) -> str:
    """Who is ahead with labelled public images and IID data."""
    frame = study.numbers("table2", metric="accuracy")
    frame = frame[(frame["split"] == "iid") & frame["public"].isin(["labeled", "none"])]
    if frame.empty:
        return ""
    frame = frame[frame["dataset"] == frame["dataset"].iloc[0]]
    mean = frame.groupby("method")["value"].mean().sort_values(ascending=False)
    if not {"pfedhr", "local_only"} <= set(mean.index):
        return ""
    rank, gap = list(mean.index).index("pfedhr") + 1, mean["pfedhr"] - mean["local_only"]
    spread = frame.groupby("method")["value"].std().max()
    noise = f" (seeds spread by up to {spread:.1f})" if np.isfinite(spread) else ""
    return (
        f"Look at the dashed line: with IID data {label(mean.index[0])} is ahead ({mean.iloc[0]:.1f} %); pFedHR "
        f"is number {rank} of {len(mean)}, {abs(gap):.1f} points {'above' if gap >= 0 else 'below'} Local-Only{noise}."
    )


def draw_table3(study: Study) -> Figure:
    """Table 3 as dots."""
    return table(study, "table3")


def draw_table4(study: Study) -> Figure:
    """Table 4 as dots."""
    return table(study, "table4")


def ahead(item: str, study: Study) -> str:
    """By how much pFedHR is ahead of the best other method, column by column."""
    frame, gaps = study.numbers(item, metric="accuracy"), []
    for _, own in frame.groupby(["dataset", "split", "models"], sort=False):
        mean = own.groupby("method")["value"].mean()
        others = mean.drop(["pfedhr", "local_only"], errors="ignore")
        if "pfedhr" in mean and len(others):
            gaps.append(mean["pfedhr"] - others.max())
    if not gaps:
        return ""
    if len(gaps) == 1:
        return f"Look at the large dots: pFedHR is {points_ahead(gaps[0], 'the best other method')}."
    won = sum(gap > 0 for gap in gaps)
    return (
        f"pFedHR is ahead of the best other method in {won} of {len(gaps)} columns; the differences lie between "
        f"{min(gaps):+.1f} and {max(gaps):+.1f} points."
    )


def say_step_sizes(study: Study) -> str:
    """How far Per-FedAvg and pFedMe are from the printed numbers, with two step sizes."""
    return beside_table4(study, "step_sizes", ("with the usual steps", "with steps ten times larger"))


def say_narrow(study: Study) -> str:
    """How far pFedBayes is from the printed numbers, with two initial deviations of its weights."""
    usual, narrow = (np.log1p(np.exp(rho)) for rho in (float(str(fl.pfedbayes().hyper["rho"])), NARROW))
    return beside_table4(study, "narrow", (f"with {usual:.2g}", f"with an initial standard deviation of {narrow:.2g}"))


def beside_table4(study: Study, control: str, kinds: tuple[str, str]) -> str:
    """Accuracies of Table 4 (the first kind), those of a control and the printed ones, in sentences."""
    usual, other = study.numbers("table4", metric="accuracy"), study.numbers(control, metric="accuracy")
    if usual.empty or other.empty:
        return ""
    usual = usual.merge(other[[*PLACE4, "seed"]])
    other = other.drop(columns="paper").merge(usual[[*PLACE4, "seed", "paper"]])
    both = pd.concat([usual.assign(kind=kinds[0]), other.assign(kind=kinds[1])]).dropna(subset="paper")
    names = [f"{label(m)} with {net} on {data_label(d)} {SPLIT[s]}" for m, net, d, s in both[PLACE4].to_numpy()]
    return beside_printed(both.assign(what=names)) if len(both) else ""


def draw_few(study: Study) -> Figure:
    """Every method of Table 4 with few images and with all, and as it is printed."""
    frame = _by_images(study)
    if frame.empty:
        return plot_nothing()
    groups = list(frame.groupby(["models", "dataset", "split"], sort=False))
    heights = [0.8 + 0.32 * own["method"].nunique() for _, own in groups]
    figure, axes = panels(len(groups), heights, across=1, sharex=True)
    for ax, (_, own), title in zip(axes, groups, titles(study.only("few"), [key for key, _ in groups]), strict=True):
        own = own.assign(method=own["method"].map(label))
        table = own.pivot_table(index="method", columns="images", values="value", sort=False)
        table = table.reindex(columns=frame["images"].unique())  # the same shade in every panel
        shaded_dots(ax, table, own.groupby("method")["paper"].first())
        ax.set(xlim=(0, 100))
        ax.margins(y=0.2)
        ax.set_title(title, loc="left")
    axes[-1].set_xlabel("accuracy [%]")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


PLACE4 = ["method", "models", "dataset", "split"]  # what names a number of Table 4


def _by_images(study: Study) -> pd.DataFrame:
    """The numbers of Table 4 that were measured also with few images, by the images of a client, the fewest first."""
    fewer, whole = study.numbers("few", metric="accuracy"), study.numbers("table4", metric="accuracy")
    if fewer.empty or whole.empty:
        return pd.DataFrame()
    whole = whole.merge(fewer[PLACE4].drop_duplicates(), on=PLACE4)
    fewer = fewer.drop(columns="paper").merge(whole[[*PLACE4, "paper"]].drop_duplicates(), on=PLACE4)
    both = pd.concat([fewer.assign(images=fewer["images"] + " images"), whole.assign(images="all images")])
    return both.dropna(subset="paper")


def say_few(study: Study) -> str:
    """How far the accuracies are from the printed ones, by the images of a client, over those that have all of them."""
    frame = _by_images(study)
    if frame.empty:
        return ""
    table = frame.pivot_table(index=[*PLACE4, "paper"], columns="images", values="value", sort=False).dropna()
    return nearer_to_print(table.sub(table.index.get_level_values("paper"), axis="index").abs())


def draw_tested(study: Study) -> Figure:
    """Every method on its clients' own classes, and on all ten."""
    own, every = study.numbers("table2", metric="accuracy"), study.numbers("tested", metric="all classes")
    if own.empty or every.empty:
        return plot_nothing()
    key = ["dataset", "split", "method", "public"]
    own, every = (rows.groupby(key, sort=False)["value"].mean() for rows in (own, every))
    both = pd.DataFrame({"own classes": own, "all classes": every}).reindex(own.index).dropna().reset_index()
    both["line"] = both["method"].map(label) + both["public"].eq("unlabeled").map({True: ", no labels", False: ""})
    groups = list(both.groupby(["dataset", "split"], sort=False))
    figure, axes = panels(len(groups), [1 + 0.27 * len(rows) for _, rows in groups], across=1, sharex=True)
    for ax, ((dataset, split), rows) in zip(axes, groups, strict=True):
        for name, marker, color in (("own classes", "o", BLACK), ("all classes", "s", ORANGE)):
            ax.plot(rows[name], rows["line"], marker, color=color, label=name)
        ax.set(xlim=(0, 100))
        ax.set_title(f"{named(study, str(dataset))}, {SPLIT[str(split)]}", loc="left")
        ax.margins(y=0.2)
        ax.invert_yaxis()
    axes[-1].set_xlabel("accuracy [%]")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def say_tested(study: Study) -> str:
    """What it changes on which classes and which clients the networks are tested."""
    return " ".join(filter(None, (say_classes(study), say_active(study))))


def say_active(study: Study) -> str:
    """How far printed numbers are from those of all clients, and of the clients that have just trained."""
    every, active = study.numbers("table2", "table4", metric="accuracy"), study.numbers("tested", metric="active")
    both = every.merge(active, on=["method", "dataset", "setting", "seed"], suffixes=("", " active"))
    both = both[both["paper"].notna()]
    if both.empty:
        return ""
    all_clients, trained = ((both[name] - both["paper"]).abs().mean() for name in ("value", "value active"))
    return (
        f"Which clients are tested: over {len(both)} numbers the mean distance from the printed ones is "
        f"{all_clients:.1f} points with all clients and {trained:.1f} points with those that have just trained."
    )


def say_classes(study: Study) -> str:
    """Non-IID minus IID, on own and on all classes."""
    found = []
    for item, metric in (("table2", "accuracy"), ("tested", "all classes")):
        table = study.numbers(item, metric=metric)
        table = table.pivot_table(index=["dataset", "public", "method"], columns="split", values="value")
        if not {"iid", "noniid"} <= set(table):
            return ""
        found.append((table["noniid"] - table["iid"]).dropna().mean())
    return (
        f"Compare the panels: from IID to Non-IID the mean changes by {found[0]:+.1f} points on own classes "
        f"and by {found[1]:+.1f} points on all ten. A client with two classes has "
        f"{'an easier' if found[0] > 0 else 'a harder'} problem; its network knows "
        f"{'less' if found[1] < 0 else 'more'} about the other classes."
    )


def draw_fig1(study: Study) -> Figure:
    """Accuracy with public images of the clients' kind and of another, a line for each method."""
    frame = paired(study.numbers("fig1", metric="accuracy"), ["public", "split", "method"], "images")
    if frame.empty:
        return plot_nothing()
    groups = list(frame.groupby(["public", "split"], sort=False))
    figure, axes = panels(len(groups), 2.3, across=1)
    for ax, (_, own), title in zip(axes, groups, titles(study.only("fig1"), [key for key, _ in groups]), strict=True):
        names, ends = list(dict.fromkeys(own["images"])), {}
        for method, values in own.groupby("method", sort=False):
            mean = values.groupby("images", sort=False)["value"].mean().reindex(names)
            lost = 100 * (1 - mean.iloc[-1] / mean.iloc[0])
            line = pd.DataFrame(mean.to_numpy(), index=range(len(names)))
            ends[f"{label(str(method))}, {-lost:+.1f} %"] = seeds_and_mean(ax, line, colour(method), marker="o")
        ax.set_xticks(range(len(names)), ["the clients' kind", *["another kind"] * (len(names) - 1)])
        ax.set(title=title, xlim=(-0.3, len(names) - 1), ylabel="accuracy [%]")
        name_ends(ax, ends)
    return figure


def say_fig1(study: Study) -> str:
    """The mean loss of every method."""
    frame = paired(study.numbers("fig1", metric="accuracy"), ["public", "split", "method"], "images")
    keys = ["public", "split", "method"]
    table = frame.pivot_table(index=keys, columns="images", values="value", sort=False)
    if table.shape[1] < 2 or "svhn" not in table:
        return ""
    lost = (100 * (1 - table.drop(columns="svhn").mean(axis=1) / table["svhn"])).groupby("method", sort=False).mean()
    text = ", ".join(f"{label(str(method))} {value:.1f} %" for method, value in lost.items())
    return f"Look at how far the lines fall: public images of another kind cost this share (negative: bring): {text}."


def deviations(study: Study, item: str) -> pd.DataFrame:
    """Points over Local-Only of the same seed: dataset, split, public, x, seed, value, base."""
    key, _ = VARIED[item]
    frame, places = study.numbers(item, metric="accuracy"), ["dataset", "split", "public", "seed"]
    if frame.empty:
        return pd.DataFrame(columns=[*places, "x", "value", "base"])
    alone = frame[frame[key] == NOBODY]
    frame = frame[frame[key] != NOBODY].merge(alone[[*places, "value"]], on=places, suffixes=("", "_alone"))
    frame = frame.assign(x=frame[key].astype(float), base=frame["value"], value=frame["value"] - frame["value_alone"])
    return frame[[*places, "x", "value", "base"]]


def draw_varied(item: str, study: Study) -> Figure:
    """pFedHR's points over Local-Only by what is varied: a dot for each seed, a line for the mean."""
    frame = deviations(study, item)
    if frame.empty:
        return plot_nothing()
    groups = list(frame.groupby(["dataset", "public"], sort=False))
    figure, axes = panels(len(groups), 2.4, across=1)
    words = titles(study.only(item), [key for key, _ in groups])
    for ax, (_, panel), title in zip(axes, groups, words, strict=True):
        xs, ends = sorted(panel["x"].unique()), {}
        ax.axhline(0, color=GREY)
        ax.annotate("Local-Only", (0, 0), (3, 2), ax.get_yaxis_transform(), "offset points", color=GREY)
        for split, own in panel.groupby("split", sort=False):
            color, both = PALETTE[list(SPLIT).index(str(split))], paired(own, ["split"], "x")
            mean = both.groupby("x")["value"].mean()
            ax.plot([xs.index(x) for x in own["x"]], own["value"], "o", color=color, alpha=0.5)
            line = pd.DataFrame(mean.to_numpy(), index=[xs.index(x) for x in mean.index])
            ends[SPLIT[str(split)]] = seeds_and_mean(ax, line, color)
            if item == "fig5" and 1 in mean.index:  # the paper's drops, from where our line begins
                drops = (0, *PAPER_DROPS[str(split)])
                first = both[both["x"] == 1]["base"].mean()
                printed = [mean[1] - drop / 100 * first for drop in drops]
                ax.plot(range(len(xs)), [printed[int(x) - 1] for x in xs], ":", marker="_", color=color)
                ends[f"{SPLIT[str(split)]}, paper"] = (len(xs) - 1, printed[int(xs[-1]) - 1], color)
        ax.set_xticks(range(len(xs)), [f"{100 * x:g} %" if item == "fig3" else f"{x:g}" for x in xs])
        ax.set(xlabel=VARIED[item][1], ylabel="points over Local-Only", xlim=(-0.4, len(xs) - 0.7))
        ax.set_title(title)
        name_ends(ax, ends)
    return figure


def say_varied(item: str, study: Study) -> str:
    """From the smallest to the largest value."""
    frame = deviations(study, item)
    if frame["x"].nunique() < 2:
        return ""
    ends = frame[frame["x"].isin([frame["x"].min(), frame["x"].max()])]
    table = ends.pivot_table(index=["dataset", "split", "public", "seed"], columns="x", values="value")
    steps = (table.iloc[:, 1] - table.iloc[:, 0]).dropna().to_numpy()
    if not len(steps):
        return ""
    low, high = (f"{100 * x:g} %" if item == "fig3" else f"{x:g}" for x in table.columns)
    spread = f" in {len(steps)} pairs of runs, with a spread of {np.std(steps, ddof=1):.1f}" if len(steps) > 1 else ""
    return (
        f"Look from left to right: from {low} to {high} ({VARIED[item][1]}) the accuracy of pFedHR changes by "
        f"{steps.mean():+.1f} points{spread or ' in one pair of runs, too few to tell from chance'}."
    )


# -- items --------------------------------------------------------------------------------------------------------

ACCURACY = "accuracy in percent, mean over clients"
ALT = {
    "fig3": "Points of pFedHR over Local-Only by the share of the train part that is public.",
    "fig4": "Points of pFedHR over Local-Only by the number of groups.",
    "fig5": "Points of pFedHR over Local-Only by the depth of the stitches, beside the drops that the paper prints.",
    "fig6": "Points of pFedHR over Local-Only by the number of epochs on the server.",
}
TITLES = {
    "fig3": "Fig. 3: what more public images bring",
    "fig4": "Fig. 4: what more groups bring",
    "fig5": "Fig. 5: what deeper stitches cost; the paper prints drops, drawn from our first value",
    "fig6": "Fig. 6: what more epochs on the server cost",
}
SHOWN = {
    "fig2": Item(
        "Fig. 2: one round of pFedHR, redrawn", draw=draw_fig2,
        alt="Blocks of three networks, three groups of blocks, two candidates, and who learns from them.",
    ),
    "teachers": Item(
        "Teacher and pupil, round by round: accuracy in percent, and points over Local-Only",
        "metric", draw_teachers, "Above: accuracy of teachers and pupils by round. Below: pupils over Local-Only.",
        say_teachers,
    ),
    "round": Item(
        "The last round, looked into: blocks, groups and candidates", "metric", draw_round,
        "Likeness of all pairs of blocks, groups framed, and the candidates as rows of blocks.", say_round,
    ),
    "table2": Item(
        f"Table 2: {ACCURACY}, each on its own classes", draw=draw_table2, says=say_table2,
        alt="Accuracy of every method as dots, as crosses what is printed, with Local-Only and chance as lines.",
    ),
    "pupils": Item(
        "The mechanism: does a better teacher help more? Every dot is a client in a round", draw=draw_pupils,
        alt="Lead of a teacher over its pupil against the pupil's gain over Local-Only a round later.",
        says=say_pupils,
    ),
    "other_teachers": Item(
        "The control: other teachers. Accuracy in percent; teachers: images of their clients that they name",
        "teacher",
        draw_other_teachers,
        "Accuracy of teachers against the gain of their pupils over Local-Only.",
        say_other_teachers,
    ),
    "table1": Item("Table 1, measured: are public labels used (1: yes), and how many bytes are sent", digits=0),
    "table3": Item(
        f"Table 3: many clients; {ACCURACY}", draw=draw_table3,
        alt="Accuracy of every method with many clients, and as printed.",
        says=lambda study: ahead("table3", study),
    ),
    "table4": Item(
        f"Table 4: one architecture for all; {ACCURACY}", draw=draw_table4, says=lambda study: ahead("table4", study),
        alt="Accuracy of every method where all clients have the same architecture; crosses: as printed.",
    ),
    "step_sizes": Item(
        f"Table 4 with steps ten times larger, of the methods that take plain steps; {ACCURACY}", says=say_step_sizes
    ),
    "narrow": Item(f"Table 4 with weights of pFedBayes that hardly vary in the beginning; {ACCURACY}", says=say_narrow),
    "few": Item(
        f"Table 4 with fewer images of each client; {ACCURACY}", "images", draw_few,
        "Accuracy as dots, the darker the more images a client has, and a red bar at the printed number.", say_few,
    ),
    "tested": Item(
        "Accuracy in percent of the clients that have just trained, and of all clients on all classes",
        draw=draw_tested, alt="Accuracy on own classes and on all classes, IID and Non-IID.", says=say_tested,
    ),
    "fig1": Item(
        f"Fig. 1: public images of another kind; {ACCURACY}", "images", draw_fig1,
        "Accuracy with public images of the clients' kind and of another kind, a line for each method.", say_fig1,
    ),
    **{
        item: Item(
            f"{TITLES[item]}; {ACCURACY}", key, partial(draw_varied, item), ALT[item], partial(say_varied, item)
        )
        for item, (key, _) in VARIED.items()
    },
    "candidates": Item(
        "Candidates by the number of groups; none: rounds without any, in percent", "K", draw_candidates,
        "Candidates in a round, and rounds without any, by the number of groups.", say_candidates,
    ),
    "search": Item("What the server finds: candidates; shares of rounds and clients in percent", "metric"),
    "fig7": Item(
        "Fig. 7: the teacher of one client in the first and in the last round; shares in percent",
        "metric", draw_fig7, "Blocks of all uploads, those of one client's teacher filled and joined, in two rounds.",
    ),
}  # fmt: skip
