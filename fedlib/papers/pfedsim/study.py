"""pFedSim (Tan et al., 2023): what its tables and figures need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

import fedlib as fl
from fedlib import similarity
from fedlib.algorithm import Algorithm
from fedlib.papers.pfedsim.controls import blind
from fedlib.papers.pfedsim.figures import SHOWN
from fedlib.papers.pfedsim.measure import (
    DOMAINS,
    LABELS,
    LAYERS,
    PAIRS,
    VARIANTS,
    by_domain,
    client_sizes,
    costs,
    domain_sizes,
    four_clients,
    layers_alike,
    learned,
    made,
    needs,
    networks,
    stages,
)
from fedlib.studies.rows import Row, kept
from fedlib.studies.study import Cell, Study
from fedlib.studies.tasks import Images, Probe, Run

SINGLE = ("fedavg", "fedprox", "feddyn", "fedgen")
PERSONAL = ("perfedavg", "fedper", "fedrep", "fedfomo", "fedap")
METHODS = ("local_only", *SINGLE, "fedbn", *PERSONAL, "pfedsim")
COSTED = ("fedavg", "fedfomo", "fedgen", "fedap", "pfedsim")
RHOS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
DATA = ("cifar10", "cinic10", "tinyimagenet", "emnist")
ALPHAS = (0.1, 0.5)
COLUMNS = [(name, f"dir={alpha}") for name in DATA for alpha in ALPHAS]
LENET = [(name, setting) for name, setting in COLUMNS if name != "tinyimagenet"]
SIZES = {"samples_per_client": "mean", "std_of_sizes": "std"}
NETWORKS = {
    "table5": ("conv1", "conv2", "fc1", "fc2", "classifier"),
    "table9": (*(f"features.{i}" for i in range(19)), "classifier.1"),
}
MEASURES = ("DataSimilarity", "WDB", "MDB", "LDB", "CS")


class Sizes(NamedTuple):
    """What differs between profiles."""

    data: Mapping[str, tuple[Images, str]]  # the paper's data set -> ours, and the model
    domains: tuple[Images, str, int]  # data, model, clients of Table 8
    domain_names: tuple[str, ...] = DOMAINS
    methods: tuple[str, ...] = METHODS
    alphas: tuple[float, ...] = ALPHAS
    rounds: int = 200
    clients: int = 100
    join_ratio: float = 0.1
    local_epochs: int = 5
    batch_size: int = 32
    lr: float = 0.01
    min_size: int = 40
    evaluate_every: int = 10
    seeds: int = 2
    rhos: tuple[float, ...] = RHOS
    rho_alphas: tuple[float, ...] = ALPHAS
    rho_seeds: int = 2
    domain_rounds: int = 200
    domain_seeds: int = 2
    cost_rounds: int = 20  # of which the first warms up and the last is not timed
    study: Images = Images("cifar10")  # of Fig. 1, Fig. 2 and Table 2
    study_epochs: int = 20
    study_images: int = 2000
    study_seeds: int = 3
    stages: tuple[int, ...] = (0, 10, 50, 100, 200)  # rounds of FedAvg before classifiers are compared
    stage_seeds: int = 2
    published: tuple[str, ...] = (
        *SINGLE,
        "perfedavg",
        "fedper",
        "fedrep",
    )  # methods that the published protocol changes
    kinds: tuple[str, ...] = ("log_of_mean", "mean_cos")  # other similarities than the paper's


PEN = Images("digit_styles", (("per_style", 800),), ("pen",), stands_for="cifar10")
STYLES = Images("digit_styles", (("per_style", 300),), stands_for="domainnet")
QUICK = Sizes(
    data={"cifar10": (PEN, "lenet5")},
    domains=(STYLES, "lenet5", 12),
    domain_names=("pen", "pencil", "poster", "painting", "halftone", "clutter"),
    methods=("local_only", "fedavg", "fedper", "fedap", "pfedsim"),
    rounds=12,
    clients=10,
    join_ratio=0.5,
    local_epochs=2,
    batch_size=16,
    lr=0.05,
    min_size=20,
    evaluate_every=3,
    seeds=3,
    rhos=(0.0, 0.3, 0.5, 0.7, 0.9, 1.0),
    rho_alphas=(0.1,),
    rho_seeds=1,
    domain_rounds=8,
    domain_seeds=1,
    cost_rounds=4,
    study=PEN,
    study_epochs=10,
    study_images=300,
    stages=(0, 2, 5, 12),
    published=("fedavg", "fedper"),
    kinds=("mean_cos",),
)
PROFILES = {
    "paper": Sizes(
        data={
            "cifar10": (Images("cifar10"), "lenet5"),
            "cinic10": (Images("cinic10"), "lenet5"),
            "tinyimagenet": (Images("tinyimagenet"), "mobilenetv2_pretrained"),
            "emnist": (Images("emnist_byclass"), "lenet5"),
        },
        domains=(Images("domainnet"), "mobilenetv2_pretrained", 120),
    ),
    "quick": QUICK,
    "smoke": QUICK._replace(
        data={"cifar10": (PEN._replace(few=500), "lenet5")},
        domains=(STYLES._replace(options=(("per_style", 100),)), "lenet5", 6),
        rounds=2,
        clients=6,
        join_ratio=1.0,  # so that FedFomo has five neighbours
        local_epochs=1,
        min_size=8,
        evaluate_every=1,
        seeds=1,
        rhos=(0.0, 0.5, 1.0),
        domain_rounds=1,
        cost_rounds=3,
        study=PEN._replace(few=500),
        study_epochs=1,
        study_images=50,
        study_seeds=1,
        stages=(0, 2),
        stage_seeds=1,
        kinds=(),
    ),
}
CONTROLS = dict.fromkeys(("table3", "table6"), ("protocol", "weights"))


def study(profile: str) -> Study:
    """What pFedSim needs at one size."""
    sizes = PROFILES[profile]
    cells = [*table3(sizes), *table6(sizes), *table7(sizes), *table8(sizes), *controls(sizes)]
    cells += [*fig1(sizes), *fig2_and_table2(sizes), *table4(sizes), *table8a(sizes), *facts()]
    return Study("pfedsim", profile, cells, shown=SHOWN, controls=CONTROLS)


# -- runs ---------------------------------------------------------------------------------------------------------


def local(sizes: Sizes) -> dict[str, object]:
    """How a client trains."""
    return {"local_epochs": sizes.local_epochs, "batch_size": sizes.batch_size, "lr": sizes.lr}


def run(sizes: Sizes, name: str, alpha: float, algorithm: Algorithm, **setting: object) -> Run:
    """A run of the main setting on the paper's data set `name`."""
    source, model = sizes.data[name]
    common = {"rounds": sizes.rounds, "join_ratio": sizes.join_ratio, "evaluate_every": sizes.evaluate_every}
    partition = fl.dirichlet(alpha, sizes.min_size)
    return Run(algorithm, source, partition, sizes.clients, local(sizes) | common | setting, model)


