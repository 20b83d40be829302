"""Walk through all code that a function uses: values, names and definitions as text, and their hash."""

import functools
import hashlib
import importlib.util
import inspect
import sys
import types
import typing
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import MISSING, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

from fedlib.fingerprint.outside import changes
from fedlib.fingerprint.place import is_read, of_library
from fedlib.fingerprint.syntax import Import, Path_, source_of

Code = types.FunctionType | type
PLAIN = {type(None), bool, int, float, complex, str, bytes, range, slice, type(...)}
PLAIN_AND_DERIVED = (PurePath, np.generic, np.dtype, np.ufunc, torch.dtype, torch.device, torch.memory_format)
NAMESPACES = ("SimpleNamespace", "Namespace")  # of types and argparse
ALIASES = (types.GenericAlias, types.UnionType, typing._GenericAlias)
OF_TYPING = (typing.TypeVar, typing._SpecialForm)
GENERATED = {"collections", "dataclasses", "enum", "functools", "typing"}  # modules that add functions to classes
OF_CLASSES = (types.GetSetDescriptorType, types.MemberDescriptorType, types.DynamicClassAttribute)


class Registry(dict):
    """A dict whose entries do not enter fingerprints."""


class Cache(dict):
    """A dict that a program fills; it enters fingerprints empty."""


_KNOWN: ContextVar[dict[tuple[int, ...], tuple[str, Any]] | None] = ContextVar("_KNOWN", default=None)


@contextmanager
def each_once() -> Iterator[None]:
    """Compute the fingerprint of the same objects once; no code may change inside the `with` block."""
    token = _KNOWN.set({})
    try:
        yield
    finally:
        _KNOWN.reset(token)


def fingerprint(*roots: Any) -> str:
    """Hash all code used by functions, classes or values that hold them: 16 hex digits; `ValueError` if impossible."""
    known, ids = _KNOWN.get(), tuple(map(id, roots))
    if known is None:
        return _computed(roots)
    if ids not in known:
        known[ids] = _computed(roots), roots  # with the objects, so that no id is reused
    return known[ids][0]


def _computed(roots: Sequence[Any]) -> str:
    walk = _Walk()
    try:
        lines = {walk.written(root) for root in roots}
    except Unknown as error:
        raise ValueError(f"no source defines the content of {error}; create it in the function that uses it.") from None
    while walk.waiting:
        lines.add(walk.definition(walk.waiting.pop()))
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


class Unknown(ValueError):
    """Description of a value that no source defines."""


class Refused(ValueError):
    """Reason why a definition cannot be fingerprinted."""


