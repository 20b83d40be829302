"""Execute one notebook with papermill, in a kernel of the running Python whose client misses no reply."""

import os
import secrets
import sys
import tempfile
from contextlib import suppress
from typing import TextIO
from weakref import WeakSet

import papermill
from filelock import FileLock, Timeout
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from fedlib.files import remove_unfinished
from fedlib.tools.batch.jobs import Job

START_TIMEOUT = 600  # seconds until a kernel answers: its first imports from a cold or shared disk take long


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
