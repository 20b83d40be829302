"""The work of a sweep: remaining cells, groups that share a stack, and local processes."""

import os
import tempfile
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, parallel_config
from tqdm import tqdm

from fedlib.engine.lockstep import Cancelled, Task, lockstep
from fedlib.engine.stacked import AT_ONCE
from fedlib.runs.determinism import deterministic
from fedlib.runs.plan import Plan, cohort_size
from fedlib.runs.prepare import prepare
from fedlib.runs.run import carry_out
from fedlib.runs.session import Session
from fedlib.training.phase import Trainer

MEMORY_MAP = "1M"  # larger arrays (the images) are shared with the workers as one memory map


class Work(NamedTuple):
    """Unfinished runs of a sweep: their arguments `cells`, and `tasks`, the positions of the cells of each process."""

    cells: list[dict[str, Any]]
    tasks: list[list[int]]
    store: str | Path | None


Errors = dict[int, Exception]  # of the cells that failed, by position


def together(plans: Sequence[Plan]) -> list[list[int]]:
    """Group the positions of plans that can share a stack: same method, data, model and setting except for the seed."""
    by_key: dict[Any, list[list[int]]] = defaultdict(list)  # tasks of plans that differ only in seed and partition
    for i, plan in enumerate(plans):
        setting, federation = plan.setting, plan.federation
        if setting.backend != "stacked":
            by_key[i] = [[i]]
            continue
        method = plan.algorithm.name, repr(plan.algorithm.hyper), repr(plan.config["code"])
        others = tuple((asdict(setting) | {"seed": None}).items())
        tasks = by_key[*method, federation.data.fingerprint, plan.model.name, others]
        if not tasks or (len(tasks[-1]) + 1) * cohort_size(federation.n_clients, setting.join_ratio) > AT_ONCE:
            tasks.append([])
        tasks[-1].append(i)
    return [task for tasks in by_key.values() for task in tasks]


def run_task(
    cells: Sequence[Mapping[str, Any]], store: str | Path | None, reports: Sequence[Callable[[int], None]]
) -> Errors:
    """Run the cells of one task into the run store; return their errors. `reports`, one per cell, get the rounds."""
    errors: Errors = {}
    try:
        plans = [prepare(**cell) for cell in cells]
        with deterministic(plans[0].setting.device):
            if len(plans) == 1:
                carry_out(plans[0], Session(plans[0], store=store), reports[0], store)
            else:
                lockstep([_task(plans, store, reports, [partial(errors.__setitem__, i) for i in range(len(cells))])])
    except Exception as error:
        return dict.fromkeys(range(len(cells)), error) | errors
    return errors


def _task(
    plans: Sequence[Plan],
    store: str | Path | None,
    reports: Sequence[Callable[[int], None]],
    fails: Sequence[Callable[[Exception], None]],
) -> Task:
    """Task of plans that share images and trainer. `fails`, one per plan, receive its error; the others continue."""
    first = Session(plans[0], store=store)

    def run(plan: Plan, report: Callable[[int], None], fail: Callable[[Exception], None], trainer: Trainer) -> None:
        plan = plan._replace(algorithm=plans[0].algorithm)  # an equal one, so that all runs share the loss function
        try:
            carry_out(plan, Session(plan, like=first, trainer=trainer), report, store)
        except Cancelled:  # `lockstep` raises the error that ended all runs
            raise
        except Exception as error:
            fail(error)

    return Task([partial(run, *each) for each in zip(plans, reports, fails, strict=True)], first.trainer)


def raise_first(errors: Errors, work: Work) -> None:
    """Raise the error of the first cell that failed, if any did."""
    if errors:
        i = min(errors)
        cell = f"in the sweep's cell {work.cells[i]['algorithm']}, seed {work.cells[i].get('seed', 0)}"
        errors[i].add_note(f"{cell}; {len(errors)} of {len(work.cells)} cells failed, the others are finished")
        raise errors[i]


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def execute(work: Work, jobs: int, progress: bool) -> None:
    """Run all tasks in `jobs` processes; with one job, in this process."""
    rounds = [cell["rounds"] for cell in work.cells]
    one_thread = parallel_config(backend="loky", inner_max_num_threads=1)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, one_thread:  # Windows keeps `done` open
        path = Path(folder) / "board"
        done = np.memmap(path, dtype=np.int64, mode="w+", shape=(len(rounds),))  # one counter per cell
        calls = (delayed(_run)([work.cells[i] for i in task], work.store, path, task, jobs > 1) for task in work.tasks)
        with board(rounds, lambda: done, progress):
            failed = Parallel(n_jobs=jobs, max_nbytes=MEMORY_MAP)(calls)
    raise_first({task[k]: e for task, errors in zip(work.tasks, failed, strict=True) for k, e in errors.items()}, work)


def execute_on_streams(work: Work, plans: Sequence[Plan], jobs: int, progress: bool) -> None:
    """Run all tasks in this process, at most `jobs` of them at the same time on CUDA streams of a GPU."""
    rounds, done = [plan.setting.rounds for plan in plans], np.zeros(len(plans), np.int64)
    clients = [cohort_size(plan.federation.n_clients, plan.setting.join_ratio) for plan in plans]
    largest = max(sum(clients[i] for i in task) for task in work.tasks)  # bounds the memory
    errors: Errors = {}

    def made(own: Sequence[int]) -> Task:
        reports, fails = ([partial(into.__setitem__, i) for i in own] for into in (done, errors))
        return _task([plans[i] for i in own], work.store, reports, fails)

    with deterministic(plans[0].setting.device), board(rounds, lambda: done, progress):
        lockstep(map(made, work.tasks), min(jobs, max(1, AT_ONCE // largest)))
    raise_first(errors, work)


def _run(cells: list[dict], store: str | Path | None, path: Path, task: list[int], apart: bool) -> Errors:
    """Run one task in a worker and return its errors; the rounds done go to its counters in the file `path`."""
    done = np.memmap(path, dtype=np.int64, mode="r+")
    errors = run_task(cells, store, [partial(done.__setitem__, i) for i in task])
    for error in dict.fromkeys(errors.values() if apart else ()):  # no traceback comes from another process
        error.add_note("".join(traceback.format_exception(error)))
    return errors


@contextmanager
def board(rounds: Sequence[int], read: Callable[[], np.ndarray], progress: bool) -> Iterator[None]:
    """Context in which a bar shows `read()`, the rounds done in each cell (int64 [cells]), of `rounds` in all."""
    stop = threading.Event()

    def show() -> None:
        with tqdm(total=sum(rounds), unit="round", disable=not progress) as bar:
            running = True
            while running:
                running = not stop.wait(0.5)
                done = read()
                bar.set_description(f"cell {int((done >= rounds).sum())}/{len(rounds)}", refresh=False)
                bar.update(int(done.sum()) - bar.n)

    watcher = threading.Thread(target=show, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
