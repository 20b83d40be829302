"""`python -m fedlib.tools.batch --profile quick`: execute the notebooks with papermill; all parameters are checked.

The executed copy of `notebooks/01_pfedsim.ipynb` is `figures/quick/pfedsim/01_pfedsim.ipynb`. Its kernel is the running
Python, in the folder of the notebook, as in JupyterLab. Of its parameters, `profile` is set to the name of the profile,
`output` to the folder of the executed copy relative to the notebook (`../figures/quick/pfedsim`), `jobs` to the value
of `--jobs`, and others by `--set`. By default, one notebook more than there are cores is executed at the same time
(`--parallel`): while one starts, draws or is written, another computes. Without `--jobs` they share the cores.
`figures/quick/index.html` shows all results.
"""

import argparse
import ast
import logging
import math
import os
import re
import secrets
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from io import TextIOBase
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TextIO
from weakref import WeakSet

import papermill
import yaml
from filelock import FileLock, Timeout
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from tqdm import tqdm

from fedlib.checks import check_choice, check_count
from fedlib.files import remove_unfinished
from fedlib.report.paper import PROFILES
from fedlib.runs.work import cores
from fedlib.tools.gallery import write_gallery

BY_OPTION = ("profile", "output", "jobs")  # parameters that are set by another option than --set
START_TIMEOUT = 600  # seconds until a kernel answers: its first imports from a cold or shared disk take long
SECONDS = 30  # between two lines of progress of a notebook, if standard error is not a terminal


class Job(NamedTuple):
    """One notebook to execute: `source` with `parameters` into `target`."""

    source: Path
    target: Path
    parameters: dict[str, Any]

    def lock(self) -> FileLock:
        """The lock that a process holds while it writes the executed copy."""
        return FileLock(self.target.parent / ".lock")


# -- the command line -------------------------------------------------------------------------------------------------


def select(notebooks: Path, chosen: list[str]) -> list[Path]:
    """The numbered notebooks of a folder, or the `chosen` ones (by number, paper or full name), in order."""
    sources = sorted(notebooks.glob("[0-9][1-9]_*.ipynb"))
    if not sources:
        raise ValueError(f"notebooks={str(notebooks)!r} holds no notebook named like 01_paper.ipynb.")
    named = {name: source for source in sources for name in (source.stem, *source.stem.split("_", 1))}
    for name in chosen:
        check_choice("notebook", Path(name).stem, named)
    return sorted({named[Path(name).stem] for name in chosen}) or sources


def make_job(
    source: Path, profile: str, output: Path, settings: Sequence[str] = (), jobs: int | None = None, share: int = 1
) -> Job:
    """The job of one notebook, with `jobs` runs at the same time; by default, its `share` of the cores."""
    check_choice("profile", profile, PROFILES)
    known, folder = defaults(source), output / profile / source.stem.split("_", 1)[1]
    parameters = read_settings(source, known, settings)
    if jobs is not None:
        check_count("jobs", jobs, 0)
        check_choice(f"--jobs: parameter of {source.name}", "jobs", known)
    by_option = {"profile": profile, "output": Path(os.path.relpath(folder, source.parent)).as_posix()}
    by_option["jobs"] = share if jobs is None else jobs
    parameters |= {name: value for name, value in by_option.items() if name in known}
    return Job(source, folder / source.name, parameters)


def defaults(source: Path) -> dict[str, Any]:
    """Default values in the notebook's cell tagged `parameters`, by name."""
    values = {}
    for name, parameter in papermill.inspect_notebook(source).items():
        try:
            values[name] = ast.literal_eval(parameter["default"])
        except (SyntaxError, ValueError):
            line = f"{name} = {parameter['default']}"
            raise ValueError(f"{source.name}: the parameter `{line}` must be a literal.") from None
    return values


