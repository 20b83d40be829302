"""pFedSim's tables and figures, drawn from what was measured, and what they say."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedlib.papers.pfedsim.measure import LABELS, LAYERS, PAIRS, VARIANTS
from fedlib.report.charts import plot_heatmaps, plot_points
from fedlib.report.marks import arrow, box, dots, name_ends, panels, plot_nothing, seeds_and_mean
from fedlib.report.paper import against_seeds, beside_printed, points_ahead
from fedlib.report.partition_plots import plot_partition
from fedlib.report.style import BLUE, GREY, ORANGE, PALETTE, RED, WIDE, data_label, label, method_style
from fedlib.studies.layout import parts_of
from fedlib.studies.rows import Row
from fedlib.studies.study import Item, Study
from fedlib.studies.tasks import images

WEIGHTS = {  # the similarities of the control: name and colour
    "per_class": ("pFedSim", RED),
    "log_of_mean": ("log of the mean cosine", ORANGE),
    "mean_cos": ("mean cosine", ORANGE),
    "uniform": ("all the same", BLUE),
    "shuffled": ("dealt out at random", BLUE),
    "none (FedPer)": ("FedPer", GREY),
}
SIGNALS = {"WDB": "BatchNorm statistics", "MDB": "updates", "LDB": "losses", "CS": "classifiers"}


def rows_behind(study: Study, item: str, **key: str) -> list[Row]:
    """The rows behind the numbers of an item with this method, data set or setting."""
    cells = [cell for cell in study.cells if cell.item == item]
    cells = [cell for cell in cells if all(getattr(cell, name) == value for name, value in key.items())]
    return [row for task in {t.name: t for c in cells for t in c.tasks}.values() for row in study.rows_of(task)]


def means(study: Study, item: str, metric: str = "") -> pd.Series:
    """Mean over seeds of every number of an item, by setting."""
    return study.numbers(item, metric=metric).groupby("setting", sort=False)["value"].mean()


# -- the measurement study ----------------------------------------------------------------------------------------


def fig1(study: Study) -> Figure:
    """CKA of all pairs of ten models, a map for each layer."""
    [row, *_] = rows_behind(study, "fig1")
    figure, axes = panels(len(LAYERS), 1.6, across=3, sharex=True, sharey=True, layout="compressed")
    for ax, k in zip(axes, LAYERS, strict=True):
        ax.imshow(np.array(row.kept[f"matrix {k}"]), vmin=0, vmax=1)
        ax.set(title=f"layer {k}" if k < 4 else "classifier", xlabel="client", ylabel="client")
        ax.set(xticks=range(0, 10, 3), yticks=range(0, 10, 3))
        ax.grid(False)
        ax.label_outer()
    figure.colorbar(axes[0].images[0], ax=axes, label="linear CKA", fraction=0.05, aspect=20)
    return figure


def fig1_says(study: Study) -> str:
    """Compare the first layer with the last."""
    values = means(study, "fig1")
    first, last = values[["layer=0", "layer=4"]]
    return (
        f"Look at the diagonal of the last map: different models agree to {first:.2f} in the first layer and to "
        f"{last:.2f} in the classifier, so the classifier is where the clients' data {_leave(first - last)}."
    )


def _leave(gap: float) -> str:
    return "leave their trace" if gap > 0.1 else "should leave their trace, but hardly do here"


def table2(study: Study) -> Figure:
    """What each measure says of the four pairs, against their data similarity."""
    values = study.numbers("table2").pivot_table(index=["setting", "seed"], columns="method", values="value")
    figure, axes = panels(len(SIGNALS), 1.6, sharex=True)
    for ax, (name, words) in zip(axes, SIGNALS.items(), strict=True):
        color = RED if name == "CS" else GREY
        for _, one in values.groupby("seed"):
            one = one.sort_values("DataSimilarity")
            ax.plot(one["DataSimilarity"], one[name], color=color, linewidth=0.8, marker="o", markersize=3)
        ax.set_title(words, loc="left", color=color if name == "CS" else "black")
        ax.set(xlabel="data similarity", ylabel="measured")
    for ax in axes[:2]:
        ax.set_xlabel("")
    return figure


def table2_says(study: Study) -> str:
    """Which measures keep the order of the pairs."""
    values = means(study, "fig2")
    tau = {name: values[f"tau {name}"] for name in SIGNALS}
    best = [words for name, words in SIGNALS.items() if tau[name] == max(tau.values())]
    return (
        "Look for a line that only rises: Kendall's tau with the data similarity is "
        + ", ".join(f"{tau[name]:.2f} for {words}" for name, words in SIGNALS.items())
        + f". The order of the pairs is told best by {' and '.join(best)}."
    )


def fig2(study: Study) -> Figure:
    """Cosines of the classifiers' rows by class; a frame where only one client of the pair has the class."""
    found = rows_behind(study, "fig2")
    mean = np.array([np.mean([row.kept[f"rows {pair}"][:10] for row in found], axis=0) for pair in PAIRS])
    figure = plot_heatmaps(
        [np.column_stack([mean, mean.mean(1)])],
        [""],
        rows=list(PAIRS),
        columns=[*map(str, range(10)), "mean"],
        vmin=min(0.0, float(mean.min())),
        xlabel="class",
        ylabel="pair",
        bar="cosine",
        width=WIDE,
    )
    for y, (i, j) in enumerate(PAIRS.values()):
        for c in range(10):
            if (c in LABELS[i]) != (c in LABELS[j]):
                figure.axes[0].add_patch(Rectangle((c - 0.47, y - 0.47), 0.94, 0.94, fill=False, edgecolor=RED))
    return figure


