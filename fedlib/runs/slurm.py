"""A sweep as a SLURM array, one cell per task; `fedlib slurm` prints the script for `sbatch`, `slurm.sh`."""

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
        raise ValueError(f"an array of {count} tasks exceeds {len(cells)} cells; use --array=0-{len(cells) - 1}.")
    return list(cells)[place::count]
