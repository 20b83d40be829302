"""FedSimSup (anonymous, submitted to ICLR 2025): what its tables and figures need."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedlib as fl
from fedlib.algorithm import Algorithm
from fedlib.data import Dataset
from fedlib.federation import Partition
from fedlib.fingerprint import Registry
from fedlib.methods.fedsimsup import SUPERVISORS, Pair, label_similarity
from fedlib.models import MODELS, Model, build
from fedlib.papers.fedsimsup.authors import who_is_in_whom
from fedlib.papers.fedsimsup.beside import STEPS
from fedlib.papers.fedsimsup.figures import SHOWN
from fedlib.runs import Session, cohorts, deterministic, prepare
from fedlib.stack import n_bytes, put, take
from fedlib.studies.old import Cell, items
from fedlib.studies.rows import Row, kept
from fedlib.studies.tasks import Images, Kept, Probe, Run, images, profile_of
from fedlib.training import Images as Pixels
from fedlib.training import mean_loss, on_device

RIVALS = ("local_only", "fedavg", "fedprox", "perfedavg", "fedrep", "fedproto", "fedpac")
METHODS = (*RIVALS, "fedsimsup")
MAIN = ("local_only", "fedavg", "fedrep", "fedsimsup")
ALPHAS = (0.1, 0.5)
CLASSES = {"cifar10": (2, 5), "cifar100": (5, 20)}  # per client, in the pathological partitions
SIZES = (100, 50)
DIRICHLET = [(name, f"clients={n};dir={alpha}") for name in CLASSES for alpha in ALPHAS for n in SIZES]
PATHOLOGICAL = [(name, f"clients={n};pat={c}") for name, own in CLASSES.items() for c in own for n in SIZES]
WRITERS = ("femnist", "clients=3597;natural")
KINDS = {"small_vit": "t", "small_cnn": "c", "small_lenet": "l", "small_lenet4": "l"}  # the letters of Table 3
SHAPES = {"cifar10": ((3, 32, 32), 10), "cifar100": ((3, 32, 32), 100), "femnist": ((1, 28, 28), 62)}
EARLY = 50  # the round at which Fig. 2 is read first
LONGER = 10  # times as many rounds as Table 1 has in the control "long": as many as the paper's
ANSWERS = ("both", "theta", "s")  # of the sum, of each network alone
SCOPES = ("cat", "all")  # Fig. 4: images of one class, and all
HIDDEN = ("kept, theta", "kept", "kept, another image")  # right answers if what theta, s, s elsewhere covers is hidden
CAM = ("images", "correlation", "with another image", "overlap", "area theta", "area s", *HIDDEN)


class Sizes(NamedTuple):
    """What differs between profiles."""

    data: Mapping[str, Images]  # the paper's data set -> ours
    writers: Images
    dirichlet: Mapping[str, Sequence[float]]
    pathological: Mapping[str, Sequence[int]]
    rounds: Mapping[str, int]  # of Tables 1 and 2 and Fig. 2, by data set
    clients: Mapping[int, int]  # the paper's number -> ours
    methods: Sequence[str] = METHODS  # of Table 1 and Fig. 2
    writer_clients: int = 3597
    writer_ratios: tuple[float, float] = (0.1, 0.01)  # of Local, of all others
    writer_methods: Sequence[str] = METHODS
    pathological_methods: Sequence[str] = METHODS
    pathological_rounds: int = 1000  # at most
    mixed_rounds: int = 1000  # of Table 3, at most
    similarity_rounds: int = 100  # of Fig. 3
    similarity_seeds: int = 3
    similarity_every: int = 1  # rounds between the evaluations of Fig. 3
    evaluate_every: Mapping[str, int] = {}  # by data set; default: 1
    tune_epochs: int = 3  # of Per-FedAvg, before it is tested
    tune_every: int = 10
    supervisor_epochs: int = 2
    theta_epochs: int = 3
    join_ratio: float = 0.1
    batch_size: int = 32
    model: str = "lenet4"
    supervisor: str = "small_lenet4"
    other: tuple[str, str] = ("lenet5_plain", "small_lenet")  # the other reading of the network, with its supervisor
    other_methods: Sequence[str] = MAIN
    other_rounds: int = 1000  # at most
    cam_class: str = "cat"
    moves_rounds: int = 30
    seeds: int = 2  # of the methods in MAIN; of all others: 1
    side_seeds: int = 2  # of the other network and of how far supervisors move


PEN = Images("digit_styles", domains=("pen",), train=600, stands_for="cifar10")  # dark digits on light paper: easy
QUICK = Sizes(
    data={"cifar10": PEN},
    writers=Images("characters", stands_for="femnist"),
    dirichlet={"cifar10": (0.1,)},
    pathological={"cifar10": (2,)},
    rounds={"cifar10": 20},
    clients={50: 20},
    methods=MAIN,
    writer_methods=(),
    pathological_methods=("fedrep", "fedsimsup"),
    pathological_rounds=10,
    mixed_rounds=8,
    similarity_rounds=20,
    similarity_every=2,
    evaluate_every={"cifar10": 2},
    supervisor_epochs=1,
    theta_epochs=2,
    join_ratio=0.3,
    batch_size=10,
    model="lenet5_plain",
    supervisor="small_lenet",
    other=("lenet4", "small_lenet4"),
    other_methods=("local_only",),  # in so wide a network FedSimSup is lost at this step size
    other_rounds=6,
    cam_class="3",
    moves_rounds=20,
    seeds=3,
    side_seeds=1,
)
PROFILES = Registry(  # a run of one profile is not older than the sizes of another one
    {
        "paper": Sizes(
            data={name: Images(name) for name in CLASSES},
            writers=Images("femnist"),
            dirichlet=dict.fromkeys(CLASSES, ALPHAS),
            pathological=CLASSES,
            rounds={"cifar10": 100, "cifar100": 1000, "femnist": 1000},  # the paper has 1,000 everywhere
            clients={n: n for n in SIZES},
            evaluate_every={"cifar100": 10, "femnist": 10},
        ),
        "quick": QUICK,
        "smoke": QUICK._replace(
            data={"cifar10": PEN._replace(train=400)},
            dirichlet={"cifar10": (0.5,)},
            rounds={"cifar10": 2},
            clients={50: 12},  # so many that every kind of supervisor is drawn
            pathological_rounds=1000,
            mixed_rounds=1,
            similarity_rounds=2,
            similarity_seeds=1,
            similarity_every=1,
            evaluate_every={},
            theta_epochs=1,
            join_ratio=0.25,
            batch_size=20,
            other_rounds=1,
            moves_rounds=8,
            seeds=1,
        ),
    }
)
CONTROLS = {name: ("network", "alone") for name in ("table2", "table3")}
CONTROLS["table1"] = ("network", "long", "to_fedpac", "fresh", "alone")


def cells(profile: str) -> list[Any]:
    """What FedSimSup needs at one size."""
    sizes = PROFILES[profile]
    cells = [*table1(sizes), *table2(sizes), *table3(sizes), *fig2(sizes), *fig3(sizes), *fig4(sizes)]
    cells += [*fig5_and_similarity(sizes), *authorship(sizes), *moves(sizes), *networks(sizes), *long(sizes)]
    cells += [*to_fedpac(sizes), *fresh(sizes), *costs(sizes)]
    return cells


ITEMS = items(SHOWN, CONTROLS)


# -- runs ---------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A column of Tables 1 to 3: data set, clients as the paper counts them, kind and strength of the partition."""

    dataset: str
    n: int
    kind: str  # "dir" or "pat"
    value: float

    @property
    def setting(self) -> str:
        """As the paper's tables are indexed."""
        return f"clients={self.n};{self.kind}={self.value:g}"