def fig2_says(study: Study) -> str:
    """Compare framed cells with the others."""
    values = means(study, "fig2")
    gap = values["gap"]
    verb = "smaller" if gap > 0 else "not always smaller"
    return (
        f"Look at the framed cells, a class that only one of the two clients owns: their cosine is {verb}; within a "
        f"pair the gap of the means is at least {gap:.2f}."
    )


def fig3(study: Study) -> Figure:
    """Who owns how many images of which class, at both levels of label skew."""
    cells = [cell for cell in study.cells if cell.item == "table4" and cell.metric == "std_of_sizes"]
    cells = [cell for cell in cells if cell.dataset == "cifar10"]
    figure, axes = panels(len(cells), 2.0, across=1, sharex=True)
    for ax, cell in zip(axes, cells, strict=True):
        [row, *_] = rows_behind(study, "table4", dataset="cifar10", setting=cell.setting)
        plot_partition(np.array(row.kept["counts"]), ax)
        ax.set_title(f"Dir({cell.setting.removeprefix('dir=')})", loc="left")
        ax.label_outer()
    return figure


# -- accuracy -----------------------------------------------------------------------------------------------------


def table3(study: Study) -> Figure:
    """Accuracy of every method, beside the paper."""
    return plot_points(study.points("table3"), chance=guess(study))


def table3_says(study: Study) -> str:
    """Where pFedSim stands."""
    table = study.numbers("table3")
    table = table.pivot_table(index=["data", "setting"], columns="method", values="value", sort=False)
    table = table[table["pfedsim"].notna()] if "pfedsim" in table else table.iloc[:0]
    texts = []
    for (data, setting), row in table.iterrows():
        rivals = row.drop("pfedsim").dropna()
        lead = row["pfedsim"] - rivals.max()
        texts.append(f"with {data_label(data)}, {setting} {points_ahead(lead, label(str(rivals.idxmax())))}")
    return f"Look at the last line of each panel: pFedSim is {', and '.join(texts)}, the best other." if texts else ""


