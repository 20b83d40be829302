"""Execute one notebook with papermill."""

import sys
from contextlib import suppress
from typing import TextIO

import papermill
from filelock import FileLock, Timeout

from fedlib.batch.kernel import RunningPython
from fedlib.batch.plan import Job
from fedlib.files import remove_unfinished


def execute(job: Job, console: TextIO | None = None) -> str | None:
    """Run one notebook, its executed copy written cell by cell; returns what went wrong, in one line.

    Progress, papermill's and the notebook's own, goes to `console` (default: standard error) while it runs; the
    executed copy keeps only what it shows at the end. Another process that makes the same copy is waited for.
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
            resources={"metadata": {"path": str(job.source.parent)}},  # where the kernel starts; `cwd` moves us all
            kernel_name="python3",
            language="python",
            kernel_manager_class=RunningPython,
            progress_bar={"file": console},
            stderr_file=console,
            coalesce_streams=True,
        )
    except papermill.PapermillExecutionError as error:
        message = str(error.evalue).strip().split("\n")[0]
        return f"cell In [{error.exec_count}] raised {error.ename}: {message}"
    except Exception as error:  # a dead kernel, a full disk: reported, and the next notebook still runs
        return f"{type(error).__name__}: {str(error).strip()}"
    finally:
        lock.release()
    return None


def check_results_folder(job: Job) -> None:
    """Raise `ValueError` unless results can be written to the job's folder, which is made."""
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
    """Who holds it writes the executed copy."""
    return FileLock(job.target.parent / ".lock")
