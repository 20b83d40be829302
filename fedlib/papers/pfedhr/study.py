"""pFedHR (Wang et al., NeurIPS 2023): what its tables and figures need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

import fedlib as fl
from fedlib.algorithm import Algorithm
from fedlib.fingerprint import Registry
from fedlib.models import MODELS, architectures, build
from fedlib.papers.pfedhr.draw import ALL_KNOWING, KNOWS_NOTHING, NARROW, NOBODY, PRINTED
from fedlib.papers.pfedhr.figures import SHOWN
from fedlib.papers.pfedhr.keep import GROUPS, LAST, looked_into
from fedlib.papers.pfedhr.taught import taught
from fedlib.stack import n_bytes
from fedlib.studies.item import Read, replaced
from fedlib.studies.old import Cell, items
from fedlib.studies.rows import Row, kept
from fedlib.studies.tasks import Images, Kept, Probe, Run, images, profile_of

DATA = ("mnist", "svhn", "cifar10")
MAIN = "svhn"  # of Table 3 and Figs 1 and 3 to 6
SPLITS = {"iid": fl.iid(), "noniid": fl.classes_per_client(2)}
BOTH = tuple(SPLITS)
RIVALS = {"labeled": ("fedmd", "fedgh"), "unlabeled": ("fedkemf", "fccl")}
SAME = ("fedavg", "fedprox", "perfedavg", "pfedme", "pfedbayes")  # Table 4
NETS = ("M1", "M4")
FEW, MANY = (12, 4, "heterogeneous"), (100, 10, "heterogeneous")  # clients, active ones, models; as printed
FRAME = (3, 32, 32)
TESTED = 0.2  # of all images
SHARE = 0.1  # of the others that is public
HYPER = {"fig4": ("K", "groups"), "fig5": ("S", "stitch_depth"), "fig6": ("Es", "server_epochs")}
READINGS: dict[str, dict[str, object]] = {  # other teachers, and other readings of the method
    "random candidate": {"match": "random"},
    "kept until the next one": {"keep_teacher": True},
    "stitched without ReLU": {"stitch_relu": False},
    "ends in a client's head": {"end_in_head": True},
    "better stitched": {"stitch_relu": False, "end_in_head": True},
}


class Varied(NamedTuple):
    """What a figure varies: the values beside that of Table 2, and where."""

    values: Sequence[float] = ()
    splits: Sequence[str] = BOTH
    kinds: Sequence[str] = ("labeled",)


class Sizes(NamedTuple):
    """What differs between profiles."""

    data: Mapping[str, Images]  # the paper's data set -> ours
    foreign: Mapping[str, Images]  # public images of another kind (Fig. 1)
    half: Images | None = None  # in place of `MAIN` in Figs 3 to 6 while that is not here
    models: tuple[str, ...] = ("m1", "m2", "m3", "m4")
    clients: int = 12
    active: int = 4
    rounds: int = 20
    last: int = LAST  # an accuracy is the mean over so many evaluations, the last ones
    local_epochs: int = 5
    batch_size: int = 64
    lr: float = 1e-3
    seeds: int = 2
    minor: int = 2  # seeds where no ranking is read off
    rivals: Mapping[str, tuple[str, ...]] = RIVALS
    noniid_kinds: tuple[str, ...] = tuple(RIVALS)  # of Table 2, Non-IID
    same: tuple[str, ...] = SAME
    readings: tuple[str, ...] = tuple(READINGS)
    reading_seeds: Mapping[str, int] = dict.fromkeys([*[*READINGS][1:], KNOWS_NOTHING], 1)  # else `seeds`
    warm_up: int = 1  # reading A39
    server_epochs: int = 3
    most: int = 10
    server_batch: int = 8
    many: tuple[int, int, int] = (100, 10, 100)  # clients, active ones and rounds of Table 3
    many_splits: tuple[str, ...] = BOTH
    many_kinds: tuple[str, ...] = tuple(RIVALS)
    alone: Mapping[str, str] = {"M1": "m1", "M4": "m4"}  # Table 4
    alone_splits: tuple[str, ...] = BOTH
    alone_rounds: int = 20
    maml: tuple[float, float] = (0.01, 0.001)  # alpha and beta of Per-FedAvg
    moreau: tuple[float, float] = (0.01, 0.005)  # lr of pFedMe's personal model, and of the other one
    zeta: float = 10.0  # of pFedBayes
    few: tuple[int, ...] = (450, 900)  # images of a client in the control of Table 4: of the published code, and twice
    foreign_splits: tuple[str, ...] = BOTH
    foreign_kinds: tuple[str, ...] = tuple(RIVALS)
    varied: Mapping[str, Varied] = {}
    control_splits: tuple[str, ...] = BOTH
    teacher_epochs: int = 5
    global_images: int = 1000


PER_STYLE = 800  # images of one style of the embedded digits


def style(name: str, stands_for: str, per_style: int = PER_STYLE) -> Images:
    """One style of the embedded digits."""
    return Images("digit_styles", (("per_style", per_style),), (name,), stands_for=stands_for)


PAPER_DATA = {name: Images(name, shape=FRAME) for name in DATA}
QUICK = Sizes(
    data={MAIN: style("pen", MAIN)},
    foreign={"cifar10": style("pencil", "cifar10")},
    models=("m1_thin", "m2_thin"),
    clients=4,
    rounds=4,
    last=1,
    local_epochs=2,
    batch_size=16,
    lr=5e-3,
    seeds=3,
    minor=1,
    rivals={"labeled": ("fedmd",), "unlabeled": ("fccl",)},
    noniid_kinds=("labeled",),
    same=("fedavg",),
    readings=("random candidate", "better stitched"),
    reading_seeds={"random candidate": 1},
    warm_up=2,
    server_epochs=2,
    most=2,
    many=(6, 4, 2),
    many_splits=("iid",),
    many_kinds=("labeled",),
    alone={"M1": "m1_thin"},
    alone_splits=("iid",),
    alone_rounds=3,
    maml=(0.02, 0.02),
    moreau=(0.02, 0.03),
    zeta=0.2,
    few=(),
    foreign_splits=("iid",),
    foreign_kinds=("labeled",),
    varied={key: Varied((x,), ("iid",)) for key, x in (("fig3", 0.05), ("fig4", 3), ("fig5", 2), ("fig6", 1))},
    teacher_epochs=6,
    control_splits=("iid",),
    global_images=100,
)
PAPER = Sizes(
    data=PAPER_DATA,
    foreign={name: PAPER_DATA[name] for name in ("mnist", "cifar10")},
    half=Images("cifar10", few=30_000, stands_for=MAIN),
    varied={
        "fig3": Varied((0.02, 0.05)),
        "fig4": Varied((2, 3, 5, 6), BOTH, tuple(RIVALS)),
        "fig5": Varied((2, 3)),
        "fig6": Varied((4, 5, 10)),
    },
)
FEWER = PAPER_DATA["cifar10"]._replace(few=7500, stands_for="cifar10")  # 450 train images of a client (reading A40)
PROFILES = Registry(  # a run of one profile is not older than the sizes of another one
    {
        "paper": PAPER,
        "paper, few images": PAPER._replace(data={**PAPER_DATA, "cifar10": FEWER}),
        "quick": QUICK,
        "smoke": QUICK._replace(
            data={MAIN: style("pen", MAIN, 300)},
            foreign={"cifar10": style("pencil", "cifar10", 300)},
            rivals={"labeled": ("fedmd",)},
            rounds=2,
            local_epochs=1,
            seeds=1,
            readings=("random candidate",),
            warm_up=1,
            server_epochs=1,
            server_batch=32,
            many=(5, 4, 1),
            alone_rounds=1,
            varied={"fig4": Varied((3,), ("iid",))},
            teacher_epochs=1,
            global_images=20,
        ),
    }
)
CONTROLS = dict.fromkeys(("table2", "table3"), ("other_teachers", "tested"))
CONTROLS |= {"table4": ("few", "step_sizes", "narrow", "other_teachers", "tested")}


def cells(profile: str) -> list[Any]:
    """What pFedHR needs at one size."""
    cells = cells_of(PROFILES[profile])
    if profile == "paper":  # M1 to M4 on all images take hours for each run, so fewer images stand in for them
        others = cells_of(PROFILES["paper, few images"])
        cells = replaced(cells, others, lambda cell: mixed(cell, PAPER_DATA["cifar10"]))
    return cells


ITEMS = items(SHOWN, CONTROLS)


def cells_of(sizes: Sizes) -> list[Cell]:
    """The numbers of all tables and figures."""
    cells = [*table1(sizes), *table2(sizes), *table3(sizes), *table4(sizes), *step_sizes(sizes)]
    cells += [*narrow(sizes), *few(sizes)]
    return [*cells, *fig1(sizes), *figs3_to_6(sizes), *searches(sizes), *controls(sizes)]


def mixed(cell: Cell, source: Images) -> bool:
    """Whether a number is from runs of several architectures on these images."""
    return all(isinstance(t, Run) and t.images == source and len(architectures(t.model)) > 1 for t in cell.tasks)


# -- runs ---------------------------------------------------------------------------------------------------------


def where(kind: str, split: str, printed: tuple[int, int, str] = FEW, **more: object) -> str:
    """The setting by which a number is found; `printed` are the paper's clients, active ones and models."""
    text = "public={};split={};clients={};active={};models={}".format(kind, split, *printed)
    return text + "".join(f";{name}={value}" for name, value in more.items())


