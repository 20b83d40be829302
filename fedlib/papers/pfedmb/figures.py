"""pFedMB: accuracy by method and by branches as figures, and how all its tables and figures are shown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.papers.pfedmb.alpha import fig1_2, fig3, fig3_rand, hero, layers, says_fig3, says_hero, says_layers
from fedlib.papers.pfedmb.draw import PAIRS, chance, place, reported_curve, rows_that_count
from fedlib.report.marks import dots, mark_chance, method_dots, name_ends, panels, plot_nothing, seeds_and_mean
from fedlib.report.paper import reported
from fedlib.report.sentences import against_seeds, points_ahead
from fedlib.report.style import BLACK, GREY, PALETTE, RED, WIDE, label, method_style
from fedlib.studies.old import Item
from fedlib.studies.study import Study

WORDS = {
    "weighted=no": "branches averaged without alpha",
    "share_alpha=yes": "one alpha for all layers",
    "alpha_lr=0.1": "alpha learns ten times slower",
    "alpha_lr=0": "nobody chooses: alpha = 1/B",
    "gain=yes": "initial branches scaled up",
    "alpha_lr=0;lr=x5": "nobody chooses, steps five times larger",
    "alpha=labels": "choice given by the labels",
    "rounds=x2": "twice as many rounds",
}


# -- tables as dots -----------------------------------------------------------------------------------------------


def table1(study: Study) -> Figure:
    """Accuracy of four methods on the five pairs."""
    frame = study.numbers("table1", metric="accuracy")
    if frame.empty:
        return plot_nothing()
    figure, ax = plt.subplots(figsize=(WIDE, 0.9 + 0.32 * frame["method"].nunique()))
    _dots_of_methods(ax, frame)
    return figure


def table2(study: Study) -> Figure:
    """Accuracy of all methods, a panel for each column of Table II that was run."""
    frame = study.numbers("table2", metric="accuracy")
    if frame.empty:
        return plot_nothing()
    columns = list(frame.groupby(["dataset", "setting"], sort=False))
    heights = [0.9 + 0.32 * rows["method"].nunique() for _, rows in columns]
    figure, axes = panels(len(columns), heights, across=1)
    for ax, ((dataset, setting), rows) in zip(axes, columns, strict=True):
        _dots_of_methods(ax, rows)
        ax.set_title(place(str(dataset), str(setting)), loc="left")
    return figure


def _dots_of_methods(ax: Axes, frame: pd.DataFrame) -> None:
    order = -frame.groupby("method")["value"].transform("mean")
    method_dots(ax, frame.loc[order.sort_values(kind="stable").index])
    ax.set_xlabel("accuracy [%]")
    mark_chance(ax, chance(frame["setting"].iloc[0]), "y")


def best_first(groups: Sequence[tuple[str, list[float], str]]) -> list[tuple[str, list[float], str]]:
    """Groups of dots, the highest mean first."""
    return sorted(groups, key=lambda group: -float(np.mean(group[1])))


def says_ranking(study: Study, item: str) -> str:
    """Who is first, and where pFedMB stands, by column."""
    frame, sentences = study.numbers(item, metric="accuracy"), []
    for (dataset, setting), rows in frame.groupby(["dataset", "setting"], sort=False):
        mean = rows.groupby("method")["value"].mean().sort_values(ascending=False)
        spread = rows.groupby("method")["value"].std().max()
        if "pfedmb" not in mean or len(mean) < 2:
            continue
        rank, first = list(mean.index).index("pfedmb") + 1, str(mean.index[0])
        second = str(mean.index[1]) if rank == 1 else first
        lead = points_ahead(mean["pfedmb"] - mean[second], label(second))
        noise = f"; the largest standard deviation over seeds is {spread:.1f}" if np.isfinite(spread) else ""
        low = [label(str(name)) for name in mean.index[mean <= chance(str(setting)) + 2]]
        guessing = f" No better than guessing: {', '.join(low)}." if low else ""
        sentences.append(
            f"{place(str(dataset), str(setting))}: pFedMB is number {rank} of {len(mean)}, {lead}{noise}.{guessing}"
        )
    return " ".join(sentences) or "Nothing can be compared yet: pFedMB and another method are needed."


def parts(study: Study) -> Figure:
    """Accuracy of pFedMB and of its variants on the left, clients that train a branch on the right."""
    values, colors, clients = _variants(study)
    if len(values) < 2:
        return plot_nothing()
    size = (WIDE, 0.9 + 0.34 * len(values))
    figure, (left, right) = plt.subplots(1, 2, figsize=size, width_ratios=[2, 1.2], sharey=True)
    dots(left, best_first([(name, own, colors[name]) for name, own in values.items()]))
    left.set_xlabel("accuracy [%]")
    mark_chance(left, chance("classes=2"), "y")
    order = [text.get_text() for text in left.get_yticklabels()]
    right.barh([y for y, name in enumerate(order) if name in clients], [clients[n] for n in order if n in clients],
               color=[colors[n] for n in order if n in clients], height=0.45, alpha=0.8)  # fmt: skip
    right.tick_params(axis="y", length=0)
    right.set(xlabel="clients per branch")
    right.grid(axis="y", visible=False)
    return figure


def _variants(study: Study) -> tuple[dict[str, list[float]], dict[str, str], dict[str, float]]:
    """By name: accuracies, colours, and how many clients a branch learns from; with two classes per client."""
    rivals, other = study.numbers("table2", "branches", metric="accuracy"), study.numbers("parts", metric="accuracy")
    values: dict[str, list[float]] = {}
    colors: dict[str, str] = {}
    at = "clients=15;classes=2"
    for method, name in (("local_only", "Local-Only"), ("fedavg", "FedAvg: one branch")):
        rows = rivals[(rivals["method"] == method) & (rivals["setting"] == at)]
        if len(rows):
            values[name], colors[name] = rows["value"].tolist(), method_style(method)["color"]
    mine = rivals[rivals["setting"] == f"{at};branches=5"]
    if mine.empty:
        mine = rivals[(rivals["method"] == "pfedmb") & (rivals["setting"] == at)]
    if len(mine):
        whole = rivals[(rivals["method"] == "pfedmb") & (rivals["setting"] == at)]
        use = whole if len(whole) > len(mine) else mine
        values["pFedMB"], colors["pFedMB"] = use["value"].tolist(), RED
    for setting, rows in other[other["setting"].str.startswith(f"{at};")].groupby("setting", sort=False):
        name = WORDS[str(setting).split(";", 3)[3]]
        values[name], colors[name] = rows["value"].tolist(), PALETTE[3]
    use = study.numbers("parts", "branches", metric="clients_per_branch")
    names = {f"{at};branches=5": "pFedMB"} | {f"{at};branches=5;{key}": words for key, words in WORDS.items()}
    use = use[use["setting"].isin(names)].groupby("setting")["value"].mean()
    return values, colors, {names[str(setting)]: float(n) for setting, n in use.items()}


def says_parts(study: Study) -> str:
    """What changes most when a part of the method is replaced, and whether a given choice helps."""
    values, _, clients = _variants(study)
    mean = {name: float(np.mean(value)) for name, value in values.items()}
    ours = mean.get("pFedMB")
    changes = {name: mean[name] - ours for name in WORDS.values() if name in mean} if ours is not None else {}
    if not changes or ours is None:
        return "Nothing can be compared yet: pFedMB and one of its variants are needed."
    top = max(changes, key=lambda name: changes[name])
    noise = max((float(np.std(value, ddof=1)) for value in values.values() if len(value) > 1), default=np.nan)
    text = ", ".join(f"{name}: {change:+.1f}" for name, change in changes.items())
    gain = changes[top]
    helps = f"'{top}' helps most, {against_seeds(gain, noise)}." if gain > 0 else "None of these gains."
    alone = mean.get("Local-Only")
    behind = ""
    if alone is not None:
        still = max([ours, *(mean[name] for name in changes)])
        word = "reaches" if still >= alone else "stays behind"
        behind = f" The best of all these {word} a client that trains alone ({alone:.1f})."
    trend = _trend([(n, mean[name]) for name, n in clients.items() if name in mean])
    return f"Difference from pFedMB ({ours:.1f}) in points: {text}. {helps}{behind}{trend}"


def _trend(points: Sequence[tuple[float, float]]) -> str:
    """How accuracy goes with the number of clients that train a branch."""
    accuracy = [value for _, value in sorted(points)]
    if len(accuracy) < 3:
        return ""
    steps = np.diff(accuracy)
    word = "falls" if (steps < 0).all() else "rises" if (steps > 0).all() else "neither only rises nor only falls"
    return f" Look at the panel on the right: with the number of clients that train a branch, accuracy {word}."


# -- lines --------------------------------------------------------------------------------------------------------


def fig4(study: Study) -> Figure:
    """Accuracy after fine-tuning over the rounds, four methods on the five pairs."""
    figure, ax = plt.subplots(figsize=(WIDE, 2.6))
    ends = {}
    for method in ("local_only", "fedavg", "pfedmb-avg", "pfedmb"):
        curves = [reported_curve(row) for row in rows_that_count(study, "table1", method)]
        if curves:
            style = method_style(method)
            ends[label(method)] = seeds_and_mean(
                ax, pd.concat(curves, axis=1), style["color"], linestyle=style["linestyle"]
            )
    if not ends:
        plt.close(figure)
        return plot_nothing()
    ax.set(xlabel="round", ylabel="accuracy [%]", ylim=(min(45, ax.get_ylim()[0]), 101))
    name_ends(ax, ends, chance(PAIRS))
    return figure


def says_fig4(study: Study) -> str:
    """How many rounds pFedMB and its rivals need to 99 % of the final accuracy of the rivals."""
    frame, sentences = study.numbers("fig4", metric="rounds"), []
    last = max(task.rounds for cell in study.cells if cell.item == "fig4" for task in cell.tasks)
    for aim in ("fedavg", "pfedmb-avg"):
        rounds = frame[frame["aim"] == aim].groupby("method")["value"].mean() if len(frame) else {}
        if "pfedmb" in rounds and aim in rounds:
            ours, theirs = (f"{n:.3g}" if n <= last else f"more than {last}" for n in rounds[["pfedmb", aim]])
            sentences.append(
                f"Rounds to 99 % of the final accuracy of {label(aim)}: pFedMB {ours}, {label(aim)} itself {theirs}."
            )
    return " ".join(sentences) or "Nothing can be compared yet."


def pairs(study: Study) -> Figure:
    """Accuracy on the five pairs by the number of branches."""
    frame = _by_branches_on_pairs(study)
    if frame.empty:
        return plot_nothing()
    figure, ax = plt.subplots(figsize=(WIDE, 2.4))
    _lines(ax, frame)
    ax.axvline(5, color=GREY, linewidth=1, linestyle=(0, (4, 2)), zorder=0)
    ax.text(5, 1.0, "five groups", transform=ax.get_xaxis_transform(), color=GREY, ha="center", va="bottom")
    mark_chance(ax, chance(PAIRS))
    return figure


def pairs_parts(study: Study) -> Figure:
    """Accuracy on the five pairs of Table I's methods, and of pFedMB with a part of it replaced."""
    table1, variants = _on_pairs(study)
    if variants.empty or table1.empty:
        return plot_nothing()
    groups = [
        (str(name), own["value"].tolist(), own["color"].iloc[0])
        for frame in (table1, variants)
        for name, own in frame.groupby("name", sort=False)
    ]
    figure, ax = plt.subplots(figsize=(WIDE, 0.9 + 0.32 * len(groups)))
    dots(ax, best_first(groups), dict(zip(table1["name"], table1["paper"], strict=True)))
    ax.set_xlabel("accuracy [%]")
    return figure