def columns(sizes: Sizes, kind: str) -> list[Column]:
    """All columns with this kind of partition."""
    values = sizes.dirichlet if kind == "dir" else sizes.pathological
    return [Column(name, n, kind, value) for name, own in values.items() for value in own for n in sizes.clients]


def first(sizes: Sizes) -> Column:
    """CIFAR-10, most clients, strongest skew: Figs. 3 and 4, the other network, and how far supervisors move."""
    return next(column for column in columns(sizes, "dir") if column.n == max(sizes.clients))


def beside_first(sizes: Sizes, kind: str) -> list[Column]:
    """The columns with the data and the clients of the first one."""
    same = first(sizes)
    return [column for column in columns(sizes, kind) if (column.dataset, column.n) == (same.dataset, same.n)]


def partition(column: Column) -> Partition:
    """Who owns which samples."""
    return fl.dirichlet(column.value, 10) if column.kind == "dir" else fl.classes_per_client(int(column.value))


def made(sizes: Sizes, method: str, supervisor: str = "") -> Algorithm:
    """A method with the paper's hyper-parameters."""
    return {
        "local_only": fl.local_only,
        "fedavg": fl.fedavg,
        "fedprox": partial(fl.fedprox, mu=1.0),
        "perfedavg": partial(fl.perfedavg, alpha=0.001, beta=0.1, hessian="free", steps=4),
        "fedrep": partial(fl.fedrep, body_epochs=sizes.theta_epochs),
        "fedproto": partial(fl.fedproto, lam=1.0),
        "fedpac": partial(fl.fedpac, lam=1.0),
        "fedsimsup": partial(fl.fedsimsup, supervisor or sizes.supervisor, sizes.supervisor_epochs),
    }[method]()


def run(sizes: Sizes, column: Column, algorithm: Algorithm, rounds: int, model: str = "") -> Run:
    """A run in a column of Tables 1 to 3."""
    setting = common(sizes, algorithm, column.dataset, rounds) | {"join_ratio": sizes.join_ratio}
    federate = {"test_fraction": None}  # the official test part is dealt out in the same shares (reading A5)
    source, n = sizes.data[column.dataset], sizes.clients[column.n]
    return Run(algorithm, source, partition(column), n, setting, model or sizes.model, federate, diverged)


