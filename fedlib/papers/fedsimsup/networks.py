"""FedSimSup: the two networks of a client (Figs. 1, 4): predictions, Grad-CAM, movement, size and messages."""

import base64
from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.papers.fedsimsup import measure
from fedlib.papers.fedsimsup.accuracy import EQUAL
from fedlib.papers.fedsimsup.gradcam import ANSWERS, MEASURES, SCOPES
from fedlib.papers.fedsimsup.sizes import SHAPES, first, probe, table_run, weighted_run
from fedlib.report.marks import arrow, box, dots, plot_nothing
from fedlib.report.panels import method_panels
from fedlib.report.sentences import paired_difference, with_minus
from fedlib.report.style import BLACK, BLUE, GREY, RED, WIDE, bare
from fedlib.studies.item import Cell, drawing, enough, item
from fedlib.studies.tasks import Kept, Probe

SOURCES = {"cifar10": "CIFAR-10 (Krizhevsky, 2009)", "digit_styles": "handwritten digits (Alpaydin and Kaynak, 1998)"}
MAPS = {"": "image", "theta": "map\nof $\\theta_i$", "s": "map\nof $s_i$", "other": "map of $s_i$,\nanother image"}
SIMILAR_MAPS = {"correlation": ("same image", RED), "with another image": ("another image", GREY)}
MASKS = {"kept, theta": ("region of $\\theta_i$", BLUE), "kept": ("region of $s_i$", RED)}
MASKS |= {"kept, another image": ("region of $s_i$, other image", GREY)}


@drawing("Fig. 1: one round of FedSimSup for a participating client and for an absent one.", scheme=True)
def fig1(study):
    """Above: a client fits its supervisor, then theta, and uploads theta. Below: the server moves an absent theta."""
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(WIDE, 5.4))
    titles = "Participating client $i$", "Absent client $j$: the server moves $\\theta_j$"
    for ax, title in zip((upper, lower), titles, strict=True):
        ax.set(xlim=(0, 10), ylim=(-0.3, 8), title=title)
        ax.axis("off")
    network: dict[str, Any] = {"size": (1.6, 1.1), "color": BLUE}
    upper.plot([0, 10], [5.4, 5.4], color=GREY, linewidth=0.7, linestyle=(0, (4, 3)))
    for x, sent, step, color in (
        (2.6, "$\\theta_i$", "1  fit $s_i$ (eq. 4)", RED),
        (7.4, "new $\\theta_i$", "2  fit $\\theta_i$ (eq. 5)", BLUE),
    ):
        box(upper, (x, 6.6), text=sent, **network)
        box(upper, (x, 4.0), text="$\\theta_i$", frozen=color == RED, **network)
        box(upper, (x, 2.4), text="$s_i$", frozen=color == BLUE, **network | {"color": RED})
        upper.text(x, 1.3, step, ha="center", va="center", color=color)
    arrow(upper, (2.6, 6.0), (2.6, 4.6), BLUE)
    arrow(upper, (7.4, 4.6), (7.4, 6.0), BLUE)
    arrow(upper, (3.7, 3.2), (6.3, 3.2), GREY)
    for k, s in enumerate((0.9, 0.3, 0.0), 1):
        y = 8.5 - 2.1 * k
        box(lower, (1.2, y), text=f"$\\theta_{k}$", **network)
        lower.text(1.2, y - 0.98, f"$s_{{j{k}}}={s:g}$", color=BLUE, ha="center", va="center")
        if s:
            arrow(lower, (2.1, y), (6.7, 4.5), BLUE, 0.8 + 4 * s)
    box(lower, (7.6, 4.5), text="$\\theta_j$", **network)
    answer = r"prediction: the largest logit of $\theta_i(x)+s_i(x)$;  $s_i$ is never sent"
    mean = r"$\theta_j\leftarrow\alpha_j\theta_j+(1-\alpha_j)\,\Sigma_k s_{jk}\theta_k\,/\,\Sigma_k s_{jk}$  (eq. 8)"
    for ax, text in ((upper, answer), (lower, mean)):
        ax.text(5.1, 0.1, text, ha="center", va="center")
    lower.text(7.6, 5.6, "self-weight: $\\alpha_j$", ha="center")
    for ax, y, text in ((upper, 7.4, "server"), (upper, 4.9, "client"), (lower, 7.5, "uploads of this round")):
        ax.text(0.0, y, text, color=GREY)
    return figure