def curves(study: Study) -> Figure:
    """Accuracy over the rounds, a panel for each level of label skew."""
    cells = [cell for cell in study.cells if cell.item == "table3"]
    places = dict.fromkeys((cell.dataset, cell.setting) for cell in cells)
    frames = {place: _curves(study, *place) for place in places}
    frames = {place: frame for place, frame in frames.items() if len(frame)}
    if not frames:
        return plot_nothing()
    figure, axes = panels(len(frames), 2.2, across=1, sharex=True)
    for ax, ((dataset, setting), frame) in zip(axes, frames.items(), strict=True):
        ends = {}
        for method, own in frame.groupby("method", sort=False):
            style, table = method_style(str(method)), own.pivot_table(index="round", columns="seed", values="accuracy")
            ends[label(str(method))] = seeds_and_mean(ax, table, style["color"], linestyle=style["linestyle"])
        ax.set(ylim=(0, 100), ylabel="accuracy [%]")
        ax.set_title(f"{data_label(dataset)}, {setting}" if study.profile == "paper" else setting, loc="left")
        name_ends(ax, ends, guess(study))
    axes[-1].set_xlabel("round")
    return figure


def guess(study: Study) -> float:
    """What guessing would give [%]; the data here have ten classes, those of the paper more or less."""
    return np.nan if study.profile == "paper" else 10.0


def _curves(study: Study, dataset: str, setting: str) -> pd.DataFrame:
    methods = dict.fromkeys(cell.method for cell in study.cells if cell.item == "table3")
    frames = [pd.DataFrame()]
    for method in methods:
        for row in rows_behind(study, "table3", method=method, dataset=dataset, setting=setting):
            curve = row.curve()
            frames.append(curve[curve["when"] == row.when].assign(method=method, seed=row.seed))
    return pd.concat(frames, ignore_index=True)


def table6(study: Study) -> Figure:
    """Accuracy against the share of the warm-up: seeds as thin lines, the paper dotted."""
    measured, printed = study.numbers("table6", metric="accuracy"), study.table("table6")
    measured = measured.assign(rho=measured["rho"].astype(float))
    printed = printed[printed["paper"].notna()]
    rho, alpha = ([float(parts_of(setting)[name]) for setting in printed["setting"]] for name in ("rho", "dir"))
    printed = printed.assign(rho=rho, dir=[f"{a:g}" for a in alpha])
    places = list(measured.groupby(["dataset", "dir"], sort=False))
    if not places:
        return plot_nothing()
    figure, axes = panels(len(places), 2.2, across=1, sharex=True)
    for ax, ((dataset, alpha), here) in zip(axes, places, strict=True):
        end = seeds_and_mean(ax, here.pivot_table(index="rho", columns="seed", values="value"), RED, marker="*")
        paper = printed[(printed["dataset"] == dataset) & (printed["dir"] == alpha)].set_index("rho")["paper"]
        ax.plot(paper.index, paper, ":", color=GREY, marker="x")
        ax.set(title=f"{data_label(here['data'].iloc[0])}, dir={alpha}", ylabel="accuracy [%]", ylim=(0, 100))
        name_ends(ax, {"measured": end, f"paper, {data_label(dataset)}": (1.0, paper.iloc[-1], GREY)}, guess(study))
    axes[-1].set_xlabel(r"share $\rho$ of the rounds that are FedAvg")
    return figure


def table6_says(study: Study) -> str:
    """The best share, and its distance to none and to all."""
    texts = []
    for place, values in _by_rho(study).items():
        best = values.idxmax()
        ends = {0.0: "without a warm-up", 1.0: "as FedAvg alone"}  # as far as they have been measured
        lost = [
            f", {text} it loses {values[best] - values[rho]:.1f} points" for rho, text in ends.items() if rho in values
        ]
        texts.append(f"with {place} the best of {len(values)} shares is {best:g}{''.join(lost)}")
    return f"Look at both ends of the line: {'; '.join(texts)}." if texts else ""


def _by_rho(study: Study) -> dict[str, pd.Series]:
    rows = study.numbers("table6", metric="accuracy")
    groups = rows.assign(rho=rows["rho"].astype(float)).groupby(["data", "dir"], sort=False)
    return {f"{data_label(data)}, dir={alpha}": own.groupby("rho")["value"].mean() for (data, alpha), own in groups}