def read_settings(source: Path, known: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """The parameters of `--set name=value`, with the types of the `known` defaults; a text is not parsed."""
    values = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set {setting!r} is not allowed; it must look like name=value.")
        if name in BY_OPTION:
            raise ValueError(f"--set {setting} is not allowed; use --{name}.")
        check_choice(f"--set: parameter of {source.name}", name, set(known) - set(BY_OPTION))
        default = known[name]
        try:
            values[name] = text if isinstance(default, str) else cast(yaml.safe_load(text), default)
        except (TypeError, ValueError, yaml.YAMLError):
            raise ValueError(
                f"--set {setting} is not allowed; {source.name} takes a value of type {type(default).__name__} "
                f"such as its default {default!r} (no negative or infinite number)."
            ) from None
    return values


def cast(value: Any, default: Any) -> Any:
    """`value` with the type of `default`; `TypeError` for another type, `ValueError` for a negative or infinite one."""
    if isinstance(default, float) and isinstance(value, int | str) and not isinstance(value, bool):
        value = float(value)  # YAML reads 1e-3 as text
    if type(value) is not type(default):
        raise TypeError
    if isinstance(value, list) and default:
        return [cast(item, default[0]) for item in value]
    if isinstance(value, int | float) and not 0 <= value < math.inf:
        raise ValueError
    return value


def shares(notebooks: int, parallel: int | None = None) -> tuple[int, list[int]]:
    """The number of notebooks executed at the same time, and the cores of each: more for the last to start."""
    if parallel is not None:
        check_count("parallel", parallel)
    at_once = min(notebooks, parallel or cores() + 1)
    running = [at_once] * at_once + [min(at_once, left) for left in range(notebooks - at_once, 0, -1)]
    return at_once, [-(-cores() // n) for n in running]


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns 0, 1 if a notebook failed, 2 if an argument is wrong, 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="python -m fedlib.tools.batch", description="Execute the notebooks.")
    option = parser.add_argument
    option("--profile", default="quick", help="smoke, quick (default) or paper")
    option("--notebook", action="append", default=[], help="01, pfedsim or 01_pfedsim; repeatable")
    option("--set", action="append", default=[], metavar="NAME=VALUE", help="set one parameter; repeatable")
    option("--jobs", type=int, help="runs at the same time in a notebook, 0: one per core; default: its share of cores")
    option("--parallel", type=int, help="notebooks executed at the same time, default: number of cores + 1")
    option("--output", type=Path, default=Path("figures"), help="folder of the results, default: figures")
    option("--notebooks", type=Path, default=Path("notebooks"), help="folder of the notebooks, default: notebooks")
    given = parser.parse_args(arguments)
    try:
        sources = select(given.notebooks, given.notebook)
        at_once, n_cores = shares(len(sources), given.parallel)
        os.environ.setdefault("OMP_NUM_THREADS", str(n_cores[0]))  # of each kernel: waiting threads are slow
        common = given.profile, given.output, given.set, given.jobs
        jobs = [make_job(source, *common, share) for source, share in zip(sources, n_cores, strict=True)]
        for job in jobs:
            job.target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(Timeout), job.lock().acquire(timeout=0):
                pass
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"The results folder cannot be written ({error}); name another one with --output.", file=sys.stderr)
        return 2
    try:
        failed = run_all(jobs, at_once)
        index = write_gallery(given.output / given.profile)
    except KeyboardInterrupt:
        logging.disable()  # messages of the kernel's interrupted client
        print("\nInterrupted; finished runs are stored, and the same command continues from them.", file=sys.stderr)
        return 130
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    if index:
        print(f"All results on one page: {index}")
    return 1 if failed else 0


# -- execution -----------------------------------------------------------------------------------------------------


def run_all(jobs: list[Job], at_once: int = 1) -> int:
    """Run the jobs, `at_once` at the same time, and print a summary; returns the number of failed jobs."""

    def run(position: int, job: Job) -> tuple[str, bool]:
        print(f"{job.source.name} -> {job.target}", flush=True)
        start, line = perf_counter(), Line(job.source.name, position) if at_once > 1 else None
        with closing(ensure_event_loop()), closing(line) if line else nullcontext():
            problem = execute(job, console=line)
        seconds = f"{perf_counter() - start:.0f} s"
        ending = f"FAILED after {seconds}: {problem} (see {job.target})"
        if problem is None:
            ending = f"done in {seconds}, tables and figures in {job.target.parent}"
        return f"{job.source.name}: {ending}", problem is None

    pool = ThreadPoolExecutor(at_once)
    try:
        futures = [pool.submit(run, position, job) for position, job in enumerate(jobs)]
        lines, done = zip(*(future.result() for future in futures), strict=True)
    except BaseException:  # such as Ctrl-C
        pool.shutdown(wait=False, cancel_futures=True)
        for kernel in list(RUNNING):  # the calls that wait for them fail
            if process := getattr(kernel.provisioner, "process", None):
                process.kill()
        raise
    finally:
        pool.shutdown()
    print(*lines, sep="\n", flush=True)
    return done.count(False)


class Line(TextIOBase):
    """A file that shows the last line written to it: in place on a terminal, else as a new line every 30 s."""

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

    def close(self) -> None:
        """Remove the line from the terminal."""
        if self.bar is not None:
            self.bar.close()


def execute(job: Job, console: TextIO | None = None) -> str | None:
    """Execute one notebook and write its copy after every cell; returns None, or one line that describes the error."""
    # Progress is shown on `console` (default: standard error). If another process writes the same copy, this one waits.
    console = console or sys.stderr
    lock = job.lock()
    try:
        with suppress(Timeout):
            lock.acquire(timeout=0)
        if not lock.is_locked:
            print(f"{job.target} is being made by another process; waiting for it.", file=console, flush=True)
            lock.acquire()
        remove_unfinished(job.target.parent)
        options = dict(language="python", kernel_name="python3", kernel_manager_class=RunningPython)
        options |= dict(start_timeout=START_TIMEOUT, stderr_file=console, progress_bar={"file": console})
        options["resources"] = {"metadata": {"path": str(job.source.parent)}}  # `cwd` would move this process, too
        papermill.execute_notebook(job.source, job.target, job.parameters, coalesce_streams=True, **options)
    except papermill.PapermillExecutionError as error:
        message = str(error.evalue).strip().split("\n")[0]
        return f"cell In [{error.exec_count}] raised {error.ename}: {message}"
    except Exception as error:  # such as a dead kernel or a full disk: the next notebook still runs
        return f"{type(error).__name__}: {str(error).strip()}"
    finally:
        lock.release()
    return None


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
    """A client that receives replies through a `WatchfulChannel`."""

    shell_channel_class = WatchfulChannel


RUNNING: "WeakSet[RunningPython]" = WeakSet()


class RunningPython(AsyncKernelManager):
    """Starts kernels with the running interpreter, independent of the kernels registered on this machine."""

    kernel_spec = KernelSpec(**get_kernel_dict(["--log-level=CRITICAL"]))
    client_factory = WatchfulClient

    def __init__(self, **options):
        super().__init__(**options)
        RUNNING.add(self)
        if os.name == "posix":  # Unix sockets: two kernels that start at the same time could choose the same free port
            self.transport, self.ip = "ipc", f"{tempfile.gettempdir()}/fedlib-{secrets.token_hex(8)}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends the kernels too, as Ctrl-C does
    sys.exit(main())
