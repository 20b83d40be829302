"""One file for each method. Importing this package imports all files, which registers the methods."""

from importlib import import_module
from pkgutil import iter_modules

__all__ = sorted(module.name for module in iter_modules(__path__))
for _module in iter_modules(__path__):  # a folder holds a file of the same name, and its helpers
    _file = f"{__name__}.{_module.name}" + (f".{_module.name}" if _module.ispkg else "")
    globals()[_module.name] = getattr(import_module(_file), _module.name)