def warmed(sizes: Sizes, name: str, alpha: float, rho: float) -> Run:
    """pFedSim with a warm-up of this share of the rounds: until its end it is the run that is all warm-up."""
    made = run(sizes, name, alpha, fl.pfedsim(rho))
    shared, made = int(rho * sizes.rounds + 1e-9), made._replace(keep=partial(learned, made))
    return made._replace(prefix=(run(sizes, name, alpha, fl.pfedsim(1.0)), shared)) if 0 < rho < 1 else made


def table3(sizes: Sizes) -> list[Cell]:
    """The methods on four data sets, two levels of label skew each."""
    return [
        Cell(
            *("table3", method, name, f"dir={alpha}"),
            (warmed(sizes, name, alpha, 0.5) if method == "pfedsim" else run(sizes, name, alpha, made(method)),),
            seeds=sizes.seeds,
        )
        for name, alpha, method in product(sizes.data, sizes.alphas, sizes.methods)
    ]


def table6(sizes: Sizes) -> list[Cell]:
    """pFedSim by the length of its warm-up, and how far its Phi follows the data similarity."""
    cells = []
    for name, alpha, rho in product(sizes.data, sizes.rho_alphas, sizes.rhos):
        task, setting = warmed(sizes, name, alpha, rho), f"dir={alpha};rho={rho:g}"
        cells.append(Cell("table6", "pfedsim", name, setting, (task,), seeds=sizes.rho_seeds))
        if rho == 1:
            both = task, run(sizes, name, alpha, fl.fedavg())
            cells.append(Cell("table6", "pfedsim", name, setting, both, difference, "less FedAvg", sizes.rho_seeds))
        for metric in ("tau", "r") if rho < 1 else ():
            read = partial(kept, metric)
            cells.append(Cell("learned", "pfedsim", name, setting, (task,), read, metric, sizes.rho_seeds))
    return cells


