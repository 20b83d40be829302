"""Several notebooks at once: each has its own kernel and its own line on the console."""

import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import perf_counter

from jupyter_core.utils import ensure_event_loop
from tqdm import tqdm

from fedlib.batch.execute import execute
from fedlib.batch.kernel import end_kernels
from fedlib.batch.plan import Job

SECONDS = 30  # between two lines about a notebook where the console is a file


class Line:
    """A file that shows the last thing written to it: in place in a terminal, else as a new line now and then."""

    def __init__(self, name: str, position: int):
        self.name, self.shown_at = name, perf_counter()
        self.bar = tqdm(bar_format="{desc}", position=position, leave=False) if sys.stderr.isatty() else None

    def write(self, text: str) -> None:
        *_, last = ["", *filter(None, map(str.strip, re.split(r"[\r\n]", text)))]
        if self.bar is not None and last:
            self.bar.set_description_str(f"{self.name}: {last}"[: self.bar.ncols or 100])
        elif last and perf_counter() - self.shown_at > SECONDS:
            print(f"{self.name}: {last}", file=sys.stderr, flush=True)
            self.shown_at = perf_counter()

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def side_by_side(jobs: list[Job], at_once: int, done: Callable[[Job, str | None, float], None]) -> None:
    """Run the jobs, at most `at_once` at a time; `done(job, what went wrong, seconds)` is called as each ends.

    Ctrl-C ends the kernels that run and starts no other.
    """

    def run(position: int, job: Job) -> None:
        line, start = Line(job.source.name, position), perf_counter()
        with closing(line), closing(ensure_event_loop()):  # the one that this thread's client runs in
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
