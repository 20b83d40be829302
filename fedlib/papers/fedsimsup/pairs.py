"""The two networks of a client: figures of FedSimSup, and what they say."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.papers.fedsimsup.draw import (
    ALL_ALIKE,
    bars,
    kept,
    mean_of,
)
from fedlib.report.marks import HALO, arrow, box, dots, mark_chance, plot_nothing
from fedlib.report.style import BLUE, GREY, RED, WIDE
from fedlib.studies.tasks import Kept, Task

if TYPE_CHECKING:
    from fedlib.studies.study import Study


# -- one round ---------------------------------------------------------------------------------------------------------


NETWORK = (1.6, 1.1)  # the size of a box in Fig. 1


def fig1(study: Study) -> Figure:
    """One round: what a participant does, and what the server does for a client that is away."""
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(WIDE, 5.4))
    titles = "Client $i$ takes part", "Client $j$ is away: the server moves $\\theta_j$"
    for ax, title in zip((upper, lower), titles, strict=True):
        ax.set(xlim=(0, 10), ylim=(-0.3, 8), title=title)
        ax.axis("off")
    participant(upper)
    for k, (own, s) in enumerate((("$\\theta_1$", 0.9), ("$\\theta_2$", 0.3), ("$\\theta_3$", 0.0))):
        y = 6.4 - 2.1 * k
        box(lower, (1.2, y), NETWORK, own, BLUE)
        lower.text(1.2, y - 0.98, f"$s_{{j{k + 1}}}={s:g}$", color=BLUE, ha="center", va="center")
        if s:
            arrow(lower, (2.1, y), (6.7, 4.5), BLUE, 0.8 + 4 * s)
    box(lower, (7.6, 4.5), NETWORK, "$\\theta_j$", BLUE)
    lower.text(7.6, 5.6, "keeps the share $\\alpha_j$", ha="center")
    lower.text(0.4, 7.5, "this round's uploads", color=GREY)
    mean = "\\Sigma_k s_{jk}\\theta_k\\,/\\,\\Sigma_k s_{jk}"
    formula = f"$\\theta_j\\leftarrow\\alpha_j\\theta_j+(1-\\alpha_j)\\,{mean}$  (eq. 8)"
    lower.text(5.2, 0.0, formula, ha="center", va="center")
    return figure


def participant(ax: Axes) -> None:
    """What a client does that takes part: two steps, from left to right."""
    ax.text(0.0, 7.4, "server", color=GREY)
    ax.text(0.0, 4.9, "client", color=GREY)
    ax.plot([0, 10], [5.4, 5.4], color=GREY, linewidth=0.7, linestyle=(0, (4, 3)))
    for x, step, fitted in ((2.6, "1  fit $s_i$ (eq. 4)", "s"), (7.4, "2  fit $\\theta_i$ (eq. 5)", "theta")):
        box(ax, (x, 6.6), NETWORK, "$\\theta_i$" if fitted == "s" else "new $\\theta_i$", BLUE)
        box(ax, (x, 4.0), NETWORK, "$\\theta_i$", BLUE, frozen=fitted == "s")
        box(ax, (x, 2.4), NETWORK, "$s_i$", RED, frozen=fitted == "theta")
        ax.text(x, 1.3, step, ha="center", va="center", color=RED if fitted == "s" else BLUE)
    arrow(ax, (2.6, 6.0), (2.6, 4.6), BLUE)
    arrow(ax, (7.4, 4.6), (7.4, 6.0), BLUE)
    arrow(ax, (3.7, 3.2), (6.3, 3.2), GREY)
    ax.text(
        5.0, 0.15, "answer: the largest logit of $\\theta_i(x)+s_i(x)$;  $s_i$ is never sent", ha="center", va="center"
    )


# -- what each of them answers -----------------------------------------------------------------------------------------


PARTS = {"both": "sum of both", "theta": "$\\theta_i$ alone", "s": "$s_i$ alone", "main class": "always the main class"}


COLOURS = {PARTS["both"]: "black", PARTS["theta"]: BLUE, PARTS["s"]: RED, PARTS["main class"]: GREY}


def alone(study: Study) -> Figure:
    """What the sum and each network alone answer, with similarities and with all of them 1."""
    frame = study.numbers("alone")
    if not len(frame):
        return plot_nothing()
    titles = {"accuracy": "right answers [%]", "own classes": "answers that are own classes [%]"}
    frame = frame.assign(weights=frame["weights"].fillna("s_ij"))  # the main class needs none
    figure, axes = plt.subplots(4, 1, figsize=(WIDE, 6.0), sharex=True, height_ratios=(4.5, 3.5, 3.5, 3.5))
    for (ax, other), (metric, title) in zip((axes[:2], axes[2:]), titles.items(), strict=True):
        for one, weights, name in ((ax, "s_ij", "weights $s_{ij}$"), (other, "equal", ALL_ALIKE)):
            own = frame[(frame["weights"] == weights) & (frame["metric"] == metric)]
            values = {PARTS[str(answer)]: rows["value"].tolist() for answer, rows in own.groupby("answer", sort=False)}
            dots(one, [(text, some, COLOURS[text]) for text, some in values.items()])
            mark_chance(one, 10.0 if metric == "accuracy" else np.nan, "y")
            one.set_title(f"{title}, {name}", loc="left")
            one.set_xlim(0, 105)
    return figure


def alone_says(study: Study) -> str:
    """What the supervisor knows, and what similarity does to theta."""
    frame = study.numbers("alone")
    if not len(frame) or frame["weights"].nunique() < 2:
        return ""

    def at(answer: str, weights: str = "s_ij", metric: str = "accuracy") -> float:
        return mean_of(frame[frame["weights"] == weights], answer=answer, metric=metric)

    s, main = at("s"), mean_of(frame, answer="main class")
    more = "about as many as" if abs(s - main) < 5 else "more than" if s > main else "less than"
    theta, both = at("theta") - at("theta", "equal"), at("both") - at("both", "equal")
    own, equal = (at("theta", weights, "own classes") for weights in ("s_ij", "equal"))
    by_seed = frame[(frame["metric"] == "accuracy") & frame["answer"].isin(["theta", "both"])]
    noise = float(by_seed.groupby(["answer", "weights"])["value"].std().max())
    seeds = "from one seed" if np.isnan(noise) else f"with a standard deviation of up to {noise:.1f} over seeds"
    return (
        f"Look at the supervisor s alone: {s:.0f} % right, {more} the {main:.0f} % of always answering its main class; "
        f"{at('s', metric='main class'):.0f} % of its answers are it. Of what θ alone says, {own:.0f} % are "
        f"classes of the client with weights by similarity, {equal:.0f} % with equal weights. Weights by "
        f"similarity change the accuracy of θ alone by {theta:+.1f} points and that of the sum by {both:+.1f}, {seeds}."
    )


# -- where they look ---------------------------------------------------------------------------------------------------


SOURCES = {"cifar10": "CIFAR-10 (Krizhevsky, 2009)", "digit_styles": "handwritten digits (Alpaydin and Kaynak, 1998)"}


def picture(own: Kept) -> np.ndarray:
    """The image that a row keeps, [height, width, channels] or [height, width]."""
    pixels = np.frombuffer(base64.b64decode(own["image"]), np.uint8).reshape(own["shape"]).transpose(1, 2, 0)
    return pixels[:, :, 0] if pixels.shape[2] == 1 else pixels


def fig4(study: Study) -> Figure:
    """Three images with the maps of both networks, and the map of another image; how alike the maps are."""
    found = [row for row in study.rows_of(fig4_task(study)) if row.kept.get("shown")]
    if not found:
        return plot_nothing("No image was answered correctly, or nothing has been measured yet.")
    shown = found[0].kept["shown"]
    titles = {
        "": "image",
        "theta": "map\nof $\\theta_i$",
        "s": "map\nof $s_i$",
        "other": "$s_i$, for\nanother image",
    }
    heights = [1.3 * len(shown) + 0.4, 2.8]
    figure = plt.figure(figsize=(WIDE, sum(heights)))
    upper, lower = figure.subfigures(2, 1, height_ratios=heights)
    axes = upper.subplots(len(shown), 4, squeeze=False)
    for line, own in zip(axes, shown, strict=True):
        for ax, name in zip(line, titles, strict=True):
            overlay(ax, picture(own), own["maps"].get(name))
        line[0].set_ylabel(f"client {own['client']}, class {own['class']}")
    for ax, title in zip(axes[0], titles.values(), strict=True):
        ax.set_title(title)
    data = found[0].facts["config"]["data"]
    axes[-1][-1].set_xlabel(f"images: {SOURCES.get(data, data)}", loc="right", fontsize="small")
    maps_measured(lower, study)
    return figure


def fig4_task(study: Study) -> Task:
    """The run of Fig. 4."""
    return next(cell.tasks[0] for cell in study.cells if cell.item == "fig4")


def overlay(ax: Axes, image: np.ndarray, own: Sequence[Sequence[float]] | None) -> None:
    """An image, and a map from 0 to 1 over it: where it is 0 nothing is laid over."""
    grey = image if image.ndim == 2 else image.mean(2)
    ax.imshow(image if own is None else 0.4 * grey + 153, cmap="gray", vmin=0, vmax=255)
    if own is not None:
        extent = (-0.5, image.shape[1] - 0.5, image.shape[0] - 0.5, -0.5)
        weight = np.array(own)
        ax.imshow(weight, cmap="YlOrRd", vmin=0, vmax=1, alpha=0.75 * weight, extent=extent, interpolation="bilinear")
    ax.set(xticks=[], yticks=[])
    ax.grid(False)
    ax.spines[:].set_visible(False)


MEASURED = {
    "do the two maps agree? (correlation)": (("correlation", "same image"), ("with another image", "another image")),
    "answers still right [%] if one hides": (
        ("kept, theta", "what $\\theta_i$ covers"),
        ("kept", "what $s_i$ covers"),
        ("kept, another image", "the same, other image"),
    ),
}


SHADES = {"correlation": RED, "with another image": GREY, "kept, theta": BLUE, "kept": RED, "kept, another image": GREY}


def maps_measured(figure: Figure, study: Study) -> None:  # a subfigure is drawn on like a figure
    """Two panels over all test images: each measurement beside its control with another image's map."""
    frame = study.numbers("fig4")
    frame = frame[frame["class"] == "all"] if len(frame) else frame
    axes = figure.subplots(2, 1, height_ratios=[2, 3])
    for ax, (title, names) in zip(axes, MEASURED.items(), strict=True):
        scale = 100 if "%" in title else 1
        for place, (metric, _) in enumerate(names):
            values = scale * frame.loc[frame["metric"] == metric, "value"]
            if len(values):
                ax.barh(place, values.mean(), color=SHADES[metric], height=0.55, alpha=0.35)
                ax.plot(values, [place] * len(values), "o", color=SHADES[metric], markersize=4)
                text = f"  {values.mean():.0f}" if scale == 100 else f"  {values.mean():.2f}"
                ax.annotate(text, (max(values.max(), 0), place), va="center")
        ax.set_yticks(range(len(names)), [name for _, name in names])
        ax.set(title=title, xlim=(0, 115) if scale == 100 else (-0.3, 1), ylim=(len(names) - 0.4, -0.6))
        ax.axvline(0, color="black", linewidth=0.6)
        ax.grid(False, axis="y")