# -- what the server knows ----------------------------------------------------------------------------------------


def learned(study: Study) -> Figure:
    """Phi and the data similarity as means over clients with these main classes."""
    rows = [row for row in rows_behind(study, "learned") if "phi" in row.kept]
    if not rows:
        return plot_nothing()
    figure, axes = plt.subplots(1, 2, figsize=(WIDE, 2.7), sharey=True, layout="compressed")
    for ax, name, title in zip(axes, ("phi", "truth"), (r"the server's $\Phi$", "data similarity"), strict=True):
        values = np.array(rows[0].kept[name])
        image = ax.imshow(np.where(values < 0, np.nan, values), cmap="viridis", vmin=0)
        ax.set(title=title, xlabel="main class of client $j$")
        ax.set(xticks=range(0, len(values), 3), yticks=range(0, len(values), 3))
        ax.grid(False)
        figure.colorbar(image, ax=ax, location="bottom", aspect=20)
    axes[0].set_ylabel("main class of client $i$")
    return figure


def learned_says(study: Study) -> str:
    """How closely Phi follows the data similarity."""
    taus = means(study, "learned", "tau").round(2)
    return (
        "Look at the diagonal: clients with the same main class. Over all pairs that were sampled together, Kendall's "
        "tau of Phi with the data similarity is "
        f"{', '.join(f'{tau:.2f} ({setting})' for setting, tau in taus.items())}."
    )


def stages(study: Study) -> Figure:
    """How closely classifiers follow the data, by the rounds of FedAvg before and by the similarity."""
    measured = study.numbers("stages", metric="tau")
    if measured.empty:
        return plot_nothing()
    measured = measured.assign(round=measured["round"].astype(int))
    figure, ax = plt.subplots(figsize=(WIDE, 2.6))
    ends = {}
    for (kind, cap), color in zip(VARIANTS, PALETTE, strict=False):
        some = measured[measured["setting"].str.endswith(f"similarity={kind};cap={cap:g}")]
        if len(some):
            name = "mean cosine" if kind == "mean_cos" else f"eq. (3), cap {cap:g}"
            table = some.pivot_table(index="round", columns="seed", values="value")
            ends[name] = seeds_and_mean(ax, table, color, marker="o")
    ax.set(xlabel="rounds of FedAvg before", ylabel="Kendall's $\\tau$ with\nthe data similarity")
    name_ends(ax, ends)
    return figure


def stages_says(study: Study) -> str:
    """When classifiers say most."""
    mean = means(study, "stages", "tau")
    if mean.empty:
        return ""
    paper = mean[mean.index.str.endswith("similarity=per_class;cap=0.0001")]
    best, at = paper.max(), float(parts_of(str(paper.idxmax()))["round"])
    return (
        f"Look at the lines from left to right: equation (3) follows the data best after {at:.0f} rounds of FedAvg "
        f"(tau {best:.2f}), with tau {paper.iloc[-1]:.2f} after the last; the best of all variants reaches "
        f"{mean.max():.2f}."
    )


def weights(study: Study) -> Figure:
    """pFedSim with weights that do not say who is alike; the axis goes two points beyond the dots."""
    numbers = study.numbers("weights")
    if numbers.empty:
        return plot_nothing()
    lines = []
    for similarity, own in numbers.groupby("similarity", sort=False):
        name, color = WEIGHTS[str(similarity)]
        lines.append((name, own["value"].tolist(), color))
    figure, ax = plt.subplots(figsize=(WIDE, 0.3 * len(lines) + 0.8))
    dots(ax, lines)
    ax.set(xlabel="accuracy [%]", xlim=(numbers["value"].min() - 2, numbers["value"].max() + 2))
    return figure