def run(sizes: Sizes, source: Images, split: str, algorithm: Algorithm, model: str = "", **setting: object) -> Run:
    """A run of the main setting; what its row keeps depends on the run alone."""
    common = {"rounds": sizes.rounds, "join_ratio": sizes.active / sizes.clients, "local_epochs": sizes.local_epochs}
    common |= {"batch_size": sizes.batch_size, "lr": sizes.lr, "optimizer": "adam", "evaluate_every": 1}
    federate = {"test_fraction": TESTED, "public": SHARE}
    networks = model or "+".join(sizes.models)
    made = Run(algorithm, source, SPLITS[split], sizes.clients, common | setting, networks, federate)
    return keeping(made, sizes)


def keeping(task: Run, sizes: Sizes) -> Run:
    """The same run, whose row keeps what `looked_into` finds."""
    return task._replace(keep=partial(looked_into, task._replace(keep=None), sizes.global_images))


def pfedhr(sizes: Sizes, kind: str = "labeled", **changes: object) -> Algorithm:
    """pFedHR in this profile's size."""
    size = {"server_epochs": sizes.server_epochs, "server_batch": sizes.server_batch, "most": sizes.most}
    return fl.pfedhr(**{**size, "labelled": kind == "labeled", **changes})  # type: ignore[arg-type]


