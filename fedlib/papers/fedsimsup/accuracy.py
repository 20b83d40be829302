"""FedSimSup: accuracy of the methods (Tables 1 to 3), and over the rounds (Figs. 2 and 3)."""

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from fedlib.papers.fedsimsup.sizes import PROFILES, SHAPES, columns, first, mixed_run, seeds, table_run, weighted_run
from fedlib.report.panels import line_panels, method_panels
from fedlib.report.sentences import extremes, paired_difference, trend, who_leads
from fedlib.report.style import RED, data_label, label, setting_label
from fedlib.studies.item import Cell, item
from fedlib.studies.layout import parts_of
from fedlib.studies.partition_control import partition_control
from fedlib.studies.rows import Row

EARLY = 50  # the early round of claim fs10
EQUAL = "all $s_{ij}=1$"
PROTOCOLS = {"inferred": {"benchmark": True}, "text": {}}  # reading A26
TEXT_FIRST = dict(reversed(PROTOCOLS.items()))  # where few runs with the inferred settings are finished
last_five = partial(Row.score, last=5)  # accuracy [%], pooled over clients (readings A19 and A20)
DOTS = "Accuracy of each method: small dots are seeds, large ones their mean, black bars printed values."


def over_rounds(summary: Callable[[pd.Series], float], after: float, row: Row, until: float = np.inf) -> float:
    """A summary of the accuracies [%] evaluated after round `after`, up to round `until`."""
    return float(summary(row.curve().query("when == @row.when and @after < round <= @until")["accuracy"]))


def tenths(rounds: int) -> set[int]:
    """Ten evenly spaced rounds."""
    return {max(1, round(k * rounds / 10)) for k in range(1, 11)}


def partition_label(setting: str) -> str:
    """Label of a partition; "" for the one by writers."""
    return "".join(setting_label(part) for part in setting.split(";") if part.startswith(("dir=", "pat=")))


def place(study, data: str, setting: str) -> str:
    """Label of data, partition and number of clients."""
    clients = PROFILES[study.profile].clients
    n = int(parts_of(setting).get("clients", max(clients)))
    return ", ".join(filter(None, [data_label(data), partition_label(setting), f"{clients.get(n, n)} clients"]))


def chance(rows: pd.DataFrame) -> float:
    """Chance accuracy [%]: among a client's classes if all clients have equally many, else among all."""
    [dataset, setting] = rows[["dataset", "setting"]].iloc[0]
    return 100 / int(parts_of(setting).get("pat", SHAPES[dataset][1]))


def method_figure(table: str, study, reference: str = "chance"):
    """Accuracy by method, a panel for each column of a table."""
    return method_panels(study.numbers(table), title=partial(place, study), chance=chance, reference=reference)


def accuracies(sizes, where, methods, **protocol):
    """The numbers of Table 1 or 2."""
    for c, m in product(where, methods):
        yield Cell(m, c.dataset, c.setting, (table_run(sizes, c, m, **protocol),), last_five, seeds=seeds(sizes, m))


@item(
    "Table 1: accuracy [%], pooled over the test images of all clients, Dirichlet partitions.",
    alt=DOTS,
    protocols=PROTOCOLS,
)
def table1(sizes, **protocol):
    return accuracies(sizes, [*columns(sizes, "dir"), *columns(sizes, "natural")], sizes.methods, **protocol)


table1.draw(partial(method_figure, "table1"))
table1.says(lambda study: who_leads(study.numbers("table1"), "fedsimsup", name=partial(place, study)))

LINES = {label(method): (method, "clients=50;dir=0.1") for method in ("fedsimsup", "fedpac")}
# With seed 1, a client of the `quick` profile would have no test image.
other_partitions = partition_control(table1, "cifar10", LINES, seeds=(0, 2, 3))


@item(
    "Table 2: accuracy [%], pooled over the test images of all clients, pathological partitions.",
    alt=DOTS,
    protocols=PROTOCOLS,
)
def table2(sizes, **protocol):
    return accuracies(sizes, columns(sizes, "pat"), sizes.pathological_methods, **protocol)


table2.draw(partial(method_figure, "table2", reference="chance with c classes"))
table2.says(lambda study: who_leads(study.numbers("table2"), "fedsimsup", name=partial(place, study)))


def of_kind(kind: str, row: Row, original: Row | None = None, until: float = np.inf) -> float:
    """Accuracy [%] of the clients with this kind of supervisor, or their gain over the run with L for all clients."""
    who = row.kept.get(kind)
    if not who:
        return np.nan
    return last_five(row, clients=who) - (last_five(original, until=until, clients=who) if original else 0.0)


@item(
    "Table 3: accuracy [%] with randomly drawn supervisors, by kind and over all clients, and with L for all clients.",
    protocols=TEXT_FIRST,
)
def table3(sizes, **protocol):
    """Accuracy by kind of supervisor: small dots are seeds, large ones their mean, black bars printed values."""
    for column in columns(sizes, "dir"):
        mixed, original = mixed_run(sizes, column, **protocol), table_run(sizes, column, "fedsimsup", **protocol)
        cell = partial(Cell, dataset=column.dataset, setting=column.setting, seeds=sizes.seeds)
        yield cell("fedsimsup", tasks=(original,), read=partial(last_five, until=mixed.rounds))
        yield cell("fedsimsup-whole", tasks=(mixed,), read=last_five)
        for kind in "tcl":
            yield cell(f"fedsimsup-{kind}", tasks=(mixed,), read=partial(of_kind, kind))


