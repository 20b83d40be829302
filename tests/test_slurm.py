"""A SLURM array on this machine: `sbatch` is a script that starts the tasks as processes, with SLURM's variables."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from processes import python
from refusals import refused
from safetensors.torch import load_file

import fedlib as fl
from fedlib.__main__ import main
from fedlib.runs.slurm import SCRIPT

SWEEP = """
import logging
import sys
import time

import fedlib as fl


@fl.algorithm
def slow_average(pause: float = 0.1):
    '''FedAvg that takes its time and logs its rounds.'''

    def round(state, cohort):
        logging.warning(cohort.round)
        time.sleep(pause)
        return fl.fedavg().round(state, cohort)

    return fl.fedavg()._replace(name="slow_average", round=round)


def cells():
    few = fl.index_lists([range(40 * i, 40 * i + 40) for i in range(3)])
    fed = fl.federate(fl.load("digits", copies=1), few, clients=3)
    setting = dict(rounds=9, join_ratio=1.0, lr=0.05)
    return fl.grid(algorithm=slow_average(), federation=fed, seed=[0, 1], **setting)


if __name__ == "__main__":
    for cell in [] if sys.argv[1:] else fl.slurm_share(cells()):
        fl.run(**cell, progress=False, checkpoint_seconds=0)  # a sweep has a checkpoint every 30 seconds
    for store in sys.argv[1:] or [None]:
        found = fl.sweep(fl.slurm_share(cells()), jobs=1, progress=False, store=store).summary()
        print(found[["seed", "round"]].values.tolist())
"""
SBATCH = """#!/bin/bash
array=$(sed -n 's/^#SBATCH --array=//p' "$1")
export SLURM_SUBMIT_DIR=$PWD SLURM_ARRAY_TASK_MIN=${array%-*} SLURM_ARRAY_TASK_MAX=${array#*-}
export SLURM_ARRAY_TASK_COUNT=$((SLURM_ARRAY_TASK_MAX - SLURM_ARRAY_TASK_MIN + 1))
for task in $(seq $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX); do
  SLURM_ARRAY_TASK_ID=$task setsid bash "$1" > out-$task 2>> log-$task & echo $! > pid-$task
done
wait
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with the script of `fedlib slurm` for two tasks, `sweep.py` and `sbatch`."""
    (tmp_path / "sweep.py").write_text(SWEEP)
    (tmp_path / "slurm.sh").write_text(SCRIPT.read_text().replace("--array=0-8", "--array=0-1"))
    (tmp_path / "sbatch").write_text(SBATCH)
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(Path(fl.__file__).parent.parent))
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("FEDLIB_RUNS")
    return tmp_path


def sbatch(folder: Path) -> subprocess.Popen:
    return subprocess.Popen(["bash", "sbatch", "slurm.sh"], cwd=folder)


def written(folder: Path, task: int) -> list[int]:
    file = folder / f"log-{task}"
    return [int(t) for t in re.findall(r"WARNING:root:(\d+)\n", file.read_text())] if file.exists() else []


@pytest.mark.slow
def test_a_task_that_was_killed_goes_on_from_its_checkpoint_to_the_same_bits(folder):
    array = sbatch(folder)
    end = time.monotonic() + 300
    while len(written(folder, 1)) < 4:
        assert array.poll() is None, (folder / "log-1").read_text()
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(int((folder / "pid-1").read_text()), signal.SIGKILL)  # the machine of task 1 is lost
    assert array.wait() == 0
    first = written(folder, 1)
    assert (folder / "out-0").read_text() == "[[0, 9]]\n"
    assert (folder / "out-1").read_text() == ""
    assert sbatch(folder).wait() == 0  # the same command again
    assert [(folder / f"out-{task}").read_text() for task in (0, 1)] == ["[[0, 9]]\n", "[[1, 9]]\n"]
    assert written(folder, 0) == list(range(9))  # it was read, not run again
    again = written(folder, 1)[len(first) :]
    assert again == list(range(again[0], 9))
    assert first[-1] <= again[0] <= first[-1] + 1  # with a checkpoint after every round, one round is lost at most
    assert again[0] > 0

    done = python("sweep.py", "runs", "other", cwd=folder)  # outside of an array: read all cells, and run all anew
    assert done.stdout == 2 * "[[0, 9], [1, 9]]\n"
    assert written(folder, 1) == [*first, *again]
    there, here = (sorted((folder / store).glob("slow_average-*")) for store in ("runs", "other"))
    assert [run.name for run in there] == [run.name for run in here]
    assert len(there) == 2
    for a, b in zip(there, here, strict=True):
        assert (a / "accuracy.csv").read_bytes() == (b / "accuracy.csv").read_bytes()
        trained = [load_file(run / "run.safetensors") for run in (a, b)]
        states = [{name: t for name, t in tensors.items() if name.startswith("state/")} for tensors in trained]
        assert states[0].keys() == states[1].keys() != set()
        assert all(torch.equal(t, states[1][name]) for name, t in states[0].items())


CELLS = [{"seed": seed} for seed in range(7)]


def task(monkeypatch, **variables: int) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))


@pytest.mark.parametrize(("first", "step", "count"), [(0, 1, 7), (0, 1, 3), (1, 1, 2), (2, 4, 3), (0, 1, 1)])
def test_the_tasks_of_an_array_share_all_cells(monkeypatch, first, step, count):
    shares = []
    for place in range(count):
        task(monkeypatch, ID=first + step * place, COUNT=count, MIN=first, STEP=step)
        shares.append([cell["seed"] for cell in fl.slurm_share(CELLS)])
    assert sorted(seed for share in shares for seed in share) == list(range(7))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_an_array_that_does_not_fit_is_refused(monkeypatch):
    task(monkeypatch, ID=7, COUNT=8, MIN=0, STEP=1)
    refused("an array of 8 tasks exceeds 7 cells; use --array=0-6", fl.slurm_share, CELLS)
    task(monkeypatch, ID=5, COUNT=2, MIN=2)  # --array=2,5
    refused("task 5 does not fit an array of 2 tasks from 2; use --array=0-1", fl.slurm_share, CELLS)


def test_the_command_prints_the_script(capfd):
    assert main(["slurm"]) == 0
    shown = capfd.readouterr().out
    assert shown == SCRIPT.read_text()
    assert subprocess.run(["bash", "-n", str(SCRIPT)], check=False).returncode == 0
