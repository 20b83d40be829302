"""FedCS: scores of all methods (Tables 1 to 3, Figs. 6 to 8), of training and unseen clients, and the main control."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fedlib.papers.fedcs.sizes import ADAPTING, CONTROL, METRICS, SHIFT, WHITE, inferred_run, run, unseen_clients
from fedlib.report.marks import if_near, mark_chance, name_ends, panels
from fedlib.report.panels import dumbbell_panels, line_panels, line_style, method_panels
from fedlib.report.sentences import extremes, paired_difference
from fedlib.report.style import BLACK, BLUE, GREY, RED, data_label, label
from fedlib.studies.item import Cell, Item, enough, item, means
from fedlib.studies.partition_control import partition_control

CHANCE = 10.0  # [%]: ten classes
LIGHT = "#C8C8C8"
KINDS = {"FedCS (red)": RED, "methods that adapt (grey)": GREY, "other shared models (black)": BLACK}


def when(method: str) -> str:
    """The evaluation that counts for a method: "before" or "after" fine-tuning."""
    return "after" if method in (*ADAPTING, "fedsim") else "before"


def client_scores(metric: str, moment: str, row) -> np.ndarray:
    """Final F1, AUC or accuracy [%] of every client."""
    if metric != "accuracy":
        return np.array(row.kept[f"{metric} {moment}"], float)
    rows = row.accuracy[row.accuracy["when"] == moment]
    return rows.loc[rows["round"] == rows["round"].max(), "accuracy"].to_numpy()


def score(metric: str, moment: str, row, what: Callable[..., float] = np.mean, chosen=slice(None)) -> float:
    """Mean or another statistic of a final metric, over all or some clients."""
    return float(what(client_scores(metric, moment, row)[chosen]))


def named(method: str) -> str:
    """Name of a method in a figure."""
    return "whitening only" if method == WHITE else label(method)


def look(method: str) -> dict[str, Any]:
    """Colour and line of a method in a figure."""
    solid = {"linestyle": "-"} if method.startswith("fedcs") else {}
    return line_style(method) | solid | ({"color": BLUE} if method == WHITE else {})


CONTRASTS = ("fedcs-fc2", WHITE), (WHITE, "fedavg")  # the effects of the directions and of the whitening
F1: dict[str, Any] = {"named": named, "look": look, "xlabel": "weighted F1 [%]"}


def distinct(study, name: str) -> pd.DataFrame:
    """The numbers of an item, without data sets with the same substitute images as an earlier one."""
    numbers = study.numbers(name)
    images = {c.dataset: str(c.tasks[0].images._replace(stands_for="")) for c in study.cells if c.item == name}
    first = numbers.groupby(numbers["dataset"].map(images))["dataset"].transform("first")
    return numbers[numbers["dataset"] == first]


def differences(numbers: pd.DataFrame, *pairs: tuple[str, str], **about) -> str:
    """Sentences on the paired differences of some methods."""
    texts = (paired_difference(numbers, *pair, **{"name": named} | about) for pair in pairs)
    return " ".join(text[:1].upper() + text[1:] for text in texts if text)


@item("Weighted F1 [%] of FedCS, its control (whitening only), FedAvg and FedAvg+BN over the rounds.", digits=1)
def learning_curves(sizes):
    """Learning curves of FedCS, its control, FedAvg and FedAvg+BN, for training clients and for unseen clients."""
    unseen = unseen_clients(sizes, sizes.side)
    for (method, of), who in product(CONTROL.items(), ("training clients", "unseen clients")):
        read = partial(score, "f1", "before", chosen=unseen == (who == "unseen clients"))
        yield Cell(method, sizes.side, who, (run(sizes, sizes.side, of),), read, "weighted_f1", sizes.control_seeds)


def group_curves(study, name: str, metric: str) -> pd.DataFrame:
    """Means of client groups over the rounds: method, seed, round, group, who ("train" or "unseen"), value."""
    tables = []
    for method in study.numbers(name)["method"].unique():
        for row in study.rows_behind(name, method=method):
            means = np.array(row.kept[f"groups {metric} {when(method)}"], float)  # [evaluations, groups]
            table = pd.DataFrame(means).assign(round=row.kept[f"rounds {when(method)}"]).melt("round", var_name="group")
            who = np.where(table["group"] >= means.shape[1] - 2, "unseen", "train")
            tables.append(table.assign(method=method, seed=row.seed, who=who))
    return pd.concat(enough(tables), ignore_index=True)


@learning_curves.draw
def _(study):
    by_seed = group_curves(study, "learning_curves", "f1").groupby(["who", "method", "seed", "round"], sort=False)
    means = by_seed["value"].mean()
    titles = {"train": "training clients", "unseen": "clients never seen in training"}
    style = {"named": named, "look": look, "ylabel": "weighted F1 [%]", "ylim": (0, None), "height": 2.1}
    return line_panels(means.reset_index(), "round", ["who"], titles.get, CHANCE, **style)


@learning_curves.says
def _(study):
    numbers = study.numbers("learning_curves").query("setting == 'unseen clients'")
    fedcs, white = means(numbers, "method", "fedcs-fc2", WHITE)
    start = f"On clients never seen in training (lower panel), FedCS-FC2 (red) ends at {fedcs:.1f} %, whitening only"
    return f"{start} (blue) at {white:.1f} %. {differences(numbers, *CONTRASTS)}"


def table(name: str, data: str) -> Item:
    """Table 1, 2 or 3: scores of all methods on a data set."""

    @item(
        f"Table {name[-1]}: weighted AUC and weighted F1 [%] on {data_label(data)}, mean over clients (±: standard "
        "deviation over clients in the paper, over seeds here).",
        name=name,
        protocols={"inferred": {"inferred": True}, "text": {}},  # readings A34 and A35
        alt=f"Weighted F1 of every method on {data_label(data)} or substitute data: dots are seeds, grey bars the "
        "standard deviation over clients, black bars printed values.",
    )
    def scores(sizes, inferred=False):
        make = inferred_run if inferred else run
        seeds = sizes.seeds[data] + (inferred and sizes.full and data == "mnist")  # the third one decides cs01 and cs05
        for method, (metric, short) in product(sizes.methods[data], METRICS.items()):
            for suffix, what in (("", np.mean), ("_std", np.std)):
                tasks, read = (make(sizes, data, method),), partial(score, short, when(method), what=what)
                yield Cell(method, data, SHIFT[data], tasks, read, metric + suffix, seeds)

    @scores.shows
    def _(study):
        numbers = study.numbers(name, metric="weighted_f1")
        mean, std = (study.means(name, "method", metric=metric) for metric in ("weighted_f1", "weighted_f1_std"))
        ours = [method for method in mean.sort_values().index if method.startswith("fedcs")] or [""]
        pairs = differences(numbers, (ours[-1], "fedavg"), (ours[-1], "fedavg+bn"))
        yield f"{extremes(mean, 'Weighted F1')} {pairs}".strip()
        figure = method_panels(numbers, ["data"], chance=CHANCE, best_first=True, **F1)
        for ax in figure.axes:
            lines = [text.get_text() for text in ax.get_yticklabels()]
            places = [lines.index(named(method)) for method in mean.index]
            ax.errorbar(mean, places, xerr=std[mean.index], fmt="none", ecolor=LIGHT, elinewidth=5, zorder=0.5)
            ax.set(xlim=(0, 105), xlabel="weighted F1 [%]; grey: standard deviation over clients")
        yield figure

    return scores


table1 = table("table1", "mnist")
table2 = table("table2", "cifar10")
table3 = table("table3", "digit5")

LINES = {label(method): (method, SHIFT["mnist"]) for method in ("fedcs-fc3", "fedcs-fc2", "fedavg+bn")}
other_partitions = partition_control(table1, "mnist", LINES, "weighted_f1")


def curves(name: str, data: str) -> Item:
    """Fig. 6, 7 or 8: accuracy over the rounds on a data set."""

    @item(
        f"Fig. {name[3:]}: mean accuracy over all clients [%] on {data_label(data)}; band: standard deviation over "
        "clients.",
        name=name,
        alt=f"A panel per method with its mean accuracy by round on {data_label(data)} or substitute data; "
        "the other methods in grey.",
    )
    def accuracy(sizes):
        for method, (suffix, what) in product(sizes.methods[data], (("", np.mean), ("_std", np.std))):
            tasks, read = (run(sizes, data, method),), partial(score, "accuracy", when(method), what=what)
            yield Cell(method, data, SHIFT[data], tasks, read, f"accuracy{suffix}", sizes.seeds[data])

    @accuracy.shows
    def _(study):
        mean, spread = (study.means(name, "method", metric=metric) for metric in ("accuracy", "accuracy_std"))
        band = extremes(spread, "The standard deviation over clients (band)", " points")
        yield f"{extremes(mean, 'Mean accuracy over clients')} {band}".strip()
        lines = {}
        for method in mean.index:
            found = pd.concat([row.curve() for row in study.rows_behind(name, method=method)])
            lines[method] = found[found["when"] == when(method)].groupby("round")[["client_mean", "client_std"]].mean()
        last = max([line.index[-1] for method, line in lines.items() if method != "local_only"] or [1])
        low = min(((line["client_mean"] - line["client_std"]).min() for line in lines.values()), default=0.0)
        level = if_near(CHANCE, [low, 100.0])
        low = low - 3 if np.isnan(level) else 0
        figure, axes = panels(len(lines), 1.5, sharex=True, sharey=True)
        for ax, (method, line) in zip(axes, lines.items(), strict=True):
            mean, std, color = line["client_mean"], line["client_std"], look(method)["color"]
            ax.set(title=label(method), ylim=(low, 102), xlim=(0, last), xlabel="round", ylabel="accuracy [%]")
            for other in lines.values():
                ax.plot(other["client_mean"], color=LIGHT, linewidth=0.8)
            if len(line) == 1:  # Local-Only: evaluated once
                ax.axhline(mean.iloc[0], **look(method))
            else:
                ax.plot(mean, linewidth=1.8, **look(method))
                ax.fill_between(line.index, mean - std, mean + std, color=color, alpha=0.15, linewidth=0)
            mark_chance(ax, level, text="chance" if ax is axes[0] else "")
            name_ends(ax, {f"{mean.iloc[-1]:.0f}": (last, mean.iloc[-1], color)})
            ax.label_outer()
        yield figure

    return accuracy


fig6 = curves("fig6", "mnist")
fig7 = curves("fig7", "cifar10")
fig8 = curves("fig8", "digit5")


@item("Weighted F1 [%] of training clients and of clients never seen in training.", digits=1)
def unseen_and_training_clients(sizes):
    """For every method a line from training clients to unseen clients; methods that adapt are grey."""
    for data in sizes.data:
        new = unseen_clients(sizes, data)
        for method in dict.fromkeys(sizes.methods[data]):
            task = run(sizes, data, method)
            moments = ("before", "after") if "tune_epochs" in task.setting else ("before",)
            for who, moment in product(("training", "unseen"), () if method == "fedavg+ft" else moments):
                read = partial(score, "f1", moment, chosen=new == (who == "unseen"))
                yield Cell(method, data, f"{who};{moment}", (task,), read, "weighted_f1", sizes.seeds[data])


def training_and_unseen(study) -> pd.DataFrame:
    """F1 of training and unseen clients by data and method, adapting methods last; FedAvg+FT: FedAvg, fine-tuned."""
    numbers = distinct(study, "unseen_and_training_clients")
    who, moment = (numbers["setting"].str.split(";").str[part] for part in (0, 1))
    method = numbers["method"].mask((numbers["method"] == "fedavg") & (moment == "after"), "fedavg+ft")
    numbers = numbers.assign(who=who, moment=moment, method=method)[moment == method.map(when)]
    numbers = numbers.sort_values("moment", ascending=False, kind="stable")
    table = numbers.pivot_table(index=["data", "method"], columns="who", values="value", sort=False)
    return table.reindex(columns=["training", "unseen"]).dropna()


def kind(method: str) -> str:
    """Kind of a method, one of `KINDS`."""
    ours, adapting, others = KINDS
    return ours if method.startswith("fedcs") else adapting if when(method) == "after" else others


@unseen_and_training_clients.shows
def _(study):
    table = training_and_unseen(study).drop("local_only", level="method", errors="ignore")
    change = (table["unseen"] - table["training"]).rename("value").reset_index()
    means = change.assign(kind=change["method"].map(kind)).pivot_table("value", "data", "kind", sort=False).dropna()
    told = []
    for data, own in means.iterrows():
        told.append(f"on {data_label(data)} {', '.join(f'{gap:+.1f} with {kind}' for kind, gap in own.items())}")
    start = "Weighted F1 of unseen clients (filled) minus that of training clients (hollow), in points, averaged over"
    yield f"{start} methods: {'; '.join(told)}." if told else ""
    look = F1 | {"look": lambda method: {"color": KINDS[kind(method)]}}
    yield dumbbell_panels(table, ("training clients", "unseen clients"), CHANCE, **look)
