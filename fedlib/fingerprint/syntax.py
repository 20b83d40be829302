"""Sources of functions: the syntax tree as text, and the outside names in it."""

import ast
import copy
import functools
import linecache
import symtable
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fedlib.fingerprint.place import of_library

Path_ = tuple[str, ...]  # a dotted name: ("a", "b", "c") for a.b.c


class Import(NamedTuple):
    """An import inside a function: `from module import attribute as name`, or `import module`."""

    name: str
    module: str
    attribute: str  # "": the name is the module; ".": the name is the top package of a dotted module
    level: int


class Source(NamedTuple):
    """The source of a function, analysed."""

    text: str  # syntax tree without decorators, docstrings, annotations, error messages and checks
    names: tuple[Path_, ...]  # dotted names defined outside the function
    decorators: tuple[tuple[str, tuple[Path_, ...]], ...]  # text and dotted names of each decorator
    imports: tuple[Import, ...]
    without_arguments: frozenset[Path_]  # dotted names that are called without arguments
    methods: frozenset[str]  # names of called methods


def source_of(function: types.FunctionType) -> Source:
    """Analyse the source of a function; `ValueError` if it is missing or has changed since the import."""
    return _source(function.__code__, function.__code__.co_filename, of_library(function))


@functools.lru_cache(maxsize=4096)
def _source(code: types.CodeType, file: str, library: bool) -> Source:
    bare = _WithoutChecks() if library else _Bare()
    nodes = [bare.visit(copy.deepcopy(node)) for node in _nodes(code, file)]
    decorators = [each for node in nodes for each in getattr(node, "decorator_list", ())]
    for node in nodes:
        if not isinstance(node, ast.Lambda):
            node.decorator_list, node.name = [], "f"
    imported = [entry for node in nodes for child in ast.walk(node) for entry in _imports(child)]
    body = [ast.Expr(node) if isinstance(node, ast.Lambda) else node for node in nodes]
    table = symtable.symtable(ast.unparse(ast.Module(body, [])), "source", "exec")
    outside = {*_free(table), *(entry.name for entry in imported)}
    calls = [call for node in nodes for call in ast.walk(node) if isinstance(call, ast.Call)]
    return Source(
        text=_text([_WithoutImports().visit(node) for node in nodes]),
        names=_names(nodes, outside),
        decorators=tuple((_text(each), _names([each])) for each in decorators),
        imports=tuple(imported),
        without_arguments=frozenset(_path(call.func) for call in calls if not call.args and not call.keywords),
        methods=frozenset(call.func.attr for call in calls if isinstance(call.func, ast.Attribute)),
    )


def _nodes(code: types.CodeType, file: str) -> list[ast.AST]:
    """Definition of a function; for a lambda without known columns, all lambdas on its line."""
    name = code.co_qualname
    linecache.checkcache(file)
    source = "".join(linecache.getlines(file))
    trees, codes = _definitions(source, file)
    lines = [known.co_firstlineno for known in codes.get(name, ()) if _same(code, known)]
    if source and not lines and Path(file).exists():
        raise ValueError(f"{file} has changed since {name} was imported from it; restart Python.")
    line = code.co_firstlineno if not lines or code.co_firstlineno in lines else lines[0]
    short = "<lambda>" if name.endswith("<lambda>") else name
    nodes = trees.get((short, line)) or [node for key, several in trees.items() if key[0] == short for node in several]
    if short == "<lambda>" and len(nodes) > 1:
        places = {*code.co_positions()}  # those of the body are exactly the place of one lambda's body
        nodes = [node for node in nodes if isinstance(node, ast.Lambda) and _place(node.body) in places] or nodes
    if not nodes:
        raise ValueError(f"the source of {name} cannot be found; define it in a file or in a notebook.")
    return nodes


def _place(node: ast.expr) -> tuple[int | None, ...]:
    """Lines and columns of an expression, as in `co_positions`."""
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