def fig4_says(study: Study) -> str:
    """Whether the maps have to do with each other, and which of them matters for the answer."""
    frame = study.numbers("fig4")
    if not len(frame):
        return ""
    same, other, theta, s, control = (
        mean_of(frame, **{"class": "all", "metric": name})
        for name in ("correlation", "with another image", "kept, theta", "kept", "kept, another image")
    )
    if np.isnan([same, other, theta, s, control]).any():
        return ""
    alike = "more" if same - other > 0.05 else "less" if other - same > 0.05 else "neither more nor less"
    spread = frame[(frame["class"] == "all") & (frame["metric"] == "kept")]["value"].std()
    one = ", as far as one seed tells" if np.isnan(spread) else ""
    matters = (
        "more than"
        if control - s > max(0.01, np.nan_to_num(spread))
        else "no more, within the noise of the seeds, than"
    )
    return (
        f"Look at the control: the maps of θ and s for one image are {alike} alike than for two images (correlation "
        f"{same:.2f} and {other:.2f}). If what θ covers is hidden, {100 * theta:.0f} % of the answers stay right; "
        f"what s covers, {100 * s:.0f} %; what s covers in another image, {100 * control:.0f} %. So what s covers "
        f"matters {matters} an area chosen without looking at the image{one}."
    )


