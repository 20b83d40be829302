"""Jobs: the notebooks to execute, their checked parameters, and the folders of their copies."""

import ast
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import papermill
import yaml

from fedlib.checks import check_choice, check_count
from fedlib.report.paper import PROFILES

BY_OPTION = ("profile", "output", "jobs")  # parameters that are set by another option than --set


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