@functools.lru_cache(maxsize=512)
def _definitions(source: str, file: str) -> tuple[dict[tuple[str, int], list[ast.AST]], dict[str, list]]:
    """Syntax trees by qualified name (or "<lambda>") and first line, and code objects by qualified name."""
    module, trees, codes = ast.parse(source), {}, {}

    def collect(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inside = prefix
            if isinstance(child, ast.ClassDef):
                inside += child.name + "."
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                name = "<lambda>" if isinstance(child, ast.Lambda) else prefix + child.name
                first = min([child.lineno, *(each.lineno for each in getattr(child, "decorator_list", ()))])
                trees.setdefault((name, first), []).append(child)
                inside = name + ".<locals>."
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
    """Compare two code objects up to line numbers, docstrings and pytest's rewriting of `assert`."""
    if any(name.startswith("@py_assert") for name in one.co_varnames):
        return True
    names = [(code.co_code, code.co_names, code.co_freevars, len(code.co_consts)) for code in (one, other)]
    if names[0] != names[1]:
        return False
    pairs = list(zip(one.co_consts, other.co_consts, strict=True))
    if pairs and all(isinstance(const, str) for const in pairs[0]):  # docstrings
        del pairs[0]
    codes = [pair for pair in pairs if isinstance(pair[0], types.CodeType) and isinstance(pair[1], types.CodeType)]
    plain = [pair for pair in pairs if pair not in codes]
    return all(_same(*pair) for pair in codes) and all(_constant(a) == _constant(b) for a, b in plain)


def _constant(value: object) -> object:
    """Constant of a code object with its type: True, 1 and 1.0 differ, also in tuples and frozen sets."""
    if isinstance(value, tuple | frozenset):
        return type(value), type(value)(map(_constant, value))
    return type(value), repr(value)


class _Bare(ast.NodeTransformer):
    """Remove docstrings, annotations, error messages and `__repr__` from a syntax tree."""

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

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        self.generic_visit(node)
        node.annotation = ast.Constant(ast.unparse(node.annotation))  # in a class: its text counts, not its value
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return ast.Raise(exc=kind)

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        node.msg = None
        return node


class _WithoutChecks(_Bare):
    """Replace calls `check_…(argument, value, …)` of this project by `value`: a check raises or changes nothing."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if getattr(node, "body", None) == []:
            node.body = [ast.Pass()]  # pyright: ignore[reportAttributeAccessIssue] - the statement held only checks
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if _is_check(node.value) else self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        self.generic_visit(node)
        return None if _text(node.targets) == _text([node.value]) else node  # x = x

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.args[1] if _is_check(node) and len(node.args) > 1 else node


def _is_check(node: ast.AST) -> bool:
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    return name.lstrip("_").startswith("check_")


class _WithoutImports(ast.NodeTransformer):
    """Replace imports by the names that they define; the values of these names enter elsewhere."""

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> ast.Import:
        return ast.Import([ast.alias(imported.name) for imported in _imports(node)])

    visit_ImportFrom = visit_Import


def _imports(node: ast.AST) -> Iterator[Import]:
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield Import(alias.asname or alias.name, node.module or "", alias.name, node.level)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.asname or alias.name.partition(".")[0], alias.name, "" if alias.asname else ".", 0)


def _free(table: symtable.SymbolTable) -> Iterator[str]:
    """Names that neither a source nor its nested functions and classes define."""
    yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
    for child in table.get_children():
        yield from _free(child)


def _names(nodes: list[Any], outside: set[str] | None = None) -> tuple[Path_, ...]:
    """Longest dotted names in syntax trees; `outside`: only names that begin with one of these."""
    paths: set[Path_] = set()

    def collect(node: ast.AST) -> None:
        path = _path(node)
        if path and (outside is None or path[0] in outside):
            paths.add(path)
        elif not path:
            for child in ast.iter_child_nodes(node):
                collect(child)

    for node in nodes:
        collect(node)
    return tuple(sorted(paths))


def _path(node: ast.AST) -> Path_:
    """Dotted name of a node: ("a", "b", "c") for a.b.c, ("a",) for a, else ()."""
    if isinstance(node, ast.Name):
        return (node.id,)
    before = _path(node.value) if isinstance(node, ast.Attribute) else ()
    return (*before, node.attr) if isinstance(node, ast.Attribute) and before else ()


def _text(node: Any) -> str:
    """Syntax tree as text, the same for every version of Python."""
    if isinstance(node, ast.AST):
        entries = [(name, v) for name, v in ast.iter_fields(node) if name not in ("ctx", "kind", "type_comment")]
        return f"{type(node).__name__}({', '.join(f'{n}={_text(v)}' for n, v in entries if v is not None and v != [])})"
    return f"[{', '.join(map(_text, node))}]" if isinstance(node, list) else repr(node)