def table7(sizes: Sizes) -> list[Cell]:
    """Time of a client per sample, and relative to FedAvg's, and scalars per client and round."""
    cells, setting = [], local(sizes) | {"rounds": sizes.cost_rounds, "join_ratio": sizes.join_ratio}
    for name, (source, model) in sizes.data.items():
        task = Probe("table7", costs, (COSTED, source, sizes.clients, sizes.min_size, setting, model), source)
        for method, metric in product(COSTED, ("xi_p_1e-4s", "relative_time", "scalars_down", "scalars_up")):
            read = partial(kept, f"{metric} {method}")
            cells.append(Cell("table7", method, name, "dir=0.1", (task,), read, metric, 3))
    return cells


def table8(sizes: Sizes) -> list[Cell]:
    """The methods on six domains, without label skew."""
    source, model, clients = sizes.domains
    setting = local(sizes) | {"rounds": sizes.domain_rounds, "evaluate_every": sizes.domain_rounds}
    setting["join_ratio"] = sizes.join_ratio
    cells = []
    for method in sizes.methods:
        task = Run(made(method), source, fl.domains(), clients, setting, model, keep=by_domain)
        for domain, name in zip((*sizes.domain_names, "Average"), (*DOMAINS, "Average"), strict=True):
            read = partial(kept, name)
            cells.append(
                Cell("table8", method, "domainnet", f"domain={domain}", (task,), read, seeds=sizes.domain_seeds)
            )
    return cells


def controls(sizes: Sizes) -> list[Cell]:
    """Weights that do not say who is alike, other similarities, and the published protocol, on CIFAR-10 at Dir(0.1).

    In that protocol BatchNorm's statistics stay at home and pixels go up to 255.
    """
    cells, published = [], {"statistics": "local", "pixels": "raw"}
    at = partial(run, sizes, "cifar10", 0.1)
    variants = {"per_class": warmed(sizes, "cifar10", 0.1, 0.5)}
    variants |= {kind: at(fl.pfedsim(similarity=kind)) for kind in sizes.kinds}  # type: ignore[arg-type]
    variants |= {"uniform": at(blind("uniform")), "shuffled": at(blind("shuffled"))}
    for name, task in variants.items():
        cells.append(Cell("weights", "pfedsim", "cifar10", f"similarity={name}", (task,), seeds=sizes.seeds))
    fedper = Cell("weights", "pfedsim", "cifar10", "similarity=none (FedPer)", (at(fl.fedper()),), seeds=sizes.seeds)
    cells.append(fedper)
    for method in sizes.published:
        task = at(made(method), **published)
        cells.append(Cell("protocol", method, "cifar10", "protocol=published", (task,)))
        cells.append(Cell("protocol", method, "cifar10", "protocol=ours", (at(made(method)),)))
    (source, _), setting = sizes.data["cifar10"], local(sizes) | {"join_ratio": sizes.join_ratio}
    task = Probe("stages", stages, (source, 0.1, sizes.clients, sizes.min_size, setting, sizes.stages), source)
    for t, (kind, cap), metric in product(sizes.stages, VARIANTS, ("tau", "r")):
        setting, read = f"round={t};similarity={kind};cap={cap:g}", partial(kept, f"{metric} {t} {kind} {cap:g}")
        cells.append(Cell("stages", "fedavg", "cifar10", setting, (task,), read, metric, sizes.stage_seeds))
    return cells


def difference(one: Row, other: Row) -> float:
    """Of two accuracies [points]."""
    return one.score() - other.score()


# -- measurements -------------------------------------------------------------------------------------------------


def fig1(sizes: Sizes) -> list[Cell]:
    """Mean CKA between different models, by layer."""
    setting = {"batch_size": sizes.batch_size, "lr": sizes.lr}
    arguments = (sizes.study, sizes.min_size, sizes.study_epochs, setting, sizes.study_images)
    task = Probe("fig1", layers_alike, arguments, sizes.study)
    read = {k: partial(kept, f"layer={k}") for k in LAYERS}
    return [
        Cell("fig1", "local_only", "cifar10", f"layer={k}", (task,), read[k], "cka", sizes.study_seeds) for k in LAYERS
    ]


