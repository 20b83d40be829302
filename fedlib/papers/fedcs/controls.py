"""FedCS: other readings of the method, and controls of Tables 1 to 3; `control` stands beside the tables."""

from functools import partial
from itertools import product

import pandas as pd

from fedlib.papers.fedcs.scores import CHANCE, CONTRASTS, F1, differences, named, score, when
from fedlib.papers.fedcs.sizes import BASES, CONTROL, METHODS, PANELS, WHITE, run, run_on_few
from fedlib.report.panels import dumbbell_panels, method_panels, shaded_panels
from fedlib.report.sentences import beside_printed, extremes, nearer_to_print, who_leads
from fedlib.report.style import BLUE, GREY, RED, data_label, label
from fedlib.studies.item import Cell, Item, enough, item

SHADED = {"named": named, "xlabel": "weighted F1 [%]"}


def f1(method: str, data: str, setting: str, task, seeds: int = 1) -> Cell:
    """Weighted F1 of a run."""
    return Cell(method, data, setting, (task,), partial(score, "f1", when(method)), "weighted_f1", seeds)


@item(
    "Other readings of FedCS at FC2 and their controls: weighted F1 [%], residual of S, J ratio of P.",
    rows="reading",
    alt="Dots of weighted F1 for each reading of FedCS; a line for FedAvg.",
    explains=("table2",),
)
def readings(sizes):
    for reading in ("default", *sizes.readings):
        task = run(sizes, sizes.side, "fedcs-fc2" if reading == "default" else f"fedcs-fc2;{reading}")
        yield f1("fedcs-fc2", sizes.side, f"reading={reading}", task)
        for metric, value in (("residual", "residual"), ("j_ratio", "J ratio")):
            yield Cell("fedcs-fc2", sizes.side, f"reading={reading}", (task,), value, metric)
    if sizes.full:
        yield f1("fedsim", sizes.side, "reading=default", run(sizes, sizes.side, "fedsim"))


def by_reading(study) -> pd.DataFrame:
    """F1 of FedCS at FC2 by reading."""
    return enough(study.numbers("readings", metric="weighted_f1").query("method == 'fedcs-fc2'"))


@readings.draw
def _(study):
    fedavg, numbers = study.means("control", "method").get("fedavg", float("nan")), by_reading(study)
    lines = numbers["reading"].replace("paper", "rates as printed")
    look = {name: RED if name == "default" else BLUE if "whitening" in name else GREY for name in lines}
    text = {"named": str, "xlabel": "weighted F1 [%]", "reference": "FedAvg", "chance": fedavg}
    return method_panels(numbers.assign(method=lines), ["data"], look=lambda name: {"color": look[name]}, **text)


@readings.says
def _(study):
    numbers = by_reading(study)
    pairs = ("default", "whitening"), *((rank, f"{rank}, whitening") for rank in ("rank 10", "rank 30"))
    quoted = {"name": '"{}"'.format}
    told = extremes(numbers.groupby("reading")["value"].mean(), "Weighted F1", **quoted)
    return f"{told} {differences(numbers, *pairs, column='reading', **quoted)}".strip()


@item(
    "Control: contribution of the learned directions; weighted F1 [%] of FedAvg, whitening only, and FedCS at FC2.",
    rows="dataset",
    digits=1,
    alt="For every data set a dot of weighted F1 for FedAvg, whitening only and FedCS.",
    explains=("table2", "table3"),
)
def directions(sizes):
    for data, (method, of) in product(sizes.data if sizes.full else (), CONTROL.items()):
        if method != "fedavg+bn":
            yield f1(method, data, "at=fc2", run(sizes, data, of))


directions.draw(lambda study: method_panels(study.numbers("directions"), ["data"], **F1))


@directions.says
def _(study):
    groups = study.numbers("directions").groupby("data", sort=False)
    told = {data_label(data): differences(numbers, *CONTRASTS) for data, numbers in groups}
    return " ".join(f"{data}: {text}" for data, text in told.items() if text)


def show_pairs(one: Item, settings: tuple[str, str], words: tuple[str, str]) -> None:
    """Draw and describe the mean F1 of every method in two settings, over the seeds that have both."""

    def means(study) -> pd.DataFrame:
        keys = ["data", "method", "seed"]
        table = study.numbers(one.name).pivot_table(index=keys, columns="setting", values="value", sort=False)
        return table.reindex(columns=settings).dropna().groupby(keys[:2], sort=False).mean()

    one.draw(lambda study: dumbbell_panels(means(study), words, CHANCE, **F1))

    @one.says
    def _(study):
        change = means(study)[settings[1]] - means(study)[settings[0]]
        told = ", ".join(f"{points:+.1f} points ({label(method)})" for (_, method), points in change.items())
        return f"Weighted F1, {words[1]} minus {words[0]}: {told}." if told else ""


