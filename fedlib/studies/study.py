"""A study: what a paper's tables, figures and claims need, declared once."""

from __future__ import annotations

import importlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch

import fedlib as fl
from fedlib.checks import check_choice, check_count
from fedlib.report.paper import FOLDER, KEY, PAPERS, PROFILES, reported
from fedlib.studies import layout
from fedlib.studies import rows as row_files
from fedlib.studies.cost import hours
from fedlib.studies.differences import POINTS, differences, lost
from fedlib.studies.number import Number, missing
from fedlib.studies.rows import Row
from fedlib.studies.tasks import Images, Probe, Run, Task, here
from fedlib.studies.verdict import Case, Verdict, judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Profile = Literal["smoke", "quick", "paper"]
Rows = Mapping[tuple[str, int], Row]  # by task and seed
Key = tuple[str, str, str, str, str]  # item, method, dataset, setting, metric
Read = Callable[..., float]  # (row of each task) -> the number


def final(*rows: Row) -> float:
    """Accuracy [%] of the last evaluation, pooled over all test images."""
    return rows[0].score()


class Item(NamedTuple):
    """A table or figure, as it is shown.

    Attributes:
        title: what it is, in one sentence, with the unit.
        rows: what changes from row to row of its table: "method", "dataset", "metric" or a part of the settings, such
            as "rho" where they are "dir=0.1;rho=0.5". Everything else changes from column to column.
        draw: `draw(study)` is its figure; None: it has none.
        alt: what the figure shows, for those who do not see it.
        says: `says(study)` is what to look at and what it means, in one sentence made from the measured numbers.
        digits: decimals of its numbers.
    """

    title: str
    rows: str = "method"
    draw: Callable[[Study], Figure] | None = None
    alt: str = ""
    says: Callable[[Study], str] | None = None
    digits: int = 2


class Cell(NamedTuple):
    """One number of a table or figure.

    Attributes:
        item: the table or figure, as in the paper's `reported.csv`.
        method: the method, by the name used here.
        dataset: the paper's data set.
        setting: as the paper's number is indexed.
        tasks: the runs, or measurements, that the number is made of.
        read: `read(*rows)` is the number, one row for each of `tasks`, all of one seed.
        metric: what the number is.
        seeds: how many seeds.
        official: the same tasks on the paper's data, where `tasks` are on data that stand in for them. They are run as
            well, and count once as many numbers of a data set have been measured on them.
    """

    item: str
    method: str
    dataset: str
    setting: str
    tasks: tuple[Task, ...]
    read: Read = final
    metric: str = "accuracy"
    seeds: int = 1
    official: tuple[Task, ...] = ()

    @property
    def wanted(self) -> tuple[Task, ...]:
        """All tasks."""
        return self.tasks + self.official

    @property
    def key(self) -> Key:
        """What identifies the number."""
        return self.item, self.method, self.dataset, self.setting, self.metric


class Claim(NamedTuple):
    """How a claim is judged: `cases(numbers)` are its comparisons, `numbers(item, method, dataset, setting)` a number.

    Attributes:
        id: as in the paper's `claims.csv`, which has its words and its predicate.
        cases: the comparisons that it makes.
        quantifier: see `judge`.
        least: likewise.
        figure: the item that shows it.
    """

    id: str
    cases: Callable[[Numbers], Sequence[Case]]
    quantifier: Literal["all", "most", "identity"] = "all"
    least: int = 0
    figure: str = ""


