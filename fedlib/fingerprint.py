"""The fingerprint of code: a hash of all code that a function or class uses, in this project and in the user's files.

It is computed from syntax trees: helpers in other files and the values of constants change it; docstrings, comments,
formatting, annotations of functions, error messages and `__repr__` do not. Code of installed packages enters only by
its name.
"""

import ast
import copy
import functools
import hashlib
import inspect
import linecache
import symtable
import sys
import sysconfig
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch

Code = types.FunctionType | type
WITHOUT_NUMBERS = ("fedlib.checks", "fedlib.files", "fedlib.runs.store", "fedlib.fingerprint")
INSTALLED = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib"))
PACKAGES = {"site-packages", "dist-packages"}  # folders of installed packages, also those of a user or of the system
PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(...), Path, Enum)
OF_NUMPY_AND_TORCH = (np.generic, np.dtype, np.ufunc, torch.dtype, torch.device, torch.memory_format)
OF_TYPING = (types.GenericAlias, types.UnionType, typing.TypeVar, typing._GenericAlias, typing._SpecialForm)


class Registry(dict):
    """A dict whose entries are not part of the fingerprint of code that uses the dict."""


class Cache(dict):
    """A dict that is filled while a program runs; for the fingerprint it is always empty."""


def fingerprint(*roots: Any) -> str:
    """16 hex digits of all code that `roots`, functions and classes or values that contain them, use.

    Raises `ValueError` for a source that does not exist or has changed since it was imported, and for an object whose
    content cannot be described.
    """
    walk = _Walk()
    lines = {walk.written(root) for root in roots}
    while walk.waiting:
        lines.add(walk.definition(walk.waiting.pop()))
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


class _Walk:
    """A walk through the code: the functions and classes found so far, and those still to be read."""

    def __init__(self):
        self.waiting: list[Code] = []
        self._met: dict[int, Code] = {}

    def written(self, value: Any) -> str:
        """A value as text; functions and classes in it are queued to be read."""
        if isinstance(value, (*PLAIN, *OF_NUMPY_AND_TORCH, *OF_TYPING)):
            return repr(value)
        if isinstance(value, Registry):
            return "a registry"
        if isinstance(value, Cache):
            return "{}"
        if isinstance(value, types.ModuleType):
            return value.__name__
        if isinstance(value, np.ndarray | torch.Tensor):
            array = np.ascontiguousarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value)
            return f"{array.dtype} {array.shape} {hashlib.sha256(array).hexdigest()}"
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{self.written(key)}: {self.written(item)}' for key, item in value.items())}}}"
        if isinstance(value, set | frozenset):
            return f"{{{', '.join(sorted(map(self.written, value)))}}}"
        if isinstance(value, tuple | list):
            return f"{self._name(type(value))}({', '.join(map(self.written, value))})"
        if isinstance(value, functools.partial):
            return f"partial{self.written((value.func, value.args, value.keywords))}"
        if isinstance(value, types.MethodType):
            return f"{self.written(value.__self__)}.{self._name(value.__func__)}"
        if isinstance(value, type) or inspect.isroutine(value):
            return self._name(value)
        if is_dataclass(value):
            return self._name(type(value)) + self.written({f.name: getattr(value, f.name) for f in fields(value)})
        kind = type(value).__name__
        raise ValueError(f"no source tells what is in a {kind}; make it inside of the function that uses it.")

    def _name(self, code: Any) -> str:
        """The full name of a function or class, which is queued to be read unless it is of an installed package."""
        code = code if isinstance(code, type) else inspect.unwrap(code)  # also what a cache wraps
        module = getattr(code, "__module__", None) or "builtins"
        nameless = module == "builtins" and inspect.isfunction(code)  # made by exec without a module name
        if isinstance(code, Code) and (nameless or _is_read(module)) and id(code) not in self._met:
            self._met[id(code)] = code
            self.waiting.append(code)
        return f"{module}.{code.__qualname__}"

    def definition(self, code: Code) -> str:
        """The syntax tree of a function or class, its defaults, and the values of the outside names that it uses."""
        functions = _functions(code)
        tree, paths = _read(code, tuple((f.__code__, f.__code__.co_filename) for f in functions))
        known = _surroundings(code, functions)
        found = {f"{f.__qualname__}(...)": (f.__defaults__, f.__kwdefaults__) for f in functions}
        for first, *others in paths:
            if first in known:
                value = found[first] = known[first]
                for i, name in enumerate(others):
                    if not (isinstance(value, types.ModuleType) and _is_read(value.__name__) and hasattr(value, name)):
                        break
                    value = found[".".join([first, *others[: i + 1]])] = getattr(value, name)
        try:
            values = ", ".join(f"{path} = {self.written(value)}" for path, value in sorted(found.items()))
        except ValueError as error:
            raise ValueError(f"{code.__qualname__} cannot be fingerprinted: {error}") from None
        return f"{code.__module__}.{code.__qualname__}: {tree}; {values}"


def _is_read(module: str) -> bool:
    """Whether the code of a module is read: it is of this project or the user, and results can depend on it."""
    package = module.partition(".")[0]
    if package in ("fedlib", "__main__"):
        return not module.startswith(WITHOUT_NUMBERS)
    file = getattr(sys.modules.get(module), "__file__", None)
    if package in sys.stdlib_module_names or file is None:
        return False
    return not file.startswith(INSTALLED) and not PACKAGES.intersection(Path(file).parts)


def _functions(code: Code) -> list[types.FunctionType]:
    """A function itself, or the methods of a class that have a source."""
    if inspect.isfunction(code):
        return [code]
    methods = [getattr(v, "__func__", getattr(v, "fget", getattr(v, "func", v))) for v in vars(code).values()]
    written = [m for m in methods if inspect.isfunction(m) and linecache.getlines(m.__code__.co_filename)]
    own = [m for m in written if m.__code__.co_qualname.startswith(f"{code.__qualname__}.")]
    return [m for m in own if m.__name__ != "__repr__"]


