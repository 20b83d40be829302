"""pFedHR (Wang et al., NeurIPS 2023): sizes of the experiments, and their runs."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import fedlib as fl
from fedlib.algorithm import Algorithm
from fedlib.fingerprint import Registry
from fedlib.papers.pfedhr.measure import LAST, details
from fedlib.studies.item import Read
from fedlib.studies.rows import Row
from fedlib.studies.tasks import Images, Run

DATA = ("mnist", "svhn", "cifar10")
MAIN = "svhn"  # of Table 3 and Figs. 1 and 3 to 6
SPLITS = {"iid": fl.iid(), "noniid": fl.classes_per_client(2)}
RIVALS = {"labeled": ("fedmd", "fedgh"), "unlabeled": ("fedkemf", "fccl")}
SAME = ("fedavg", "fedprox", "perfedavg", "pfedme", "pfedbayes")  # Table 4
NETS = ("M1", "M4")
FEW, MANY = (12, 4, "heterogeneous"), (100, 10, "heterogeneous")  # clients, active ones, models; as printed
FRAME = (3, 32, 32)
TESTED, PUBLIC = 0.2, 0.1  # share of test images; share of public ones among the others
HYPER = {"fig3": ("share", ""), "fig4": ("K", "groups"), "fig5": ("S", "stitch_depth"), "fig6": ("Es", "server_epochs")}
NOBODY, PRINTED, KNOWS_NOTHING, ALL_KNOWING = "none", "as printed", "knows nothing", "all-knowing"  # teachers
READINGS: dict[str, dict[str, object]] = {  # further teachers: other readings of the method
    "random candidate": {"match": "random"},
    "kept until the next one": {"keep_teacher": True},
    "stitched without ReLU": {"stitch_relu": False},
    "ends in a client's head": {"end_in_head": True},
    "better stitched": {"stitch_relu": False, "end_in_head": True},
}


class Sizes(NamedTuple):
    """Sizes of one profile."""

    data: Mapping[str, Images]  # the paper's data set -> ours
    foreign: Mapping[str, Images]  # public images of another kind (Fig. 1)
    half: Images | None = None  # substitute for `MAIN` in Figs. 3 to 6
    models: tuple[str, ...] = ("m1", "m2", "m3", "m4")
    clients: int = 12
    active: int = 4
    rounds: int = 20
    last: int = LAST  # evaluations averaged for an accuracy
    local_epochs: int = 5
    batch_size: int = 64
    lr: float = 1e-3
    seeds: int = 2
    minor: int = 2  # seeds of runs whose ranking is not judged
    rivals: Mapping[str, tuple[str, ...]] = RIVALS
    splits: tuple[str, ...] = tuple(SPLITS)  # except in Table 2
    kinds: tuple[str, ...] = tuple(RIVALS)  # of public images, except in the IID columns of Table 2
    same: tuple[str, ...] = SAME
    readings: tuple[str, ...] = tuple(READINGS)
    reading_seeds: Mapping[str, int] = dict.fromkeys([*[*READINGS][1:], KNOWS_NOTHING], 1)  # else `seeds`
    warm_up: int = 1  # reading A39
    server_epochs: int = 3
    most: int = 10
    server_batch: int = 8
    many: tuple[int, int, int] = (100, 10, 100)  # clients, active ones and rounds of Table 3
    alone: Mapping[str, str] = {"M1": "m1", "M4": "m4"}  # Table 4
    alone_rounds: int = 20
    maml: tuple[float, float] = (0.01, 0.001)  # alpha and beta of Per-FedAvg
    moreau: tuple[float, float] = (0.01, 0.005)  # lr of pFedMe's theta and w
    zeta: float = 10.0  # of pFedBayes
    few: tuple[int, ...] = (450, 900)  # training images per client in a control of Table 4: as in the code, and twice
    varied: Mapping[str, Sequence[float]] = {}  # values in Figs. 3 to 6 besides that of Table 2
    teacher_epochs: int = 5
    global_images: int = 1000

    def run(self, source: Images, split: str, algorithm: Algorithm, model: str = "", **setting: object) -> Run:
        """A run of the main setting."""
        common = {"rounds": self.rounds, "join_ratio": self.active / self.clients, "local_epochs": self.local_epochs}
        common |= {"batch_size": self.batch_size, "lr": self.lr, "optimizer": "adam", "evaluate_every": 1}
        model, federate = model or "+".join(self.models), {"test_fraction": TESTED, "public": PUBLIC}
        return self.detailed(Run(algorithm, source, SPLITS[split], self.clients, common | setting, model, federate))

    def detailed(self, task: Run, **changes: object) -> Run:
        """The run with these changes; its row keeps `details`."""
        task = task._replace(keep=None, **changes)
        return task._replace(keep=partial(details, task, self.global_images))

    def pfedhr(self, kind: str = "labeled", **changes: object) -> Algorithm:
        """pFedHR with these public images."""
        size = {"server_epochs": self.server_epochs, "server_batch": self.server_batch, "most": self.most}
        return fl.pfedhr(**{**size, "labelled": kind == "labeled", **changes})

    def method(self, name: str, kind: str = "labeled") -> Algorithm:
        """A method with its hyper-parameters."""
        factories = {
            "pfedhr": partial(self.pfedhr, kind),
            "fedmd": partial(fl.fedmd, self.warm_up),
            "fedkemf": partial(fl.fedkemf, self.models[0], self.server_epochs, server_batch=self.server_batch),
            "fccl": partial(fl.fccl, self.warm_up),
            "fedprox": partial(fl.fedprox, mu=0.01),
            "perfedavg": partial(fl.perfedavg, *self.maml),
            "pfedme": partial(fl.pfedme, personal_lr=self.moreau[0]),
            "pfedbayes": partial(fl.pfedbayes, self.zeta),
        }
        return factories.get(name, getattr(fl, name))()

    @property
    def score(self) -> Read:
        """Accuracy [%], mean over clients, each on its own test part, and over the last evaluations."""
        return partial(Row.score, over="clients", last=self.last)


def style(name: str, stands_for: str, per_style: int = 800) -> Images:
    """One style of the embedded digits."""
    return Images("digit_styles", (("per_style", per_style),), (name,), stands_for=stands_for)


PAPER_DATA = {name: Images(name, shape=FRAME) for name in DATA}
FEWER = PAPER_DATA["cifar10"]._replace(few=7500, stands_for="cifar10")  # 450 training images of a client (reading A40)
PAPER = Sizes(
    data=PAPER_DATA,
    foreign={name: PAPER_DATA[name] for name in ("mnist", "cifar10")},
    half=Images("cifar10", few=30_000, stands_for=MAIN),
    varied={"fig3": (0.02, 0.05), "fig4": (2, 3, 5, 6), "fig5": (2, 3), "fig6": (4, 5, 10)},
)
QUICK = Sizes(
    data={MAIN: style("pen", MAIN)}, foreign={"cifar10": style("pencil", "cifar10")},
    models=("m1_thin", "m2_thin"), clients=4, rounds=4, last=1, local_epochs=2, batch_size=16, lr=5e-3,
    seeds=3, minor=1, splits=("iid",), kinds=("labeled",), same=("fedavg",),
    rivals={"labeled": ("fedmd",), "unlabeled": ("fccl",)}, readings=("random candidate", "better stitched"),
    reading_seeds={"random candidate": 1}, warm_up=2, server_epochs=2, most=2, many=(6, 4, 2),
    alone={"M1": "m1_thin"}, alone_rounds=3, maml=(0.02, 0.02), moreau=(0.02, 0.03), zeta=0.2,
    few=(), teacher_epochs=6, global_images=100,
    varied={"fig3": (0.05,), "fig4": (3,), "fig5": (2,), "fig6": (1,)},
)  # fmt: skip
SMOKE = QUICK._replace(
    data={MAIN: style("pen", MAIN, 300)}, foreign={"cifar10": style("pencil", "cifar10", 300)},
    rivals={"labeled": ("fedmd",)}, rounds=2, local_epochs=1, seeds=1, readings=("random candidate",),
    warm_up=1, server_epochs=1, server_batch=32, many=(5, 4, 1), alone_rounds=1, varied={"fig4": (3,)},
    teacher_epochs=1, global_images=20,
)  # fmt: skip
PROFILES = Registry({"paper": PAPER, "quick": QUICK, "smoke": SMOKE})
PROFILES["paper, few images"] = PAPER._replace(data=PAPER_DATA | {"cifar10": FEWER})


def where(kind: str, split: str, printed: tuple[int, int, str] = FEW, **more: object) -> str:
    """The setting of a number; `printed` are the paper's clients, active ones and models."""
    text = "public={};split={};clients={};active={};models={}".format(kind, split, *printed)
    return text + "".join(f";{name}={value}" for name, value in more.items())


def both_kinds(rivals: Mapping[str, tuple[str, ...]] = RIVALS, kinds: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Pairs of public images and method, as in Tables 2 and 3."""
    return [(kind, method) for kind in kinds or rivals for method in (*rivals[kind], "pfedhr")]