def fig2_and_table2(sizes: Sizes) -> list[Cell]:
    """Five measures for four pairs, and the margins that Fig. 2 is about."""
    setting = {"batch_size": sizes.batch_size, "lr": sizes.lr}
    task = Probe("table2", four_clients, (sizes.study, sizes.study_epochs, setting), sizes.study)
    cells = [
        Cell(
            *("table2", measure, "cifar10", f"pair={pair}", (task,), partial(kept, f"{measure} {pair}"), "similarity"),
            seeds=sizes.study_seeds,
        )
        for measure in MEASURES
        for pair in PAIRS
    ]
    reads: dict[str, Callable[..., float]] = {"rows": row_margin, "gap": smallest_gap}
    reads |= {f"tau {m}": partial(agreement, m, 0) for m in MEASURES[1:]}
    reads |= {f"r {m}": partial(agreement, m, 1) for m in MEASURES[1:]}
    return cells + [
        Cell("fig2", "local_only", "cifar10", name, (task,), read, "margin", sizes.study_seeds)
        for name, read in reads.items()
    ]


def row_margin(row: Row) -> float:
    """Least mean cosine over classes that both or neither own, less the largest over classes that one owns."""
    both, one = _cosines(row)
    return min(map(np.mean, both)) - max(map(np.mean, one))


def smallest_gap(row: Row) -> float:
    """The smallest difference of the two within a pair that has both kinds."""
    kinds = [_of_pair(row, pair) for pair in PAIRS]
    return min(both.mean() - one.mean() for both, one in kinds if len(both) and len(one))


def agreement(measure: str, which: int, row: Row) -> float:
    """Kendall's tau (0) or Pearson's r (1) of a measure with the data similarity over the four pairs."""
    values, truth = ([row.kept[f"{name} {pair}"] for pair in PAIRS] for name in (measure, "DataSimilarity"))
    return float(similarity.agreement(values, truth)[which])


def _of_pair(row: Row, pair: str) -> tuple[np.ndarray, np.ndarray]:
    i, j = PAIRS[pair]
    owned = np.array([(c in LABELS[i]) == (c in LABELS[j]) for c in range(10)])
    cosines = np.array(row.kept[f"rows {pair}"])[:10]
    return cosines[owned], cosines[~owned]


def _cosines(row: Row) -> tuple[list[np.ndarray], list[np.ndarray]]:
    kinds = [_of_pair(row, pair) for pair in PAIRS]
    return [both for both, _ in kinds if len(both)], [one for _, one in kinds if len(one)]


def table4(sizes: Sizes) -> list[Cell]:
    """What the partitions give."""
    cells = []
    for name, (source, _) in sizes.data.items():
        probes = {a: Probe("table4", client_sizes, (source, a, sizes.clients, sizes.min_size), source) for a in ALPHAS}
        for alpha, metric in product(ALPHAS, SIZES):
            read = partial(kept, SIZES[metric])
            cells.append(Cell("table4", "partition", name, f"dir={alpha}", (probes[alpha],), read, metric, 2))
        for metric, value in (("num_samples", "samples"), ("num_classes", "classes")):
            cells.append(Cell("table4", "partition", name, "", (probes[0.1],), partial(kept, value), metric))
    return cells


def table8a(sizes: Sizes) -> list[Cell]:
    """Images of each domain."""
    source = sizes.domains[0]
    task = Probe("table8a", domain_sizes, (source,), source, exact=True)
    return [
        Cell("table8a", "partition", "domainnet", f"domain={d}", (task,), partial(kept, d.lower()), "num_samples")
        for d in sizes.domain_names
    ]


def facts() -> list[Cell]:
    """Table 1: what methods send and look at; Tables 5 and 9: parameters of the two networks."""
    cells = []
    for method in COSTED:
        task = Probe("table1", needs, (method,), exact=True)
        for metric in ("models up and down", "most models up", "looks at data of others"):
            cells.append(Cell("table1", method, "", "", (task,), partial(kept, metric), metric))
    task = Probe("networks", networks, exact=True)
    for table, layers in NETWORKS.items():
        for layer in layers:
            read = partial(kept, f"{table} {layer}")
            cells.append(Cell(table, "partition", "", f"layer={layer}", (task,), read, "parameters"))
    return cells