def _surroundings(code: Code, functions: Sequence[types.FunctionType]) -> dict[str, Any]:
    """The values of names that a function or class uses and does not define itself."""
    if isinstance(code, type):
        return functions[0].__globals__ if functions else vars(sys.modules[code.__module__])
    return code.__globals__ | (inspect.getclosurevars(code).nonlocals if code.__closure__ else {})


@functools.lru_cache(maxsize=4096)
def _read(code: Code, loaded: tuple[tuple[types.CodeType, str], ...]) -> tuple[str, list[tuple[str, ...]]]:
    """The syntax tree of a function or class as text, and the dotted names in it that begin outside of it.

    `loaded` are the code objects of its functions, each with its file.
    """
    nodes = _nodes(code, loaded)
    if nodes is None and isinstance(code, type) and hasattr(code, "_fields"):  # made in a notebook, without methods
        return repr((code._fields, code._field_defaults)), []
    if nodes is None:
        raise ValueError(f"the source of {code.__qualname__} is not there; define it in a file or in a notebook.")
    nodes = [_Bare().visit(copy.deepcopy(node)) for node in nodes]
    body = [ast.Expr(node) if isinstance(node, ast.Lambda) else node for node in nodes]
    table = symtable.symtable(ast.unparse(ast.Module(body, [])), "source", "exec")
    free = set(_free(table))
    paths = {path for node in nodes for path in map(_path, ast.walk(node)) if path and path[0] in free}
    return _text(nodes), sorted(paths)


def _nodes(code: Code, loaded: Sequence[tuple[types.CodeType, str]]) -> list[ast.AST] | None:
    """The definition of a function or class (of a lambda: all lambdas of its line); None without a source."""
    file = loaded[0][1] if loaded else getattr(sys.modules.get(code.__module__), "__file__", None) or ""
    linecache.checkcache(file)
    source = "".join(linecache.getlines(file))
    if not source:
        return None
    trees, codes = _definitions(source, file)
    key = code.__code__.co_firstlineno if code.__name__ == "<lambda>" else code.__qualname__
    known = all(any(_same(old, new) for new in codes.get(old.co_qualname, ())) for old, _ in loaded)
    if not (known and key in trees) and Path(file).exists():
        raise ValueError(f"{file} has changed since {code.__qualname__} was imported from it; start Python anew.")
    return trees.get(key)


@functools.lru_cache(maxsize=512)
def _definitions(source: str, file: str) -> tuple[dict[str | int, list[ast.AST]], dict[str, list[types.CodeType]]]:
    """Syntax trees of a source by qualified name (lambdas: by line), and code objects by qualified name."""
    module, trees, codes = ast.parse(source), {}, {}

    def collect(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inside = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                trees[prefix + child.name] = [child]  # the last one of this name
                inside += child.name + ("." if isinstance(child, ast.ClassDef) else ".<locals>.")
            elif isinstance(child, ast.Lambda):
                trees.setdefault(child.lineno, []).append(child)
                inside += "<lambda>.<locals>."
            collect(child, inside)

    def compiled(code: types.CodeType) -> Iterator[types.CodeType]:
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                yield const
                yield from compiled(const)

    collect(module, "")
    for code in compiled(compile(module, file, "exec", dont_inherit=True)):
        codes.setdefault(code.co_qualname, []).append(code)
    return trees, codes


def _same(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether two code objects are the same except for line numbers and docstrings."""
    if (one.co_code, one.co_names, len(one.co_consts)) != (other.co_code, other.co_names, len(other.co_consts)):
        return False
    pairs = list(zip(one.co_consts, other.co_consts, strict=True))
    if pairs and all(isinstance(const, str) for const in pairs[0]):  # docstrings
        del pairs[0]
    codes = [pair for pair in pairs if isinstance(pair[0], types.CodeType) and isinstance(pair[1], types.CodeType)]
    plain = [pair for pair in pairs if pair not in codes]
    return all(_same(*pair) for pair in codes) and all(_Walk().written(a) == _Walk().written(b) for a, b in plain)


class _Bare(ast.NodeTransformer):
    """Removes from a syntax tree what no result depends on."""

    def visit_FunctionDef(self, node: Any) -> Any:
        self.generic_visit(node)
        node.returns = None
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node = self.visit_FunctionDef(node)
        node.body = [part for part in node.body if getattr(part, "name", "") != "__repr__"] or [ast.Pass()]
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return ast.Raise(exc=kind)

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        node.msg = None
        return node


def _free(table: symtable.SymbolTable) -> Iterator[str]:
    """Names that are not defined in a source, its nested functions and classes included."""
    yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
    for child in table.get_children():
        yield from _free(child)


def _path(node: ast.AST) -> tuple[str, ...]:
    """("a", "b", "c") for a.b.c, ("a",) for a; else nothing."""
    if isinstance(node, ast.Name):
        return (node.id,)
    before = _path(node.value) if isinstance(node, ast.Attribute) else ()
    return (*before, node.attr) if before else ()


def _text(node: Any) -> str:
    """A syntax tree as text that is the same for every version of Python."""
    if isinstance(node, ast.AST):
        entries = [(name, v) for name, v in ast.iter_fields(node) if name not in ("ctx", "kind", "type_comment")]
        return f"{type(node).__name__}({', '.join(f'{n}={_text(v)}' for n, v in entries if v is not None and v != [])})"
    return f"[{', '.join(map(_text, node))}]" if isinstance(node, list) else repr(node)
