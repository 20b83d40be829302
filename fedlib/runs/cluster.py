"""Groups of cells on a Ray cluster. Workers send back files; the driver alone writes the run store.

Ray is an optional extra: `pip install "fedlib[ray]"`, the same version of fedlib on every machine.
"""

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedlib.checks import check_number
from fedlib.files import write_bytes
from fedlib.runs.plan import prepare
from fedlib.runs.store import RunFolder
from fedlib.runs.work import Work, board, run_group

RETRIES = 5  # of a group whose machine was lost
SHARE = 0.5  # of a GPU, for each group

Files = dict[str, bytes]  # name -> content, of one run's folder


def connect(address: str, cells: Sequence[dict[str, Any]], gpus: float | None) -> tuple[list[dict[str, Any]], float]:
    """Join the cluster; returns the cells with their device settled by it, and the GPU share of a group.

    Raises `ValueError` if Ray is not installed, no cluster answers, or a share is asked for where no GPU is.
    """
    try:
        import ray
    except ImportError:
        raise ValueError(f"ray={address!r} needs Ray, which is not installed: pip install 'fedlib[ray]'.") from None
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level="error")
    except Exception as error:  # Ray has many, depending on how the address is wrong
        raise ValueError(f"ray={address!r} cannot be used; no Ray cluster answers there ({error}).") from error
    there = ray.cluster_resources().get("GPU", 0)
    gpus = (SHARE if there else 0.0) if gpus is None else gpus
    check_number("gpus", gpus, 0, there)
    device = "cuda" if gpus else "cpu"
    cells = [cell | {"device": device} if cell.get("device", "auto") == "auto" else cell for cell in cells]
    if not gpus and any(cell["device"] == "cuda" for cell in cells):
        raise ValueError("device='cuda' is not allowed with gpus=0; give each cell a share of a GPU.")
    return cells, gpus


def execute(work: Work, gpus: float, progress: bool) -> None:
    """Run all groups on the cluster, as many side by side as it has cores and GPU shares."""
    import ray

    tracker = ray.remote(_Board).options(num_cpus=0, max_restarts=-1, max_task_retries=-1).remote(len(work.cells))
    put = {id(cell["federation"]): ray.put(cell["federation"]) for cell in work.cells}
    task = ray.remote(max_retries=RETRIES, num_cpus=1)(_run)
    groups = {}
    for group in work.groups:
        cells = [work.cells[i] for i in group]
        saved = [_files(RunFolder(prepare(**cell).config, work.store).path) for cell in cells]
        federations = [put[id(cell["federation"])] for cell in cells]
        bare = [{name: value for name, value in cell.items() if name != "federation"} for cell in cells]
        share = gpus if any(cell["device"] == "cuda" for cell in cells) else 0
        groups[task.options(num_gpus=share).remote(bare, group, saved, tracker, *federations)] = group

    rounds = np.array([cell["rounds"] for cell in work.cells])
    finished = np.zeros_like(rounds)  # the tracker starts again at zero when its machine is lost
    try:
        with board(rounds, lambda: np.maximum(finished, ray.get(tracker.read.remote())), progress):
            waiting = list(groups)
            while waiting:
                [ready], waiting = ray.wait(waiting)
                for i, (name, files) in zip(groups[ready], ray.get(ready), strict=True):
                    _keep(work.cells[i], name, files, work.store)
                    finished[i] = rounds[i]
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    finally:
        for ref in groups:
            ray.cancel(ref, force=True)
        ray.kill(tracker)


class _Board:
    """Rounds done in each cell, as told since the tracker started."""

    def __init__(self, n: int):
        self.done = np.zeros(n, dtype=np.int64)

    def tell(self, cell: int, rounds: int) -> None:
        self.done[cell] = rounds

    def read(self) -> np.ndarray:
        return self.done


def _run(
    cells: Sequence[Mapping[str, Any]], group: Sequence[int], saved: Sequence[Files], tracker: Any, *federations: Any
) -> list[tuple[str, Files]]:
    """One group, on a worker: goes on from the files `saved`, returns the name and the files of each finished run."""
    cells = [{**cell, "federation": federation} for cell, federation in zip(cells, federations, strict=True)]
    with tempfile.TemporaryDirectory() as store:
        for cell, files in zip(cells, saved, strict=True):
            for name, content in files.items():
                write_bytes(RunFolder(prepare(**cell).config, store).path / name, content)
        results = run_group(cells, store, [partial(tracker.tell.remote, i) for i in group])
        return [(result.folder.name, _files(result.folder)) for result in results]


def _files(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.glob("[a-z]*.*")}


def _keep(cell: Mapping[str, Any], name: str, files: Files, store: str | Path | None) -> None:
    """Write a finished run into the store of the driver, the file that makes it count last."""
    with RunFolder(prepare(**cell).config, store) as folder:
        if folder.path.name != name:
            raise ValueError(
                f"A worker of the cluster has another version of fedlib, or of a method, than this process: it ran "
                f"{name}, not {folder.path.name}. Install the same version everywhere."
            )
        for file in sorted(files, key=lambda file: file == folder.file.name):
            write_bytes(folder.path / file, files[file])