class Numbers:
    """The measured numbers of a study, called with what identifies one; it notes what it is asked for."""

    def __init__(self, study: Study, measured: pd.DataFrame):
        printed = reported(study.paper).drop_duplicates(KEY)
        self._paper_std = (printed.set_index(KEY)["std"] / study.clients**0.5).to_dict()
        self._values = measured.groupby(KEY, sort=False)["value"].agg(list).to_dict() if len(measured) else {}
        self._stand_in = {cell.key: _stand_in(cell) for cell in study.cells}
        exact = [c for c in study.cells if c.tasks and all(isinstance(t, Probe) and t.exact for t in c.tasks)]
        self._exact = {cell.key for cell in exact}
        self.asked: list[Key] = []

    @property
    def seeds(self) -> str:
        """How many seeds the numbers have that it was asked for: "2", "1 to 3", or "" if none was measured by seeds."""
        n = {len(self._values[key]) for key in self.asked if key in self._values and key not in self._exact}
        return " to ".join(map(str, sorted({min(n), max(n)}))) if n else ""

    def __call__(self, item: str, method: str, dataset: str, setting: str, metric: str = "accuracy") -> Number:
        """The mean over seeds; its noise is the larger of their standard deviation and the paper's."""
        key = (item, method, dataset, setting, metric)
        self.asked.append(key)
        values = [value for value in self._values.get(key, []) if np.isfinite(value)]
        name = f"{method}, {dataset}, {setting}"
        if not values:
            return missing(name)
        ours = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        paper = self._paper_std.get(key, np.nan)
        noise = max(ours, 0.0 if np.isnan(paper) else float(paper))
        sure = len(values) > 1 or not np.isnan(paper) or key in self._exact
        return Number(float(np.mean(values)), noise, name, True, self._stand_in.get(key, ""), sure)