class _Walk:
    """Functions and classes seen so far, numbered so that names and files do not matter, and those still to be read."""

    def __init__(self):
        self.waiting: list[Code] = []
        self._names: dict[int, tuple[str, Any]] = {}  # by id; with the code, so that no id is reused
        self._open: set[int] = set()  # ids of the containers around the current value

    # Values

    def written(self, value: Any) -> str:
        """Value as text; functions and classes in it are queued."""
        kind = type(value)
        if kind in PLAIN or (isinstance(value, PLAIN_AND_DERIVED) and not is_read(kind.__module__)):
            return repr(value)
        if kind in (types.FunctionType, type):  # the most frequent case
            return self.name(value)
        if isinstance(value, Registry | Cache):
            return "a registry" if isinstance(value, Registry) else "{}"
        if isinstance(value, types.ModuleType):
            return "a module" if is_read(value.__name__) else value.__name__
        if kind in (np.ndarray, torch.Tensor, torch.nn.Parameter):
            return _array(value)
        if isinstance(value, Enum):
            return f"{self.name(kind)}.{value.name}" if value.name else f"{self.name(kind)}({value.value!r})"
        if isinstance(value, ALIASES):
            return f"{self.written(typing.get_origin(value))}{self.written(typing.get_args(value))}"
        if isinstance(value, OF_TYPING):
            return repr(value)
        if isinstance(value, functools.partial | functools.partialmethod):
            return f"partial{self.written((value.func, value.args, value.keywords))}"
        if kind.__module__.startswith("triton.") and hasattr(value, "fn"):  # a kernel: its Python function
            return self.name(value.fn)
        if isinstance(value, type) or inspect.isroutine(value) or hasattr(value, "cache_clear"):
            if isinstance(value, types.MethodType) and not isinstance(value.__self__, types.ModuleType):
                return f"{self.written(value.__self__)}.{self.name(value.__func__)}"
            return self.name(value)
        if id(value) in self._open:
            raise Unknown("a value that contains itself")
        self._open.add(id(value))
        try:
            return self._container(value)
        finally:
            self._open.remove(id(value))

    def _container(self, value: Any) -> str:
        kind, inside = type(value), getattr(value, "__dict__", {})
        if isinstance(value, dict | types.MappingProxyType):
            items = [f"{self.written(key)}: {self.written(item)}" for key, item in value.items()]
            also = {"default_factory": value.default_factory} if isinstance(value, defaultdict) else {}
            text = "" if kind in (dict, types.MappingProxyType) else self.name(kind)
            return f"{text}{{{', '.join(items)}}}{self._attributes(also | inside)}"
        if isinstance(value, set | frozenset):
            items = map(self.written, sorted(value, key=lambda item: getattr(item, "__qualname__", repr(item))))
            return f"{self.name(kind)}{{{', '.join(sorted(items))}}}{self._attributes(inside)}"
        if isinstance(value, tuple | list):
            return f"{self.name(kind)}({', '.join(map(self.written, value))}){self._attributes(inside)}"
        if isinstance(value, (int, float, str, bytes)):  # of a derived class
            return f"{self.name(kind)}({kind.__mro__[-2].__repr__(value)}){self._attributes(inside)}"
        if is_dataclass(value):
            known = {name: getattr(value, name) for name in value.__dataclass_fields__ if hasattr(value, name)}
            cached = functools.cached_property
            inside = {k: v for k, v in inside.items() if not isinstance(inspect.getattr_static(kind, k, None), cached)}
            return self.name(kind) + self._attributes(known | inside)
        if kind.__name__ in NAMESPACES and kind.__module__ in ("types", "argparse"):
            return f"namespace{self._attributes(inside)}"
        raise Unknown(f"a {kind.__name__}")

    def _attributes(self, attributes: dict[str, Any]) -> str:
        """Attributes of an object as text."""
        return self.written(dict(sorted(attributes.items()))) if attributes else ""

    # Names

    def name(self, code: Any) -> str:
        """Number of a function or class, which is queued, or its name if it belongs to an installed package."""
        if isinstance(code, type) or not hasattr(code, "__wrapped__"):
            return self._queued(code)
        inner = self.name(code.__wrapped__)
        if hasattr(code, "cache_clear"):
            if not of_library(inspect.unwrap(code)):
                code.cache_clear()  # cached values may be older than the code
            return inner
        if not isinstance(code, types.FunctionType) or of_library(code):  # the library's wrappers only check arguments
            return inner
        return f"{self._queued(code)} of {inner}"

    def _queued(self, code: Any) -> str:
        module = getattr(code, "__module__", None) or "builtins"
        if isinstance(code, types.FunctionType):
            name, module = code.__code__.co_qualname, code.__globals__.get("__name__") or "__main__"
            read = is_read(module, code.__code__.co_filename)
        else:
            name, read = getattr(code, "__qualname__", type(code).__qualname__), is_read(module)
            if read and not isinstance(code, type):
                raise Unknown(f"compiled code, {name}")
        if not read:
            name = name if module.startswith("fedlib.") else f"{module}.{name}"
            return name + self._closure(code) if isinstance(code, types.FunctionType) and code.__closure__ else name
        if id(code) not in self._names:
            self._names[id(code)] = f"#{len(self._names)}", code
            self.waiting.append(code)
        return self._names[id(code)][0]

    def _closure(self, code: types.FunctionType) -> str:
        """Closure of a function of an installed package, such as `in_dims` of `torch.vmap(f, in_dims=1)`."""
        texts = []
        for name, value in _held(code).items():
            try:
                texts.append(f"{name}: {self.written(value)}")
            except ValueError:
                texts.append(f"{name}: {type(value).__name__}")
        return f"[{', '.join(texts)}]"

    # Definitions

    def definition(self, code: Code) -> str:
        """Text of a function with the values of its outside names, or of a class with its attributes."""
        name = self._names[id(code)][0]
        try:
            return f"{name}: {self._class(code) if isinstance(code, type) else self._function(code)}"
        except Refused as error:
            raise ValueError(f"{code.__qualname__} cannot be fingerprinted: {error}") from None

    def _function(self, f: types.FunctionType) -> str:
        source, mine = source_of(f), not of_library(f)
        known = {**f.__globals__, **_held(f), **_imported(source.imports, f)}
        if mine and (reason := changes(source, known | _imported(source.imports, f, loaded=True))):
            raise Refused(
                f"the value of {reason} may change while the code stays the same; read it outside the function and "
                f"use the value."
            )
        values: dict[str, Any] = {"(...)": (f.__defaults__, f.__kwdefaults__)}
        values |= {f"({key})": value for key, value in vars(f).items() if key not in ("__wrapped__", "__signature__")}
        if "__class__" in f.__code__.co_freevars:
            values["__class__"] = known["__class__"]
        text, names = source.text, list(source.names)
        for decorator, paths in source.decorators:
            if not paths or not _is_free_of_numbers(_resolved(paths[0], known)[1]):
                text += f" @{decorator}"
                names += paths
        for path in names:
            if path[0] in known:
                used, value = _resolved(path, known)
                if isinstance(value, types.ModuleType) and is_read(value.__name__):
                    if len(used) < len(path):
                        continue  # a missing attribute
                    raise Refused(f"the module {'.'.join(used)} is used as a whole; name the attributes that are used.")
                values[".".join(used)] = value
        return f"{text}; {self._all(values)}"

    def _class(self, code: type) -> str:
        """Bases and attributes of a class; its methods are queued."""
        values: dict[str, Any] = {"(bases)": (code.__bases__, type(code))}
        attributes = vars(code)
        if is_dataclass(code):
            each = attributes.get("__dataclass_fields__", {}).values()
            made = [(f.name, f.default, f.default_factory, f.init, f.kw_only) for f in each]
            values["(fields)"] = [tuple(... if part is MISSING else part for part in field) for field in made]
        if issubclass(code, tuple) and "_fields" in attributes:
            values["(fields)"] = (attributes["_fields"], attributes["_field_defaults"])
        if issubclass(code, Enum):
            values["(members)"] = {name: member.value for name, member in code.__members__.items()}
        text = ""
        for name, value in sorted(attributes.items()):
            parts = _functions(value)
            if parts is None and not _is_set_by_python(code, name, value):
                values[name] = value
            for part in parts or ():
                if name != "__repr__" and not _is_generated(code, name, part):
                    text += f"{type(value).__name__} {name} = {self.name(part)}; "
        return text + self._all(values)

    def _all(self, values: dict[str, Any]) -> str:
        texts = []
        for name, value in sorted(values.items()):
            try:
                texts.append(f"{name} = {self.written(value)}")
            except Unknown as error:
                raise Refused(
                    f"{name} is or holds {error}, and no source defines its content; create it in the function that "
                    f"uses it."
                ) from None
        return ", ".join(texts)


