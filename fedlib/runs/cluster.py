"""The tasks of a sweep on a Ray cluster. Workers send back files; only the driver writes the run store."""

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedlib.checks import check_number
from fedlib.extras import install
from fedlib.files import write_bytes
from fedlib.runs.prepare import prepare
from fedlib.runs.store import RunFolder
from fedlib.runs.work import Errors, Work, board, raise_first, run_task

RETRIES = 5  # of a task whose machine was lost
SHARE = 0.5  # of a GPU for each task

Files = dict[str, bytes]  # name -> content, of one run's folder


def connect(address: str, cells: Sequence[dict[str, Any]], gpus: float | None) -> tuple[list[dict[str, Any]], float]:
    """Join the cluster; return the cells with "auto" devices resolved, and the GPU share of a task."""
    # `ValueError` without Ray, without a cluster at the address, or without a GPU to share
    try:
        import ray
    except ImportError:
        raise ValueError(f"ray={address!r} needs Ray, which is not installed: {install('ray')}.") from None
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level="error")
    except Exception as error:  # its type depends on the address
        raise ValueError(f"ray={address!r} cannot be used; no Ray cluster answers there ({error}).") from error
    n_gpus = ray.cluster_resources().get("GPU", 0)
    gpus = (SHARE if n_gpus else 0.0) if gpus is None else gpus
    check_number("gpus", gpus, 0, n_gpus)
    device = "cuda" if gpus else "cpu"
    cells = [cell | {"device": device} if cell.get("device", "auto") == "auto" else cell for cell in cells]
    if not gpus and any(cell["device"] == "cuda" for cell in cells):
        raise ValueError("device='cuda' is not allowed with gpus=0; give each cell a share of a GPU.")
    return cells, gpus


def execute(work: Work, gpus: float, progress: bool) -> None:
    """Run all tasks on the cluster, in parallel as far as cores and GPU shares allow."""
    import ray

    tracker = ray.remote(_Board).options(num_cpus=0, max_restarts=-1, max_task_retries=-1).remote(len(work.cells))
    put = {id(cell["federation"]): ray.put(cell["federation"]) for cell in work.cells}
    remote = ray.remote(max_retries=RETRIES, num_cpus=1)(_run)
    tasks = {}
    for task in work.tasks:
        cells = [work.cells[i] for i in task]
        saved = [_files(RunFolder(prepare(**cell).config, work.store).path) for cell in cells]
        federations = [put[id(cell["federation"])] for cell in cells]
        bare = [{name: value for name, value in cell.items() if name != "federation"} for cell in cells]
        share = gpus if any(cell["device"] == "cuda" for cell in cells) else 0
        tasks[remote.options(num_gpus=share).remote(bare, task, saved, tracker, *federations)] = task

    rounds = np.array([cell["rounds"] for cell in work.cells])
    finished, failed = np.zeros_like(rounds), {}  # the tracker restarts at zero if its machine is lost
    try:
        with board(rounds, lambda: np.maximum(finished, ray.get(tracker.read.remote())), progress):
            waiting = list(tasks)
            while waiting:
                [ready], waiting = ray.wait(waiting)
                made, errors = ray.get(ready)
                failed |= {tasks[ready][k]: error for k, error in errors.items()}
                for i, (name, files) in zip(tasks[ready], made, strict=True):
                    if i not in failed:
                        _keep(work.cells[i], name, files, work.store)
                        finished[i] = rounds[i]
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    finally:
        for ref in tasks:
            ray.cancel(ref, force=True)
        ray.kill(tracker)
    raise_first(failed, work)


class _Board:
    """Rounds done in each cell since the tracker started."""

    def __init__(self, n: int):
        self.done = np.zeros(n, dtype=np.int64)

    def report(self, cell: int, rounds: int) -> None:
        self.done[cell] = rounds

    def read(self) -> np.ndarray:
        return self.done


def _run(
    cells: Sequence[Mapping[str, Any]], task: Sequence[int], saved: Sequence[Files], tracker: Any, *federations: Any
) -> tuple[list[tuple[str, Files]], Errors]:
    """Run one task on a worker, from the files `saved`; return folder name and files of each run, and the errors."""
    cells = [{**cell, "federation": federation} for cell, federation in zip(cells, federations, strict=True)]
    with tempfile.TemporaryDirectory() as store:
        folders = [RunFolder(prepare(**cell).config, store).path for cell in cells]
        for folder, files in zip(folders, saved, strict=True):
            for name, content in files.items():
                write_bytes(folder / name, content)
        errors = run_task(cells, store, [partial(tracker.report.remote, i) for i in task])
        return [(folder.name, _files(folder)) for folder in folders], errors


def _files(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.glob("[a-z]*.*")}


def _keep(cell: Mapping[str, Any], name: str, files: Files, store: str | Path | None) -> None:
    """Write a finished run into the store of the driver; the file that marks it as finished comes last."""
    with RunFolder(prepare(**cell).config, store) as folder:
        if folder.path.name != name:
            raise ValueError(
                f"A worker of the cluster has another version of fedlib, or of a method, than this process: it ran "
                f"{name}, not {folder.path.name}. Install the same version everywhere."
            )
        for file in sorted(files, key=lambda file: file == folder.file.name):
            write_bytes(folder.path / file, files[file])