def made(sizes: Sizes, method: str, kind: str = "labeled") -> Algorithm:
    """A method with its hyper-parameters."""
    factories: dict[str, Callable[[], Algorithm]] = {
        "local_only": fl.local_only,
        "fedavg": fl.fedavg,
        "fedgh": fl.fedgh,
        "pfedhr": partial(pfedhr, sizes, kind),
        "fedmd": partial(fl.fedmd, sizes.warm_up),
        "fedkemf": partial(fl.fedkemf, sizes.models[0], sizes.server_epochs, server_batch=sizes.server_batch),
        "fccl": partial(fl.fccl, sizes.warm_up),
        "fedprox": partial(fl.fedprox, mu=0.01),
        "perfedavg": partial(fl.perfedavg, *sizes.maml),
        "pfedme": partial(fl.pfedme, personal_lr=sizes.moreau[0]),
        "pfedbayes": partial(fl.pfedbayes, sizes.zeta),
    }
    return factories[method]()


def own_classes(sizes: Sizes) -> Read:
    """Accuracy [%], mean over clients, each on its own test part, and over the last evaluations."""
    return partial(_score, sizes.last)


def _score(last: int, row: Row) -> float:
    return row.score(over="clients", last=last)


def at(name: str, k: int, row: Row) -> float:
    """A value that a row keeps for k groups."""
    return row.kept[name][GROUPS.index(k)]


def both_kinds(rivals: Mapping[str, tuple[str, ...]] = RIVALS) -> list[tuple[str, str]]:
    """Public images and method, as in Tables 2 and 3."""
    return [(kind, method) for kind, others in rivals.items() for method in (*others, "pfedhr")]


def standard(sizes: Sizes, name: str, kind: str, split: str, method: str = "pfedhr") -> Run:
    """A run of Table 2."""
    return run(sizes, sizes.data[name], split, made(sizes, method, kind))


def table2(sizes: Sizes) -> list[Cell]:
    """Twelve clients with four architectures, and Local-Only; also for active clients, and on all ten classes."""
    cells = []
    for name, (split, kind, method) in product(sizes.data, columns(sizes)):
        task = standard(sizes, name, kind, split, method)
        seeds = sizes.seeds if split == "iid" and kind != "unlabeled" else sizes.minor
        own = partial(Cell, method=method, dataset=name, setting=where(kind, split), tasks=(task,), seeds=seeds)
        cells.append(own("table2", read=own_classes(sizes)))
        for metric in ("active", "all classes"):
            cells.append(own("tested", read=partial(kept, metric), metric=metric))
    return cells


