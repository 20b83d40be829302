"""pFedMB: controls of Tables I and II: ablations, other step sizes, and FedAMP's lambda."""

from collections.abc import Callable
from functools import partial
from itertools import product
from textwrap import fill

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch.nn.functional import one_hot

import fedlib as fl
from fedlib.algorithm import Algorithm
from fedlib.papers.pfedmb.accuracy import AT, along, chance, place
from fedlib.papers.pfedmb.measure import accuracy, chosen, scores
from fedlib.papers.pfedmb.sizes import PAIRED, PAIRS, SIGMAS, B, controlled, paired, run, tried_on_pairs
from fedlib.report.panels import line_panels, method_panels
from fedlib.report.sentences import against_noise, extremes, nearest_kind, noise_of, points_ahead
from fedlib.report.style import ORANGE, label, method_style
from fedlib.studies.item import Cell, item

SURE = 40.0  # softmax([40, 0, ...]) is (1, 0, ...) up to float32


def pfedmb_given(branches: int) -> Algorithm:
    """pFedMB with alpha given by the labels of all clients: FedAvg in each group of clients with similar labels."""
    learned = fl.pfedmb(branches, alpha_lr=0.0, gain=False)  # the usual scale, because no client mixes branches

    def init(model, federation):
        state, group = learned.init(model, federation), groups(federation.counts(), branches)
        chosen = SURE * one_hot(torch.as_tensor(group), branches)  # [n_clients, B]
        return state._replace(z={name: z + chosen for name, z in state.z.items()})  # z is 0 at first

    hyper = {**learned.hyper, "alpha": "labels"}
    return learned._replace(init=init, hyper=hyper, made_of=(pfedmb_given, *learned.made_of))


def groups(counts: np.ndarray, k: int) -> np.ndarray:
    """Cluster clients by the shares of their labels; counts: [n_clients, n_classes] -> group [n_clients]."""
    from sklearn.cluster import AgglomerativeClustering  # imported late: it takes a second

    return AgglomerativeClustering(k).fit_predict(counts / counts.sum(1, keepdims=True))


# name: label, method (a function of `gain`), factors for the rounds and for the step size
VARIANTS: dict[str, tuple[str, Callable[..., Algorithm], int, int]] = {
    "weighted=no": ("branches averaged without alpha", partial(fl.pfedmb, B, weighted=False), 1, 1),
    "share_alpha=yes": ("one alpha for all layers", partial(fl.pfedmb, B, share_alpha=True), 1, 1),
    "alpha_lr=0.1": ("alpha learns ten times slower", partial(fl.pfedmb, B, alpha_lr=0.1), 1, 1),
    "alpha_lr=0": ("alpha fixed at 1/B", partial(fl.pfedmb, B, alpha_lr=0.0), 1, 1),
    "gain=yes": ("initial branches scaled up", lambda gain: fl.pfedmb(B, gain=True), 1, 1),
    "alpha_lr=0;lr=x5": ("alpha fixed, steps five times larger", partial(fl.pfedmb, B, alpha_lr=0.0), 1, B),
    "alpha=labels": ("alpha given by the labels", lambda gain: pfedmb_given(B), 1, 1),
    "rounds=x2": ("twice as many rounds", partial(fl.pfedmb, B), 2, 1),
}
PANELS = {"accuracy": "accuracy [%]", "clients_per_branch": "clients per branch"}
BASELINES = {label(method): method_style(method) for method in PAIRED}
COMPARED = {"variants_on_five_pairs": (PAIRS, "table1"), "variants": ("clients=15;classes=2", "table2", "branches")}


def compared(study, control: str) -> pd.DataFrame:
    """Numbers of baselines and of variants of pFedMB with five branches in one setting, with labels as methods."""
    at, *tables = COMPARED[control]
    names = {"": "", f";branches={B}": ""} | {f";branches={B};{name}": words for name, (words, *_) in VARIANTS.items()}
    frame = study.numbers(*tables, control)
    frame = frame[frame["method"].isin(PAIRED) & ((frame["item"] != "table2") | (frame["method"] != "pfedmb"))]
    frame = frame.assign(words=frame["setting"].str.removeprefix(at).map(names)).dropna(subset="words")
    pairs = zip(frame["method"], frame["words"], strict=True)
    words = [w if w and m == "pfedmb" else " with ".join(filter(None, [label(m), w])) for m, w in pairs]
    return frame.assign(method=words)[frame["metric"].isin(PANELS)]


def variant_panels(frame: pd.DataFrame) -> Figure:
    """A panel for each metric; baselines have their colours, variants are orange."""
    look = {name: BASELINES.get(name, {"color": ORANGE}) for name in frame["method"]}
    text = {"title": PANELS.get, "named": partial(fill, width=26), "look": look.get, "xlabel": ""}
    return method_panels(frame, ("metric",), **text, best_first=True, sharex=False)