def common(sizes: Sizes, algorithm: Algorithm, name: str, rounds: int) -> dict[str, object]:
    """What all runs on a data set have in common."""
    setting: dict[str, object] = {"rounds": rounds, "local_epochs": sizes.supervisor_epochs + sizes.theta_epochs}
    setting |= {"batch_size": sizes.batch_size, "lr": 0.1, "evaluate_every": sizes.evaluate_every.get(name, 1)}
    tune = {"tune_epochs": sizes.tune_epochs, "tune_every": min(rounds, sizes.tune_every)}
    return setting | (tune if algorithm.tune_epochs else {})


def seeds(sizes: Sizes, method: str) -> int:
    """How many seeds a method has in Tables 1 and 2."""
    return sizes.seeds if method in MAIN else 1


def of_table1(sizes: Sizes, column: Column, method: str) -> Run:
    """The run of a method in a Dirichlet column."""
    made_run = run(sizes, column, made(sizes, method), sizes.rounds[column.dataset])
    shown = method == "fedsimsup" and column == first(sizes)
    return made_run._replace(keep=partial(looks, made_run, sizes.cam_class)) if shown else made_run


def of_table2(sizes: Sizes, column: Column, method: str) -> Run:
    """The run of a method in a column with the same number of classes for every client."""
    rounds = min(sizes.pathological_rounds, sizes.rounds[column.dataset])
    return run(sizes, column, made(sizes, method), rounds)


def last_five(row: Row, until: float = np.inf) -> float:
    """Accuracy [%], pooled over clients: the mean of the last five evaluations (readings A19 and A20)."""
    return row.score(last=5, until=until)


def table1(sizes: Sizes) -> list[Cell]:
    """Eight methods, Dirichlet partitions, and one client per writer."""
    cells = [
        Cell("table1", m, c.dataset, c.setting, (of_table1(sizes, c, m),), last_five, seeds=seeds(sizes, m))
        for c in columns(sizes, "dir")
        for m in sizes.methods
    ]
    for method in sizes.writer_methods:
        algorithm = made(sizes, method)
        setting = common(sizes, algorithm, "femnist", sizes.rounds["femnist"])
        setting["join_ratio"] = sizes.writer_ratios[method != "local_only"]
        federate = {"test_fraction": 0.1}
        where = (sizes.writers, fl.domains(), sizes.writer_clients)
        task = Run(algorithm, *where, setting, sizes.model, federate, diverged)
        cells.append(Cell("table1", method, *WRITERS, (task,), last_five, seeds=seeds(sizes, method)))
    return cells


def table2(sizes: Sizes) -> list[Cell]:
    """Eight methods, the same number of classes for every client."""
    return [
        Cell("table2", m, c.dataset, c.setting, (of_table2(sizes, c, m),), last_five, seeds=seeds(sizes, m))
        for c in columns(sizes, "pat")
        for m in sizes.pathological_methods
    ]


def table3(sizes: Sizes) -> list[Cell]:
    """Every client draws its supervisor: accuracy by kind, of all, with L only; and the same clients with L."""
    cells = []
    mixed = made(sizes, "fedsimsup", f"{sizes.supervisor}+small_cnn+small_vit")
    for c in columns(sizes, "dir"):
        rounds = min(sizes.mixed_rounds, sizes.rounds[c.dataset])
        task, original = run(sizes, c, mixed, rounds)._replace(keep=drawn), of_table1(sizes, c, "fedsimsup")
        cell = partial(Cell, dataset=c.dataset, setting=c.setting, seeds=sizes.seeds)
        until = partial(last_five, until=rounds)
        cells.append(cell("table3", "fedsimsup", tasks=(original,), read=until))
        cells.append(cell("table3", "fedsimsup-whole", tasks=(task,), read=last_five))
        for kind in "tcl":
            cells.append(cell("table3", f"fedsimsup-{kind}", tasks=(task,), read=partial(of_kind, kind)))
            gain, both = partial(gain_of_kind, kind, rounds), (task, original)
            cells.append(cell("table3_paired", f"fedsimsup-{kind}", tasks=both, read=gain, metric="gain"))
    return cells


def of_kind(kind: str, row: Row, until: float = np.inf, clients: Sequence[int] | None = None) -> float:
    """Accuracy [%] of the clients with this kind of supervisor, as `last_five`."""
    who = row.kept.get(kind, []) if clients is None else clients
    return row.score(last=5, until=until, clients=who) if who else np.nan


def gain_of_kind(kind: str, rounds: int, row: Row, original: Row) -> float:
    """What clients gain with this kind of supervisor, against the run in which they have L."""
    who = row.kept.get(kind, [])
    return of_kind(kind, row, clients=who) - of_kind(kind, original, rounds, who)


