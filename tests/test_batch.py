"""The batch runner on invented notebooks, killed or on a full disk, too; its kernel; two of its results compared."""

import asyncio
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import zmq
import zmq.asyncio
from jupyter_client.session import Session
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from processes import alive, command, git, start, wait_for
from refusals import refused

from fedlib.data import write_npz
from fedlib.files import write_bytes, write_text
from fedlib.tools import batch, diff
from fedlib.tools.batch import RunningPython, WatchfulChannel

SOURCES = sorted((Path(__file__).parent.parent / "notebooks").glob("[0-9][1-9]_*.ipynb"))
KERNEL = {"name": "python3", "language": "python", "display_name": "Python 3"}
PARAMETERS = 'rounds = 2\nlr = 0.1\nseeds = [0]\nname = "a"\nverbose = False\nprofile = "?"\noutput = "."'


def write_notebook(folder: Path, stem: str, *cells: str, parameters: str = PARAMETERS) -> Path:
    """A notebook with a parameters cell and the given code cells."""
    first = new_code_cell(parameters, metadata={"tags": ["parameters"]})
    cells = [new_markdown_cell("Title"), first, *map(new_code_cell, cells)]
    folder.mkdir(exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": KERNEL}), folder / f"{stem}.ipynb")
    return folder / f"{stem}.ipynb"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "notebooks"


def arguments(folder: Path, *more: str) -> list[str]:
    return ["--notebooks", str(folder), "--output", str(folder.parent / "figures"), *more]


def run(folder: Path, *more: str) -> int:
    return batch.main(arguments(folder, *more))


def printed(notebook: Path) -> str:
    cells = nbformat.read(notebook, 4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def test_a_failing_notebook_is_reported_and_the_others_still_run(folder, capsys):
    show = "print(rounds, lr, seeds, name, verbose, profile, output, sys.executable, os.getcwd())"
    write_notebook(folder, "01_bad", "before = 1", "raise ValueError('too\\nbad')", "after = 1")
    write_notebook(folder, "02_good", "import os, sys", show)
    chosen = ("rounds=9", "lr=1e-3", "seeds=[3, 4]", "name=1")
    assert run(folder, *(word for setting in chosen for word in ("--set", setting))) == 1

    figures = folder.parent / "figures" / "quick"
    expected = f"9 0.001 [3, 4] 1 False quick ../figures/quick/good {sys.executable} {folder}\n"
    assert printed(figures / "good" / "02_good.ipynb") == expected
    summary = capsys.readouterr().out
    assert "01_bad.ipynb: FAILED" in summary
    # In [1] and In [2] are the defaults and the injected parameters
    assert "cell In [4] raised ValueError: too (see" in summary
    assert "02_good.ipynb: done" in summary
    kept = nbformat.read(figures / "bad" / "01_bad.ipynb", 4).cells
    assert [cell.execution_count for cell in kept if cell.cell_type == "code"] == [1, 2, 3, 4, None]


def test_notebooks_run_at_the_same_time_and_a_failing_one_does_not_hide_the_others(folder, capsys, monkeypatch):
    before = Path.cwd()  # which papermill may remember from another test
    monkeypatch.chdir(folder.parent)
    meet = "import pathlib, time; pathlib.Path({0!r}).touch()\nwhile not pathlib.Path({1!r}).exists(): time.sleep(0.05)"
    write_notebook(folder, "01_a", meet.format("a", "b"))  # each waits for the other
    write_notebook(folder, "02_b", meet.format("b", "a"))
    write_notebook(folder, "03_bad", "1 / 0")
    write_notebook(folder, "04_dead", "import os; os._exit(1)")
    moves = []
    monkeypatch.setattr(os, "chdir", moves.append)  # it would move the other notebook, too
    assert run(Path(folder.name), "--parallel", "2") == 1  # a relative path, as make gives it
    summary = capsys.readouterr().out.splitlines()[4:]
    assert [line.split()[:2] for line in summary[:2]] == [["01_a.ipynb:", "done"], ["02_b.ipynb:", "done"]]
    assert "03_bad.ipynb: FAILED" in summary[2]
    assert "ZeroDivisionError: division by zero" in summary[2]
    assert "04_dead.ipynb: FAILED" in summary[3]
    assert set(map(Path, moves)) <= {folder.parent, before}


@pytest.mark.parametrize(
    ("cores", "notebooks", "parallel", "expected"),
    [
        (2, 5, None, (3, [1, 1, 1, 1, 2])),  # the last one is alone in the end
        (16, 5, None, (5, [4] * 5)),
        (2, 1, None, (1, [2])),
        (2, 3, 1, (1, [2] * 3)),
        (3, 5, 2, (2, [2, 2, 2, 2, 3])),
    ],
)
def test_notebooks_share_the_cores(cores, notebooks, parallel, expected, monkeypatch):
    monkeypatch.setattr(batch, "cores", lambda: cores)
    assert batch.shares(notebooks, parallel) == expected


@pytest.mark.parametrize(("given", "expected"), [([], "1 1"), (["--jobs", "0"], "0 1"), (["--parallel", "1"], "2 2")])
def test_a_notebook_is_told_its_share_unless_jobs_are_given(given, expected, folder, monkeypatch):
    monkeypatch.setattr(batch, "cores", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS")
    threads = "import os; print(jobs, os.environ['OMP_NUM_THREADS'])"
    for name in ("01_a", "02_b"):
        write_notebook(folder, name, threads, parameters=f"{PARAMETERS}\njobs = 7")
    write_notebook(folder, "03_c", "1")  # without that parameter
    if given == ["--jobs", "0"]:
        (folder / "03_c.ipynb").unlink()
    assert run(folder, *given) == 0
    assert printed(folder.parent / "figures" / "quick" / "b" / "02_b.ipynb").strip() == expected


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
@pytest.mark.parametrize("parallel", ["1", "2"])
def test_a_batch_that_is_ended_ends_its_kernels_and_starts_no_more(folder, parallel):
    wait = "import os, pathlib, time; pathlib.Path({!r}).write_text(str(os.getpid())); time.sleep(60)"
    for name in ("01_a", "02_b", "03_c"):
        write_notebook(folder, name, wait.format(name))
    log = folder / "log"
    process, _ = start(command, "fedlib.tools.batch", arguments(folder, "--parallel", parallel), str(log))
    started = ["01_a", "02_b"][: int(parallel)]
    try:
        wait_for(lambda: all((folder / name).exists() and (folder / name).read_text() for name in started))
    finally:
        process.terminate()
    process.join(120)
    assert "Interrupted; finished runs are stored" in log.read_text()
    assert process.exitcode == 130
    wait_for(lambda: not any(alive(int((folder / name).read_text())) for name in started))
    assert not (folder / "03_c").exists()


REFUSED = ["rounds=three", "rounds=2.5", "rounds=true", "verbose=1", "lr=fast", "lr=true", "seeds=1", "seeds=[1, a]"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        *((["--set", setting], f"--set {setting} is not allowed; 01_a.ipynb takes a value of") for setting in REFUSED),
        (["--set", "seeds=[1"], "--set seeds=[1 is not allowed"),
        (["--set", "round=3"], "'round' is unknown (did you mean 'rounds'?)"),
        (["--set", "rounds"], "must look like name=value"),
        (["--set", "profile=paper"], "use --profile"),
        (["--profile", "quik"], "'quik' is unknown (did you mean 'quick'?)"),
        (["--notebook", "3"], "notebook='3' is unknown"),
        (["--jobs", "2"], "'jobs' is unknown"),
        (["--jobs", "-1"], "jobs=-1 is not allowed"),
        (["--parallel", "0"], "parallel=0 is not allowed"),
    ],
)
def test_a_wrong_argument_is_one_sentence_and_nothing_runs(folder, capsys, arguments, sentence):
    write_notebook(folder, "01_a")
    assert run(folder, *arguments) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1
    assert not (folder.parent / "figures").exists()


def test_notebooks_are_chosen_by_number_paper_or_name_and_their_defaults_are_plain_literals(folder, capsys):
    first, second = write_notebook(folder, "01_a"), write_notebook(folder, "02_b")
    assert batch.select(folder, []) == [first, second]
    assert batch.select(folder, ["b"]) == batch.select(folder, ["02", "notebooks/02_b.ipynb"]) == [second]
    refused("holds no notebook", batch.select, folder / "nowhere", [])
    write_notebook(folder, "01_a", parameters="rounds = 2 * n")
    assert run(folder) == 2
    assert "`rounds = 2 * n` must be a literal" in capsys.readouterr().err


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_notebook_source_is_clean(source):
    notebook = nbformat.read(source, 4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert {"profile", "output"} <= set(batch.defaults(source))
    for profile in ("smoke", "quick", "paper"):
        assert batch.make_job(source, profile, Path("figures")).parameters["profile"] == profile


async def reply_after_a_swallowed_announcement(channel_class: type) -> dict:
    """The reply that a waiting channel gets although another look at its socket has taken the wake-up signal."""
    context, session = zmq.asyncio.Context(), Session(key=b"")
    ours, theirs = context.socket(zmq.PAIR), zmq.Socket(context, zmq.PAIR)
    try:
        theirs.bind("inproc://kernel")
        ours.connect("inproc://kernel")
        waiting = asyncio.ensure_future(channel_class(ours, session).get_msg())
        await asyncio.sleep(0.1)
        session.send(theirs, "execute_reply")
        assert zmq.Socket.shadow(ours.underlying).get(zmq.EVENTS) & zmq.POLLIN  # the event loop is not told any more
        return await asyncio.wait_for(waiting, 2)
    finally:
        ours.close(0)
        theirs.close(0)
        context.term()


def test_a_reply_is_found_although_its_announcement_was_swallowed():
    assert RunningPython().client_factory.shell_channel_class is WatchfulChannel
    assert asyncio.run(reply_after_a_swallowed_announcement(WatchfulChannel))["msg_type"] == "execute_reply"


ROOT = Path(__file__).parent.parent
PICTURE = {"image/png": "aGk=", "text/plain": "<Figure at 0x1>"}


def executed(path, number="0.5", seconds="1.5", where="a", timing=("timing",), rounds=3):
    table = f"<table><tr><td>accuracy</td><td>{number}</td></tr><tr><td>time</td><td>{seconds}</td></tr></table>"
    cells = [
        new_code_cell(f'# x\noutput = "{where}"\nrounds = {rounds}\n', metadata={"tags": ["injected-parameters"]}),
        new_code_cell("table", outputs=[new_output("display_data", data={"text/html": table, "text/plain": where})]),
        new_code_cell("clock", metadata={"tags": [*timing]}, outputs=[new_output("stream", text=seconds)]),
        new_code_cell("draw", outputs=[new_output("execute_result", data=PICTURE, execution_count=len(where))]),
        new_code_cell("run", outputs=[new_output("stream", name="stderr", text=seconds)]),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata={"papermill": {"duration": seconds}}), path)
    return str(path)


def test_time_and_place_make_no_difference(tmp_path, capsys):
    a = executed(tmp_path / "a.ipynb")
    b = executed(tmp_path / "b.ipynb", seconds="2.5", where="elsewhere")
    assert diff.main([a, b]) == 0
    assert capsys.readouterr().out == "a.ipynb: the same, cell by cell\n"


@pytest.mark.parametrize("change", [{"number": "0.6"}, {"seconds": "2.5", "timing": ()}, {"rounds": "4"}])
def test_a_number_that_differs_is_shown(tmp_path, capsys, change):
    a = executed(tmp_path / "a.ipynb", **{name: value for name, value in change.items() if name == "timing"})
    b = executed(tmp_path / "b.ipynb", **change)
    assert diff.main([a, b]) == 1
    shown = capsys.readouterr().out
    assert "a.ipynb: DIFFERENT" in shown
    assert next(iter(change.values())) in shown


def test_folders_are_compared_notebook_by_notebook(tmp_path, capsys):
    for folder in "ab":
        executed(tmp_path / folder / "quick" / "pfedsim" / "01_pfedsim.ipynb", where=folder)
        executed(tmp_path / folder / "quick" / "pfedmb" / "04_pfedmb.ipynb", number="1" if folder == "a" else "2")
    assert diff.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    shown = capsys.readouterr().out
    assert "01_pfedsim.ipynb: the same" in shown
    assert "04_pfedmb.ipynb: DIFFERENT" in shown


def test_what_cannot_be_compared_is_said_in_one_sentence(tmp_path, capsys):
    executed(tmp_path / "a" / "01_a.ipynb")
    executed(tmp_path / "b" / "02_b.ipynb")
    assert diff.main([str(tmp_path / "a"), str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert diff.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "only in one: 01_a.ipynb, 02_b.ipynb" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="make needs a POSIX shell")
def test_git_shows_and_merges_notebooks_cell_by_cell_after_make_setup(tmp_path):
    """In a clone whose Makefile and .gitattributes are ours and whose .venv is the running one."""
    for name in ("Makefile", ".gitattributes"):
        shutil.copy(ROOT / name, tmp_path)
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    venv = f"VENV={sys.prefix}"
    subprocess.run(["make", "-C", str(tmp_path), venv, "-o", f"{sys.prefix}/.installed-notebooks", "setup"], check=True)

    def commit(first, second):
        cells = [new_code_cell(first, id="one"), new_code_cell("middle", id="two"), new_code_cell(second, id="three")]
        nbformat.write(new_notebook(cells=cells), tmp_path / "01_a.ipynb")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "--message", "change")

    commit("a = 1", "b = 1")
    git(tmp_path, "branch", "other")
    commit("a = 2", "b = 1")
    assert "modified /cells/0/source" in git(tmp_path, "diff", "HEAD~1")
    git(tmp_path, "checkout", "--quiet", "other")
    commit("a = 1", "b = 2")
    git(tmp_path, "merge", "--quiet", "--no-edit", "main")
    merged = nbformat.read(tmp_path / "01_a.ipynb", 4)
    assert [cell.source for cell in merged.cells] == ["a = 2", "middle", "b = 2"]


# Failures
EXPERIMENT = """
import pandas as pd
import fedlib as fl
federation = fl.federate(fl.load("own"), fl.iid(), 4)
setting = dict(model="m1_thin", rounds=2, batch_size=20, lr=0.1, progress=False)
runs = [fl.run(name, federation, seed=seed, **setting) for name in ("fedavg", "fedper", "pfedsim") for seed in (0, 1)]
report = fl.report.open("pfedmb", profile, output)
report.table(pd.DataFrame([run.summary() for run in runs]).drop(columns="seconds"), "table1")
"""


def make(folder: Path) -> BaseProcess:
    return start(command, "fedlib.tools.batch", arguments(folder, "--profile", "smoke"))[0]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_after_a_kill_at_any_moment_the_same_command_ends_with_the_same_tables(tmp_path, run_store, tiny, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    write_npz(tmp_path / "own.npz", tiny)
    write_notebook(folder := tmp_path / "notebooks", "04_pfedmb", EXPERIMENT)
    process = make(folder)
    wait_for(lambda: len(list(run_store.glob("*/run.safetensors"))) > 2)
    time.sleep(random.uniform(0, 0.2))
    os.killpg(process.pid, signal.SIGKILL)  # the kernel notices by itself
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert run(folder, "--profile", "smoke") == 0
    made = tmp_path / "figures" / "smoke" / "pfedmb" / "table1.csv"
    assert not list(tmp_path.rglob("*.tmp"))

    monkeypatch.setenv("FEDLIB_RUNS", str(tmp_path / "other"))
    exec(EXPERIMENT, {"profile": "smoke", "output": tmp_path / "uninterrupted"})
    assert made.read_bytes() == (tmp_path / "uninterrupted" / "table1.csv").read_bytes()
    assert len(pd.read_csv(made)) == 6


@pytest.mark.slow
def test_two_at_once_take_turns(folder, tmp_path, capsys):
    log = tmp_path / "log"
    note = f"with open({str(log)!r}, 'a') as file:\n    file.write('{{}} ')"
    write_notebook(folder, "04_pfedmb", note.format("start"), "import time; time.sleep(2)", note.format("end"))
    first = make(folder)
    wait_for(log.exists)
    assert run(folder, "--profile", "smoke") == 0
    first.join()
    assert first.exitcode == 0
    assert log.read_text().split() == ["start", "end", "start", "end"]
    assert "is being made by another process; waiting for it." in capsys.readouterr().err


def test_a_results_folder_that_cannot_be_written_is_one_sentence_and_nothing_runs(folder, tmp_path, capsys):
    write_notebook(folder, "04_pfedmb", f"open({str(tmp_path / 'log')!r}, 'w')")
    (tmp_path / "figures").write_text("a file")
    assert run(folder, "--profile", "smoke") == 2
    message = capsys.readouterr().err
    assert "The results folder" in message
    assert message.count("\n") == 1
    assert not (tmp_path / "log").exists()


@pytest.mark.skipif(os.name != "posix", reason="limits as POSIX has them")
def test_a_full_disk_is_reported_as_a_failure_of_the_notebook(folder, tmp_path, capsys):
    import resource

    write_notebook(folder, "04_pfedmb", "print('x' * 40_000)", f"open({str(tmp_path / 'log')!r}, 'w')")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, usual[1]))
    try:
        assert run(folder, "--profile", "smoke") == 1
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
