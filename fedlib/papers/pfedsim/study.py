"""pFedSim (Tan et al., 2023): what its tables and figures need, and how its claims are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

import fedlib as fl
from fedlib import similarity
from fedlib.algorithm import Algorithm
from fedlib.papers.number import Number, largest, mean, missing, smallest
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
from fedlib.papers.rows import Row, kept
from fedlib.papers.run import Images, Probe, Run
from fedlib.papers.study import Cell, Claim, Numbers, Study
from fedlib.papers.verdict import Case, fact

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


def study(profile: str) -> Study:
    """What pFedSim needs at one size."""
    sizes = PROFILES[profile]
    cells = [*table3(sizes), *table6(sizes), *table7(sizes), *table8(sizes), *controls(sizes)]
    cells += [*fig1(sizes), *fig2_and_table2(sizes), *table4(sizes), *table8a(sizes), *facts()]
    return Study("pfedsim", profile, cells, CLAIMS, shown=SHOWN, controls=CONTROLS)


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


# -- claims -------------------------------------------------------------------------------------------------------


def over_best(numbers: Numbers, columns: list[tuple[str, str]]) -> list[Case]:
    """pFedSim against the best of the eleven others, column by column."""
    return [
        Case(f"{d} {s}", numbers("table3", "pfedsim", d, s) - largest(numbers("table3", m, d, s) for m in METHODS[:-1]))
        for d, s in columns
    ]


def against(numbers: Numbers, item: str, better: str, worse: str) -> list[Case]:
    """One method against another in all eight columns."""
    return [Case(f"{d} {s}", numbers(item, better, d, s) - numbers(item, worse, d, s)) for d, s in COLUMNS]


def between(number: Number, low: float, high: float) -> Number:
    """Positive inside of an interval: the distance to its nearer end; of an upper bound, to the lower end."""
    return smallest([number - low, high - number]) if number.complete else number - low


def largest_gain(numbers: Numbers) -> list[Case]:
    """ps10: the largest gain is on Tiny-ImageNet, and at least 5 points."""
    tiny = [case.effect for case in over_best(numbers, COLUMNS[4:6])]
    others = [case.effect for case in over_best(numbers, COLUMNS[:4] + COLUMNS[6:])]
    lead = largest(tiny) - largest(others)
    lead = lead if lead.complete else missing("lead")  # upper bounds, whose difference is no bound
    return [Case("above all others", lead), Case("at least 5", largest(tiny) - 5)]


def skew(numbers: Numbers) -> list[Case]:
    """ps11: stronger skew hurts a single model, and helps personal ones."""
    hurt = [(m, d, "dir=0.5", "dir=0.1") for m in ("fedavg", "fedprox", "fedgen") for d in DATA]
    gains = ("local_only", "fedper", "fedrep", "fedfomo", "pfedsim")
    helped = [(m, d, "dir=0.1", "dir=0.5") for m in gains for d in DATA]
    return [
        Case(f"{m} {d}", numbers("table3", m, d, better) - numbers("table3", m, d, worse))
        for m, d, better, worse in hurt + helped
    ]


def personal_beats_single(numbers: Numbers) -> list[Case]:
    """ps12: at Dir(0.1) the worst personal method beats the best single model."""
    return [
        Case(
            d,
            smallest(numbers("table3", m, d, "dir=0.1") for m in (*PERSONAL, "pfedsim"))
            - largest(numbers("table3", m, d, "dir=0.1") for m in SINGLE),
        )
        for d in DATA
    ]


def rho(numbers: Numbers, d: str, s: str, value: float) -> Number:
    """Accuracy with a warm-up of this share."""
    return numbers("table6", "pfedsim", d, f"{s};rho={value:g}")


def flat(numbers: Numbers, d: str, s: str) -> Number:
    """ps19: how far the worst of rho = 0.3, 0.5, 0.7 is from the best of all."""
    return largest(rho(numbers, d, s, r) for r in RHOS) - smallest(rho(numbers, d, s, r) for r in (0.3, 0.5, 0.7))


def best_rho(numbers: Numbers, d: str, s: str) -> Number:
    """The share with the highest accuracy, as a number without noise; missing if one of the seven is."""
    values = {r: rho(numbers, d, s, r) for r in RHOS}
    if any(number.missing for number in values.values()):
        return next(number for number in values.values() if number.missing)
    best = max(values, key=lambda r: values[r].value)
    return values[best]._replace(value=best, noise=0.0, name=f"best rho, {d} {s}")


def longer_for_small(numbers: Numbers) -> list[Case]:
    """ps20: the best share of each LeNet5 column against the larger one of the MobileNetV2 columns."""
    mobile = largest(best_rho(numbers, "tinyimagenet", f"dir={alpha}") for alpha in ALPHAS)
    return [Case(f"{d} {s}", best_rho(numbers, d, s) - mobile - 0.05) for d, s in LENET]


def time_ratio(numbers: Numbers, method: str, d: str) -> Number:
    """Time per sample relative to FedAvg."""
    return numbers("table7", method, d, "dir=0.1", "relative_time")


def traffic(numbers: Numbers) -> list[Case]:
    """ps23: scalars that are sent, as the formulas say, on CIFAR-10."""
    at = {
        m: numbers("table7", m, "cifar10", "dir=0.1", "scalars_down")
        for m in ("fedavg", "pfedsim", "fedfomo", "fedgen")
    }
    nu_m, nu_g = at["fedavg"], 4_212 + 64  # with the generator's BatchNorm statistics
    up = numbers("table7", "pfedsim", "cifar10", "dir=0.1", "scalars_up")
    return [
        Case("pFedSim as FedAvg, down", fact(_same(at["pfedsim"], nu_m))),
        Case("pFedSim as FedAvg, up", fact(_same(up, nu_m))),
        Case("FedFomo: six models", fact(_same(at["fedfomo"], nu_m * 6))),
        Case("FedGen: the generator", fact(_same(at["fedgen"], nu_m + nu_g))),
    ]


def _same(a: Number, b: Number) -> bool | None:
    return None if a.missing or b.missing else abs(a.value - b.value) < 0.5


def domains_won(numbers: Numbers) -> list[Case]:
    """ps24: best on average, and in at least four of six domains."""
    gains = {
        d: numbers("table8", "pfedsim", "domainnet", f"domain={d}")
        - largest(numbers("table8", m, "domainnet", f"domain={d}") for m in METHODS[:-1])
        for d in (*DOMAINS, "Average")
    }
    fourth = sorted((gains[d] for d in DOMAINS), key=lambda gain: -gain.value)[3]
    return [Case("Average", gains["Average"]), Case("fourth best domain", fourth)]


def single_beats_personal(numbers: Numbers) -> list[Case]:
    """ps25: without label skew the worst single model beats the best of four personal methods."""
    at = partial(numbers, "table8", dataset="domainnet", setting="domain=Average")
    rivals = ("perfedavg", "fedper", "fedrep", "fedfomo")
    return [Case("Average", smallest(at(method=m) for m in SINGLE) - largest(at(method=m) for m in rivals))]


def cka(numbers: Numbers, layer: int) -> Number:
    """Mean CKA between different models in a layer."""
    return numbers("fig1", "local_only", "cifar10", f"layer={layer}", "cka")


def fig2(numbers: Numbers, name: str) -> Number:
    """A number of the study with four clients."""
    return numbers("fig2", "local_only", "cifar10", name, "margin")


def pair(numbers: Numbers, measure: str, name: str) -> Number:
    """A measure of similarity of one pair of clients."""
    return numbers("table2", measure, "cifar10", f"pair={name}", "similarity")


def sizes_spread(numbers: Numbers) -> list[Case]:
    """ps07: sizes spread more at Dir(0.1), and as printed within 40 %."""
    printed = {("cifar10", 0.1): 487, ("cifar10", 0.5): 170, ("cinic10", 0.1): 1962, ("cinic10", 0.5): 843}
    printed |= {("emnist", 0.5): 782, ("tinyimagenet", 0.1): 118, ("tinyimagenet", 0.5): 38}
    std = {(d, a): numbers("table4", "partition", d, f"dir={a}", "std_of_sizes") for d in DATA for a in ALPHAS}
    wider = [Case(f"{d}: 0.1 over 1.5 times 0.5", std[d, 0.1] - 1.5 * std[d, 0.5]) for d in DATA]
    near = [Case(f"{d} {a}: as printed", 0.4 * n - abs(std[d, a] - n)) for (d, a), n in printed.items()]
    return wider + near


CONTROLS = dict.fromkeys(("table3", "table6"), ("protocol", "weights"))
CLAIMS = [
    Claim("ps01", lambda n: [Case(f"layer {k} over 4", cka(n, k) - cka(n, 4)) for k in range(4)]
          + [Case("layer 0 over 3", cka(n, 0) - cka(n, 3))], figure="fig1"),
    Claim("ps02", lambda n: [Case("at least 0.8", cka(n, 0) - 0.8),
                             Case("0.2 over layer 4", cka(n, 0) - cka(n, 4) - 0.2)]),
    Claim("ps03", lambda n: [Case(f"{a} over {b}", pair(n, "CS", a) - pair(n, "CS", b))
                             for a, b in zip(list(PAIRS), list(PAIRS)[1:], strict=False)]),
    Claim("ps04", lambda n: [Case("rows", fig2(n, "rows")), Case("gap of 0.2", fig2(n, "gap") - 0.2)]),
    Claim("ps05", lambda n: [Case("tau of CS is 1", fig2(n, "tau CS") - 1)]
          + [Case(f"{k} over {m}", fig2(n, f"{k} CS") - fig2(n, f"{k} {m}"))
             for k in ("tau", "r") for m in MEASURES[1:4]]),
    Claim("ps06", lambda n: [Case("tau of WDB below 1", 1 - fig2(n, "tau WDB") - 1e-6)]),
    Claim("ps07", sizes_spread),
    Claim("ps08", lambda n: over_best(n, COLUMNS), "most", 7),
    Claim("ps09", lambda n: [Case("mean", between(mean(case.effect for case in over_best(n, COLUMNS)), 1.5, 6))]),
    Claim("ps10", largest_gain),
    Claim("ps11", skew),
    Claim("ps12", personal_beats_single),
    Claim("ps13", lambda n: against(n, "table3", "pfedsim", "fedap")),
    Claim("ps14", lambda n: against(n, "table3", "pfedsim", "fedrep") + against(n, "table3", "pfedsim", "fedper")),
    Claim("ps15", lambda n: [Case(f"{d} {s}", 0.0 - abs(n("table6", "pfedsim", d, f"{s};rho=1", "less FedAvg")))
                             for d, s in COLUMNS], "identity"),
    Claim("ps16", lambda n: [Case(d, smallest(rho(n, d, "dir=0.1", r) for r in RHOS[:-1]) - rho(n, d, "dir=0.1", 1.0))
                             for d in DATA]),
    Claim("ps17", lambda n: [Case(f"{d} {s}", smallest(rho(n, d, s, r) for r in (0.3, 0.5, 0.7)) - rho(n, d, s, 0.0))
                             for d, s in COLUMNS if (d, s) != ("cinic10", "dir=0.5")]),
    Claim("ps18", lambda n: [Case(f"{d} {s}", rho(n, d, s, 0.7) - rho(n, d, s, 0.9)) for d, s in COLUMNS]),
    Claim("ps19", lambda n: [Case(f"{d} {s}", 4 - flat(n, d, s))
                             for d, s in COLUMNS if (d, s) != ("cinic10", "dir=0.5")]),
    Claim("ps20", longer_for_small, "most", 5),
    Claim("ps21", lambda n: [Case(d, 0.02 - abs(time_ratio(n, "pfedsim", d) - 1)) for d in DATA]),
    Claim("ps22", lambda n: [Case(f"{m} {d}", time_ratio(n, m, d) - least)
                             for m, least in (("fedfomo", 1.10), ("fedgen", 1.05)) for d in DATA]),
    Claim("ps23", traffic, "identity"),
    Claim("ps24", domains_won),
    Claim("ps25", single_beats_personal),
]  # fmt: skip