def _on_pairs(study: Study) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The numbers of Table I and of its control, each with the name and the colour of its line."""
    table1, variants = (study.numbers(item, metric="accuracy") for item in ("table1", "pairs_parts"))
    names = {
        "name": [label(m) for m in table1["method"]],
        "color": [method_style(m)["color"] for m in table1["method"]],
    }
    words = [WORDS[setting.rsplit(";", 1)[1]] for setting in variants["setting"]]
    also = ["" if method == "pfedmb" else f"{label(method)} with " for method in variants["method"]]
    both = [a + b for a, b in zip(also, words, strict=True)]
    return table1.assign(**names), variants.assign(name=both, color=PALETTE[3])


def says_pairs_parts(study: Study) -> str:
    """What each replaced part adds to pFedMB, and whether it is then ahead of FedAvg."""
    table1, variants = (frame.groupby("name", sort=False)["value"].mean() for frame in _on_pairs(study))
    ours, other = label("pfedmb"), label("fedavg")
    if variants.empty or not {ours, other} <= set(table1.index):
        return "Nothing can be compared yet: Table I and a variant are needed."
    text = ", ".join(f"{name} {value:.1f} ({value - table1[ours]:+.1f})" for name, value in variants.items())
    gap = float(variants.max()) - table1[other]
    return (
        f"Look at the dots around {ours} ({table1[ours]:.1f}): {text}. The best of them is "
        f"{points_ahead(gap, other)} ({table1[other]:.1f})."
    )


def _by_branches_on_pairs(study: Study) -> pd.DataFrame:
    """With Table I: FedAvg is one branch, pFedMB five."""
    frame = study.numbers("pairs", "table1", metric="accuracy")
    frame = frame[frame["method"].isin(("pfedmb", "fedavg"))]
    given = frame["branches"] if "branches" in frame else pd.Series(np.nan, index=frame.index)
    table1 = np.where(frame["method"] == "fedavg", 1, 5)
    return frame.assign(branches=given.astype(float).fillna(pd.Series(table1, index=frame.index)).astype(int))


def _by_branches(study: Study) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """What was measured of each column of Fig. 5 that has at least two numbers of branches."""
    frame = study.numbers("fig5", "branches", metric="accuracy")
    if frame.empty:
        return []
    frame = frame.assign(branches=frame["branches"].astype(int), at=frame["setting"].str.rsplit(";", n=1).str[0])
    columns = frame.groupby(["dataset", "at"], sort=False)
    return [((str(dataset), str(at)), rows) for (dataset, at), rows in columns if len({*rows["branches"]}) > 1]


def fig5(study: Study) -> Figure:
    """Accuracy by the number of branches, a panel for each column with at least two."""
    columns = _by_branches(study)
    if not columns:
        return plot_nothing()
    figure, axes = panels(len(columns), 2.2, across=1)
    for ax, ((dataset, at), rows) in zip(axes, columns, strict=True):
        _lines(ax, rows)
        ax.set_title(place(dataset, at))
        mark_chance(ax, chance(at))
    return figure


def _lines(ax: Axes, frame: pd.DataFrame) -> None:
    """Accuracy by the number of branches: seeds as thin lines, the mean as a thick one."""
    seeds_and_mean(ax, frame.pivot_table(index="branches", columns="seed", values="value"), RED, marker="s")
    tried = sorted(set(frame["branches"]))
    ax.set(xlabel="branches (1: FedAvg)", ylabel="accuracy [%]", xticks=tried)
    ax.margins(x=0.08, y=0.15)


def says_branches(frame: pd.DataFrame) -> str:
    """The best number of branches, and how far one branch is behind."""
    if frame.empty or len(set(frame["branches"])) < 2:
        return "Nothing can be compared yet: at least two numbers of branches are needed."
    mean = frame.assign(branches=frame["branches"].astype(int)).groupby("branches")["value"].mean()
    top = int(str(mean.idxmax()))
    text = (
        f"Best are {top} branches ({mean[top]:.1f} %)" if top > 1 else f"Best is one branch, FedAvg ({mean[1]:.1f} %)"
    )
    low = int(str(mean.idxmin()))
    return f"{text}, of {len(mean)} numbers that were tried; lowest is {low} ({mean[low]:.1f} %)."


def says_fig5(study: Study) -> str:
    """The best number of branches of each column."""
    columns = _by_branches(study)
    if not columns:
        return says_branches(pd.DataFrame())
    return " ".join(f"{place(dataset, at)}: {says_branches(rows)}" for (dataset, at), rows in columns)


def step_sizes(study: Study) -> Figure:
    """Accuracy by step size, three methods."""
    frame = study.numbers("step_sizes", metric="accuracy")
    if frame.empty:
        return plot_nothing()
    frame = frame.assign(at=frame["setting"].str.rsplit(";", n=1).str[0], lr=frame["lr"].astype(float))
    columns = list(frame.groupby("at", sort=False))
    figure, axes = panels(len(columns), 2.4, across=1)
    for ax, (at, rows) in zip(axes, columns, strict=True):
        ends = {}
        for method, own in rows.groupby("method", sort=False):
            curves, style = own.pivot_table(index="lr", columns="seed", values="value"), method_style(str(method))
            ends[label(str(method))] = seeds_and_mean(ax, curves, style["color"], marker=style["marker"])
        ax.set(xlabel="step size", ylabel="accuracy [%]", xscale="log")
        ax.set_title(place("cifar10", str(at)))
        name_ends(ax, ends, chance(str(at)))
    return figure


def pull(study: Study) -> Figure:
    """Accuracy of FedAMP by lambda, beside the printed one."""
    frame, style = _by_pull(study), method_style("fedamp")
    if frame.empty:
        return plot_nothing()
    columns = list(frame.groupby("at", sort=False))
    figure, axes = panels(len(columns), 2.2, across=1, sharex=True)
    for ax, (at, rows) in zip(axes, columns, strict=True):
        curves, printed = rows.pivot_table(index="lam", columns="seed", values="value"), rows["printed"].iloc[0]
        end = seeds_and_mean(ax, curves, style["color"], marker=style["marker"])
        ax.axhline(printed, color=GREY, linestyle=":")
        ax.set(ylabel="accuracy [%]", xscale="log")
        ax.margins(y=0.15)
        ax.set_title(place("cifar10", str(at)))
        name_ends(ax, {label("fedamp"): end, "printed": (end[0], printed, GREY)})
    axes[-1].set_xlabel("strength of the pull, λ")
    return figure


def _by_pull(study: Study) -> pd.DataFrame:
    """The numbers of FedAMP with lambda (lam), the column of Table II (at), and what is printed there."""
    frame = study.numbers("pull", metric="accuracy")
    if frame.empty:
        return frame
    known = reported("pfedmb").query("item == 'table2' and method == 'fedamp'").set_index("setting")["mean"]
    at = frame["setting"].str.rsplit(";", n=1).str[0]
    return frame.assign(at=at, lam=frame["lam"].astype(float), printed=at.map(known))


def says_pull(study: Study) -> str:
    """How much of the distance from the printed accuracy is left with the best pull."""
    frame = _by_pull(study)
    if frame.empty or frame["lam"].nunique() < 2:
        return "Nothing can be compared yet: FedAMP with a weaker pull is needed."
    told = []
    for at, rows in frame.groupby("at", sort=False):
        mean, printed = rows.groupby("lam")["value"].mean(), rows["printed"].iloc[0]
        values = ", ".join(f"{mean[lam]:.1f} with λ = {lam:g}" for lam in sorted(mean.index, reverse=True))
        told.append(f"{place('cifar10', str(at))}: {values}; printed {printed:.1f}")
    return f"Look at how far FedAMP is from the dotted line. {'. '.join(told)}."


def cost(study: Study) -> Figure:
    """What is sent, and how long a prediction takes, by the number of branches."""
    sent, merged, unmerged = (_cost(study, name) for name in ("floats_up", "time", "time_unmerged"))
    if not len(sent):
        return plot_nothing()
    figure, (left, right) = plt.subplots(2, 1, figsize=(WIDE, 3.8))
    single = sent.get(0, np.nan)
    left.plot(sent.index[sent.index > 0], sent[sent.index > 0] / single, "s-", color=RED)
    left.set(xlabel="branches", ylabel="sent, times FedAvg", xticks=[1, *sent.index[sent.index > 0]], ylim=(0, None))
    left.axhline(1, color=BLACK, linewidth=1)
    left.text(0.99, 1.2, "FedAvg", transform=left.get_yaxis_transform(), ha="right", va="bottom")
    ends = {}
    for name, times, color in (("all branches", unmerged, GREY), ("merged", merged, RED)):
        if len(times):
            right.plot(times.index, times, "o-", color=color)
            ends[name] = float(times.index[-1]), float(times.iloc[-1]), color
    right.set(xlabel="branches", ylabel="time, times\nthe plain network", ylim=(0, None))
    name_ends(right, ends)
    return figure


def _cost(study: Study, metric: str) -> pd.Series:
    """A number by branches; 0 is FedAvg."""
    frame = study.numbers("cost", metric=metric)
    if frame.empty:
        return pd.Series(dtype=float)
    branches = frame["branches"].astype(object).fillna("0") if "branches" in frame else 0
    return frame.assign(branches=pd.Series(branches, index=frame.index).astype(int)).groupby("branches")["value"].mean()


def says_step_sizes(study: Study) -> str:
    """The accuracy with each step size, method by method."""
    rows = study.numbers("step_sizes", metric="accuracy")
    if rows.empty:
        return "No other step size has been tried here."
    table = rows.groupby(["method", "lr"], sort=False)["value"].mean()
    told = [
        f"{label(str(method))} {', '.join(f'{value:.1f} with {lr}' for (_, lr), value in own.items())}"
        for method, own in table.groupby("method", sort=False)
    ]
    return f"Look at each line, the mean of both splits: {'; '.join(told)}."


def says_cost(study: Study) -> str:
    """What grows with the number of branches and what does not."""
    sent, merged, unmerged = (_cost(study, name) for name in ("floats_up", "time", "time_unmerged"))
    if 0 not in sent or len(sent) < 2:
        return "Nothing can be compared yet."
    b = int(str(sent.index[-1]))
    text = f"With {b} branches a client sends {sent[b] / sent[0]:.2f} times what it sends in FedAvg"
    if b in merged:
        text += f"; a prediction takes {merged[b]:.1f} times as long as that of the plain network if the branches are "
        text += f"merged first, and {unmerged[b]:.1f} times if they are not"
    return text + "."


def says_table3(study: Study) -> str:
    """What was chosen beside what the paper chose."""
    frame = study.numbers("table3", metric="num_branches")
    printed = reported("pfedmb").query("item == 'table3'").set_index(["dataset", "setting"])["mean"]
    words = []
    for (data, at), rows in frame.groupby(["dataset", "setting"], sort=False):
        ours = ", ".join(f"{b:.0f}" for b in rows["value"])
        words.append(f"{place(str(data), str(at))}: {ours} (paper {printed[str(data), str(at)]:.0f})")
    return "Chosen by seed: " + "; ".join(words) + "." if len(frame) else "Nothing has been chosen yet."


SHOWN = {
    "fig1_2": Item(
        "Figs. 1 and 2: a layer in branches, and clients that share them. Wide arrows: a large alpha.",
        draw=fig1_2,
        alt="Above: an input goes through three branches, which are added with weights alpha. Below: three clients, "
        "each connected to the same three branches, two of them mostly to the first one.",
    ),
    "hero": Item(
        "Ten clients in five pairs: the weight of each of five branches by round. One panel for each pair, one colour "
        "for each branch, one kind of line for each of the two clients.",
        draw=hero,
        alt="Five panels, one for each pair of clients, with the weights of five branches over the rounds.",
        says=says_hero,
    ),
    "table1": Item(
        "Table I: accuracy on the five pairs after fine-tuning, mean over clients, in percent.",
        draw=table1,
        alt="Accuracy of four methods as dots, small for each seed, large for the mean; crosses: as printed.",
        says=partial(says_ranking, item="table1"),
    ),
    "fig3": Item(
        "Fig. 3: weights alpha of ten clients (rows) for five branches (columns); white lines divide the pairs.",
        rows="metric",
        draw=fig3,
        alt="Heat maps of alpha after some of the rounds, left with weighted averaging and right without.",
        says=says_fig3,
    ),
    "fig3_rand": Item(
        "Fig. 3 in one number: do the choices give back the pairs? 1: exactly; 0: as choices at random would.",
        draw=fig3_rand,
        alt="Adjusted Rand index of choices and pairs by round, with and without weighting; thin lines are seeds.",
    ),
    "layers": Item(
        "One alpha for each layer: weights at the end, and how well the choices of a layer give back the pairs.",
        rows="layer",
        draw=layers,
        alt="Five heat maps of alpha, ten clients by five branches, one for each layer of the network.",
        says=says_layers,
    ),
    "fig4": Item(
        "Fig. 4: accuracy after fine-tuning by round, in percent; in its table rounds to 99 % of another's accuracy.",
        draw=fig4,
        alt="Accuracy of four methods over the rounds; thin lines are seeds, thick ones their mean.",
        says=says_fig4,
        digits=1,
    ),
    "pairs": Item(
        "Section VI: accuracy on the five pairs by the number of branches, in percent.",
        rows="branches",
        draw=pairs,
        alt="Accuracy against the number of branches, with a line at five, the number of groups.",
        says=lambda study: says_branches(_by_branches_on_pairs(study)),
    ),
    "pairs_parts": Item(
        "Table I and pFedMB with parts of it replaced: accuracy on the five pairs, in percent.",
        rows="metric",
        draw=pairs_parts,
        alt="Accuracy of the methods of Table I and of variants of pFedMB as dots; crosses: as printed.",
        says=says_pairs_parts,
    ),
    "table2": Item(
        "Table II: accuracy after fine-tuning, mean over clients, in percent.",
        draw=table2,
        alt="Accuracy of the methods as dots, one panel for each data set and partition; crosses: as printed.",
        says=partial(says_ranking, item="table2"),
    ),
    "table3": Item("Table III: the number of branches that validates best.", says=says_table3, digits=0),
    "fig5": Item(
        "Fig. 5: accuracy by the number of branches, in percent; thin lines are seeds.",
        rows="branches",
        draw=fig5,
        alt="Accuracy of pFedMB against the number of branches, one panel for each data set and partition.",
        says=says_fig5,
    ),
    "branches": Item(
        "The same in numbers, with the clients that train a branch and the largest alpha.", rows="branches"
    ),
    "parts": Item(
        "Accuracy of pFedMB with parts of it replaced, in percent, for 15 clients with two classes each.",
        rows="metric",
        draw=parts,
        alt="Left: accuracy of pFedMB, of its variants and of two other methods as dots. Right: clients per branch.",
        says=says_parts,
    ),
    "step_sizes": Item(
        "Three methods with other step sizes: accuracy in percent.",
        draw=step_sizes,
        alt="Accuracy against the step size, a line for each of three methods.",
        says=says_step_sizes,
    ),
    "pull": Item(
        "FedAMP of Table II with weaker pulls towards its cloud models: accuracy in percent.",
        rows="lam",
        draw=pull,
        alt="Accuracy of FedAMP against the strength of the pull, with a line at the printed accuracy.",
        says=says_pull,
    ),
    "cost": Item(
        "Sections IV-A and VI: what is sent, and how long a prediction takes, by the number of branches.",
        rows="metric",
        draw=cost,
        alt="Above: numbers sent, relative to FedAvg. Below: time of a prediction with merged and with all branches.",
        says=says_cost,
    ),
}