class Study(NamedTuple):
    """What a paper needs, at one size.

    Attributes:
        paper: one of `fl.report.PAPERS`.
        profile: "smoke", "quick" or "paper".
        cells: the numbers of all its tables and figures.
        claims: how each of its claims is judged.
        clients: the printed standard deviations are over so many clients, and the noise of a mean over them is smaller
            by the square root; 1: they are over seeds.
        shown: how its tables and figures are shown, by name.
        rows: what has been run, by task and seed. Default: the rows in `figures/reference/runs`.
        controls: for a table of the paper, the items that look for the cause where its numbers are not met.
    """

    paper: str
    profile: str
    cells: Sequence[Cell]
    claims: Sequence[Claim] = ()
    clients: int = 1
    shown: Mapping[str, Item] = {}
    rows: Rows | None = None
    controls: Mapping[str, Sequence[str]] = {}

    def __repr__(self) -> str:
        items, claims = len({cell.item for cell in self.cells}), len(self.claims)
        return f"Study({self.paper!r}, {self.profile!r}: {len(self.cells)} numbers of {items} items, {claims} claims)"

    def run(self, *items: str, jobs: int | None = None, progress: bool = True) -> Study:
        """Run what the items need and nobody has run yet; what is in the run store is read.

        Runs whose data would have to be downloaded first are left out, and it is said how many.

        Args:
            items: tables and figures; none: all.
            jobs: processes, as in `fl.sweep`.
            progress: whether to show a bar.

        Returns:
            The study with the new rows.

        Raises:
            ValueError: the study has no such item.

        Example:
            >>> import fedlib as fl
            >>> study = fl.study("pfedsim", "smoke").run("table4", progress=False)
            >>> study.table("table4").query("n_seeds > 0")["metric"].unique().tolist()
            ['num_samples', 'num_classes', 'samples_per_client', 'std_of_sizes']
        """
        for item in items:
            check_choice("item", item, {cell.item for cell in self.cells})
        known = self.known()
        cells = [cell for cell in self.cells if not items or cell.item in items]
        wanted = {(t.name, s): (t, s) for cell in cells for t in cell.wanted for s in range(cell.seeds)}
        todo = [wanted[key] for key in wanted if key not in known]
        there = [(task, seed) for task, seed in todo if here(task)]
        if len(there) < len(todo):
            names = sorted({task.images.name for task, _ in todo if not here(task)})
            print(f"{len(todo) - len(there)} runs are left out; their data are not here: {', '.join(names)}.")
        new = _run_all(there, jobs, progress)
        return self._replace(rows={**known, **new}).settled()

    def arguments(self, item: str, method: str, seed: int = 0) -> dict[str, Any]:
        """The arguments of `fl.run` for the first run of a method in an item, with its federation.

        Args:
            item: the table or figure.
            method: the method, as in its table.
            seed: the seed.

        Returns:
            The arguments by name.

        Raises:
            ValueError: the method has no run in this item.
        """
        cells = {cell.method: cell for cell in reversed(self.cells) if cell.item == item}
        check_choice(f"method of {item}", method, cells)
        [run, *_] = [task for task in cells[method].tasks if isinstance(task, Run)]
        return run.arguments(seed)

    def settled(self) -> Study:
        """The study with the official tasks of the data sets that have been measured on them as far as on others."""
        replaced = [cell for cell in self.cells if cell.official]
        if not replaced:
            return self
        done, measured = {name for name, _ in self.known()}, Counter[tuple[str, bool]]()
        for cell in replaced:
            for official, tasks in enumerate((cell.tasks, cell.official)):
                measured[cell.dataset, bool(official)] += done.issuperset(task.name for task in tasks)
        cells = [
            cell._replace(tasks=cell.official, official=())
            if cell.official and 0 < measured[cell.dataset, True] >= measured[cell.dataset, False]
            else cell
            for cell in self.cells
        ]
        return self._replace(cells=cells)

    def known(self) -> Rows:
        """What has been run, by task and seed."""
        return row_files.read(self.paper) if self.rows is None else self.rows

    def rows_of(self, task: Task) -> list[Row]:
        """The rows of a run, or of a measurement, by seed."""
        rows = [row for (name, _), row in self.known().items() if name == task.name]
        return sorted(rows, key=lambda row: row.seed)

    def numbers(self, *items: str, metric: str = "") -> pd.DataFrame:
        """The numbers of some items that have been measured, with the parts of their settings as further columns.

        Args:
            items: tables and figures.
            metric: only this one. Default: all.

        Returns:
            As `measured`, without values that are NaN, and with what is printed (paper; NaN if nothing is, or if other
            data stand in for the paper's), the data that were used (data: "cifar10", "digits for cifar10"), and the
            parts of the setting: "dir=0.1;rho=0.5" gives the columns dir and rho, which are text.
        """
        some = self._replace(cells=[c for c in self.cells if c.item in items and metric in ("", c.metric)])
        printed = reported(self.paper).drop_duplicates(KEY).set_index(KEY)["mean"].to_dict()
        stand_in = {cell.key: _stand_in(cell) for cell in some.cells}
        frame = some.measured().dropna(subset="value").reset_index(drop=True)
        keys = list(frame[KEY].itertuples(index=False, name=None))
        frame["paper"] = [np.nan if stand_in[key] else printed.get(key, np.nan) for key in keys]
        frame["data"] = [stand_in[key] or data for key, data in zip(keys, frame["dataset"], strict=True)]
        names = dict.fromkeys(name for cell in some.cells for name in layout.parts_of(cell.setting))
        parts = [layout.parts_of(setting) for setting in frame["setting"]]
        return frame.join(pd.DataFrame(parts, index=frame.index, columns=list(names)))

    def points(self, item: str) -> pd.DataFrame:
        """The numbers of an item for a chart, each with who says it.

        Returns:
            One row per number and source: row and place (what names it, see `Item.rows`), column (the place, with the
            data of this run), source ("paper", "full size" or "here"), value, std.
        """
        long = layout.long_table(self, self.at_full_size(), item)
        return long.loc[long["value"].notna(), ["row", "place", "column", "source", "value", "std"]]

    def only(self, *items: str) -> Study:
        """The study with the numbers of some items only."""
        return self._replace(cells=[cell for cell in self.cells if cell.item in items])

    def at_full_size(self) -> Study:
        """The study at the paper's size, with what has been measured of it."""
        return self if self.profile == "paper" else study(self.paper)

    def item(self, name: str) -> Item:
        """How an item is shown."""
        return self.shown.get(name, Item(name))

    def figure(self, item: str) -> Figure:
        """Draw an item.

        Args:
            item: the figure.

        Returns:
            The figure.

        Raises:
            ValueError: the study has no figure of this name.
        """
        check_choice("item", item, [name for name, one in self.shown.items() if one.draw])
        draw = self.shown[item].draw
        assert draw is not None
        return draw(self)

    def says(self, item: str) -> str:
        """What to look at in an item and what it means, and which runs have diverged; "" if nothing has been run."""
        says, own = self.item(item).says, self.only(item)
        text = says(self) if says and (not own.cells or len(own.numbers(item))) else ""
        return " ".join(filter(None, [text, lost(self, item)]))

    def tasks(self) -> dict[str, tuple[Task, int]]:
        """All runs and measurements by name, each with the largest number of seeds that a cell asks for."""
        found: dict[str, tuple[Task, int]] = {}
        for cell in self.cells:
            for task in cell.tasks:
                seeds = max(cell.seeds, found[task.name][1] if task.name in found else 0)
                found[task.name] = task, seeds
        return found

    def measured(self, rows: Rows | None = None) -> pd.DataFrame:
        """Make the numbers of all cells whose runs have rows, without those that diverged (`Row.diverged`).

        Args:
            rows: by task and seed. Default: those of the study.

        Returns:
            One row per number and seed: item, method, dataset, setting, metric, seed, value, seconds, commit, changed
            (whether the code has changed since), tasks.
        """
        rows = self.known() if rows is None else rows
        stale = {name: task for name, (task, _) in self.tasks().items()}
        changed = {key: row_files.changed(stale[key[0]], row) for key, row in rows.items() if key[0] in stale}
        table = []
        for cell in self.cells:
            names = [task.name for task in cell.tasks]
            seeds = sorted({seed for name, seed in rows if name == names[0]})
            for seed in seeds:
                if not all((name, seed) in rows for name in names):
                    continue
                found = [rows[name, seed] for name in names]
                if any(row.diverged is not None for row in found):
                    continue
                facts = [row.facts for row in found]
                table.append(
                    dict(zip(KEY, cell.key, strict=True))
                    | {"seed": seed, "value": cell.read(*found), "seconds": sum(fact["seconds"] for fact in facts)}
                    | {"commit": facts[0]["commit"], "changed": any(changed[name, seed] for name in names)}
                    | {"tasks": " ".join(names)}
                )
        columns = [*KEY, "seed", "value", "seconds", "commit", "changed"]
        return pd.DataFrame(table, columns=[*columns, "tasks"])

    def table(self, item: str, measured: pd.DataFrame | None = None) -> pd.DataFrame:
        """Put the measured numbers of an item beside the printed ones.

        Args:
            item: the table or figure.
            measured: the numbers; see `measured`.

        Returns:
            One row per number, measured or printed: method, dataset, setting, metric, value, std, n_seeds (0 if nothing
            was measured), paper, paper_std, difference (none if other data stand in), commit, changed, stand_in.

        Raises:
            ValueError: the study has no such item.
        """
        keys = KEY[1:]
        printed = reported(self.paper)
        check_choice("item", item, {*printed["item"], *self.shown, *(cell.item for cell in self.cells)})
        measured = self.only(item).measured() if measured is None else measured
        ours = measured[measured["item"] == item].groupby(keys, sort=False)
        frame = ours.agg(
            value=("value", "mean"),
            std=("value", "std"),
            n_seeds=("value", "size"),
            commit=("commit", "last"),
            changed=("changed", "any"),
        ).reset_index()
        theirs = printed.loc[printed["item"] == item, [*keys, "mean", "std"]].drop_duplicates(keys)
        theirs = theirs.rename(columns={"mean": "paper", "std": "paper_std"})
        order = [cell.key[1:] for cell in self.cells if cell.item == item]
        known = [tuple(row) for row in theirs[keys].to_numpy()]
        places = pd.DataFrame(list(dict.fromkeys([*known, *order])), columns=keys)
        table = places.merge(theirs, on=keys, how="left").merge(frame, on=keys, how="left")
        stand_in = {cell.key[1:]: _stand_in(cell) for cell in self.cells if cell.item == item}
        table["stand_in"] = [stand_in.get(key, "") for key in table[keys].itertuples(index=False, name=None)]
        table["n_seeds"] = table["n_seeds"].fillna(0).astype(int)
        table["difference"] = (table["value"] - table["paper"]).where(table["stand_in"] == "")
        order = ["value", "std", "n_seeds", "paper", "paper_std", "difference", "commit", "changed", "stand_in"]
        return table[[*keys, *order]]

    def side_by_side(self, item: str) -> pd.DataFrame:
        """Lay an item out for reading: what the paper prints, what was measured at its size, and what was run here.

        Columns that nobody has measured are left out; `scoreboard` has them.

        Args:
            item: the table or figure.

        Returns:
            Text in cells, "79.10 ± 0.52". The index is what `Item.rows` says; the columns have two levels: data set
            and setting, and who says it: "paper", "full size", or the data of this run.

        Raises:
            ValueError: the study has no such item.
        """
        return layout.side_by_side(self, self.at_full_size(), item)

    def scoreboard(self, measured: pd.DataFrame | None = None) -> pd.DataFrame:
        """Put all measured numbers beside all printed ones: `table` of every item that the paper prints."""
        measured = self.measured() if measured is None else measured
        items = dict.fromkeys(reported(self.paper)["item"])
        return pd.concat([self.table(item, measured).assign(item=item) for item in items], ignore_index=True)

    def differences(self, points: float = POINTS, measured: pd.DataFrame | None = None) -> pd.DataFrame:
        """Say where the measured numbers are not the printed ones, and what looks for the cause.

        Args:
            points: differences up to here, in points of percent, do not count.
            measured: the numbers; see `measured`.

        Returns:
            One row per table of which printed percentages have been measured; see `fedlib.studies.differences`.

        Example:
            >>> import fedlib as fl
            >>> fl.study("fedcs").differences()["item"].tolist()
            ['table1', 'table2']
        """
        return differences(self, points, self.measured() if measured is None else measured)

    def ledger(self, measured: pd.DataFrame | None = None) -> pd.DataFrame:
        """Judge every claim.

        Args:
            measured: the numbers; see `measured`.

        Returns:
            One row per claim: id, item, claim, verdict, measured (in words), seeds (of its numbers: "2", "1 to 3"),
            stand_in, figure, check (its predicate).
        """
        measured = self.measured() if measured is None else measured
        claims = pd.read_csv(FOLDER / self.paper / "claims.csv", dtype=str, keep_default_na=False)
        verdicts, seeds = {}, {}
        for claim in self.claims:
            numbers = Numbers(self, measured)
            verdicts[claim.id] = judge(claim.cases(numbers), claim.quantifier, claim.least)
            seeds[claim.id] = numbers.seeds
        figures = {claim.id: claim.figure for claim in self.claims}
        nothing = Verdict("not tested", "")
        found = [verdicts.get(id, nothing) for id in claims["id"]]
        frame = claims.assign(
            verdict=[verdict.verdict for verdict in found],
            measured=[verdict.measured for verdict in found],
            seeds=[seeds.get(id, "") for id in claims["id"]],
            stand_in=[verdict.stand_in for verdict in found],
            figure=[figures.get(id) or item for id, item in zip(claims["id"], claims["item"], strict=True)],
        )
        return frame[["id", "item", "claim", "verdict", "measured", "seeds", "stand_in", "figure", "check"]]

    def needed(self, claim: Claim) -> list[Cell]:
        """The cells of a claim: those of the numbers that it asks for."""
        numbers = Numbers(self, pd.DataFrame())
        claim.cases(numbers)
        asked = set(numbers.asked)
        return [cell for cell in self.cells if cell.key in asked]

    def items(self, rows: Rows | None = None) -> pd.DataFrame:
        """List the tables and figures.

        Args:
            rows: by task and seed. Default: those of the study.

        Returns:
            One row per item: item, numbers (declared), measured (with at least one seed), runs (of all seeds), missing
            (of these), hours (that they would take on one core, estimated).
        """
        rows = self.known() if rows is None else rows
        done = set(map(tuple, self.measured(rows)[[*Cell._fields[:4], "metric"]].to_numpy()))
        table = []
        for item in dict.fromkeys(cell.item for cell in self.cells):
            cells = [cell for cell in self.cells if cell.item == item]
            runs = {(t.name, seed): t for cell in cells for t in cell.wanted for seed in range(cell.seeds)}
            open_ = [task for key, task in runs.items() if key not in rows]
            numbers = sum(cell.key in done for cell in cells)
            table.append((item, len(cells), numbers, len(runs), len(open_), round(sum(map(hours, open_)), 2)))
        return pd.DataFrame(table, columns=["item", "numbers", "measured", "runs", "missing", "hours"])


