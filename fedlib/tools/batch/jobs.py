"""Jobs: the notebooks to execute, with their parameters and the folders of their copies."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from fedlib.checks import check_choice, check_count
from fedlib.tools.batch.parameters import defaults, read_profile, read_settings


class Job(NamedTuple):
    """One notebook to execute: `source` with `parameters` into `target`."""

    source: Path
    target: Path
    parameters: dict[str, Any]


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
    parameters = read_profile(source, profile) | read_settings(source, settings or [])
    folder = output / profile / source.stem.split("_", 1)[1]
    known = defaults(source)
    if jobs is not None:
        check_count("jobs", jobs, 0)
        check_choice(f"--jobs: parameter of {source.name}", "jobs", known)
    if "jobs" in known and (jobs is not None or share is not None):
        parameters["jobs"] = share if jobs is None else jobs
    by_option = {"profile": profile, "output": Path(os.path.relpath(folder, source.parent)).as_posix()}
    parameters |= {name: value for name, value in by_option.items() if name in known}
    return Job(source, folder / source.name, parameters)
