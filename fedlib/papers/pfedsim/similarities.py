"""pFedSim: the measurement study (Fig. 1, Fig. 2, Table 2), and the similarity that the server learns."""

from functools import partial
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

import fedlib as fl
from fedlib import similarity
from fedlib.papers.pfedsim.measure import LABELS, LAYERS, PAIRS, VARIANTS, four_clients, layers_alike
from fedlib.papers.pfedsim.measure import stages as agreement_by_round
from fedlib.papers.pfedsim.sizes import MEASURES, local, run, warmed
from fedlib.report.charts import plot_heatmaps
from fedlib.report.marks import panels
from fedlib.report.panels import in_words, line_panels
from fedlib.report.style import BLUE, GREY, ORANGE, RED, WIDE
from fedlib.studies.item import Cell, enough, item
from fedlib.studies.tasks import Probe

SIGNALS = {"WDB": "BatchNorm statistics", "MDB": "updates", "LDB": "losses", "CS": "classifiers"}


@item("Fig. 1: linear CKA between ten models trained alone, by layer (mean over pairs).", rows="layer", digits=3)
def fig1(sizes):
    """Five heat maps of CKA between ten models, one for each layer."""
    setting = {"batch_size": sizes.batch_size, "lr": sizes.lr}
    arguments = (sizes.study, sizes.min_size, sizes.study_epochs, setting, sizes.study_images)
    task = Probe("fig1", layers_alike, arguments, sizes.study)
    for k in LAYERS:
        yield Cell("local_only", "cifar10", f"layer={k}", (task,), f"layer={k}", "cka", sizes.study_seeds)


@fig1.shows
def _(study):
    means = study.means("fig1", "setting", *(f"layer={k}" for k in LAYERS)).to_numpy()
    first, last = means[[0, -1]]
    more = "more" if first - last > 0.1 else "no more"
    text = f"Linear CKA between models of different clients is {first:.2f} in the first layer and {last:.2f} in the"
    yield f"{text} classifier: the classifier reflects the client's own data {more} than the first layer does."
    [row, *_] = study.rows_behind("fig1")
    figure, axes = panels(len(LAYERS), 1.6, across=3, sharex=True, sharey=True, layout="compressed")
    for ax, k in zip(axes, LAYERS, strict=True):
        ax.imshow(np.array(row.kept[f"matrix {k}"]), vmin=0, vmax=1)
        name = f"layer {k}" if k < 4 else "classifier"
        ax.set(title=f"{name}: {means[k]:.2f}", xlabel="client", ylabel="client")
        ax.set(xticks=range(0, 10, 3), yticks=range(0, 10, 3))
        ax.grid(False)
        ax.label_outer()
    figure.colorbar(axes[0].images[0], ax=axes, label="linear CKA", fraction=0.05, aspect=20)
    yield figure


def pairs_of_clients(sizes) -> Probe:
    """The measurement of Table 2 and Fig. 2."""
    setting = {"batch_size": sizes.batch_size, "lr": sizes.lr}
    return Probe("table2", four_clients, (sizes.study, sizes.study_epochs, setting), sizes.study)


@item("Table 2: four similarity measures and the data similarity, for four pairs of clients.", digits=3)
def table2(sizes):
    """Four panels, one for each measure against data similarity: four pairs of clients, a line for each seed."""
    for measure, pair in product(MEASURES, PAIRS):
        key = measure, "cifar10", f"pair={pair}", (pairs_of_clients(sizes),)
        yield Cell(*key, f"{measure} {pair}", "similarity", sizes.study_seeds)


@table2.shows
def _(study):
    tau = study.means("fig2", "setting", *(f"tau {name}" for name in SIGNALS)).set_axis(SIGNALS.values())
    told = ", ".join(f"{t:.2f} for {words}" for words, t in tau.sort_values(ascending=False, kind="stable").items())
    yield f"Kendall's tau between a measure and the data similarity of the four pairs is {told} (1: the same ranking)."
    values = study.numbers("table2").pivot_table(index=["setting", "seed"], columns="method", values="value")
    figure, axes = panels(len(SIGNALS), 1.6, sharex=True)
    for ax, (name, words) in zip(axes, SIGNALS.items(), strict=True):
        color = RED if name == "CS" else GREY
        for _, one in values.groupby("seed"):
            one = one.sort_values("DataSimilarity")
            ax.plot(one["DataSimilarity"], one[name], color=color, linewidth=0.8, marker="o", markersize=3)
        ax.set_title(f"{words}: tau {tau[words]:.2f}", loc="left", color=color if name == "CS" else "black")
        ax.set(xlabel="data similarity", ylabel=name)
    for ax in axes[:2]:
        ax.set_xlabel("")
    yield figure


