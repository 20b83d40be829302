"""pFedSim: accuracy of the methods (Tables 3, 6 and 8), and two controls."""

from functools import partial
from itertools import product
from typing import Literal

import numpy as np
import pandas as pd
import torch

import fedlib as fl
from fedlib.algorithm import Algorithm
from fedlib.papers.pfedsim.measure import DOMAINS, by_domain, made
from fedlib.papers.pfedsim.sizes import ALPHAS, PROTOCOLS, PUBLISHED, local, run, warmed
from fedlib.report.charts import plot_heatmaps, plot_points
from fedlib.report.panels import in_words, line_panels, method_panels
from fedlib.report.sentences import against_noise, noise_of, points_ahead, who_leads
from fedlib.report.style import BLUE, GREY, ORANGE, RED, WIDE, label
from fedlib.streams import generator
from fedlib.studies.item import Cell, drawing, item, means
from fedlib.studies.partition_control import partition_control
from fedlib.studies.tasks import Run


def chance(study) -> float:
    """Chance accuracy [%]: 10 on the substitute data; NaN on the paper's, which differ in their numbers of classes."""
    return np.nan if study.profile == "paper" else 10.0


@item("Table 3: accuracy [%] of every method, pooled over the test images of all clients.", protocols=PROTOCOLS)
def table3(sizes, **protocol):
    """Points by method, measured and printed, one panel for each level of label skew."""
    published = PUBLISHED if protocol else {}
    for name, alpha, method in product(sizes.data, ALPHAS, sizes.methods):
        algorithm, tuning = published.get(method) or (made(method), {})
        task = run(sizes, name, alpha, algorithm, **protocol, **tuning)
        task = warmed(task) if method == "pfedsim" else task
        yield Cell(method, name, f"dir={alpha}", (task,), seeds=sizes.seeds)


table3.draw(lambda study: plot_points(study.points("table3"), chance(study)))
table3.says(lambda study: who_leads(study.numbers("table3"), "pfedsim"))

LINES = {label(method): (method, "dir=0.1") for method in ("pfedsim", "fedrep", "fedper")}
other_partitions = partition_control(table3, "cifar10", LINES)


@drawing("Accuracy [%] over the rounds; thin lines are seeds, thick lines their mean.")
def curves(study):  # the runs of Table 3
    """Accuracy of every method over the rounds, one panel for each level of label skew."""
    look = {"ylim": (0, 100), "height": 2.2}
    return line_panels(study.curves("table3"), "round", y="accuracy", chance=chance(study), **look)


@item("Table 6: accuracy [%] of pFedSim by the share rho of FedAvg rounds.", rows="rho", protocols=PROTOCOLS)
def table6(sizes, **protocol):
    """Accuracy against the share of FedAvg rounds, measured (red) and printed (grey)."""
    at = partial(run, sizes, **protocol)
    for name, alpha, rho in product(sizes.data, sizes.rho_alphas, sizes.rhos):
        task, setting = warmed(at(name, alpha, fl.pfedsim(rho))), f"dir={alpha};rho={rho:g}"
        yield Cell("pfedsim", name, setting, (task,), seeds=sizes.rho_seeds)
        if rho == 1:
            tasks, difference = (task, at(name, alpha, fl.fedavg())), lambda one, other: one.score() - other.score()
            yield Cell("pfedsim", name, setting, tasks, difference, "minus FedAvg", sizes.rho_seeds)


@table6.shows
def _(study):
    numbers, key = study.numbers("table6", metric="accuracy").astype({"rho": float}), ["dataset", "dir"]
    ends, texts = {0.0: "without a warm-up", 1.0: "with FedAvg alone"}, []
    for (data, alpha), rows in numbers.groupby(["data", "dir"], sort=False):
        mean, place = rows.groupby("rho")["value"].mean(), in_words(data, f"dir={alpha}")
        losses = [f"{mean.max() - mean[rho]:.1f} points more than {end}" for rho, end in ends.items() if rho in mean]
        best = f"the best of {len(mean)} shares ({mean.idxmax():g}) has an accuracy of {mean.max():.1f} %"
        texts.append(f"On {place}, {', '.join(filter(None, [best, ' and '.join(losses)]))}.")
    yield " ".join(texts)
    printed = study.printed.query("item == 'table6'").assign(value=lambda rows: rows["mean"], method="paper", seed=-1)
    printed = printed.join(printed["setting"].str.extract("dir=(?P<dir>.*);rho=(?P<rho>.*)")).astype({"rho": float})
    printed = printed.merge(numbers[[*key, "data"]].drop_duplicates(), on=key)  # of the same data and label skew
    both = pd.concat([numbers, printed], ignore_index=True)
    looks = {"pfedsim": {"color": RED, "marker": "*"}, "paper": {"color": GREY, "linestyle": ":", "marker": "x"}}
    text = {"xlabel": r"share $\rho$ of FedAvg rounds", "ylim": (0, 100), "height": 2.2}
    text |= {"named": {"pfedsim": "measured", "paper": "printed"}.get, "look": looks.get, "chance": chance(study)}
    yield line_panels(both.assign(dir="dir=" + both["dir"]), "rho", ["data", "dir"], **text)