def study(paper: str, profile: Profile = "paper", seeds: int = 0) -> Study:
    """Declare what a paper's tables, figures and claims need, at one size.

    Args:
        paper: one of `fl.report.PAPERS`.
        profile: "paper": the sizes of the paper; "quick": minutes on a laptop; "smoke": seconds.
        seeds: seeds of every number; 0: as many as the profile says.

    Returns:
        The study; `items()` lists its tables and figures, `measured()` the numbers there are, `ledger()` the verdicts.

    Raises:
        ValueError: the paper or the profile is unknown.

    Example:
        >>> import fedlib as fl
        >>> study = fl.study("pfedsim")
        >>> study.items().columns.tolist()
        ['item', 'numbers', 'measured', 'runs', 'missing', 'hours']
    """
    check_choice("paper", paper, PAPERS)
    check_choice("profile", profile, PROFILES)
    check_count("seeds", seeds, 0)
    declared, judged = (importlib.import_module(f"fedlib.papers.{paper}.{part}") for part in ("study", "claims"))
    one: Study = declared.study(profile)._replace(claims=judged.CLAIMS)
    one = one._replace(cells=[cell._replace(seeds=seeds) for cell in one.cells]) if seeds else one
    return one.settled()


def stand_in(cells: Sequence[Cell], others: Sequence[Cell], where: Callable[[Cell], bool]) -> list[Cell]:
    """The cells with the tasks of `others`, of the same keys, where `where(cell)`; their own become `official`."""
    tasks = {cell.key: cell.tasks for cell in others}
    return [cell._replace(tasks=tasks[cell.key], official=cell.tasks) if where(cell) else cell for cell in cells]


