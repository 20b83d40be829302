"""Helpers for pages: Markdown and HTML, links between pages, and the places of repository files on the site."""

import os
import re
from pathlib import Path

from docutils.nodes import make_id as anchor  # of a heading
from markupsafe import Markup

from fedlib.report.paper import TITLES
from fedlib.report.templates import templates
from fedlib.studies.verdict import MEANING

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
EXTRA = "_extra/"  # files that are copied to the site unchanged

Pages = dict[str, "str | bytes"]  # by file name in the folder of the sources

PLACES = {  # files of the repository that have a page of their own
    "README.md": "use.html",
    "fedlib/methods/README.md": "methods/index.html",
    "CONTRIBUTING.md": "contributing.html",
    "CHANGELOG.md": "changes.html",
    "notebooks/start.ipynb": "index.html",
    "notebooks/glossary.ipynb": "glossary.html",
    "figures/reference/evidence/summary.md": "index.html",
    "figures/reference/bench/bench.md": "bench.html",
    "figures/reference/bench/peers.md": "peers.html",
}
PLACES |= {f"figures/reference/evidence/{n}.md": f"{n}.html" for n in ("scoreboard", "ledger", "differences", "items")}
PLACES |= {f"fedlib/tools/site/pages/{page.name}": f"{page.stem}.html" for page in (HERE / "pages").glob("*.md")}
LINK = re.compile(r"(?<!\\)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
SOURCE = re.compile(r'(?<= src=")(?!data:|https?:)([^"]+)(?=")')
NAMED_LINK = re.compile(r"\[`(\w+)`\]\(([^)\s#]+\.py)\)")


def escape(text: str) -> str:
    """Escape text for Markdown, so that nothing in it is markup."""
    return re.sub(r"([\\`*_{}\[\]<>$#|~^&!@:=+-])", r"\\\1", text)


def fill(template: str, **entries: object) -> str:
    """A filled template: a page, or a part of one, in Markdown."""
    return TEMPLATES.get_template(template).render(**entries)


def up(page: str) -> str:
    """From a page to the top of the site."""
    return "../" * page.count("/")


def place(path: str, pages: Pages) -> str:
    """The address of a repository file on the site, "" if it has none; pictures and other data are added to `pages`."""
    full = ROOT / path
    if path in PLACES:
        return PLACES[path]
    if not full.is_file():
        return ""
    if full.suffix == ".py":
        return f"_modules/{path.removesuffix('.py').removesuffix('/__init__')}.html"
    if full.parent == ROOT / "notebooks":
        return f"notebooks/{full.stem}.html"
    target = f"pictures/{path}" if full.suffix in (".png", ".svg") else f"files/{path}"
    pages[EXTRA + target] = full.read_bytes()
    return target


def relink(text: str, page: str, folder: str, pages: Pages) -> str:
    """Adapt Markdown of a `folder` to a `page`: links lead to the site or become text; files are added to `pages`."""
    text = IMAGE.sub(r'<img class="card" loading="lazy" alt="\1" src="\2">', text)
    text = NAMED_LINK.sub(r"[`\1`](\2#\1)", text)  # a name in code leads to its definition

    def address(link: str) -> str:
        return place(Path(os.path.normpath(f"{folder}/{link}")).as_posix(), pages)

    def lead(found: re.Match[str]) -> str:
        if found[1].endswith(".html"):
            return found[0]  # already a page of the site
        target = address(found[1])
        return f"]({up(page)}{target}{found[2] or ''})" if target else "]()"

    text = SOURCE.sub(lambda found: up(page) + address(found[1]), LINK.sub(lead, text))
    return re.sub(r"\[([^\[\]]*)\]\(\)", r"\1", text)


TEMPLATES = templates(HERE / "templates")
TEMPLATES.globals |= {"titles": TITLES, "meaning": MEANING}
TEMPLATES.filters |= {"anchor": anchor, "text": lambda text: Markup(escape(text))}
