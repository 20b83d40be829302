"""Execute one notebook with papermill."""

import sys
from contextlib import suppress
from typing import TextIO

import papermill
from filelock import FileLock, Timeout

from fedlib.files import remove_unfinished
from fedlib.tools.batch.jobs import Job
from fedlib.tools.batch.kernel import RunningPython

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
        papermill.execute_notebook(
            job.source,
            job.target,
            parameters=job.parameters,
            resources={
                "metadata": {"path": str(job.source.parent)}
            },  # folder of the kernel; `cwd` would change that of this process
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