def fig2(sizes: Sizes) -> list[Cell]:
    """The curves of Table 1 with most clients: ten points of each, its start, its end, and how restless it is."""
    cells = []
    for c in columns(sizes, "dir"):
        rounds = sizes.rounds[c.dataset]
        for m in sizes.methods if c.n == max(sizes.clients) else ():
            cell = partial(Cell, "fig2", m, c.dataset, tasks=(of_table1(sizes, c, m),), seeds=seeds(sizes, m))
            where, points = f"{c.kind}={c.value:g}", {max(1, round(k * rounds / 10)) for k in range(1, 11)}
            for t in sorted(points | {EARLY}):
                cells.append(cell(setting=f"{where};round={t}", read=partial(at_round, t)))
            cells.append(cell(setting=where, read=partial(late, 0.9 * rounds), metric="last_tenth"))
            cells.append(cell(setting=where, read=partial(restless, 0.8 * rounds), metric="fluctuation"))
    return cells


def at_round(t: int, row: Row) -> float:
    """Accuracy [%] in the last evaluation up to this round; nothing if there is none."""
    return row.score(until=t) if len(_evaluations(row).query("round <= @t")) else np.nan


def late(after: float, row: Row) -> float:
    """Mean accuracy [%] of the evaluations after a round."""
    return float(_evaluations(row).query("round > @after")["accuracy"].mean())


def restless(after: float, row: Row) -> float:
    """Standard deviation of the differences between successive evaluations after a round."""
    return float(_evaluations(row).query("round > @after")["accuracy"].diff().std())


def _evaluations(row: Row) -> pd.DataFrame:
    curve = row.curve()
    return curve[curve["when"] == row.when]


def of_fig3(sizes: Sizes, similarity: bool) -> Run:
    """The run with similarities, or with all s_ij = 1. The first one is that of Table 1, if it is as long."""
    column = first(sizes)
    algorithm = fl.fedsimsup(sizes.supervisor, sizes.supervisor_epochs, similarity=similarity)
    task, original = run(sizes, column, algorithm, sizes.similarity_rounds), of_table1(sizes, column, "fedsimsup")
    task = task._replace(setting={**task.setting, "evaluate_every": sizes.similarity_every})
    if similarity and original.setting == task.setting:
        return original
    return task if similarity else task._replace(keep=partial(looks, task, sizes.cam_class))


def fig3(sizes: Sizes) -> list[Cell]:
    """With similarities and with all s_ij = 1: the mean over the rounds, and ten points."""
    cells, column, rounds = [], first(sizes), sizes.similarity_rounds
    for similarity in (True, False):
        where, task = f"{column.kind}={column.value:g};similarity={similarity}", of_fig3(sizes, similarity)
        cell = partial(Cell, "fig3", "fedsimsup", column.dataset, tasks=(task,), seeds=sizes.similarity_seeds)
        cells.append(cell(setting=where, read=partial(late, 0), metric="mean_over_rounds"))
        for t in sorted({max(1, round(k * rounds / 10)) for k in range(1, 11)}):
            cells.append(cell(setting=f"{where};round={t}", read=partial(at_round, t)))
    return cells


def fig4(sizes: Sizes) -> list[Cell]:
    """Where both networks look, in the run of the first column; and the accuracy of each one alone."""
    column = first(sizes)
    task = of_table1(sizes, column, "fedsimsup")
    cell = partial(Cell, method="fedsimsup", dataset=column.dataset, tasks=(task,), seeds=sizes.seeds)
    cells = [
        cell(item="fig4", setting=f"class={scope}", read=partial(kept, f"{scope}: {name}"), metric=name)
        for scope in SCOPES
        for name in CAM
    ]
    return cells + alone(sizes)


def alone(sizes: Sizes) -> list[Cell]:
    """What the sum and each network alone answer: accuracy, and answers [%] that are classes, or the main class, of it.

    Beside them the accuracy of whoever always answers the client's main class.
    """
    of = {"s_ij": of_table1(sizes, first(sizes), "fedsimsup"), "equal": of_fig3(sizes, similarity=False)}
    cell = partial(Cell, "alone", "fedsimsup", first(sizes).dataset)
    cells = [
        cell(f"answer={who};weights={weights}", (task,), partial(kept, f"{name}: {who}"), metric, sizes.seeds)
        for metric, name in (("accuracy", "alone"), ("own classes", "own"), ("main class", "main"))
        for weights, task in of.items()
        for who in ANSWERS
    ]
    return [*cells, cell("answer=main class", (of["s_ij"],), partial(kept, "alone: main"), "accuracy", sizes.seeds)]


def of_other_network(sizes: Sizes, column: Column, method: str, rounds: int) -> Run:
    """The run of a method in a column with the other reading of the network, and its supervisor."""
    network, supervisor = sizes.other
    return run(sizes, column, made(sizes, method, supervisor), rounds, network)


