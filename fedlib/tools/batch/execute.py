"""Execute notebooks with papermill, in kernels of the running Python whose clients miss no reply."""

import os
import re
import secrets
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TextIO
from weakref import WeakSet

import papermill
from filelock import FileLock, Timeout
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from tqdm import tqdm

from fedlib.files import remove_unfinished

START_TIMEOUT = 600  # seconds until a kernel answers: its first imports from a cold or shared disk take long
SECONDS = 30  # between two lines about a notebook, if standard error is not a terminal


class Job(NamedTuple):
    """One notebook to execute: `source` with `parameters` into `target`."""

    source: Path
    target: Path
    parameters: dict[str, Any]


def run_all(jobs: list[Job], at_once: int = 1) -> int:
    """Run the jobs, `at_once` at the same time, and print a summary; returns the number of failed jobs.

    Ctrl-C ends the running kernels and starts no others.
    """

    def run(position: int, job: Job) -> tuple[str, bool]:
        print(f"{job.source.name} -> {job.target}", flush=True)
        start, line = perf_counter(), Line(job.source.name, position) if at_once > 1 else None
        with closing(ensure_event_loop()), closing(line) if line else nullcontext():
            problem = execute(job, console=line)
        seconds = perf_counter() - start
        if problem is None:
            ending = f"done in {seconds:.0f} s, tables and figures in {job.target.parent}"
        else:
            ending = f"FAILED after {seconds:.0f} s: {problem} (see {job.target})"
        return f"{job.source.name}: {ending}", problem is None

    pool = ThreadPoolExecutor(at_once)
    try:
        futures = [pool.submit(run, position, job) for position, job in enumerate(jobs)]
        lines, done = zip(*(future.result() for future in futures), strict=True)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        end_kernels()
        raise
    finally:
        pool.shutdown()
    print(*lines, sep="\n", flush=True)
    return done.count(False)


class Line:
    """A file that shows the last line written to it: in place in a terminal, else as a new line every 30 s."""

    def __init__(self, name: str, position: int):
        self.name, self.shown_at = name, perf_counter()
        self.bar = tqdm(bar_format="{desc}", position=position, leave=False) if sys.stderr.isatty() else None

    def write(self, text: str) -> None:
        """Show the last line of `text`."""
        *_, last = ["", *filter(None, map(str.strip, re.split(r"[\r\n]", text)))]
        if self.bar is not None and last:
            self.bar.set_description_str(f"{self.name}: {last}"[: self.bar.ncols or 100])
        elif last and perf_counter() - self.shown_at > SECONDS:
            print(f"{self.name}: {last}", file=sys.stderr, flush=True)
            self.shown_at = perf_counter()

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def close(self) -> None:
        """Remove the line from the terminal."""
        if self.bar is not None:
            self.bar.close()


def execute(job: Job, console: TextIO | None = None) -> str | None:
    """Execute one notebook and write its copy after every cell; returns None, or one line that describes the error.

    Progress of papermill and of the notebook is shown on `console` (default: standard error) while it runs; the copy
    holds only its last state. If another process writes the same copy, this one waits for it.
    """
    console = console or sys.stderr
    lock = results_lock(job)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(f"{job.target} is being made by another process; waiting for it.", file=console, flush=True)
            lock.acquire()
        remove_unfinished(job.target.parent)
        folder = {"metadata": {"path": str(job.source.parent)}}  # `cwd` would move this process, too
        papermill.execute_notebook(
            job.source,
            job.target,
            parameters=job.parameters,
            resources=folder,
            kernel_name="python3",
            language="python",
            kernel_manager_class=RunningPython,
            start_timeout=START_TIMEOUT,
            progress_bar={"file": console},
            stderr_file=console,
            coalesce_streams=True,
        )
    except papermill.PapermillExecutionError as error:
        message = str(error.evalue).strip().split("\n")[0]
        return f"cell In [{error.exec_count}] raised {error.ename}: {message}"
    except Exception as error:  # such as a dead kernel or a full disk: the next notebook still runs
        return f"{type(error).__name__}: {str(error).strip()}"
    finally:
        lock.release()
    return None


def check_results_folder(job: Job) -> None:
    """Make the job's folder; raise `ValueError` if it cannot be written."""
    try:
        job.target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(Timeout), results_lock(job).acquire(timeout=0):
            pass
    except OSError as error:
        raise ValueError(
            f"The results folder {str(job.target.parent)!r} cannot be written ({error.strerror}); name another one "
            f"with --output."
        ) from error


def results_lock(job: Job) -> FileLock:
    """The lock that a process holds while it writes the executed copy."""
    return FileLock(job.target.parent / ".lock")


# -- the kernel -----------------------------------------------------------------------------------------------------


class WatchfulChannel(AsyncZMQSocketChannel):
    """A channel that polls for the next message every half second instead of waiting for the signal of the socket.

    The client answers widgets with synchronous sends on the same socket. These can clear the signal for a cell's reply
    (a ZeroMQ socket signals changes, not states), and the client would wait for the reply forever.
    """

    async def get_msg(self, timeout: float | None = None) -> dict:
        """The next message; with a `timeout` in seconds, `queue.Empty` if none comes in time."""
        while timeout is None and not await self.socket.poll(500):
            pass
        return await super().get_msg(timeout)


class WatchfulClient(AsyncKernelClient):
    """A client whose replies come through a `WatchfulChannel`."""

    shell_channel_class = WatchfulChannel


RUNNING: "WeakSet[RunningPython]" = WeakSet()


class RunningPython(AsyncKernelManager):
    """Starts kernels with the running interpreter, independent of the kernels registered on this machine.

    On POSIX systems the kernels use Unix sockets with random names, not ports: two kernels that start at the same time
    could choose the same free port.
    """

    kernel_spec = KernelSpec(**get_kernel_dict(["--log-level=CRITICAL"]))
    client_factory = WatchfulClient

    def __init__(self, **options):
        super().__init__(**options)
        RUNNING.add(self)
        if os.name == "posix":
            self.transport, self.ip = "ipc", f"{tempfile.gettempdir()}/fedlib-{secrets.token_hex(8)}"


def end_kernels() -> None:
    """End all kernels that this process has started; a call that waits for one of them fails."""
    for kernel in list(RUNNING):
        process = getattr(kernel.provisioner, "process", None)
        if process is not None:
            process.kill()
