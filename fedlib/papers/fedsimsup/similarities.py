"""FedSimSup: label similarities of clients, and the shares of uploads in every client's model."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import PercentFormatter

from fedlib.papers.fedsimsup.accuracy import partition_label
from fedlib.papers.fedsimsup.measure import shares_in_theta, similarities
from fedlib.papers.fedsimsup.sizes import CLASSES, Column, probe
from fedlib.report.charts import plot_partition
from fedlib.report.marks import panels
from fedlib.report.style import WIDE, bare
from fedlib.studies.item import Cell, enough, item
from fedlib.studies.tasks import Kept


@item(
    "Composition of the clients' models: share [%] of similar clients among the uploads of other clients.",
    rows="weights",
    digits=1,
)
def upload_shares(sizes):
    """Matrices of clients by main class: label similarity (blue), and upload shares in each theta (red) by weights."""
    column = Column("cifar10", min(sizes.clients), "dir", 0.1)
    task = probe(sizes, "authors", shares_in_theta, *column, data="cifar10")
    for weights in ("s_ij", "equal", "chance"):
        yield Cell("fedsimsup", "cifar10", f"weights={weights}", (task,), weights, "percent", 3)


@upload_shares.shows
def _(study):
    similar, equal, pairs = study.means("upload_shares", "weights", "s_ij", "equal", "chance")
    change = "raise" if similar > 1.5 * equal else "hardly change"
    yield (
        f"In {pairs:.0f} % of all pairs the clients are similar (cosine above 0.5). Among the uploads of other clients "
        f"in a θ (red), the share of similar clients is {similar:.0f} % with similarity weights and {equal:.0f} % "
        f"with equal weights (means over seeds; the matrices show seed 0): similarity weights {change} this share."
    )
    yield draw_shares(study.rows_behind("upload_shares")[0].kept | {"s_ij": similar, "equal": equal})


def draw_shares(found: Kept) -> Figure:
    """Draw similarities, and upload shares in every theta with similarity weights and with equal weights."""
    figure, axes = plt.subplot_mosaic([["s", "s_ij"], [".", "equal"]], figsize=(WIDE, 5.6), layout="compressed")
    top = max(0.05, *(float(np.quantile(shares, 0.97)) for shares in found["authors"].values()))
    titles = {"s": "label similarity $s_{ij}$", "s_ij": r"uploads in $\theta_i$, weights $s_{ij}$"}
    titles["equal"] = r"uploads in $\theta_i$, equal weights"
    for name, title in titles.items():
        ax, first = axes[name], name == "s"
        matrix, look = (found["s"], ("Blues", 1.0)) if first else (found["authors"][name], ("Reds", top))
        bar = {"format": None if first else PercentFormatter(1, 0), "ticks": [0, look[1] / 2, look[1]]}
        shade = draw_matrix(ax, matrix, found["main"], *look)
        figure.colorbar(shade, ax=ax, location="bottom", aspect=22, pad=0.03, **bar)
        ax.set_title(title)
        if not first and name in found:
            ax.set_xlabel(f"from similar clients: {found[name]:.0f} %", fontweight="bold")
    axes["s"].set(xlabel="client, by its main class", ylabel="model of client, by its main class")
    return figure


def draw_matrix(ax: Axes, matrix: np.ndarray, main: Sequence[int], cmap: str = "Blues", top: float = 1.0) -> AxesImage:
    """Draw a matrix of clients, labelled by their main class, with lines between classes."""
    starts = [k for k, c in enumerate(main) if k == 0 or c != main[k - 1]]
    middles = [(a + b - 1) / 2 for a, b in zip(starts, [*starts[1:], len(main)], strict=True)]
    near = np.diff(middles, prepend=-np.inf) < len(main) / 16  # no place for its label
    for axis, line in ((ax.xaxis, ax.axvline), (ax.yaxis, ax.axhline)):
        axis.set_ticks(middles, ["" if hidden else str(main[k]) for k, hidden in zip(starts, near, strict=True)])
        axis.set_tick_params(pad=1)
        for k in starts[1:]:
            line(k - 0.5, color="#999999", linewidth=0.35)
    bare(ax)
    return ax.imshow(matrix, cmap=cmap, vmin=0, vmax=top)


@item("Label similarities of clients: number of distinct values, share [%] of zeros, and median.", rows="metric")
def similarity(sizes):
    """Two matrices of label similarities, clients ordered by main class: two classes each, and Dirichlet."""
    for name, n in product(sizes.data, sizes.clients):
        for column in (*(Column(name, n, "pat", c) for c in CLASSES[name]), Column(name, n, "dir", 0.1)):
            task = probe(sizes, "similarity", similarities, *column, data=name)
            for metric in ("distinct", "equal shares", "zero", "median"):
                yield Cell("partition", name, column.setting, (task,), metric, metric)


def partitions(study) -> dict[str, Kept]:
    """The measurements of the two partitions of Fig. 5, by name."""
    rows = {c.setting: study.rows_of(c.tasks[0]) for c in study.cells if c.item == "fig5"}
    return enough({partition_label(setting): own[0].kept for setting, own in rows.items() if own})


@similarity.shows
def _(study):
    found = partitions(study)
    values = [f"{own['distinct']:,} distinct values with {title}" for title, own in found.items()]
    yield f"The label similarity of two clients (blue) takes {' and '.join(values)}."
    figure, axes = panels(len(found), 2.9, layout="compressed")
    for ax, (title, own) in zip(axes, found.items(), strict=True):
        counts = np.array(own["counts"], float)
        order = counts.argmax(1).argsort(kind="stable")
        unit = counts[order] / np.linalg.norm(counts[order], axis=1, keepdims=True)
        shade = draw_matrix(ax, unit @ unit.T, counts.argmax(1)[order].tolist())
        ax.set_title(f"{title}:\n{own['distinct']:,} values of $s_{{ij}}$", loc="left")
        ax.set_xlabel(f"{own['zero']:.0f} % of pairs\nshare no class")
    axes[0].set_ylabel("client, by its main class")
    figure.colorbar(shade, ax=axes, label="label similarity $s_{ij}$", aspect=18, fraction=0.05)
    yield figure


@item(
    "Fig. 5: number of training samples by class, for up to twenty clients, in both kinds of partitions.", rows="metric"
)
def fig5(sizes):
    """One circle per client and class, with area by number of samples: two classes each, and Dirichlet."""
    metric, n = "share of top class", min(sizes.clients)
    for column in (Column("cifar10", n, "pat", 2), Column("cifar10", n, "dir", 0.1)):
        task = probe(sizes, "similarity", similarities, *column, data="cifar10")
        yield Cell("partition", "cifar10", column.setting, (task,), metric, metric)


@fig5.shows
def _(study):
    found = partitions(study)
    shares = [f"{100 * own['share of top class']:.0f} % with {title}" for title, own in found.items()]
    yield f"The share of a client's main class (largest circle) in its samples is on average {' and '.join(shares)}."
    figure, axes = panels(len(found), 2.3, sharey=True)
    for ax, (title, own) in zip(axes, found.items(), strict=True):
        plot_partition(np.array(own["counts"]), ax, size_key=False)
        ax.set_title(title, loc="left")
        ax.label_outer()
    yield figure
