"""The work of a sweep: cells to run, which of them run together as one stack, and a way to run them here."""

import os
import tempfile
import threading
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

from fedlib.runs.lockstep import lockstep
from fedlib.runs.plan import Plan, cohort_size, prepare
from fedlib.runs.rounds import carry_out
from fedlib.runs.session import Session, rules
from fedlib.training.phase import Trainer
from fedlib.training.stacked import AT_ONCE

MEMORY_MAP = "1M"  # larger arrays (the images) reach the workers as one shared memory map


class Work(NamedTuple):
    """`cells` are arguments of `fl.run`, none of them finished; `groups` are positions of those that go together."""

    cells: list[dict[str, Any]]
    groups: list[list[int]]
    store: str | Path | None


def together(plans: Sequence[Plan]) -> list[list[int]]:
    """Positions of plans that can share a stack: same method, data, model and setting, but for the seed."""
    groups: dict[Any, list[list[int]]] = defaultdict(list)
    for i, plan in enumerate(plans):
        own, federation = plan.setting, plan.federation
        if own.backend != "stacked":
            groups[i] = [[i]]
            continue
        setting = tuple((asdict(own) | {"seed": None}).items())
        method = plan.algorithm.name, repr(plan.algorithm.hyper), repr(plan.config["code"])
        same = groups[*method, federation.data.fingerprint, plan.model.name, setting]
        if not same or (len(same[-1]) + 1) * cohort_size(federation.n_clients, own.join_ratio) > AT_ONCE:
            same.append([])
        same[-1].append(i)
    return [group for same in groups.values() for group in same]


def run_group(cells: Sequence[Mapping[str, Any]], store: str | Path | None, tells: Sequence[Callable[[int], None]]):
    """Run the cells of one group; results go to the run store, rounds done to `tells`, one per cell."""
    plans = [prepare(**cell) for cell in cells]
    with rules(plans[0].setting.device):
        first = Session(plans[0], store=store)
        if len(plans) == 1:
            return [carry_out(plans[0], first, tells[0], store)]

        def start(plan: Plan, tell: Callable[[int], None]) -> Callable[[Trainer], Any]:
            plan = plan._replace(algorithm=plans[0].algorithm)  # equal, and its loss the same function
            return lambda trainer: carry_out(plan, Session(plan, like=first, trainer=trainer), tell, store)

        works = [start(plan, tell) for plan, tell in zip(plans, tells, strict=True)]
        return lockstep(works, first.trainer)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def execute(work: Work, jobs: int, progress: bool) -> None:
    """Run all groups in `jobs` processes; with one job, in this one."""
    rounds = [cell["rounds"] for cell in work.cells]
    one_thread = parallel_config(backend="loky", inner_max_num_threads=1)
    with tempfile.TemporaryDirectory() as folder, one_thread:
        path = Path(folder) / "board"
        done = np.memmap(path, dtype=np.int64, mode="w+", shape=(len(rounds),))  # one counter per cell
        tasks = (delayed(_run)([work.cells[i] for i in group], work.store, path, group) for group in work.groups)
        with board(rounds, lambda: done, progress):
            Parallel(n_jobs=jobs, max_nbytes=MEMORY_MAP)(tasks)


def _run(cells: list[dict], store: str | Path | None, path: Path, group: list[int]) -> None:
    """One group, in a worker: the rounds done go to its places on the board."""
    done = np.memmap(path, dtype=np.int64, mode="r+")
    run_group(cells, store, [partial(done.__setitem__, i) for i in group])


@contextmanager
def board(rounds: Sequence[int], read: Callable[[], np.ndarray], progress: bool) -> Iterator[None]:
    """Inside, a thread shows `read()`, the rounds done in each cell (int64 [cells]), of `rounds`."""
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
