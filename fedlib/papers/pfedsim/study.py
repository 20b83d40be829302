"""pFedSim (Tan et al., 2023): what its tables and figures need, and how its claims are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

import fedlib as fl
from fedlib import similarity
from fedlib.algorithm import Algorithm
from fedlib.models import features
from fedlib.papers.number import Number, largest, mean, smallest
from fedlib.papers.rows import Row
from fedlib.papers.run import Images, Kept, Probe, Run, images
from fedlib.papers.study import Cell, Claim, Numbers, Study
from fedlib.papers.verdict import Case, fact
from fedlib.runs import cohorts
from fedlib.training import evaluate, on_device

SINGLE = ("fedavg", "fedprox", "feddyn", "fedgen")
PERSONAL = ("perfedavg", "fedper", "fedrep", "fedfomo", "fedap")
METHODS = ("local_only", *SINGLE, "fedbn", *PERSONAL, "pfedsim")
COSTED = ("fedavg", "fedfomo", "fedgen", "fedap", "pfedsim")
RHOS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
DATA = ("cifar10", "cinic10", "tinyimagenet", "emnist")
ALPHAS = (0.1, 0.5)
COLUMNS = [(name, f"dir={alpha}") for name in DATA for alpha in ALPHAS]
LENET = [(name, setting) for name, setting in COLUMNS if name != "tinyimagenet"]
DOMAINS = ("Clipart", "Infograph", "Painting", "Quickdraw", "Real", "Sketch")
LAYERS = {0: "conv1.2", 1: "conv2.2", 2: "fc1.0", 3: "fc2.0", 4: "classifier"}  # before pooling and before ReLU
PAIRS = {"i-i'": (0, 1), "i-j": (0, 2), "j-k": (2, 3), "i-k": (0, 3)}
LABELS = (range(5), range(5), range(2, 7), range(5, 10))  # of i, i', j and k
MEASURES = ("DataSimilarity", "WDB", "MDB", "LDB", "CS")


class Sizes(NamedTuple):
    """What differs between profiles."""

    data: Mapping[str, tuple[Images, str]]  # the paper's data set -> ours, and the model
    domains: tuple[Images, str, int]  # data, model, clients of Table 8
    rounds: int = 200
    clients: int = 100
    join_ratio: float = 0.1
    local_epochs: int = 5
    min_size: int = 40
    evaluate_every: int = 10
    seeds: int = 2
    domain_rounds: int = 200
    cost_rounds: int = 20
    study: Images = Images("cifar10")  # of Fig. 1, Fig. 2 and Table 2
    study_epochs: int = 20
    study_images: int = 2000
    study_seeds: int = 3


DIGITS, STYLES = Images("digits", stands_for="cifar10"), Images("digit_styles", stands_for="domainnet")
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
    "quick": Sizes(
        data={"cifar10": (DIGITS, "lenet5")},
        domains=(STYLES, "lenet5", 12),
        rounds=20,
        clients=10,
        join_ratio=0.3,
        local_epochs=2,
        min_size=8,
        evaluate_every=1,
        seeds=3,
        domain_rounds=10,
        study=DIGITS,
        study_images=300,
    ),
    "smoke": Sizes(
        data={"cifar10": (DIGITS._replace(few=800), "lenet5")},
        domains=(STYLES, "lenet5", 6),
        rounds=2,
        clients=6,
        join_ratio=0.5,
        local_epochs=1,
        min_size=8,
        evaluate_every=1,
        seeds=1,
        domain_rounds=1,
        cost_rounds=2,
        study=DIGITS,
        study_epochs=1,
        study_images=50,
        study_seeds=1,
    ),
}


def study(profile: str) -> Study:
    """What pFedSim needs at one size."""
    sizes = PROFILES[profile]
    cells = [*table3(sizes), *table6(sizes), *table7(sizes), *table8(sizes)]
    cells += [*fig1(sizes), *fig2_and_table2(sizes), *table4(sizes), *table8a(sizes), *extras(sizes)]
    return Study("pfedsim", profile, cells, CLAIMS)


# -- runs ---------------------------------------------------------------------------------------------------------


def run(sizes: Sizes, name: str, alpha: float, algorithm: Algorithm, **setting: object) -> Run:
    """A run of the main setting on the paper's data set `name`."""
    source, model = sizes.data[name]
    common = {"rounds": sizes.rounds, "join_ratio": sizes.join_ratio, "local_epochs": sizes.local_epochs}
    common |= {"batch_size": 32, "lr": 0.01, "evaluate_every": sizes.evaluate_every}
    return Run(algorithm, source, fl.dirichlet(alpha, sizes.min_size), sizes.clients, common | setting, model)


