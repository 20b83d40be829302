"""A sweep: many runs in local processes or on a cluster, with results in the order of the grid."""

import inspect
import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedlib.algorithm import resolve
from fedlib.checks import check_choice, check_count, check_flag, check_kind
from fedlib.models import architectures
from fedlib.runs import cluster
from fedlib.runs.prepare import portable, prepare
from fedlib.runs.result import RunResult
from fedlib.runs.run import carry_out, run
from fedlib.runs.session import check_device
from fedlib.runs.store import RunFolder, address, store_root
from fedlib.runs.work import Work, cores, execute, execute_on_streams, together

ELSEWHERE = {  # arguments of `run` that a cell may not have
    "progress": "fl.sweep(..., progress=...)",
    "store": "fl.sweep(..., store=...)",
    "debug": "fl.run(..., debug=True) for one cell",
}
STREAMS = 8  # of a GPU: about as many as one thread can keep busy
SEVERAL = (list, tuple, range, np.ndarray, pd.Series, pd.Index)  # except a NamedTuple, such as an algorithm
Cell = Mapping[str, Any]  # arguments of `run` by name


class Sweep(NamedTuple):
    """Finished runs with their labels, as `sweep` returns them.

    Attributes:
        cells: one row of labels per run, in the order of the grid: algorithm, hyper-parameters, data set, partition
            and every other argument that varies. Of equal names, that of a hyper-parameter or of a partition has
            "algorithm." or "partition." before it.
        results: the runs, in the same order.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.iid(), clients=3)
        >>> cells = fl.grid(algorithm=["fedavg", "local_only"], federation=federation, rounds=1)
        >>> done = fl.sweep(cells, jobs=1, progress=False)
        >>> done.summary()[["algorithm", "round"]].values.tolist()
        [['fedavg', 1], ['local_only', 1]]
        >>> len(done.curves()), len(done.accuracy())
        (2, 6)
    """

    cells: pd.DataFrame
    results: list[RunResult]

    def __repr__(self) -> str:
        return f"Sweep of {len(self.results)} runs; its tables: summary(), curves(), accuracy()"

    def summary(self) -> pd.DataFrame:
        """Return one row per cell: its labels, then `RunResult.summary()`."""
        return self._joined([result.summary().to_frame().T.infer_objects() for result in self.results])

    def curves(self) -> pd.DataFrame:
        """Return one row per cell and evaluation: labels, then `RunResult.curve()`."""
        return self._joined([result.curve() for result in self.results])

    def accuracy(self) -> pd.DataFrame:
        """Return one row per cell, evaluation and client: labels, then `RunResult.accuracy`."""
        return self._joined([result.accuracy for result in self.results])

    def _joined(self, frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
        measured = {name for frame in frames for name in frame}
        labels = self.cells.rename(columns=lambda name: f"algorithm.{name}" if name in measured else name)
        rows = [
            frame.assign(**{str(name): [value] * len(frame) for name, value in label.items()})
            for label, frame in zip(labels.to_dict("records"), frames, strict=True)
        ]
        frame = pd.concat(rows, ignore_index=True)
        return frame[[*labels.columns, *frame.columns.drop(labels.columns)]]


def grid(**axes: object) -> list[dict[str, object]]:
    """Combine all arguments that have several values; other values are the same in every cell.

    Args:
        axes: arguments of `fl.run` by name, each a value, or several values: a list, a tuple, a range, an array, or a
            column of a frame. A value that is a list itself, such as several models for one run, must be inside
            another list.

    Returns:
        The cells for `fl.sweep`, dicts of arguments; the last axis changes fastest.

    Example:
        >>> [cell["seed"] for cell in fl.grid(algorithm=["fedavg", "fedper"], seed=[0, 1], rounds=20)]
        [0, 1, 0, 1]
    """
    many = {name: list(v) for name, v in axes.items() if isinstance(v, SEVERAL) and not hasattr(v, "_fields")}
    return [axes | dict(zip(many, values, strict=True)) for values in itertools.product(*many.values())]


def sweep(
    cells: Sequence[Cell],
    *,
    jobs: int | None = None,
    ray: str | None = None,
    gpus: float | None = None,
    progress: bool = True,
    store: str | Path | None = None,
) -> Sweep:
    """Run every cell (the arguments of `fl.run`) and return the results in the order of the cells.

    Cells that are already in the run store are read; equal cells are run once. With the stacked backend, cells that
    differ only in their seed or in the partition of the data are trained as one stack. Other cells run at the same time
    in local processes or on a Ray cluster. The results do not depend on where a cell runs, except that a GPU and a CPU
    differ by rounding.

    Args:
        cells: arguments of `fl.run` by name except `progress`, `store` and `debug`, one dict per run, as `fl.grid`
            makes them.
        jobs: number of runs at the same time, at least 1: on a CPU in processes of one thread each (None: one per core
            that this process may use); with the stacked backend on a GPU on CUDA streams of this process (None: 8),
            fewer if their cohorts together have more than 128 clients.
        ray: address of a Ray cluster to use instead, "auto", "host:port" or "ray://host:port". None: the environment
            variable RAY_ADDRESS, else no cluster. Cells of a lost machine are run again on another one; only this
            process writes the run store.
        gpus: share of a GPU for each run on the cluster, at least 0. None: 0.5 if the cluster has a GPU.
        progress: show a bar.
        store: folder of the run store, as in `fl.run`.

    Returns:
        The results, with the labels of each cell.

    Raises:
        ValueError: an argument of a cell is not allowed, or the cluster cannot be used; raised before any run starts,
            except by a method that cannot use the model, the federation or a setting.
        Exception: that of the first run that failed, with a note that names its cell; all other cells are finished
            (on a GPU not after an error in a training step that several runs share).

    Example:
        >>> federation = fl.federate(fl.load("digits"), fl.dirichlet(alpha=0.5), clients=10)
        >>> cells = fl.grid(algorithm=["fedavg", "fedper"], federation=federation, rounds=2, lr=0.05)
        >>> table = fl.sweep(cells, jobs=1, progress=False).summary()
        >>> table["algorithm"].tolist()
        ['fedavg', 'fedper']
    """
    check_kind("ray", ray, str | None, "the address of a Ray cluster")
    ray = ray or os.environ.get("RAY_ADDRESS") or None
    if jobs is not None:
        jobs = check_count("jobs", jobs)
    progress = check_flag("progress", progress)
    check_kind("cells", cells, Sequence, "a list of dicts, as fl.grid makes it")
    for position, cell in enumerate(cells):
        check_kind(f"cells[{position}]", cell, Mapping, "a dict of arguments of fl.run")
        if missing := {"algorithm", "federation"} - set(cell):
            raise ValueError(f"cells[{position}] lacks {min(missing)!r}; a cell holds the arguments of fl.run.")
        for name, instead in ELSEWHERE.items():
            if name in cell:
                raise ValueError(f"cells[{position}] holds {name!r}, which is the same for all cells; use {instead}.")
        for name in cell:
            check_choice(f"argument of cells[{position}]", name, inspect.signature(run).parameters.keys() - ELSEWHERE)
    cells, store = [dict(cell) for cell in cells], store_root(store).absolute()  # of workers in other folders, too
    check_count("number of cells", len(cells))
    share = 0.0  # of a GPU
    if ray is not None:
        cells, share = cluster.connect(ray, cells, gpus)
    elif gpus is not None:
        raise ValueError(f"gpus={gpus} is not allowed without a Ray cluster; name one with ray= or RAY_ADDRESS.")
    plans = [prepare(**cell) for cell in cells]  # every cell is checked before the first one starts
    for cell in cells:  # in a form that other processes can use
        cell["algorithm"] = portable(resolve(cell["algorithm"]))
        if "model" in cell:
            cell["model"] = [portable(network) for network in architectures(cell["model"])]
    todo = {address(plan.config): (cell, plan) for cell, plan in zip(cells, plans, strict=True)}
    todo = [each for each in todo.values() if RunFolder(each[1].config, store).rounds_done() < each[1].setting.rounds]
    if ray is None:
        for _, plan in todo:
            check_device(plan.setting)
    work = Work([cell for cell, _ in todo], together([plan for _, plan in todo]), store)
    kinds = {(plan.setting.device, plan.setting.backend) for _, plan in todo}
    if todo and ray is not None:
        cluster.execute(work, share, progress)
    elif kinds == {("cuda", "stacked")}:
        execute_on_streams(work, [plan for _, plan in todo], jobs or STREAMS, progress)
    elif todo:
        execute(work, jobs or (1 if any(device == "cuda" for device, _ in kinds) else cores()), progress)
    labels = _labels([cell | {"model": plan.config["model"]} for cell, plan in zip(cells, plans, strict=True)])
    return Sweep(labels, [carry_out(plan, None, False, store) for plan in plans])


def _apart(owner: str, values: Mapping[str, Any], taken: Collection[str]) -> dict[str, Any]:
    """The values, with the owner before a name that is taken."""
    return {f"{owner}.{name}" if name in taken else name: value for name, value in values.items()}


def _labels(cells: Sequence[Cell]) -> pd.DataFrame:
    """Labels of the cells: algorithm, data set and partition, their parameters, seed, and all varying arguments."""
    rows, arguments = [], {"dataset", "partition", *(name for cell in cells for name in cell)}
    hyper = {name for cell in cells for name in cell["algorithm"].hyper}
    for cell in cells:
        algorithm, federation = cell["algorithm"], cell["federation"]
        row = {"algorithm": algorithm.name, **_apart("algorithm", algorithm.hyper, arguments)}
        row |= {"dataset": federation.data.name, "partition": federation.partition.name}
        row |= _apart("partition", federation.partition.params, arguments | hyper)
        rows.append(row | {k: v for k, v in cell.items() if k not in ("algorithm", "federation")})
    frame = pd.DataFrame(rows)
    settings = arguments - {"dataset", "partition", "algorithm", "federation", "seed"}
    return frame[[name for name in frame if name not in settings or len(frame[name].unique()) > 1]]
