"""FedSimSup (anonymous, submitted to ICLR 2025): sizes of the experiments, and their runs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import fedlib as fl
from fedlib.algorithm import Algorithm
from fedlib.federation import Partition
from fedlib.fingerprint import Registry
from fedlib.papers.fedsimsup.gradcam import both_networks
from fedlib.studies.tasks import Images, Kept, Probe, Run, profile_of

RIVALS = ("local_only", "fedavg", "fedprox", "perfedavg", "fedrep", "fedproto", "fedpac")
METHODS = (*RIVALS, "fedsimsup")
MAIN = ("local_only", "fedavg", "fedrep", "fedsimsup")
ALPHAS = (0.1, 0.5)
CLASSES = {"cifar10": (2, 5), "cifar100": (5, 20)}  # per client, in the pathological partitions
SIZES = (100, 50)
DIRICHLET = [(name, f"clients={n};dir={alpha}") for name in CLASSES for alpha in ALPHAS for n in SIZES]
PATHOLOGICAL = [(name, f"clients={n};pat={c}") for name, own in CLASSES.items() for c in own for n in SIZES]
WRITERS = ("femnist", "clients=3597;natural")  # one client per writer
SHAPES = {"cifar10": ((3, 32, 32), 10), "cifar100": ((3, 32, 32), 100), "femnist": ((1, 28, 28), 62)}
NETWORKS = {"lenet4": "small_lenet4", "lenet5_plain": "small_lenet"}  # readings A7 and A8: network, supervisor L


class Sizes(NamedTuple):
    """Sizes of one profile."""

    data: Mapping[str, Images]  # the paper's data set -> ours
    dirichlet: Mapping[str, Sequence[float]]
    pathological: Mapping[str, Sequence[int]]
    rounds: Mapping[str, int]  # of Tables 1 and 2 and Fig. 2, by data set
    clients: Mapping[int, int]  # the paper's number -> ours
    methods: Sequence[str] = METHODS  # of Table 1 and Fig. 2
    pathological_methods: Sequence[str] = METHODS
    pathological_rounds: int = 1000  # at most
    mixed_rounds: int = 1000  # of Table 3, at most
    similarity_rounds: int = 100  # of Fig. 3
    similarity_seeds: int = 3
    similarity_every: int = 1  # rounds between the evaluations of Fig. 3
    evaluate_every: Mapping[str, int] = {}  # by data set; default: 1
    supervisor_epochs: int = 2
    theta_epochs: int = 3
    join_ratio: float = 0.1
    batch_size: int = 32
    model: str = "lenet4"
    other_methods: Sequence[str] = MAIN  # with the other reading of the network
    other_rounds: int = 1000  # at most
    cam_class: str = "cat"
    moves_rounds: int = 30
    seeds: int = 2  # of the methods in MAIN and of FedPAC; of all others: 1
    side_seeds: int = 2  # of the other network and of the movement of supervisors


PEN = Images("digit_styles", domains=("pen",), train=600, stands_for="cifar10")  # dark digits on light paper: easy
QUICK = Sizes(
    data={"cifar10": PEN}, dirichlet={"cifar10": (0.1,)}, pathological={"cifar10": (2,)}, rounds={"cifar10": 16},
    clients={50: 20}, methods=MAIN, pathological_methods=("fedrep", "fedsimsup"), pathological_rounds=10,
    mixed_rounds=8, similarity_rounds=16, similarity_every=2, evaluate_every={"cifar10": 2}, supervisor_epochs=1,
    theta_epochs=2, join_ratio=0.3, batch_size=10, model="lenet5_plain",
    other_methods=("local_only",),  # with this step size FedSimSup fails in the wide network
    other_rounds=3, cam_class="3", moves_rounds=20, seeds=3, side_seeds=1,
)  # fmt: skip
ONE = ("mixed_rounds", "similarity_seeds", "similarity_every", "theta_epochs", "other_rounds", "seeds")
SMOKE = QUICK._replace(
    data={"cifar10": PEN._replace(train=400)}, dirichlet={"cifar10": (0.5,)}, rounds={"cifar10": 2},
    clients={50: 12},  # enough to draw every kind of supervisor
    similarity_rounds=2, evaluate_every={}, join_ratio=0.25, batch_size=20, moves_rounds=8, **dict.fromkeys(ONE, 1),
)  # fmt: skip
PAPER = Sizes(
    data={name: Images(name) for name in CLASSES}, dirichlet=dict.fromkeys(CLASSES, ALPHAS), pathological=CLASSES,
    rounds={"cifar10": 100, "cifar100": 1000, "femnist": 1000},  # the paper has 1,000 everywhere
    clients={n: n for n in SIZES}, evaluate_every={"cifar100": 10, "femnist": 10},
)  # fmt: skip
PROFILES = Registry(paper=PAPER, quick=QUICK, smoke=SMOKE)  # new sizes of one profile leave the rows of others valid


class Column(NamedTuple):
    """A column of Tables 1 to 3: data set, clients as the paper counts them, kind and strength of the partition."""

    dataset: str
    n: int
    kind: str  # "dir", "pat", or "natural": one client per writer
    value: float

    @property
    def setting(self) -> str:
        """The column as in the paper's `reported.csv`."""
        return f"clients={self.n};{self.kind}" + (f"={self.value:g}" if self.value else "")

    @property
    def partition(self) -> Partition:
        """The partition of the samples."""
        if self.kind == "natural":
            return fl.domains()
        return fl.dirichlet(self.value, 10) if self.kind == "dir" else fl.classes_per_client(int(self.value))


