"""FedCS: other readings of the method, and controls of Tables 1 to 3, except the main one (`scores.control`)."""

from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from fedlib.papers.fedcs.scores import CHANCE, CONTRASTS, F1, differences, named, score, when
from fedlib.papers.fedcs.sizes import BASES, CONTROL, FEW, METHODS, METRICS, PANELS, REP, TABLES, WHITE, run, run_on_few
from fedlib.report.panels import dumbbell_panels, method_panels, shaded_panels
from fedlib.report.sentences import beside_printed, extremes, nearest_kind, who_leads
from fedlib.report.style import BLUE, GREY, METRIC_LABELS, RED, data_label, label
from fedlib.studies.item import Cell, Item, enough, item

KEYS = ["data", "method", "metric"]
SHADED = {"named": named, "xlabel": "weighted F1 [%]"}
WORDS = {"paper": "rates as printed", "whitening": "whitening only", "uncentred": "batch means not subtracted"}
WORDS |= {"output": "module behind the layer", "shifted": "c centred", "shifted, beta 1": "c centred, β = 1"}


def reading_in_words(reading: str) -> str:
    """Describe a reading."""
    return WORDS.get(reading, reading.replace("rank", "P of rank"))


def f1(method: str, data: str, setting: str, task, seeds: int = 1) -> Cell:
    """Weighted F1 of a run."""
    return Cell(method, data, setting, (task,), partial(score, "f1", when(method)), "weighted_f1", seeds)


@item(
    "Other readings of FedCS at FC2 and their controls: weighted F1 [%], residual of S, J ratio of P.",
    rows="reading",
    explains=("table2",),
)
def other_readings(sizes):
    """Dots of weighted F1 for each reading of FedCS; a line for FedAvg."""
    for reading in ("default", *sizes.readings):
        task = run(sizes, sizes.side, "fedcs-fc2" if reading == "default" else f"fedcs-fc2;{reading}")
        yield f1("fedcs-fc2", sizes.side, f"reading={reading}", task)
        for metric, value in (("residual", "residual"), ("j_ratio", "J ratio")):
            yield Cell("fedcs-fc2", sizes.side, f"reading={reading}", (task,), value, metric)
    if sizes.full:
        yield f1("fedsim", sizes.side, "reading=default", run(sizes, sizes.side, "fedsim"))


@other_readings.shows
def _(study):
    numbers = enough(study.numbers("other_readings", metric="weighted_f1").query("method == 'fedcs-fc2'"))
    pairs = ("default", "whitening"), *((rank, f"{rank}, whitening") for rank in ("rank 10", "rank 30"))
    quoted = {"name": lambda name: f'"{reading_in_words(name)}"'}
    told = extremes(numbers.groupby("reading")["value"].mean(), "Weighted F1", **quoted)
    yield f"{told} {differences(numbers, *pairs, column='reading', **quoted)}".strip()
    table = TABLES[numbers["dataset"].iloc[0]]
    fedavg = study.means(table, "method", metric="weighted_f1").get("fedavg", float("nan"))
    lines = numbers["reading"].map(reading_in_words)
    look = {name: RED if name == "default" else BLUE if "whitening" in name else GREY for name in lines}
    text = {"named": str, "xlabel": "weighted F1 [%]", "reference": "FedAvg", "chance": fedavg}
    yield method_panels(numbers.assign(method=lines), ["data"], look=lambda name: {"color": look[name]}, **text)


@item(
    "Control: weighted F1 [%] of FedAvg, whitening only, and FedCS at FC2; figure and sentence use their common seeds.",
    rows="dataset",
    digits=1,
    explains=("table2", "table3"),
)
def learned_directions(sizes):
    """For every data set a dot of weighted F1 for FedAvg, whitening only and FedCS."""
    for data, (method, of) in product(sizes.data if sizes.full else (), CONTROL.items()):
        if method != "fedavg+bn":
            yield f1(method, data, "at=fc2", run(sizes, data, of))


