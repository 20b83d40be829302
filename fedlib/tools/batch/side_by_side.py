"""Several notebooks at the same time: each has its own kernel and its own line on the console."""

import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import perf_counter

from jupyter_core.utils import ensure_event_loop
from tqdm import tqdm

from fedlib.tools.batch.execute import execute
from fedlib.tools.batch.jobs import Job
from fedlib.tools.batch.kernel import end_kernels

SECONDS = 30  # between two lines about a notebook, if standard error is not a terminal


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


def side_by_side(jobs: list[Job], at_once: int, done: Callable[[Job, str | None, float], None]) -> None:
    """Run the jobs, at most `at_once` at a time; `done(job, error or None, seconds)` is called after each.

    Ctrl-C ends the running kernels and starts no others.
    """

    def run(position: int, job: Job) -> None:
        line, start = Line(job.source.name, position), perf_counter()
        with closing(line), closing(ensure_event_loop()):  # of this thread's client
            problem = execute(job, console=line)
        done(job, problem, perf_counter() - start)

    pool = ThreadPoolExecutor(at_once)
    try:
        for future in [pool.submit(run, position, job) for position, job in enumerate(jobs)]:
            future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        end_kernels()
        raise
    finally:
        pool.shutdown()
