"""`make figures` under failures: killed, started twice, with a folder or disk that refuses writing."""

import os
import random
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pandas as pd
import pytest
from processes import command, start, wait_for
from test_batch import write_notebook

from fedlib.data import write_npz
from fedlib.tools import batch

EXPERIMENT = """
import pandas as pd
import fedlib as fl
federation = fl.federate(fl.load("own"), fl.iid(), 4)
setting = dict(model="m1_thin", rounds=2, batch_size=20, lr=0.1, progress=False)
runs = [fl.run(name, federation, seed=seed, **setting) for name in ("fedavg", "fedper", "pfedsim") for seed in (0, 1)]
report = fl.report.open("pfedmb", profile, output)
report.table(pd.DataFrame([run.summary() for run in runs]).drop(columns="seconds"), "table1")
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    """Where one notebook is, with `cells` put into it by `write`."""
    return tmp_path


def write(folder: Path, *cells: str) -> None:
    write_notebook(folder / "notebooks", "04_pfedmb", *cells)


def arguments(folder: Path, output: str = "figures") -> list[str]:
    return ["--profile", "smoke", "--notebooks", str(folder / "notebooks"), "--output", str(folder / output)]


def make(folder: Path) -> BaseProcess:
    """`make figures` in another process."""
    return start(command, "fedlib.tools.batch", arguments(folder))[0]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_after_a_kill_at_any_moment_the_same_command_ends_with_the_same_tables(folder, run_store, tiny, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(folder))
    write_npz(folder / "own.npz", tiny)
    write(folder, EXPERIMENT)
    process = make(folder)
    wait_for(lambda: len(list(run_store.glob("*/run.safetensors"))) > 2)
    time.sleep(random.uniform(0, 0.2))
    os.killpg(process.pid, signal.SIGKILL)  # the kernel notices by itself
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert batch.main(arguments(folder)) == 0
    made = folder / "figures" / "smoke" / "pfedmb" / "table1.csv"
    assert not list(folder.rglob("*.tmp"))

    monkeypatch.setenv("FEDLIB_RUNS", str(folder / "other"))
    exec(EXPERIMENT, {"profile": "smoke", "output": folder / "uninterrupted"})
    assert made.read_bytes() == (folder / "uninterrupted" / "table1.csv").read_bytes()
    assert len(pd.read_csv(made)) == 6


@pytest.mark.slow
def test_two_at_once_take_turns(folder, capsys):
    log = folder / "log"
    note = f"with open({str(log)!r}, 'a') as file:\n    file.write('{{}} ')"
    write(folder, note.format("start"), "import time; time.sleep(2)", note.format("end"))
    first = make(folder)
    wait_for(log.exists)
    assert batch.main(arguments(folder)) == 0
    first.join()
    assert first.exitcode == 0
    assert log.read_text().split() == ["start", "end", "start", "end"]
    assert "is being made by another process; waiting for it." in capsys.readouterr().err


def test_a_results_folder_that_cannot_be_written_is_one_sentence_and_nothing_runs(folder, capsys):
    write(folder, f"open({str(folder / 'log')!r}, 'w')")
    (folder / "figures").write_text("a file")
    assert batch.main(arguments(folder)) == 2
    message = capsys.readouterr().err
    assert "The results folder" in message
    assert message.count("\n") == 1
    assert not (folder / "log").exists()


@pytest.mark.skipif(os.name != "posix", reason="limits as POSIX has them")
def test_a_full_disk_is_reported_as_a_failure_of_the_notebook(folder, capsys):
    import resource

    write(folder, "print('x' * 40_000)", f"open({str(folder / 'log')!r}, 'w')")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, usual[1]))
    try:
        assert batch.main(arguments(folder)) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    summary = capsys.readouterr().out
    assert "04_pfedmb.ipynb: FAILED" in summary
    assert "File too large" in summary
    assert not (folder / "log").exists()