def columns(sizes: Sizes, kind: str) -> list[Column]:
    """All columns with this kind of partition."""
    if kind == "natural":
        return [Column("femnist", 3597, kind, 0)] if "femnist" in sizes.rounds else []
    values = sizes.dirichlet if kind == "dir" else sizes.pathological
    return [Column(name, n, kind, value) for name, own in values.items() for value in own for n in sizes.clients]


def first(sizes: Sizes) -> Column:
    """The column of Figs. 3 and 4: CIFAR-10 with most clients and the strongest skew."""
    return next(column for column in columns(sizes, "dir") if column.n == max(sizes.clients))


def most_clients(sizes: Sizes, *kinds: str) -> list[Column]:
    """The columns of the controls: CIFAR-10 with most clients."""
    return [column for kind in kinds for column in columns(sizes, kind) if column[:2] == first(sizes)[:2]]


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
        "fedsimsup": partial(fl.fedsimsup, supervisor or NETWORKS[sizes.model], sizes.supervisor_epochs),
    }[method]()


def seeds(sizes: Sizes, method: str) -> int:
    """Number of seeds of a method in Tables 1 and 2."""
    return sizes.seeds if method in (*MAIN, "fedpac") else 1


def diverged(result: fl.RunResult) -> Kept:
    """The first round whose loss is not finite, or None (reading A11)."""
    return {"diverged": result.diverged}


def supervisors(result: fl.RunResult) -> Kept:
    """The clients with each kind of supervisor, by the letters of Table 3."""
    letters = {"small_vit": "t", "small_cnn": "c", NETWORKS["lenet4"]: "l", NETWORKS["lenet5_plain"]: "l"}
    kinds = {letters[g.model.name.partition("+")[2]]: list(map(int, g.clients)) for g in result.architectures}
    return {"diverged": result.diverged, **kinds}


def run(sizes: Sizes, column: Column, algorithm: Algorithm, rounds: int, model: str = "") -> Run:
    """A run in a column of Tables 1 to 3."""
    writers, name = column.kind == "natural", column.dataset
    setting: dict[str, object] = {"rounds": rounds, "local_epochs": sizes.supervisor_epochs + sizes.theta_epochs}
    setting |= {"batch_size": sizes.batch_size, "lr": 0.1, "evaluate_every": sizes.evaluate_every.get(name, 1)}
    setting |= {"tune_epochs": 3, "tune_every": min(rounds, 10)} if algorithm.tune_epochs else {}
    setting |= {"join_ratio": 0.01 if writers and algorithm.name != "local_only" else sizes.join_ratio}
    federate = {"test_fraction": 0.1 if writers else None}  # None: the official test split, in the same shares (A5)
    source, n = sizes.data.get(name, Images(name)), sizes.clients.get(column.n, column.n)
    return Run(algorithm, source, column.partition, n, setting, model or sizes.model, federate, diverged)