@item("Fig. 2: cosine similarity of the classifiers' rows, by pair of clients and class.", rows="setting", digits=3)
def fig2(sizes):
    """Heat map of cosines, four pairs by ten classes; frames mark classes that only one client owns."""
    kinds = product(enumerate(("tau", "r")), MEASURES[1:])
    reads = {name: partial(of_cosines, name) for name in ("rows", "gap")}
    reads |= {f"{name} {m}": partial(agreement, m, which) for (which, name), m in kinds}
    for name, read in reads.items():
        yield Cell("local_only", "cifar10", name, (pairs_of_clients(sizes),), read, "margin", sizes.study_seeds)


def of_cosines(name: str, row) -> float:
    """Mean cosine of classes of both or of neither client, minus that of the others: of all pairs, or least ("gap")."""
    values = ((np.array(row.kept[f"rows {pair}"])[:10], one_sided(pair)) for pair in PAIRS)
    kinds = [(cosines[~mask], cosines[mask]) for cosines, mask in values]
    if name == "gap":
        return min(same.mean() - one.mean() for same, one in kinds if len(same) and len(one))
    return min(same.mean() for same, _ in kinds if len(same)) - max(one.mean() for _, one in kinds if len(one))


def agreement(measure: str, which: int, row) -> float:
    """Kendall's tau (0) or Pearson's r (1) of a measure with the data similarity over the four pairs."""
    values, truth = ([row.kept[f"{name} {pair}"] for pair in PAIRS] for name in (measure, "DataSimilarity"))
    return float(similarity.agreement(values, truth)[which])


def one_sided(pair: str) -> np.ndarray:
    """Classes that only one client of a pair has: bool [10]."""
    i, j = PAIRS[pair]
    return np.array([(c in LABELS[i]) != (c in LABELS[j]) for c in range(10)])


@fig2.shows
def _(study):
    [gap] = study.means("fig2", "setting", "gap")
    some = " and ".join(pair for pair in PAIRS if 0 < one_sided(pair).sum() < 10)
    change = "smaller" if gap > 0 else "not always smaller"
    yield (
        f"The mean cosine is {change} in classes that only one of the two clients owns (red frames): in the pairs with "
        f"classes of both kinds, {some}, it is larger in the other classes by at least {gap:.2f}, averaged over seeds."
    )
    rows = study.rows_behind("fig2")
    mean = np.array([np.mean([row.kept[f"rows {pair}"][:10] for row in rows], axis=0) for pair in PAIRS])
    names = {"rows": [*PAIRS], "columns": [*map(str, range(10)), "mean"], "xlabel": "class", "ylabel": "pair"}
    low = min(0.0, float(mean.min()))
    figure = plot_heatmaps([np.column_stack([mean, mean.mean(1)])], [""], low, **names, bar="cosine", width=WIDE)
    for y, pair in enumerate(PAIRS):
        for c in np.flatnonzero(one_sided(pair)):
            figure.axes[0].add_patch(Rectangle((c - 0.47, y - 0.47), 0.94, 0.94, fill=False, edgecolor=RED))
    yield figure


@item(
    "Agreement of the server's Phi with the data similarity after the last round (Kendall's tau, Pearson's r).",
    rows="rho",
    digits=3,
)
def learned_similarity(sizes):
    """Two heat maps by the main classes of two clients: the server's similarity, and the data similarity."""
    for name, alpha, rho in product(sizes.data, sizes.rho_alphas, sizes.rhos):
        for metric in ("tau", "r") if rho < 1 else ():
            setting, task = f"dir={alpha};rho={rho:g}", warmed(run(sizes, name, alpha, fl.pfedsim(rho)))
            yield Cell("pfedsim", name, setting, (task,), metric, metric, sizes.rho_seeds)


