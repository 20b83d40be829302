"""pFedHR: the accuracy of teachers, and the gain of their clients; a control with one teacher trained on all images."""

from itertools import product
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from torch import Tensor

from fedlib.algorithm import Algorithm
from fedlib.federation import Federation
from fedlib.methods.pfedhr import public_training
from fedlib.models import MODELS, build, deal, initial
from fedlib.papers.pfedhr import accuracy
from fedlib.papers.pfedhr.sizes import ALL_KNOWING, KNOWS_NOTHING, NOBODY, PRINTED, READINGS, where
from fedlib.report.marks import mark_chance, name_ends, panels, seeds_and_mean
from fedlib.report.sentences import extremes, paired_difference
from fedlib.report.style import BLACK, BLUE, BROWN, GREEN, GREY, ORANGE, PINK, RED, SKY, WIDE
from fedlib.stack import PerArchitecture, repeat
from fedlib.studies.item import Cell, Unmeasured, drawing, enough, item
from fedlib.training import logits, on_device, train

TEACHERS = {  # name and colour
    NOBODY: ("Local-Only", GREY),
    PRINTED: ("pFedHR", RED),
    "random candidate": ("random candidate", ORANGE),
    "better stitched": ("better stitched", BLUE),
    "stitched without ReLU": ("no ReLU", SKY),
    "ends in a client's head": ("client's head", PINK),
    "kept until the next one": ("kept longer", BROWN),
    KNOWS_NOTHING: ("untrained teacher", BLACK),
    ALL_KNOWING: ("ideal teacher", GREEN),
}


class Taught(NamedTuple):
    """The clients' networks, and the logits of their teacher."""

    v: PerArchitecture
    answers: Tensor  # [samples, n_classes]


def all_knowing(
    federation: Federation, device: torch.device, name: str, epochs: int, batch_size: int, lr: float
) -> Tensor:
    """Logits [samples, n_classes] of a network that was trained with Adam on the train parts of all clients."""
    images = on_device(federation.data, device)
    model = build(name, MODELS[name], federation.data.x.shape[1:], len(federation.data.classes), seed=0)
    own = torch.from_numpy(np.concatenate(federation.train)).to(device)
    theirs = images._replace(x=images.x[own], y=images.y[own])
    w = {entry: t.to(device) for entry, t in model.weights.items()}
    w = public_training(theirs, True, epochs, batch_size, lr, 1.0, (0,))(model, w, 0)
    return logits(model, w, images, torch.arange(len(images.y), device=device))


def taught(teacher: str = "m4", lam: float = 0.2, epochs: int = 5, batch_size: int = 64, lr: float = 1e-3) -> Algorithm:
    """Local-Only with equation (6) and the same teacher for every client in every round."""
    # The teacher is a network with this name, trained for `epochs` epochs on the train parts of all clients. `lam=0` is
    # Local-Only. Evaluated: the client's own model.

    def loss(w, batch, answers):  # ONE client; eq. 6
        z = batch.model(w, batch.x)
        divergence = F.kl_div(z.log_softmax(1), answers[batch.index].softmax(1), reduction="batchmean")
        return F.cross_entropy(z, batch.y) + lam * divergence

    def init(model, federation):
        answers = model.zeros(len(federation.data), model.n_classes)
        return Taught(initial(deal(model, federation.n_clients)), answers)

    def round(state, cohort):
        if cohort.round == 0:  # not in `init`, which also runs when a finished run is read
            answers = all_knowing(cohort.federation, state.answers.device, teacher, epochs, batch_size, lr)
            state = state._replace(answers=answers.to(state.answers.dtype))
        for part in cohort.by_architecture():
            part.keep(state.v, train(part, loss, part.mine(state.v), repeat(state.answers, part.size)))
        return state

    hyper = {"teacher": teacher, "lam": lam, "epochs": epochs, "batch_size": batch_size, "lr": lr}
    made_of = (taught, MODELS[teacher])
    return Algorithm("taught", init, round, models=lambda state: state.v, mixed=True, hyper=hyper, made_of=made_of)


