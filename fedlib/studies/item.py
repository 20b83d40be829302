"""A table or figure of a paper: its numbers, its drawing and its sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from fedlib.report.paper import PROTOCOLS
from fedlib.studies.rows import Row
from fedlib.studies.tasks import Images, Run, Task

if TYPE_CHECKING:
    from fedlib.studies.study import Study

Key = tuple[str, str, str, str, str]  # item, method, dataset, setting, metric
Read = Callable[..., float]  # (row of each task) -> number


class Unmeasured(Exception):
    """Too few numbers are measured for a figure or a sentence, which is then left out."""


def enough(values: Any, *names: str) -> Any:
    """Return the values, or of a series those with these names; raise `Unmeasured` if they are empty or incomplete."""
    if not len(values) or (names and not {*names} <= {*values.index}):
        raise Unmeasured
    return values[[*names]] if names else values


def means(numbers: pd.DataFrame, by: str, *names: str) -> pd.Series:
    """Mean values by the values of a column: all, or some `names` in order; `Unmeasured` if one has no number."""
    values = numbers.groupby(by, sort=False)["value"].mean()
    return enough(values, *names) if names else values


def final(*rows: Row) -> float:
    """Accuracy [%] of the last evaluation, pooled over all test images."""
    return rows[0].score()


class Answer(NamedTuple):
    """The answer to the question of a paper, made from its numbers."""

    says: str  # one or two sentences
    numbers: Sequence[tuple[str, str]]  # its three numbers as text, each with unit or meaning
    figure: str  # the item whose figure shows it


class Cell(NamedTuple):
    """One number of a table or figure.

    Attributes:
        method: the method, by its name in the library.
        dataset: the paper's data set.
        setting: setting of the number, as in the paper's `reported.csv`, such as "dir=0.1;rho=0.5".
        tasks: the runs or measurements behind the number.
        read: `read(*rows)` is the number, from one row of each task with the same seed; or the name of a kept value of
            the first task's row.
        metric: quantity.
        seeds: number of seeds.
        official: the same tasks on the paper's data, if `tasks` are on substitute data. They are run as well, and
            replace the substitutes of a data set as soon as at least as many of them are finished.
        item: the table or figure, as in the paper's `reported.csv`; filled in by `cells_of`.
        rounds: rounds of training behind a measurement; 0: the `tasks` are runs, whose settings have them.
    """

    method: str
    dataset: str
    setting: str
    tasks: tuple[Task, ...]
    read: Read | str = final
    metric: str = "accuracy"
    seeds: int = 1
    official: tuple[Task, ...] = ()
    item: str = ""
    rounds: int = 0

    @property
    def wanted(self) -> tuple[Task, ...]:
        """Substitute and official tasks."""
        return self.tasks + self.official

    @property
    def key(self) -> Key:
        """Identity of the number."""
        return self.item, self.method, self.dataset, self.setting, self.metric

    def number(self, *rows: Row) -> float:
        """The number, from one row of each task."""
        return float(rows[0].kept.get(self.read, nan)) if isinstance(self.read, str) else self.read(*rows)

    def shortened(self, printed: Mapping[str, int]) -> str:
        """The settings in which the training of its runs is shorter than `printed`, "100 of 1,000 rounds", or ""."""
        settings = [task.setting for task in self.tasks if isinstance(task, Run)]
        settings += [{**printed, "rounds": self.rounds}] if self.rounds else []
        used = {name: min((int(str(own[name])) for own in settings), default=most) for name, most in printed.items()}
        words = ((n, printed[name], name.replace("_", " ")) for name, n in used.items() if n < printed[name])
        return ", ".join(f"{n:,} of {most:,} {what}" for n, most, what in words)

    @property
    def stand_in(self) -> str:
        """Label of the substitute data: "digits for cifar10"; "" for the paper's data."""
        images = [task.images for task in self.tasks]
        return ", ".join(dict.fromkeys(f"{_label(i)} for {i.stands_for}" for i in images if i.stands_for))