def made(name: str) -> Algorithm:
    """A method with the paper's hyper-parameters."""
    return fl.fedfomo(explore=0) if name == "fedfomo" else getattr(fl, name)()


def table3(sizes: Sizes) -> list[Cell]:
    """Twelve methods on four data sets, two levels of label skew each."""
    return [
        Cell(
            *("table3", method, name, f"dir={alpha}"),
            (warmed(sizes, name, alpha, 0.5) if method == "pfedsim" else run(sizes, name, alpha, made(method)),),
            seeds=sizes.seeds,
        )
        for name in sizes.data
        for alpha in ALPHAS
        for method in METHODS
    ]


def warmed(sizes: Sizes, name: str, alpha: float, rho: float) -> Run:
    """pFedSim with a warm-up of this share of the rounds: until its end it is the run that is all warm-up."""
    made = run(sizes, name, alpha, fl.pfedsim(rho))
    shared = int(rho * sizes.rounds + 1e-9)
    return made._replace(prefix=(run(sizes, name, alpha, fl.pfedsim(1.0)), shared)) if 0 < rho < 1 else made


def table6(sizes: Sizes) -> list[Cell]:
    """pFedSim by the length of its warm-up."""
    return [
        Cell(
            *("table6", "pfedsim", name, f"dir={alpha};rho={rho:g}"),
            (warmed(sizes, name, alpha, rho),),
            seeds=sizes.seeds,
        )
        for name in sizes.data
        for alpha in ALPHAS
        for rho in RHOS
    ]


def table7(sizes: Sizes) -> list[Cell]:
    """Time of a client per sample, and bytes per client and round."""
    cells, short = [], {"rounds": sizes.cost_rounds, "evaluate_every": sizes.cost_rounds}
    for name in sizes.data:
        for method in COSTED:
            task = run(sizes, name, 0.1, made(method), **short)._replace(keep=partial(costs, sizes), timed=True)
            for metric in ("xi_p_1e-4s", "scalars_down", "scalars_up"):
                cells.append(Cell("table7", method, name, "dir=0.1", (task,), partial(kept, metric), metric, 3))
    return cells


def table8(sizes: Sizes) -> list[Cell]:
    """Twelve methods on six domains, without label skew."""
    source, model, clients = sizes.domains
    setting = {"rounds": sizes.domain_rounds, "join_ratio": 0.1, "local_epochs": 5, "batch_size": 32, "lr": 0.01}
    setting["evaluate_every"] = sizes.domain_rounds
    cells = []
    for method in METHODS:
        task = Run(made(method), source, fl.domains(), clients, setting, model, keep=by_domain)
        for domain in (*DOMAINS, "Average"):
            read = partial(kept, domain)
            cells.append(Cell("table8", method, "domainnet", f"domain={domain}", (task,), read, seeds=sizes.seeds))
    return cells


def extras(sizes: Sizes) -> list[Cell]:
    """The published protocol (BatchNorm statistics at home, pixels up to 255), and other similarities."""
    cells, published = [], {"statistics": "local", "pixels": "raw"}
    for name in list(sizes.data)[:1]:
        for method in (*SINGLE, "perfedavg", "fedper", "fedrep"):
            task = run(sizes, name, 0.1, made(method), **published)
            cells.append(Cell("protocol", method, name, "dir=0.1;statistics=local;pixels=raw", (task,)))
        for kind in ("per_class", "log_of_mean", "mean_cos"):
            task = run(sizes, name, 0.1, fl.pfedsim(similarity=kind))
            cells.append(Cell("similarity", "pfedsim", name, f"dir=0.1;similarity={kind}", (task,), seeds=sizes.seeds))
    return cells