def columns(sizes: Sizes) -> list[tuple[str, str, str]]:
    """Split, public images and method of Table 2."""
    kinds = {"iid": tuple(sizes.rivals), "noniid": sizes.noniid_kinds}
    pairs = {s: [("none", "local_only"), *both_kinds(only(sizes.rivals, kinds[s]))] for s in SPLITS}
    return [(split, kind, method) for split in SPLITS for kind, method in pairs[split]]


def table3(sizes: Sizes) -> list[Cell]:
    """Many clients; pFedHR averages uploads of the same architecture."""
    n, active, rounds = sizes.many
    cells = []
    for split, (kind, method) in product(sizes.many_splits, both_kinds(only(sizes.rivals, sizes.many_kinds))):
        algorithm = pfedhr(sizes, kind, average=True) if method == "pfedhr" else made(sizes, method)
        task = run(sizes, sizes.data[MAIN], split, algorithm, rounds=rounds, join_ratio=active / n)
        task = keeping(task._replace(clients=n), sizes)
        key = where(kind, split, MANY)
        cells.append(Cell("table3", method, MAIN, key, (task,), own_classes(sizes), seeds=sizes.minor))
    return cells


def only(rivals: Mapping[str, tuple[str, ...]], kinds: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The methods with these kinds of public images."""
    return {kind: rivals[kind] for kind in kinds}


def table4(sizes: Sizes) -> list[Cell]:
    """All clients have the same architecture; also for active clients."""
    cells = []
    for (net, model), name, split in product(sizes.alone.items(), sizes.data, sizes.alone_splits):
        for method in (*sizes.same, "pfedhr"):
            task = same_network(sizes, method, model, name, split)
            key = where("labeled" if method == "pfedhr" else "none", split, (12, 4, net))
            own = partial(Cell, method=method, dataset=name, setting=key, tasks=(task,), seeds=sizes.minor)
            cells += [
                own("table4", read=own_classes(sizes)),
                own("tested", read=partial(kept, "active"), metric="active"),
            ]
    return cells


def same_network(sizes: Sizes, method: str, model: str, name: str, split: str) -> Run:
    """A run of Table 4."""
    other = {"perfedavg": {"optimizer": "sgd"}, "pfedme": {"optimizer": "sgd", "lr": sizes.moreau[1]}}
    setting = {"rounds": sizes.alone_rounds, **other.get(method, {})}
    return run(sizes, sizes.data[name], split, made(sizes, method), model, **setting)


def step_sizes(sizes: Sizes) -> list[Cell]:
    """The two methods of Table 4 that take plain steps, with steps ten times larger, as there are few rounds."""
    (alpha, beta), (personal_lr, lr) = sizes.maml, sizes.moreau
    larger = sizes._replace(maml=(alpha, 10 * beta), moreau=(personal_lr, 10 * lr))
    [net, model], *_ = sizes.alone.items()
    return [
        Cell(
            *("step_sizes", method, name, where("none", split, (12, 4, net), step="x10")),
            (same_network(larger, method, model, name, split),),
            own_classes(sizes),
            seeds=sizes.minor,
        )
        for name, split in product(sizes.data, sizes.alone_splits)
        for method in ("perfedavg", "pfedme")
        if method in sizes.same
    ]


def narrow(sizes: Sizes) -> list[Cell]:
    """pFedBayes of Table 4 with weights that hardly vary in the beginning (reading A41)."""
    [net, model], *_ = sizes.alone.items()
    cells = []
    for name, split in product(sizes.data, sizes.alone_splits) if "pfedbayes" in sizes.same else ():
        task = same_network(sizes, "pfedbayes", model, name, split)
        task = task._replace(algorithm=fl.pfedbayes(sizes.zeta, NARROW))
        key = where("none", split, (12, 4, net), rho=f"{NARROW:g}")
        cells.append(Cell("narrow", "pfedbayes", name, key, (task,), own_classes(sizes)))
    return cells


def few(sizes: Sizes) -> list[Cell]:
    """The methods of Table 4 without public images, whose clients own only so many train images (reading A21)."""
    [net, model], *_ = sizes.alone.items()
    cells = []
    for n, name, split, method in product(sizes.few, sizes.data, sizes.alone_splits, sizes.same):
        task = same_network(sizes, method, model, name, split)
        whole = round(n * sizes.clients / ((1 - TESTED) * (1 - SHARE)))
        task = keeping(task._replace(images=task.images._replace(few=whole)), sizes)
        key = where("none", split, (12, 4, net), images=n)
        cells.append(Cell("few", method, name, key, (task,), own_classes(sizes)))
    return cells


def fig1(sizes: Sizes) -> list[Cell]:
    """Public images of the clients' kind, and of others."""
    cells = []
    for split, (kind, method) in product(sizes.foreign_splits, both_kinds(only(sizes.rivals, sizes.foreign_kinds))):
        own = standard(sizes, MAIN, kind, split, method)
        tasks = {MAIN: own} | {name: shown(own, source, 1.0, sizes) for name, source in sizes.foreign.items()}
        for name, task in tasks.items():
            key = where(kind, split, images=name)
            cells.append(Cell("fig1", method, MAIN, key, (task,), own_classes(sizes), seeds=sizes.minor))
    return cells


def shown(task: Run, source: Images, share: float, sizes: Sizes) -> Run:
    """The same clients with other public images."""
    return keeping(task._replace(public=(source, share)), sizes)


def figs3_to_6(sizes: Sizes) -> list[Cell]:
    """pFedHR by share of public images, number of groups, depth of stitches, epochs on the server; and Local-Only."""
    sources = {MAIN: sizes.data[MAIN]} | ({"cifar10": sizes.half} if sizes.half else {})
    usual = {"fig3": SHARE, "fig4": 4, "fig5": 1, "fig6": sizes.server_epochs}
    cells = []
    for (item, varied), (name, source) in product(sizes.varied.items(), sources.items()):
        for split, kind, x in product(varied.splits, varied.kinds, sorted([*varied.values, usual[item]])):
            task = run(sizes, source, split, pfedhr(sizes, kind))
            key, hyper = HYPER.get(item, ("share", ""))
            if x != usual[item] and hyper:
                task = run(sizes, source, split, pfedhr(sizes, kind, **{hyper: x}))
            elif x != usual[item]:
                task = shown(task, source, x / SHARE, sizes)
            own = partial(Cell, item, "pfedhr", name, where(kind, split, **{key: x}), (task,), seeds=sizes.minor)
            cells.append(own(read=own_classes(sizes)))
            if item == "fig4":
                cells += [own(read=partial(kept, metric), metric=metric) for metric in ("M", "fewer groups")]
        for split, kind in product(varied.splits, varied.kinds):
            key, task = HYPER.get(item, ("share", ""))[0], run(sizes, source, split, made(sizes, "local_only"))
            where_ = where(kind, split, **{key: NOBODY})
            cells.append(Cell(item, "pfedhr", name, where_, (task,), own_classes(sizes), seeds=sizes.minor))
    return cells


def searches(sizes: Sizes) -> list[Cell]:
    """What the server tries in the runs of Table 2: candidates by number of groups, and Fig. 7 in numbers."""
    cells = []
    for name, (split, kind, method) in product(sizes.data, columns(sizes)):
        if method != "pfedhr":
            continue
        task = standard(sizes, name, kind, split)
        seeds = sizes.seeds if split == "iid" and kind == "labeled" else sizes.minor
        own = partial(Cell, method="pfedhr", dataset=name, tasks=(task,), seeds=seeds)
        for k, (metric, values) in product(GROUPS, {"M": "M by groups", "none": "none by groups"}.items()):
            read = partial(at, values, k)
            cells.append(own("candidates", setting=where(kind, split, K=k), read=read, metric=metric))
        reads = {"fall of M": fall_of_m, "rise of none": rise_of_none, "most without any": most_without_any}
        reads |= {
            m: partial(kept, m) for m in ("two or more", "kinds", "repeated", "kept", "fewer groups", "unmatched")
        }
        cells += [own("search", setting=where(kind, split), read=read, metric=m) for m, read in reads.items()]
        for item, metrics in (("fig7", ("changed", "sources", "legal")), ("teachers", ("teachers", "with a head"))):
            cells += [own(item, setting=where(kind, split), read=partial(kept, m), metric=m) for m in metrics]
    return cells


def fall_of_m(row: Row) -> float:
    """The smallest fall of the mean number of candidates from K to K + 1, K = 2 to 5; negative if it rises."""
    return float(-np.diff(row.kept["M by groups"][:5]).max())


def rise_of_none(row: Row) -> float:
    """The smallest rise of the rounds without a candidate [%] from K to K + 1, K = 2 to 5; negative if they fall."""
    return float(np.diff(row.kept["none by groups"][:5]).min())


def most_without_any(row: Row) -> float:
    """The largest share of rounds without a candidate [%] over K = 2 to 8."""
    return float(max(row.kept["none by groups"]))


def controls(sizes: Sizes) -> list[Cell]:
    """Clients by who teaches them: nobody, pFedHR's candidates in several readings, and one that knows everything."""
    knowing = {
        who: taught(sizes.models[-1], 0.2, epochs, sizes.batch_size)
        for who, epochs in ((KNOWS_NOTHING, 0), (ALL_KNOWING, sizes.teacher_epochs))
    }
    cells = []
    for name, split in product(sizes.data, sizes.control_splits):
        made_by = {NOBODY: made(sizes, "local_only"), PRINTED: pfedhr(sizes)}
        made_by |= {reading: pfedhr(sizes, **READINGS[reading]) for reading in sizes.readings}
        for teacher, algorithm in (made_by | knowing).items():
            task, key = run(sizes, sizes.data[name], split, algorithm), control(split, teacher)
            seeds = sizes.reading_seeds.get(teacher, sizes.seeds)
            own = partial(Cell, "other_teachers", "pfedhr", name, key, (task,), seeds=seeds)
            cells.append(own(read=own_classes(sizes)))
            measure = "teacher on test images" if teacher in knowing else "teachers"
            cells += [own(read=partial(kept, measure), metric="teachers")] if teacher != NOBODY else []
    return cells


def control(split: str, teacher: str) -> str:
    """The setting of a control."""
    return where("labeled", split, teacher=teacher)


# -- measurements -------------------------------------------------------------------------------------------------


def uses(seed: int, profile: str, method: str, kind: str) -> Kept:
    """Table 1: whether a method looks at public labels, and what its clients send.

    It runs twice, the second time with shuffled labels: one that ends with the same weights has not looked at them.
    """
    sizes, rng = PROFILES[profile], np.random.default_rng(seed)
    data = images(style("pen", "", 200))
    data = data.subset(rng.permutation(len(data))[:100])
    tiny = fl.federate(data, SPLITS["iid"], 4, test_fraction=0.2, public=0.2)
    assert tiny.public is not None
    blind = tiny.with_public(replace(tiny.public, y=rng.permutation(tiny.public.y)))
    short = sizes._replace(server_epochs=1, warm_up=1)
    setting = dict(rounds=2, local_epochs=1, batch_size=sizes.batch_size, lr=sizes.lr, optimizer="adam", seed=seed)
    mixture = "+".join(sizes.models)
    seen, unseen = (
        fl.run(made(short, method, kind), federation, mixture, **setting, progress=False)  # type: ignore[arg-type]
        for federation in (tiny, blind)
    )
    pairs = zip(tree_leaves(seen.models), tree_leaves(unseen.models), strict=True)
    up, m1 = seen.rounds["bytes_up"].iloc[0], build(sizes.models[0], MODELS[sizes.models[0]], FRAME, 10, 0)
    could = {
        "own model": n_bytes(seen.models),
        "knowledge network": 4 * 4 * sum(t.numel() for t in m1.weights.values()),
        "public logits": 4 * 4 * 10 * len(tiny.public),
        "class means": 4 * 4 * 2 * (10 * 64 + 10),
    }  # bytes of four clients
    blind_to = all(torch.equal(one, other) for one, other in pairs)
    sends = ", ".join(what for what, n in could.items() if n == up)
    return {"uses labels": int(not blind_to), "bytes up": int(up) // 4, "sends": sends}


def table1(sizes: Sizes) -> list[Cell]:
    """What methods need and send."""
    cells = []
    for kind, method in both_kinds(sizes.rivals):
        task = Probe("table1", uses, (profile_of(sizes, PROFILES), method, kind), exact=True, sizes=str(sizes))
        for metric in ("uses labels", "bytes up"):
            cells.append(Cell("table1", method, "", f"public={kind}", (task,), partial(kept, metric), metric))
    return cells