@learned_directions.shows
def _(study):
    numbers = study.numbers("learned_directions")
    measured = numbers.groupby(["data", "seed"])["method"].transform("nunique")
    numbers = numbers[measured == measured.groupby(numbers["data"]).transform("max")]  # the common seeds
    table = numbers.pivot_table(index="data", columns="method", values="value", sort=False)
    table, told = table.reindex(columns=["fedcs-fc2", WHITE, "fedavg"]), []
    words = "The learned directions (red minus blue) change", "Whitening alone (blue minus black) changes"
    for text, (one, other) in zip(words, CONTRASTS, strict=True):
        means = (table[one] - table[other]).dropna()
        gaps = ", ".join(f"{gap:+.1f} points ({data_label(str(data))})" for data, gap in means.items())
        told += [f"{text} weighted F1 by {gaps}."] if gaps else []
    yield " ".join(told)
    yield method_panels(numbers, ["data"], **F1)


def show_pairs(one: Item, settings: tuple[str, str], words: tuple[str, str]) -> None:
    """Draw and describe the mean F1 of every method in two settings."""

    @one.shows
    def _(study):
        numbers = study.numbers(one.name)
        means = numbers.pivot_table(index=["data", "method"], columns="setting", values="value", sort=False)
        means = means.reindex(columns=settings).dropna()
        change = enough(means[settings[1]] - means[settings[0]]).droplevel(0)
        low, high = (f"{change[name]:+.1f} points ({label(name)})" for name in (change.idxmin(), change.idxmax()))
        start = f"Weighted F1 {words[1]} (filled dots) minus that {words[0]} (hollow dots)"
        yield f"{start} ranges from {low} to {high}: {(change > 0).sum()} of {len(change)} methods gain."
        yield dumbbell_panels(means, words, CHANCE, **F1)


@item("Weighted F1 [%] without momentum and with momentum 0.9.", digits=1, explains=("table2",))
def momentum(sizes):
    """For every method a line from its weighted F1 without momentum to that with momentum 0.9."""
    for method in sizes.second:
        shown = WHITE if method == CONTROL[WHITE] else method
        more = run(sizes, sizes.side, method, momentum=0.9, lr=sizes.second_lr)
        yield f1(shown, sizes.side, "momentum=0", run(sizes, sizes.side, method))
        yield f1(shown, sizes.side, "momentum=0.9", more, sizes.second_seeds)


show_pairs(momentum, ("momentum=0", "momentum=0.9"), ("without momentum", "with momentum 0.9"))


def with_printed(study, name: str) -> pd.DataFrame:
    """The numbers of a control with those printed in Tables 1 to 3 (column paper)."""
    numbers = enough(study.numbers(name)).drop(columns="paper")
    printed = study.printed[study.printed["item"].isin(TABLES.values())]
    printed = printed.rename(columns={"mean": "paper", "dataset": "data"})  # of the paper's data only
    spread = printed.assign(metric=printed["metric"] + "_std", paper=printed["std"])  # over clients
    return numbers.merge(pd.concat([printed, spread])[[*KEYS, "paper"]], how="left", on=KEYS)


PERSONAL_PARTS = {"classifier": "a personal classifier", "linear layers": "personal linear layers"}


@item(
    "Tables 1 and 2 with fewer images: weighted F1 [%], and its standard deviation over clients [points], by the "
    "number of images of all clients together.",
    rows="dataset",
    digits=1,
    explains=("table1", "table2"),
)
def fewer_images(sizes):
    """Weighted F1 of every method on MNIST and CIFAR-10, darker with more images; black bars are printed values."""
    for data, steps in FEW.items() if sizes.full else ():
        for images, method in product((*steps, 0), METHODS):
            cell = f1(method, data, f"images={images or 'all'}", run_on_few(sizes, data, method, images))
            yield cell
            yield cell._replace(read=partial(score, "f1", when(method), what=np.std), metric="weighted_f1_std")


