"""The command line: check the arguments, execute the notebooks, print a summary, write the page of all results."""

import argparse
import ast
import logging
import math
import os
import sys
from pathlib import Path
from typing import Any

import papermill
import yaml

from fedlib.checks import check_choice, check_count
from fedlib.report.paper import PROFILES
from fedlib.runs.work import cores
from fedlib.tools.batch.execute import Job, check_results_folder, run_all
from fedlib.tools.gallery import write_gallery

BY_OPTION = ("profile", "output", "jobs")  # parameters that are set by another option than --set


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
    source: Path,
    profile: str,
    output: Path,
    settings: list[str] | None = None,
    jobs: int | None = None,
    share: int | None = None,
) -> Job:
    """The job of one notebook, with `jobs` runs at a time, or else its `share` if it has such a parameter.

    Raises `ValueError` if a parameter or the profile is not allowed.
    """
    check_choice("profile", profile, PROFILES)
    known, folder = defaults(source), output / profile / source.stem.split("_", 1)[1]
    parameters = read_settings(source, known, settings or [])
    if jobs is not None:
        check_count("jobs", jobs, 0)
        check_choice(f"--jobs: parameter of {source.name}", "jobs", known)
    by_option = {"profile": profile, "output": Path(os.path.relpath(folder, source.parent)).as_posix()}
    if jobs is not None or share is not None:
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


def read_settings(source: Path, known: dict[str, Any], settings: list[str]) -> dict[str, Any]:
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