@item(
    "Predictions of θ, of s and of their sum: accuracy [%], and share [%] of predictions in the client's classes.",
    rows="answer",
    explains=("table1", "table2", "table3"),
    digits=1,
)
def separate_networks(sizes):
    """Dots for the sum, theta and s with two kinds of weights: accuracy, and predictions in the client's classes."""
    tasks = {"s_ij": table_run(sizes, first(sizes), "fedsimsup"), "equal": weighted_run(sizes, similarity=False)}
    cell = partial(Cell, "fedsimsup", first(sizes).dataset, seeds=sizes.seeds)
    metrics = {"accuracy": "alone", "own classes": "own", "main class": "main"}
    for (metric, name), (weights, task), who in product(metrics.items(), tasks.items(), ANSWERS):
        yield cell(setting=f"answer={who};weights={weights}", tasks=(task,), read=f"{name}: {who}", metric=metric)
    yield cell(setting="answer=main class", tasks=(tasks["s_ij"],), read="alone: main")


@separate_networks.shows
def _(study):
    numbers, texts = study.numbers("separate_networks"), []
    accuracy = numbers[numbers["metric"] == "accuracy"]
    mean = accuracy[accuracy["weights"] != "equal"].groupby("answer")["value"].mean()
    if {"s", "main class"} <= {*mean.index}:
        start = f"With similarity weights (upper panel), the supervisor alone (red) has {mean['s']:.0f} % accuracy"
        texts.append(f"{start}, and always predicting the client's main class (grey) {mean['main class']:.0f} %.")
    weights = {"s_ij": "accuracy with similarity weights", "equal": "that with equal weights"}
    for answer, name in (("theta", "θ alone (blue)"), ("both", "the sum (black)")):
        own = accuracy[accuracy["answer"] == answer]
        text = paired_difference(own, "s_ij", "equal", "weights", weights.__getitem__)
        texts += [f"For {name}, {text}"] if text else []
    yield " ".join(texts)
    colors = {"sum": BLACK, "$\\theta_i$ alone": BLUE, "$s_i$ alone": RED, "constant: main class": GREY}
    names = dict(zip((*ANSWERS, "main class"), colors, strict=True))
    titles = {"accuracy": ("accuracy [%]", 10.0), "own classes": ("predictions in the client's classes [%]", np.nan)}
    kinds = {"s_ij": "weights $s_{ij}$", "equal": EQUAL}
    frame = numbers.assign(method=numbers["answer"].map(names)).query("metric in @titles").fillna({"weights": "s_ij"})
    words = {"title": lambda metric, weights: f"{titles[metric][0]}, {kinds[weights]}", "xlabel": "images [%]"}
    look = {"chance": lambda rows: titles[rows["metric"].iloc[0]][1], "look": lambda name: {"color": colors[name]}}
    yield method_panels(frame, ("metric", "weights"), **words, **look, named=str)


@item("Fig. 4: Grad-CAM maps of the two networks, with the map of another image as control.", rows="metric")
def fig4(sizes):
    """Three images with their maps for theta and s, and that of s for another image; below, means over all images."""
    task, dataset = table_run(sizes, first(sizes), "fedsimsup"), first(sizes).dataset
    for scope, name in product(SCOPES, MEASURES):
        yield Cell("fedsimsup", dataset, f"class={scope}", (task,), f"{scope}: {name}", name, sizes.seeds)