def weights_says(study: Study) -> str:
    """Whether the weights matter, on the seeds that have all three kinds."""
    kinds = ["similarity=per_class", "similarity=uniform", "similarity=shuffled"]
    by_seed = study.numbers("weights").pivot_table(index="seed", columns="setting", values="value")
    by_seed = by_seed.reindex(columns=kinds).dropna()
    if by_seed.empty:
        return ""
    ours, *blind = by_seed.mean()
    gain, spread = ours - max(blind), float(study.table("weights")["std"].max())
    if np.isnan(spread):  # one seed
        verdict = ""
    elif abs(gain) <= spread:
        verdict = ": whose extractor it is does not matter here"
    else:
        verdict = ": it matters who is similar to whom" if gain > 0 else ": blind weights are better here"
    return (
        f"Look at the distance of pFedSim's own weights to the better blind ones: {gain:+.1f} points, "
        f"{against_seeds(gain, spread)}{verdict}."
    )


def protocol_says(study: Study) -> str:
    """How far every method is from the printed number, with both protocols."""
    frame = study.numbers("protocol")
    if frame.empty:
        return ""
    table3 = study.numbers("table3").query("dataset == 'cifar10' and setting == 'dir=0.1'")
    printed = table3.groupby("method")["paper"].first()
    kinds = {"ours": "with ours", "published": "with the published protocol"}
    frame = pd.concat([frame[frame["protocol"] == protocol] for protocol in kinds])  # ours first
    frame = frame.assign(what=frame["method"].map(label), kind=frame["protocol"].map(kinds))
    return beside_printed(frame.assign(paper=frame["method"].map(printed)))


# -- costs, domains, the idea -------------------------------------------------------------------------------------


def table7(study: Study) -> Figure:
    """Time and traffic relative to FedAvg."""
    table = study.table("table7")
    table = table[table["dataset"] == "cifar10"]
    figure, axes = plt.subplots(2, 1, figsize=(WIDE, 3.4), sharey=True)
    of = {name: one.set_index("method") for name, one in table.groupby("metric", sort=False)}
    time, sent = of["xi_p_1e-4s"]["paper"], of["scalars_down"]
    shown = {
        "time per sample": (time / time["fedavg"], of["relative_time"]["value"]),
        "scalars received": tuple(sent[column] / sent.loc["fedavg", column] for column in ("paper", "value")),
    }
    for ax, (title, ratios) in zip(axes, shown.items(), strict=True):
        for ratio, color, marker, name in zip(ratios, (GREY, RED), "xo", ("paper", "measured"), strict=True):
            ax.plot(ratio, list(map(label, ratio.index)), marker, color=color, label=name)
        ax.set_title(f"{title}, relative to FedAvg", loc="left")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def table8(study: Study) -> Figure:
    """Accuracy of every method in every domain."""
    table = study.table("table8")
    table = table[table["n_seeds"] > 0]
    if table.empty:
        return plot_nothing()
    grid = table.assign(share=table["value"] / 100, domain=table["setting"].str.removeprefix("domain="))
    grid = grid.pivot_table(index="method", columns="domain", values="share", sort=False)
    names = [label(str(name)) for name in grid.index]
    columns = list(map(str, grid.columns))
    return plot_heatmaps([grid.to_numpy()], [""], rows=names, columns=columns, bar="accuracy", width=WIDE)


def fig5a(study: Study) -> Figure:
    """One picture of the same class from each domain."""
    [task, *_] = [task for cell in study.cells if cell.item == "table8a" for task in cell.tasks]
    data = images(task.images)
    figure, axes = panels(len(data.domains), 1.5, across=3)
    for d, ax in enumerate(axes):
        first = np.flatnonzero((data.domain == d) & (data.y == 3))[0]
        ax.imshow(data.x[first].transpose(1, 2, 0), cmap="gray_r")
        ax.set_title(data.domains[d])
        ax.axis("off")
    return figure