@item(
    "Weighted F1 [%] without momentum and with momentum 0.9.",
    digits=1,
    alt="For every method a line from its weighted F1 without momentum to that with momentum 0.9.",
    explains=("table2",),
)
def momentum(sizes):
    for method in sizes.second:
        shown = WHITE if method == CONTROL[WHITE] else method
        more = run(sizes, sizes.side, method, momentum=0.9, lr=sizes.second_lr)
        yield f1(shown, sizes.side, "momentum=0", run(sizes, sizes.side, method))
        yield f1(shown, sizes.side, "momentum=0.9", more, sizes.second_seeds)


show_pairs(momentum, ("momentum=0", "momentum=0.9"), ("no momentum", "momentum 0.9"))


@item(
    "Table 1 with fewer images: weighted F1 [%] by the total number of images of all clients.",
    digits=1,
    alt="Weighted F1 of every method on MNIST, darker with more images; red bars are printed values.",
    explains=("table1",),
)
def few(sizes):
    for images, method in product((2000, 5000, 10000, "all") if sizes.full else (), METHODS):
        task = run(sizes, "mnist", method) if images == "all" else run_on_few(sizes, method, images)
        yield f1(method, "mnist", f"images={images}", task)


def by_images(study) -> pd.DataFrame:
    """F1 by method and number of images (kind), and the printed one."""
    numbers, printed = study.numbers("few"), study.table("table1").query("metric == 'weighted_f1'")
    paper = numbers["method"].map(printed.set_index("method")["paper"])
    return numbers.assign(kind=numbers.get("images", "") + " images", paper=paper)


few.draw(lambda study: shaded_panels(by_images(study), "kind", **SHADED))


@few.says
def _(study):
    numbers = by_images(study)
    table = numbers.pivot_table(index="method", columns="kind", values="value", sort=False)
    printed = numbers.groupby("method")["paper"].first()
    return nearer_to_print(table.sub(printed, axis="index").dropna().abs())


@item(
    "Weighted F1 [%] of other methods without and with the alignment of FedCS.",
    digits=1,
    alt="For every method a line from its weighted F1 without the alignment to that with it.",
)
def plug_in(sizes):
    for base in BASES if sizes.full else ():
        yield f1(base, sizes.side, "alone", run(sizes, sizes.side, base))
        yield f1(base, sizes.side, "aligned", run(sizes, sizes.side, f"fedcs-fc2;{base}"))


show_pairs(plug_in, ("alone", "aligned"), ("alone", "aligned"))


@item(
    "Weighted F1 [%] at other levels of label shift.",
    digits=1,
    alt="Dots of weighted F1 for several methods at two levels of label shift.",
)
def alpha(sizes):
    for level, method in product((0.1, 1.0) if sizes.full else (), (*PANELS, "fedavg+bn")):  # A20
        yield f1(method, sizes.side, f"dir={level}", run(sizes, sizes.side, method, level))


alpha.draw(lambda study: method_panels(study.numbers("alpha"), **F1))
alpha.says(lambda study: who_leads(study.numbers("alpha"), "fedcs-fc1"))


@item(
    "Weighted F1 [%] of Table 2 after more rounds and epochs.",
    digits=1,
    alt="Weighted F1 of two methods: light as in Table 2, dark after more training; red bars are printed values.",
    explains=("table2",),
)
def long(sizes):
    for method in ("fedavg+bn", "fedcs-fc2") if sizes.full else ():
        task = run(sizes, sizes.side, method, rounds=500, local_epochs=5, evaluate_every=50)
        yield f1(method, sizes.side, "rounds=500;epochs=5", task)


def by_length(study) -> pd.DataFrame:
    """F1 in Table 2 and after more training: method, what (its name), kind (the length in words), value, paper."""
    numbers = study.numbers("table2", "long", metric="weighted_f1")
    numbers = numbers[numbers["method"].isin(numbers.loc[numbers["item"] == "long", "method"])]
    kinds = {"table2": "with the training of Table 2", "long": "after 500 rounds of 5 epochs"}
    return numbers.assign(what=numbers["method"].map(named), kind=numbers["item"].map(kinds))


long.draw(lambda study: shaded_panels(by_length(study), "kind", **SHADED))
long.says(lambda study: beside_printed(by_length(study), "weighted F1"))
