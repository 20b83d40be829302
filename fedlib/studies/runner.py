"""Runner of the missing runs of studies, most claims per hour first; it writes a row for each finished run."""

import math
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock, Timeout
from joblib import Parallel, delayed

import fedlib as fl
from fedlib.checks import check_choice, check_count
from fedlib.report.provenance import commit
from fedlib.runs.store import store_root
from fedlib.studies import rows
from fedlib.studies.cost import hours
from fedlib.studies.item import tasks_of
from fedlib.studies.study import Study, study
from fedlib.studies.tasks import Probe, Run, Task, here
from fedlib.studies.timing import threads

BATCH = 64  # runs on a cluster or GPU between two checks of the deadline
Names = Collection[str]
Store = str | Path | None  # folder of the run store, as in `fl.run`


class Job(NamedTuple):
    """A run or measurement of a study, with its seed."""

    paper: str
    task: Task
    seed: int

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"{self.paper}: {self.task.name}, seed {self.seed}"


def missing(studies: Sequence[Study], items: Names = (), folder: Path = rows.FOLDER, stale: bool = False) -> list[Job]:
    """Runs with data on this machine and without a row; if `stale`, also those whose code has changed since."""
    # `items` are names of tables and figures, or of runs.
    # Seed 0 of all jobs comes before seed 1. The jobs of a seed are in the order of claims, beginning with the claim
    # that needs the least time, followed by jobs of no claim; substitute data and the paper's own are counted
    # separately.
    groups: list[tuple[int, float, list[Job]]] = []
    for one in studies:
        done, jobs = rows.read(one.paper, folder), {}
        chosen = tasks_of(cell for cell in one.cells if not items or cell.item in items)
        chosen |= {key: task for key, task in tasks_of(one.cells).items() if key[0] in items}
        for key, task in chosen.items():
            row = done.get(key)
            wanted = row is None or (stale and rows.changed(task, row))
            if wanted and here(task) and (items or not (isinstance(task, Run) and task.timed)):
                jobs[key] = Job(one.paper, task, key[1])
        for cells in [*map(one.needed, one.claims), one.cells]:
            for official in (False, True):
                kind = [cell._replace(tasks=cell.official if official else cell.tasks, official=()) for cell in cells]
                own = [jobs[key] for key in tasks_of(kind) if key in jobs]
                for seed in dict.fromkeys(job.seed for job in own):
                    todo = [job for job in own if job.seed == seed]
                    cost = math.inf if cells is one.cells else sum(hours(job.task) for job in todo)
                    groups.append((seed, cost, todo))
    ordered = sorted(groups, key=lambda group: group[:2])
    return [*{(job.paper, job.task.name, job.seed): job for _, _, group in ordered for job in group}.values()]


@threads(1)  # also for the kept values of a row
def perform(job: Job, store: Store = None, report: Callable[[int], None] | bool = False) -> dict[str, Any]:
    """Run a job, from its last checkpoint if there is one, and return the content of its row."""
    start, task = time.perf_counter(), job.task
    if isinstance(task, Probe):
        return rows.facts_of(task, job.seed, task.measure(job.seed, *task.arguments), time.perf_counter() - start)
    return rows.facts_of(task, job.seed, fl.run(**task.arguments(job.seed), progress=report, store=store))


def check_clean() -> str:
    """The commit of the working tree. `ValueError` if there is none or files differ from it."""
    head = commit()
    if head is None:
        raise ValueError("evidence needs the commit of the code; run it in a git checkout.")
    if head.endswith("+changes"):
        raise ValueError("the working tree differs from its commit; commit the changes first, or use a clean checkout.")
    return head


