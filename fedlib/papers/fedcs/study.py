"""FedCS (Yan and Long, 2024): what its tables and figures need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

import fedlib as fl
from fedlib.algorithm import Algorithm
from fedlib.federation import Federation
from fedlib.fingerprint import Registry
from fedlib.papers.fedcs.diagnosis import RULES, SPREAD, diagnose, toy
from fedlib.papers.fedcs.draw import ADAPTING as FINE_TUNED
from fedlib.papers.fedcs.draw import WHITE
from fedlib.papers.fedcs.figures import SHOWN
from fedlib.studies.item import replaced
from fedlib.studies.old import Cell, items
from fedlib.studies.rows import Row, kept
from fedlib.studies.tasks import Images, Kept, Probe, Run, here, profile_of

TABLES = {"mnist": "table1", "cifar10": "table2", "digit5": "table3"}
CURVES = {"mnist": "fig6", "cifar10": "fig7", "digit5": "fig8"}
SHIFT = {"mnist": "label-shift", "cifar10": "label-shift", "digit5": "feature-shift"}
METRICS = {"weighted_auc": "auc", "weighted_f1": "f1"}
OURS = ("fedcs-fc1", "fedcs-fc2", "fedcs-fc3")
ADAPTING = ("fedavg+ft", "fedbn", "fedrep", "fedalt")
BASELINES = ("local_only", "fedavg+bn", *ADAPTING)
METHODS = (*BASELINES, "fedavg", *OURS)  # FedAvg as it is: ours
RIVALS = ("fedavg+ft", "fedbn")  # beside FedCS-FC1 in Figs. 2, 9 and 10
PANELS = (*RIVALS, "fedcs-fc1")
CONTROL = {"fedavg": "fedavg", "fedavg+bn": "fedavg+bn", "fedcs-fc2": "fedcs-fc2", WHITE: "fedcs-fc2;whitening"}
PLAIN, NORMED = "lenet5_plain", "lenet5_bn"
PERSONAL = {"tune_epochs": 1, "tune_part": "personal"}
MADE: dict[str, tuple[Algorithm, str, dict[str, object]]] = {  # method, model, fine-tuning
    "local_only": (fl.local_only(), PLAIN, {}),
    "fedavg": (fl.fedavg(), PLAIN, {"tune_epochs": 1}),
    "fedavg+ft": (fl.fedavg(), PLAIN, {"tune_epochs": 1}),  # the same run
    "fedavg+bn": (fl.fedavg(), NORMED, {"tune_epochs": 1}),
    "fedbn": (fl.fedbn(), NORMED, PERSONAL),
    "fedrep": (fl.fedrep(), PLAIN, PERSONAL),
    "fedalt": (fl.fedalt(), PLAIN, {"tune_epochs": 1}),
    "fedsim": (fl.fedsim(), PLAIN, {"tune_epochs": 1}),  # the other algorithm of PerFL's paper
    "fedprox": (fl.fedprox(), PLAIN, {}),
    "fedper": (fl.fedper(), PLAIN, {}),
}
READINGS: dict[str, Mapping[str, object]] = {  # of FedCS at FC2; each differs from the default in one point, or two
    "paper": {"steps": "paper"},  # A9: both rates 0.001, no safeguards
    "whitening": {"steps": "whitening"},  # a control: S alone
    "uncentred": {"centred": False},  # A4
    "output": {"side": "output"},  # A16
    "shifted": {"shifted": True},  # A17
    "shifted, beta 1": {"shifted": True, "beta": 1.0},
    "rank 10": {"rank": 10},  # A15: r < d
    "rank 10, whitening": {"rank": 10, "steps": "whitening"},  # its control: random directions
    "rank 30": {"rank": 30},
    "rank 30, whitening": {"rank": 30, "steps": "whitening"},
}
GROUPS, DOMAINS = 10, 5


class Sizes(NamedTuple):
    """What differs between profiles."""

    data: Mapping[str, Images]  # the paper's data set -> ours
    methods: Mapping[str, tuple[str, ...]] = dict.fromkeys(TABLES, METHODS)  # on each of them
    panels: Mapping[str, tuple[str, ...]] = dict.fromkeys(TABLES, PANELS)  # of Figs. 2, 9 and 10
    tune_all: bool = True  # False: only methods that adapt are fine-tuned
    clients: int = 50
    of_domain: int = 9  # clients of each domain, the last of them unseen
    min_size: int = 100
    rounds: int = 150  # the paper prints neither rounds nor epochs
    local_epochs: int = 2
    batch_size: int = 32
    lr: float = 0.005
    lr_decay_every: int = 50
    local_rounds: int = 100  # epochs of Local Only
    evaluate_every: int = 10
    last: int = 50  # rounds over which Fig. 2 is averaged
    every: int = 5  # rounds between alignments
    alignments: int = 400  # more of the trained network, frozen, before its P is judged,
    aligned_at: tuple[str, ...] = OURS  # in these methods
    toy_rounds: int = 100
    seeds: Mapping[str, int] = dict.fromkeys((*TABLES, "toy"), 2)
    side: str = "cifar10"  # data set of the side tables
    side_seeds: int = 1
    control_seeds: int = 1
    readings: tuple[str, ...] = tuple(READINGS)
    bases: tuple[str, ...] = ("fedprox", "fedper")
    second: tuple[str, ...] = (*METHODS, "fedcs-fc2;whitening")  # with momentum
    second_lr: float = 0.005
    second_seeds: int = 2
    levels: tuple[float, ...] = (0.1, 1.0)  # A20: other levels of label shift
    long: tuple[str, ...] = ("fedavg+bn", "fedcs-fc2")  # the same with more rounds and epochs
    few: tuple[int, ...] = (2000, 5000, 10000)  # images of all clients together, in the control of Table 1


DIGITS = ("mnist", "mnist_m", "digits", "usps", "printed_digits")  # stand in for the domains of Digit-5
STYLES = ("pen", "pencil", "poster", "painting", "halftone")
PEN = Images("digit_styles", (("per_style", 900),), ("pen",), few=900)
FIVE = Images("digit_styles", (("per_style", 400),), STYLES, stands_for="digit5")
SHIFTED = ("fedavg", "fedavg+ft", "fedavg+bn", "fedrep", "fedalt", "fedcs-fc2")
QUICK = Sizes(
    data={"mnist": PEN._replace(stands_for="mnist"), "cifar10": PEN._replace(stands_for="cifar10"), "digit5": FIVE},
    methods={"mnist": SHIFTED, "cifar10": SHIFTED, "digit5": ("fedavg", "fedavg+bn", "fedalt", "fedcs-fc2")},
    panels={"cifar10": ("fedavg+ft", "fedrep", "fedcs-fc2"), "digit5": ("fedavg", "fedalt", "fedcs-fc2")},
    tune_all=False,
    clients=20,
    of_domain=3,
    min_size=20,
    rounds=20,
    local_epochs=3,
    batch_size=16,
    lr=0.05,
    lr_decay_every=8,
    evaluate_every=4,
    last=4,
    alignments=60,
    aligned_at=("fedcs-fc2",),
    seeds={"mnist": 1, "cifar10": 1, "digit5": 3, "toy": 1},
    side="digit5",
    control_seeds=3,
    readings=("whitening", "paper"),
    bases=(),
    second=("fedavg", "fedcs-fc2"),
    second_lr=0.01,
    second_seeds=1,
    levels=(),
    long=(),
    few=(),
)
PAPER = Sizes(data={name: Images(name) for name in TABLES})
OTHER = Images("digit5", (("domains", DIGITS), ("per_domain", 5391)), stands_for="digit5")
PROFILES = Registry(  # a run of one profile is not older than the sizes of another one
    {
        "paper": PAPER,
        "paper, other digits": PAPER._replace(data={**PAPER.data, "digit5": OTHER}),
        "quick": QUICK,
        "smoke": QUICK._replace(
            data={name: images._replace(few=images.few and 400) for name, images in QUICK.data.items()}
            | {"digit5": FIVE._replace(options=(("per_style", 100),))},
            clients=10,
            of_domain=2,
            min_size=10,
            rounds=2,
            local_epochs=1,
            evaluate_every=2,
            last=1,
            every=1,
            alignments=2,
            toy_rounds=3,
            seeds=dict.fromkeys((*TABLES, "toy"), 1),
            control_seeds=1,
            readings=("whitening",),
            second=("fedavg",),
        ),
    }
)
CONTROLS = {"table1": ("few",), "table2": ("readings", "directions", "momentum", "long"), "table3": ("directions",)}


def cells(profile: str) -> list[Any]:
    """What FedCS needs at one size."""
    cells = cells_of(PROFILES[profile])
    if profile == "paper":  # other sets of digits stand in for Digit-5 until it has been run itself
        cells = replaced(cells, cells_of(PROFILES["paper, other digits"]), lambda cell: cell.dataset == "digit5")
    return cells


ITEMS = items(SHOWN, CONTROLS)
CLIENTS = 50  # of a mean whose standard deviation is printed


def cells_of(sizes: Sizes) -> list[Cell]:
    """The numbers of all tables and figures."""
    cells = [*tables(sizes), *groups(sizes), *curves(sizes), *partitions(sizes), *unseen(sizes)]
    cells += [*alignment(sizes), *recursions(sizes), *one_for_all(sizes), *control(sizes), *side(sizes)]
    return cells if sizes.data["cifar10"].stands_for else [*cells, *directions(sizes)]


# -- runs ---------------------------------------------------------------------------------------------------------


def run(sizes: Sizes, name: str, method: str, alpha: float = 0.5, **changes: object) -> Run:
    """A run of the main setting on the paper's data set `name`, with some of it changed."""
    algorithm, model, setting = made(method, sizes)
    common = {"rounds": sizes.rounds, "join_ratio": 0.25, "local_epochs": sizes.local_epochs}
    common |= {"batch_size": sizes.batch_size, "lr": sizes.lr, "momentum": 0.0, "client_metrics": True}
    common |= {"lr_decay": 0.8, "lr_decay_every": sizes.lr_decay_every, "evaluate_every": sizes.evaluate_every}
    if method == "local_only":  # everybody trains; its rate falls once
        alone = {"rounds": sizes.local_rounds, "evaluate_every": sizes.local_rounds, "join_ratio": 1.0}
        common |= alone | {"local_epochs": 1, "lr_decay_every": max(1, sizes.local_rounds // 2)}
    if not (sizes.tune_all or method in ADAPTING or (method == "fedavg" and "fedavg+ft" in sizes.methods[name])):
        setting = {}
    setting = {**common, **setting, **changes}
    main = not changes and alpha == 0.5 and method in sizes.aligned_at
    keep = partial(kept_of, profile_of(sizes, PROFILES), name, alpha, sizes.alignments if main else 0)
    if name == "digit5":
        clients, unseen, partition = (sizes.of_domain + 1) * DOMAINS, 2 * DOMAINS, fl.mixed_domains(0.1)
    else:
        clients, unseen = sizes.clients, 2 * sizes.clients // GROUPS
        partition = fl.dirichlet_groups(alpha, GROUPS, sizes.min_size)
    federate = {"test_fraction": 0.2, "unseen": 0 if method == "local_only" else unseen}
    return Run(algorithm, sizes.data[name], partition, clients, setting, model, federate, keep)


def run_on_few(sizes: Sizes, method: str, images: int) -> Run:
    """A run of Table 1 whose clients own only so many images together."""
    whole = run(sizes, "mnist", method)
    partition = fl.dirichlet_groups(0.5, GROUPS, max(5, images // 500))
    return whole._replace(images=whole.images._replace(few=images), partition=partition, keep=metrics_of)


def made(method: str, sizes: Sizes) -> tuple[Algorithm, str, Mapping[str, object]]:
    """Algorithm, model and fine-tuning of a method; "fedcs-fc2;rank 10" is one of `READINGS`, or on another base."""
    if method in MADE:
        return MADE[method]
    layer, _, variant = method.removeprefix("fedcs-").partition(";")
    changes = {"base": variant} if variant in sizes.bases else READINGS.get(variant, {})
    return fl.fedcs(layer, every=sizes.every, **changes), PLAIN, {}


def federation_of(sizes: Sizes, name: str, alpha: float = 0.5) -> Federation:
    """The clients of the main setting."""
    return run(sizes, name, "fedavg", alpha).arguments(0)["federation"]


def clients_of(profile: str, name: str) -> Federation:
    """The clients of the main setting; those of other data if the paper's would have to be downloaded first."""
    others = [PROFILES["paper, other digits"]] if profile == "paper" else []
    return federation_of(next(s for s in (PROFILES[profile], *others, QUICK) if here(run(s, name, "fedavg"))), name)


def group_of(sizes: Sizes, name: str) -> np.ndarray:
    """The group of every client; with feature shift its place among the clients of its domain."""
    n = (sizes.of_domain + 1) * DOMAINS if name == "digit5" else sizes.clients
    return np.arange(n) // (DOMAINS if name == "digit5" else n // GROUPS)


def kept_of(profile: str, name: str, alpha: float, alignments: int, result: fl.RunResult) -> Kept:
    """Metrics of every client at the end, means over groups in every evaluation, and what FedCS's P is worth."""
    sizes = PROFILES[profile]
    group, found = group_of(sizes, name), {}
    for when, rows in result.accuracy.groupby("when"):
        last = rows[rows["round"] == rows["round"].max()]
        means = rows.assign(group=group[rows["client"]]).groupby(["round", "group"])
        found[f"rounds {when}"] = sorted(int(t) for t in rows["round"].unique())
        for metric in ("f1", "auc"):
            found[f"{metric} {when}"] = _plain(last[metric])
        for metric in ("f1", "accuracy"):
            found[f"groups {metric} {when}"] = [_plain(own) for own in means[metric].mean().unstack().to_numpy()]
    hyper = result.config["hyper"]
    if result.config["algorithm"] == "fedcs" and isinstance(hyper, dict) and hyper["base"] == "fedavg":
        kind = np.arange(len(group)) % DOMAINS if name == "digit5" else group  # with feature shift: domains
        found |= diagnose(result, federation_of(sizes, name, alpha), kind, alignments)
    return found


def metrics_of(result: fl.RunResult) -> Kept:
    """Metrics of every client at the end."""
    rows = result.accuracy[result.accuracy["round"] == result.accuracy["round"].max()]
    return {f"{name} {when}": _plain(own[name]) for when, own in rows.groupby("when") for name in ("f1", "auc")}


def _plain(values: Iterable[float]) -> list[float | None]:
    return [round(float(value), 3) if np.isfinite(value) else None for value in values]


# -- reading a row ------------------------------------------------------------------------------------------------


def when(method: str) -> str:
    """Whether the number of a method is that before or after fine-tuning."""
    return "after" if method in FINE_TUNED else "before"


def over_clients(metric: str, moment: str, what: Callable[..., float], row: Row) -> float:
    """Mean or standard deviation over clients, at the end."""
    return float(what(_clients(metric, moment, row)))


def of_clients(metric: str, moment: str, chosen: np.ndarray, row: Row) -> float:
    """Mean over some clients, at the end."""
    return float(_clients(metric, moment, row)[chosen].mean())


def _clients(metric: str, moment: str, row: Row) -> np.ndarray:
    if metric != "accuracy":
        return np.array(row.kept[f"{metric} {moment}"], float)
    rows = row.accuracy[row.accuracy["when"] == moment]
    return rows.loc[rows["round"] == rows["round"].max(), "accuracy"].to_numpy()


def group_mean(metric: str, moment: str, g: int, row: Row) -> float:
    """Mean over the clients of a group, at the end."""
    return float(_groups(metric, moment, row)[-1, g])


def gap(metric: str, moment: str, row: Row) -> float:
    """Mean of the training groups less that of the two unseen ones, at the end."""
    last = _groups(metric, moment, row)[-1]
    return float(last[:-2].mean() - last[-2:].mean())


def width(metric: str, moment: str, row: Row) -> float:
    """Largest less smallest group mean, at the end."""
    return float(np.ptp(_groups(metric, moment, row)[-1]))


def spread(metric: str, moment: str, last: int, row: Row) -> float:
    """Standard deviation over group means, averaged over the evaluations of the last rounds."""
    rounds = np.array(row.kept[f"rounds {moment}"])
    return float(_groups(metric, moment, row)[rounds > rounds[-1] - last].std(axis=1).mean())


def domain_width(moment: str, domains: np.ndarray, row: Row) -> float:
    """Largest less smallest mean accuracy over the clients of a domain, at the end."""
    accuracy = _clients("accuracy", moment, row)
    return float(np.ptp([accuracy[domains == d].mean() for d in np.unique(domains)]))


def _groups(metric: str, moment: str, row: Row) -> np.ndarray:
    return np.array(row.kept[f"groups {metric} {moment}"], float)  # [evaluations, groups]


# -- cells --------------------------------------------------------------------------------------------------------


def tables(sizes: Sizes) -> list[Cell]:
    """Tables 1 to 3: mean over clients of two metrics, and their standard deviation over clients."""
    return [
        Cell(
            *(TABLES[name], method, name, SHIFT[name], (run(sizes, name, method),)),
            partial(over_clients, short, when(method), what),
            metric + suffix,
            sizes.seeds[name],
        )
        for name in sizes.data
        for method in sizes.methods[name]
        for metric, short in METRICS.items()
        for suffix, what in (("", np.mean), ("_std", np.std))
    ]


def groups(sizes: Sizes) -> list[Cell]:
    """Figs. 2, 9 and 10: means over groups of clients, and how even they are."""
    cells = []
    for item, name, metric in (
        ("fig2", "cifar10", "f1"),
        ("fig9", "cifar10", "accuracy"),
        ("fig10", "digit5", "accuracy"),
    ):
        group = group_of(sizes, name)
        for method in sizes.panels[name]:
            task, moment = run(sizes, name, method), when(method)
            reads: dict[tuple[str, str], Callable[..., float]] = {
                (f"group={g}", metric): partial(group_mean, metric, moment, g) for g in np.unique(group)
            }
            reads[SHIFT[name], "gap"] = partial(gap, metric, moment)
            reads[SHIFT[name], "width"] = partial(width, metric, moment)
            reads[SHIFT[name], "spread"] = partial(spread, metric, moment, sizes.last)
            if name == "digit5":
                own = domain_of(len(group))
                for d in np.unique(own):
                    reads[f"domain={d}", metric] = partial(of_clients, metric, moment, own == d)
                reads[SHIFT[name], "domain_width"] = partial(domain_width, moment, own)
            for (setting, value), read in reads.items():
                long = {"f1": "weighted_f1"}.get(value, value)
                cells.append(Cell(item, method, name, setting, (task,), read, long, sizes.seeds[name]))
    return cells


def domain_of(n_clients: int) -> np.ndarray:
    """The domain of every client, by its place; "mixed" for those that mix them."""
    own = [str(i % DOMAINS) for i in range(n_clients - DOMAINS)]
    return np.array(own + ["mixed"] * DOMAINS)


def curves(sizes: Sizes) -> list[Cell]:
    """Figs. 6 to 8: mean accuracy over clients and its standard deviation, at the end."""
    return [
        Cell(
            *(CURVES[name], method, name, SHIFT[name], (run(sizes, name, method),)),
            partial(over_clients, "accuracy", when(method), what),
            metric,
            sizes.seeds[name],
        )
        for name in sizes.data
        for method in sizes.methods[name]
        for metric, what in (("accuracy", np.mean), ("accuracy_std", np.std))
    ]


def unseen(sizes: Sizes) -> list[Cell]:
    """F1 of the clients that train and of those never seen in training, before and after fine-tuning."""
    cells = []
    for name in sizes.data:
        group = group_of(sizes, name)
        new = group >= group.max() - 1
        for method in sizes.methods[name]:
            if method == "fedavg+ft":  # that is FedAvg, after
                continue
            task = run(sizes, name, method)
            for who, chosen in (("training", ~new), ("unseen", new)):
                for moment in ("before", "after")[: 2 if "tune_epochs" in task.setting else 1]:
                    read, setting = partial(of_clients, "f1", moment, chosen), f"{who};{moment}"
                    cells.append(Cell("unseen", method, name, setting, (task,), read, "weighted_f1", sizes.seeds[name]))
    return cells


def partitions(sizes: Sizes) -> list[Cell]:
    """Figs. 3 to 5: who has how many images of which class and domain."""
    cells = []
    for item, name in (
        ("fig3", "mnist"),
        ("fig3", "cifar10"),
        ("fig4", "mnist"),
        ("fig4", "cifar10"),
        ("fig5", "digit5"),
    ):
        counted = (profile_of(sizes, PROFILES), name)
        task = Probe("counts", counts, counted, sizes.data[name], exact=True, sizes=str(sizes))
        cells += [
            Cell(item, "partition", name, SHIFT[name], (task,), partial(kept, metric), metric)
            for metric in ("clients", "unseen", "samples", "smallest", "largest")
        ]
    return cells


def counts(seed: int, profile: str, name: str) -> Kept:
    """The clients of a federation: their sizes, images of every class and of every domain."""
    federation = federation_of(PROFILES[profile], name)
    own = [np.concatenate(parts) for parts in zip(*federation.parts, strict=True)]
    ids, place = np.unique(federation.data.domain, return_inverse=True)
    sizes = federation.sizes
    return {
        "clients": federation.n_clients,
        "unseen": federation.unseen,
        "samples": int(sizes.sum()),
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
        "of class": federation.counts().tolist(),
        "of domain": [np.bincount(place[rows], minlength=len(ids)).tolist() for rows in own],
        "domains": [federation.data.domains[d] for d in ids],
    }


def alignment(sizes: Sizes) -> list[Cell]:
    """Fig. 1 and equation (5): what P is worth at the end of a run, and after more alignments of its frozen network."""
    reads = {
        ("fig1", "separability"): ("separability of z", "separability of c", "separability of c, later"),
        ("eq5", "j_ratio"): ("J ratio", "J ratio, later", "J ratio of components"),
        ("eq13", "residual"): ("residual", "residual, later"),
    }
    cells = [
        Cell(
            item, method, name, setting, (run(sizes, name, method),), partial(kept, setting), metric, sizes.seeds[name]
        )
        for name in sizes.data
        for method in of_fedcs(sizes, name)
        for (item, metric), settings in reads.items()
        for setting in settings
    ]
    blind = run(sizes, sizes.side, CONTROL[WHITE])
    for setting in reads["fig1", "separability"][: 3 if CONTROL[WHITE] in sizes.aligned_at else 2]:
        read = partial(kept, setting)
        cells.append(Cell("fig1", WHITE, sizes.side, setting, (blind,), read, "separability", sizes.control_seeds))
    return cells


def of_fedcs(sizes: Sizes, name: str) -> list[str]:
    """The variants of FedCS on a data set."""
    return [method for method in sizes.methods[name] if method in OURS]


def recursions(sizes: Sizes) -> list[Cell]:
    """Equations (5), (12) and (13) on the toy problem."""
    task = Probe("toy", toy, (sizes.toy_rounds,))
    cells = [("eq13", "exact", "digits", "digits")]
    cells += [("eq12", f"column {k + 1}, {tau}", "cosine", f"{tau} {k + 1}")
              for tau in ("upper", "lower") for k in range(len(SPREAD))]  # fmt: skip
    after = f"alignments={sizes.toy_rounds}"
    cells += [("eq13", f"{rule};{after}", "residual", f"residual {rule}") for rule in RULES]
    cells += [("eq5", f"{rule};{after}", "j_ratio", f"J ratio {rule}") for rule in RULES]
    return [
        Cell(item, "fedcs", "toy", setting, (task,), partial(kept, name), metric, sizes.seeds["toy"])
        for item, setting, metric, name in cells
    ]


def one_for_all(sizes: Sizes) -> list[Cell]:
    """Section 5: how many models are evaluated, and whether the images of unseen clients change a bit of them."""
    source = sizes.data["mnist"]._replace(stands_for="")  # of bits, any images tell
    task = Probe("one_model", two_rounds, (profile_of(sizes, PROFILES),), source, sizes=str(sizes))
    return [
        Cell("sec5", method, "mnist", "label-shift", (task,), partial(kept, f"{metric} {method}"), metric)
        for method in of_fedcs(sizes, "mnist")
        for metric in ("models", "same_bits")
    ]


def two_rounds(seed: int, profile: str) -> Kept:
    """Two rounds, and two more in which the unseen clients have each other's images."""
    sizes, found = PROFILES[profile], {}
    federation = federation_of(sizes, "mnist")
    n = federation.n_clients - federation.unseen
    exchanged = {part: (*own[:n], *own[n:][::-1]) for part in ("train", "test") if (own := getattr(federation, part))}
    for method in of_fedcs(sizes, "mnist"):
        arguments = run(sizes, "mnist", method, rounds=2, evaluate_every=2, client_metrics=False).arguments(seed)
        one, other = (
            fl.run(**arguments | {"federation": f, "progress": False})
            for f in (federation, replace(federation, **exchanged))
        )
        assert one.config["federation"] != other.config["federation"]
        pairs = [(tensor, other.models[name]) for name, tensor in one.models.items()]
        found[f"models {method}"] = max(len(tensor.unique(dim=0)) for tensor, _ in pairs)
        found[f"same_bits {method}"] = int(all(torch.equal(a, b) for a, b in pairs))
    return found


def control(sizes: Sizes) -> list[Cell]:
    """FedCS, the same without its directions, and two methods that know nothing of clients, all before fine-tuning."""
    name = sizes.side
    group = group_of(sizes, name)
    new = group >= group.max() - 1
    return [
        Cell(
            *("control", method, name, who, (run(sizes, name, of),)),
            partial(of_clients, "f1", "before", chosen),
            "weighted_f1",
            sizes.control_seeds,
        )
        for method, of in CONTROL.items()
        for who, chosen in (("training clients", ~new), ("unseen clients", new))
    ]


def directions(sizes: Sizes) -> list[Cell]:
    """What whitening adds to FedAvg, and what the learned directions add to whitening, on every data set."""
    f1 = partial(over_clients, "f1", "before", np.mean)
    return [
        Cell("directions", method, name, "at=fc2", (run(sizes, name, of),), f1, "weighted_f1", sizes.side_seeds)
        for name in sizes.data
        for method, of in CONTROL.items()
        if method != "fedavg+bn"
    ]


def side(sizes: Sizes) -> list[Cell]:
    """Other readings and controls, FedCS around other methods, momentum, other levels of label shift, more and less."""
    name, cells = sizes.side, []

    def add(item: str, method: str, setting: str, task: Run, seeds: int = sizes.side_seeds) -> None:
        moment = when(method) if "tune_epochs" in task.setting else "before"
        read = partial(over_clients, "f1", moment, np.mean)
        cells.append(Cell(item, method, name, setting, (task,), read, "weighted_f1", seeds))

    optimiser = {"momentum": 0.9, "lr": sizes.second_lr}
    for method in sizes.second:
        shown = WHITE if method == CONTROL[WHITE] else method
        add("momentum", shown, "momentum=0", run(sizes, name, method))
        add("momentum", shown, "momentum=0.9", run(sizes, name, method, **optimiser), sizes.second_seeds)
    for reading in ("default", *sizes.readings):
        task = run(sizes, name, "fedcs-fc2" if reading == "default" else f"fedcs-fc2;{reading}")
        add("readings", "fedcs-fc2", f"reading={reading}", task)
        for metric, value in (("residual", "residual"), ("j_ratio", "J ratio")):
            read = partial(kept, value)
            setting = f"reading={reading}"
            cells.append(Cell("readings", "fedcs-fc2", name, setting, (task,), read, metric, sizes.side_seeds))
    if sizes.tune_all:
        add("readings", "fedsim", "reading=default", run(sizes, name, "fedsim"))
    for base in sizes.bases:
        add("plug_in", base, "alone", run(sizes, name, base))
        add("plug_in", base, "aligned", run(sizes, name, f"fedcs-fc2;{base}"))
    for alpha in sizes.levels:
        for method in (*PANELS, "fedavg+bn"):
            add("alpha", method, f"dir={alpha}", run(sizes, name, method, alpha))
    for method in sizes.long:
        task = run(sizes, name, method, rounds=500, local_epochs=5, evaluate_every=50)
        add("long", method, "rounds=500;epochs=5", task)
    for images in (*sizes.few, "all") if sizes.few else ():
        for method in METHODS:
            task = run(sizes, "mnist", method) if images == "all" else run_on_few(sizes, method, int(images))
            read = partial(over_clients, "f1", when(method), np.mean)
            cells.append(Cell("few", method, "mnist", f"images={images}", (task,), read, "weighted_f1"))
    return cells
