"""pFedHR: the accuracy of teachers, and the gain of the clients that learn from them."""

from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedlib.papers.pfedhr import accuracy
from fedlib.papers.pfedhr.controls import taught
from fedlib.papers.pfedhr.sizes import ALL_KNOWING, KNOWS_NOTHING, NOBODY, PRINTED, READINGS, where
from fedlib.report.marks import mark_chance, name_ends, panels, plot_nothing, seeds_and_mean
from fedlib.report.sentences import extremes, paired_difference
from fedlib.report.style import BLACK, BLUE, BROWN, GREEN, GREY, ORANGE, PINK, RED, SKY, WIDE
from fedlib.studies.item import Cell, drawing, item

TEACHERS = {  # name and colour
    NOBODY: ("Local-Only", GREY),
    PRINTED: ("pFedHR", RED),
    "random candidate": ("random candidate", ORANGE),
    "better stitched": ("better stitched", BLUE),
    "stitched without ReLU": ("no ReLU", SKY),
    "ends in a client's head": ("client's head", PINK),
    "kept until the next one": ("kept longer", BROWN),
    KNOWS_NOTHING: ("untrained teacher", BLACK),
    ALL_KNOWING: ("all-knowing teacher", GREEN),
}


def control(split: str, teacher: str) -> str:
    """The setting of a run with this teacher."""
    return where("labeled", split, teacher=teacher)


def first(study) -> pd.DataFrame:
    """Final accuracies by teacher, on the first data set and split with runs of pFedHR, IID and SVHN first."""
    numbers = study.numbers("other_teachers", metric="accuracy")
    for split, dataset in product(accuracy.CHANCE, ("svhn", "cifar10", "mnist")):
        rows = numbers[(numbers["dataset"] == dataset) & (numbers["split"] == split)]
        if (rows["teacher"] == PRINTED).any():
            return rows
    return numbers.iloc[:0]


def by_client(study) -> pd.DataFrame:
    """Accuracy [%] of every client and of its teacher (knows) by round, and points over Local-Only (gain)."""
    frames = [pd.DataFrame(columns=["teacher", "seed", "round", "client", "accuracy", "knows", "split"])]
    for teacher, seed, task, split in first(study)[["teacher", "seed", "tasks", "split"]].to_numpy():
        row = study.rows[task, seed]
        frame = row.accuracy[["round", "client", "accuracy"]].assign(teacher=teacher, seed=seed, split=split)
        knows = {(t, client): right for t, client, right, _ in row.kept.get("lessons", ())}
        same, pairs = row.kept.get("teacher on test images", np.nan), zip(frame["round"], frame["client"], strict=True)
        frames.append(frame.assign(knows=[knows.get(pair, same) for pair in pairs]))
    frame = pd.concat(frames[1:] or frames)
    alone = frame[frame["teacher"] == NOBODY].drop(columns=["teacher", "knows", "split"])
    frame = frame.merge(alone, "left", ["seed", "round", "client"], suffixes=("", "_alone"))
    return frame.assign(gain=frame["accuracy"] - frame["accuracy_alone"])


def gain(study, one: str, other: str) -> str:
    """The paired difference in final accuracy between two teachers' clients, in words."""
    return paired_difference(first(study), one, other, "teacher", lambda who: TEACHERS[who][0])


@item(
    "Accuracy [%] of teachers and clients by round, and gain of the clients over Local-Only [points].",
    rows="metric",
    alt="Above: accuracy of teachers and clients by round. Below: gain of the clients over Local-Only.",
)
def teachers(sizes):
    return accuracy.of_pfedhr(sizes, "teachers", "with a head")


@teachers.draw
def _(study):
    rows = by_client(study)
    if rows.empty:
        return plot_nothing()
    figure, (above, below) = plt.subplots(2, 1, figsize=(WIDE, 4.4), sharex=True)
    above.set(ylabel="accuracy [%]", ylim=(0, 100), title="teachers and clients of pFedHR")
    below.set(xlabel="round", ylabel="gain over\nLocal-Only [points]", title="gain of the clients, by teacher")
    below.axhline(0, color=GREY)
    knows = {"clients": (PRINTED, "accuracy", BLACK), "teachers": (PRINTED, "knows", RED)}
    knows |= {"all-knowing teacher": (ALL_KNOWING, "knows", GREEN)}
    gains = {TEACHERS[who][0]: (who, "gain", TEACHERS[who][1]) for who in (PRINTED, "better stitched", ALL_KNOWING)}
    for ax, lines, chance in ((above, knows, accuracy.CHANCE[rows["split"].iloc[0]]), (below, gains, np.nan)):
        ends = {}
        for name, (who, column, color) in lines.items():
            own = rows[rows["teacher"] == who].dropna(subset=column)
            if len(own):
                ends[name] = seeds_and_mean(ax, own.pivot_table(index="round", columns="seed", values=column), color)
        ax.set_xlim(right=rows["round"].max())
        name_ends(ax, ends, chance)
    return figure


@teachers.says
def _(study):
    rows = by_client(study)
    mean = rows[rows["teacher"] == PRINTED].groupby("round")[["knows", "accuracy"]].mean().dropna()
    if mean.empty:
        return ""
    teacher, client = mean.iloc[-1]
    gains = "; ".join(filter(None, (gain(study, who, NOBODY)[:-1] for who in (PRINTED, ALL_KNOWING))))
    return (
        f"In round {mean.index[-1]} the teachers of pFedHR (red) have an accuracy of {teacher:.0f} % (chance: "
        f"{accuracy.CHANCE[rows['split'].iloc[0]]:.0f} %) and the clients (black) of {client:.0f} %: the teachers are "
        f"{'less' if teacher < client else 'more'} accurate than their clients. {gains and f'Final accuracy: {gains}.'}"
    ).strip()