# -- when a supervisor moves -------------------------------------------------------------------------------------------


def moves(study: Study) -> Figure:
    """How far a supervisor moves, against what was gained by receiving, and against the loss of what was received."""
    found = [own for _, own in kept(study, "moves")]
    if not found:
        return plot_nothing()
    if not found[0].get("points"):
        return correlations_of(found[0])
    loss, gain, moved = np.array(found[0]["points"]).T
    figure, axes = plt.subplots(1, 2, figsize=(WIDE, 3.0), sharey=True)
    panels = (
        ("The paper: far if what\nwas received is useful", gain, "last loss less loss received", "gain"),
        (
            "The update rule: far if\nthe loss received is high",
            loss,
            "loss of what was received",
            "received loss",
        ),
    )
    for ax, (title, x, name, key) in zip(axes, panels, strict=True):
        ax.scatter(x, moved, c=np.where(gain > 0, BLUE, GREY), s=13, alpha=0.65, linewidths=0)
        medians(ax, x, moved)
        ax.set(title=f"{title}\nrank correlation {found[0].get(key, np.nan):+.2f}", xlabel=name, xlim=spread(x))
    axes[0].axvline(0, color="black", linewidth=0.7)
    for text, color, side, ha in (("useful", BLUE, 3, "left"), ("not useful", GREY, -3, "right")):
        look = {"color": color, "ha": ha, "va": "top", "path_effects": HALO}
        axes[0].annotate(text, (0, 1), (side, -1), ("data", "axes fraction"), "offset points", **look)
    axes[0].set_ylabel("how far $s_i$ moves")
    axes[0].set_ylim(0, 1.3 * float(np.quantile(moved, 0.95)))
    return figure