def changes(frame: pd.DataFrame, rival: str) -> str:
    """Change of accuracy by each variant of pFedMB, and the best variant against a baseline."""
    numbers, ours = frame[frame["metric"] == "accuracy"], label("pfedmb")
    mean = numbers.groupby("method", sort=False)["value"].mean()
    variants = mean.drop([*BASELINES], errors="ignore")
    if variants.empty or not {ours, rival} <= {*mean.index}:
        return ""
    own, theirs = mean[[ours, rival]]
    each = ", ".join(f"{value - own:+.1f} ({name})" for name, value in variants.items())
    gap, noise = variants.max() - theirs, noise_of(numbers)[[variants.idxmax(), rival]].max(skipna=False)
    best = f"{variants.idxmax()}, is {points_ahead(gap, rival)} ({theirs:.1f} %), {against_noise(gap, noise)}"
    start = f"Variants (orange) minus pFedMB with five branches ({own:.1f} %, red), in points"
    return f"{start}: {each}. The best variant, {best}."


@item(
    "Control on the five pairs: accuracy [%] of the methods of Table I and of variants of pFedMB with five branches.",
    rows="metric",
    explains=("table1",),
)
def variants_on_five_pairs(sizes):
    """Accuracy of the methods of Table I and of variants of pFedMB as dots; black bars are printed values."""
    made = {(m, "gain=yes"): tried_on_pairs(sizes._replace(gain=True), m) for m in ("pfedmb", "pfedmb-avg")}
    made["pfedmb", "alpha=labels"] = (paired(sizes, pfedmb_given(B), keep=scores),)
    for (method, name), tasks in made.items() if sizes.pair_control else ():
        yield Cell(method, "cifar10", f"{PAIRS};branches={B};{name}", tasks, accuracy)


variants_on_five_pairs.draw(lambda study: variant_panels(compared(study, "variants_on_five_pairs")))
variants_on_five_pairs.says(lambda study: changes(compared(study, "variants_on_five_pairs"), "FedAvg"))


@item(
    "Control: accuracy [%] of pFedMB with five branches and its variants; figure: two classes per client.",
    rows="metric",
    explains=("table2",),
)
def variants(sizes):
    """Above: accuracy of pFedMB, its variants and two other methods, as dots. Below: clients per branch."""
    for at, name in product(controlled(sizes), sizes.variants or VARIANTS):
        _, make, longer, faster = VARIANTS[name]
        task = run(sizes, at, make(gain=sizes.gain), sizes.lr * faster, longer)
        for metric in ("accuracy", "clients_per_branch", "largest_alpha"):
            key = "pfedmb", at.data, f"{at.setting};branches={B};{name}"
            yield Cell(*key, (task,), partial(chosen, metric), metric, sizes.control_seeds)


variants.draw(lambda study: variant_panels(compared(study, "variants")))
variants.says(lambda study: changes(compared(study, "variants"), "Local-Only"))


@item("Control: accuracy [%] of three methods with other step sizes.", explains=("table2",))
def step_sizes(sizes):
    """Accuracy against the step size, a line for each of three methods."""
    made = {"local_only": fl.local_only(), "fedavg": fl.fedavg(), "pfedmb": fl.pfedmb(B, gain=sizes.gain)}
    for at, (method, algorithm), lr in product(controlled(sizes), made.items(), sizes.other_lrs):
        for metric in ("accuracy", "validation"):
            task = run(sizes, at, algorithm, lr)
            yield Cell(method, at.data, f"{at.setting};lr={lr:g}", (task,), partial(chosen, metric), metric)


@step_sizes.shows
def _(study):
    numbers = along(study, "lr", "step_sizes")
    mean = numbers.groupby(["lr", "method"])["value"].mean()
    texts = (extremes(mean[lr], f"At step size {lr:g}, accuracy") for lr in mean.index.unique("lr"))
    yield " ".join(filter(None, texts))
    look = {"look": method_style, "xscale": "log", "xlabel": "step size"}
    yield line_panels(numbers, "lr", AT, place, chance, **look)


@item(
    "Control: accuracy [%] of FedAMP with weaker regularisation towards its cloud models (lambda).",
    rows="lam",
    explains=("table2",),
)
def regularisation(sizes):
    """Accuracy of FedAMP (green) against lambda, with a dash at the printed accuracy."""
    for at, lam in product(controlled(sizes), sizes.pulls):
        tasks = tuple(run(sizes, at, fl.fedamp(sigma, lam=lam), sizes.lr) for sigma in SIGMAS)
        yield Cell("fedamp", at.data, f"{at.setting};lam={lam:g}", tasks, accuracy)


@regularisation.shows
def _(study):
    known = study.printed.query("item == 'table2' and method == 'fedamp'").set_index("setting")["mean"]
    frame = along(study, "lam", "regularisation").assign(paper=lambda frame: frame["at"].map(known))
    yield nearest_kind(frame.assign(kind=frame["lam"].map("λ = {:g}".format)), ["at"])
    text = {"chance": lambda rows: rows["paper"].iloc[0], "reference": "printed", "look": method_style}
    text["xlabel"] = "strength λ of the regularisation"
    yield line_panels(frame, "lam", AT, place, xscale="log", height=2.2, **text)
