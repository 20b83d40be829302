"""pFedSim: partitions, networks, traffic and time (Tables 1, 4, 5, 7, 9; Figs. 3, 4, 5a)."""

from itertools import product

import matplotlib.pyplot as plt
import numpy as np

from fedlib.papers.pfedsim.measure import client_sizes, costs, domain_sizes, needs, networks
from fedlib.papers.pfedsim.sizes import ALPHAS, COSTED, local
from fedlib.report.charts import plot_partition
from fedlib.report.marks import arrow, box, panels
from fedlib.report.style import BLACK, BLUE, GREY, RED, WIDE, label
from fedlib.studies.item import Cell, drawing, enough, item
from fedlib.studies.tasks import Probe, images


@item("Table 1, measured: models sent per round, and use of other clients' data (1: yes).")
def table1(sizes):
    for method in COSTED:
        task = Probe("table1", needs, (method,), exact=True)
        for metric in ("models up and down", "most models up", "looks at data of others"):
            yield Cell(method, "", "", (task,), metric, metric)


@item("Table 4: sizes of the clients (±: over clients in the paper, over seeds here).", rows="metric", digits=0)
def table4(sizes):
    for name, (source, _) in sizes.data.items():
        probes = {a: Probe("table4", client_sizes, (source, a, sizes.clients, sizes.min_size), source) for a in ALPHAS}
        for alpha, (metric, value) in product(ALPHAS, (("samples_per_client", "mean"), ("std_of_sizes", "std"))):
            yield Cell("partition", name, f"dir={alpha}", (probes[alpha],), value, metric, 2)
        for metric, value in (("num_samples", "samples"), ("num_classes", "classes")):
            yield Cell("partition", name, "", (probes[0.1],), value, metric)


@drawing("Fig. 3: number of images by class and client.")
def fig3(study):  # the measurements of Table 4
    """One circle per client and class, with area proportional to the number of images, for Dir(0.1) and Dir(0.5)."""
    figure, axes = panels(len(ALPHAS), 2.0, across=1, sharex=True)
    for ax, alpha in zip(axes, ALPHAS, strict=True):
        [row, *_] = enough(study.rows_behind("table4", dataset="cifar10", setting=f"dir={alpha}"))
        plot_partition(np.array(row.kept["counts"]), ax)
        ax.set_title(f"Dir({alpha})", loc="left")
        ax.label_outer()
    return figure


def network(table: str, layers):
    """The numbers of Table 5 or 9."""
    for layer in layers:
        task = Probe("networks", networks, exact=True)
        yield Cell("partition", "", f"layer={layer}", (task,), f"{table} {layer}", "parameters")


@item("Table 5: parameters of LeNet5 by layer.", rows="layer", digits=0)
def table5(sizes):
    return network("table5", ("conv1", "conv2", "fc1", "fc2", "classifier"))


@item("Table 9: parameters of MobileNetV2 by block, for 200 classes.", rows="layer", digits=0)
def table9(sizes):
    return network("table9", (*(f"features.{i}" for i in range(19)), "classifier.1"))


@item(
    "Table 7: time of a round per training sample [1e-4 s], including the server's time (in the paper without it), its "
    "ratio to that of FedAvg, and scalars per round."
)
def table7(sizes):
    """Time and traffic of every method relative to FedAvg: black bars are printed values, dots measured ones."""
    setting = local(sizes) | {"rounds": sizes.cost_rounds, "join_ratio": sizes.join_ratio}
    for name, (source, model) in sizes.data.items():
        task = Probe("table7", costs, (COSTED, source, sizes.clients, sizes.min_size, setting, model), source)
        for method, metric in product(COSTED, ("xi_p_1e-4s", "relative_time", "scalars_down", "scalars_up")):
            yield Cell(method, name, "dir=0.1", (task,), f"{metric} {method}", metric, 3)


