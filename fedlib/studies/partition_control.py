"""The control of the partition: numbers of a table with other divisions of the images among the clients."""

from collections.abc import Mapping, Sequence
from itertools import product

import pandas as pd

from fedlib.report.panels import in_words, method_panels
from fedlib.report.sentences import in_pairs
from fedlib.report.style import GREY, METRIC_LABELS, method_style
from fedlib.studies.item import Item, enough, item

Lines = Mapping[str, tuple[str, str]]  # method and setting by name in the figure, beginning with the paper's method


def partition_control(
    table: Item, dataset: str, lines: Lines, metric: str = "accuracy", seeds: Sequence[int] = (0, 1, 2)
) -> Item:
    """Some numbers of a table, on one of the paper's data sets and with a metric in percent, with other partitions."""
    # All seeds of a number in a table have the same partition, so their deviation does not contain its effect. Here the
    # seed of the run is 0 and the partition varies, the same for all methods; the first of `seeds` is the table's.
    names, words = {key: name for name, key in lines.items()}, METRIC_LABELS.get(metric, metric)

    @item(
        f"Control: {words} [%] with three partitions of the images; the figure has seed 0.",
        name="other_partitions",
        rows="partition",
        alt=f"Small dots are the {words} with each partition, large dots their means, black bars printed values.",
        explains=(table.name,),
    )
    def control(sizes):
        for cell, seed in product(table.cells(sizes), seeds):
            if (cell.method, cell.setting) in names and (cell.dataset, cell.metric) == (dataset, metric):
                other = tuple(task._replace(federate={**task.federate, "seed": seed}) for task in cell.tasks)
                setting, tasks = f"{cell.setting};partition={seed}", other if seed else cell.tasks
                yield cell._replace(setting=setting, tasks=tasks, seeds=1)

    def named(numbers: pd.DataFrame) -> pd.DataFrame:
        """The numbers of the control, or those in the table, with their names (line)."""
        numbers = enough(numbers[numbers["dataset"] == dataset])
        keys = zip(numbers["method"], numbers["setting"].str.replace(r";partition=\d+$", "", regex=True), strict=True)
        return enough(numbers.assign(line=[names.get(key) for key in keys]).dropna(subset="line"))

    @control.shows
    def _(study):
        numbers = named(study.numbers(control.name)).query("seed == 0")
        usual = named(study.numbers(table.name, metric=metric))
        values = numbers.pivot_table(index="partition", columns="line", values="value", sort=False).dropna(axis=1)
        enough(values[1:])
        over, of_seeds = values.std(), usual.groupby("line")["value"].std()
        told = [
            f"{line} {std:.1f}{f' ({of_seeds[line]:.1f})' if of_seeds[line] >= 0 else ''}" for line, std in over.items()
        ]
        first, *others = (line for line in lines if line in values)
        gaps = [f"{first} minus {line} is {in_pairs((values[first] - values[line]).to_numpy())}." for line in others]
        start = f"The standard deviation of {words} over {len(values)} partitions (over seeds) is, in points:"
        yield " ".join([f"{start} {', '.join(told)}.", *gaps])
        rows = numbers.assign(method=numbers["line"], paper=numbers["line"].map(usual.groupby("line")["paper"].first()))
        own, colors = next(iter(lines.values()))[0], {}
        for line, (method, _) in lines.items():
            colors[line] = GREY if colors and method == own else method_style(method)["color"]
        look = {"look": lambda line: {"color": colors[line]}, "named": str}
        yield method_panels(rows, ["data"], in_words, **look, xlabel=f"{words} [%]")

    return control