@table3.shows
def _(study):
    names = {"fedsimsup-whole": "Mixed supervisors (second row)", "fedsimsup": "L for all clients"}
    text = paired_difference(study.numbers("table3"), *names, name=names.__getitem__)
    yield text and f"{text} The rows T, C and L average different clients; the next table compares the same clients."
    yield method_figure("table3", study)


@item(
    "Gain [points] of the clients with supervisor T, C or L over the same clients in the run with L for all clients.",
    protocols=TEXT_FIRST,
    explains=("table3",),
)
def table3_paired(sizes, **protocol):
    """Gain by kind of supervisor: small dots are seeds, large ones their mean; the dotted line is at no gain."""
    for column, kind in product(columns(sizes, "dir"), "tcl"):
        tasks = mixed_run(sizes, column, **protocol), table_run(sizes, column, "fedsimsup", **protocol)
        read = partial(of_kind, kind, until=tasks[0].rounds)
        yield Cell(f"fedsimsup-{kind}", column.dataset, column.setting, tasks, read, "gain", sizes.seeds)


@table3_paired.shows
def _(study):
    gains = study.means("table3_paired", "method")
    yield extremes(gains, "With mixed supervisors instead of L for all, the clients' gain", " points")
    look = {"xlabel": "gain over the same clients with L [points]", "reference": "no gain", "chance": 0.0}
    yield method_panels(study.numbers("table3_paired"), title=partial(place, study), **look)


@item(
    "Fig. 2: accuracy [%] over the rounds, its mean over the last tenth of the rounds, and its fluctuation.",
    digits=1,
    protocols=PROTOCOLS,
)
def fig2(sizes, **protocol):
    """Accuracy over the rounds, one line per method with its name at the end, and a line at chance."""
    most = [column for column in columns(sizes, "dir") if column.n == max(sizes.clients)]
    for c, m in product(most, sizes.methods):
        task, where = table_run(sizes, c, m, **protocol), f"{c.kind}={c.value:g}"
        cell = partial(Cell, m, c.dataset, tasks=(task,), seeds=seeds(sizes, m))
        for t in sorted(tenths(task.rounds) | {EARLY}):
            yield cell(setting=f"{where};round={t}", read=partial(Row.score, until=t))
        yield cell(setting=where, read=partial(over_rounds, pd.Series.mean, 0.9 * task.rounds), metric="last_tenth")
        changes = partial(over_rounds, lambda values: values.diff().std(), 0.8 * task.rounds)
        yield cell(setting=where, read=changes, metric="fluctuation")


@fig2.shows
def _(study):
    curves, look = study.curves("fig2").query("metric == 'last_tenth'"), {"ylim": (0, None), "sharex": False}
    texts = []
    for (data, setting), own in curves.query("method == 'fedsimsup'").groupby(["data", "setting"], sort=False):
        mean = own.groupby("round")["accuracy"].mean()
        start = f"On {place(study, data, setting)}, the accuracy of FedSimSup (red)"
        texts.append(trend(mean[mean.index >= mean.index[-1] / 2], "rounds", start))
    yield " ".join(filter(None, texts))
    yield line_panels(curves, "round", title=partial(place, study), chance=chance, y="accuracy", **look)


@item(
    "Fig. 3: accuracy [%] of FedSimSup over the rounds, with similarity weights and with equal weights.",
    rows="round",
    digits=1,
)
def fig3(sizes):
    """Accuracy with similarity weights (red) and equal weights (black); thin lines are seeds, thick ones means."""
    column = first(sizes)
    for similarity in (True, False):
        where, task = f"dir={column.value:g};similarity={similarity}", weighted_run(sizes, similarity)
        cell = partial(Cell, "fedsimsup", column.dataset, tasks=(task,), seeds=sizes.similarity_seeds)
        yield cell(setting=where, read=partial(over_rounds, pd.Series.mean, 0), metric="mean_over_rounds")
        for t in sorted(tenths(sizes.similarity_rounds)):
            yield cell(setting=f"{where};round={t}", read=partial(Row.score, until=t))


def last_round(numbers: pd.DataFrame) -> pd.DataFrame:
    """The numbers of the last round."""
    rounds = pd.to_numeric(numbers["round"])
    return numbers[rounds == rounds.max()]


@fig3.shows
def _(study):
    words, numbers = {"True": "similarity weights (red)", "False": "equal weights (black)"}, study.numbers("fig3")
    parts = {"Averaged over the rounds": numbers[numbers["round"].isna()], "After the last round": last_round(numbers)}
    texts = {when: paired_difference(part, "True", "False", "similarity", words.get) for when, part in parts.items()}
    yield " ".join(f"{when}, {text}" for when, text in texts.items() if text)
    curves = study.curves("fig3").query("metric == 'mean_over_rounds'")
    equal = curves["setting"].str.endswith("False").map({True: EQUAL, False: "weights $s_{ij}$"})
    look = {"named": str, "look": lambda name: {"color": "black" if name == EQUAL else RED}, "ylim": (0, None)}
    yield line_panels(curves.assign(line=equal), "round", (), chance=chance, y="accuracy", line="line", **look)