@table7.shows
def _(study):
    table = study.table("table7").query("dataset == 'cifar10'").set_index("method")
    of = dict(list(table.groupby("metric", sort=False)))
    time, sent = of["xi_p_1e-4s"]["paper"], of["scalars_down"]
    ratios = {
        "time per sample": (time / time["fedavg"], of["relative_time"]["value"]),
        "scalars received": tuple(sent[column] / sent.loc["fedavg", column] for column in ("paper", "value")),
    }
    long, many = (
        f"{own['pfedsim']:.2f} times as {what} (most: {label(own.idxmax())}, {own.max():.2f})"
        for what, (_, own) in zip(("long per training sample", "many scalars"), ratios.values(), strict=True)
    )
    yield f"Relative to FedAvg, pFedSim takes {long}, and a client receives {many}."
    figure, axes = plt.subplots(2, 1, figsize=(WIDE, 3.4), sharey=True)
    for ax, (title, pair) in zip(axes, ratios.items(), strict=True):
        for ratio, color, marker, name in zip(pair, (BLACK, RED), "|o", ("printed", "measured"), strict=True):
            look = {"color": color, "markersize": 12 if marker == "|" else 5, "label": name}
            ax.plot(ratio, list(map(label, ratio.index)), marker, **look)
        ax.set_title(f"{title}, relative to FedAvg", loc="left")
        ax.margins(y=0.15)
    axes[0].invert_yaxis()  # FedAvg, the first one, on top
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    yield figure


@item("Table 8(a): images of each domain.", rows="domain", digits=0)
def table8a(sizes):
    task = Probe("table8a", domain_sizes, (sizes.domains[0],), sizes.domains[0], exact=True)
    for name in sizes.domain_names:
        yield Cell("partition", "domainnet", f"domain={name}", (task,), name.lower(), "num_samples")


@drawing("Fig. 5(a): one class in all domains.")
def fig5a(study):  # the data of Table 8(a)
    """One image of the same class from each domain."""
    [cell, *_] = [cell for cell in study.cells if cell.item == "table8a"]
    data = images(cell.tasks[0].images)
    figure, axes = panels(len(data.domains), 1.5, across=3)
    for d, ax in enumerate(axes):
        first = np.flatnonzero((data.domain == d) & (data.y == 3))[0]
        ax.imshow(data.x[first].transpose(1, 2, 0), cmap="gray_r")
        ax.set_title(data.domains[d])
        ax.axis("off")
    return figure


@drawing("Fig. 4: messages between clients and server in the two phases.", scheme=True)
def fig4(study):
    """Two diagrams of server and client; each arrow is labelled with the parameters that are sent."""
    phases = {
        "first rounds: one model (FedAvg)": ("server\n$\\theta$ = mean of all $\\theta_i$", r"$\theta_i$", r"$\theta$"),
        "later rounds: averages weighted by similarity": (
            r"$\Phi_{ij}$ from $\varphi_i, \varphi_j$;  $\omega_i' = \sum_j \Phi_{ij}\,\omega_j \,/ \sum_j \Phi_{ij}$",
            r"$\omega_i, \varphi_i$",
            r"$\omega_i', \varphi_i$",
        ),
    }
    figure, axes = panels(len(phases), 2.1, across=1)
    for ax, (title, (server, up, down)) in zip(axes, phases.items(), strict=True):
        for y, text in ((0.82, server), (0.16, "client $i$: $E$ epochs on its own images")):
            box(ax, (0.5, y), (0.92, 0.3), text, facecolor="#F2F2F0", edgecolor=GREY, linewidth=1)
        for x, start, end, text, color in ((0.3, 0.32, 0.66, up, RED), (0.7, 0.66, 0.32, down, BLUE)):
            arrow(ax, (x, start), (x, end), color)
            ax.text(x + 0.03, 0.49, text, va="center", color=color)
        ax.set(xlim=(0, 1), ylim=(0, 1))
        ax.set_title(title, loc="left")
        ax.axis("off")
    return figure