@item("Table 8: accuracy [%] by domain, without label skew.")
def table8(sizes):
    """Heat map of accuracy, methods by domains."""
    source, model, clients = sizes.domains
    setting = local(sizes) | {"rounds": sizes.domain_rounds, "evaluate_every": sizes.domain_rounds}
    setting["join_ratio"] = sizes.join_ratio
    for method in sizes.methods:
        task = Run(made(method), source, fl.domains(), clients, setting, model, keep=by_domain)
        for domain, name in zip((*sizes.domain_names, "Average"), (*DOMAINS, "Average"), strict=True):
            yield Cell(method, "domainnet", f"domain={domain}", (task,), name, seeds=sizes.domain_seeds)


@table8.draw
def _(study):
    grid = study.numbers("table8").pivot_table(index="method", columns="domain", values="value", sort=False)
    names = {"rows": [*map(label, grid.index)], "columns": [*grid.columns]}
    return plot_heatmaps([grid.to_numpy()], [""], vmax=100, **names, bar="accuracy [%]", width=WIDE)


def blind(weights: Literal["uniform", "shuffled"] = "uniform", generalization: float = 0.5) -> Algorithm:
    """pFedSim, but after every round the weights between its clients become their mean, or are shuffled among pairs."""
    made = fl.pfedsim(generalization)

    def round(state, cohort):
        state = made.round(state, cohort)
        i, j = np.triu_indices(cohort.size, 1)  # the pairs, each once
        i, j = cohort.clients[i], cohort.clients[j]
        found = state.similarity[i, j]  # [pairs]
        order = generator(*cohort.server_stream, "pairs").permutation(len(found))
        new = found[torch.from_numpy(order)] if weights == "shuffled" else found.mean().expand(len(found))
        state.similarity[i, j], state.similarity[j, i] = new, new
        return state

    hyper = {"weights": weights, "generalization": generalization}
    return Algorithm("blind", made.init, round, models=made.models, hyper=hyper, made_of=(blind, *made.made_of))


NAMES = {"per_class": "pFedSim", "log_of_mean": "log of the mean cosine", "mean_cos": "mean cosine"}  # of similarities
NAMES |= {"uniform": "uniform", "shuffled": "shuffled", "none (FedPer)": "FedPer"}
COLOURS = dict(zip(NAMES.values(), (RED, ORANGE, ORANGE, BLUE, BLUE, GREY), strict=True))


@item(
    "Control: accuracy [%] with uniform and with shuffled weights, and with other similarities.",
    rows="similarity",
    explains=("table3", "table6"),
)
def weights(sizes):
    """Dots of accuracy for each kind of weights: pFedSim (red), other similarities (orange), controls (blue)."""
    at = partial(run, sizes, "cifar10", 0.1)
    variants = {"per_class": warmed(at(fl.pfedsim(0.5)))}
    variants |= {kind: at(fl.pfedsim(similarity=kind)) for kind in sizes.kinds}
    variants |= {"uniform": at(blind("uniform")), "shuffled": at(blind("shuffled")), "none (FedPer)": at(fl.fedper())}
    for name, task in variants.items():
        yield Cell("pfedsim", "cifar10", f"similarity={name}", (task,), seeds=sizes.seeds)


@weights.draw
def _(study):
    numbers = study.numbers("weights").assign(method=lambda rows: rows["similarity"].map(NAMES))
    figure = method_panels(numbers, ["data"], named=str, look=lambda name: {"color": COLOURS[name]})
    figure.axes[0].set_xlim(numbers["value"].min() - 2, numbers["value"].max() + 2)
    return figure


def gain_of_weights(study) -> tuple[float, float]:
    """Gain of similarity weights over the better of uniform and shuffled weights, and its noise [points]."""
    numbers, kinds = study.numbers("weights"), ["per_class", "uniform", "shuffled"]
    ours, *others = means(numbers, "similarity", *kinds)
    return ours - max(others), noise_of(numbers, "similarity")[kinds].max(skipna=False)


@weights.says
def _(study):
    gain, noise = gain_of_weights(study)
    if np.isnan(noise):
        meaning = ""
    elif abs(gain) <= noise:
        meaning = ": these runs do not show whether the similarity helps"
    else:
        meaning = ": the similarity helps" if gain > 0 else ": weights without similarity are better here"
    lead = points_ahead(gain, "the better of uniform and shuffled weights (blue)")
    mean = study.numbers("weights").groupby("similarity")["value"].mean()
    fedper = points_ahead(mean.get("none (FedPer)", np.nan) - mean["per_class"], "pFedSim")
    end = f" FedPer (grey) is {fedper}." if "none (FedPer)" in mean else ""
    return f"pFedSim (red) is {lead}, {against_noise(gain, noise)}{meaning}.{end}"