def first(study) -> pd.DataFrame:
    """Final accuracies by teacher, on the first data set and split with runs of pFedHR, starting with SVHN, IID."""
    numbers = study.numbers("other_teachers", metric="accuracy")
    for split, dataset in product(accuracy.CHANCE, ("svhn", "cifar10", "mnist")):
        rows = numbers[(numbers["dataset"] == dataset) & (numbers["split"] == split)]
        if (rows["teacher"] == PRINTED).any():
            return rows
    raise Unmeasured


def by_client(study) -> pd.DataFrame:
    """Accuracy [%] of every client and of its teacher (knows) by round, and points over Local-Only (gain)."""
    frames = []
    for teacher, seed, task, split in first(study)[["teacher", "seed", "tasks", "split"]].to_numpy():
        row = study.rows[task, seed]
        frame = row.accuracy[["round", "client", "accuracy"]].assign(teacher=teacher, seed=seed, split=split)
        knows = {(t, client): right for t, client, right, _ in row.kept.get("lessons", ())}
        same, pairs = row.kept.get("teacher on test images", np.nan), zip(frame["round"], frame["client"], strict=True)
        frames.append(frame.assign(knows=[knows.get(pair, same) for pair in pairs]))
    frame = pd.concat(frames)
    alone = frame[frame["teacher"] == NOBODY].drop(columns=["teacher", "knows", "split"])
    frame = frame.merge(alone, "left", ["seed", "round", "client"], suffixes=("", "_alone"))
    return frame.assign(gain=frame["accuracy"] - frame["accuracy_alone"])


def taught_last(rows: pd.DataFrame) -> tuple[int, float, float]:
    """The last round with teachers of pFedHR, and the mean accuracy [%] of these teachers and of their clients."""
    taught = rows[rows["teacher"] == PRINTED].dropna(subset="knows")
    means = enough(taught.groupby("round")[["knows", "accuracy"]].mean())
    return int(means.index[-1]), *means.iloc[-1]


def gain(study, one: str, other: str) -> str:
    """A sentence on the paired difference in final accuracy between the clients of two teachers."""
    return paired_difference(first(study), one, other, "teacher", lambda who: TEACHERS[who][0])


@item(
    "Accuracy [%] of teachers, on their clients' training images, and of clients; gain over Local-Only [points].",
    rows="metric",
)
def teachers(sizes):
    """Above: accuracy of teachers and of all clients by round. Below: gain of the clients over Local-Only."""
    return accuracy.of_pfedhr(sizes, "teachers", "with a head")


@teachers.shows
def _(study):
    rows = by_client(study)
    at, teacher, client = taught_last(rows)
    gains = "; ".join(filter(None, (gain(study, who, NOBODY)[:-1] for who in (PRINTED, ALL_KNOWING))))
    yield (
        f"In round {at} the teachers of pFedHR (red) have an accuracy of {teacher:.0f} % on their clients' training "
        f"images (chance: {accuracy.CHANCE[rows['split'].iloc[0]]:.0f} %); that of these clients on their test images "
        f"is {client:.0f} %. {gains and f'Over the last three rounds, {gains}.'}"
    ).strip()
    figure, (above, below) = plt.subplots(2, 1, figsize=(WIDE, 4.4), sharex=True)
    above.set(ylabel="accuracy [%]", ylim=(0, 100), title="teachers and clients of pFedHR")
    below.set(xlabel="round", ylabel="gain over\nLocal-Only [points]", title="gain of the clients, by teacher")
    below.axhline(0, color=GREY)
    knows = {"all clients": (PRINTED, "accuracy", BLACK), "teachers": (PRINTED, "knows", RED)}
    knows |= {"ideal teacher": (ALL_KNOWING, "knows", GREEN)}
    gains = {TEACHERS[who][0]: (who, "gain", TEACHERS[who][1]) for who in (PRINTED, "better stitched", ALL_KNOWING)}
    for ax, lines, chance in ((above, knows, accuracy.CHANCE[rows["split"].iloc[0]]), (below, gains, np.nan)):
        ends = {}
        for name, (who, column, color) in lines.items():
            own = rows[rows["teacher"] == who].dropna(subset=column)
            if len(own):
                ends[name] = seeds_and_mean(ax, own.pivot_table(index="round", columns="seed", values=column), color)
        ax.set_xlim(right=rows["round"].max())
        name_ends(ax, ends, chance)
    yield figure


