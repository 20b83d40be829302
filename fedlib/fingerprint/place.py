"""Where code is: in this project and in the user's files, whose code is read, or in an installed package."""

import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import Any

# Of this project, by their names: what no number depends on.
WITHOUT_NUMBERS = (
    "fedlib.checks",
    "fedlib.files",
    "fedlib.runs.store",
    "fedlib.fingerprint",
    "fedlib.algorithm.algorithm",
)
INSTALLED = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib"))
PACKAGES = {"site-packages", "dist-packages"}  # folders of installed packages, also those of a user or of the system


def is_read(name: str, file: str | None = None, absent: bool = False) -> bool:
    """Whether code is read: it is of this project or the user, and results can depend on it.

    Args:
        name: of its module.
        file: of its source, if it is known.
        absent: the module may not have been imported yet.
    """
    package = name.partition(".")[0]
    if package == "fedlib":
        return not name.startswith(WITHOUT_NUMBERS)
    if package == "__main__":
        return True
    module_file = getattr(sys.modules.get(name), "__file__", None)
    if module_file is None and absent and name not in sys.modules:
        spec = importlib.util.find_spec(package)
        module_file = spec and (spec.origin or next(iter(spec.submodule_search_locations or ()), None))
    if module_file is not None:
        return _is_own(module_file)
    return file is not None and name not in sys.builtin_module_names and _is_own(file)


def of_library(code: Any) -> bool:
    """Whether a function is of this project."""
    return getattr(code, "__globals__", {}).get("__name__", "").partition(".")[0] == "fedlib"


def _is_own(file: str) -> bool:
    return not file.startswith(("<frozen", *INSTALLED)) and not PACKAGES.intersection(Path(file).parts)
