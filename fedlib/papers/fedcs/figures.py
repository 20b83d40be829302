"""FedCS: how its tables and figures are shown, and the figures of who owns what."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from fedlib.papers.fedcs.draw import group_names
from fedlib.papers.fedcs.scores import (
    by_group,
    control,
    curves,
    directions,
    few,
    levels,
    long,
    momentum,
    plug_in,
    readings,
    says_control,
    says_curves,
    says_directions,
    says_few,
    says_groups,
    says_levels,
    says_long,
    says_pairs,
    says_readings,
    says_table,
    says_unseen,
    table,
    unseen,
)
from fedlib.papers.fedcs.space import eq5, eq12, eq13, fig1, says_eq5, says_eq12, says_eq13, says_fig1, scheme
from fedlib.report import PALETTE, plot_partition
from fedlib.report.marks import plot_nothing
from fedlib.report.style import WIDE
from fedlib.studies.old import Cell, Item
from fedlib.studies.rows import Row
from fedlib.studies.study import Study

# -- who owns what ------------------------------------------------------------------------------------------------


def who_is_who(item: str, study: Study) -> Figure:
    """Figs. 3 and 5: how many images of which group, or domain, every client has; unseen clients on grey ground."""
    found = [(cell.dataset, rows[0].kept) for cell, rows in partitions(study, item)]
    kinds = {str(kept["of class"]): (name, kept) for name, kept in found}  # each partition once
    if not kinds:
        return plot_nothing()
    figure, axes = plt.subplots(len(kinds), 1, figsize=(WIDE, 1.9 * len(kinds)), squeeze=False)
    for ax, (name, kept) in zip(axes[:, 0], kinds.values(), strict=True):
        counts, names = np.array(kept["of domain"]), group_names(study, name)
        if name != "digit5":
            counts, n = np.diag(np.array(kept["of class"]).sum(1)), kept["clients"]
            counts = np.add.reduceat(counts, np.arange(0, n, n // 10), axis=1)
            names = [str(g) for g in range(10)]
        plot_partition(counts, ax, names)
        ax.axvspan(kept["clients"] - kept["unseen"] - 0.5, kept["clients"] - 0.1, color="#E4E4E4", zorder=0)
        ax.set_ylabel("domain" if name == "digit5" else "group")
        ax.set_xlabel("client (on grey: never seen in training)")
    return figure


def partitions(study: Study, item: str) -> list[tuple[Cell, list[Row]]]:
    """The partitions of an item that have been counted."""
    found = [(cell, study.rows_of(cell.tasks[0])) for cell in study.cells if cell.item == item]
    return [(cell, rows) for cell, rows in found if rows]


def fig4(study: Study) -> Figure:
    """Fig. 4: the share of every class at every client."""
    found = [rows[0].kept for _, rows in partitions(study, "fig4")]
    kinds = list({str(kept["of class"]): kept for kept in found}.values())
    if not kinds:
        return plot_nothing()
    figure, axes = plt.subplots(len(kinds), 1, figsize=(WIDE, 2.2 * len(kinds)), squeeze=False)
    for ax, kept in zip(axes[:, 0], kinds, strict=True):
        counts = np.array(kept["of class"])
        share = counts / counts.sum(1, keepdims=True)
        for c, color in enumerate(PALETTE):
            ax.bar(range(len(share)), share[:, c], 0.9, share[:, :c].sum(1), color=color, label=str(c))
        ax.axvline(kept["clients"] - kept["unseen"] - 0.5, color="black", linestyle=":")
        ax.set(xlabel="client (right of the dotted line: never seen in training)", ylabel="share of classes")
        ax.set_xlim(-0.6, len(share) - 0.4)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(False)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), title="class", loc="outside right upper", reverse=True)
    return figure


def says_parts(item: str, study: Study) -> str:
    """How many clients never train, and how unequal clients are."""
    rows = study.numbers(item).groupby("metric")["value"].first()
    if rows.empty:
        return ""
    text = f"Look at the grey columns: {rows['unseen']:.0f} of {rows['clients']:.0f} clients never train. "
    return text + f"The smallest client has {rows['smallest']:.0f} images, the largest {rows['largest']:.0f}."


def says_sec5(study: Study) -> str:
    """Whether one model serves everybody."""
    rows = study.numbers("sec5").groupby("metric")["value"]
    if not len(rows):
        return ""
    same = bool((rows.min()["same_bits"] == 1) and (rows.max()["models"] == 1))
    return (
        "One model serves everybody, and exchanging the images of unseen clients does not change a bit of it."
        if same
        else "The model of some client differs, or depends on the images of unseen clients."
    )


# -- what is shown ------------------------------------------------------------------------------------------------

F1_AUC = "in percent: weighted AUC and weighted F1, mean over clients (± in the paper: over clients; here: over seeds)"
GROUPS = "by client group over the rounds; red: groups never seen in training"


def _item(
    title: str,
    alt: str,
    draw: Callable[[Study], Figure] | None,
    says: Callable[[Study], str] | None,
    digits: int = 2,
    rows: str = "method",
) -> Item:
    return Item(title, rows, draw, alt, says, digits)


SHOWN: dict[str, Item] = {
    "control": _item(
        "Weighted F1 [%] round by round: FedCS, its control (whitening only), FedAvg and FedAvg+BN.",
        "Learning curves of FedCS, its control, FedAvg and FedAvg+BN, for clients that train and for unseen ones.",
        control,
        says_control,
        1,
    ),
    "scheme": _item(
        "Fig. 1 (a): one linear map P = S Phi in front of a layer; gradients never touch it.",
        "Scheme of the network: image, convolutions, z, the map P, c, linear layers, class; S and Phi make P.",
        scheme,
        None,
    ),
    "fig1": _item(
        "Fig. 1 (b, c): client groups in feature space; share of images [%] nearest to their own group's centre.",
        "Ellipses of five client groups before and after the map, and dots for how well their centres tell them apart.",
        fig1,
        says_fig1,
        1,
    ),
    **{
        item: _item(
            f"Table {item[-1]}: {name}, {F1_AUC}.",
            f"Weighted F1 of every method on {name} or a stand-in: a dot per seed, a bar for its spread, "
            "a cross as printed.",
            partial(table, item),
            partial(says_table, item),
        )
        for item, name in (("table1", "MNIST"), ("table2", "CIFAR-10"), ("table3", "Digit-5"))
    },
    **{
        item: _item(
            f"Fig. {item[3:]}: {what} [%] {GROUPS}.",
            f"Lines of {what} by group of clients over the rounds, a panel per method; unseen groups are red.",
            partial(by_group, item, metric),
            partial(says_groups, item),
        )
        for item, what, metric in (
            ("fig2", "weighted F1", "f1"),
            ("fig9", "accuracy", "accuracy"),
            ("fig10", "accuracy", "accuracy"),
        )
    },
    "fig3": _item(
        "Fig. 3: images of every client by group, with label shift.",
        "Clients and their ten groups, a circle for the number of images; the last clients are unseen.",
        partial(who_is_who, "fig3"),
        partial(says_parts, "fig3"),
        0,
    ),
    "fig4": _item(
        "Fig. 4: share of every class at every client, with label shift.",
        "Stacked bars of class shares, one bar per client; unseen clients right of a dotted line.",
        fig4,
        partial(says_parts, "fig4"),
        0,
    ),
    "fig5": _item(
        "Fig. 5: images of every client by domain, with feature shift.",
        "Clients and domains, a circle for the number of images; the last clients are unseen and some mix all domains.",
        partial(who_is_who, "fig5"),
        partial(says_parts, "fig5"),
        0,
    ),
    **{
        item: _item(
            f"Fig. {item[3:]}: mean accuracy over all clients [%] on {name}; band: standard deviation over clients.",
            f"A panel per method with its mean accuracy by round on {name} or its stand-in; the other methods in grey.",
            partial(curves, item),
            partial(says_curves, item),
        )
        for item, name in (("fig6", "MNIST"), ("fig7", "CIFAR-10"), ("fig8", "Digit-5"))
    },
    "unseen": _item(
        "Weighted F1 [%] of clients that train and of clients never seen in training.",
        "For every method a line from clients that train to unseen clients; methods that adapt are grey.",
        unseen,
        says_unseen,
        1,
    ),
    "eq5": _item(
        "Equation 5: how much of the largest J nine columns of P reach.",
        "Shares of the largest J: principal components, P at the end of the run, P after more alignments.",
        eq5,
        says_eq5,
        3,
    ),
    "eq12": _item(
        "Equation 12 on the toy problem: |cosine| of four columns of Phi with the true directions.",
        "Bars of cosines for the upper and the lower triangle.",
        eq12,
        says_eq12,
        4,
    ),
    "eq13": _item(
        "Equation 13: residual of S (0: within-client scatter is exactly whitened).",
        "Residual of S falling while the frozen network is aligned on.",
        eq13,
        says_eq13,
        3,
    ),
    "sec5": _item(
        "Section 5: how many models are evaluated, and whether they keep their bits when unseen clients swap images.",
        "",
        None,
        says_sec5,
        0,
    ),
    "readings": _item(
        "Other readings of FedCS at FC2 and their controls: weighted F1 [%], residual of S, J ratio of P.",
        "Dots of weighted F1 for each reading of FedCS; a line for FedAvg.",
        readings,
        says_readings,
        2,
        rows="reading",
    ),
    "directions": _item(
        "What learned directions add: weighted F1 [%] of FedAvg, of whitening only, and of FedCS at FC2.",
        "For every data set a line from the weighted F1 with whitening only to that of FedCS.",
        directions,
        says_directions,
        1,
        rows="dataset",
    ),
    "momentum": _item(
        "Weighted F1 [%] without momentum and with momentum 0.9.",
        "For every method a line from its score without momentum to that with it.",
        momentum,
        partial(says_pairs, "momentum", ("momentum=0", "momentum=0.9"), "what momentum adds"),
        1,
    ),
    "few": _item(
        "Table 1 with fewer images: weighted F1 [%] when all clients together own so many.",
        "For every method its weighted F1 on MNIST with three numbers of images and with all; red bars: as printed.",
        few,
        says_few,
        1,
    ),
    "plug_in": _item(
        "Weighted F1 [%] of other methods alone and with the alignment around them.",
        "For every method a line from its score alone to that with the alignment.",
        plug_in,
        partial(says_pairs, "plug_in", ("alone", "aligned"), "what the alignment adds"),
        1,
    ),
    "alpha": _item(
        "Weighted F1 [%] at other levels of label shift.",
        "Dots of weighted F1 for several methods at two levels of label shift.",
        partial(levels, "alpha"),
        partial(says_levels, "alpha"),
        1,
    ),
    "long": _item(
        "Weighted F1 [%] of Table 2 after more rounds and epochs.",
        "Two dots for each method, as usual and after more rounds and epochs, and a red bar where printed.",
        long,
        says_long,
        1,
    ),
}