def kept(name: str, row: Row) -> float:
    """A value that the row of a run keeps."""
    return float(row.kept.get(name, np.nan))


def costs(sizes: Sizes, result: fl.RunResult) -> Kept:
    """Table 7: median time per sample [1e-4 s], and scalars per client in the last round, when all have to send."""
    seed = int(str(result.config["seed"]))
    sampled = cohorts(sizes.clients, sizes.join_ratio, len(result.rounds), seed)
    n_test = result.accuracy.drop_duplicates("client").set_index("client")["n_test"]  # test halves: as large
    hyper = result.config["hyper"]
    trains_on = 1 - (hyper.get("validation", 0) if isinstance(hyper, dict) else 0)  # FedFomo holds out a share
    samples = trains_on * np.array([n_test[ids].sum() for ids in sampled])
    last = result.rounds.iloc[-1] / len(sampled[-1]) / 4
    seconds = float((result.rounds["seconds"] / samples).iloc[1:].median())  # the first round warms up
    return {"xi_p_1e-4s": 1e4 * seconds, "scalars_down": last["bytes_down"], "scalars_up": last["bytes_up"]}


def by_domain(result: fl.RunResult) -> Kept:
    """Accuracy pooled over the test images of each domain, and over all."""
    n = len(result.accuracy["client"].unique()) // len(DOMAINS)  # clients of a domain follow one another
    scores = {name: result.score(clients=list(range(d * n, (d + 1) * n))) for d, name in enumerate(DOMAINS)}
    return scores | {"Average": result.score()}


# -- measurements -------------------------------------------------------------------------------------------------


def alone(sizes: Sizes, federation: fl.Federation, seed: int) -> fl.RunResult:
    """Every client trains by itself."""
    setting = dict(rounds=1, local_epochs=sizes.study_epochs, batch_size=32, lr=0.01, seed=seed)
    return fl.run("local_only", federation, **setting, progress=False)  # type: ignore[arg-type]


def layers_alike(seed: int, profile: str) -> Kept:
    """Fig. 1: linear CKA of ten models trained alone, by layer: the matrices, and the means over pairs."""
    sizes = PROFILES[profile]
    data = images(sizes.study)
    federation = fl.federate(data, fl.dirichlet(0.1, sizes.min_size), 10)
    ten = alone(sizes, federation, seed)
    unseen = np.random.default_rng(0).permutation(np.concatenate(federation.test))[: sizes.study_images]
    x = on_device(data, torch.device("cpu")).batch(torch.from_numpy(unseen), ten.model).x
    answers = [features(ten.model, ten.weights(i), x, {str(k): name for k, name in LAYERS.items()}) for i in range(10)]
    matrices = {k: similarity.cka_matrix([answer[str(k)] for answer in answers]).numpy() for k in LAYERS}
    off = ~np.eye(10, dtype=bool)
    means = {f"layer={k}": float(matrix[off].mean()) for k, matrix in matrices.items()}
    return means | {f"matrix {k}": matrix.round(4).tolist() for k, matrix in matrices.items()}


def four_clients(seed: int, profile: str) -> Kept:
    """Fig. 2 and Table 2: five measures for four pairs of clients, and the cosines of their classifiers' rows."""
    sizes = PROFILES[profile]
    data = images(sizes.study)
    federation = fl.federate(data, fl.label_groups([list(labels) for labels in LABELS]), 4, seed=seed)
    result, found = alone(sizes, federation, seed), {}
    model, pixels = result.model, on_device(data, torch.device("cpu"))
    [phi] = [name for name in model.classifier if name.endswith("weight")]
    for pair, (i, j) in PAIRS.items():
        theta = [result.weights(c) for c in (i, j)]
        free = [{name: w[name] for name in model.trainable} for w in (*theta, model.weights)]
        both = {name: torch.stack([w[name] for w in theta]) for name in theta[0]}
        _, losses = evaluate(model, pixels, both, [federation.test[i]] * 2)  # both models on client i's test half
        cosines = similarity.row_cosines(theta[0][phi], theta[1][phi])
        found |= {
            f"DataSimilarity {pair}": similarity.data_similarity(*(data.y[federation.train[c]] for c in (i, j))),
            f"WDB {pair}": similarity.wdb(*map(similarity.bn_statistics, theta)),
            f"MDB {pair}": similarity.update_cosine(*free),
            f"LDB {pair}": similarity.ldb(*losses.tolist(), similarity.parameter_distance(*free[:2])),
            f"CS {pair}": float(cosines.mean()),
            f"rows {pair}": [round(float(value), 4) for value in cosines],
        }
    return found


