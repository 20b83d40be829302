"""Accuracy and weighted F1 of FedCS and other methods: figures, and what they say."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.papers.fedcs.draw import (
    ADAPTING,
    CHANCE,
    LIGHT,
    WHITE,
    compared,
    data_name,
    distinct,
    dumbbells,
    group_names,
    look,
    means,
    moment_of,
    named,
    paired,
    runs_of,
    signed,
    trained_and_new,
)
from fedlib.report import PALETTE, label, reported
from fedlib.report.marks import (
    dots,
    mark_chance,
    method_dots,
    name_ends,
    panels,
    plot_nothing,
    seeds_and_mean,
    shaded_dots,
)
from fedlib.report.sentences import beside_printed, nearer_to_print
from fedlib.report.style import BLACK, BLUE, GREY, RED, WIDE
from fedlib.studies.rows import Row
from fedlib.studies.study import Study

# -- method by method --------------------------------------------------------------------------------------------------


def control(study: Study) -> Figure:
    """Learning curves of FedCS, of its control and of two methods that know nothing of clients."""
    runs = runs_of(study, "control")
    if not runs:
        return plot_nothing()
    figure, axes = plt.subplots(2, 1, figsize=(WIDE, 4.2), sharex=True, sharey=True)
    for k, (ax, who) in enumerate(zip(axes, ("clients that train", "clients never seen in training"), strict=True)):
        ends = {}
        ax.set(title=who, ylim=(0, 100), ylabel="weighted F1 [%]")
        for method, rows in runs.items():
            paths = [pd.Series(path[:, k], index=rounds) for rounds, path in map(trained_and_new, rows)]
            ends[named(method)] = seeds_and_mean(ax, pd.concat(paths, axis=1), **look(method))
        ax.set_xlim(left=0)
        name_ends(ax, ends, CHANCE)
    axes[1].set_xlabel("round")
    return figure


def table(item: str, study: Study) -> Figure:
    """A dot for every method and seed; a bar for how much clients differ."""
    rows = study.numbers(item)
    if rows.empty:
        return plot_nothing()
    score = rows[rows["metric"] == "weighted_f1"]
    f1 = score.groupby("method", sort=False)["value"].apply(list)
    spread = rows[rows["metric"] == "weighted_f1_std"].groupby("method")["value"].mean()
    order = sorted(f1.index, key=lambda method: -np.mean(f1[method]))
    figure, ax = plt.subplots(figsize=(WIDE, 0.9 + 0.32 * len(order)))
    for y, method in enumerate(order):
        middle = np.mean(f1[method])
        ax.plot([middle - spread[method], middle + spread[method]], [y, y], color=LIGHT, linewidth=5, zorder=1)
    method_dots(ax, score.set_index("method").loc[order].reset_index(), named, look)
    mark_chance(ax, CHANCE, "y")
    ax.set(xlabel="weighted F1 [%]; grey: one standard deviation over clients", xlim=(0, 105))
    ax.set_title(data_name(study, str(score["dataset"].iloc[0])), loc="left")
    return figure


def unseen(study: Study) -> Figure:
    """From the clients that train to those never seen, for every method; those that adapt below."""
    names = distinct(study, "unseen")
    if not names:
        return plot_nothing()
    rows = study.numbers("unseen")
    methods = max(rows[rows["dataset"] == name]["method"].nunique() for name in names)
    figure, axes = panels(len(names), 0.8 + 0.28 * methods, across=1)
    for ax, name in zip(axes, names, strict=True):
        table = at_their_moment(rows[rows["dataset"] == name])
        pairs = [(text, a, b, RED if text.startswith("FedCS") else GREY if adapts else "black")
                 for text, a, b, adapts in table]  # fmt: skip
        dumbbells(ax, pairs, ("clients that train", "unseen"))
        mark_chance(ax, CHANCE, "y")
        ax.set(xlabel=f"weighted F1 [%], {data_name(study, name)}", xlim=(0, 105))
    return figure


def at_their_moment(rows: pd.DataFrame) -> list[tuple[str, float, float, bool]]:
    """Name, F1 of clients that train and of unseen ones, and whether it is adapted; FedAvg also after fine-tuning."""
    values = rows.groupby(["method", "setting"], sort=False)["value"].mean()
    found = []
    for method in dict.fromkeys(rows["method"]):
        moments = ["after"] if method in ADAPTING else ["before", "after"] if method == "fedavg" else ["before"]
        for moment in moments:
            keys = [(method, f"{who};{moment}") for who in ("training", "unseen")]
            if all(key in values.index for key in keys):
                text = label("fedavg+ft" if (method, moment) == ("fedavg", "after") else method)
                found.append((text, *(float(values[key]) for key in keys), moment == "after"))
    return sorted(found, key=lambda entry: entry[3])


def readings(study: Study) -> Figure:
    """Other readings of FedCS, and FedAvg as a line."""
    rows = study.numbers("readings")
    rows = rows[(rows["metric"] == "weighted_f1") & (rows["method"] == "fedcs-fc2")]
    if rows.empty:
        return plot_nothing()
    values = rows.groupby("setting", sort=False)["value"].apply(list)
    names = {key: key.removeprefix("reading=").replace("paper", "rates as printed") for key in map(str, values.index)}
    colors = {key: RED if "default" in key else BLUE if "whitening" in key else GREY for key in names}
    groups = [(text, values[key], colors[key]) for key, text in names.items()]
    figure, ax = plt.subplots(figsize=(WIDE, 0.9 + 0.32 * len(groups)))
    dots(ax, groups)
    average = means(study, "control", "weighted_f1")
    if "fedavg" in average.index:
        ax.axvline(float(average["fedavg"]), color="black", linewidth=1)
        ax.annotate(
            "FedAvg", (float(average["fedavg"]), 1), (0, 2), ax.get_xaxis_transform(), "offset points", ha="center"
        )
    mark_chance(ax, CHANCE, "y")
    ax.set(xlabel="weighted F1 [%]", xlim=(0, 105))
    return figure


def momentum(study: Study) -> Figure:
    """Every method without and with momentum."""
    return before_and_after(study, "momentum", ("momentum=0", "momentum=0.9"), ("no momentum", "momentum 0.9"))


def plug_in(study: Study) -> Figure:
    """Other methods alone, and with FedCS around them."""
    return before_and_after(study, "plug_in", ("alone", "aligned"), ("alone", "aligned"))


def before_and_after(study: Study, item: str, settings: tuple[str, str], names: tuple[str, str]) -> Figure:
    """A dumbbell per method between two settings, over the seeds that both have."""
    rows = study.numbers(item)
    table = rows.pivot_table(index=["method", "seed"], columns="setting", values="value", sort=False)
    if not {*settings} <= {*table}:
        return plot_nothing()
    table = table.dropna().groupby("method", sort=False).mean()
    figure, ax = plt.subplots(figsize=(WIDE, 0.9 + 0.32 * len(table)))
    pairs = [
        (named(m), float(table[settings[0]][m]), float(table[settings[1]][m]), str(look(m)["color"]))
        for m in map(str, table.index)
    ]
    dumbbells(ax, pairs, names)
    mark_chance(ax, CHANCE, "y")
    ax.set(xlabel="weighted F1 [%]", xlim=(0, 105))
    return figure


def directions(study: Study) -> Figure:
    """A dumbbell per data set, from whitening only to FedCS with its directions."""
    table = _with_and_without(study)
    if table.empty:
        return plot_nothing()
    table = table.groupby("dataset", sort=False).mean()
    figure, ax = plt.subplots(figsize=(WIDE, 0.9 + 0.32 * len(table)))
    pairs = [(str(name), float(own[WHITE]), float(own["fedcs-fc2"]), RED) for name, own in table.iterrows()]
    dumbbells(ax, pairs, ("whitening only", "FedCS-FC2"))
    mark_chance(ax, CHANCE, "y")
    ax.set(xlabel="weighted F1 [%]", xlim=(0, 105))
    return figure


def _with_and_without(study: Study) -> pd.DataFrame:
    """F1 of FedAvg, of whitening only and of FedCS (columns) by data set and seed that have all."""
    rows = study.numbers("directions")
    if rows.empty:
        return pd.DataFrame()
    rows = rows.assign(dataset=[data_name(study.only("directions"), name) for name in rows["dataset"]])
    table = rows.pivot_table(index=["dataset", "seed"], columns="method", values="value", sort=False)
    return table.reindex(columns=["fedavg", WHITE, "fedcs-fc2"]).dropna()


def says_directions(study: Study) -> str:
    """What whitening adds to FedAvg, and what directions add to whitening."""
    table = _with_and_without(study)
    if table.empty:
        return ""
    told = []
    for name, own in table.groupby("dataset", sort=False):
        white, learned = (own[WHITE] - own["fedavg"]).mean(), (own["fedcs-fc2"] - own[WHITE]).mean()
        text = (
            f"{name}: whitening adds {signed(white)} points to FedAvg, the learned directions {signed(learned)} to that"
        )
        told.append(text + (", from one seed" if len(own) == 1 else ""))
    return f"Look at the length of the lines. {'; '.join(told)}."


def levels(item: str, study: Study) -> Figure:
    """The weighted F1 of methods in other settings, a panel for each."""
    rows = study.numbers(item)
    if rows.empty:
        return plot_nothing()
    settings = list(dict.fromkeys(rows["setting"]))
    figure, axes = panels(len(settings), 0.7 + 0.32 * rows["method"].nunique(), across=1, sharex=True)
    for ax, setting in zip(axes, settings, strict=True):
        own = rows[rows["setting"] == setting].groupby("method", sort=False)["value"].apply(list)
        dots(ax, [(named(method), values, str(look(method)["color"])) for method, values in own.items()])
        mark_chance(ax, CHANCE, "y")
        ax.set(title=setting.replace(";", ", ").replace("dir=", "Dirichlet "), xlabel="weighted F1 [%]", xlim=(0, 105))
    return figure


def few(study: Study) -> Figure:
    """The weighted F1 of every method of Table 1 with fewer images, and as it is printed."""
    rows = study.numbers("few")
    if rows.empty:
        return plot_nothing()
    table = _by_images(rows)
    figure, ax = plt.subplots(figsize=(WIDE, 1.4 + 0.34 * len(table)))
    shaded_dots(ax, table.rename(index=named), printed_f1().reindex(table.index).rename(index=named))
    ax.set(xlabel="weighted F1 [%]", xlim=(0, 105))
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _by_images(rows: pd.DataFrame) -> pd.DataFrame:
    """The weighted F1 by method and number of images."""
    rows = rows.assign(images=rows["images"] + " images")
    return rows.pivot_table(index="method", columns="images", values="value", sort=False)


def printed_f1(item: str = "table1") -> pd.Series:
    """The printed weighted F1 of a table, by method."""
    rows = reported("fedcs")
    return rows[(rows["item"] == item) & (rows["metric"] == "weighted_f1")].set_index("method")["mean"]


def long(study: Study) -> Figure:
    """The weighted F1 of methods of Table 2 as usual and with more training, and as it is printed."""
    rows = by_length(study)
    if rows.empty:
        return plot_nothing()
    figure, ax = plt.subplots(figsize=(WIDE, 1.6 + 0.34 * rows["what"].nunique()))
    table = rows.pivot_table(index="what", columns="kind", values="value", sort=False)
    shaded_dots(ax, table, rows.groupby("what")["paper"].first())
    mark_chance(ax, CHANCE, "y")
    ax.set(xlabel="weighted F1 [%]", xlim=(0, 105))
    ax.margins(y=0.4)
    figure.legend(loc="outside upper left")
    return figure


def by_length(study: Study) -> pd.DataFrame:
    """The numbers with more training, after those of Table 2: what (the method), kind (how long), value, paper."""
    frames = [study.numbers(item, metric="weighted_f1") for item in ("table2", "long")]
    usual, more = (frame.assign(what=frame["method"].map(named)) for frame in frames)
    if more.empty:
        return more
    both, lengths = pd.concat([usual[usual["method"].isin(more["method"])], more]), {}
    for cell in study.cells:
        if cell.item in ("table2", "long") and cell.method in set(more["method"]):
            setting = cell.tasks[0].setting
            lengths[cell.item] = f"after {setting['rounds']} rounds of {setting['local_epochs']} epochs"
    return both.assign(kind=both["item"].map(lengths), paper=both["method"].map(printed_f1("table2")))


# -- round by round ----------------------------------------------------------------------------------------------------


def by_group(item: str, metric: str, study: Study) -> Figure:
    """Figs. 2, 9 and 10: a panel per method, a thin line per group; thick: clients that train, and unseen ones."""
    runs = runs_of(study, item)
    if not runs:
        return plot_nothing()
    unit = {"f1": "weighted F1 [%]", "accuracy": "accuracy [%]"}[metric]
    domains = item == "fig10"
    size = (WIDE, 0.3 + 1.5 * len(runs))
    figure, axes = plt.subplots(len(runs), 1 + domains, figsize=size, sharex=True, sharey=True, squeeze=False)
    for (ax, *others), (method, rows) in zip(axes, runs.items(), strict=True):
        moment = moment_of(method, rows[0])
        groups = np.mean([np.array(row.kept[f"groups {metric} {moment}"], float) for row in rows], axis=0)
        ax.set(title=label(method), ylabel=unit, ylim=(0, 102))
        ends = {}
        for who, own, color in (("train", groups[:, :-2], BLUE), ("unseen", groups[:, -2:], RED)):
            lines = pd.DataFrame(own, index=rows[0].kept[f"rounds {moment}"])
            ends[f"{who} {own[-1].mean():.0f}"] = seeds_and_mean(ax, lines, color)
        ax.set_xlim(left=0)
        name_ends(ax, ends, CHANCE)
        for other in others:
            by_domain(study, other, method, rows)
    for ax in axes[-1]:
        ax.set_xlabel("round")
    return figure


def by_domain(study: Study, ax: Axes, method: str, rows: Sequence[Row]) -> None:
    """A line per domain: the mean over its clients, those of one domain and those that mix them."""
    names = group_names(study, "digit5")
    tables = [row.accuracy[row.accuracy["when"] == moment_of(method, rows[0])] for row in rows]
    both = pd.concat(tables)
    n = both["client"].max() + 1
    own = np.where(np.arange(n) < n - len(names), np.arange(n) % len(names), len(names))
    lines = both.assign(domain=own[both["client"]]).pivot_table(index="round", columns="domain", values="accuracy")
    ends = {}
    for d, (name, color) in enumerate(zip((*names, "mixed"), (*PALETTE[: len(names)], BLACK), strict=True)):
        ends[name] = seeds_and_mean(ax, lines[[d]], color, linewidth=1.2)
    ax.set_title(f"{label(method)} by domain", loc="left")
    name_ends(ax, ends, CHANCE)


def curves(item: str, study: Study) -> Figure:
    """Figs. 6 to 8: a panel per method, its mean over clients in a band of one standard deviation; others in grey."""
    runs = runs_of(study, item)
    if not runs:
        return plot_nothing()
    lines = {}
    for method, rows in runs.items():
        tables = [row.curve() for row in rows]
        both = pd.concat(
            [table[table["when"] == moment_of(method, row)] for table, row in zip(tables, rows, strict=True)]
        )
        lines[method] = both.groupby("round")[["client_mean", "client_std"]].mean()
    last = max(line.index[-1] for method, line in lines.items() if method != "local_only") if len(lines) > 1 else 1
    figure, axes = panels(len(lines), 1.5, sharex=True, sharey=True)
    for ax, (method, line) in zip(axes, lines.items(), strict=True):
        ax.set(title=label(method), ylim=(0, 102), xlim=(0, last))
        for other in lines.values():
            ax.plot(other.index, other["client_mean"], color=LIGHT, linewidth=0.8)
        if len(line) == 1:  # Local Only: evaluated once
            ax.axhline(line["client_mean"].iloc[0], **look(method))
        else:
            ax.plot(line.index, line["client_mean"], linewidth=1.8, **look(method))
            low, high = line["client_mean"] - line["client_std"], line["client_mean"] + line["client_std"]
            ax.fill_between(line.index, low, high, color=look(method)["color"], alpha=0.15, linewidth=0)
        end = float(line["client_mean"].iloc[-1])
        mark_chance(ax, CHANCE, text="chance" if ax is axes[0] else "")
        name_ends(ax, {f"{end:.0f}": (last, end, str(look(method)["color"]))})
        ax.set(xlabel="round", ylabel="accuracy [%]")
        ax.label_outer()
    return figure


# -- sentences ---------------------------------------------------------------------------------------------------------


def says_control(study: Study) -> str:
    """FedCS against its control, and the control against FedAvg."""
    unseen = means(study, "control", "weighted_f1", "setting", "method")
    if ("unseen clients", "fedcs-fc2") not in unseen.index or ("unseen clients", WHITE) not in unseen.index:
        return ""
    ends, where = unseen["unseen clients"], {"setting": "unseen clients"}
    text = f"Look at the lower panel: on clients never seen in training FedCS ends at {ends['fedcs-fc2']:.0f} %, "
    text += f"and the control, which never learns who is who, at {ends[WHITE]:.0f} %. "
    text += f"The difference is {compared(paired(study, 'control', 'fedcs-fc2', WHITE, **where))}"
    if "fedavg" in ends.index:
        text += f"; from FedAvg to the control it is {compared(paired(study, 'control', WHITE, 'fedavg', **where))}"
    return text + "."


def says_table(item: str, study: Study) -> str:
    """The first and the last method, and FedCS against two others."""
    values = means(study, item).sort_values(ascending=False)
    if len(values) < 2:
        return ""
    best, worst = str(values.index[0]), str(values.index[-1])
    text = f"Look at the order: {label(best)} is on top with {values.iloc[0]:.1f} %, {label(worst)} last with "
    text += f"{values.iloc[-1]:.1f} %."
    rows = study.numbers(item)
    rows = rows[rows["metric"] == "weighted_f1"].pivot_table(index="seed", columns="method", values="value")
    ours = [method for method in values.index if str(method).startswith("fedcs")]
    for other in ("fedavg", "fedavg+bn"):
        if ours and other in rows:
            text += (
                f" {label(ours[0])} less {label(other)}: {compared((rows[ours[0]] - rows[other]).dropna().to_numpy())}."
            )
    low = [label(str(method)) for method, value in values.items() if value < CHANCE + 5]
    return text + (f" Near guessing: {', '.join(low)}." if low else "")


def says_groups(item: str, study: Study) -> str:
    """By how much unseen groups are behind."""
    gaps = means(study, item, "gap")
    if gaps.empty:
        return ""
    told = ", ".join(f"{label(str(method))} {gap:+.1f}" for method, gap in gaps.items())
    least = label(str(gaps.abs().idxmin()))
    return f"Look at red against blue: points lost on unseen groups (below 0: gained): {told}. Least with {least}."


def says_curves(item: str, study: Study) -> str:
    """The highest method, and that with the narrowest band."""
    mean, std = (means(study, item, metric) for metric in ("accuracy", "accuracy_std"))
    if mean.empty:
        return ""
    text = f"Look at the right ends: {label(str(mean.idxmax()))} is highest with {mean.max():.0f} %; clients "
    return text + f"differ least with {label(str(std.idxmin()))} (standard deviation {std.min():.1f} points)."


def says_unseen(study: Study) -> str:
    """What methods lose on unseen clients, by kind of method."""
    rows, texts = study.numbers("unseen"), []
    for name in distinct(study, "unseen"):
        table = at_their_moment(rows[rows["dataset"] == name])
        adapt, one = (
            [b - a for text, a, b, kind in table if kind == way and not text.startswith("FedCS")]
            for way in (True, False)
        )
        ours = [b - a for text, a, b, _ in table if text.startswith("FedCS")]
        if adapt and one and ours:
            text = f"{data_name(study, name)}: methods that adapt change by {signed(np.mean(adapt))} points on unseen "
            text += f"clients, other methods with one model by {signed(np.mean(one))}, FedCS by {signed(np.mean(ours))}"
            texts.append(text)
    return f"Look at the length of the lines. {'; '.join(texts)}." if texts else ""


def says_readings(study: Study) -> str:
    """What the directions add, reading by reading."""
    rows = study.numbers("readings")
    rows = rows[(rows["metric"] == "weighted_f1") & (rows["method"] == "fedcs-fc2")]
    table = rows.assign(reading=rows["setting"].str.removeprefix("reading=")).pivot_table(
        index="seed", columns="reading", values="value"
    )
    pairs = [(one, f"{one}, whitening" if "rank" in one else "whitening") for one in ("default", "rank 10", "rank 30")]
    told = [f"{one} {compared((table[one] - table[other]).dropna().to_numpy())}"
            for one, other in pairs if {one, other} <= {*table}]  # fmt: skip
    means = table.mean().sort_values()
    if len(means) < 2:
        return ""
    low, high = (f"{means.iloc[k]:.1f} ({means.index[k]})" for k in (0, -1))
    text = f"Look at each reading and its control below it: all lie between {low} and {high}."
    return text + (f" What the directions add: {'; '.join(told)}." if told else "")


def says_pairs(item: str, settings: tuple[str, str], text: str, study: Study) -> str:
    """The gain of every method from one setting to the other."""
    table = study.numbers(item).pivot_table(index=["method", "seed"], columns="setting", values="value", sort=False)
    if not {*settings} <= {*table}:
        return ""
    gains = (table[settings[1]] - table[settings[0]]).dropna().groupby("method", sort=False).mean()
    told = ", ".join(f"{named(str(method))} {gain:+.1f}" for method, gain in gains.items())
    return f"Look at the length of the lines: {text}, in points: {told}."


def says_few(study: Study) -> str:
    """How far the scores are from the printed ones, by number of images, over methods that have all of these."""
    rows = study.numbers("few")
    if rows.empty:
        return ""
    return nearer_to_print(_by_images(rows).sub(printed_f1(), axis="index").dropna().abs())


def says_long(study: Study) -> str:
    """What more training changes."""
    rows = by_length(study)
    text = "" if rows.empty else beside_printed(rows, "weighted F1")
    return text and f"Look at which dots lie at the red bars. {text}"


def says_levels(item: str, study: Study) -> str:
    """The best method in every setting."""
    rows = means(study, item, "weighted_f1", "setting", "method")
    best = [
        f"{setting}: {label(str(own.droplevel(0).idxmax()))} ({own.max():.1f} %)"
        for setting, own in rows.groupby(level=0)
    ]
    return f"Look at the top of each panel: {'; '.join(best)}." if best else ""
