"""FedSimSup: controls of Table 1: another network, more clients or rounds, from FedRep to FedPAC, fine-tuning."""

from collections.abc import Mapping
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

import fedlib as fl
from fedlib.papers.fedsimsup.accuracy import chance, last_five, over_rounds, partition_label, place
from fedlib.papers.fedsimsup.sizes import columns, first, most_clients, other_run, run, seeds, table_run
from fedlib.report.panels import line_panels, method_panels
from fedlib.report.paper import reported
from fedlib.report.sentences import beside_printed, in_pairs, nearest_kind
from fedlib.report.style import BLACK, GREY, label, method_style
from fedlib.studies.item import Cell, Item, item
from fedlib.studies.rows import Row

STEPS = ("FedRep", "one epoch for the classifier", "classifiers combined", "features aligned (FedPAC)")


def with_printed(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers of a control with their column of Table 1 or 2 (place), its printed number (paper), and a name (what)."""
    printed = reported("fedsimsup").query("item in ('table1', 'table2')")
    printed = printed.set_index(["method", "dataset", "setting"])["mean"].to_dict()
    column = frame["setting"].str.extract(r"^(clients=\d+;\w+=[\d.]+)", expand=False)
    keys = zip(frame["method"], frame["data"], column, strict=True)
    what = frame["method"].map(label)
    what = what + ", " + column.map(partition_label) if len(set(column)) > 1 else what
    return frame.assign(place=column, paper=[printed.get(key, np.nan) for key in keys], what=what)


def compared(control: Item, kinds: Mapping[str, str], words: str = "with {}", listed: bool = False) -> None:
    """Say which kind of run is nearest to print, or that and all numbers; `kinds`: words by the end of a setting."""

    @control.shows
    def _(study):
        frame = study.numbers(control.name)
        frame = frame.assign(kind=frame["setting"].str.split(";", n=2).str[2].map(kinds))
        frame = with_printed(frame.dropna(subset="kind"))
        told = frame.assign(kind=frame["kind"].map(words.format))
        nearest = "" if listed else nearest_kind(told, ["data", "what", "place"], word="")
        yield nearest or beside_printed(told)
        lines = frame.assign(method=frame["method"] + ", " + frame["kind"])
        yield method_panels(lines, ("data", "place"), partial(place, study), chance)


@item(
    "Control: accuracy [%] of a wide (32-64-512) and a narrow network (6-16-120-84): pooled, mean over clients, and in "
    "the best round.",
    explains=("table1", "table2", "table3"),
)
def network(sizes):
    """Accuracy of each method with the wide and the narrow network; black bars are printed values."""
    for c, m in product(most_clients(sizes, "dir", "pat"), sizes.other_methods):
        if c.kind == "pat" and m not in sizes.pathological_methods:
            continue
        tasks = table_run(sizes, c, m), other_run(sizes, c, m)
        until = min(task.rounds for task in tasks)
        reads = {"samples": partial(last_five, until=until), "clients": partial(last_five, until=until, over="clients")}
        reads["best round"] = partial(over_rounds, pd.Series.max, 0, until=until)
        for task, (over, read) in product(tasks, reads.items()):
            setting = f"{c.setting};network={task.model};accuracy={over}"
            yield Cell(m, c.dataset, setting, (task,), read, seeds=sizes.side_seeds)


WIDTHS = {"network=lenet4;accuracy=samples": "wide", "network=lenet5_plain;accuracy=samples": "narrow"}
compared(network, WIDTHS, "with the {} network")


@item("Control: accuracy [%] of Per-FedAvg with two outer steps, 0.1 and 0.001.", explains=("table1",), digits=1)
def outer_step(sizes):
    """Accuracy of Per-FedAvg with two outer steps; black bars are printed values."""
    for c, beta in product(columns(sizes, "dir"), (0.1, 0.001)):
        if c.dataset == first(sizes).dataset:
            usual = table_run(sizes, c, "perfedavg")
            task = usual._replace(algorithm=fl.perfedavg(**usual.algorithm.hyper | {"beta": beta}))
            yield Cell("perfedavg", c.dataset, f"{c.setting};beta={beta}", (task,), last_five)


compared(outer_step, {f"beta={beta}": f"outer step {beta}" for beta in (0.1, 0.001)})


@item(
    "Control: accuracy [%] of FedAvg and FedRep with the usual number of clients per round, and with twice as many.",
    explains=("table1",),
    digits=1,
)
def participation(sizes):
    """Accuracy with the usual number of clients per round and with twice as many; black bars are printed values."""
    fewest = [column for column in columns(sizes, "dir") if column.n == min(sizes.clients)]
    for c, m in product(fewest, ("fedavg", "fedrep")):
        usual = table_run(sizes, c, m, benchmark=True)
        twice = usual._replace(setting={**usual.setting, "join_ratio": 2 * sizes.join_ratio})
        for name, task in (("usual", usual), ("twice", twice)):
            yield Cell(m, c.dataset, f"{c.setting};participants={name}", (task,), last_five)


PARTICIPANTS = {"participants=usual": "the usual number", "participants=twice": "twice as many clients per round"}
compared(participation, PARTICIPANTS)


@item(
    "Control: accuracy [%] with exactly c classes for every client, and with c random shards.",
    explains=("table2",),
    digits=1,
)
def shards(sizes):
    """Accuracy of each method with exact numbers of classes and with random shards; black bars are printed values."""
    most = max(sizes.pathological[first(sizes).dataset])
    for c, m in product(columns(sizes, "pat"), sizes.pathological_methods):
        if (c.dataset, c.value) == (first(sizes).dataset, most):
            usual = table_run(sizes, c, m)
            for name, partition in (("classes", c.partition), ("shards", fl.shards(int(c.value)))):
                task = usual._replace(partition=partition)
                yield Cell(m, c.dataset, f"{c.setting};partition={name}", (task,), last_five, seeds=seeds(sizes, m))


compared(shards, {"partition=classes": "exact numbers of classes", "partition=shards": "random shards"})


@item(
    "Control: accuracy [%] of the narrow network with ten times as many rounds, averaged over five evaluations; lowest "
    "and highest accuracy in the last fifth of the rounds.",
    rows="round",
    explains=("table1",),
    digits=1,
)
def longer_training(sizes):
    """Accuracy over the rounds, a line for each method, with dashes at the printed values."""
    for column, method in product(most_clients(sizes, "dir"), sizes.other_methods):
        task = other_run(sizes, column, method, times=10)  # as many as the paper's
        rounds = task.rounds
        task = task._replace(setting={**task.setting, "evaluate_every": max(1, rounds // 100)})
        cell = partial(Cell, method, column.dataset, tasks=(task,))
        for t in range(rounds // 10, rounds + 1, rounds // 10):
            yield cell(setting=f"{column.setting};round={t}", read=partial(last_five, until=t))
        for metric, extreme in (("lowest", pd.Series.min), ("highest", pd.Series.max)):
            yield cell(setting=column.setting, read=partial(over_rounds, extreme, 0.8 * rounds), metric=metric)


def curves_beside_print(curves: pd.DataFrame, **look):
    """Accuracy over the rounds, a panel for each partition, dashes at the printed numbers."""
    look |= {"y": "accuracy", "printed": "paper", "ylim": (0, None)}
    return line_panels(curves, "round", ["place"], partition_label, chance, **look)


@longer_training.shows
def _(study):
    frame = with_printed(study.numbers("longer_training"))
    at = frame["round"].astype(float)  # NaN: of the last fifth
    ends = frame[at.isin([at.min(), at.max()])]
    text = beside_printed(ends.assign(kind=at[ends.index].map("after {:,.0f} rounds".format)))
    spread = frame[at.isna()].groupby("what")["value"].agg(np.ptp)
    if text and len(spread) > 1:
        text += f" In the last fifth of the rounds {spread.idxmax()} varies most, by {spread.max():.1f} points."
    yield text
    yield curves_beside_print(with_printed(study.curves("longer_training").query("metric == 'lowest'")))


@item("Control: accuracy [%] from FedRep to FedPAC, one change at a time.", rows="step", explains=("table1",), digits=1)
def fedrep_to_fedpac(sizes):
    """Accuracy over the rounds, a line for each change, with dashes at the printed values."""
    one_epoch = fl.fedrep(body_epochs=sizes.supervisor_epochs + sizes.theta_epochs - 1)
    for column in most_clients(sizes, "dir"):
        rep, pac = (table_run(sizes, column, method) for method in ("fedrep", "fedpac"))
        between = (run(sizes, column, one, rep.rounds) for one in (one_epoch, fl.fedpac(lam=0.0)))
        for step, task in zip(STEPS, (rep, *between, pac), strict=True):
            if step != STEPS[1] or task.name != rep.name:  # no step if FedRep has one epoch anyway
                yield Cell("fedpac", column.dataset, f"{column.setting};step={step}", (task,), last_five)


@fedrep_to_fedpac.shows
def _(study):
    declared = {cell.setting.partition(";step=")[2] for cell in study.cells if cell.item == "fedrep_to_fedpac"}
    curves = study.curves("fedrep_to_fedpac", diverged=True)
    step = curves["setting"].str.extract("step=(.*)", expand=False)
    frame = with_printed(curves.assign(method=np.where(step == STEPS[0], "fedrep", "fedpac")))
    frame = frame.assign(step=step, paper=frame["paper"].where(step.isin(STEPS[::3])))  # of both ends
    diverged = bool(study.diverged("fedrep_to_fedpac"))
    texts, best_round = [], f"in the best round{' before any divergence' * diverged},"
    for column, rows in frame.groupby("place", sort=False):
        best = rows.pivot_table(index="step", columns="seed", values="accuracy", aggfunc="max", sort=False)
        changes = best.dropna(axis="columns").diff().iloc[1:]
        if len(best) < len(declared) or changes.empty:
            continue
        paper = rows.groupby("step")["paper"].first().dropna()
        printed = f" (printed {paper[STEPS[-1]] - paper[STEPS[0]]:+.1f})" if len(paper) == 2 else ""
        points = ", ".join(f"{step} {value:+.1f}" for step, value in changes.mean(axis="columns").items())
        start = f"With {partition_label(str(column))}, {best_round} the accuracy of FedPAC (orange) minus that"
        texts.append(f"{start} of FedRep (green) is {in_pairs(changes.sum().to_numpy())}{printed}. By step: {points}.")
    yield " ".join(texts)
    colors = method_style("fedrep")["color"], GREY, BLACK, method_style("fedpac")["color"]
    looks = {step: {"color": color} for step, color in zip(STEPS, colors, strict=True)}
    yield curves_beside_print(frame, line="step", named=str, look=looks.__getitem__)


@item(
    "Control: accuracy [%] of FedRep with the narrow network, without and with fine-tuning of the classifiers.",
    rows="classifier",
    explains=("table1",),
    digits=1,
)
def fine_tuned_classifiers(sizes):
    """Accuracy without and with fine-tuning of the classifiers; black bars are printed values."""
    for column in most_clients(sizes, "dir"):
        usual = other_run(sizes, column, "fedrep")
        tune = {"tune_epochs": sizes.supervisor_epochs, "tune_every": min(usual.rounds, 10)}
        again = usual._replace(setting={**usual.setting, **tune, "tune_part": "personal"})
        for classifier, task, when in (("as it is", usual, "before"), ("trained again", again, "after")):
            read, setting = partial(Row.score, last=5, when=when), f"{column.setting};classifier={classifier}"
            yield Cell("fedrep", column.dataset, setting, (task,), read)


TUNED = {"classifier=as it is": "without fine-tuning", "classifier=trained again": "with fine-tuning"}
compared(fine_tuned_classifiers, TUNED, "{}", listed=True)