def _array(value: np.ndarray | torch.Tensor) -> str:
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized:
            raise Unknown(f"a tensor with the layout {value.layout}")
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    else:
        if value.dtype.hasobject:
            raise Unknown("an array of objects")
        content = np.ascontiguousarray(value)
    return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(content).hexdigest()}"


def _held(f: types.FunctionType) -> dict[str, Any]:
    """Closure of a function: values by name."""
    held = {}
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        with suppress(ValueError):  # no value yet
            held[name] = cell.cell_contents
    return held


def _imported(imports: Sequence[Import], f: types.FunctionType, loaded: bool = False) -> dict[str, Any]:
    """Values of the names that a function imports; those of installed packages enter by name, unless `loaded`."""
    values = {}
    for name, module, attribute, level in imports:
        with suppress(ImportError):
            package = f.__globals__.get("__package__") or f.__globals__.get("__name__", "")
            full = importlib.util.resolve_name("." * level + module, package)
            if not is_read(full, absent=True) and not (loaded and full in sys.modules):
                values[name] = types.ModuleType(f"{full}.{attribute}".rstrip("."))  # of an installed package: by name
                continue
            value = importlib.import_module(full)
            if attribute == ".":
                value = sys.modules[full.partition(".")[0]]
            elif attribute:
                value = getattr(value, attribute, None) or importlib.import_module(f"{full}.{attribute}")
            values[name] = value
    return values


def _resolved(path: Path_, known: dict[str, Any]) -> tuple[Path_, Any]:
    """Longest prefix of a dotted name that leads through modules that are read, and its value."""
    value, n = known.get(path[0]), 1
    while n < len(path) and isinstance(value, types.ModuleType) and is_read(value.__name__):
        if not hasattr(value, path[n]):
            break
        value, n = getattr(value, path[n]), n + 1
    return path[:n], value


def _functions(attribute: Any) -> list[types.FunctionType] | None:
    """Functions of a method or property of a class; None for any other attribute."""
    if isinstance(attribute, property):
        return [f for f in (attribute.fget, attribute.fset, attribute.fdel) if f is not None]
    if isinstance(attribute, classmethod | staticmethod):
        return [attribute.__func__]
    if isinstance(attribute, functools.cached_property):
        return [attribute.func]
    return [attribute] if inspect.isfunction(attribute) else None


def _is_generated(code: type, name: str, part: Any) -> bool:
    """True for a method that Python generates for a dataclass, a named tuple or an enumeration."""
    module = getattr(part, "__globals__", {}).get("__name__", "")
    if module.partition(".")[0] in GENERATED or module.startswith("namedtuple_"):
        return True
    return is_dataclass(code) and name.startswith("__") and part.__code__.co_filename == "<string>"


def _is_set_by_python(code: type, name: str, value: Any) -> bool:
    """True for an attribute of a class that follows from other attributes or has no effect on results."""
    if name.startswith("__") or name == "_abc_impl" or isinstance(value, OF_CLASSES):
        return True
    if issubclass(code, tuple) and hasattr(code, "_fields"):
        return name in ("_fields", "_field_defaults") or type(value).__name__ == "_tuplegetter"
    return issubclass(code, Enum) and (name.startswith("_") or name in code.__members__)


def _is_free_of_numbers(code: Any) -> bool:
    module = getattr(code, "__module__", None) or ""
    return module.startswith("fedlib.") and not is_read(f"{module}.{getattr(code, '__qualname__', '')}")
