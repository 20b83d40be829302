"""Detection of code with outside inputs: files, the environment, the time, unseeded random numbers."""

import inspect
import random
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedlib.fingerprint.syntax import Path_, Source

MODULES = {"glob", "http", "random", "requests", "secrets", "shutil", "socket", "subprocess", "tempfile", "time"}
MODULES |= {"urllib", "uuid"}
HARMLESS = {("random", "Random"), ("time", "sleep")}
NAMES = {
    "builtins": "__import__ breakpoint eval exec globals input open",
    "importlib": "import_module",
    "io": "FileIO open",
    "numpy": "fromfile genfromtxt load loadtxt memmap",
    "os": "cpu_count environ environb getcwd getenv getenvb getlogin getpid listdir open popen scandir stat system "
    "times urandom walk",
    "os.path": "exists getmtime getsize isdir isfile",
    "pandas": "read_csv read_excel read_feather read_json read_parquet read_pickle read_table",
    "sys": "argv modules stdin",
    "torch": "load",
}
METHODS = {"read_bytes", "read_text"}
CLOCKS = {"now", "today", "utcnow"}  # of datetime
UNSEEDED = (random.Random, random.SystemRandom, np.random.default_rng, np.random.RandomState, np.random.SeedSequence)
DRAWS = (random._inst, np.random.mtrand._rand)  # global generators of random and numpy.random


def changes(source: Source, known: Mapping[str, Any]) -> str | None:
    """First dotted name in a source that stands for an outside input; None if there is none."""
    for path in source.names:
        if _may_change(path, known, unseeded=path in source.without_arguments):
            return ".".join(path)
    return next((f"a call of {name}" for name in sorted(METHODS & source.methods)), None)


def _may_change(path: Path_, known: Mapping[str, Any], unseeded: bool) -> bool:
    value = known.get(path[0], getattr(sys.modules["builtins"], path[0], None))
    for name in (*path[1:], None):
        if _is_outside(value) or (unseeded and name is None and any(value is each for each in UNSEEDED)):
            return True
        if name is None or not (isinstance(value, types.ModuleType) or inspect.isclass(value)):
            return False
        if name in CLOCKS and getattr(value, "__module__", "") == "datetime":
            return True
        value = getattr(value, name, None)
    return False


def _is_outside(value: Any) -> bool:
    if value is None:
        return False
    if any(getattr(value, "__self__", None) is each for each in DRAWS):
        return True
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", "")
    if isinstance(module, str) and module.partition(".")[0] in MODULES and not inspect.isclass(value):
        return (module, name) not in HARMLESS
    forbidden = (getattr(sys.modules.get(path), each, None) for path, names in NAMES.items() for each in names.split())
    return any(value is each for each in forbidden if each is not None)
