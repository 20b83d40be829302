"""FedCS (Yan and Long, 2024): sizes of the experiments, and their runs."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

import fedlib as fl
from fedlib.algorithm import Algorithm, init_partial
from fedlib.federation import Federation
from fedlib.fingerprint import Registry
from fedlib.models import Model
from fedlib.papers.fedcs.diagnosis import DOMAINS, GROUPS, group_of, kept_of, metrics_of
from fedlib.studies.tasks import Images, Run, here

TABLES = {"mnist": "table1", "cifar10": "table2", "digit5": "table3"}
CURVES = {"mnist": "fig6", "cifar10": "fig7", "digit5": "fig8"}
SHIFT = {"mnist": "label-shift", "cifar10": "label-shift", "digit5": "feature-shift"}
METRICS = {"weighted_auc": "auc", "weighted_f1": "f1"}
OURS = ("fedcs-fc1", "fedcs-fc2", "fedcs-fc3")
ADAPTING = ("fedavg+ft", "fedbn", "fedrep", "fedalt")
BASELINES = ("local_only", "fedavg+bn", *ADAPTING)
METHODS = (*BASELINES, "fedavg", *OURS)  # plain FedAvg is our addition
RIVALS = ("fedavg+ft", "fedbn")  # methods in Figs. 2, 9 and 10 besides FedCS-FC1
PANELS = (*RIVALS, "fedcs-fc1")
WHITE = "fedcs (whitening only)"  # the control: S is learned, Phi stays random
CONTROL = {"fedavg": "fedavg", "fedavg+bn": "fedavg+bn", "fedcs-fc2": "fedcs-fc2", WHITE: "fedcs-fc2;whitening"}
PLAIN, NORMED = "lenet5_plain", "lenet5_bn"
PERSONAL = {"tune_epochs": 1, "tune_part": "personal"}


def linear_layers(model: Model) -> list[str]:
    """Names of the entries of all linear layers of LeNet5."""
    return [name for name in model.weights if not name.startswith("conv")]


REP = "fedrep;linear layers"  # FedRep with all linear layers personal, not only the classifier
MADE: dict[str, tuple[Algorithm, str, dict[str, object]]] = {  # method, model, fine-tuning
    "local_only": (fl.local_only(), PLAIN, {}),
    "fedavg": (fl.fedavg(), PLAIN, {"tune_epochs": 1}),
    "fedavg+ft": (fl.fedavg(), PLAIN, {"tune_epochs": 1}),  # the same run
    "fedavg+bn": (fl.fedavg(), NORMED, {"tune_epochs": 1}),
    "fedbn": (fl.fedbn(), NORMED, PERSONAL),
    "fedrep": (fl.fedrep(), PLAIN, PERSONAL),
    REP: (fl.fedrep()._replace(name="fedrep-linear", init=init_partial(linear_layers)), PLAIN, PERSONAL),
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
TRAINING: dict[str, object] = {"rounds": 150, "local_epochs": 2, "lr_decay_every": 50}  # not printed
TRAINING |= {"evaluate_every": 10, "batch_size": 32, "lr": 0.005, "momentum": 0.0, "lr_decay": 0.8, "join_ratio": 0.25}
TRAINING |= {"client_metrics": True}
FEW = {"mnist": (2000, 5000, 10000), "cifar10": (10000, 20000)}  # images of all clients together, in a control
INFERRED = {"mnist": 5000}  # nearest to the printed F1
BASES = ("fedprox", "fedper")  # other methods to which the alignment is added


class Sizes(NamedTuple):
    """Sizes of one profile."""

    data: Mapping[str, Images]  # the paper's data set -> ours
    methods: Mapping[str, tuple[str, ...]] = dict.fromkeys(TABLES, METHODS)  # by data set
    panels: Mapping[str, tuple[str, ...]] = dict.fromkeys(TABLES, PANELS)  # of Figs. 2, 9 and 10
    full: bool = True  # False: only methods that adapt are fine-tuned, and controls are left out
    clients: int = 50
    of_domain: int = 9  # clients of each domain, the last of them unseen
    min_size: int = 100
    setting: dict[str, object] = TRAINING
    last: int = 50  # rounds over which Fig. 2 is averaged
    every: int = 5  # rounds between alignments
    alignments: int = 400  # further ones, with the network frozen, before P is evaluated again
    aligned_at: tuple[str, ...] = OURS  # methods with further alignments
    toy_rounds: int = 100
    seeds: Mapping[str, int] = dict.fromkeys((*TABLES, "toy"), 2)
    side: str = "cifar10"  # data set of the controls
    control_seeds: int = 1
    readings: tuple[str, ...] = tuple(READINGS)
    second: tuple[str, ...] = (*METHODS, "fedcs-fc2;whitening")  # methods with momentum
    second_lr: float = 0.005
    second_seeds: int = 2


DIGITS = ("mnist", "mnist_m", "digits", "usps", "printed_digits")  # substitutes for the domains of Digit-5
STYLES = ("pen", "pencil", "poster", "painting", "halftone")
PEN = Images("digit_styles", (("per_style", 900),), ("pen",), few=900)
FIVE = Images("digit_styles", (("per_style", 400),), STYLES, stands_for="digit5")
SHIFTED = ("fedavg", "fedavg+ft", "fedavg+bn", "fedrep", "fedalt", "fedcs-fc2")
FASTER = {"rounds": 16, "local_epochs": 3, "batch_size": 16, "lr": 0.05, "lr_decay_every": 8, "evaluate_every": 4}
QUICK = Sizes(
    data={"mnist": PEN._replace(stands_for="mnist"), "cifar10": PEN._replace(stands_for="cifar10"), "digit5": FIVE},
    methods={"mnist": SHIFTED, "cifar10": SHIFTED, "digit5": ("fedavg", "fedavg+bn", "fedalt", "fedcs-fc2")},
    panels={"cifar10": ("fedavg+ft", "fedrep", "fedcs-fc2"), "digit5": ("fedavg", "fedalt", "fedcs-fc2")},
    full=False, clients=20, of_domain=3, min_size=20, setting=TRAINING | FASTER, last=4, alignments=60,
    aligned_at=("fedcs-fc2",), seeds={"mnist": 1, "cifar10": 1, "digit5": 3, "toy": 1}, side="digit5", control_seeds=3,
    readings=("whitening", "paper"), second=("fedavg", "fedcs-fc2"), second_lr=0.01, second_seeds=1,
)  # fmt: skip
SMOKE = QUICK._replace(
    data={name: images._replace(few=images.few and 400) for name, images in QUICK.data.items()}
    | {"digit5": FIVE._replace(options=(("per_style", 100),))},
    clients=10, of_domain=2, min_size=10, last=1, every=1, alignments=2, toy_rounds=3, control_seeds=1,
    setting=QUICK.setting | {"rounds": 2, "local_epochs": 1, "evaluate_every": 2}, seeds=dict.fromkeys(QUICK.seeds, 1),
    readings=("whitening",), second=("fedavg",),
)  # fmt: skip
PAPER = Sizes(data={name: Images(name) for name in TABLES})
OTHER = Images("digit5", (("domains", DIGITS), ("per_domain", 5391)), stands_for="digit5")
PROFILES = Registry(paper=PAPER, quick=QUICK, smoke=SMOKE)  # new sizes of one profile leave the rows of others valid
PROFILES["paper, other digits"] = PAPER._replace(data={**PAPER.data, "digit5": OTHER})


def run(sizes: Sizes, name: str, method: str, alpha: float = 0.5, **changes: object) -> Run:
    """A run of the main setting on the paper's data set `name`, with some changes."""
    algorithm, model, tuning = made(method, sizes)
    setting = dict(sizes.setting)
    if method == "local_only":  # all clients train; the learning rate falls once
        setting |= {"rounds": 100, "evaluate_every": 100, "join_ratio": 1.0, "local_epochs": 1, "lr_decay_every": 50}
    if sizes.full or method in (*ADAPTING, REP) or (method == "fedavg" and "fedavg+ft" in sizes.methods[name]):
        setting |= tuning
    if name == "digit5":
        clients, unseen, partition = (sizes.of_domain + 1) * DOMAINS, 2 * DOMAINS, fl.mixed_domains(0.1)
    else:
        clients, unseen = sizes.clients, 2 * sizes.clients // GROUPS
        partition = fl.dirichlet_groups(alpha, GROUPS, sizes.min_size)
    federate = {"test_fraction": 0.2, "unseen": 0 if method == "local_only" else unseen}
    task = Run(algorithm, sizes.data[name], partition, clients, setting | changes, model, federate)
    aligned = not changes and alpha == 0.5 and method in sizes.aligned_at
    return task._replace(keep=partial(kept_of, task, name, sizes.alignments if aligned else 0))