@learned_similarity.shows
def _(study):
    tau = study.means("learned_similarity", "setting", metric="tau")
    words = tau.index.str.replace("dir=([^;]*);rho=", r"Dir(\1), rho = ", regex=True)
    ends = " to ".join(dict.fromkeys(f"{tau.iloc[i]:.2f} ({words[i]})" for i in (tau.argmin(), tau.argmax())))
    row = next(row for row in study.rows_behind("learned_similarity") if "phi" in row.kept)
    cells = (cell for cell in study.cells if cell.item == "learned_similarity")
    shown = next(in_words(*cell.key[2:4]) for cell in cells if row.task in {task.name for task in cell.tasks})
    maps = f"The maps show {shown}, seed {row.seed}; on the diagonal both clients have the same main class"
    white = "; white: no such pair" * bool((np.array([row.kept["phi"], row.kept["truth"]]) < 0).any())
    text = "Over all pairs of clients that were sampled together, Kendall's tau of Phi (left) with the data similarity"
    yield f"{text} (right) is {ends}. {maps}{white}."
    figure, axes = plt.subplots(1, 2, figsize=(WIDE, 2.7), sharey=True, layout="compressed")
    for ax, name, title in zip(axes, ("phi", "truth"), (r"the server's $\Phi$", "data similarity"), strict=True):
        values = np.array(row.kept[name])
        image = ax.imshow(np.where(values < 0, np.nan, values), cmap="viridis", vmin=0)
        ax.set(title=title, xlabel="main class of client $j$")
        ax.set(xticks=range(0, len(values), 3), yticks=range(0, len(values), 3))
        ax.grid(False)
        figure.colorbar(image, ax=ax, location="bottom", aspect=20)
    axes[0].set_ylabel("main class of client $i$")
    yield figure


@item(
    "Agreement of classifier similarity with data similarity, by the number of FedAvg rounds before the comparison.",
    rows="round",
    digits=3,
)
def similarity_by_round(sizes):
    """Kendall's tau against the number of rounds of FedAvg, a line for each similarity."""
    (source, _), setting = sizes.data["cifar10"], local(sizes) | {"join_ratio": sizes.join_ratio}
    arguments = (source, 0.1, sizes.clients, sizes.min_size, setting, sizes.stages)
    task = Probe("stages", agreement_by_round, arguments, source)
    for t, (kind, cap), metric in product(sizes.stages, VARIANTS, ("tau", "r")):
        setting, read = f"round={t};similarity={kind};cap={cap:g}", f"{metric} {t} {kind} {cap:g}"
        yield Cell("fedavg", "cifar10", setting, (task,), read, metric, sizes.stage_seeds)


@similarity_by_round.shows
def _(study):
    numbers = study.numbers("similarity_by_round", metric="tau").astype({"round": int, "cap": float})
    tau = enough(numbers.query("similarity == 'per_class' and cap == 0.0001")).groupby("round")["value"].mean()
    names = {
        kind: "mean cosine" if kind[0] == "mean_cos" else f"eq. (3) capped at {1 - kind[1]:g}" for kind in VARIANTS
    }
    every = numbers.groupby(["similarity", "cap", "round"])["value"].mean()
    similarity, cap, t = every.idxmax()
    missing = every.unstack("round").isna()
    gaps = [
        f"{names[key]}, after {', '.join(map(str, at.index[at]))} rounds" for key, at in missing.iterrows() if at.any()
    ]
    undefined = f" Where all pairs are at the cap, tau is undefined: {'; '.join(gaps)}."
    yield (
        "Kendall's tau of equation (3) with cosines capped at 0.9999 (red) is highest after "
        f"{tau.idxmax()} rounds of FedAvg: {tau.max():.2f}. The highest tau of all variants is {every.max():.2f}, "
        f"with {names[similarity, cap]} after {t} rounds.{undefined * bool(gaps)}"
    )
    colors = dict(zip(names.values(), (RED, ORANGE, BLUE), strict=True))
    kinds = [names[kind] for kind in zip(numbers["similarity"], numbers["cap"], strict=True)]
    text = {"xlabel": "rounds of FedAvg", "ylabel": "Kendall's $\\tau$ with\nthe data similarity", "height": 2.6}
    look = {"named": str, "look": lambda kind: {"color": colors[kind], "marker": "o"}}
    yield line_panels(numbers.assign(method=kinds), "round", (), **text, **look)
