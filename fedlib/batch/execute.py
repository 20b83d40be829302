"""Execute one notebook with papermill."""

import sys
from typing import TextIO

import papermill

from fedlib.batch.kernel import RunningPython
from fedlib.batch.plan import Job


def execute(job: Job, console: TextIO | None = None) -> str | None:
    """Run one notebook, its executed copy written cell by cell; returns what went wrong, in one line.

    Progress, papermill's and the notebook's own, goes to `console` (default: standard error) while it runs; the
    executed copy keeps only what it shows at the end.
    """
    console = console or sys.stderr
    job.target.parent.mkdir(parents=True, exist_ok=True)
    try:
        papermill.execute_notebook(
            job.source,
            job.target,
            parameters=job.parameters,
            cwd=job.source.parent,
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
    return None