def run_on_few(sizes: Sizes, name: str, method: str, images: int | None = None) -> Run:
    """A run of Tables 1 to 3 with this number of images of all clients together; 0: all; None: the inferred number."""
    whole, few = run(sizes, name, method), INFERRED.get(name, 0) if images is None else images
    if not few:
        return whole
    partition = fl.dirichlet_groups(0.5, GROUPS, max(5, few // 500))
    return whole._replace(images=whole.images._replace(few=few), partition=partition, keep=metrics_of)


def inferred_run(sizes: Sizes, name: str, method: str) -> Run:
    """A run of Tables 1 to 3 with the inferred number of images, and with all linear layers of FedRep personal."""
    return run_on_few(sizes, name, REP if method == "fedrep" and sizes.full else method)


def made(method: str, sizes: Sizes) -> tuple[Algorithm, str, Mapping[str, object]]:
    """Algorithm, model and fine-tuning of a method; after ";" is one of `READINGS` or `BASES`: "fedcs-fc2;rank 10"."""
    if method in MADE:
        return MADE[method]
    layer, _, variant = method.removeprefix("fedcs-").partition(";")
    changes = {"base": variant} if variant in BASES else READINGS.get(variant, {})
    return fl.fedcs(layer, every=sizes.every, **changes), PLAIN, {}


def of_fedcs(sizes: Sizes, name: str) -> list[str]:
    """The variants of FedCS on a data set."""
    return [method for method in sizes.methods[name] if method in OURS]


def unseen_clients(sizes: Sizes, name: str) -> np.ndarray:
    """Mask of the clients that never train: bool [clients]."""
    group = group_of(name, run(sizes, name, "fedavg").clients)
    return group >= group.max() - 1


def federation_of(sizes: Sizes, name: str) -> Federation:
    """The clients of the main setting."""
    return run(sizes, name, "fedavg").arguments(0)["federation"]


def available_federation(profile: str, name: str) -> Federation:
    """The clients of the main setting, with substitute data if the paper's are not on this machine."""
    others = [PROFILES["paper, other digits"]] if profile == "paper" else []
    return federation_of(next(s for s in (PROFILES[profile], *others, QUICK) if here(run(s, name, "fedavg"))), name)
