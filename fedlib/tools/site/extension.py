"""Sphinx extension: formulas as MathML, docstrings as plain text, code of all modules."""

import re
import sys
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.writers.html5 import HTML5Translator

from fedlib.tools.site.markup import ROOT

KNOWN: dict[int, str] = {}
TITLE = re.compile(r"(Args|Attributes|Example|Examples|Raises|Returns|Source|Yields):")


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line of text."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """A formula on lines of its own."""
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="math-block" role="region" tabindex="0" aria-label="formula">{formula}</div>')
    raise nodes.SkipNode


def plain(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape markup of reStructuredText: our docstrings consist of text, code in backticks, and examples."""
    section = ""
    for i, line in enumerate(lines):
        if found := TITLE.fullmatch(line.strip()):
            section = found[1]
        elif section not in ("Example", "Examples"):
            lines[i] = "".join(part if part.startswith("`") else escaped(part) for part in re.split(r"(`[^`]*`)", line))


def escaped(text: str) -> str:
    """Escape bars, stars and trailing underscores; the name of an argument keeps its stars."""
    stars = re.match(r"\s*\*{1,2}(?=\w+:)", text)
    head, tail = (stars[0], text[stars.end() :]) if stars else ("", text)
    return head + re.sub(r"([|*]|_(?!\w))", r"\\\1", tail)


def no_field(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave out the fields of a NamedTuple: its docstring describes them."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def source(app: Sphinx, module: str) -> tuple[str, dict[str, tuple[str, int, int]]] | None:
    """The code and the definitions of a module for viewcode, which would import it."""
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.is_file():
        return None
    analyzer = ModuleAnalyzer.for_file(file, module)
    return analyzer.code, analyzer.find_tags()


def home(app: Sphinx, module: str, name: str) -> str | None:
    """The module of a function or class; for a property, that of its class."""
    return getattr(getattr(sys.modules.get(module), name.partition(".")[0], None), "__module__", None)


def every_module(app: Sphinx, env: BuildEnvironment) -> None:
    """Let viewcode show all modules, and the tests, with an anchor at each definition."""
    for path in (*ROOT.glob("fedlib/**/*.py"), *ROOT.glob("tests/test_*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if found := source(app, name):
            code, definitions = found
            env._viewcode_modules[name] = (code, definitions, dict.fromkeys(definitions, "index"), name)


def context(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Make the navigation of code and claim pages once per depth; remove links from code to the documentation."""
    if page.startswith(("_modules/", "claims/")):
        make, depth = context["toctree"], page.count("/")
        context["toctree"] = lambda **options: KNOWN.get(depth) or KNOWN.setdefault(depth, make(**options))
    if page.startswith("_modules/"):
        body = re.sub(r'<a class="viewcode-back".*?</a>\n', "", context["body"])
        context["body"] = body.replace("<pre>", f'<pre tabindex="0" aria-label="{page}">')


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the functions of this file."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    KNOWN.clear()
    app.connect("viewcode-find-source", source)
    app.connect("viewcode-follow-imported", home)
    app.connect("env-updated", every_module)
    app.connect("html-page-context", context, priority=100)  # before the theme
    app.connect("autodoc-skip-member", no_field)
    app.connect("autodoc-process-docstring", plain, priority=100)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