@item(
    "Control: accuracy [%] of clients and of their teachers (pFedHR's: on training images), by choice of the teacher.",
    rows="teacher",
    explains=("table2", "table3", "table4"),
)
def other_teachers(sizes):
    """Gain of clients over Local-Only against the accuracy of their teachers; dots are seeds, diamonds means."""
    epochs = {KNOWS_NOTHING: 0, ALL_KNOWING: sizes.teacher_epochs}
    shared = {who: taught(sizes.models[-1], 0.2, n, sizes.batch_size) for who, n in epochs.items()}
    algorithms = {NOBODY: sizes.method("local_only"), PRINTED: sizes.pfedhr()}
    algorithms |= {reading: sizes.pfedhr(**READINGS[reading]) for reading in sizes.readings}
    for (name, source), split in product(sizes.data.items(), sizes.splits):
        for who, algorithm in (algorithms | shared).items():
            task, seeds = sizes.run(source, split, algorithm), sizes.reading_seeds.get(who, sizes.seeds)
            cell = Cell("pfedhr", name, where("labeled", split, teacher=who), (task,), sizes.score, seeds=seeds)
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
    groups = enough([*rows.groupby(["data", "split"], sort=False)])
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
    table = table.reindex(columns=dict.fromkeys([*table, NOBODY]))
    gains = enough(table.sub(table[NOBODY], axis=0).drop(columns=NOBODY).mean().dropna())
    largest = extremes(gains, "The gain over Local-Only", " points", lambda who: f'"{TEACHERS[who][0]}"')
    return f"{largest} {gain(study, PRINTED, KNOWS_NOTHING)}".strip()


def leads(study) -> pd.DataFrame:
    """Points of every teacher above its client (lead), and of the client above Local-Only a round later (gain)."""
    rows = by_client(study)
    rows = rows[rows["teacher"].isin([PRINTED, "better stitched", ALL_KNOWING])].sort_values("round", kind="stable")
    later = rows.groupby(["teacher", "seed", "client"], sort=False)["gain"].shift(-1)
    return rows.assign(lead=rows["knows"] - rows["accuracy"], gain=later).dropna()


@drawing("Gain of clients over Local-Only against the lead of their teachers (pFedHR's are tested on training images).")
def client_gains(study):  # the runs of the control
    """Gain of clients a round later against their teachers' lead; a dot per client and round, a colour per teacher."""
    rows = enough(leads(study))
    figure, ax = plt.subplots(figsize=(WIDE, 3.0))
    ax.set(xlabel="lead: teacher minus client [points]")
    ax.set(ylabel="gain: client minus Local-Only,\na round later [points]")
    mark_chance(ax, 0, "y", "")
    clouds(ax, rows, "lead", "gain")
    return figure


@client_gains.says
def _(study):
    rows = leads(study)
    own = enough(rows[rows["teacher"] == PRINTED])
    text = f"{(own['lead'] < 0).sum()} of {len(own)} teachers of pFedHR (red) are less accurate on "
    text += "their client's training images than the client on its test images"
    r = rows["lead"].corr(rows["gain"])
    return f"{text}." if np.isnan(r) else f"{text}. The correlation of lead and gain over all dots is {r:.2f}."