def work(jobs: list[Job], deadline: float, folder: Path = rows.FOLDER, store: Store = None, again: bool = False) -> int:
    """Do the jobs one after the other until the deadline; returns the number of written rows."""
    # Jobs that another process does or has done are skipped; so are failed ones, which raise `ValueError` at the end.
    written, failed, head = 0, 0, check_clean()

    def stop_in_time(done: int) -> None:
        if time.time() >= deadline:
            raise OutOfTime

    for job in jobs:
        if time.time() >= deadline:
            break
        with suppress(Timeout), _lock(job, store).acquire(timeout=0):
            row = rows.read_one(job.paper, job.task, job.seed, folder)
            if row is not None and not (again and rows.changed(job.task, row)):
                continue
            print(f"{job.name}: about {60 * hours(job.task):.0f} min", flush=True)
            try:
                facts = perform(job, store, stop_in_time)
            except OutOfTime:
                raise
            except Exception as error:  # the others may still work
                print(f"{job.name} has failed: {type(error).__name__}: {error}", flush=True)
                failed += 1
                continue
            if check_clean() != head:
                raise ValueError("the commit has changed while this process ran; start it again.")
            rows.write(job.paper, facts, folder)
            written += 1
    if failed:
        raise ValueError(f"{failed} of {len(jobs)} runs have failed; their messages are above.")
    return written


class OutOfTime(Exception):
    """The budget is spent; the run in progress continues from its last checkpoint next time."""


def _lock(job: Job, store: Store) -> FileLock:
    """The lock of a job, held by the process on this machine that does it."""
    locks = store_root(store) / "evidence"
    locks.mkdir(parents=True, exist_ok=True)
    return FileLock(locks / f"{job.paper}-{job.task.name}-s{job.seed}.lock")


def in_batches(
    jobs: Sequence[Job], address: str | None, deadline: float, folder: Path = rows.FOLDER, store: Store = None
) -> int:
    """Do the runs in batches on a Ray cluster or this machine's GPU, then all else here; returns the number of rows."""
    written, head = 0, check_clean()
    apart = [job for job in jobs if isinstance(job.task, Probe) or job.task.timed]
    runs = [job for job in jobs if isinstance(job.task, Run) and not job.task.timed]
    for first in range(0, len(runs), BATCH):
        if time.time() >= deadline:
            break
        batch = runs[first : first + BATCH]
        cells = [job.task.arguments(job.seed) for job in batch if isinstance(job.task, Run)]
        results = fl.sweep(cells, ray=address, store=store).results
        if check_clean() != head:
            raise ValueError("the commit has changed while this process ran; start it again.")
        for job, result in zip(batch, results, strict=True):
            rows.write(job.paper, rows.facts_of(job.task, job.seed, result), folder)
            written += 1
    return written + work(apart, deadline, folder, store)


def evidence(
    papers: Sequence[str],
    items: Names = (),
    budget: float | None = None,
    jobs: int = 1,
    stale: bool = False,
    ray: str | None = None,
) -> None:
    """Execute the missing runs of some items, or of all, until `budget` hours have passed, with `jobs` processes.

    With one process, a GPU does several runs at the same time (see `fl.sweep`). `stale`: repeat runs whose code has
    changed. `ray`: address of a Ray cluster that does the runs.
    """
    check_count("jobs", jobs)
    check_clean()
    studies = [study(paper) for paper in papers]
    cells = [cell for one in studies for cell in one.cells]
    for item in {*items} - {task.name for cell in cells for task in cell.wanted}:
        check_choice("item", item, {cell.item for cell in cells})
    todo = missing(studies, items, stale=stale)
    if not todo:
        chosen = [cell for cell in cells if not items or cell.item in items]
        tasks = (task for task in tasks_of(chosen).values() if isinstance(task, Run))
        absent = ", ".join(sorted({task.images.name for task in tasks if not here(task)}))
        print(f"all runs with data on this machine are done{f'; not here: {absent} (FEDLIB_DATA)' if absent else ''}.")
        return
    print(f"{len(todo)} runs are missing, about {sum(hours(job.task) for job in todo):.1f} core-hours", flush=True)
    deadline = math.inf if budget is None else time.time() + 3600 * budget
    if ray or (torch.cuda.is_available() and jobs == 1):
        in_batches(todo, ray, deadline)
        return
    if hasattr(os, "nice"):  # not on Windows
        os.nice(10)
    Parallel(n_jobs=jobs)(delayed(_worker)(papers, items, stale, deadline) for _ in range(jobs))


def _worker(papers: Sequence[str], items: Names, stale: bool, deadline: float) -> None:
    todo = missing([study(paper) for paper in papers], items, stale=stale)
    try:
        work(todo, deadline, again=stale)
    except OutOfTime:
        print("the budget is spent; the run in progress continues from its checkpoint next time.")
