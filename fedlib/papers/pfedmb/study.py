"""pFedMB (Mori et al., IJCNN 2023): what its tables and figures need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

import fedlib as fl
from fedlib.algorithm import Algorithm
from fedlib.methods.pfedmb.branches import SHARED, merge, new_branches
from fedlib.models import MODELS, Model, build
from fedlib.papers.pfedmb.draw import CHOICES, LAYERS, PAIR, PAIRS, best, evaluated, reported_curve
from fedlib.papers.pfedmb.figures import SHOWN
from fedlib.papers.pfedmb.given import pfedmb_given
from fedlib.stack import Params
from fedlib.studies.old import Cell, items
from fedlib.studies.rows import Row
from fedlib.studies.study import Study
from fedlib.studies.tasks import Images, Kept, Probe, Run

METHODS = ("local_only", "fedavg", "fedprox", "fedper", "pfedme", "ifca", "fedfomo", "fedamp", "pfedmb")
RIVALS = METHODS[:-1]
PAIRED = ("local_only", "fedavg", "pfedmb-avg", "pfedmb")
B = 5  # branches in section V-B
KINDS = {  # of section V-C: the paper's data set, its words for the partition, the partition
    "classes2": ("cifar10", "classes=2", fl.classes_per_client(2)),
    "dir0.4": ("cifar10", "dir=0.4", fl.dirichlet(0.4, min_size=10)),
    "c100u": ("cifar100", "classes=20;u=0.3-0.7", fl.uneven_classes(20, 0.3, 0.7)),
}
COLUMNS = [(data, f"clients={n};{words}") for data, words, _ in KINDS.values() for n in (15, 50)]  # of Table II
SIMPLE, COMPLEX = COLUMNS[:2], COLUMNS[2:]
FIG5 = ("cifar10", "clients=50;classes=2")
COSTED = (2, 5, 10)
VARIANTS: dict[str, tuple[Callable[..., Algorithm], int, int]] = {
    # of pFedMB, in the control: the method, which gets `gain`, and how much longer or faster it runs
    "weighted=no": (partial(fl.pfedmb, B, weighted=False), 1, 1),  # every branch learns from all clients
    "share_alpha=yes": (partial(fl.pfedmb, B, share_alpha=True), 1, 1),  # one choice instead of five
    "alpha_lr=0.1": (partial(fl.pfedmb, B, alpha_lr=0.1), 1, 1),
    "alpha_lr=0": (partial(fl.pfedmb, B, alpha_lr=0.0), 1, 1),  # nobody ever chooses
    "gain=yes": (lambda gain: fl.pfedmb(B, gain=True), 1, 1),
    "alpha_lr=0;lr=x5": (partial(fl.pfedmb, B, alpha_lr=0.0), 1, B),  # FedAvg, from another draw
    "alpha=labels": (lambda gain: pfedmb_given(B), 1, 1),  # one branch for clients with similar labels
    "rounds=x2": (partial(fl.pfedmb, B), 2, 1),
}


class Sizes(NamedTuple):
    """What differs between profiles. Of all that is tried, the runs that validate best count."""

    cifar10: Images = Images("cifar10")
    cifar100: Images = Images("cifar100")
    pairs: Images = Images("cifar10")
    costed: Images = Images("cifar10", train=1000)
    kinds: Sequence[str] = tuple(KINDS)
    methods: Sequence[str] = METHODS  # of Table II
    rounds: Mapping[int, tuple[int, float]] = {15: (20, 1.0), 50: (100, 0.2)}  # clients -> rounds, join ratio
    evaluations: int = 4
    local_epochs: int = 5
    batch_size: int = 64
    pair_batch_size: int = 64
    pair_rounds: int = 30
    pair_tune_every: int = 2
    pair_alpha_lr: float = 1.0
    pair_branches: Sequence[int] = (2, 10, 3, 4, 8)  # besides five
    lrs: Sequence[float] = (0.05,)  # of all methods but pFedMB
    branch_lrs: Sequence[float] = (0.05,)
    alpha_lrs: Sequence[float] = (1.0,)
    gain: bool = False  # reading A2
    branches: Sequence[int] = (5, 10, 2, 15)  # of Tables II and III
    more_branches: Sequence[int] = ()  # of Table III only
    many_branches: Sequence[int] = (20, 6, 14, 8, 12, 4, 16, 18)  # further ones of Fig. 5
    mus: Sequence[float] = (0.01,)
    clusters: Sequence[int] = (3,)
    lams: Sequence[float] = (15.0,)
    personal_lrs: Sequence[float] = (0.01,)
    personal_steps: int = 5
    sigmas: Sequence[float] = (10.0, 100.0)  # at 10 the others may get all the weight; see `fedamp`
    other_lrs: Sequence[float] = (0.02, 0.1)  # of the side table of step sizes
    pulls: Sequence[float] = (1.0, 0.1, 0.01)  # lambda of FedAMP in a side table
    variants: Sequence[str] = tuple(VARIANTS)  # of the control
    pair_control: bool = True
    pair_seeds: int = 2  # of Table I, Fig. 3 and Fig. 4
    seeds: int = 2  # of Table II
    table3_seeds: int = 2
    control_seeds: int = 1
    side_seeds: int = 1  # of the rest


PEN = Images("digit_styles", (("per_style", 800),), ("pen",), stands_for="cifar10")  # dark digits on light paper
QUICK = Sizes(
    cifar10=PEN._replace(train=450),
    pairs=PEN._replace(train=600),
    costed=PEN._replace(train=240),
    kinds=("classes2",),
    methods=("local_only", "fedavg", "fedper", "pfedmb"),
    rounds={15: (9, 1.0)},
    evaluations=1,
    local_epochs=1,
    batch_size=4,
    pair_batch_size=8,
    pair_rounds=8,
    pair_tune_every=4,
    pair_alpha_lr=0.3,
    pair_branches=(),
    pair_control=False,
    lrs=(0.1,),
    branch_lrs=(0.1,),
    gain=True,  # there are few rounds
    branches=(5,),
    more_branches=(2,),
    many_branches=(),
    other_lrs=(),
    pulls=(),
    variants=("alpha_lr=0", "alpha=labels"),
    pair_seeds=3,
    seeds=3,
    table3_seeds=1,
    control_seeds=3,
)
PROFILES = {
    "paper": Sizes(),
    "quick": QUICK,
    "smoke": QUICK._replace(
        cifar10=PEN._replace(train=240),
        pairs=PEN._replace(train=160),
        costed=PEN._replace(train=160),
        rounds={15: (1, 1.0)},
        batch_size=16,
        pair_batch_size=16,
        pair_rounds=2,
        pair_tune_every=1,
        pair_alpha_lr=1.0,
        gain=False,
        pair_branches=(2,),
        pair_control=True,
        pair_seeds=1,
        seeds=1,
        control_seeds=1,
    ),
}
CONTROLS = {"table1": ("pairs_parts", "pairs"), "table2": ("parts", "step_sizes", "pull")}


def cells(profile: str) -> list[Any]:
    """What pFedMB needs at one size."""
    sizes = PROFILES[profile]
    cells = [*costs(sizes), *table1(sizes), *fig3(sizes), *fig4(sizes), *by_layer(sizes), *pairs_by_branches(sizes)]
    cells += pairs_parts(sizes) if sizes.pair_control else []
    for clients in sizes.rounds:
        columns = [column(sizes, kind, clients) for kind in sizes.kinds]
        for make in (table2, table3, by_branches, controls, step_sizes, pull):
            cells += [cell for one in columns for cell in make(sizes, one)]
    return cells


ITEMS = items(SHOWN, CONTROLS)


def federation(one: Study, item: str) -> fl.Federation:
    """The clients of the first run of an item."""
    task = next(task for cell in one.cells if cell.item == item for task in cell.tasks if isinstance(task, Run))
    return task.arguments(0)["federation"]


# -- runs ---------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A column of Table II."""

    data: str  # the paper's data set
    setting: str
    images: Images
    partition: fl.Partition
    clients: int
    rounds: int
    join_ratio: float


