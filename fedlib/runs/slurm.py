"""A sweep as a SLURM array, one cell per task: `fedlib slurm` prints the script for `sbatch`, `slurm.sh`.

The script runs a file of yours, `sweep.py`, in every task:

    cells = fl.grid(algorithm=["fedavg", "fedper", "pfedsim"], federation=federation, seed=[0, 1, 2], rounds=100)
    print(fl.sweep(fl.slurm_share(cells), jobs=1, progress=False).summary())

All tasks write one run store, in a folder that all machines see. When they are done, `python sweep.py` on any of these
machines, outside an array, reads all cells and prints the whole table.

A lost machine costs the work of its runs since their last checkpoints, `checkpoint_seconds` (30) or a little more.
SLURM starts the task again (`--requeue`), and so does the same `sbatch` by hand: a finished cell is read, an unfinished
one continues from its checkpoint with the same bits. Without a common folder the script can copy the runs of a task to
one machine at its end; a lost machine then costs all work of its task.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlib.checks import check_count, check_kind

SCRIPT = Path(__file__).with_name("slurm.sh")


def slurm_share(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Select the cells of this task of a SLURM array: of n tasks, task i has the cells i, i + n, i + 2n, ...

    Args:
        cells: arguments of `fl.run` by name, one dict per run, as `fl.grid` makes them; in the same order in all tasks.

    Returns:
        The cells; all of them outside an array.

    Raises:
        ValueError: the cells are not a list of dicts, the task numbers of the array are not equidistant, or there are
            more tasks than cells.

    Example:
        >>> import fedlib as fl
        >>> cells = fl.grid(algorithm=["fedavg", "fedper"], rounds=20)
        >>> len(fl.slurm_share(cells))  # outside an array
        2
    """
    check_kind("cells", cells, Sequence, "a list of dicts, as fl.grid makes it")
    for position, cell in enumerate(cells):
        check_kind(f"cells[{position}]", cell, Mapping, "a dict of arguments of fl.run")
    check_count("number of cells", len(cells))
    if "SLURM_ARRAY_TASK_ID" not in os.environ:
        return list(cells)
    task, count, first, step = (
        int(os.environ.get(f"SLURM_ARRAY_TASK_{name}", default))
        for name, default in (("ID", 0), ("COUNT", 1), ("MIN", 0), ("STEP", 1))
    )
    place, rest = divmod(task - first, step)
    if rest or not 0 <= place < count:
        raise ValueError(f"task {task} does not fit an array of {count} tasks from {first}; use --array=0-{count - 1}.")
    if count > len(cells):
        raise ValueError(
            f"an array of {count} tasks is too long for {len(cells)} cells; use --array=0-{len(cells) - 1}."
        )
    return list(cells)[place::count]
