"""FedSimSup: its tables and its curves as figures, and how all its tables and figures are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from fedlib.papers.fedsimsup.beside import (
    fresh,
    fresh_says,
    long,
    long_says,
    network,
    network_says,
    to_fedpac,
    to_fedpac_says,
)
from fedlib.papers.fedsimsup.draw import ALL_ALIKE, CLASSES, by_place, chance, curves, draw_curves, mean_of, where
from fedlib.papers.fedsimsup.pairs import (
    alone,
    alone_says,
    fig1,
    fig4,
    fig4_says,
    messages,
    messages_say,
    moves,
    moves_say,
    sizes,
    sizes_say,
)
from fedlib.papers.fedsimsup.similar import authors, authors_say, fig5, fig5_says, similarity, similarity_says
from fedlib.report.marks import mark_chance, method_dots, panels, plot_nothing
from fedlib.report.sentences import against_seeds, points_ahead
from fedlib.report.style import RED, WIDE, label, method_style
from fedlib.studies.old import Item
from fedlib.studies.tasks import Task

if TYPE_CHECKING:
    from fedlib.studies.study import Study


def accuracies(study: Study, item: str) -> Figure:
    """A panel for each column of a table: accuracy by method, every seed, with a line at chance."""
    found = by_place(study, item)
    if not found:
        return plot_nothing()
    heights = [0.8 + 0.32 * own["method"].nunique() for *_, own in found]
    figure, axes = panels(len(found), heights, across=1, sharex=True)
    for ax, (dataset, place, own) in zip(axes, found, strict=True):
        method_dots(ax, own)
        mark_chance(ax, chance(dataset, own["setting"].iloc[0]), "y")
        ax.set_title(place, loc="left")
    axes[-1].set_xlabel("accuracy [%]")
    return figure


# -- tables -------------------------------------------------------------------------------------------------------


def table1(study: Study) -> Figure:
    """Accuracy of all methods with Dirichlet partitions."""
    return accuracies(study, "table1")


def table2(study: Study) -> Figure:
    """Accuracy with the same number of classes for every client."""
    return accuracies(study, "table2")


def table3(study: Study) -> Figure:
    """Accuracy by kind of supervisor."""
    return accuracies(study, "table3")


def table_says(study: Study, item: str) -> str:
    """FedSimSup against the best other method that was run."""
    frame = study.numbers(item)
    by = frame.groupby(["dataset", "setting", "method"], sort=False)["value"].agg(["mean", "std"])
    ahead, gaps = 0, []
    for _, own in by.groupby(level=["dataset", "setting"], sort=False):
        own = own.droplevel([0, 1])
        others = own.drop("fedsimsup", errors="ignore")
        if "fedsimsup" in own.index and len(others):
            best = others["mean"].idxmax()
            gap = own.loc["fedsimsup", "mean"] - others.loc[best, "mean"]
            gaps.append((gap, str(best), own.loc[["fedsimsup", best], "std"].max()))
            ahead += gap > 0
    if not gaps:
        return ""
    if len(gaps) > 1:
        mean = np.mean([gap for gap, *_ in gaps])
        return (
            f"Look at FedSimSup's dots: it is ahead of the best other method in {ahead} of {len(gaps)} panels, on "
            f"average by {mean:+.1f} points."
        )
    [(gap, best, noise)] = gaps
    return (
        f"Look at FedSimSup's dot: it is {points_ahead(gap, f'the best other method here, {label(best)}')}; "
        f"that is {against_seeds(gap, noise)}."
    )


def table3_says(study: Study) -> str:
    """All supervisors L against a mixture, in the columns that have both."""
    by = study.numbers("table3").pivot_table(index=["dataset", "setting"], columns="method", values="value")
    if not {"fedsimsup", "fedsimsup-whole"} <= set(by.columns):
        return ""
    gain = (by["fedsimsup-whole"] - by["fedsimsup"]).mean()  # NaN in a column that has one of them only
    if np.isnan(gain):
        return ""
    word = "brings" if gain >= 0 else "costs"
    return (
        f"Look at the first two rows: a supervisor of their own {word} {abs(gain):.1f} points. The rows T, C and L "
        "are different clients, whose data differ; the next table compares the same clients."
    )


def table3_paired(study: Study) -> Figure:
    """What clients gain with their own kind of supervisor over L, the same clients in both runs."""
    found = by_place(study, "table3_paired")
    if not found:
        return plot_nothing()
    figure, axes = panels(len(found), 1.8, across=1)
    for ax, (_, place, own) in zip(axes, found, strict=True):
        method_dots(ax, own)
        mark_chance(ax, 0.0, "y", "no gain")
        ax.set_title(place, loc="left")
        ax.set_xlabel("points gained over the same clients with L")
    return figure


def paired_says(study: Study) -> str:
    """Which kind of supervisor gains most."""
    gains = study.numbers("table3_paired").groupby("method")["value"].mean()
    if not len(gains):
        return ""
    kinds = "".join(f"{label(name).rpartition('-')[2]} {value:+.1f}, " for name, value in gains.items())[:-2]
    return f"Look at the side of the line: with their own supervisor, clients gain, by its kind, in points: {kinds}."


# -- curves -------------------------------------------------------------------------------------------------------


def fig2(study: Study) -> Figure:
    """Accuracy over the rounds, a panel for each data set and partition."""
    cells = [cell for cell in study.cells if cell.item == "fig2" and cell.metric == "last_tenth"]
    places: dict[tuple[str, str], list[tuple[str, Task]]] = {}
    for cell in cells:
        if study.rows_of(cell.tasks[0]):
            places.setdefault((cell.dataset, cell.setting), []).append((cell.method, cell.tasks[0]))
    if not places:
        return plot_nothing()
    figure, axes = panels(len(places), 2.4, across=1)
    for ax, ((dataset, setting), own) in zip(axes, places.items(), strict=True):
        styles = {method: (label(method), method_style(method)["color"]) for method, _ in own}
        draw_curves(ax, curves(study, own), styles, 100 / CLASSES[dataset])
        ax.set_title(where(study, "fig2", dataset, setting), loc="left")
    return figure


def fig2_says(study: Study) -> str:
    """When FedSimSup gains most."""
    frame = study.numbers("fig2")
    own = frame[(frame["method"] == "fedsimsup") & frame["metric"].eq("accuracy")]
    if not len(own):
        return ""
    own = own[(own["dataset"] == own["dataset"].iloc[0]) & (own["dir"] == own["dir"].iloc[0])]
    by = own.assign(at=own["round"].astype(int)).groupby("at")["value"].mean()
    rise = by.iloc[-1] - by.iloc[len(by) // 2]
    still = "has not settled yet" if rise > 2 else "has settled"
    n = by.index[-1]
    return (
        f"Look at FedSimSup's line: in the second half of {n} rounds it changes by {rise:+.1f} points, so it {still}."
    )


def fig3(study: Study) -> Figure:
    """With similarities and with all of them 1."""
    cells = {cell.setting.split("similarity=")[1]: cell.tasks[0] for cell in study.cells if cell.item == "fig3"}
    names = {"True": ("weights $s_{ij}$", RED), "False": (ALL_ALIKE, "black")}
    frame = curves(study, [(str(k.split(";")[0]), task) for k, task in cells.items() if ";" not in k])
    if not len(frame):
        return plot_nothing()
    figure, ax = plt.subplots(figsize=(WIDE, 2.6))
    draw_curves(ax, frame, names, 10.0)
    return figure


def fig3_says(study: Study) -> str:
    """Whether similarity speeds up, beyond the noise of seeds."""
    frame = study.numbers("fig3")
    frame = frame[frame["metric"] == "mean_over_rounds"]
    if frame["setting"].nunique() < 2:
        return ""
    ours, equal = (mean_of(frame, similarity=str(own)) for own in (True, False))
    noise = float(frame.groupby("similarity")["value"].std().max())
    return (
        f"Look at the two thick lines: weights by similarity change the accuracy, on average over the rounds, by "
        f"{ours - equal:+.1f} points, {against_seeds(ours - equal, noise)}."
    )


SHOWN = {
    "authors": Item(
        "Whose uploads are in whose model: the share [%] of others' contributions that comes from similar clients.",
        rows="weights",
        draw=authors,
        alt="Matrices of clients by main class: similarity, and the authors of each theta with two kinds of weights.",
        says=authors_say,
        digits=1,
    ),
    "fig1": Item(
        "Fig. 1: one round of FedSimSup, for a client that takes part and for one that is away.",
        draw=fig1,
        alt="Above: a client fits its supervisor, then theta, to send it. Below: uploads pull an absent one's.",
    ),
    "fig2": Item(
        "Fig. 2: accuracy [%] over the rounds, its mean in the last tenth, and its fluctuation.",
        rows="method",
        draw=fig2,
        alt="Accuracy over the rounds, one line per method with its name at the end, and a line at chance.",
        says=fig2_says,
        digits=1,
    ),
    "fig3": Item(
        "Fig. 3: accuracy [%] of FedSimSup over the rounds, with weights by similarity and with all weights equal.",
        rows="round",
        draw=fig3,
        alt="Two thick lines, means over seeds, with thin lines for the seeds: similarities, and all of them 1.",
        says=fig3_says,
        digits=1,
    ),
    "fig4": Item(
        "Fig. 4: where the two networks look (Grad-CAM), and the same with the map of another image.",
        rows="metric",
        draw=fig4,
        alt="Three images, each with the maps of theta and s and that of s for another image; two bar charts below.",
        says=fig4_says,
    ),
    "fig5": Item(
        "Fig. 5: the train samples of each class of up to twenty clients, in both kinds of partitions.",
        rows="metric",
        draw=fig5,
        alt="One circle per client and class, its area the number of samples: two classes each, and Dirichlet.",
        says=fig5_says,
    ),
    "similarity": Item(
        "The label similarities of clients: how many values they take, how many [%] are 0, and their median.",
        rows="metric",
        draw=similarity,
        alt="Two matrices of similarities, clients ordered by main class: two classes each, and Dirichlet.",
        says=similarity_says,
    ),
    "alone": Item(
        "What the sum and each network alone answer: accuracy [%], and answers [%] that are classes of the client.",
        rows="answer",
        draw=alone,
        alt="Dots for each seed: accuracy and share of own classes of the sum, theta and s, with two kinds of weights.",
        says=alone_says,
        digits=1,
    ),
    "moves": Item(
        "How far a supervisor moves in a round, against the use and the loss of what its client received.",
        rows="with",
        draw=moves,
        alt="Two clouds of points with medians: how far s moves against the gain by receiving, and against the loss.",
        says=moves_say,
    ),
    "table1": Item(
        "Table 1: accuracy [%], pooled over the test images of all clients, Dirichlet partitions.",
        draw=table1,
        alt="Accuracy of each method: dots are seeds, the large one is their mean, crosses are as printed.",
        says=lambda study: table_says(study, "table1"),
    ),
    "table2": Item(
        "Table 2: accuracy [%] if every client has the same number of classes.",
        draw=table2,
        alt="Accuracy of each method: dots are seeds, the large one is their mean, crosses are as printed.",
        says=lambda study: table_says(study, "table2"),
    ),
    "table3": Item(
        "Table 3: accuracy [%] if every client draws its supervisor: by kind, of all, and if all have L.",
        draw=table3,
        alt="Accuracy by kind of supervisor: dots are seeds, the large one is their mean, crosses are as printed.",
        says=table3_says,
    ),
    "table3_paired": Item(
        "What clients gain with their own kind of supervisor over L, in points, the same clients compared.",
        draw=table3_paired,
        alt="Gain by kind of supervisor, a dot for each seed and a large one at the mean, with a line at no gain.",
        says=paired_says,
    ),
    "network": Item(
        "Two readings of the network, and three of accuracy [%]: pooled, mean over clients, best round.",
        rows="method",
        draw=network,
        alt="Accuracy of each method with the wide and the narrow network, red bars where printed, a line at chance.",
        says=network_says,
    ),
    "long": Item(
        "The second reading of the network for ten times as many rounds: accuracy [%], its extremes in the last fifth.",
        rows="round",
        draw=long,
        alt="Accuracy over the rounds, a line for each method, crosses where printed, and a line at chance.",
        says=long_says,
        digits=1,
    ),
    "to_fedpac": Item(
        "From FedRep to FedPAC, one change after the other: accuracy [%].",
        rows="step",
        draw=to_fedpac,
        alt="Accuracy over the rounds, a line for each change, crosses where printed, and a line at chance.",
        says=to_fedpac_says,
        digits=1,
    ),
    "fresh": Item(
        "FedRep, second reading of the network: its classifiers as they are, and trained again before the test.",
        rows="classifier",
        draw=fresh,
        alt="Accuracy with the classifiers as they are and trained again, red bars where printed, a line at chance.",
        says=fresh_says,
        digits=1,
    ),
    "sizes": Item(
        "Parameters of θ and of the supervisors.",
        rows="network",
        draw=sizes,
        alt="Bars: parameters of theta and of the supervisors L, C and T.",
        says=sizes_say,
        digits=0,
    ),
    "messages": Item(
        "What clients with three kinds of supervisors send, in bytes.",
        rows="metric",
        draw=messages,
        alt="Bars: bytes of theta, and bytes beyond theta in the first and in the second round.",
        says=messages_say,
        digits=0,
    ),
}