@item(
    "Control: accuracy [%] of other teachers and of their clients.",
    rows="teacher",
    alt="Accuracy of teachers against the gain of their clients over Local-Only; dots are seeds, diamonds means.",
    explains=("table2", "table3", "table4"),
)
def other_teachers(sizes):
    epochs = {KNOWS_NOTHING: 0, ALL_KNOWING: sizes.teacher_epochs}
    shared = {who: taught(sizes.models[-1], 0.2, n, sizes.batch_size) for who, n in epochs.items()}
    algorithms = {NOBODY: sizes.method("local_only"), PRINTED: sizes.pfedhr()}
    algorithms |= {reading: sizes.pfedhr(**READINGS[reading]) for reading in sizes.readings}
    for (name, source), split in product(sizes.data.items(), sizes.splits):
        for who, algorithm in (algorithms | shared).items():
            task, seeds = sizes.run(source, split, algorithm), sizes.reading_seeds.get(who, sizes.seeds)
            cell = Cell("pfedhr", name, control(split, who), (task,), sizes.score, seeds=seeds)
            yield cell
            if who != NOBODY:
                yield cell._replace(read="teacher on test images" if who in shared else "teachers", metric="teachers")


def clouds(ax: Axes, rows: pd.DataFrame, x: str, y: str) -> None:
    """Dots by teacher, and their means as diamonds with names."""
    ends = {}
    for who, own in rows.groupby("teacher", sort=False):
        (name, color), mean = TEACHERS[str(who)], own[[x, y]].mean()
        ax.plot(own[x], own[y], "o", color=color, alpha=0.4, markersize=3.5, markeredgewidth=0)
        ax.plot(*mean, "D", color=color, markersize=7, markeredgecolor="white")
        ends[f" {name}"] = (*mean, color)
    ax.axhline(0, color=GREY)
    name_ends(ax, ends, weight="bold")


@other_teachers.draw
def _(study):
    key = ["data", "split", "teacher", "seed"]
    rows = study.numbers("other_teachers").pivot_table(index=key, columns="metric", values="value", sort=False)
    rows = rows.reindex(columns=["accuracy", "teachers"]).reset_index()
    alone = rows[rows["teacher"] == NOBODY].drop(columns=["teacher", "teachers"])
    rows = rows.merge(alone, on=["data", "split", "seed"], suffixes=("", "_alone")).dropna()
    rows = rows.assign(gain=rows["accuracy"] - rows["accuracy_alone"])
    groups = list(rows.groupby(["data", "split"], sort=False))
    if not groups:
        return plot_nothing()
    figure, axes = panels(len(groups), 2.8, across=1)
    for ax, (key, own) in zip(axes, groups, strict=True):
        ax.margins(x=0.3, y=0.25)
        ax.set(xlabel="accuracy of the teachers [%]", ylabel="gain over Local-Only [points]")
        ax.set_title(accuracy.panel(*key))
        mark_chance(ax, own["accuracy_alone"].mean(), "y", "accuracy of Local-Only")
        clouds(ax, own, "teachers", "gain")
    return figure


@other_teachers.says
def _(study):
    table = first(study).pivot_table(index="seed", columns="teacher", values="value", sort=False)
    if NOBODY not in table:
        return ""
    gains = table.sub(table[NOBODY], axis=0).drop(columns=NOBODY).mean().dropna()
    largest = extremes(gains, "The gain over Local-Only", " points", lambda who: TEACHERS[who][0])
    return f"{largest} {gain(study, PRINTED, KNOWS_NOTHING)}".strip()


def leads(study) -> pd.DataFrame:
    """Points of every teacher over its client (lead), and of the client over Local-Only a round later (gain)."""
    rows = by_client(study)
    rows = rows[rows["teacher"].isin([PRINTED, "better stitched", ALL_KNOWING])].sort_values("round", kind="stable")
    later = rows.groupby(["teacher", "seed", "client"], sort=False)["gain"].shift(-1)
    return rows.assign(lead=rows["knows"] - rows["accuracy"], gain=later).dropna()


@drawing(
    "Gain of a client against the lead of its teacher; a dot for every client and round.",
    alt="Gain of a client over Local-Only a round later, against the lead of its teacher; colours are teachers.",
)
def pupils(study):  # the runs of the control
    rows = leads(study)
    if rows.empty:
        return plot_nothing()
    figure, ax = plt.subplots(figsize=(WIDE, 3.0))
    ax.set(xlabel="lead: teacher minus client [points]")
    ax.set(ylabel="gain: client minus Local-Only,\na round later [points]")
    mark_chance(ax, 0, "y", "")
    clouds(ax, rows, "lead", "gain")
    return figure


@pupils.says
def _(study):
    rows = leads(study)
    own = rows[rows["teacher"] == PRINTED]
    if own.empty:
        return ""
    text = f"{(own['lead'] < 0).sum()} of {len(own)} teachers of pFedHR (red) have a lower accuracy than their client"
    r = rows["lead"].corr(rows["gain"])
    if np.isnan(r):
        return f"{text}."
    meaning = "a better teacher helps more" if r > 0.3 else "the accuracy of the teacher hardly matters for the client"
    return f"{text}. The correlation of lead and gain over all dots is {r:.2f}: {meaning}."
