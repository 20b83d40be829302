"""pFedMB (Mori et al., IJCNN 2023): sizes of the experiments, and their runs."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import fedlib as fl
from fedlib.algorithm import Algorithm
from fedlib.papers.pfedmb.measure import branch_use, choices, scores
from fedlib.studies.tasks import Images, Run

METHODS = ("local_only", "fedavg", "fedprox", "fedper", "pfedme", "ifca", "fedfomo", "fedamp", "pfedmb")
RIVALS = METHODS[:-1]
PAIRED = ("local_only", "fedavg", "pfedmb-avg", "pfedmb")  # of section V-B
PAIRS = "clients=10;pairs=5"
B = 5  # branches in section V-B
COSTED = (2, 5, 10)  # numbers of branches whose cost is measured
KINDS = {  # of section V-C: the paper's data set, its words for the partition, the partition
    "classes2": ("cifar10", "classes=2", fl.classes_per_client(2)),
    "dir0.4": ("cifar10", "dir=0.4", fl.dirichlet(0.4, min_size=10)),
    "c100u": ("cifar100", "classes=20;u=0.3-0.7", fl.uneven_classes(20, 0.3, 0.7)),
}
COLUMNS = [(data, f"clients={n};{words}") for data, words, _ in KINDS.values() for n in (15, 50)]  # of Table II
SIMPLE, COMPLEX = COLUMNS[:2], COLUMNS[2:]
FIG5 = ("cifar10", "clients=50;classes=2")
SIGMAS = (10.0, 100.0)  # of FedAMP; at 10 the other clients may get all the weight, see `fedamp`
LAMBDAS = (1.0, 0.1)  # of FedAMP
SPLIT = {"test_fraction": None, "validation_fraction": 0.2}  # the official test images; reading A18


class Sizes(NamedTuple):
    """Sizes of one profile. Of several runs of a method, the one with the highest validation accuracy counts."""

    cifar10: Images = Images("cifar10")
    pairs: Images = Images("cifar10")
    costed: Images = Images("cifar10", train=1000)
    kinds: Sequence[str] = tuple(KINDS)
    methods: Sequence[str] = METHODS  # of Table II
    rounds: Mapping[int, tuple[int, float]] = {15: (20, 1.0), 50: (100, 0.2)}  # clients -> rounds, join ratio
    evaluations: int = 4
    local_epochs: int = 5
    batch_size: int = 64
    lr: float = 0.05
    gain: bool = False  # reading A2
    pair_batch_size: int = 64
    pair_rounds: int = 30
    pair_tune_every: int = 2
    pair_alpha_lr: float = 1.0
    pair_branches: Sequence[int] = (2, 10, 3, 4, 8)  # besides five
    pair_control: bool = True
    branches: Sequence[int] = (5, 10, 2, 15)  # of Tables II and III
    more_branches: Sequence[int] = ()  # of Table III only
    many_branches: Sequence[int] = (20, 6, 14, 8, 12, 4, 16, 18)  # further ones of Fig. 5
    other_lrs: Sequence[float] = (0.02, 0.1)  # of the control of step sizes
    pulls: Sequence[float] = (1.0, 0.1, 1e-4)  # lambda of FedAMP in its control; the last one pulls as weakly as FLGO
    variants: Sequence[str] = ()  # of pFedMB in its control; (): all
    seeds: int = 2  # of Tables I and II, Figs. 3 and 4
    table3_seeds: int = 2
    control_seeds: int = 1


PEN = Images("digit_styles", (("per_style", 800),), ("pen",), stands_for="cifar10")  # dark digits on light paper
QUICK = Sizes(
    cifar10=PEN._replace(train=450), pairs=PEN._replace(train=600), costed=PEN._replace(train=240), kinds=("classes2",),
    methods=("local_only", "fedavg", "fedper", "pfedmb"), rounds={15: (9, 1.0)}, evaluations=1, local_epochs=1,
    batch_size=4, lr=0.1, gain=True,  # for few rounds
    pair_batch_size=8, pair_rounds=8, pair_tune_every=4, pair_alpha_lr=0.3, pair_branches=(), pair_control=False,
    branches=(5,), more_branches=(2,), many_branches=(), other_lrs=(), pulls=(),
    variants=("alpha_lr=0", "alpha=labels"), seeds=3, table3_seeds=1, control_seeds=3,
)  # fmt: skip
SMOKE = QUICK._replace(
    cifar10=PEN._replace(train=240), pairs=PEN._replace(train=160), costed=PEN._replace(train=160),
    rounds={15: (1, 1.0)}, batch_size=16, gain=False, pair_batch_size=16, pair_rounds=2, pair_tune_every=1,
    pair_alpha_lr=1.0, pair_branches=(2,), pair_control=True, seeds=1, control_seeds=1,
)  # fmt: skip
PROFILES = {"paper": Sizes(), "quick": QUICK, "smoke": SMOKE}


class Column(NamedTuple):
    """A column of Table II."""

    data: str  # the paper's data set
    setting: str
    images: Images
    partition: fl.Partition
    clients: int
    rounds: int
    join_ratio: float


def columns(sizes: Sizes) -> Iterator[Column]:
    """The columns of Table II at one size."""
    for (clients, rounds), kind in product(sizes.rounds.items(), sizes.kinds):
        data, words, partition = KINDS[kind]
        images = sizes.cifar10 if data == "cifar10" else Images(data)
        yield Column(data, f"clients={clients};{words}", images, partition, clients, *rounds)


def controlled(sizes: Sizes) -> list[Column]:
    """The columns in which controls run: 15 clients, CIFAR-10."""
    return [at for at in columns(sizes) if at.data == "cifar10" and at.clients == 15]


def run(sizes: Sizes, at: Column, algorithm: Algorithm, lr: float, longer: int = 1) -> Run:
    """A run of section V-C. In Local-Only all clients train in every round, as often as in the other methods."""
    alone = algorithm.name == "local_only"
    rounds, join_ratio = (round(at.rounds * at.join_ratio), 1.0) if alone else (at.rounds * longer, at.join_ratio)
    setting = {"rounds": rounds, "join_ratio": join_ratio, "evaluate_every": max(1, rounds // sizes.evaluations)}
    return _run(sizes, algorithm, at.images, at.partition, at.clients, branch_use, lr=lr, **setting)


def paired(sizes: Sizes, algorithm: Algorithm, lr: float = 0.0, keep=choices) -> Run:
    """A run of section V-B: ten clients in five pairs with two classes each."""
    groups = fl.label_groups([[2 * p, 2 * p + 1] for p in range(5)])
    setting = {"rounds": sizes.pair_rounds, "evaluate_every": 1, "tune_every": sizes.pair_tune_every}
    setting |= {"lr": lr or sizes.lr, "batch_size": sizes.pair_batch_size}
    return _run(sizes, algorithm, sizes.pairs, groups, 10, keep, **setting)


def _run(sizes: Sizes, algorithm: Algorithm, images, partition, clients: int, keep, **setting: object) -> Run:
    """A run with fine-tuning before evaluation, except for Local-Only; `keep` is for pFedMB, `scores` for others."""
    tuned = 0 if algorithm.name == "local_only" else sizes.local_epochs
    common = {"local_epochs": sizes.local_epochs, "batch_size": sizes.batch_size, "tune_epochs": tuned}
    keep = keep if algorithm.name == "pfedmb" else scores
    return Run(algorithm, images, partition, clients, {**common, **setting}, "lenet5_plain", SPLIT, keep)


def tried(sizes: Sizes, at: Column, method: str, branches: Sequence[int] = ()) -> tuple[Run, ...]:
    """The runs that a number of Table II is chosen from; those of pFedMB have these numbers of branches."""
    made = {
        "fedprox": [fl.fedprox(0.01)],
        "pfedme": [fl.pfedme(15.0, 0.01, 5)],
        "ifca": [fl.ifca(3)],
        "fedamp": [fl.fedamp(sigma, lam=lam) for lam, sigma in product(LAMBDAS, SIGMAS)],
        "pfedmb": [fl.pfedmb(b, gain=sizes.gain) for b in branches or sizes.branches],
    }
    algorithms = made.get(method) or [getattr(fl, method)()]
    return tuple(run(sizes, at, algorithm, lr) for algorithm in algorithms for lr in rates(sizes, algorithm))


def tried_on_pairs(sizes: Sizes, method: str, branches: int = B) -> tuple[Run, ...]:
    """The runs that a number of Table I is chosen from."""
    shared = {"share_alpha": True, "alpha_lr": sizes.pair_alpha_lr, "gain": sizes.gain}
    ours = fl.pfedmb(branches, weighted=method == "pfedmb", **shared)
    algorithm = ours if method in ("pfedmb", "pfedmb-avg") else getattr(fl, method)()
    return tuple(paired(sizes, algorithm, lr) for lr in rates(sizes, algorithm))


def rates(sizes: Sizes, algorithm: Algorithm) -> list[float]:
    """Step sizes; above five branches also a larger one, since with equal alphas a branch moves by lr / branches."""
    more = max(1.0, float(str(algorithm.hyper.get("branches", 1))) / B)
    return sorted({round(sizes.lr * factor, 6) for factor in (1.0, more)})
