"""A study: the tables, figures and claims of a paper at one size, with their measured numbers."""

from __future__ import annotations

import importlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

import fedlib as fl
from fedlib.checks import check_choice, check_count
from fedlib.fingerprint import each_once
from fedlib.report.marks import plot_nothing
from fedlib.report.paper import FOLDER, KEY, PAPERS, PROFILES, PROTOCOLS, reported
from fedlib.report.sentences import nearest_kind, with_minus
from fedlib.studies import layout
from fedlib.studies import rows as row_files
from fedlib.studies.claim import Claim, Numbers
from fedlib.studies.cost import hours
from fedlib.studies.item import Answer, Cell, Item, Key, Unmeasured, cells_of, means, replaced, tasks_of
from fedlib.studies.rows import Row
from fedlib.studies.tasks import Probe, Run, Task, here
from fedlib.studies.timing import threads
from fedlib.studies.verdict import HOLDS, NOT_TESTED, REFUTED, UNDECIDED, interval, judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Profile = Literal["smoke", "quick", "paper"]
Rows = Mapping[tuple[str, int], Row]  # by task and seed


@dataclass(frozen=True, eq=False)
class Study:
    """The tables, figures and claims of a paper, at one size. An item is a table or figure by its name, as in `shown`.

    Attributes:
        paper: one of `fl.report.PAPERS`.
        profile: "smoke", "quick" or "paper".
        cells: the numbers of all tables and figures.
        rows: finished runs and measurements, by task and seed.
        shown: the tables and figures, by name.
        claims: the rules that decide the claims.
        clients: number of clients over which printed standard deviations are taken; these are divided by its square
            root, to give the noise of a mean over clients. 1: they are over seeds.
        training: settings of the printed training, such as `rounds`, where ours is shorter in some runs.
    """

    paper: str
    profile: Profile
    cells: Sequence[Cell]
    rows: Rows
    shown: Mapping[str, Item]
    claims: Sequence[Claim] = ()
    clients: int = 1
    training: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        items, claims = len({cell.item for cell in self.cells}), len(self.claims)
        return f"Study({self.paper!r}, {self.profile!r}: {len(self.cells)} numbers of {items} items, {claims} claims)"

    def replace(self, **fields: Any) -> Study:
        """A copy with other attributes, which shares the study at full size."""
        other, shared = replace(self, **fields), "at_full_size"
        if other.profile != "paper" and shared in vars(self):
            vars(other)[shared] = self.at_full_size
        return other

    # -- runs

    def run(self, *items: str, jobs: int | None = None, progress: bool = True) -> Study:
        """Execute the runs that the items need; finished runs are read from the run store.

        Runs whose data would have to be downloaded first are left out; their number is printed.

        Args:
            items: tables and figures; none: all.
            jobs: processes, as in `fl.sweep`.
            progress: whether to show a bar.

        Returns:
            The study with the new rows.

        Example:
            >>> study = fl.study("pfedsim", "smoke").run("table4", progress=False)
            >>> study.table("table4").query("n_seeds > 0")["metric"].unique().tolist()
            ['num_samples', 'num_classes', 'samples_per_client', 'std_of_sizes']
        """
        for item in items:
            check_choice("item", item, {cell.item for cell in self.cells})
        wanted = tasks_of(cell for cell in self.cells if not items or cell.item in items)
        todo = [(task, seed) for (name, seed), task in wanted.items() if (name, seed) not in self.rows]
        elsewhere = [task.images.name for task, _ in todo if not here(task)]
        if elsewhere:
            print(f"{len(elsewhere)} runs are left out; their data are not here: {', '.join(sorted({*elsewhere}))}.")
        rows = {**self.rows, **_run_all([pair for pair in todo if here(pair[0])], jobs, progress)}
        return self.replace(rows=rows, cells=settled(self.cells, rows))

    def arguments(self, item: str, method: str, seed: int = 0) -> dict[str, Any]:
        """The arguments of `fl.run`, by name, for the first run of a method in an item, with its federation."""
        cells = {cell.method: cell for cell in reversed(self.cells) if cell.item == item}
        check_choice(f"method of {item}", method, cells)
        [run, *_] = [task for task in cells[method].tasks if isinstance(task, Run)]
        return run.arguments(seed)

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """All runs and measurements by name."""
        return {task.name: task for cell in self.cells for task in cell.tasks}

    @cached_property
    def stale(self) -> set[tuple[str, int]]:
        """The rows whose code has changed since."""
        rows = {key: row for key, row in self.rows.items() if key[0] in self.tasks}
        with each_once():
            return {key for key, row in rows.items() if row_files.changed(self.tasks[key[0]], row)}

    def rows_behind(self, item: str, **key: str) -> list[Row]:
        """The rows behind an item, or behind its numbers of one method, dataset, setting or metric, each once."""
        cells = [cell for cell in self.cells if cell.item == item]
        cells = [cell for cell in cells if all(getattr(cell, name) == value for name, value in key.items())]
        tasks = {task.name: task for cell in cells for task in cell.tasks}
        return [row for task in tasks.values() for row in self.rows_of(task)]

    def rows_of(self, task: Task) -> list[Row]:
        """The rows of a run, or of a measurement, by seed."""
        name = task.name
        return [self.rows[key] for key in sorted(key for key in self.rows if key[0] == name)]

    # -- numbers

    @cached_property
    def printed(self) -> pd.DataFrame:
        """The numbers that the paper prints; see `fl.report.reported`."""
        return reported(self.paper)

    @cached_property
    def _printed_numbers(self) -> dict[Any, tuple[float, float]]:
        """Printed mean and noise by number."""
        table = self.printed.drop_duplicates(KEY).set_index(KEY)[["mean", "std"]]
        return dict(zip(table.index, (table / [1, self.clients**0.5]).itertuples(index=False, name=None), strict=True))

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The frame of `measured`, without the column `changed`; runs that diverged have no numbers."""
        table, seeds = [], defaultdict(set)
        for name, seed in (key for key, row in self.rows.items() if row.diverged is None):
            seeds[name].add(seed)
        for cell in self.cells:
            names = [task.name for task in cell.tasks]
            for seed in sorted(set.intersection(*(seeds[name] for name in names))):
                rows = [self.rows[name, seed] for name in names]
                seconds, commit = sum(row.facts["seconds"] for row in rows), rows[0].facts["commit"]
                table.append((*cell.key, seed, cell.number(*rows), seconds, commit, " ".join(names)))
        return pd.DataFrame(table, columns=[*KEY, "seed", "value", "seconds", "commit", "tasks"])

    def measured(self) -> pd.DataFrame:
        """The numbers of all cells whose runs have rows, without those that diverged (`Row.diverged`).

        Returns:
            One row per number and seed: item, method, dataset, setting, metric, seed, value, seconds, commit, changed
            (whether the code has changed since), tasks.
        """
        return self._with_changed(self.frame)[[*self.frame.columns[:-1], "changed", "tasks"]]

    def _with_changed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows of `frame` with a column `changed`: whether their code has changed since."""
        pairs = zip(frame["tasks"], frame["seed"], strict=True)
        changed = [any((name, seed) in self.stale for name in names.split()) for names, seed in pairs]
        return frame.assign(changed=np.array(changed, dtype=bool))

    def numbers(self, *items: str, metric: str = "") -> pd.DataFrame:
        """The measured numbers of some items, of one metric or all, with the parts of their settings as columns.

        Returns:
            As `measured`, without values that are NaN, and with the printed number (paper) and its noise (paper_std;
            both NaN if nothing is printed, or for substitute data), the data that were used (data: "cifar10", "digits
            for cifar10"), and the parts of the setting: "dir=0.1;rho=0.5" gives the columns dir and rho, which are
            text.
        """
        frame = self.frame[self.frame["item"].isin(items)]
        frame = frame[frame["metric"] == metric] if metric else frame
        frame = frame.dropna(subset="value").reset_index(drop=True)
        stand_in = {cell.key: cell.stand_in for cell in self.cells if cell.item in items}
        keys = list(frame[KEY].itertuples(index=False, name=None))
        printed = {key: self._printed_numbers.get((layout.printed_item(key[0])[0], *key[1:])) for key in keys}
        theirs = [(not stand_in[key] and printed[key]) or (np.nan, np.nan) for key in keys]
        frame[["paper", "paper_std"]] = np.array(theirs, dtype=float).reshape(-1, 2)
        frame["data"] = [stand_in[key] or data for key, data in zip(keys, frame["dataset"], strict=True)]
        settings = [cell.setting for cell in self.cells if cell.item in items and metric in ("", cell.metric)]
        names = dict.fromkeys(name for setting in settings for name in layout.parts_of(setting))
        parts = [layout.parts_of(setting) for setting in frame["setting"]]
        return frame.join(pd.DataFrame(parts, index=frame.index, columns=list(names)))

    def means(self, item: str, by: str, *names: str, metric: str = "") -> pd.Series:
        """The `means` of the numbers of an item."""
        return means(self.numbers(item, metric=metric), by, *names)

    def curves(self, *items: str, diverged: bool = False) -> pd.DataFrame:
        """Accuracy over the rounds of the runs behind some items, before or after fine-tuning as in `Row.when`.

        Runs that diverged, which have no numbers, are left out unless `diverged`.

        Returns:
            One row per run, seed and evaluation: item, method, dataset, setting, metric, data, seed, round, accuracy.
        """
        frames = [pd.DataFrame(columns=[*KEY, "data", "seed", "round", "accuracy"])]
        for cell in (cell for cell in self.cells if cell.item in items and isinstance(cell.tasks[0], Run)):
            key = dict(zip(KEY, cell.key, strict=True)) | {"data": cell.stand_in or cell.dataset}
            for row in (row for row in self.rows_of(cell.tasks[0]) if diverged or row.diverged is None):
                curve = row.curve()
                curve = curve.loc[curve["when"] == row.when, ["round", "accuracy"]]
                frames.append(curve.assign(**key, seed=row.seed))
        return pd.concat([frame for frame in frames if len(frame)] or frames, ignore_index=True)

    def table(self, item: str) -> pd.DataFrame:
        """Put the measured numbers of an item beside the printed ones.

        Returns:
            One row per number, measured or printed: method, dataset, setting, metric, value, std, n_seeds (0 if it was
            not measured), paper, paper_std, difference (none for substitute data), commit, changed, stand_in.
        """
        keys, printed = KEY[1:], self.printed
        check_choice("item", item, {*printed["item"], *self.shown, *(cell.item for cell in self.cells)})
        ours = self._with_changed(self.frame[self.frame["item"] == item]).groupby(keys, sort=False)
        over_seeds = {"value": ("value", "mean"), "std": ("value", "std"), "n_seeds": ("value", "size")}
        ours = ours.agg(**over_seeds, commit=("commit", "last"), changed=("changed", "any")).reset_index()
        table, _ = layout.printed_item(item)
        theirs = printed.loc[printed["item"] == table, [*keys, "mean", "std"]].drop_duplicates(keys)
        theirs = theirs.rename(columns={"mean": "paper", "std": "paper_std"})
        stand_in = {cell.key[1:]: cell.stand_in for cell in self.cells if cell.item == item}
        known = [tuple(row) for row in theirs[keys].to_numpy()]
        places = pd.DataFrame(list(dict.fromkeys([*known, *stand_in])), columns=keys)
        table = places.merge(theirs, on=keys, how="left").merge(ours, on=keys, how="left")
        table["stand_in"] = [stand_in.get(key, "") for key in table[keys].itertuples(index=False, name=None)]
        table["n_seeds"] = table["n_seeds"].fillna(0).astype(int)
        table["difference"] = (table["value"] - table["paper"]).where(table["stand_in"] == "")
        order = ["value", "std", "n_seeds", "paper", "paper_std", "difference", "commit", "changed", "stand_in"]
        return table[[*keys, *order]]

    def points(self, item: str) -> pd.DataFrame:
        """The numbers of an item for a chart, by source.

        Returns:
            One row per number and source: row and place (its index and column, see `Item.rows`), column (the place,
            with the data of this run), source ("paper", "full size" or "here"), value, std.
        """
        long = layout.by_source(*self._tables(item), (), self.item(item))
        return long.loc[long["value"].notna(), ["row", "place", "column", "source", "value", "std"]]

    def side_by_side(self, item: str) -> pd.DataFrame:
        """Lay an item out for reading: the printed numbers, those measured at full size, and those of this size.

        Columns without a measured number are left out; `scoreboard` has them.

        Returns:
            Text in cells, "79.10 ± 0.52". The index is `Item.rows`; the columns have two levels: data set and setting,
            and the source: "paper", "full size" (of an item with several protocols, the first one, and each other one
            where its runs differ), or the data of this run.
        """
        about = self.item(item)
        long = layout.by_source(*self._tables(item), [*map(self.at_full_size.further, about.others)], about)
        tried = set(long.loc[long["source"] != "paper", "place"])
        return layout.wide(long[long["place"].isin(tried) | (not tried)], about.rows)

    def further(self, one: Item) -> pd.DataFrame:
        """The table of an item with a further protocol; numbers that share their runs count as not measured."""
        table, shared = self._with_shared(one)
        return table.assign(n_seeds=table["n_seeds"].where(~shared, 0))

    def _tables(self, item: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The item at full size and at this size; the second is empty at full size."""
        full = self.at_full_size.table(item)
        return full, full.iloc[:0] if self.profile == "paper" else self.table(item)

    def scoreboard(self) -> pd.DataFrame:
        """Put all measured numbers beside all printed ones: `table` of every item that the paper prints.

        Returns:
            One row per number, and one more for each further protocol with which it has been measured in other runs;
            additional columns: item, protocol ("code", "inferred" or "text", also of runs that it shares with another).
        """
        tables = []
        for first in map(self.item, dict.fromkeys(self.printed["item"])):
            for one in (first, *first.others):
                table, shared = self._with_shared(one)
                table = table.assign(item=one.name, protocol=np.where(shared, "text", one.protocol))
                tables.append(table if one is first else table[(table["n_seeds"] > 0) & ~shared])
        return pd.concat(tables, ignore_index=True)

    def _with_shared(self, one: Item) -> tuple[pd.DataFrame, np.ndarray]:
        """The table of an item, and which of its numbers are in `_shared`: booleans."""
        table = self.table(one.name)
        keys = table[KEY[1:]].itertuples(index=False, name=None)
        return table, np.array([(one.name, *key) in self._shared for key in keys], dtype=bool)

    @cached_property
    def _shared(self) -> set[Key]:
        """The numbers that have the same runs with several protocols of their table."""
        keys = defaultdict(list)
        for cell in self.cells:
            runs = tuple(task.name for task in cell.tasks)
            keys[layout.printed_item(cell.item)[0], cell.key[1:], runs].append(cell.key)
        return {key for same in keys.values() if len(same) > 1 for key in same}

    def differences(self, points: float = layout.POINTS) -> pd.DataFrame:
        """Compare the measured percentages, except those on substitute data, with the printed ones.

        Returns:
            One row per table, and one for the numbers of a further protocol whose runs differ: item, measured (number
            of percentages), apart (number of those that differ by more than `points`), the largest difference (name,
            method, dataset, setting, metric, value, paper, difference), and lines of text (says): the difference, the
            sentence of each control, the controls that have not been run, the runs that diverged.

        Example:
            >>> fl.study("fedcs").differences()["item"].tolist()
            ['table1', 'table1_text', 'table2', 'table2_text']
        """
        return layout.differences(self, points)

    def shortened(self, item: str) -> str:
        """The shorter training that all measured numbers of an item have in common, ", with 100 of 1,000 rounds"."""
        done = set(self.frame[KEY].itertuples(index=False, name=None))
        found = {cell.shortened(self.training) for cell in self.cells if cell.item == item and cell.key in done}
        return f", with {found.pop()}" if len(found) == 1 and found != {""} else ""

    # -- items

    @cached_property
    def at_full_size(self) -> Study:
        """The study at the paper's size, with its measured numbers."""
        return self if self.profile == "paper" else study(self.paper)

    def item(self, name: str) -> Item:
        """A table or figure by name; an unknown name gives an item without numbers."""
        return self.shown.get(name) or Item(name, name)

    def answer(self) -> Answer | None:
        """The answer to the paper's question in `fedlib.report.paper.QUESTIONS`; None if its numbers are missing."""
        made = getattr(importlib.import_module(f"fedlib.papers.{self.paper}.study"), "answer", None)
        with suppress(Unmeasured):
            if made and (answer := made(self)):
                numbers = [(with_minus(number), unit) for number, unit in answer.numbers]
                return answer._replace(says=with_minus(answer.says), numbers=numbers)
        return None

    def figure(self, item: str) -> Figure:
        """Draw an item, or a sentence if none of its numbers has been measured."""
        check_choice("item", item, [name for name, one in self.shown.items() if one.drawing])
        return self._made(item, self.shown[item].drawing) or plot_nothing()

    def says(self, item: str) -> str:
        """The sentence of an item, the distances of its protocols from the printed numbers, and its diverged runs."""
        parts = [self._made(item, self.item(item).sentence), self._protocols(item), self.diverged(item)]
        return with_minus(" ".join(filter(None, parts)))

    def _protocols(self, item: str) -> str:
        """The mean distance from the printed numbers with each protocol of an item, if their runs differ."""
        first = self.item(item)
        kinds = {one.name: f"the {PROTOCOLS[one.protocol]}" for one in (first, *first.others)}
        numbers = self.numbers(*kinds)
        apart = [key not in self._shared for key in numbers[KEY].itertuples(index=False, name=None)]
        return nearest_kind(numbers.loc[apart].assign(kind=numbers["item"].map(kinds)), KEY[1:])

    def _made(self, item: str, make: Callable[[Study], Any] | None) -> Any:
        """The figure or sentence of an item; None if it has none, or too few of its numbers are measured."""
        if make and (all(cell.item != item for cell in self.cells) or len(self.numbers(item))):
            with suppress(Unmeasured):
                return make(self)
        return None

    def diverged(self, item: str) -> str:
        """The diverged runs of an item, which no number contains, with their round."""
        cells = {task.name: cell for cell in reversed(self.cells) if cell.item == item for task in cell.tasks}
        runs = [
            f"{layout.named(self.cells, *cells[row.task].key[:4])}, seed {row.seed} (round {row.diverged})"
            for row in self.rows_behind(item)
            if row.diverged is not None
        ]
        return f"Diverged, and left out of all numbers: {'; '.join(runs)}." if runs else ""

    def items(self) -> pd.DataFrame:
        """List the tables and figures.

        Returns:
            One row per item: item, numbers (declared), measured (with at least one seed), runs (of all seeds), missing
            (runs), hours (of the missing runs on one core, estimated).
        """
        done, table = set(self.frame[KEY].itertuples(index=False, name=None)), []
        for item in dict.fromkeys(cell.item for cell in self.cells):
            cells = [cell for cell in self.cells if cell.item == item]
            runs = tasks_of(cells)
            todo = [task for key, task in runs.items() if key not in self.rows]
            numbers = sum(cell.key in done for cell in cells)
            table.append((item, len(cells), numbers, len(runs), len(todo), round(sum(map(hours, todo)), 2)))
        return pd.DataFrame(table, columns=["item", "numbers", "measured", "runs", "missing", "hours"])

    # -- claims

    def ledger(self) -> pd.DataFrame:
        """Judge every claim.

        Returns:
            One row per claim: id, item, claim, verdict, measured (in words), seeds (of its numbers: "2", "1 to 3"),
            interval (see `interval`), stand_in (also shorter training), protocol (of numbers with several),
            other_verdicts (by single protocols, if they differ), figure, check (its predicate).
        """
        frame = pd.read_csv(FOLDER / self.paper / "claims.csv", dtype=str, keep_default_na=False)
        claims, lines, numbers = {claim.id: claim for claim in self.claims}, [], self._numbers(self.frame)
        by_seed = [self._numbers(rows) for _, rows in self.frame.groupby("seed", sort=True)]
        for id, item in frame[["id", "item"]].to_numpy():
            claim = claims.get(id) or Claim(id, lambda numbers: ())
            numbers.asked.clear()
            verdict, measured, stand_in = judge(claim.cases(numbers), claim.quantifier, claim.least)
            items, between = {key[0] for key in numbers.asked}, interval([claim.cases(one) for one in by_seed])
            verdict, *protocols = self._with_protocols(claim, verdict, items)
            facts = (measured, numbers.seeds, between, stand_in, *protocols) if measured else ("",) * 6
            lines.append((verdict, *facts, claim.figure or item))
        columns = ["verdict", "measured", "seeds", "interval", "stand_in", "protocol", "other_verdicts", "figure"]
        frame = frame.join(pd.DataFrame(lines, columns=columns))
        return frame[["id", "item", "claim", *columns, "check"]]

    def _with_protocols(self, claim: Claim, verdict: str, items: Collection[str]) -> tuple[str, str, str]:
        """The final verdict, the first protocol of a claim's numbers, and the verdicts that differ from it."""
        # Inferred settings are chosen by the printed numbers, so they decide a claim only together with the paper's
        # text.
        several = [one for one in map(self.item, sorted(items)) if one.others]
        first, found = ", ".join(dict.fromkeys(PROTOCOLS[one.protocol] for one in several)), {}
        for protocol in dict.fromkeys(other.protocol for one in several for other in one.others):
            cases = claim.cases(self._numbers(self.frame, protocol))
            found[PROTOCOLS[protocol]] = judge(cases, claim.quantifier, claim.least).verdict
        inferred = any(one.protocol == "inferred" for one in several)
        if inferred and verdict in (HOLDS, REFUTED) and {*found.values()} != {verdict}:
            verdict, found = UNDECIDED, {first: verdict} | found
        told = (f"{words}: {other}" for words, other in found.items() if other not in (verdict, NOT_TESTED))
        return verdict, first, "; ".join(told)

    def needed(self, claim: Claim) -> list[Cell]:
        """The cells of the numbers that a claim asks for."""
        numbers = self._numbers(pd.DataFrame())
        claim.cases(numbers)
        asked = set(numbers.asked)
        return [cell for cell in self.cells if cell.key in asked]

    def _numbers(self, measured: pd.DataFrame, protocol: str = "") -> Numbers:
        return Numbers(self.paper, self.clients, self.cells, measured, self.training, protocol)


def study(paper: str, profile: Profile = "paper", seeds: int = 0) -> Study:
    """Declare the runs for a paper's tables, figures and claims, at one size.

    Args:
        paper: one of `fl.report.PAPERS`.
        profile: "paper": the sizes of the paper; "quick": minutes on a laptop; "smoke": seconds.
        seeds: number of seeds of every number; 0: that of the profile.

    Returns:
        The study; `items()` lists its tables and figures, `measured()` the measured numbers, `ledger()` the verdicts.

    Raises:
        ValueError: the paper or the profile is unknown.

    Example:
        >>> study = fl.study("pfedsim")
        >>> study.items().columns.tolist()
        ['item', 'numbers', 'measured', 'runs', 'missing', 'hours']
    """
    check_choice("paper", paper, PAPERS)
    check_choice("profile", profile, PROFILES)
    check_count("seeds", seeds, 0)
    declared, judged = (importlib.import_module(f"fedlib.papers.{paper}.{part}") for part in ("study", "claims"))
    items = [one for one in declared.ITEMS if profile == "paper" or not layout.printed_item(one.name)[1]]
    cells = cells_of(items, declared.PROFILES[profile])
    if profile == "paper" and hasattr(declared, "SUBSTITUTES"):
        sizes, where = declared.SUBSTITUTES
        cells = replaced(cells, cells_of(declared.ITEMS, sizes), where)
    cells = [cell._replace(seeds=seeds) for cell in cells] if seeds else cells
    rows, shown = row_files.read(paper), {one.name: one for one in declared.ITEMS}
    training = getattr(declared, "TRAINING", {}) if profile == "paper" else {}
    clients = getattr(declared, "CLIENTS", 1)
    return Study(paper, profile, settled(cells, rows), rows, shown, judged.CLAIMS, clients, training)


def settled(cells: Sequence[Cell], rows: Rows) -> list[Cell]:
    """The cells, with the official tasks of a data set if at least as many of them as of its substitutes are done."""
    done, official, substitute = {name for name, _ in rows}, Counter[str](), Counter[str]()
    for cell in (cell for cell in cells if cell.official):
        official[cell.dataset] += done.issuperset(task.name for task in cell.official)
        substitute[cell.dataset] += done.issuperset(task.name for task in cell.tasks)
    chosen = {dataset for dataset, n in official.items() if 0 < n >= substitute[dataset]}
    return [c._replace(tasks=c.official, official=()) if c.official and c.dataset in chosen else c for c in cells]


def evidence(paper: str) -> pd.DataFrame:
    """Read the numbers of a paper that have been measured at its own size.

    Args:
        paper: one of `fl.report.PAPERS`.

    Returns:
        One row per number and seed; see `Study.measured`.

    Raises:
        ValueError: the paper is unknown.

    Example:
        >>> rows = fl.evidence("pfedsim").query("item == 'table3'")
        >>> rows.groupby(["dataset", "setting", "method"])["value"].agg(["mean", "std"]).columns.tolist()
        ['mean', 'std']

        `fl.compare` puts your own method beside these rows.
    """
    return study(paper).measured()


@threads(1)  # as for evidence
def _run_all(todo: Sequence[tuple[Task, int]], jobs: int | None, progress: bool) -> Rows:
    """Rows of the runs, executed in parallel, and of timed runs and measurements, one after the other."""
    rows = {}
    for timed in (False, True):
        some = [(task, seed) for task, seed in todo if isinstance(task, Run) and task.timed == timed]
        cells = [task.arguments(seed) for task, seed in some]
        results = fl.sweep(cells, jobs=1 if timed else jobs, progress=progress).results if cells else []
        for (task, seed), result in zip(some, results, strict=True):
            rows[task.name, seed] = row_files.row_of(task, seed, result)
    for task, seed in todo:
        if isinstance(task, Probe):
            start = time.perf_counter()
            values = task.measure(seed, *task.arguments)
            rows[task.name, seed] = row_files.row_of(task, seed, values, time.perf_counter() - start)
    return rows