@fig4.draw
def _(study):
    rows = [row for row in study.rows_behind("fig4") if row.kept.get("shown")]
    if not rows:
        return plot_nothing("No image was classified correctly.")
    shown, data = rows[0].kept["shown"], rows[0].facts["config"]["data"]
    heights = [1.3 * len(shown) + 0.4, 2.8]
    figure = plt.figure(figsize=(WIDE, sum(heights)))
    upper, lower = figure.subfigures(2, 1, height_ratios=heights)
    axes = upper.subplots(len(shown), len(MAPS), squeeze=False)
    for line, own in zip(axes, shown, strict=True):
        for ax, top, (name, title) in zip(line, axes[0], MAPS.items(), strict=True):
            overlay(ax, own, name)
            top.set_title(title)
        line[0].set_ylabel(f"client {own['client']}, class {own['class']}")
    axes[-1][-1].set_xlabel(f"images: {SOURCES.get(data, data)}", loc="right", fontsize="small")
    values = study.numbers("fig4").query("`class` == 'all'").groupby("metric")["value"].agg(list)
    above, below = lower.subplots(2, 1, height_ratios=[2, 3])
    for ax, scale, metrics in ((above, 1, SIMILAR_MAPS), (below, 100, MASKS)):
        lines = [(name, scale * np.array(values.get(key, [np.nan])), color) for key, (name, color) in metrics.items()]
        dots(ax, lines, digits=2 if scale == 1 else 0)
    above.set(title="correlation of the two maps", xlim=(-0.3, 1))
    below.set(title="still correct [%] with a region masked", xlim=(0, 105))
    above.axvline(0, color="black", linewidth=0.6)
    return figure


def overlay(ax: Axes, own: Kept, name: str) -> None:
    """Show an image kept in a row, and over it the map of this name, if any, from 0 (transparent) to 1."""
    pixels = np.frombuffer(base64.b64decode(own["image"]), np.uint8).reshape(own["shape"]).transpose(1, 2, 0)
    ax.imshow(0.4 * pixels.mean(2) + 153 if name else pixels.squeeze(), cmap="gray", vmin=0, vmax=255)
    if name:
        weight, extent = np.array(own["maps"][name]), (-0.5, pixels.shape[1] - 0.5, pixels.shape[0] - 0.5, -0.5)
        ax.imshow(weight, cmap="YlOrRd", vmin=0, vmax=1, alpha=0.75 * weight, extent=extent, interpolation="bilinear")
    ax.set(xticks=[], yticks=[])
    bare(ax)


@fig4.says
def _(study):
    values = study.numbers("fig4").query("`class` == 'all'").groupby("metric")["value"]
    same, other, theta, s, control = enough(values.mean(), *SIMILAR_MAPS, *MASKS) * [1, 1, 100, 100, 100]
    matters = "more" if control - s > 100 * max(0.01, np.nan_to_num(values.std()["kept"])) else "no more"
    return (
        f"The correlation of the maps of θ and s is {same:.2f} for the same image (red) and {other:.2f} for different "
        f"ones (grey). Of the correctly classified images, {theta:.0f} % remain correct with the region of θ masked "
        f"(blue), {s:.0f} % with that of s (red), and {control:.0f} % with that of s in another image (grey): the "
        f"region of s matters {matters} than an unrelated one."
    )


@item("Distance that a supervisor moves in a round, against the gain and the loss with the received θ.", rows="with")
def supervisor_moves(sizes):
    """Two scatter plots of the distance of s, against the gain and against the loss; red squares are medians."""
    task = probe(sizes, "moves", measure.supervisor_moves, data="cifar10")
    names = ("gain", "gain on test", "received loss", "samples", "gain within clients", "received loss within clients")
    numbers = [("rank correlation", f"with={name}", name) for name in names]
    numbers += [("percent", f"received is better;part={part}", f"better on {part}") for part in ("train", "test")]
    for metric, setting, name in (*numbers, ("records", "", "records")):
        yield Cell("fedsimsup", "cifar10", setting, (task,), name, metric, sizes.side_seeds, rounds=sizes.moves_rounds)


