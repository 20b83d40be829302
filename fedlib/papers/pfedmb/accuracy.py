"""pFedMB: accuracy of the methods (Tables I and II, Fig. 4), and by the number of branches (Table III, Fig. 5)."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.papers.pfedmb.measure import accuracy, best, best_of, best_rows, chosen, reported_curve, rounds_to
from fedlib.papers.pfedmb.sizes import FIG5, PAIRED, PAIRS, B, Column, Sizes, columns, tried, tried_on_pairs
from fedlib.report.panels import line_panels, method_panels
from fedlib.report.sentences import trend, who_leads
from fedlib.report.style import GREY, label, method_style
from fedlib.studies.item import Cell, item
from fedlib.studies.partition_control import partition_control
from fedlib.studies.rows import Row

COLUMN, AT = ("dataset", "setting"), ("dataset", "at")  # columns that name the panels
PARTITIONS = {"pairs=5": "five pairs", "classes=2": "two classes each", "dir=0.4": "Dir(0.4)"}
PARTITIONS |= {"classes=20": "twenty classes each (CIFAR-100)"}


def place(dataset: str, setting: str) -> str:
    """Label of a column of Table II, or of the setting of Table I."""
    clients, kind = setting.split(";")[:2]
    return f"{clients.removeprefix('clients=')} clients, {PARTITIONS[kind]}"


def chance(rows: pd.DataFrame) -> float:
    """Chance accuracy [%] if all clients have two classes in equal shares, otherwise NaN."""
    return 50.0 if {"pairs=5", "classes=2"} & {*rows["setting"].iloc[0].split(";")} else np.nan


@item("Table I: accuracy [%] on the five pairs after fine-tuning, mean over clients.")
def table1(sizes):
    """Accuracy of four methods: small dots are seeds, large ones their mean, black bars printed values."""
    for method in PAIRED:
        yield Cell(method, "cifar10", PAIRS, tried_on_pairs(sizes, method), accuracy, seeds=sizes.seeds)


table1.draw(lambda study: method_panels(study.numbers("table1"), COLUMN, place, chance, best_first=True, sharex=False))
table1.says(lambda study: who_leads(study.numbers("table1"), "pfedmb", COLUMN, place))


@item(
    "Fig. 4: accuracy [%] after fine-tuning by round; table: rounds to 99 % of another method's final accuracy.",
    digits=1,
)
def fig4(sizes):
    """Accuracy of four methods over the rounds; thin lines are seeds, thick ones their mean."""
    for aim, method in product(("pfedmb-avg", "fedavg"), PAIRED):
        ours = tried_on_pairs(sizes, method)
        tasks, read = (*ours, *tried_on_pairs(sizes, aim)), partial(rounds_to, len(ours))
        yield Cell(method, "cifar10", f"{PAIRS};aim={aim}", tasks, read, "rounds", sizes.seeds)


@fig4.shows
def _(study):
    rounds = study.numbers("fig4").groupby(["aim", "method"])["value"].mean()
    last, texts = max(task.rounds for cell in study.cells if cell.item == "fig4" for task in cell.tasks), []
    for aim in ("fedavg", "pfedmb-avg"):
        if {(aim, "pfedmb"), (aim, aim)} <= {*rounds.index}:
            ours, theirs = (f"{n:.3g}" if n <= last else f"more than {last}" for n in rounds[aim][["pfedmb", aim]])
            texts.append(f"of {label(aim)} after {ours} rounds ({label(aim)} itself: {theirs})")
    start = "Averaged over seeds, the running mean of pFedMB over five rounds reaches 99 % of the final accuracy"
    yield f"{start} {' and '.join(texts)}." if texts else ""
    rows = [(method, row) for method in PAIRED for row in best_rows(study, "table1", method)]
    frame = pd.concat(reported_curve(row).reset_index().assign(method=m, seed=row.seed) for m, row in rows)
    yield line_panels(frame, "round", (), chance=50.0, y="client_mean", height=2.6)


@item("Table II: accuracy [%] after fine-tuning, mean over clients.")
def table2(sizes):
    """Accuracy of the methods as dots, one panel for each partition; black bars are printed values."""
    for at, method in product(columns(sizes), sizes.methods):
        yield Cell(method, at.data, at.setting, tried(sizes, at, method), accuracy, seeds=sizes.seeds)


table2.draw(lambda study: method_panels(study.numbers("table2"), COLUMN, place, chance, best_first=True, sharex=False))
table2.says(lambda study: who_leads(study.numbers("table2"), "pfedmb", COLUMN, place))


@item("Table III: number of branches with the highest validation accuracy.", digits=0)
def table3(sizes):
    for at in columns(sizes):
        tasks = tried(sizes, at, "pfedmb", [*sizes.branches, *sizes.more_branches])
        yield Cell("pfedmb", at.data, at.setting, tasks, branches_of_best, "num_branches", sizes.table3_seeds)


def branches_of_best(*rows: Row) -> float:
    """The number of branches of the best run."""
    return float(best(rows).facts["config"]["hyper"]["branches"])


@table3.says
def _(study):
    printed = study.printed.query("item == 'table3'").set_index([*COLUMN])["mean"]
    groups = study.numbers("table3").groupby([*COLUMN], sort=False)["value"]
    words = [
        f"{', '.join(map('{:.0f}'.format, seeds))} with {place(*key)} (printed: {printed[key]:.0f})"
        for key, seeds in groups
    ]
    return f"Number of branches with the highest validation accuracy, by seed: {'; '.join(words)}."


def of_column(sizes: Sizes, at: Column, further: Sequence[int] = ()) -> Iterator[Cell]:
    """The cells of a column for every number of branches; one branch is FedAvg."""
    for b in (*sizes.branches, *sizes.more_branches, *further, 1):
        tasks = tried(sizes, at, "pfedmb", [b]) if b > 1 else tried(sizes, at, "fedavg")
        for metric in ("accuracy", "validation", *(("clients_per_branch", "largest_alpha") if b > 1 else ())):
            yield Cell("pfedmb", at.data, f"{at.setting};branches={b}", tasks, partial(chosen, metric), metric)


def along(study, name: str, *items: str) -> pd.DataFrame:
    """Accuracies of some items; columns: the number `name` in their settings, and the rest of the setting (at)."""
    frame = study.numbers(*items, metric="accuracy")
    number = frame["setting"].str.extract(rf";{name}=([^;]*)", expand=False).astype(float)
    return frame.assign(at=frame["setting"].str.replace(rf";{name}=[^;]*", "", regex=True), **{name: number})


def by_branches(study, *items: str) -> pd.DataFrame:
    """Accuracy by the number of branches, for columns with at least two; in Table I FedAvg has one, pFedMB five."""
    frame = along(study, "branches", *items)
    frame = frame[frame["method"].isin(["fedavg", "pfedmb"])]
    branches = frame["branches"].fillna(frame["method"].map({"fedavg": 1.0, "pfedmb": float(B)}))
    frame = frame.assign(branches=branches.astype(int), method="pfedmb").sort_values([*AT], kind="stable")
    return frame[frame.groupby([*AT])["branches"].transform("nunique") > 1]


def branch_panels(frame: pd.DataFrame) -> Figure:
    """A panel for each column: accuracy against the number of branches."""
    figure = line_panels(frame, "branches", AT, place, chance, look=method_style, height=2.2)
    for ax in figure.axes:
        middle, half = np.mean(ax.get_ylim()), max(3.0, np.ptp(ax.get_ylim()) / 2)  # at least 6 points
        ax.set_ylim(middle - half, middle + half)
    figure.axes[-1].set(xlabel="branches (1: FedAvg)", xticks=sorted({*frame["branches"]}))
    return figure


def trend_by_column(frame: pd.DataFrame) -> str:
    """A sentence on the accuracy along the number of branches for each column."""
    means = {key: rows.groupby("branches")["value"].mean() for key, rows in frame.groupby([*AT])}
    return " ".join(trend(mean, "branches", f"With {place(*key)}, the accuracy") for key, mean in means.items())


@item("Fig. 5: accuracy [%] by the number of branches; thin lines are seeds.", rows="branches")
def fig5(sizes):
    """Accuracy of pFedMB against the number of branches, one panel for each data set and partition."""
    for at in columns(sizes):
        if (at.data, at.setting) == FIG5:
            yield from of_column(sizes, at, sizes.many_branches)


def still_rising(study, *items: str) -> str:
    """A sentence on the last two evaluations of the best runs, by number of branches, if many branches gain most."""
    gains = []
    for cell in (c for c in study.cells if c.item in items and c.metric == "accuracy"):
        for curve in map(reported_curve, best_of(study, cell.tasks)):
            if len(curve) > 1:
                column, _, branches = cell.setting.rpartition(";branches=")
                gains.append((cell.dataset, column, int(branches), curve.iloc[-1] - curve.iloc[-2]))
    table = pd.DataFrame(gains, columns=["data", "column", "branches", "gain"])
    table = table.pivot_table("gain", ["data", "column"], "branches")
    if table.shape[1] < 2:
        return ""
    few, *_, many = table
    mean = table[[few, many]].dropna().mean()  # over the columns that have both
    if not mean[many] > max(mean[few], 0.05):
        return ""
    text = f"by {mean[many]:+.1f} points with {many} branches and by {mean[few]:+.1f} with {few}"
    return f"Averaged over the columns, the accuracy changes between the last two evaluations {text}."


@fig5.shows
def _(study):
    frame = by_branches(study, "fig5", "branches")
    yield f"{trend_by_column(frame)} {still_rising(study, 'fig5', 'branches')}".strip()
    yield branch_panels(frame)


@item("Fig. 5 for the other columns of Table II, with clients per branch and the largest alpha.", rows="branches")
def branches(sizes):
    for at in columns(sizes):
        if (at.data, at.setting) != FIG5:
            yield from of_column(sizes, at)


LINES = {"pFedMB (two branches)": "clients=15;classes=2;branches=2", "FedAvg": "clients=15;classes=2;branches=1"}
other_partitions = partition_control(branches, "cifar10", {name: ("pfedmb", where) for name, where in LINES.items()})


@item("Section VI: accuracy [%] on the five pairs by the number of branches.", rows="branches", explains=("table1",))
def five_pairs(sizes):
    """Accuracy against the number of branches; a dashed line marks five, the number of groups."""
    for b in sizes.pair_branches:
        yield Cell("pfedmb", "cifar10", f"{PAIRS};branches={b}", tried_on_pairs(sizes, "pfedmb", b), accuracy)


@five_pairs.shows
def _(study):
    frame = by_branches(study, "table1", "five_pairs")
    yield trend_by_column(frame)
    figure = branch_panels(frame)
    [ax] = figure.axes
    if ax.lines:
        ax.axvline(5, color=GREY, linewidth=1, linestyle=(0, (4, 2)), zorder=0)
        ax.text(5, 1.0, "five groups", transform=ax.get_xaxis_transform(), color=GREY, ha="center", va="bottom")
    yield figure