def column(sizes: Sizes, kind: str, clients: int) -> Column:
    """Data, partition and rounds of a column."""
    data, words, partition = KINDS[kind]
    images = sizes.cifar10 if data == "cifar10" else sizes.cifar100
    return Column(data, f"clients={clients};{words}", images, partition, clients, *sizes.rounds[clients])


Keep = Callable[[fl.RunResult], Kept]
SPLIT = {"test_fraction": None, "validation_fraction": 0.2}  # the official test images; reading A18


def run(sizes: Sizes, at: Column, algorithm: Algorithm, lr: float, longer: int = 1) -> Run:
    """A run of section V-C. Local-Only is not sampled: all clients train, as often as they would in the others."""
    alone = algorithm.name == "local_only"
    rounds, join_ratio = (round(at.rounds * at.join_ratio), 1.0) if alone else (at.rounds * longer, at.join_ratio)
    setting = {"rounds": rounds, "join_ratio": join_ratio, "evaluate_every": max(1, rounds // sizes.evaluations)}
    return _run(sizes, algorithm, at.images, at.partition, at.clients, setting | {"lr": lr}, branch_use)


def paired(sizes: Sizes, algorithm: Algorithm, lr: float, keep: Keep | None = None) -> Run:
    """A run of section V-B: ten clients in five pairs, which own two classes each."""
    groups = fl.label_groups([[2 * p, 2 * p + 1] for p in range(5)])
    setting = {"rounds": sizes.pair_rounds, "evaluate_every": 1, "tune_every": sizes.pair_tune_every, "lr": lr}
    setting |= {"batch_size": sizes.pair_batch_size}
    return _run(sizes, algorithm, sizes.pairs, groups, 10, setting, keep or choices)


def _run(
    sizes: Sizes,
    algorithm: Algorithm,
    images: Images,
    partition: fl.Partition,
    clients: int,
    setting: Mapping[str, object],
    keep_of_pfedmb: Keep,
) -> Run:
    tuned = 0 if algorithm.name == "local_only" else sizes.local_epochs
    common: dict[str, object] = {
        "local_epochs": sizes.local_epochs,
        "batch_size": sizes.batch_size,
        "tune_epochs": tuned,
    }
    keep = keep_of_pfedmb if algorithm.name == "pfedmb" else scores
    return Run(algorithm, images, partition, clients, {**common, **setting}, "lenet5_plain", SPLIT, keep)


def tried(sizes: Sizes, at: Column, method: str, branches: Sequence[int] = ()) -> tuple[Run, ...]:
    """The runs that a number of Table II is chosen from; of pFedMB those with these numbers of branches."""
    made: dict[str, list[Algorithm]] = {
        "local_only": [fl.local_only()],
        "fedavg": [fl.fedavg()],
        "fedprox": [fl.fedprox(mu) for mu in sizes.mus],
        "fedper": [fl.fedper()],
        "pfedme": [fl.pfedme(lam, lr, sizes.personal_steps) for lam in sizes.lams for lr in sizes.personal_lrs],
        "ifca": [fl.ifca(k) for k in sizes.clusters],
        "fedfomo": [fl.fedfomo()],
        "fedamp": [fl.fedamp(sigma) for sigma in sizes.sigmas],
        "pfedmb": [
            fl.pfedmb(b, alpha_lr=lr, gain=sizes.gain)
            for b in branches or _allowed(sizes, at)
            for lr in sizes.alpha_lrs
        ],
    }
    return tuple(
        run(sizes, at, algorithm, lr)
        for algorithm in made[method]
        for lr in (rates_of(sizes, algorithm) if method == "pfedmb" else sizes.lrs)
        if method != "pfedme" or lr * float(str(algorithm.hyper["lam"])) <= 1  # or w_i overshoots theta_i
    )


def rates_of(sizes: Sizes, algorithm: Algorithm) -> list[float]:
    """Step sizes of pFedMB; above five branches also larger ones, since an undecided client moves by lr / branches."""
    more = max(1.0, float(str(algorithm.hyper["branches"])) / B)
    return sorted({round(lr * factor, 6) for lr in sizes.branch_lrs for factor in (1.0, more)})


def _allowed(sizes: Sizes, at: Column) -> list[int]:
    """No more branches than clients."""
    return [b for b in sizes.branches if b <= at.clients]


def _all_allowed(sizes: Sizes, at: Column) -> list[int]:
    """With those of Table III."""
    return [*_allowed(sizes, at), *sizes.more_branches]


def tried_on_pairs(sizes: Sizes, method: str, branches: int = B) -> tuple[Run, ...]:
    """The runs that a number of Table I is chosen from."""
    own = {"share_alpha": True, "alpha_lr": sizes.pair_alpha_lr, "gain": sizes.gain}
    made = {
        "local_only": fl.local_only(),
        "fedavg": fl.fedavg(),
        "pfedmb-avg": fl.pfedmb(branches, weighted=False, **own),
        "pfedmb": fl.pfedmb(branches, **own),
    }
    algorithm = made[method]
    lrs = rates_of(sizes, algorithm) if algorithm.name == "pfedmb" else sizes.lrs
    return tuple(paired(sizes, algorithm, lr) for lr in lrs)


# -- what a row keeps ---------------------------------------------------------------------------------------------


def scores(result: fl.RunResult) -> Kept:
    """Accuracies [%], mean over clients, at the round that validates best: reported, before tuning, validation.

    All methods are reported after fine-tuning, but for Local-Only, which is not tuned.
    """
    when = evaluated(result.config)
    best = result.best_round(over="clients", when=when)
    return {
        "accuracy": result.score(over="clients", until=best, when=when),
        "before": result.score(over="clients", until=best, when="before"),
        "validation": result.score(over="clients", until=best, part="validation", when=when),
        "round": best,
    }


def branch_use(result: fl.RunResult) -> Kept:
    """`scores`, and how decided the clients are at the end: the largest alpha, and the clients that share a branch."""
    if result.diverged:
        return scores(result)
    alpha = {name: t[-1].double().numpy() for name, t in result.trace.items()}  # [clients, B] of each layer
    decided = [float(own.max(1).mean()) for own in alpha.values()]
    shared = [float((own.sum(0) ** 2 / (own**2).sum(0) * own.mean(0)).sum()) for own in alpha.values()]
    use = {"largest_alpha": float(np.mean(decided)), "clients_per_branch": float(np.mean(shared))}
    return dict(scores(result)) | use | {"layers": list(alpha), "largest_alphas": decided, "clients_by_layer": shared}


def choices(result: fl.RunResult) -> Kept:
    """`scores`, and Fig. 3: alpha after up to forty of the rounds, and round by round what the pairs choose.

    The adjusted Rand index of the largest alpha with the pairs, the number of branches that are some pair's largest,
    and the mean L1 distance of alpha within pairs and between pairs.
    """
    from sklearn.metrics import adjusted_rand_score  # imported late: it takes a second

    if result.diverged:
        return scores(result)
    alpha = result.trace[SHARED].double().numpy()  # [rounds, clients, B]
    of_pair = alpha.reshape(len(alpha), 5, 2, -1).mean(2)  # [rounds, pairs, B]
    apart = np.abs(alpha[:, :, None] - alpha[:, None]).sum(-1)  # [rounds, clients, clients]
    same = PAIR[:, None] == PAIR
    every = np.arange(1, len(alpha) + 1)
    shown = every if len(alpha) <= 40 else np.unique(np.geomspace(1, len(alpha), 40).round().astype(int))
    return dict(scores(result)) | {
        "rand_indices": [round(float(adjusted_rand_score(PAIR, own.argmax(1))), 4) for own in alpha],
        "branches_used": [len(set(own.argmax(1).tolist())) for own in of_pair],
        "within": apart[:, same & ~np.eye(10, dtype=bool)].mean(1).round(5).tolist(),
        "between": apart[:, ~same].mean(1).round(5).tolist(),
        "alpha_rounds": shown.tolist(),
        "alpha": alpha[shown - 1].round(3).tolist(),
    }


def choices_by_layer(result: fl.RunResult) -> Kept:
    """`scores`, and with one alpha for each layer: alpha at the end, and by round its Rand index with the pairs."""
    from sklearn.metrics import adjusted_rand_score

    if result.diverged:
        return scores(result)
    alpha = {name: t.double().numpy() for name, t in result.trace.items()}  # [rounds, clients, B] of each layer
    rand = {name: [round(float(adjusted_rand_score(PAIR, own.argmax(1))), 4) for own in t] for name, t in alpha.items()}
    return (
        dict(scores(result))
        | {"layers": list(alpha), "rand_indices": rand}
        | {"alpha": {name: t[-1].round(3).tolist() for name, t in alpha.items()}}
    )


# -- what is read from rows ---------------------------------------------------------------------------------------


def chosen(name: str, *rows: Row) -> float:
    """A value that the best run keeps."""
    return float(best(rows).kept.get(name, np.nan))


def branches_of_best(*rows: Row) -> float:
    """Table III: its number of branches."""
    return float(best(rows).facts["config"]["hyper"]["branches"])


def of_choices(name: str, *rows: Row) -> float:
    """A number of Fig. 3, from the best run."""
    found = best(rows).kept
    if "branches_used" not in found:  # the run diverged
        return np.nan
    if name == "mean_branches":
        return float(np.mean(found["branches_used"]))
    if name == "all_apart":
        return float(found["branches_used"][-1] == len(set(PAIR)))
    return float(found[name][-1])


def of_layer(layer: str, *rows: Row) -> float:
    """The Rand index of the choices in one layer with the pairs, at the end."""
    found = best(rows).kept.get("rand_indices", {})
    return float(found[layer][-1]) if layer in found else np.nan


def smooth(row: Row) -> dict[int, float]:
    """Accuracy after the rounds at which the method is reported, as a mean over the last five rounds."""
    curve = reported_curve(row)
    step = int(row.facts["config"].get("tune_every", 1)) if evaluated(row.facts["config"]) == "after" else 1
    curve = curve.rolling(max(1, 5 // step), min_periods=1).mean()
    return {int(str(t)): float(accuracy) for t, accuracy in curve.items()}


def rounds_to(n: int, *rows: Row) -> float:
    """Fig. 4: the first round in which the best of the first `n` runs has 99 % of the final accuracy of the best other.

    A method that never gets there counts with one round more than there are.
    """
    ours, theirs = smooth(best(rows[:n])), smooth(best(rows[n:]))
    aim = 0.99 * list(theirs.values())[-1]
    return float(next((t for t, accuracy in ours.items() if accuracy >= aim), max(ours) + 1))


def floats(way: str, row: Row) -> float:
    """Numbers that a client sends ("bytes_up") or receives per round."""
    config = row.facts["config"]
    return row.facts[way] / 4 / config["clients"] / config["rounds"]


# -- tables and figures -------------------------------------------------------------------------------------------


def table1(sizes: Sizes) -> list[Cell]:
    """Ten clients in five pairs: four methods."""
    at = ("cifar10", PAIRS)
    return [
        Cell("table1", method, *at, tried_on_pairs(sizes, method), partial(chosen, "accuracy"), seeds=sizes.pair_seeds)
        for method in PAIRED
    ]


def fig3(sizes: Sizes) -> list[Cell]:
    """Who uses which branch at the end, with and without weighting; over all rounds: `mean_branches`."""
    return [
        Cell(
            *("fig3", method, "cifar10", PAIRS, tried_on_pairs(sizes, method), partial(of_choices, name)),
            metric=name,
            seeds=sizes.pair_seeds,
        )
        for method in ("pfedmb", "pfedmb-avg")
        for name in CHOICES
    ]


def by_layer(sizes: Sizes) -> list[Cell]:
    """Section V-B with one alpha for each layer, as in section V-C: in which layers do pairs find branches?"""
    algorithm = fl.pfedmb(B, alpha_lr=sizes.pair_alpha_lr, gain=sizes.gain)
    tasks = tuple(paired(sizes, algorithm, lr, choices_by_layer) for lr in sizes.branch_lrs)
    return [
        Cell(
            *("layers", "pfedmb", "cifar10", f"{PAIRS};layer={layer}", tasks, partial(of_layer, layer)),
            metric="rand_indices",
            seeds=sizes.side_seeds,
        )
        for layer in LAYERS
    ]


def fig4(sizes: Sizes) -> list[Cell]:
    """Rounds to 99 % of the final accuracy of two of the methods."""
    cells = []
    for aim in ("pfedmb-avg", "fedavg"):
        for method in PAIRED:
            ours = tried_on_pairs(sizes, method)
            tasks, read = (*ours, *tried_on_pairs(sizes, aim)), partial(rounds_to, len(ours))
            cells.append(Cell("fig4", method, "cifar10", f"{PAIRS};aim={aim}", tasks, read, "rounds", sizes.pair_seeds))
    return cells


def pairs_by_branches(sizes: Sizes) -> list[Cell]:
    """Section V-B with other numbers of branches."""
    return [
        Cell(
            *("pairs", "pfedmb", "cifar10", f"{PAIRS};branches={b}"),
            tried_on_pairs(sizes, "pfedmb", b),
            partial(chosen, "accuracy"),
            seeds=sizes.side_seeds,
        )
        for b in sizes.pair_branches
    ]


def pairs_parts(sizes: Sizes) -> list[Cell]:
    """What could hold pFedMB back in Table I: the initial scale, and the choice itself."""
    own = {"share_alpha": True, "alpha_lr": sizes.pair_alpha_lr, "gain": True}
    made = {
        ("pfedmb", "gain=yes"): (fl.pfedmb(B, **own), None),
        ("pfedmb-avg", "gain=yes"): (fl.pfedmb(B, weighted=False, **own), None),
        ("pfedmb", "alpha=labels"): (pfedmb_given(B), scores),
    }
    return [
        Cell(
            *("pairs_parts", method, "cifar10", f"{PAIRS};branches={B};{name}"),
            (paired(sizes, algorithm, sizes.branch_lrs[0], keep),),
            partial(chosen, "accuracy"),
            seeds=sizes.side_seeds,
        )
        for (method, name), (algorithm, keep) in made.items()
    ]


def table2(sizes: Sizes, at: Column) -> list[Cell]:
    """Nine methods."""
    read, where = partial(chosen, "accuracy"), (at.data, at.setting)
    return [Cell("table2", m, *where, tried(sizes, at, m), read, seeds=sizes.seeds) for m in sizes.methods]


def table3(sizes: Sizes, at: Column) -> list[Cell]:
    """The number of branches that validates best."""
    tasks = tried(sizes, at, "pfedmb", _all_allowed(sizes, at))
    return [Cell("table3", "pfedmb", at.data, at.setting, tasks, branches_of_best, "num_branches", sizes.table3_seeds)]


def by_branches(sizes: Sizes, at: Column) -> list[Cell]:
    """Fig. 5, and the same for the other columns: every number of branches; one branch is FedAvg."""
    in_fig5 = (at.data, at.setting) == FIG5
    item, further = ("fig5", sizes.many_branches) if in_fig5 else ("branches", ())
    cells = []
    for b in (*_all_allowed(sizes, at), *further, 1):
        tasks = tried(sizes, at, "pfedmb", [b]) if b > 1 else tried(sizes, at, "fedavg")
        key = (item, "pfedmb", at.data, f"{at.setting};branches={b}", tasks)
        for metric in ("accuracy", "validation", *(("clients_per_branch", "largest_alpha") if b > 1 else ())):
            cells.append(Cell(*key, partial(chosen, metric), metric, sizes.side_seeds))
    return cells


def controls(sizes: Sizes, at: Column) -> list[Cell]:
    """What could hold pFedMB back: the choice itself, few clients for each branch, slow steps, the initial scale."""
    if at.data != "cifar10" or at.clients != 15:
        return []
    cells = []
    for name in sizes.variants:
        make, longer, faster = VARIANTS[name]
        tasks = tuple(run(sizes, at, make(gain=sizes.gain), lr * faster, longer) for lr in sizes.branch_lrs)
        for metric in ("accuracy", "clients_per_branch", "largest_alpha"):
            read = partial(chosen, metric)
            setting = f"{at.setting};branches={B};{name}"
            cells.append(Cell("parts", "pfedmb", at.data, setting, tasks, read, metric, sizes.control_seeds))
    return cells


def step_sizes(sizes: Sizes, at: Column) -> list[Cell]:
    """Three methods with other step sizes."""
    if at.data != "cifar10" or at.clients != 15:
        return []
    made = {"local_only": fl.local_only(), "fedavg": fl.fedavg(), "pfedmb": fl.pfedmb(B, gain=sizes.gain)}
    return [
        Cell(
            *("step_sizes", method, at.data, f"{at.setting};lr={lr:g}", (run(sizes, at, algorithm, lr),)),
            partial(chosen, metric),
            metric,
            sizes.side_seeds,
        )
        for method, algorithm in made.items()
        for lr in sizes.other_lrs
        for metric in ("accuracy", "validation")
    ]


def pull(sizes: Sizes, at: Column) -> list[Cell]:
    """FedAMP with weaker pulls towards its cloud models; sigma is chosen as in Table II."""
    if at.data != "cifar10" or at.clients != 15:
        return []
    return [
        Cell(
            *("pull", "fedamp", at.data, f"{at.setting};lam={lam:g}"),
            tuple(run(sizes, at, fl.fedamp(sigma, lam=lam), lr) for sigma in sizes.sigmas for lr in sizes.lrs),
            partial(chosen, "accuracy"),
            seeds=sizes.side_seeds,
        )
        for lam in sizes.pulls
    ]


# -- what it costs ------------------------------------------------------------------------------------------------


def costs(sizes: Sizes) -> list[Cell]:
    """Parameters and calls of a prediction, and numbers sent, by number of branches (sections IV-A and VI)."""
    cells, setting = [], {"rounds": 1, "local_epochs": 1, "batch_size": sizes.batch_size}
    made = {"": fl.fedavg()} | {f"branches={b}": fl.pfedmb(b) for b in COSTED}
    for words, algorithm in made.items():
        task = Run(algorithm, sizes.costed, fl.iid(), 10, setting, "lenet5_plain", SPLIT)
        for metric, way in (("floats_up", "bytes_up"), ("floats_down", "bytes_down")):
            cells.append(Cell("cost", algorithm.name, "cifar10", words, (task,), partial(floats, way), metric))
    for b in COSTED:
        probe = Probe("inference", inference, (b,))
        for metric in ("parameters", "merged", "plain", "calls", "calls_plain", "error", "time", "time_unmerged"):
            read = partial(of_probe, metric)
            cells.append(Cell("cost", "pfedmb", "cifar10", f"branches={b}", (probe,), read, metric))
    return cells


def of_probe(name: str, row: Row) -> float:
    """A value of a measurement."""
    return float(row.kept[name])


@torch.no_grad()
def inference(seed: int, branches: int) -> Kept:
    """A prediction with merged branches, with all of them (eq. 2), and with the plain network, on images of noise.

    `time` and `time_unmerged` are relative to the plain network.
    """
    model = build("lenet5_plain", MODELS["lenet5_plain"], (3, 32, 32), 10, seed)
    x = torch.randn(64, *model.shape, generator=torch.Generator().manual_seed(seed))
    z = torch.randn(branches, generator=torch.Generator().manual_seed(seed + 1))
    w, alpha = new_branches(model, branches), z.softmax(0)
    merged = merge(w, {SHARED: alpha})
    plain = _seconds(lambda: model(model.weights, x))
    return {
        "parameters": sum(t.numel() for t in w.values()),
        "merged": sum(t.numel() for t in merged.values()),
        "plain": sum(t.numel() for t in model.weights.values()),
        "calls": _calls(model, merged, x),
        "calls_plain": _calls(model, model.weights, x),
        "error": float((model(merged, x) - branch_sum(model, w, alpha, x)).abs().max()),
        "time": _seconds(lambda: model(merged, x)) / plain,
        "time_unmerged": _seconds(lambda: branch_sum(model, w, alpha, x)) / plain,
    }


def branch_sum(model: Model, w: Params, alpha: Tensor, x: Tensor) -> Tensor:
    """The right side of eq. 2: every layer runs B times, and the outputs are mixed. w: [B, ...], alpha: [B]."""
    for name, layer in _layers(model):
        if f"{name}.weight" in w:
            own = zip(alpha, w[f"{name}.weight"], w[f"{name}.bias"], strict=True)
            x = sum(a * functional_call(layer, {"weight": W, "bias": c}, (x,)) for a, W, c in own)  # type: ignore
        else:
            x = layer(x)
    return x


def _layers(model: Model) -> list[tuple[str, nn.Module]]:
    return [(name, layer) for name, layer in model.net.named_modules() if not list(layer.children())]


def _calls(model: Model, w: Params, x: Tensor) -> int:
    """Calls of a convolution or linear layer in a prediction."""
    seen: list[str] = []
    linear = [(name, layer) for name, layer in _layers(model) if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(lambda *_, name=name: seen.append(name)) for name, layer in linear]
    model(w, x)
    for hook in hooks:
        hook.remove()
    return len(seen)


def _seconds(call: Callable[[], object], repeats: int = 15) -> float:
    """The median time of a call."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return float(np.median(times))
