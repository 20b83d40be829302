"""The fingerprint of code: all that a function or class reaches in this project and in the user's files, as it stands.

It is taken from syntax trees, so docstrings, comments, formatting, annotations of functions and the words of errors do
not count, and helpers in other files do. Constants count by their value. Of installed packages only the names that are
used count.
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
WITHOUT_NUMBERS = ("fedlib.checks", "fedlib.files", "fedlib.runs.store", "fedlib.runs.clock", "fedlib.fingerprint")
INSTALLED = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib"))
PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(...), Path, Enum)
OF_NUMPY_AND_TORCH = (np.generic, np.dtype, np.ufunc, torch.dtype, torch.device, torch.memory_format)
OF_TYPING = (types.GenericAlias, types.UnionType, typing.TypeVar, typing._GenericAlias, typing._SpecialForm)


class Registry(dict):
    """A table by name. What a run takes out of it belongs to the run's fingerprint, the rest does not."""


def fingerprint(*roots: Any) -> str:
    """16 hex digits of all that `roots`, functions and classes or values made of them, can reach.

    Raises `ValueError` for what cannot be read: a source that is not there, or that has changed since it was imported,
    or an object whose state no source tells.
    """
    walk = _Walk()
    lines = {walk.written(root) for root in roots}
    while walk.waiting:
        lines.add(walk.definition(walk.waiting.pop()))
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


class _Walk:
    """The way through the code: what has been met, and what of it has yet to be read."""

    def __init__(self):
        self.waiting: list[Code] = []
        self._met: dict[int, Code] = {}

    def written(self, value: Any) -> str:
        """A value in words. Functions and classes in it are to be read."""
        if isinstance(value, (*PLAIN, *OF_NUMPY_AND_TORCH, *OF_TYPING)):
            return repr(value)
        if isinstance(value, Registry):
            return "a registry"
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
        """The full name of a function or class, which is to be read unless it is installed."""
        code = inspect.unwrap(code) if inspect.isfunction(code) else code
        module = getattr(code, "__module__", None) or "builtins"
        nameless = module == "builtins" and inspect.isfunction(code)  # made by exec in a space without a name
        if isinstance(code, Code) and (nameless or _is_own(module)) and id(code) not in self._met:
            self._met[id(code)] = code
            self.waiting.append(code)
        return f"{module}.{code.__qualname__}"

    def definition(self, code: Code) -> str:
        """The tree of a function or class, its defaults, and the values of names in it that are defined elsewhere."""
        functions = _functions(code)
        tree, paths = _read(code, tuple((own.__code__, own.__code__.co_filename) for own in functions))
        known, found = _surroundings(code, functions), {}
        found = {f"{own.__qualname__}(...)": (own.__defaults__, own.__kwdefaults__) for own in functions}
        for first, *others in paths:
            if first in known:
                value = found[first] = known[first]
                for place, name in enumerate(others):
                    if not (isinstance(value, types.ModuleType) and _is_own(value.__name__) and hasattr(value, name)):
                        break
                    value = found[".".join([first, *others[: place + 1]])] = getattr(value, name)
        try:
            values = ", ".join(f"{path} = {self.written(value)}" for path, value in sorted(found.items()))
        except ValueError as error:
            raise ValueError(f"{code.__qualname__} cannot be fingerprinted: {error}") from None
        return f"{code.__module__}.{code.__qualname__}: {tree}; {values}"


def _is_own(module: str) -> bool:
    """Is a module this project's or the user's, and do numbers depend on it?"""
    package = module.partition(".")[0]
    if package in ("fedlib", "__main__"):
        return not module.startswith(WITHOUT_NUMBERS)
    file = getattr(sys.modules.get(module), "__file__", None)
    return package not in sys.stdlib_module_names and file is not None and not file.startswith(INSTALLED)