def as_in_benchmark(task: Run, column: Column, keep: Callable[[fl.RunResult], Kept] = diverged) -> Run:
    """The same run with FL-bench's 100 rounds and its defaults where the paper is silent (readings A24 and A26)."""
    if task.images.stands_for:  # the small profiles have the settings of the paper's text
        return task
    algorithm = fl.fedavg() if task.algorithm.name == "fedprox" else task.algorithm  # its proximal term had no effect
    setting = {**task.setting, "rounds": min(task.rounds, 100), "evaluate_every": 1, "statistics": "local"}
    if algorithm.name == "perfedavg":
        algorithm = fl.perfedavg(**algorithm.hyper | {"beta": 0.001, "steps": None})
        setting["local_epochs"] = 4
    if algorithm.name == "fedsimsup":
        supervisor = str(algorithm.hyper["supervisor"]).replace(*NETWORKS.values())
        algorithm = fl.fedsimsup(**algorithm.hyper | {"supervisor": supervisor})
    partition = fl.shards(int(column.value)) if column.kind == "pat" else column.partition
    return task._replace(algorithm=algorithm, partition=partition, setting=setting, model="lenet5", keep=keep)


def table_run(sizes: Sizes, column: Column, method: str, benchmark: bool = False) -> Run:
    """A run of Table 1 or 2; that of FedSimSup in the first column is examined with Grad-CAM."""
    at_most = sizes.pathological_rounds if column.kind == "pat" else 1000
    task = run(sizes, column, made(sizes, method), min(at_most, sizes.rounds[column.dataset]))
    if method == "fedsimsup" and column == first(sizes):
        task = task._replace(keep=partial(both_networks, task, sizes.cam_class))
    return as_in_benchmark(task, column) if benchmark else task


def mixed_run(sizes: Sizes, column: Column, benchmark: bool = False) -> Run:
    """A run of Table 3: every client draws its supervisor."""
    mixed = made(sizes, "fedsimsup", f"{NETWORKS[sizes.model]}+small_cnn+small_vit")
    task = run(sizes, column, mixed, min(sizes.mixed_rounds, sizes.rounds[column.dataset]))._replace(keep=supervisors)
    return as_in_benchmark(task, column, supervisors) if benchmark else task


def weighted_run(sizes: Sizes, similarity: bool) -> Run:
    """A run of Fig. 3: similarity weights, or all s_ij = 1. The first one is that of Table 1, if it is as long."""
    algorithm = fl.fedsimsup(NETWORKS[sizes.model], sizes.supervisor_epochs, similarity=similarity)
    task = run(sizes, first(sizes), algorithm, sizes.similarity_rounds)
    task = task._replace(setting={**task.setting, "evaluate_every": sizes.similarity_every})
    if not similarity:
        return task._replace(keep=partial(both_networks, task, sizes.cam_class))
    original = table_run(sizes, first(sizes), "fedsimsup")
    return original if original.setting == task.setting else task


def other_run(sizes: Sizes, column: Column, method: str, times: int = 1) -> Run:
    """A run with the other network and its supervisor, for `times` as many rounds as Table 1 has."""
    network, rounds = next(name for name in NETWORKS if name != sizes.model), table_run(sizes, column, method).rounds
    return run(sizes, column, made(sizes, method, NETWORKS[network]), times * min(sizes.other_rounds, rounds), network)


def probe(sizes: Sizes, label: str, measure: Callable[..., Kept], *at: object, data: str = "", **about: bool) -> Probe:
    """A measurement at the sizes of a profile, of a data set of the paper."""
    source = sizes.data[data] if data else Images("")
    return Probe(label, measure, (profile_of(sizes, PROFILES), *at), source, sizes=str(sizes), **about)
