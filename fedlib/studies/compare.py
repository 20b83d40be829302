"""`fl.compare`: a method in the setting of a paper's table, beside the methods of this table."""

from dataclasses import dataclass
from inspect import signature

import pandas as pd
from IPython.display import Image
from matplotlib.figure import Figure

from fedlib.algorithm import ALGORITHMS, Algorithm, resolve
from fedlib.checks import check_choice
from fedlib.report.explore import png
from fedlib.report.sentences import who_leads
from fedlib.report.style import label
from fedlib.report.templates import TEMPLATES
from fedlib.studies.study import Profile, Study, study
from fedlib.studies.tasks import Run, here


@dataclass(frozen=True, eq=False)
class Comparison:
    """A table of a paper with one more method; a notebook shows figure, table and sentence, `print` the latter two.

    Attributes:
        study: the study with the runs of the method.
        item: the table.
        method: name of the method in the table.
    """

    study: Study
    item: str
    method: str

    def __repr__(self) -> str:
        return f"Comparison({self.method} in {self.study.paper}/{self.item}, {self.study.profile})"

    def __str__(self) -> str:
        return f"{self.table.to_string()}\n{self.sentence}"

    def _repr_html_(self) -> str:
        about, picture = self.study.item(self.item), None
        if about.drawing:
            figure = self.figure
            picture = Image(png(figure, dpi=200), width=round(96 * figure.get_figwidth()))
        table = self.table.style.set_table_attributes('class="numbers"').to_html()
        parts = {"name": f"compare-{self.item}", "about": about, "says": self.sentence, "picture": picture}
        return TEMPLATES.get_template("item.html").render(**parts, table=table)

    @property
    def table(self) -> pd.DataFrame:
        """The printed numbers, those at full size, and those of this size, as text; see `Study.side_by_side`."""
        return self.study.side_by_side(self.item)

    @property
    def figure(self) -> Figure:
        """The figure of the table, with the method."""
        return self.study.figure(self.item)

    @property
    def sentence(self) -> str:
        """A comparison of the method with the best other one, in each column with numbers of both."""
        mine = next(c for c in self.study.cells if (c.item, c.method) == (self.item, self.method))
        return who_leads(self.study.numbers(self.item, metric=mine.metric), self.method)


def compare(
    table: str,
    algorithm: str | Algorithm,
    profile: Profile = "paper",
    seeds: int = 0,
    like: str = "",
    jobs: int | None = None,
    progress: bool = True,
) -> Comparison:
    """Run a method in the setting of a paper's table, and compare it with the methods of this table.

    At the paper's size the numbers of the other methods are the committed ones, so that only your method runs; columns
    whose data are not on this machine are left out. At the smaller sizes the other methods run, too.

    Args:
        table: paper and table: "pfedsim/table3"; `fl.study("pfedsim").items()` lists the tables.
        algorithm: the method, or its name.
        profile: "paper": the sizes of the paper; "quick": minutes on a laptop, without a download; "smoke": seconds.
        seeds: number of seeds of every run; 0: that of the profile.
        like: the method of the table whose model, sampling and fine-tuning are used. Default: FedAvg, or Local-Only in
            a table without FedAvg.
        jobs: processes, as in `fl.sweep`.
        progress: whether to show a bar.

    Returns:
        The comparison; `table`, `figure` and `sentence` are its parts, and a notebook shows all three.

    Raises:
        ValueError: the paper, the table or the method is unknown, the table compares no runs of different methods, or
            none of its data are on this machine.

    Example:
        >>> mine = fl.fedprox(mu=0.5)
        >>> comparison = fl.compare("pfedmb/table1", mine, profile="smoke", jobs=1, progress=False)
        >>> comparison
        Comparison(fedprox(mu=0.5) in pfedmb/table1, smoke)
        >>> comparison.table.index.tolist()
        ['Local-Only', 'FedAvg', 'pFedMB-avg', 'pFedMB', 'FedProx(mu=0.5)']
        >>> comparison.figure.axes[0].get_title("left")
        '10 clients, five pairs'
    """
    paper, slash, item = table.partition("/") if isinstance(table, str) else ("", "", "")
    if not slash:
        raise ValueError(f"table={table!r} is unknown; name paper and table, for example 'pfedsim/table3'.")
    whole, method = study(paper, profile, seeds), resolve(algorithm)
    check_choice("table", item, {cell.item for cell in whole.cells})
    theirs = [cell for cell in whole.cells if cell.item == item]
    methods = {cell.method for cell in theirs}
    check_choice("like", like, {"", *methods})
    asked, like = like, like or next((name for name in ("fedavg", "local_only") if name in methods), "")
    parameters = signature(ALGORITHMS[method.name]).parameters if method.name in ALGORITHMS else {}
    usual = all(parameter.default == method.hyper.get(name) for name, parameter in parameters.items())
    name = method.name if usual and method.name not in {*whole.table(item)["method"]} else str(method)
    label(name)  # raises if it is not registered
    mine = []
    for cell in (cell for cell in theirs if cell.method == like):
        names = {task.algorithm.name if isinstance(task, Run) else "" for task in cell.tasks}
        if len(names) == 1 and "" not in names:  # runs of one method, which become one if only hyper-parameters differ
            runs = {(run := task._replace(algorithm=method)).name: run for task in cell.tasks}
            mine.append(cell._replace(method=name, tasks=tuple(runs.values()), official=()))
    if not mine:
        if not asked:
            raise ValueError(f"table={table!r} compares no runs of FedAvg or Local-Only with those of other methods.")
        names = ", ".join(sorted(methods))
        raise ValueError(f"like={like!r} has no runs of its own in {table!r}; the methods of the table are {names}.")
    tasks = {task.name: task for cell in mine for task in cell.tasks}
    if not any(map(here, tasks.values())):
        names = ", ".join(sorted({task.images.name for task in tasks.values()}))
        raise ValueError(
            f"the data of {table!r} are not on this machine: {names}; load them first, or use profile='quick'."
        )
    older = whole.replace(cells=mine).stale
    whole = whole.replace(rows={key: row for key, row in whole.rows.items() if key not in older})
    ran = whole.replace(cells=mine if profile == "paper" else [*theirs, *mine]).run(jobs=jobs, progress=progress)
    return Comparison(ran.replace(cells=[*whole.cells, *mine]), item, name)
