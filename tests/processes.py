"""Other processes; some need not import PyTorch and the library, they are forked from one that has already done so."""

import multiprocessing
import os
import runpy
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import cloudpickle

CONTEXT = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CONTEXT.set_forkserver_preload(["fedlib.tools.batch", "torch._dynamo"])


def start(work: Callable[..., None], *given: Any) -> tuple[BaseProcess, Iterator[Any]]:
    """A process that calls `work(tell, *given)` in a separate session, and its messages until it ends."""
    ours, theirs = CONTEXT.Pipe(duplex=False)
    task = dict(os.environ), theirs, cloudpickle.dumps((work, given))
    process = CONTEXT.Process(target=_call, args=task, daemon=True)
    process.start()
    theirs.close()
    return process, _told(ours)


def command(tell: Callable[[Any], None], module: str, arguments: list[str], log: str = os.devnull) -> None:
    """What `python -m module arguments` does; what it prints goes to the file `log`."""
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def python(*arguments: str | Path, cwd: Path | None = None, **variables: Any) -> subprocess.CompletedProcess[str]:
    """What `python arguments` has printed, with these variables of the environment; it must succeed."""
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def git(folder: Path, *arguments: str) -> str:
    """What git prints in a folder, whoever its user is."""
    user = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *user, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; an error after two minutes."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def note_and_sleep(*_: Any) -> None:
    """A worker that takes long; its process is a file in the run store."""
    (Path(os.environ["FEDLIB_RUNS"]) / str(os.getpid())).touch()
    time.sleep(600)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _call(environment: dict[str, str], theirs: Connection, task: bytes) -> None:
    if os.name == "posix":
        os.setsid()
    os.environ.clear()
    os.environ.update(environment)  # the process that was copied has an older one
    work, given = cloudpickle.loads(task)
    work(theirs.send, *given)


def _told(ours: Connection) -> Iterator[Any]:
    with ours:
        while True:
            try:
                yield ours.recv()
            except EOFError:
                return
