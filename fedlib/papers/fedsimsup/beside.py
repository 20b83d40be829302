"""FedSimSup: controls beside what its Tables 1 and 2 print: another network, more rounds, from FedRep to FedPAC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from fedlib.papers.fedsimsup.draw import chance, curves, draw_curves, partition, where
from fedlib.report.marks import mark_chance, panels, plot_nothing, shaded_dots
from fedlib.report.sentences import against_seeds, beside_printed
from fedlib.report.style import BLACK, GREY, label, method_style
from fedlib.studies.layout import parts_of
from fedlib.studies.tasks import Task

if TYPE_CHECKING:
    from fedlib.studies.study import Study

STEPS = ("FedRep", "one epoch for the classifier", "classifiers combined", "features aligned (FedPAC)")
WIDTHS = {"lenet4": "32-64-512", "lenet5_plain": "6-16-120-84"}  # channels and units of the layers before the last


def network(study: Study) -> Figure:
    """Both networks, accuracy pooled over samples, and what is printed, a panel for each column of Tables 1 and 2."""
    return compared_by_place(study, by_network(study), "network")


def compared_by_place(study: Study, frame: pd.DataFrame, kind: str) -> Figure:
    """A panel for each column of Tables 1 and 2, a dot for each kind, and what is printed; `frame`: `beside_tables`."""
    if frame.empty:
        return plot_nothing()
    places = list(frame.assign(method=frame["method"].map(label)).groupby(["dataset", "place"], sort=False))
    heights = [0.8 + 0.32 * own["method"].nunique() for _, own in places]
    figure, axes = panels(len(places), heights, across=1, sharex=True)
    for ax, ((dataset, place), own) in zip(axes, places, strict=True):
        table = own.pivot_table(index="method", columns=kind, values="value", sort=False)
        table = table.reindex(columns=frame[kind].unique())  # the same shade in every panel
        shaded_dots(ax, table, own.groupby("method")["paper"].first())
        mark_chance(ax, chance(str(dataset), str(place)), "y")
        ax.set_title(where(study, own["item"].iloc[0], str(dataset), own["setting"].iloc[0]), loc="left")
        ax.set_ylim(-0.9, len(table) - 0.5)  # room for the word at the bottom
    axes[-1].set_xlabel("accuracy [%]")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    return figure


def by_network(study: Study) -> pd.DataFrame:
    """The numbers of the control "network", pooled over samples, beside what is printed."""
    frame = study.numbers("network")
    return beside_tables(study, frame[frame["accuracy"] == "samples"].replace({"network": WIDTHS}))


def beside_tables(study: Study, frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers of a control with the column of Table 1 or 2 that they belong to (place), and what it prints (paper)."""
    key = ["method", "dataset", "place"]
    printed = pd.concat([study.table(item) for item in ("table1", "table2")]).rename(columns={"setting": "place"})
    frame = frame.assign(place=frame["setting"].str.extract(r"^(clients=\d+;\w+=[\d.]+)", expand=False))
    frame = frame.drop(columns="paper").merge(printed[[*key, "paper"]], on=key, how="left")
    return frame.assign(paper=frame["paper"].where(frame["data"] == frame["dataset"]))  # not of data that stand in


def network_says(study: Study) -> str:
    """How far every method is from the printed number, with two readings of the network."""
    frame = by_network(study)
    if frame.empty:
        return ""
    text = beside_printed(frame.assign(what=in_place(frame), kind="with " + frame["network"]))
    return text and f"Look at which dots lie at the red bars: the paper does not give the widths of its network. {text}"


def in_place(frame: pd.DataFrame) -> pd.Series:
    """The method of every row of `beside_tables`, with its partition if there are several."""
    names = frame["method"].map(label)
    return names + ", " + frame["place"].map(partition) if len(set(frame["place"])) > 1 else names


def long(study: Study) -> Figure:
    """Accuracy over ten times as many rounds, and what is printed; a panel for each partition."""
    frame = study.numbers("long")
    if frame.empty:
        return plot_nothing()
    styles = {method: (label(method), method_style(method)["color"]) for method in frame["method"]}
    return curves_by_place(study, runs_by_place(study, "long"), styles, beside_tables(study, frame))


def runs_by_place(study: Study, item: str) -> dict[str, dict[str, Task]]:
    """The runs of a control that have been made, by the column that they belong to, and by step or method."""
    runs: dict[str, dict[str, Task]] = {}
    for cell in study.cells:
        if cell.item == item and study.rows_of(cell.tasks[0]):
            parts = parts_of(cell.setting)
            place = ";".join(f"{name}={parts[name]}" for name in ("clients", "dir"))
            runs.setdefault(place, {})[parts.get("step", cell.method)] = cell.tasks[0]
    return runs