@supervisor_moves.shows
def _(study):
    by_gain, by_loss = study.means("supervisor_moves", "with", "gain", "received loss", metric="rank correlation")
    start = f"The distance that s moves has a rank correlation (mean over seeds) of {by_gain:+.2f} with the gain from"
    expected = f"{'as' if by_gain > 0 else 'unlike what'} the paper expects"
    yield f"{start} the received θ (left), {expected}, and of {by_loss:+.2f} with the loss of the received θ (right)."
    [found, *_] = enough([row.kept for row in study.rows_behind("supervisor_moves") if row.kept.get("points")])
    loss, gain, moved = np.array(found["points"]).T
    causes = {
        "gain": (gain, "The paper's claim: the distance\ngrows with the gain", "gain: decrease of the loss"),
        "received loss": (loss, "The update rule: the distance\ngrows with the loss", "loss with received $\\theta_i$"),
    }
    figure, axes = plt.subplots(1, 2, figsize=(WIDE, 3.0), sharey=True)
    for ax, (key, (x, title, xlabel)) in zip(axes, causes.items(), strict=True):
        ax.scatter(x, moved, c=np.where(gain > 0, BLUE, GREY), s=13, alpha=0.65, linewidths=0)
        parts = [part for part in np.array_split(np.argsort(x), 5) if len(part)]
        medians = np.array([(np.median(x[part]), np.median(moved[part])) for part in parts])
        ax.plot(*medians.T, "s-", color=RED, linewidth=1.5, markersize=4)
        low, top = np.quantile(x, [0.03, 0.97])  # without outliers
        margin = 0.12 * (top - low) + 1e-9
        ax.set(xlabel=xlabel, xlim=(min(low - margin, 0.0), max(top, 0.0) + margin))
        ax.set_title(f"{title}\nrank correlation {with_minus(f'{found.get(key, np.nan):+.2f}')}, one seed", pad=14)
    axes[0].axvline(0, color="black", linewidth=0.7)
    for text, color, side, ha in (("lower loss", BLUE, 3, "left"), ("higher loss", GREY, -3, "right")):
        look = {"color": color, "ha": ha, "va": "bottom"}
        axes[0].annotate(text, (0, 1), (side, 2), ("data", "axes fraction"), "offset points", **look)
    axes[0].set(ylabel="distance that $s_i$ moves", ylim=(0, 1.3 * float(np.quantile(moved, 0.95))))
    yield figure


def plot_bars(kept: Kept, names: Mapping[str, str], xlabel: str) -> Figure:
    """Draw values of a measurement, in thousands, as bars; the first one is theta's."""
    values = np.array([kept[key] for key in names.values()])
    figure, ax = plt.subplots(figsize=(WIDE, 0.8 + 0.3 * len(values)))
    ax.barh([*names], values / 1000, color=[BLUE, *[RED] * (len(values) - 1)], height=0.6)
    for y, value in enumerate(values):
        ax.text(value / 1000, y, f"  {value:,}  ({value / values[0]:.1%} of $\\theta$)".replace("%", " %"), va="center")
    ax.set(xlabel=xlabel, xlim=(0, 1.6 * values.max() / 1000))
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    return figure


@item("Parameters of θ and of the supervisors.", rows="network", digits=0)
def parameters(sizes):
    """Bars: parameters of theta, L, C and T."""
    task = probe(sizes, "sizes", measure.parameters, exact=True)
    for name, kind in product(SHAPES, ("theta", "l", "c", "t")):
        yield Cell("fedsimsup", name, f"network={kind}", (task,), f"{name} {kind}", "parameters")


@parameters.shows
def _(study):
    n = study.rows_behind("parameters")[0].kept
    share = f"{100 * n['cifar10 l'] / n['cifar10 theta']:.1f} %"
    yield f"Supervisor L (second bar) has {share} of the parameters of θ (first bar); one sixth is 16.7 %."
    names = {"$\\theta$": "cifar10 theta"} | {f"supervisor {kind}": f"cifar10 {kind.lower()}" for kind in "LCT"}
    yield plot_bars(n, names, "thousands of parameters, for 3 x 32 x 32 pixels and ten classes")


@item("Size of the messages of clients with three kinds of supervisors, in bytes.", rows="metric", digits=0)
def messages(sizes):
    """Bars: bytes of theta, and bytes beyond theta in the first and in the second round."""
    task = Probe("messages", measure.messages, exact=True)
    for metric in ("theta", "counts", "beyond theta, round 1", "beyond theta, round 2", "kinds"):
        yield Cell("fedsimsup", "digits", "supervisor=mixed", (task,), metric, metric)


@messages.shows
def _(study):
    n = study.rows_behind("messages")[0].kept
    first, second = n["beyond theta, round 1"], n["beyond theta, round 2"]
    meaning = "exactly the label counts" if first == n["counts"] else f"not the {n['counts']:,} bytes of label counts"
    start = f"In addition to θ, clients with {n['kinds']} kinds of supervisors send {first:,} bytes in the first round"
    yield f"{start} (second bar), {meaning}, and {second:,} bytes in the second (third bar)."
    names = {"$\\theta$, every round": "theta"}
    names |= {f"beyond $\\theta$, round {t}": f"beyond theta, round {t}" for t in (1, 2)}
    yield plot_bars(n, names, "kilobytes sent by all participants")