def client_sizes(seed: int, profile: str, name: str, alpha: float) -> Kept:
    """Table 4: mean and standard deviation of the clients' sizes."""
    sizes = PROFILES[profile]
    data = images(sizes.data[name][0])
    n = fl.federate(data, fl.dirichlet(alpha, sizes.min_size), sizes.clients, seed=seed).sizes
    return {"mean": float(n.mean()), "std": float(n.std()), "samples": len(data), "classes": len(data.classes)}


def domain_sizes(seed: int, profile: str) -> Kept:
    """Table 8(a): images of each domain."""
    data = images(PROFILES[profile].domains[0])
    return {name: int((data.domain == d).sum()) for d, name in enumerate(data.domains)}


def fig1(sizes: Sizes) -> list[Cell]:
    """Mean CKA between different models, by layer."""
    task = Probe("fig1", layers_alike, (_profile(sizes),), sizes.study)
    return [
        Cell("fig1", "local_only", "cifar10", f"layer={k}", (task,), partial(kept, f"layer={k}"), "cka") for k in LAYERS
    ]


def fig2_and_table2(sizes: Sizes) -> list[Cell]:
    """Five measures for four pairs, and the margins that Fig. 2 is about."""
    task = Probe("table2", four_clients, (_profile(sizes),), sizes.study)
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
        for alpha in ALPHAS:
            task = Probe("table4", client_sizes, (_profile(sizes), name, alpha), source)
            for metric, value in (("samples_per_client", "mean"), ("std_of_sizes", "std")):
                cells.append(Cell("table4", "partition", name, f"dir={alpha}", (task,), partial(kept, value), metric))
        first = Probe("table4", client_sizes, (_profile(sizes), name, ALPHAS[0]), source)
        for metric, value in (("num_samples", "samples"), ("num_classes", "classes")):
            cells.append(Cell("table4", "partition", name, "", (first,), partial(kept, value), metric))
    return cells


def table8a(sizes: Sizes) -> list[Cell]:
    """Images of each domain."""
    task = Probe("table8a", domain_sizes, (_profile(sizes),), sizes.domains[0])
    return [
        Cell("table8a", "partition", "domainnet", f"domain={d}", (task,), partial(kept, d.lower()), "num_samples")
        for d in DOMAINS
    ]


def _profile(sizes: Sizes) -> str:
    return next(name for name, other in PROFILES.items() if other is sizes)


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
    """Positive inside of an interval: the distance to its nearer end."""
    return smallest([number - low, high - number])


def largest_gain(numbers: Numbers) -> list[Case]:
    """ps10: the largest gain is on Tiny-ImageNet, and at least 5 points."""
    tiny = [case.effect for case in over_best(numbers, COLUMNS[4:6])]
    others = [case.effect for case in over_best(numbers, COLUMNS[:4] + COLUMNS[6:])]
    return [Case("above all others", largest(tiny) - largest(others)), Case("at least 5", largest(tiny) - 5)]


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
    times = (numbers("table7", m, d, "dir=0.1", "xi_p_1e-4s") for m in (method, "fedavg"))
    return next(times) / next(times)


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
    Claim("ps15", lambda n: [Case(f"{d} {s}", fact(_same(rho(n, d, s, 1.0), n("table3", "fedavg", d, s))))
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