def _functions(code: Code) -> list[types.FunctionType]:
    """A function, or the methods of a class that somebody has written."""
    if inspect.isfunction(code):
        return [code]
    methods = [getattr(own, "__func__", getattr(own, "fget", getattr(own, "func", own))) for own in vars(code).values()]
    written = [own for own in methods if inspect.isfunction(own) and linecache.getlines(own.__code__.co_filename)]
    return [own for own in written if own.__code__.co_qualname.startswith(f"{code.__qualname__}.")]


def _surroundings(code: Code, functions: Sequence[types.FunctionType]) -> dict[str, Any]:
    """What the names that a function or class does not define itself stand for."""
    if isinstance(code, type):
        return functions[0].__globals__ if functions else vars(sys.modules[code.__module__])
    return code.__globals__ | (inspect.getclosurevars(code).nonlocals if code.__closure__ else {})


@functools.lru_cache(maxsize=4096)
def _read(code: Code, loaded: tuple[tuple[types.CodeType, str], ...]) -> tuple[str, list[tuple[str, ...]]]:
    """The tree of a function or class in words, and the dotted names in it that begin outside of it.

    `loaded` is what Python has made of its functions, and of which files.
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
    return _words(nodes), sorted(paths)


def _nodes(code: Code, loaded: Sequence[tuple[types.CodeType, str]]) -> list[ast.AST] | None:
    """The definition of a function or class (of lambdas: all in the line); None if there is no source."""
    file = loaded[0][1] if loaded else getattr(sys.modules.get(code.__module__), "__file__", None) or ""
    linecache.checkcache(file)
    source = "".join(linecache.getlines(file))
    if not source:
        return None
    trees, codes = _definitions(source, file)
    place = code.__code__.co_firstlineno if code.__name__ == "<lambda>" else code.__qualname__
    known = all(any(_same(own, other) for other in codes.get(own.co_qualname, ())) for own, _ in loaded)
    if not (known and place in trees) and Path(file).exists():
        raise ValueError(f"{file} has changed since {code.__qualname__} was imported from it; start Python anew.")
    return trees.get(place)


@functools.lru_cache(maxsize=512)
def _definitions(source: str, file: str) -> tuple[dict[str | int, list[ast.AST]], dict[str, list[types.CodeType]]]:
    """Of a source: trees by qualified name (lambdas: by line), and what Python makes of them, by qualified name."""
    module, trees, codes = ast.parse(source), {}, {}

    def collect(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inside = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                trees[prefix + child.name] = [child]  # of several with this name the last one
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
    """Do two code objects do the same? Where they stand, and their docstrings, do not matter."""
    if (one.co_code, one.co_names, len(one.co_consts)) != (other.co_code, other.co_names, len(other.co_consts)):
        return False
    pairs = list(zip(one.co_consts, other.co_consts, strict=True))
    if pairs and all(isinstance(own, str) for own in pairs[0]):  # docstrings
        del pairs[0]
    codes = [pair for pair in pairs if isinstance(pair[0], types.CodeType) and isinstance(pair[1], types.CodeType)]
    plain = [pair for pair in pairs if pair not in codes]
    return all(_same(*pair) for pair in codes) and all(_Walk().written(a) == _Walk().written(b) for a, b in plain)


class _Bare(ast.NodeTransformer):
    """Takes out of a tree what no number depends on."""

    def visit_FunctionDef(self, node: Any) -> Any:
        self.generic_visit(node)
        node.returns = None
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return self.visit_FunctionDef(node)

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


def _words(node: Any) -> str:
    """A tree in words that are the same for every version of Python."""
    if isinstance(node, ast.AST):
        said = [(name, value) for name, value in ast.iter_fields(node) if name not in ("ctx", "kind", "type_comment")]
        return f"{type(node).__name__}({', '.join(f'{n}={_words(v)}' for n, v in said if v is not None and v != [])})"
    return f"[{', '.join(map(_words, node))}]" if isinstance(node, list) else repr(node)
