"""pFedSim (Tan et al., 2023): sizes of the experiments, and their runs."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import fedlib as fl
from fedlib.algorithm import Algorithm
from fedlib.papers.pfedsim.measure import DOMAINS, learned
from fedlib.studies.tasks import Images, Run

SINGLE = ("fedavg", "fedprox", "feddyn", "fedgen")
PERSONAL = ("perfedavg", "fedper", "fedrep", "fedfomo", "fedap")
METHODS = ("local_only", *SINGLE, "fedbn", *PERSONAL, "pfedsim")
COSTED = ("fedavg", "fedfomo", "fedgen", "fedap", "pfedsim")
RHOS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
DATA = ("cifar10", "cinic10", "tinyimagenet", "emnist")
ALPHAS = (0.1, 0.5)
COLUMNS = [(name, f"dir={alpha}") for name in DATA for alpha in ALPHAS]
LENET = [(name, setting) for name, setting in COLUMNS if name != "tinyimagenet"]
MEASURES = ("DataSimilarity", "WDB", "MDB", "LDB", "CS")


class Sizes(NamedTuple):
    """Sizes of one profile."""

    data: Mapping[str, tuple[Images, str]]  # the paper's data set -> ours, and the model
    domains: tuple[Images, str, int]  # data, model, clients of Table 8
    domain_names: tuple[str, ...] = DOMAINS
    methods: tuple[str, ...] = METHODS
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
    cost_rounds: int = 20  # the first is a warm-up, the last is not timed
    study: Images = Images("cifar10")  # of Fig. 1, Fig. 2 and Table 2
    study_epochs: int = 20
    study_images: int = 2000
    study_seeds: int = 3
    stages: tuple[int, ...] = (0, 10, 50, 100, 200)  # rounds of FedAvg before classifiers are compared
    stage_seeds: int = 2
    kinds: tuple[str, ...] = ("log_of_mean", "mean_cos")  # similarities other than the paper's


PEN = Images("digit_styles", (("per_style", 800),), ("pen",), stands_for="cifar10")
STYLES = Images("digit_styles", (("per_style", 300),), stands_for="domainnet")
QUICK = Sizes(
    data={"cifar10": (PEN, "lenet5")}, domains=(STYLES, "lenet5", 12),
    domain_names=("pen", "pencil", "poster", "painting", "halftone", "clutter"),
    methods=("local_only", "fedavg", "fedper", "fedap", "pfedsim"), rounds=12, clients=10, join_ratio=0.5,
    local_epochs=2, batch_size=16, lr=0.05, min_size=20, evaluate_every=3, seeds=3,
    rhos=(0.0, 0.3, 0.5, 0.7, 0.9, 1.0), rho_alphas=(0.1,), rho_seeds=1, domain_rounds=8, domain_seeds=1, cost_rounds=4,
    study=PEN, study_epochs=10, study_images=300, stages=(0, 2, 5, 12),
    kinds=("mean_cos",),
)  # fmt: skip
SMOKE = QUICK._replace(
    data={"cifar10": (PEN._replace(few=500), "lenet5")},
    domains=(STYLES._replace(options=(("per_style", 100),)), "lenet5", 6),
    rounds=2, clients=6, join_ratio=1.0,  # so that FedFomo has five neighbours
    local_epochs=1, min_size=8, evaluate_every=1, seeds=1, rhos=(0.0, 0.5, 1.0), domain_rounds=1, cost_rounds=3,
    study=PEN._replace(few=500), study_epochs=1, study_images=50, study_seeds=1, stages=(0, 2), stage_seeds=1, kinds=(),
)  # fmt: skip
LARGE = "mobilenetv2_pretrained"  # the model for images of 64 x 64 pixels
PAPER = Sizes(
    data={name: (Images(name), "lenet5") for name in ("cifar10", "cinic10")}
    | {"tinyimagenet": (Images("tinyimagenet"), LARGE), "emnist": (Images("emnist_byclass"), "lenet5")},
    domains=(Images("domainnet"), LARGE, 120),
)
PROTOCOLS = {"code": {"statistics": "local", "pixels": "raw"}, "text": {}}  # readings A6 and A26
PUBLISHED: dict[str, tuple[Algorithm, dict[str, object]]] = {  # in the authors' code: readings A11 and A32
    "feddyn": (fl.feddyn(alpha=0, clip=None), {}),
    "fedper": (fl.fedper(), {"tune_epochs": 1}),
}
PROFILES = {"paper": PAPER, "quick": QUICK, "smoke": SMOKE}


def local(sizes: Sizes) -> dict[str, object]:
    """Settings of local training."""
    return {"local_epochs": sizes.local_epochs, "batch_size": sizes.batch_size, "lr": sizes.lr}


def run(sizes: Sizes, name: str, alpha: float, algorithm: Algorithm, **setting: object) -> Run:
    """A run of the main setting on the paper's data set `name`."""
    source, model = sizes.data[name]
    common = {"rounds": sizes.rounds, "join_ratio": sizes.join_ratio, "evaluate_every": sizes.evaluate_every}
    partition = fl.dirichlet(alpha, sizes.min_size)
    return Run(algorithm, source, partition, sizes.clients, local(sizes) | common | setting, model)


def warmed(run: Run) -> Run:
    """The run of pFedSim with the values of `learned` in its row, except with local statistics."""
    if run.setting.get("statistics") == "local":
        return run
    return run._replace(keep=partial(learned, run))
