"""The parameters of a notebook: its defaults, those of a profile and of `--set`, checked before anything runs."""

import ast
import math
from pathlib import Path
from typing import Any

import nbformat
import yaml

from fedlib.checks import check_choice

PROFILES = ("smoke", "quick", "paper")
BY_OPTION = ("profile", "output", "jobs")  # parameters that are set by another option than --set


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
    """`value` if it has the type of `default` (items of lists too), else `TypeError`.

    A negative or infinite number is a `ValueError`.
    """
    if isinstance(default, float) and isinstance(value, int | str) and not isinstance(value, bool):
        value = float(value)  # YAML reads 1e-3 as text
    if type(value) is not type(default):
        raise TypeError
    if isinstance(value, list) and default:
        return [cast(item, default[0]) for item in value]
    if isinstance(value, int | float) and not 0 <= value < math.inf:
        raise ValueError
    return value


def settle(source: Path, given: dict[str, Any], origin: str) -> dict[str, Any]:
    """The `given` parameters with the types of the notebook's defaults; `ValueError` for a wrong one."""
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
                f"such as its default {known[name]!r} (no negative or infinite number)."
            ) from None
    return settled


def read_profile(source: Path, profile: str) -> dict[str, Any]:
    """The checked parameters of `profiles/<notebook>.<profile>.yaml`; none if there is no such file."""
    path = source.parent / "profiles" / f"{source.stem}.{profile}.yaml"
    profiles = {file.name.split(".")[1] for file in path.parent.glob(f"{source.stem}.*.yaml")} or PROFILES
    check_choice(f"profile of {source.name}", profile, profiles)
    if not path.exists():
        return {}
    content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} must hold `name: value` lines, not a {type(content).__name__}.")
    return settle(source, content, path.name)


def read_settings(source: Path, settings: list[str]) -> dict[str, Any]:
    """The checked parameters of `--set name=value`; the value of a text parameter is not parsed."""
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