def curves_by_place(
    study: Study, runs: Mapping[str, Mapping[str, Task]], styles: Mapping[str, tuple[str, str]], frame: pd.DataFrame
) -> Figure:
    """A panel of curves for each of `runs_by_place`, with crosses at what is printed; `frame`: as `beside_tables`."""
    printed = frame.groupby(["place", "method"])["paper"].first().dropna()
    figure, axes = panels(len(runs), 3.2 if len(runs) == 1 else 2.4, across=1)
    for ax, (place, own) in zip(axes, runs.items(), strict=True):
        found = curves(study, list(own.items()))
        for name in own:
            if (place, name) in printed:
                look = {"color": styles[name][1], "clip_on": False, "label": "paper"}
                ax.plot(found["round"].max(), printed[place, name], "x", **look)
        draw_curves(ax, found, styles, 10.0)
        if len(runs) > 1:
            ax.set_title(partition(place), loc="left")
    crosses = [line for ax in axes for line in ax.lines if line.get_label() == "paper"]
    if crosses:
        figure.legend(crosses[:1], ["paper"], loc="outside upper right", handlelength=1)
    return figure


def long_says(study: Study) -> str:
    """What ten times as many rounds change, and between which numbers the least steady method ends."""
    frame = study.numbers("long")
    if frame.empty:
        return ""
    frame = beside_tables(study, frame)
    frame = frame.assign(what=in_place(frame))
    points = frame[frame["metric"] == "accuracy"].assign(at=lambda own: own["round"].astype(int))
    ends = points[points["at"].isin([points["at"].min(), points["at"].max()])]
    text = beside_printed(ends.assign(kind="after " + ends["round"] + " rounds"))
    last = frame.pivot_table(index="what", columns="metric", values="value")
    name = (last["highest"] - last["lowest"]).idxmax()
    low, high = last.loc[name, ["lowest", "highest"]]
    told = f" In the last fifth {name}, the least steady one, is between {low:.1f} and {high:.1f}."
    return f"Look at what the later rounds change. {text}{told if len(last) > 1 else ''}"


def by_step(study: Study) -> pd.DataFrame:
    """The numbers of the control "to_fedpac", with its steps as methods; the ends beside what Table 1 prints."""
    frame = study.numbers("to_fedpac")
    ends = {STEPS[0]: "fedrep", STEPS[-1]: "fedpac"}
    frame = beside_tables(study, frame.assign(method=frame["step"].map(ends).fillna("")))
    return frame.assign(method=frame["step"])


def to_fedpac(study: Study) -> Figure:
    """Accuracy over the rounds after each change that leads from FedRep to FedPAC; a panel for each partition."""
    frame = by_step(study)
    if frame.empty:
        return plot_nothing()
    colours = [method_style("fedrep")["color"], GREY, BLACK, method_style("fedpac")["color"]]
    styles = {step: (step, str(colour)) for step, colour in zip(STEPS, colours, strict=True)}
    return curves_by_place(study, runs_by_place(study, "to_fedpac"), styles, frame)


def to_fedpac_says(study: Study) -> str:
    """What each change adds in its best round, which a run that diverges later has, too; where all have been run."""
    frame, declared, told = by_step(study), {cell.setting for cell in study.cells}, []
    for place, runs in runs_by_place(study, "to_fedpac").items():
        if len(runs) < sum(f"{place};step={step}" in declared for step in STEPS):
            continue
        found = curves(study, list(runs.items()))
        best = found.pivot_table(index="name", columns="seed", values="accuracy", aggfunc="max", sort=False)
        best = best.dropna(axis="columns")
        if best.empty:
            continue
        changes = best.diff().iloc[1:]
        change = changes.mean(axis="columns")
        most = str(change.abs().idxmax())
        points = ", ".join(f"{step} {value:+.1f}" for step, value in change.items())
        paper = frame[frame["place"] == place].groupby("method")["paper"].first()
        one, two = (
            f"{best.loc[step].mean():.1f}" + (f" (printed {paper[step]:.1f})" if paper.get(step, 0) > 0 else "")
            for step in (best.index[0], best.index[-1])
        )
        told.append(
            f" {partition(place)}: from FedRep, {one}, to FedPAC, {two}, in points: {points}. Most changes with "
            f"'{most}': {against_seeds(change[most], changes.loc[most].std())}."
        )
    return f"Look at the distances between the lines, here in the best round of each.{''.join(told)}" if told else ""


def fresh(study: Study) -> Figure:
    """FedRep with its classifiers as they are and trained again, and what is printed; a panel for each partition."""
    return compared_by_place(study, beside_tables(study, study.numbers("fresh")), "classifier")


def fresh_says(study: Study) -> str:
    """Whether FedRep is held back by classifiers that wait for their client while the body moves on."""
    frame = beside_tables(study, study.numbers("fresh"))
    if frame.empty:
        return ""
    text = beside_printed(frame.assign(what=in_place(frame), kind="with the classifier " + frame["classifier"]))
    return text and f"Look at the distance of the two dots: the body moves on while a client is away. {text}"
