"""Sphinx extension: formulas as MathML, docstrings as plain text, links from functions to their code."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

from fedlib.tools.site.markup import CODE, ROOT

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
    """Escape what would be markup in reStructuredText: our docstrings are text, code in backticks, and examples."""
    section = ""
    for i, line in enumerate(lines):
        if found := TITLE.fullmatch(line.strip()):
            section = found[1]
        elif section not in ("Example", "Examples"):
            parts = re.split(r"(`[^`]*`)", line)
            lines[i] = "".join(part if part.startswith("`") else escaped(part) for part in parts)


def escaped(text: str) -> str:
    """Text in which bars, stars and trailing underscores are no markup; the name of an argument keeps its stars."""
    stars = re.match(r"\s*\*{1,2}(?=\w+:)", text)
    head, tail = (stars[0], text[stars.end() :]) if stars else ("", text)
    return head + re.sub(r"([|*]|_(?!\w))", r"\\\1", tail)


def no_field(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave out the fields of a NamedTuple: its docstring describes them."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """The address of a function's or class's code; pages with functions are one folder deep."""
    found: object = sys.modules.get(info["module"])
    try:
        for part in info["fullname"].split("."):
            found = getattr(found, part)
        code = inspect.unwrap(found.fget if isinstance(found, property) and found.fget else found)  # type: ignore
        path = Path(inspect.getfile(code)).resolve()
    except (AttributeError, TypeError):
        return None
    if not path.is_relative_to(ROOT):
        return None
    return f"../code/{path.relative_to(ROOT).as_posix()}.html#{code.__qualname__}"


def code_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, str], str]]:
    """The pages of code: no Markdown, so that nothing has to be parsed."""
    folder = Path(app.srcdir) / CODE
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix().removesuffix(".html")
        yield f"code/{name}", {"title": name, "body": path.read_text(encoding="utf-8")}, "page.html"


def navigation(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Pages that are not in the navigation have the same one in each folder; it is made once."""
    if page.startswith(("code/", "claims/")):
        make, depth = context["toctree"], page.count("/")
        context["toctree"] = lambda **options: KNOWN.get(depth) or KNOWN.setdefault(depth, make(**options))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of it."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    KNOWN.clear()
    app.connect("html-collect-pages", code_pages)
    app.connect("html-page-context", navigation, priority=100)  # before the theme
    app.connect("autodoc-skip-member", no_field)
    app.connect("autodoc-process-docstring", plain, priority=100)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