def fig4(study: Study) -> Figure:
    """One round of each phase: what goes up and what comes down."""
    phases = {
        "first rounds: one model (FedAvg)": ("server\n$\\theta$ = mean of all $\\theta_i$", r"$\theta_i$", r"$\theta$"),
        "later rounds: similar clients share": (
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


SHOWN = {
    "table2": Item(
        "Table 2: what four similarities say of four pairs of clients, whose data similarity is known.",
        draw=table2,
        alt="Four panels, a measure each: its value for four pairs of clients against their data similarity.",
        says=table2_says,
        digits=3,
    ),
    "table3": Item(
        "Table 3: accuracy [%] of every method, pooled over the test images of all clients.",
        draw=table3,
        alt="Points by method, measured and printed, one panel for each level of label skew.",
        says=table3_says,
    ),
    "fig1": Item(
        "Fig. 1: how alike ten models are that were trained alone, layer by layer (linear CKA, mean over pairs).",
        rows="layer",
        draw=fig1,
        alt="Five heat maps of CKA between ten models, one for each layer.",
        says=fig1_says,
        digits=3,
    ),
    "fig2": Item(
        "Fig. 2: cosine of the classifiers' rows by pair of clients and class.",
        rows="setting",
        draw=fig2,
        alt="Heat map of cosines, four pairs by ten classes; frames mark classes that only one client owns.",
        says=fig2_says,
        digits=3,
    ),
    "fig3": Item(
        "Fig. 3: how many images of every class each client owns.",
        draw=fig3,
        alt="Circles by client and class, their area the number of images, for Dir(0.1) and Dir(0.5).",
    ),
    "fig4": Item(
        "Fig. 4: what goes up and down in a round of the two phases.",
        draw=fig4,
        alt="Two drawings of server and client; arrows are labelled with what is sent.",
    ),
    "curves": Item(
        "Accuracy over the rounds, mean and spread over seeds.",
        draw=curves,
        alt="Accuracy of every method over the rounds, one panel for each level of label skew.",
    ),
    "table6": Item(
        "Table 6: accuracy [%] of pFedSim by the share of rounds that are FedAvg.",
        rows="rho",
        draw=table6,
        alt="Accuracy against the share of the warm-up, measured and printed.",
        says=table6_says,
    ),
    "learned": Item(
        "What the server knows at the end: agreement of Phi with the data similarity (Kendall's tau, Pearson's r).",
        rows="rho",
        draw=learned,
        alt="Two heat maps by main class of two clients: the server's similarity, and the data similarity.",
        says=learned_says,
        digits=3,
    ),
    "stages": Item(
        "When classifiers know whose data is alike: agreement with the data similarity after rounds of FedAvg.",
        rows="round",
        draw=stages,
        alt="Kendall's tau against the number of rounds of FedAvg, a line for each similarity.",
        says=stages_says,
        digits=3,
    ),
    "weights": Item(
        "A control: accuracy [%] with weights that do not say who is alike, and with other similarities.",
        rows="similarity",
        draw=weights,
        alt="Points of accuracy by kind of similarity.",
        says=weights_says,
    ),
    "protocol": Item(
        "The published protocol: BatchNorm statistics stay on the clients, pixels up to 255; accuracy [%].",
        says=protocol_says,
    ),
    "table1": Item("Table 1, measured: what methods send [models], and whether they look at the data of others."),
    "table4": Item("Table 4: what the partitions give.", rows="metric", digits=0),
    "table5": Item("Table 5: parameters of LeNet5 by layer.", rows="layer", digits=0),
    "table7": Item(
        "Table 7: time [1e-4 s] of a client per sample that it trains on, also over FedAvg's, and scalars per round.",
        draw=table7,
        alt="Time and traffic of every method relative to FedAvg; the printed times beside the measured ones.",
    ),
    "table8": Item(
        "Table 8: accuracy [%] by domain, without label skew.",
        draw=table8,
        alt="Heat map of accuracy, methods by domains.",
    ),
    "table8a": Item("Table 8(a): images of each domain.", rows="domain", digits=0),
    "fig5a": Item(
        "Fig. 5(a): one class in all domains.",
        draw=fig5a,
        alt="One picture of the same class from each domain.",
    ),
    "table9": Item("Table 9: parameters of MobileNetV2 by block, for 200 classes.", rows="layer", digits=0),
}