def correlations_of(own: Kept) -> Figure:
    """The rank correlations alone, for a measurement that keeps no points."""
    names = {"gain": "use", "gain within clients": "use, within clients"}
    names |= {"received loss": "loss received", "received loss within clients": "loss received, within clients"}
    names = {key: name for key, name in names.items() if key in own}
    figure, ax = plt.subplots(figsize=(WIDE, 1.9))
    ax.barh(list(names.values()), [own[key] for key in names], color=[BLUE if "gain" in key else RED for key in names])
    for k, key in enumerate(names):
        ax.annotate(f" {own[key]:+.2f}", (max(own[key], 0), k), va="center")
    ax.set(xlabel="rank correlation with how far $s_i$ moves", xlim=(-1, 1))
    ax.axvline(0, color="black", linewidth=0.7)
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    return figure


def spread(x: np.ndarray) -> tuple[float, float]:
    """The range of nearly all values, and zero, so that a few far ones do not press the others together."""
    low, high = np.quantile(x, [0.03, 0.97])
    margin = 0.12 * (high - low) + 1e-9
    return min(float(low - margin), 0.0), float(max(high, 0.0) + margin)


def medians(ax: Axes, x: np.ndarray, y: np.ndarray, bins: int = 5) -> None:
    """The medians of as many parts of the points, from left to right, as a line."""
    parts = [part for part in np.array_split(np.argsort(x), bins) if len(part)]
    middle = [(np.median(x[part]), np.median(y[part])) for part in parts]
    ax.plot(*zip(*middle, strict=True), "s-", color=RED, linewidth=1.5, markersize=4)


def moves_say(study: Study) -> str:
    """Which of the two goes with movement, here and at full size."""
    found = [own for _, own in kept(study, "moves")]
    if not found or not {"gain", "received loss"} <= set(found[0]):
        return ""
    gain, loss = found[0]["gain"], found[0]["received loss"]
    expected = "as the paper expects" if gain > 0 else "not what the paper expects"
    better = found[0].get("better on train", 0)
    text = (
        f"Look at the rank correlations with how far a supervisor moves: {gain:+.2f} for the use of what it received, "
        f"{expected}, and {loss:+.2f} for its loss. The received model is better than the last one on the client's "
        f"train images in {better:.0f} % of cases."
    )
    full = [own for _, own in kept(study.at_full_size(), "moves")] if study.profile != "paper" else []
    return text + (f" At full size: {full[0]['gain']:+.2f} and {full[0]['received loss']:+.2f}." if full else "")


# -- what they weigh ---------------------------------------------------------------------------------------------------


def sizes(study: Study) -> Figure:
    """Parameters of theta and of the three supervisors."""
    found = kept(study, "sizes")
    if not found:
        return plot_nothing()
    names = {"theta": "$\\theta$", "l": "supervisor L", "c": "supervisor C", "t": "supervisor T"}
    own = {name: found[0][1][f"cifar10 {kind}"] for kind, name in names.items()}
    texts = [f"{n:,}  ({n / own[names['theta']]:.3f} of $\\theta$)" for n in own.values()]
    thousands = {name: n / 1000 for name, n in own.items()}
    return bars(thousands, texts, "thousands of parameters, for 3 x 32 x 32 pixels and ten classes")


def sizes_say(study: Study) -> str:
    """L as a share of theta."""
    found = kept(study, "sizes")
    if not found:
        return ""
    share = found[0][1]["cifar10 l"] / found[0][1]["cifar10 theta"]
    return f"Look at L: it has {share:.3f} of the parameters of θ; a sixth is {1 / 6:.3f}."


def messages(study: Study) -> Figure:
    """Bytes that participants send in two rounds: theta, and what goes beyond it."""
    found = kept(study, "messages")
    if not found:
        return plot_nothing()
    names = {"$\\theta$, every round": "theta"}
    names |= {f"beyond $\\theta$, round {t}": f"beyond theta, round {t}" for t in (1, 2)}
    own = {name: found[0][1][key] for name, key in names.items()}
    kilobytes = {name: n / 1000 for name, n in own.items()}
    return bars(kilobytes, [f"{n:,} bytes" for n in own.values()], "kilobytes sent by all participants")


def messages_say(study: Study) -> str:
    """What is sent beside theta."""
    found = kept(study, "messages")
    if not found:
        return ""
    own = found[0][1]
    first, then = own["beyond theta, round 1"], own["beyond theta, round 2"]
    what = "exactly the label counts" if first == own["counts"] else f"not the {own['counts']:,} bytes of label counts"
    return (
        f"Look at the lower bars: beside θ, clients with {own['kinds']} kinds of supervisors send {first:,} bytes in "
        f"the first round, {what}, and {then:,} in the next."
    )
