"""`python -m fedlib.batch --profile quick`: execute the notebooks with papermill, parameters checked first.

A notebook `notebooks/01_pfedsim.ipynb` takes the parameters of `notebooks/profiles/01_pfedsim.quick.yaml`,
then those of `--set`; its executed copy is `figures/quick/pfedsim/01_pfedsim.ipynb`. The kernel is the
running Python and works in the notebook's own folder, as JupyterLab's does. A parameter named `profile`
receives the profile's name, one named `output` the folder of the executed copy as seen from the notebook
(`../figures/quick/pfedsim`), one named `jobs` the value of `--jobs`. `figures/quick/index.html` shows all results.
"""

import argparse
import ast
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import papermill
import yaml

from fedlib.checks import check_choice, check_count
from fedlib.kernel import RunningPython
from fedlib.report import write_gallery

BY_OPTION = ("profile", "output", "jobs")  # parameters that have an option of their own


class Job(NamedTuple):
    """One notebook to execute: `source` with `parameters` into `target`."""

    source: Path
    target: Path
    parameters: dict[str, Any]


def select(notebooks: Path, chosen: list[str]) -> list[Path]:
    """The numbered notebooks of a folder, or the `chosen` ones (by number, paper or full name), in order."""
    sources = sorted(notebooks.glob("[0-9][0-9]_*.ipynb"))
    if not sources:
        raise ValueError(f"notebooks={str(notebooks)!r} holds no notebook named like 01_paper.ipynb.")
    named = {name: source for source in sources for name in (source.stem, *source.stem.split("_", 1))}
    for name in chosen:
        check_choice("notebook", Path(name).stem, named)
    return sorted({named[Path(name).stem] for name in chosen}) or sources


def defaults(source: Path) -> dict[str, Any]:
    """Names and default values in the notebook's cell tagged `parameters`: lines of `name = literal` only."""
    cells = [cell for cell in nbformat.read(source, 4).cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        raise ValueError(f"{source.name} has {len(cells)} cells tagged 'parameters'; it needs exactly one.")
    values = {}
    for line in ast.parse(cells[0].source).body:
        try:
            (target,) = line.targets if isinstance(line, ast.Assign) else [line.target]
            values[target.id] = ast.literal_eval(line.value)
        except (AttributeError, ValueError):
            raise ValueError(
                f"{source.name}: its cell tagged 'parameters' may hold `name = literal` lines only, "
                f"not `{ast.unparse(line)}`."
            ) from None
    return values


def cast(value: Any, default: Any) -> Any:
    """`value` if it has the type of `default` (items of lists too), else `TypeError` or `ValueError`."""
    if isinstance(default, float) and isinstance(value, int | str) and not isinstance(value, bool):
        return float(value)  # text too: YAML takes 1e-3 for text
    if type(value) is not type(default):
        raise TypeError
    if isinstance(value, list) and default:
        return [cast(item, default[0]) for item in value]
    return value


def settle(source: Path, given: dict[str, Any], origin: str) -> dict[str, Any]:
    """`given` parameters with the types of the notebook's defaults; `ValueError` names a wrong one."""
    known = defaults(source)
    settled = {}
    for name, value in given.items():
        if name in BY_OPTION:
            raise ValueError(f"{origin}: {name}={value!r} is not allowed; use --{name}.")
        check_choice(f"{origin}: parameter of {source.name}", name, set(known) - set(BY_OPTION))
        try:
            settled[name] = cast(value, known[name])
        except (TypeError, ValueError):
            kind = type(known[name]).__name__
            raise ValueError(
                f"{origin}: {name}={value!r} is not allowed; {source.name} takes a value of type {kind} "
                f"such as its default {known[name]!r}."
            ) from None
    return settled


def read_profile(source: Path, profile: str) -> dict[str, Any]:
    """The parameters that `profiles/<notebook>.<profile>.yaml` gives, checked."""
    folder = source.parent / "profiles"
    there = {path.name.split(".")[1] for path in folder.glob(f"{source.stem}.*.yaml")}
    check_choice(f"profile of {source.name}", profile, there)
    path = folder / f"{source.stem}.{profile}.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} must hold `name: value` lines, not a {type(content).__name__}.")
    return settle(source, content, path.name)


