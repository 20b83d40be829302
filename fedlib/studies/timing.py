"""Measurements of time, in alternating turns, and of the peak memory of a separate process."""

import itertools
import multiprocessing
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch

from fedlib.runs.session import Session
from fedlib.training.cohort import Cohort

Work = Callable[[], object]


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Let PyTorch use n threads, and the former number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds(work: Work, device: torch.device) -> float:
    """Seconds of one call: CPU time (less disturbed by other processes) on a CPU with one thread, else wall time."""
    if device.type == "cpu" and torch.get_num_threads() == 1:
        start = process_time()
        work()
        return process_time() - start
    return wall_seconds(work, device)


def wall_seconds(work: Work, device: torch.device) -> float:
    """Wall time of one call, until the device has finished."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = perf_counter()
    work()
    wait()
    return perf_counter() - start


def in_turns(works: Mapping[str, Work], turns: int, clock: Callable[[Work], float]) -> dict[str, list[float]]:
    """Seconds of each function in each turn; a turn calls every function once. An extra first turn is the warm-up."""
    for work in works.values():
        work()
    taken = [{name: clock(work) for name, work in works.items()} for _ in range(turns)]
    return {name: [turn[name] for turn in taken] for name in works}


def next_round(session: Session) -> Callable[[], Cohort]:
    """A function that does the next round of a run at each call; the returned cohort has counted the messages."""
    state, rounds = session.init(), itertools.count()

    def work() -> Cohort:
        nonlocal state
        cohort = session.cohort(next(rounds))
        state = session.plan.algorithm.round(state, cohort)
        return cohort

    return work


def peak_memory(work: Callable[..., object], *arguments: Any) -> float:
    """Peak memory in MiB of a new process that calls `work(*arguments)`; on a GPU that of the GPU."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measured, (work, arguments))


def _measured(work: Callable[..., object], arguments: tuple) -> float:
    torch.set_num_threads(1)
    work(*arguments)
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    status = Path("/proc/self/status")
    if status.exists():  # Linux counts the parent's memory into ru_maxrss
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 2**10
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS: in bytes
