"""A sweep: the cells of a table, run in parallel by local processes, collected in the order of the grid."""

import itertools
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed, parallel_config
from tqdm import tqdm

from fedlib.checks import check_count
from fedlib.runs.loop import prepare, run
from fedlib.runs.result import RunResult
from fedlib.runs.store import address

MEMORY_MAP = "1M"  # larger arrays (the images) reach the workers as one shared memory map


class Sweep(NamedTuple):
    """`cells`: one row of labels per run, in the order of the grid; `results`: the runs."""

    cells: pd.DataFrame
    results: list[RunResult]

    def summary(self) -> pd.DataFrame:
        """One row per cell: its labels, then `RunResult.summary()`."""
        return self._joined([result.summary().to_frame().T.infer_objects() for result in self.results])

    def curves(self) -> pd.DataFrame:
        """One row per cell and evaluation: labels, then `RunResult.curve()`."""
        return self._joined([result.curve() for result in self.results])

    def accuracy(self) -> pd.DataFrame:
        """One row per cell, evaluation and client: labels, then `RunResult.accuracy`."""
        return self._joined([result.accuracy for result in self.results])

    def _joined(self, frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
        rows = [
            frame.assign(**{name: [value] * len(frame) for name, value in label.items()})
            for label, frame in zip(self.cells.to_dict("records"), frames, strict=True)
        ]
        frame = pd.concat(rows, ignore_index=True)
        return frame[[*self.cells.columns, *frame.columns.drop(self.cells.columns)]]


def grid(**axes: Any) -> list[dict[str, Any]]:
    """All combinations of the axes that are lists or tuples; other values are the same in every cell."""
    many = {name: value for name, value in axes.items() if isinstance(value, list | tuple) and not _is_value(value)}
    return [axes | dict(zip(many, values, strict=True)) for values in itertools.product(*many.values())]


def sweep(
    cells: Sequence[Mapping[str, Any]],
    *,
    jobs: int | None = None,
    progress: bool = True,
    store: str | Path | None = None,
) -> Sweep:
    """Run every cell (the arguments of `fl.run`) and return the results in the order given.

    `jobs` processes of one thread each (default: one per core this process may use). Cells that are already in the
    run store are read; equal cells are run once. The numbers do not depend on `jobs`.
    """
    jobs = len(os.sched_getaffinity(0)) if jobs is None and hasattr(os, "sched_getaffinity") else jobs
    jobs = os.cpu_count() if jobs is None else jobs
    check_count("jobs", jobs)
    cells = [dict(cell) for cell in cells]
    check_count("number of cells", len(cells))
    plans = [prepare(**cell) for cell in cells]  # every cell is checked before the first one starts
    todo = list({address(plan.config): cell for plan, cell in zip(plans, cells, strict=True)}.values())
    one_thread = parallel_config(backend="loky", inner_max_num_threads=1)
    with _board([cell["rounds"] for cell in todo], progress) as board, one_thread:
        work = (delayed(_run_cell)(cell, store, board, i) for i, cell in enumerate(todo))
        Parallel(n_jobs=jobs, max_nbytes=MEMORY_MAP)(work)
    labels = _labels([cell | {"algorithm": plan.algorithm} for cell, plan in zip(cells, plans, strict=True)])
    return Sweep(labels, [run(**cell, store=store, progress=False) for cell in cells])


def _run_cell(cell: dict[str, Any], store: str | Path | None, board: Path, i: int) -> None:
    """One cell, in a worker: its result goes to the run store, its progress to place i of the board."""
    done = np.memmap(board, dtype=np.int64, mode="r+")

    def tell(rounds_done: int) -> None:
        done[i] = rounds_done

    run(**cell, store=store, progress=tell)


@contextmanager
def _board(rounds: Sequence[int], progress: bool) -> Iterator[Path]:
    """A file of one counter per cell that workers write; a thread shows it as a bar: cells, rounds, ETA."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "board"
        done = np.memmap(path, dtype=np.int64, mode="w+", shape=(len(rounds),))
        stop = threading.Event()

        def show() -> None:
            with tqdm(total=sum(rounds), unit="round", disable=not progress) as bar:
                running = True
                while running:
                    running = not stop.wait(0.5)
                    finished = int((done >= rounds).sum())
                    bar.set_description(f"cell {finished}/{len(rounds)}", refresh=False)
                    bar.update(int(done.sum()) - bar.n)

        watcher = threading.Thread(target=show, daemon=True)
        watcher.start()
        try:
            yield path
        finally:
            stop.set()
            watcher.join()


def _is_value(value: Any) -> bool:
    """NamedTuples (algorithms) are single values, not axes."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _labels(cells: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Algorithm, data set and partition with their parameters, seed, and every other argument that varies."""
    rows = []
    for cell in cells:
        algorithm, federation = cell["algorithm"], cell["federation"]
        row = {"algorithm": algorithm.name, **algorithm.hyper}
        row |= {"dataset": federation.data.name, "partition": federation.partition.name}
        row |= federation.partition.params
        rows.append(row | {k: v for k, v in cell.items() if k not in ("algorithm", "federation")})
    frame = pd.DataFrame(rows)
    settings = {name for cell in cells for name in cell} - {"algorithm", "federation", "seed"}
    return frame[[name for name in frame if name not in settings or len(frame[name].unique()) > 1]]