@fewer_images.shows
def _(study):
    numbers = with_printed(study, "fewer_images").sort_values("images", key=partial(pd.to_numeric, errors="coerce"))
    numbers["kind"] = [data_label(f"{n} images{' in all' * (n != 'all')}") for n in numbers["images"]]
    texts = []
    for (data, metric), own in numbers.groupby(["data", "metric"], sort=False):
        start = f"On {data_label(data)}, {'for the standard deviation over clients, ' * metric.endswith('_std')}the"
        texts.append(nearest_kind(own, KEYS, start=start))
    yield " ".join(filter(None, texts))
    yield shaded_panels(numbers[numbers["metric"] == "weighted_f1"], "kind", **SHADED)


@item(
    "Personal layers of FedRep: scores [%] in Tables 1 to 3 (MNIST: 5,000 images) with a personal classifier and with "
    "all linear layers personal.",
    rows="dataset",
    digits=1,
    alt="FedRep's weighted AUC and F1 by data set: light with a personal classifier, dark with all linear layers "
    "personal; black bars are printed values.",
    explains=tuple(TABLES.values()),
)
def personal_layers(sizes):
    parts = dict(zip(PERSONAL_PARTS, ("fedrep", REP), strict=True)) if sizes.full else {}
    for data, (part, method), (metric, short) in product(TABLES, parts.items(), METRICS.items()):
        task = run_on_few(sizes, data, method)
        yield Cell("fedrep", data, f"personal={part}", (task,), partial(score, short, "after"), metric)


@personal_layers.shows
def _(study):
    numbers = with_printed(study, "personal_layers").sort_values("personal", kind="stable")
    numbers = numbers.assign(kind=numbers["personal"].map(PERSONAL_PARTS))
    yield nearest_kind(numbers, KEYS)
    numbers = numbers.assign(method=numbers["data"].map(data_label))
    yield shaded_panels(numbers, "kind", ["metric"], METRIC_LABELS.get, named=str, xlabel="score [%]")


@item("Weighted F1 [%] of other methods without and with the alignment of FedCS.", digits=1)
def aligned_methods(sizes):
    """For every method a line from its weighted F1 without the alignment to that with it."""
    for base in BASES if sizes.full else ():
        yield f1(base, sizes.side, "alone", run(sizes, sizes.side, base))
        yield f1(base, sizes.side, "aligned", run(sizes, sizes.side, f"fedcs-fc2;{base}"))


show_pairs(aligned_methods, ("alone", "aligned"), ("without alignment", "with alignment"))


@item("Weighted F1 [%] at other levels of label shift.", digits=1)
def label_shift(sizes):
    """Dots of weighted F1 for several methods at two levels of label shift."""
    for level, method in product((0.1, 1.0) if sizes.full else (), (*PANELS, "fedavg+bn")):  # A20
        yield f1(method, sizes.side, f"dir={level}", run(sizes, sizes.side, method, level))


label_shift.draw(lambda study: method_panels(study.numbers("label_shift"), **F1))
label_shift.says(lambda study: who_leads(study.numbers("label_shift"), "fedcs-fc1"))


@item("Weighted F1 [%] of Table 2 after more rounds and epochs.", digits=1, explains=("table2",))
def longer_training(sizes):
    """Weighted F1 of two methods: light as in Table 2, dark after more training; black bars are printed values."""
    for method in ("fedavg+bn", "fedcs-fc2") if sizes.full else ():
        task = run(sizes, sizes.side, method, rounds=500, local_epochs=5, evaluate_every=50)
        yield f1(method, sizes.side, "rounds=500;epochs=5", task)


@longer_training.shows
def _(study):
    numbers = study.numbers("table2", "longer_training", metric="weighted_f1")
    numbers = numbers[numbers["method"].isin(numbers.loc[numbers["item"] == "longer_training", "method"])]
    kinds = {"table2": "with the training of Table 2", "longer_training": "after 500 rounds of 5 epochs"}
    numbers = numbers.assign(what=numbers["method"].map(named), kind=numbers["item"].map(kinds))
    yield beside_printed(numbers, "weighted F1")
    yield shaded_panels(numbers, "kind", **SHADED)