@dataclass(eq=False, repr=False)
class Item:
    """A table or figure of a paper, or a control. Made by the decorator `item`.

    Attributes:
        name: as in the paper's `reported.csv`, or the name of a control.
        title: caption, with the unit.
        cells: `cells(sizes)` yields its numbers at one size.
        rows: row index of its table: "method", "dataset", "metric" or a part of the settings, such as "rho" of
            "dir=0.1;rho=0.5"; all else goes into the columns.
        digits: decimals.
        alt: alternative text of the figure.
        explains: the tables whose differences from the printed numbers this control examines.
        protocols: arguments of `cells` by protocol, a key of `PROTOCOLS`; the numbers of the first one are compared
            with the printed ones first. Default: the paper's text, with our readings where it is silent.
        scheme: True for a drawing without numbers.
        drawing: `drawing(study)` makes its figure, if it has one.
        sentence: `sentence(study)` describes and interprets its figure, if it has one.

    `drawing` and `sentence` are called if some numbers of the item are measured, or if it has none at this size; they
    may still find too few (`enough`). The numbers with another protocol belong to an item without a figure in `others`,
    whose name ends with the protocol.
    """

    name: str
    title: str
    cells: Callable[..., Iterable[Cell]] = lambda sizes: ()
    rows: str = "method"
    digits: int = 2
    alt: str = ""
    explains: Sequence[str] = ()
    protocols: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: {"text": {}})
    scheme: bool = False
    drawing: Callable[[Study], Figure] | None = None
    sentence: Callable[[Study], str] | None = None

    def __post_init__(self) -> None:
        self.protocol, *others = self.protocols
        self.others: list[Item] = []
        for other in others:
            name, title = f"{self.name}_{other}", f"{self.title[:-1]} ({PROTOCOLS[other]})."
            protocols = {other: self.protocols[other]}
            self.others.append(Item(name, title, self.cells, self.rows, self.digits, protocols=protocols))
        self.cells = partial(self.cells, **self.protocols[self.protocol])

    def draw(self, function: Callable[[Study], Figure]) -> Callable[[Study], Figure]:
        """Decorate the function that makes the figure."""
        self.drawing = function
        return function

    def says(self, function: Callable[[Study], str]) -> Callable[[Study], str]:
        """Decorate the function that makes the sentence."""
        self.sentence = function
        return function

    def shows(self, function: Callable[[Study], Iterator[Any]]) -> Callable[[Study], Iterator[Any]]:
        """Decorate the function that yields the sentence and then the figure, which is drawn only on request."""
        self.sentence = lambda study: next(function(study))
        self.drawing = lambda study: next(islice(function(study), 1, None))
        return function

    def __repr__(self) -> str:
        return f"Item({self.name!r})"


def item(title: str, *, name: str = "", **about: Any) -> Callable[[Callable[[Any], Iterable[Cell]]], Item]:
    """Decorate the function that yields the cells of a table or figure at one size; `about`: attributes of `Item`."""
    # `Item.shows`, `says` and `draw` decorate its sentence and its figure; `tests/invented` is an example.
    return lambda cells: Item(name or cells.__name__, title, cells, **{"alt": cells.__doc__ or "", **about})


def drawing(title: str, **about: Any) -> Callable[[Callable[[Study], Figure]], Item]:
    """Decorate the function that draws an item without numbers: a scheme, or a figure of the runs of other items."""
    return lambda made: Item(made.__name__, title, drawing=made, **{"alt": made.__doc__ or "", **about})


def items_in(*modules: Any) -> list[Item]:
    """All items defined in some modules, in the order of their definition, each followed by its `others`."""
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Item)]
    return [one for value in found for one in (value, *value.others)]


def cells_of(items: Iterable[Item], sizes: Any) -> list[Cell]:
    """The cells of all items at one size."""
    return [cell._replace(item=one.name) for one in items for cell in one.cells(sizes)]


def tasks_of(cells: Iterable[Cell]) -> dict[tuple[str, int], Task]:
    """The tasks of some cells, substitute and official ones, by name and seed."""
    return {(task.name, seed): task for cell in cells for task in cell.wanted for seed in range(cell.seeds)}


def replaced(cells: Sequence[Cell], others: Sequence[Cell], where: Callable[[Cell], bool]) -> list[Cell]:
    """Give cells with `where(cell)` the tasks of the `others` with their keys; their own tasks become `official`."""
    tasks = {cell.key: cell.tasks for cell in others}
    return [cell._replace(tasks=tasks[cell.key], official=cell.tasks) if where(cell) else cell for cell in cells]


def _label(images: Images) -> str:
    """Name of substitute data; for a part of the paper's own data, the number of images or of substitute sets."""
    if images.name != images.stands_for:
        return images.name
    sets = dict(images.options).get("domains", ())
    return f"{images.few} images of {images.name}" if images.few else f"{len(sets)} substitute sets"
