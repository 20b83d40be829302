"""A sweep: the cells of a table, run side by side here or on a cluster, collected in the order of the grid."""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fedlib.algorithm import resolve
from fedlib.checks import check_count, check_flag, check_kind
from fedlib.runs.plan import Plan, portable, prepare
from fedlib.runs.result import RunResult
from fedlib.runs.rounds import carry_out
from fedlib.runs.session import check_device
from fedlib.runs.store import RunFolder, address
from fedlib.runs.work import Work, cores, execute, together


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
    ray: str | None = None,
    gpus: float | None = None,
    progress: bool = True,
    store: str | Path | None = None,
) -> Sweep:
    """Run every cell (the arguments of `fl.run`) and return the results in the order given.

    Cells that are already in the run store are read; equal cells are run once. With the stacked backend cells that
    differ only in their seed or in who owns which samples are trained as one stack. The rest is side by side:

    - in `jobs` local processes of one thread each (default: one per core this process may use; one for a GPU);
    - or on the Ray cluster at the address `ray` ("auto", "host:port", "ray://host:port"; default: the environment
      variable RAY_ADDRESS, else none), each with the share `gpus` of a GPU (default: 0.5 if the cluster has one).
      Cells of a lost machine are run again elsewhere; only this process writes the run store.

    The numbers do not depend on where a cell runs; those of a GPU and a CPU differ by rounding.
    """
    check_kind("ray", ray, str | None, "the address of a Ray cluster")
    ray = ray or os.environ.get("RAY_ADDRESS") or None
    if jobs is not None:
        check_count("jobs", jobs)
    check_flag("progress", progress)
    check_kind("cells", cells, Sequence, "a list of dicts, as fl.grid makes it")
    for position, cell in enumerate(cells):
        check_kind(f"cells[{position}]", cell, Mapping, "a dict of arguments of fl.run")
        if missing := {"algorithm", "federation"} - set(cell):
            raise ValueError(f"cells[{position}] lacks {min(missing)!r}; a cell holds the arguments of fl.run.")
    cells = [dict(cell) for cell in cells]
    check_count("number of cells", len(cells))
    if ray is not None:
        from fedlib.runs import cluster

        cells, gpus = cluster.connect(ray, cells, gpus)
    elif gpus is not None:
        raise ValueError(f"gpus={gpus} is not allowed without a Ray cluster; name one with ray= or RAY_ADDRESS.")
    plans = [prepare(**cell) for cell in cells]  # every cell is checked before the first one starts
    cells = [cell | {"algorithm": portable(resolve(cell["algorithm"]))} for cell in cells]
    todo = {address(plan.config): (cell, plan) for cell, plan in zip(cells, plans, strict=True)}
    todo = [(cell, plan) for cell, plan in todo.values() if _unfinished(plan, store)]
    if ray is None:
        for _, plan in todo:
            check_device(plan.setting)
    work = Work([cell for cell, _ in todo], together([plan for _, plan in todo]), store)
    if todo and ray is not None:
        cluster.execute(work, gpus, progress)
    elif todo:
        on_gpu = any(plan.setting.device == "cuda" for _, plan in todo)
        execute(work, jobs or (1 if on_gpu else cores()), progress)
    return Sweep(_labels(cells), [carry_out(plan, None, False, store) for plan in plans])


def _unfinished(plan: Plan, store: str | Path | None) -> bool:
    return RunFolder(plan.config, store).rounds_done() < plan.setting.rounds


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