def networks(sizes: Sizes) -> list[Cell]:
    """Both readings of the network with most clients, by three readings of accuracy: pooled, mean of clients, best."""
    cells = []
    usual = [(column, m, of_table1) for column in beside_first(sizes, "dir") for m in sizes.other_methods]
    both = [m for m in sizes.other_methods if m in sizes.pathological_methods]
    usual += [(column, m, of_table2) for column in beside_first(sizes, "pat") for m in both]
    for column, method, of in usual:
        task = of(sizes, column, method)
        rounds = min(sizes.other_rounds, task.rounds)
        other = of_other_network(sizes, column, method, rounds)
        reads = {"samples": partial(last_five, until=rounds), "clients": partial(by_clients, rounds)}
        reads["best round"] = partial(best_round, rounds)
        for network, one in ((sizes.model, task), (sizes.other[0], other)):
            for over, read in reads.items():
                setting = f"{column.setting};network={network};accuracy={over}"
                cells.append(Cell("network", method, column.dataset, setting, (one,), read, seeds=sizes.side_seeds))
    return cells


def long(sizes: Sizes) -> list[Cell]:
    """The other reading of the network for many more rounds: ten points, and the extremes at the end."""
    cells = []
    rounds = LONGER * min(sizes.other_rounds, sizes.rounds[first(sizes).dataset])
    for column, method in itertools.product(beside_first(sizes, "dir"), sizes.other_methods):
        task = of_other_network(sizes, column, method, rounds)
        task = task._replace(setting={**task.setting, "evaluate_every": max(1, rounds // 100)})
        cell = partial(Cell, "long", method, column.dataset, tasks=(task,))
        for t in range(rounds // 10, rounds + 1, rounds // 10):
            cells.append(cell(setting=f"{column.setting};round={t}", read=partial(last_five, until=t)))
        for name, extreme in (("lowest", min), ("highest", max)):
            cells.append(cell(setting=column.setting, read=partial(at_the_end, extreme, 0.8 * rounds), metric=name))
    return cells


def to_fedpac(sizes: Sizes) -> list[Cell]:
    """From FedRep to FedPAC, one change at a time, in the Dirichlet columns with most clients."""
    cells, epochs = [], sizes.supervisor_epochs + sizes.theta_epochs
    for column in beside_first(sizes, "dir"):
        rep, pac = (of_table1(sizes, column, method) for method in ("fedrep", "fedpac"))
        one_epoch, combined = fl.fedrep(body_epochs=epochs - 1), fl.fedpac(lam=0.0)
        between = [run(sizes, column, algorithm, rep.rounds) for algorithm in (one_epoch, combined)]
        for step, task in zip(STEPS, (rep, *between, pac), strict=True):
            cell = Cell("to_fedpac", "fedpac", column.dataset, f"{column.setting};step={step}", (task,), last_five)
            if task.name not in {own.tasks[0].name for own in cells}:  # with one epoch anyway, that is no step
                cells.append(cell)
    return cells


def fresh(sizes: Sizes) -> list[Cell]:
    """FedRep with its classifiers as they are, and trained on the body that is tested; the other network."""
    cells = []
    for column in beside_first(sizes, "dir"):
        rounds = min(sizes.other_rounds, sizes.rounds[column.dataset])
        usual = of_other_network(sizes, column, "fedrep", rounds)
        tune = {"tune_epochs": sizes.supervisor_epochs, "tune_every": min(rounds, sizes.tune_every)}
        again = usual._replace(setting={**usual.setting, **tune, "tune_part": "personal"})
        for classifier, task, when in (("as it is", usual, "before"), ("trained again", again, "after")):
            read, setting = partial(Row.score, last=5, when=when), f"{column.setting};classifier={classifier}"
            cells.append(Cell("fresh", "fedrep", column.dataset, setting, (task,), read))
    return cells


def at_the_end(extreme: Callable[[pd.Series], float], after: float, row: Row) -> float:
    """The lowest or highest accuracy [%] of the evaluations after a round."""
    return float(extreme(_evaluations(row).query("round > @after")["accuracy"]))


def by_clients(until: float, row: Row) -> float:
    """As `last_five`, but the mean over clients."""
    return row.score(over="clients", last=5, until=until)


def best_round(until: float, row: Row) -> float:
    """Accuracy [%] of the best evaluation."""
    return float(_evaluations(row).query("round <= @until")["accuracy"].max())


# -- what rows keep -----------------------------------------------------------------------------------------------


def diverged(result: fl.RunResult) -> Kept:
    """The first round whose loss is not finite, or None (reading A11)."""
    return {"diverged": result.diverged}


def drawn(result: fl.RunResult) -> Kept:
    """Table 3: the clients with each kind of supervisor."""
    kinds = {KINDS[group.model.name.partition("+")[2]]: list(map(int, group.clients)) for group in result.architectures}
    return {**diverged(result), **kinds}


def looks(run: Run, cam_class: str, result: fl.RunResult) -> Kept:
    """Fig. 4: the Grad-CAM of theta and of s on all test images, means over those that the sum answers correctly."""
    federation, two = run.arguments(0)["federation"], result.architectures[0].model
    pixels, looked = on_device(federation.data, torch.device("cpu")), []
    for i, (test, counts) in enumerate(zip(federation.test, federation.train_counts, strict=True)):
        looked.append(looks_of(result.weights(i), two, pixels, test, counts).assign(client=i))
    table = pd.concat(looked, ignore_index=True)
    right, found = table[table["both"]], dict(diverged(result))
    found |= {f"alone: {who}": 100 * float(table[who].mean()) for who in (*ANSWERS, "main")}
    found |= {f"{of}: {who}": 100 * float(table[f"{of} {who}"].mean()) for of in ("own", "main") for who in ANSWERS}
    chosen = federation.data.classes.index(cam_class)
    for scope, rows in (("cat", right[right["class"] == chosen]), ("all", right)):
        means = {f"{scope}: {name}": float(rows[name].mean()) for name in CAM[1:]}
        found |= {f"{scope}: images": len(rows)} | {name: value for name, value in means.items() if np.isfinite(value)}
    return found | {"shown": shown(right, chosen, federation.data)}


def shown(right: pd.DataFrame, chosen: int, data: Dataset) -> list[Kept]:
    """Three images of the chosen class with both maps, and s's map of another image of the same client.

    They are of the client that has most of them; images without a map of both networks are left out.
    """
    seen = right[[all(own.max() > 0 for own in maps) for maps in right["maps"]]]
    rows = next(rows for rows in (seen[seen["class"] == chosen], seen, right) if len(rows) or rows is right)
    rows = rows[rows["client"] == rows["client"].mode()[0]].head(3) if len(rows) else rows
    return [
        {
            "client": int(row["client"]),
            "class": data.classes[row["class"]],
            "shape": list(data.x.shape[1:]),
            "image": base64.b64encode(data.x[row["image"]].tobytes()).decode(),
            "maps": {
                name: own.round(2).tolist() for name, own in zip(("theta", "s", "other"), row["maps"], strict=True)
            },
        }
        for _, row in rows.iterrows()
    ]


def looks_of(weights: Pair, two: Model, pixels: Pixels, test: np.ndarray, counts: np.ndarray) -> pd.DataFrame:
    """Grad-CAM of a client's networks, one row per test image; `counts` are the client's train samples by class."""
    nets = [deepcopy(network.net).eval() for network in two.networks]
    for net, own in zip(nets, weights, strict=True):
        net.load_state_dict(own)
    batch = pixels.batch(torch.from_numpy(test), two)
    with torch.no_grad():
        answers = [net(batch.x) for net in nets]
    maps = torch.stack([grad_cam(net, batch.x, batch.y) for net in nets])  # [2, n, h, w]
    other = torch.arange(len(test)).roll(1)  # another image of the same client
    large = F.interpolate(maps, batch.x.shape[2:], mode="bilinear") > 0.5  # [2, n, H, W]: over the whole image
    share = large.float().mean((2, 3))
    overlap = (large[0] & large[1]).sum((1, 2)) / (large[0] | large[1]).sum((1, 2))
    said = {who: q.argmax(1) for who, q in zip(ANSWERS, (sum(answers), *answers), strict=True)}
    columns = {who: q == batch.y for who, q in said.items()}
    columns |= {f"own {who}": torch.from_numpy(counts)[q] > 0 for who, q in said.items()}
    columns |= {f"main {who}": q == counts.argmax() for who, q in {**said, "": batch.y}.items()}
    columns |= {"class": batch.y, "overlap": overlap, "area theta": share[0], "area s": share[1]}
    columns |= {"correlation": pearson(*maps), "with another image": pearson(maps[0], maps[1, other])}
    for name, hidden in (("kept, theta", large[0]), ("kept", large[1]), ("kept, another image", large[1, other])):
        with torch.no_grad():  # is the answer still right if what theta, or s, covers is hidden?
            q = sum(net(batch.x.masked_fill(hidden[:, None], 0)) for net in nets)
        columns[name] = (q.argmax(1) == batch.y).float()
    table = pd.DataFrame({name.strip(): column.numpy() for name, column in columns.items()})
    three = torch.stack([maps[0], maps[1], maps[1, other]], 1).numpy()  # [n, 3, h, w]
    return table.assign(image=test, maps=list(three))


def grad_cam(net: nn.Sequential, x: Tensor, y: Tensor) -> Tensor:
    """Grad-CAM of the classes y [n] in the last convolution, after its ReLU: [n, h, w], the largest value 1."""
    a = net.conv2[:2](net.conv1(x)).detach().requires_grad_()
    q = net[2:](net.conv2[2:](a))
    (slope,) = torch.autograd.grad(q.gather(1, y[:, None]).sum(), a)
    maps = (slope.mean((2, 3), keepdim=True) * a.detach()).sum(1).relu()
    return maps / maps.amax((1, 2), keepdim=True).clamp(min=1e-12)


def pearson(a: Tensor, b: Tensor) -> Tensor:
    """Correlation of two maps, image by image, [n, h, w] twice -> [n]; not a number for a map without contrast."""
    a, b = (t.flatten(1) - t.flatten(1).mean(1, keepdim=True) for t in (a, b))
    return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))


# -- measurements -------------------------------------------------------------------------------------------------


def fig5_and_similarity(sizes: Sizes) -> list[Cell]:
    """The partitions of Fig. 5, and how many values the similarities of clients take (section 4.2)."""
    cells = []
    for name, source in sizes.data.items():
        for kind, value in [*(("pat", c) for c in CLASSES[name]), ("dir", 0.1)]:
            for n in sizes.clients:
                column = Column(name, n, kind, value)
                compared = (profile_of(sizes, PROFILES), *column)
                task = Probe("similarity", similarities, compared, source, sizes=str(sizes))
                for metric in ("distinct", "equal shares", "zero", "median"):
                    where = ("similarity", "partition", name, column.setting)
                    cells.append(Cell(*where, (task,), partial(kept, metric), metric))
                if name == "cifar10" and n == min(sizes.clients) and value in (2, 0.1):
                    where, read = ("fig5", "partition", name, column.setting), partial(kept, "share of top class")
                    cells.append(Cell(*where, (task,), read, "share of top class"))
    return cells


def similarities(seed: int, profile: str, name: str, n: int, kind: str, value: float) -> Kept:
    """Cosines s_ij of all pairs of clients: distinct ones (3 decimals), zeros [%], median; and the first clients."""
    sizes, column = PROFILES[profile], Column(name, n, kind, value)
    data = images(sizes.data[name])
    federation = fl.federate(data, partition(column), sizes.clients[n], test_fraction=None, seed=seed)
    counts = torch.from_numpy(federation.train_counts).double()
    s = label_similarity(counts, counts).numpy()[np.triu_indices(len(counts), 1)].round(3)
    equal = all(len({*own[own > 0].tolist()}) == 1 for own in counts)
    top = float((counts.amax(1) / counts.sum(1)).mean())
    values = {"distinct": len(np.unique(s)), "equal shares": int(equal), "zero": 100 * float((s == 0).mean())}
    values |= {"median": float(np.median(s)), "share of top class": top}
    return values | {"counts": federation.train_counts[:20].tolist()}


def authorship(sizes: Sizes) -> list[Cell]:
    """Whose uploads are in whose theta: how much of it comes from similar clients."""
    column = Column("cifar10", min(sizes.clients), "dir", 0.1)
    task = Probe("authors", in_whom, (profile_of(sizes, PROFILES), *column), sizes.data["cifar10"], sizes=str(sizes))
    return [
        Cell("authors", "fedsimsup", "cifar10", f"weights={weights}", (task,), partial(kept, weights), "percent", 3)
        for weights in ("s_ij", "equal", "chance")
    ]


def in_whom(seed: int, profile: str, name: str, n: int, kind: str, value: float) -> Kept:
    """Similarities of clients, and the authors of their theta after the rounds of Fig. 3."""
    sizes, column = PROFILES[profile], Column(name, n, kind, value)
    own = fl.federate(images(sizes.data[name]), partition(column), sizes.clients[n], test_fraction=None)
    sampled = cohorts(own.n_clients, sizes.join_ratio, sizes.similarity_rounds, seed)
    return who_is_in_whom(own.train_counts, sampled)


def moves(sizes: Sizes) -> list[Cell]:
    """How far supervisors move, and what else that goes with (section 3.2)."""
    task = Probe("moves", supervisor_moves, (profile_of(sizes, PROFILES),), sizes.data["cifar10"], sizes=str(sizes))
    names = ("gain", "gain on test", "received loss", "samples", "gain within clients", "received loss within clients")
    cells = [("rank correlation", f"with={name}", name) for name in names]
    cells += [("percent", f"received is better;part={part}", f"better on {part}") for part in ("train", "test")]
    cells.append(("records", "", "records"))
    return [
        Cell("moves", "fedsimsup", "cifar10", setting, (task,), partial(kept, name), metric, sizes.side_seeds)
        for metric, setting, name in cells
    ]


def supervisor_moves(seed: int, profile: str) -> Kept:
    """Rank correlations over clients and rounds of how far s_i moves, as of the second time that a client takes part.

    `gain`: loss of (theta_i as it left the client + s_i) less that of (theta_i as received + s_i). Clients whose
    theta_i has not changed since have no gain and are left out. "within clients": of ranks among a client's own rounds.
    """
    sizes = PROFILES[profile]
    column = first(sizes)
    plan = prepare(**run(sizes, column, made(sizes, "fedsimsup"), sizes.moves_rounds).arguments(seed))
    session, algorithm, federation = Session(plan), plan.algorithm, plan.federation
    [group] = session.architectures
    records: list[tuple[float, ...]] = []
    with deterministic(plan.setting.device):
        state = session.init()
        last = {name: w.clone() for name, w in state.theta.items()}  # everybody's theta_i when it last took part
        for t in range(sizes.moves_rounds):
            cohort = session.cohort(t)
            part = cohort.subset(range(cohort.size), group.model)
            mine = [[own[i] for i in cohort.ids] for own in federation.parts]
            s = take(state.s.stacks[0], cohort.clients)
            pairs = [Pair(take(theta, cohort.clients), s) for theta in (last, state.theta)]
            old, new = ([mean_loss(part, pair, own) for own in mine] for pair in pairs)
            state = algorithm.round(state, cohort)
            put(last, cohort.clients, take(state.theta, cohort.clients))
            after = take(state.s.stacks[0], cohort.clients)
            moved = sum(((after[name] - w) ** 2).flatten(1).sum(1) for name, w in s.items()).sqrt()
            gains = [(before - now).tolist() for before, now in zip(old, new, strict=True)]  # train part, test part
            records += zip(cohort.ids.tolist(), new[0].tolist(), *gains, moved.tolist(), strict=True)
    table = compared(records, federation.train_counts.sum(1))
    points = table[["received loss", "gain", "moved"]].astype(float)
    return {**correlations(table), "points": points[np.isfinite(points).all(axis=1)].round(4).to_numpy().tolist()}


MOVES = ["received loss", "gain", "gain on test"]


def compared(records: Sequence[tuple[float, ...]], samples: np.ndarray) -> pd.DataFrame:
    """The records (client, received loss, gain, gain on test, moved), in the order of rounds, that can be compared."""
    table = pd.DataFrame(records, columns=["client", *MOVES, "moved"]).astype({"client": int})
    table["samples"] = samples[table["client"].to_numpy()]
    return table[table.duplicated("client") & (table["gain"] != 0)]


def correlations(table: pd.DataFrame) -> Kept:
    """Rank correlations of `compared` records with how far the supervisor moved."""
    names = MOVES
    ranks, own = table.rank(), table.groupby("client")[[*names, "moved"]].rank()
    often = table.groupby("client")["moved"].transform("size") > 1
    centred = (own - own.groupby(table["client"]).transform("mean"))[often]
    with np.errstate(invalid="ignore", divide="ignore"):  # of what never changes there is no correlation
        values = {name: ranks[name].corr(ranks["moved"]) for name in (*names, "samples")}
        values |= {f"{name} within clients": centred[name].corr(centred["moved"]) for name in names[:2]}
    values |= {
        f"better on {part}": 100 * (table[name] > 0).mean() for part, name in (("train", "gain"), ("test", names[2]))
    }
    values["records"] = len(table)
    return {name: float(value) for name, value in values.items() if np.isfinite(value)}


def costs(sizes: Sizes) -> list[Cell]:
    """Parameters of theta and of the supervisors, and what clients with three kinds of them send."""
    task, cells = Probe("sizes", parameters, (profile_of(sizes, PROFILES),), exact=True, sizes=str(sizes)), []
    for name in SHAPES:
        for kind in ("theta", "l", "c", "t"):
            setting, read = f"network={kind}", partial(kept, f"{name} {kind}")
            cells.append(Cell("sizes", "fedsimsup", name, setting, (task,), read, "parameters"))
    task = Probe("messages", messages, exact=True)
    for metric in ("theta", "counts", "beyond theta, round 1", "beyond theta, round 2", "kinds"):
        cells.append(
            Cell("messages", "fedsimsup", "digits", "supervisor=mixed", (task,), partial(kept, metric), metric)
        )
    return cells


def parameters(seed: int, profile: str) -> Kept:
    """Parameters of theta and of L, C and T, for images of the paper's three data sets."""
    sizes = PROFILES[profile]
    makers = {"theta": MODELS[sizes.model], "l": SUPERVISORS[sizes.supervisor]}
    makers |= {"c": SUPERVISORS["small_cnn"], "t": SUPERVISORS["small_vit"]}
    return {
        f"{name} {kind}": sum(w.numel() for w in build(kind, maker, *shape, seed).weights.values())
        for name, shape in SHAPES.items()
        for kind, maker in makers.items()
    }


def messages(seed: int) -> Kept:
    """Bytes that six of twelve clients with L, C and T send, on embedded digits."""
    data = fl.load("digits")
    few = data.subset(np.random.default_rng(0).permutation(len(data))[:480])
    federation = fl.federate(few, fl.dirichlet(0.3, min_size=8), 12, test_fraction=0.25)
    setting = dict(rounds=2, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05, seed=seed)
    result = fl.run(fl.fedsimsup("mixed", 1), federation, "lenet5_plain", **setting, progress=False)  # type: ignore[arg-type]
    theta = n_bytes(take(result.state.theta, torch.arange(6)))
    beyond = [int(sent) - theta for sent in result.rounds["bytes_up"]]
    found = {"theta": theta, "counts": n_bytes({"counts": result.state.counts}), "kinds": len(result.architectures)}
    return found | {f"beyond theta, round {t}": extra for t, extra in enumerate(beyond, 1)}
