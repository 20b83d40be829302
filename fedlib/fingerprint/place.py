"""Location of code: in this project or the user's files, whose source is read, or in an installed package."""

import functools
import importlib.metadata
import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import Any

_WITHOUT = ("algorithm.algorithm", "checkpoint", "checks", "files", "fingerprint", "runs.alone", "runs.store")
WITHOUT_NUMBERS = tuple(f"fedlib.{name}" for name in _WITHOUT)  # modules and names on which no result depends
INSTALLED = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib"))
PACKAGES = {"site-packages", "dist-packages"}  # folders of installed packages, including a user's and the system's


def is_read(name: str, file: str | None = None, absent: bool = False) -> bool:
    """True for a module of this project or the user on which results can depend; `absent`: it need not be imported."""
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
    """True for a function of this project."""
    return getattr(code, "__globals__", {}).get("__name__", "").partition(".")[0] == "fedlib"


@functools.lru_cache(maxsize=4096)
def _is_own(file: str) -> bool:
    if file.startswith(("<frozen", *INSTALLED)) or PACKAGES.intersection(Path(file).parts):
        return False
    inside = zip(Path(file).parents, (file, *Path(file).parents), strict=False)
    return not any(Path(entry).name in _installed_in(folder) for folder, entry in inside)


@functools.lru_cache(maxsize=256)
def _installed_in(folder: Path) -> set[str]:
    """Names that `pip install --target` has put into a folder."""
    if not any(folder.glob("*.dist-info")):
        return set()
    files = (file for one in importlib.metadata.distributions(path=[str(folder)]) for file in one.files or ())
    return {file.parts[0] for file in files}
