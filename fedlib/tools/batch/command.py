"""The command line: check the arguments, execute the notebooks, print a summary, write the page of all results."""

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from time import perf_counter

from jupyter_core.utils import ensure_event_loop
from tqdm import tqdm

from fedlib.checks import check_count
from fedlib.runs.work import cores
from fedlib.tools.batch.execute import check_results_folder, end_kernels, execute
from fedlib.tools.batch.jobs import Job, make_job, select
from fedlib.tools.gallery import write_gallery

SECONDS = 30  # between two lines about a notebook, if standard error is not a terminal


def run_all(jobs: list[Job], at_once: int = 1) -> int:
    """Run the jobs, `at_once` at the same time, and print a summary; returns the number of failed jobs."""
    lines, failed = {}, []

    def done(job: Job, problem: str | None, seconds: float) -> None:
        if problem is None:
            ending = f"done in {seconds:.0f} s, tables and figures in {job.target.parent}"
        else:
            ending = f"FAILED after {seconds:.0f} s: {problem} (see {job.target})"
            failed.append(job)
        lines[job.source] = f"{job.source.name}: {ending}"

    if at_once > 1:
        print(*(f"{job.source.name} -> {job.target}" for job in jobs), sep="\n", flush=True)
        side_by_side(jobs, at_once, done)
    else:
        for job in jobs:
            print(f"{job.source.name} -> {job.target}", flush=True)
            start = perf_counter()
            done(job, execute(job), perf_counter() - start)
    print(*(lines[job.source] for job in jobs), sep="\n", flush=True)
    return len(failed)


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


def shares(notebooks: int, parallel: int | None = None) -> tuple[int, int]:
    """The number of notebooks executed at the same time, and the cores that each of them gets."""
    if parallel is not None:
        check_count("parallel", parallel)
    at_once = min(notebooks, parallel or cores() + 1)
    return at_once, -(-cores() // at_once)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns 0, 1 if a notebook failed, 2 if an argument is wrong, 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="python -m fedlib.tools.batch", description="Execute the notebooks.")
    option = parser.add_argument
    option("--profile", default="quick", help="smoke, quick (default) or paper")
    option("--notebook", action="append", default=[], help="01, pfedsim or 01_pfedsim; repeatable")
    option("--set", action="append", default=[], metavar="NAME=VALUE", help="set one parameter; repeatable")
    option("--jobs", type=int, help="runs at the same time in a notebook, 0: one per core; default: its share of them")
    option("--parallel", type=int, help="notebooks executed at the same time, default: one more than cores")
    option("--output", type=Path, default=Path("figures"), help="folder of the results, default: figures")
    option("--notebooks", type=Path, default=Path("notebooks"), help="folder of the notebooks, default: notebooks")
    given = parser.parse_args(arguments)
    try:
        sources = select(given.notebooks, given.notebook)
        at_once, share = shares(len(sources), given.parallel)
        os.environ.setdefault("OMP_NUM_THREADS", str(share))  # of each kernel: threads that wait for a core are slow
        jobs = [make_job(source, given.profile, given.output, given.set, given.jobs, share) for source in sources]
        for job in jobs:
            check_results_folder(job)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        failed = run_all(jobs, at_once)
        index = write_gallery(given.output / given.profile)
    except KeyboardInterrupt:
        logging.disable()  # messages of the kernel's interrupted client
        print("\nInterrupted; finished runs are kept, the same command continues from them.", file=sys.stderr)
        return 130
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    if index:
        print(f"All results on one page: {index}")
    return 1 if failed else 0
