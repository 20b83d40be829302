"""Recheck of rows of older code with the first rounds of their runs.

A row whose code has changed since its run proves nothing any more, even if only a name has changed. So the first
rounds of its run are repeated with the code of its commit and with today's. If accuracies, losses, bytes, kept values
and models agree to the bit, the row gets the fingerprint of today's code and a note of the recheck. A measurement is
repeated completely, and compared with its row: it may differ on another type of processor, because rounding does.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch

from fedlib.studies import rows
from fedlib.studies import short_runs as trial
from fedlib.studies.runner import check_clean
from fedlib.studies.study import Study, study
from fedlib.studies.tasks import Run, Task, here

ROOT = Path(__file__).resolve().parent.parent.parent
Short = tuple[str, int, str]  # a short run: its name, seed and device


def older(one: Study, folder: Path = rows.FOLDER) -> list[tuple[Task, rows.Row]]:
    """The rows of a study whose code has changed since, with their tasks, if data and device are on this machine."""
    one = one.replace(rows=rows.read(one.paper, folder))
    pairs = [(one.tasks[row.task], row) for key, row in one.rows.items() if key in one.stale]
    devices = {"cpu", "cuda"} if torch.cuda.is_available() else {"cpu"}
    return [(task, row) for task, row in pairs if here(task) and device(row) in devices]


def device(row: rows.Row) -> str:
    """Device of a row: "cpu" or "cuda"."""
    return row.facts.get("config", {}).get("device", "cpu")


def recheck(papers: Sequence[str], rounds: int = 4, folder: Path = rows.FOLDER) -> tuple[int, int]:
    """Compare `rounds` rounds of the rows of older code; returns the numbers of rows that agree and that do not."""
    # With four rounds, methods with two phases reach the second one. Rows that do not agree need `--stale` runs.
    head, agree, differ = check_clean(), 0, 0
    for paper in papers:
        by_commit = defaultdict(list)
        for task, row in older(study(paper), folder):
            by_commit[row.facts["commit"]].append((task, row))
        for commit, pairs in by_commit.items():
            runs = [(task, row) for task, row in reversed(pairs) if isinstance(task, Run)]
            once = {(task.name, device(row)): (task.name, row.seed, device(row)) for task, row in runs}
            each = [(task.name, row.seed, "cpu") for task, row in pairs if not isinstance(task, Run)]
            then: dict[Short, object] = {}
            if once:
                with tempfile.TemporaryDirectory() as before:
                    unpack(commit, Path(before))
                    then = outcomes(Path(before), paper, rounds, [*once.values()])
            now = outcomes(ROOT, paper, rounds, [*once.values(), *each])
            for task, row in pairs:
                run = isinstance(task, Run)
                short = once[task.name, device(row)] if run else (task.name, row.seed, "cpu")
                today, known = now[short], then[short] if run else trial.values(dict(row.facts))
                same = known is not None and today == known
                agree, differ = agree + same, differ + (not same)
                print(f"{paper}: {task.name}, seed {row.seed}: {'agrees' if same else 'DIFFERS'}")
                if same:
                    about = {"commit": head, "rounds": rounds if run else None}
                    rows.write(paper, {**row.facts, "code": rows.code(task, row), "rechecked": about}, folder)
    return agree, differ


def unpack(commit: str, folder: Path) -> None:
    """Write the library as it was at a commit; `ValueError` if this clone does not have the commit."""
    done = subprocess.run(["git", "archive", commit, "fedlib"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise ValueError(f"commit {commit[:7]} of some rows is not in this clone; run git fetch --unshallow.")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


def outcomes(code: Path, paper: str, rounds: int, wanted: Sequence[Short]) -> dict[Short, object]:
    """Values of short runs with the library in a folder; None for a run that it does not know."""
    command = [sys.executable, "-P", trial.__file__, paper, str(rounds), *(str(word) for one in wanted for word in one)]
    with tempfile.TemporaryDirectory() as store:
        own = os.environ | {"PYTHONPATH": str(code), "FEDLIB_RUNS": store}
        done = subprocess.run(command, env=own, cwd=code, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ValueError(f"the short runs with the code in {code} have failed; their messages are above.")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {(name, seed, device): found for name, seed, device, found in lines}
