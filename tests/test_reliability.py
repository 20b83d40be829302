"""`make figures` and files under failures: killed, started twice, with a folder or disk that refuses writing."""

import errno
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
from fedlib.files import write_bytes, write_text
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


def write(folder: Path, *cells: str) -> None:
    write_notebook(folder / "notebooks", "04_pfedmb", *cells)


def arguments(folder: Path, output: str = "figures") -> list[str]:
    return ["--profile", "smoke", "--notebooks", str(folder / "notebooks"), "--output", str(folder / output)]


def make(folder: Path) -> BaseProcess:
    return start(command, "fedlib.tools.batch", arguments(folder))[0]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_after_a_kill_at_any_moment_the_same_command_ends_with_the_same_tables(tmp_path, run_store, tiny, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    write_npz(tmp_path / "own.npz", tiny)
    write(tmp_path, EXPERIMENT)
    process = make(tmp_path)
    wait_for(lambda: len(list(run_store.glob("*/run.safetensors"))) > 2)
    time.sleep(random.uniform(0, 0.2))
    os.killpg(process.pid, signal.SIGKILL)  # the kernel notices by itself
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert batch.main(arguments(tmp_path)) == 0
    made = tmp_path / "figures" / "smoke" / "pfedmb" / "table1.csv"
    assert not list(tmp_path.rglob("*.tmp"))

    monkeypatch.setenv("FEDLIB_RUNS", str(tmp_path / "other"))
    exec(EXPERIMENT, {"profile": "smoke", "output": tmp_path / "uninterrupted"})
    assert made.read_bytes() == (tmp_path / "uninterrupted" / "table1.csv").read_bytes()
    assert len(pd.read_csv(made)) == 6


@pytest.mark.slow
def test_two_at_once_take_turns(tmp_path, capsys):
    log = tmp_path / "log"
    note = f"with open({str(log)!r}, 'a') as file:\n    file.write('{{}} ')"
    write(tmp_path, note.format("start"), "import time; time.sleep(2)", note.format("end"))
    first = make(tmp_path)
    wait_for(log.exists)
    assert batch.main(arguments(tmp_path)) == 0
    first.join()
    assert first.exitcode == 0
    assert log.read_text().split() == ["start", "end", "start", "end"]
    assert "is being made by another process; waiting for it." in capsys.readouterr().err


def test_a_results_folder_that_cannot_be_written_is_one_sentence_and_nothing_runs(tmp_path, capsys):
    write(tmp_path, f"open({str(tmp_path / 'log')!r}, 'w')")
    (tmp_path / "figures").write_text("a file")
    assert batch.main(arguments(tmp_path)) == 2
    message = capsys.readouterr().err
    assert "The results folder" in message
    assert message.count("\n") == 1
    assert not (tmp_path / "log").exists()


@pytest.mark.skipif(os.name != "posix", reason="limits as POSIX has them")
def test_a_full_disk_is_reported_as_a_failure_of_the_notebook(tmp_path, capsys):
    import resource

    write(tmp_path, "print('x' * 40_000)", f"open({str(tmp_path / 'log')!r}, 'w')")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, usual[1]))
    try:
        assert batch.main(arguments(tmp_path)) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    summary = capsys.readouterr().out
    assert "04_pfedmb.ipynb: FAILED" in summary
    assert "File too large" in summary
    assert not (tmp_path / "log").exists()


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_text_and_bytes_arrive_unchanged_in_a_new_folder_with_the_permissions_of_any_new_file(tmp_path):
    path = tmp_path / "new" / "deep" / "a.txt"
    assert write_text(path, "Größe\r\n± 1\n") == path
    assert path.read_bytes() == "Größe\r\n± 1\n".encode()
    write_bytes(str(path), b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]
    (tmp_path / "plain").write_bytes(b"")
    assert write_bytes(tmp_path / "a", b"").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, function):
    path = write_text(tmp_path / "a.json", "old")
    monkeypatch.setattr(os, function, full_disk)
    with pytest.raises(OSError, match=r"a\.json' could not be written: No space left on device\.$") as caught:
        write_text(path, "new")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_an_interrupt_while_writing_stays_an_interrupt_and_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "a", b"data")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"file/a\.txt' could not be written"):
        write_text(tmp_path / "file" / "a.txt", "text")
