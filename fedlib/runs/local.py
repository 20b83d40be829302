"""Groups of cells side by side on this machine: worker processes of one thread each."""

import os
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed, parallel_config

from fedlib.runs.progress import board
from fedlib.runs.work import Work, run_group

MEMORY_MAP = "1M"  # larger arrays (the images) reach the workers as one shared memory map


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