def evidence(paper: str) -> pd.DataFrame:
    """Read what has been measured of a paper at its own size.

    Args:
        paper: one of `fl.report.PAPERS`.

    Returns:
        One row per number and seed; see `Study.measured`.

    Raises:
        ValueError: the paper is unknown.

    Example:
        >>> import fedlib as fl
        >>> rows = fl.evidence("pfedsim").query("item == 'table3'")
        >>> others = rows.groupby(["dataset", "setting", "method"])["value"].agg(["mean", "std"])

        A method of your own in the same setting, here with smaller sizes; with `fl.study("pfedsim")` it is that of the
        rows, and nobody has to run the others again.

        >>> setting = fl.study("pfedsim", "smoke").arguments("table3", "fedavg")
        >>> mine = fl.run(**setting | {"algorithm": fl.fedprox(mu=0.5)}, progress=False)
        >>> others.columns.tolist(), mine.score() > 0
        (['mean', 'std'], True)
    """
    return study(paper).measured()


def profile_of(sizes: object, profiles: Mapping[str, object]) -> str:
    """The name of a profile, by its sizes."""
    return next(name for name, other in profiles.items() if other is sizes)


def _run_all(todo: Sequence[tuple[Task, int]], jobs: int | None, progress: bool) -> Rows:
    """The runs side by side; then those that are timed, and the measurements, one after the other."""
    runs = [(task, seed) for task, seed in todo if isinstance(task, Run)]
    rows, threads = {}, torch.get_num_threads()
    torch.set_num_threads(1)  # as for evidence
    try:
        for timed in (False, True):
            some = [(task, seed) for task, seed in runs if task.timed == timed]
            cells = [task.arguments(seed) for task, seed in some]
            results = fl.sweep(cells, jobs=1 if timed else jobs, progress=progress).results if cells else []
            for (task, seed), result in zip(some, results, strict=True):
                rows[task.name, seed] = row_files.row_of(task, seed, result, float(result.rounds["seconds"].sum()))
        for task, seed in todo:
            if isinstance(task, Probe):
                start = time.perf_counter()
                found = task.measure(seed, *task.arguments)
                rows[task.name, seed] = row_files.row_of(task, seed, found, time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return rows


def _stand_in(cell: Cell) -> str:
    """The data that stand in for those of the paper."""
    images = [task.images for task in cell.tasks]
    return ", ".join(dict.fromkeys(f"{_words(i)} for {i.stands_for}" for i in images if i.stands_for))


def _words(images: Images) -> str:
    """The name of a data set; in place of itself, how many of its images or how many other sets it is."""
    if images.name != images.stands_for:
        return images.name
    sets = dict(images.options).get("domains", ())
    return f"{images.few} images of {images.name}" if images.few else f"{len(sets)} other sets"  # type: ignore[arg-type]
