"""Short runs of a study as JSON: `python short_runs.py PAPER ROUNDS NAME SEED DEVICE [...]`, one line for each.

It uses the library that Python finds, which may be older than this file: see `recheck`.
"""

import hashlib
import json
import sys
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path

import fedlib as fl
from fedlib.studies import rows
from fedlib.studies.study import study
from fedlib.studies.tasks import Probe, Task

ABOUT = {"code", "commit", "config", "machine", "packages", "python", "rechecked", "seconds", "seconds_of_rounds"}


def values(facts: dict[str, Any]) -> dict[str, Any]:
    """Numerical fields of a row, without code, machine and time."""
    return {name: value for name, value in facts.items() if name not in ABOUT}


def bits(result: fl.RunResult) -> str:
    """A hash of all models of the last evaluation."""
    digest = hashlib.sha256()
    leaves, _ = tree_flatten_with_path(result.models)
    for _, weights in sorted(leaves, key=lambda leaf: keystr(leaf[0])):
        digest.update(weights.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def trial(task: Task, seed: int, rounds: int, device: str) -> dict[str, Any]:
    """The values of a run's row after this number of rounds, or of a measurement's row."""
    if isinstance(task, Probe):
        return values(rows.facts_of(task, seed, task.measure(seed, *task.arguments), 0.0))
    setting = task.arguments(seed)
    result = fl.run(**setting | {"rounds": min(rounds, setting["rounds"]), "device": device}, progress=False)
    return values(rows.facts_of(task, seed, result, 0.0)) | {"models": bits(result)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    paper, rounds, *wanted = sys.argv[1:]
    tasks = {task.name: task for cell in study(paper, "paper").cells for task in cell.tasks}
    for name, seed, device in zip(wanted[::3], wanted[1::3], wanted[2::3], strict=True):
        found = trial(tasks[name], int(seed), int(rounds), device) if name in tasks else None
        print(json.dumps([name, int(seed), device, found]))