def read_settings(source: Path, settings: list[str]) -> dict[str, Any]:
    """The parameters that `--set name=value` gives, checked; text parameters are taken as they are typed."""
    known = defaults(source)
    given = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set {setting!r} is not allowed; it must look like name=value.")
        try:
            given[name] = text if isinstance(known.get(name), str) else yaml.safe_load(text)
        except yaml.YAMLError:
            given[name] = text
    return settle(source, given, "--set")


def plan(source: Path, profile: str, output: Path, settings: list[str] | None = None, jobs: int | None = None) -> Job:
    """What will run for one notebook; `ValueError` in one sentence if anything about it is wrong."""
    parameters = read_profile(source, profile) | read_settings(source, settings or [])
    folder = output / profile / source.stem.split("_", 1)[1]
    known = defaults(source)
    if jobs is not None:
        check_count("jobs", jobs, 0)
        check_choice(f"--jobs: parameter of {source.name}", "jobs", known)
        parameters["jobs"] = jobs
    own = {"profile": profile, "output": Path(os.path.relpath(folder, source.parent)).as_posix()}
    parameters |= {name: value for name, value in own.items() if name in known}
    return Job(source, folder / source.name, parameters)


def execute(job: Job) -> str | None:
    """Run one notebook, its executed copy written cell by cell; returns what went wrong, in one line."""
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
            stderr_file=sys.stderr,  # the notebook's own progress bars, live;
            coalesce_streams=True,  # the executed copy keeps only what they show at the end
        )
    except papermill.PapermillExecutionError as error:
        message = str(error.evalue).strip().split("\n")[0]
        return f"cell In [{error.exec_count}] raised {error.ename}: {message}"
    except Exception as error:  # a dead kernel, a full disk: reported, and the next notebook still runs
        return f"{type(error).__name__}: {str(error).strip()}"
    return None


def run_all(jobs: list[Job]) -> int:
    """Run the jobs one after the other, print a summary; returns how many failed."""
    lines, failed = [], 0
    for job in jobs:
        print(f"{job.source.name} -> {job.target}", flush=True)
        start = time.perf_counter()
        problem = execute(job)
        seconds = f"{time.perf_counter() - start:.0f} s"
        failed += problem is not None
        if problem is None:
            lines.append(f"{job.source.name}: done in {seconds}, tables and figures in {job.target.parent}")
        else:
            lines.append(f"{job.source.name}: FAILED after {seconds}: {problem} (see {job.target})")
    print(*lines, sep="\n", flush=True)
    return failed


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns 0, 1 if a notebook failed, 2 if an argument is wrong, 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="python -m fedlib.batch", description="Execute the notebooks.")
    option = parser.add_argument
    option("--profile", default="quick", help="smoke, quick (default) or paper")
    option("--notebook", action="append", default=[], help="01, pfedsim or 01_pfedsim; repeatable")
    option("--set", action="append", default=[], metavar="NAME=VALUE", help="one parameter; repeatable")
    option("--jobs", type=int, help="runs side by side in a notebook, 0: one per core")
    option("--output", type=Path, default=Path("figures"), help="where results go, default: figures")
    option("--notebooks", type=Path, default=Path("notebooks"), help="their folder, default: notebooks")
    given = parser.parse_args(arguments)
    try:
        sources = select(given.notebooks, given.notebook)
        jobs = [plan(source, given.profile, given.output, given.set, given.jobs) for source in sources]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        failed = run_all(jobs)
        index = write_gallery(given.output / given.profile)
        if index:
            print(f"All results on one page: {index}")
        return 1 if failed else 0
    except KeyboardInterrupt:
        logging.disable()  # of what the kernel's client left undone
        print("\nInterrupted; finished runs are kept, the same command goes on from there.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends the kernel too, as Ctrl-C does
    sys.exit(main())
