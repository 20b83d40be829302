"""`index.html`: all tables and figures of one profile on one page that needs no network, and a page per notebook."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import nbformat
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat.reader import NotJSONError
from PIL import Image
from pygments.formatters import HtmlFormatter
from traitlets.config import Config

from fedlib.files import write_text
from fedlib.report.paper import PAPERS, TITLES
from fedlib.report.templates import TEMPLATES
from fedlib.studies.item import Item
from fedlib.studies.study import study

FORMATS = ("text/html", "image/png", "text/plain")  # the first of these formats that an output has is shown
EXPORT = Config({"NbConvertBase": {"display_data_priority": FORMATS}})


class Formulas(IPythonRenderer):
    """Markdown whose formulas become MathML, which browsers can display."""

    def block_math(self, body: str) -> str:
        """A formula between two `$$`, on lines of its own."""
        return convert(body, display="block").replace("<math ", '<math tabindex="0" ')  # may scroll

    def inline_math(self, body: str) -> str:
        """A formula between two `$`, in a line of text."""
        return convert(body)

    def latex_environment(self, name: str, body: str) -> str:
        r"""A formula between `\begin{name}` and `\end{name}`."""
        return convert(rf"\begin{{{name}}}{body}\end{{{name}}}", display="block")


def markdown_to_html(source: str, escape: bool = False) -> str:
    """Markdown as HTML; with `escape`, HTML tags in it are shown as text."""
    return MarkdownWithMath(renderer=Formulas(escape=escape, exclude_anchor_links=True)).render(source)


def notebook_body(path: Path) -> str:
    """The cells of an executed notebook as HTML without a head: a widget is its picture, stderr is left out."""
    notebook = nbformat.read(path, 4)
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    exporter = HTMLExporter(config=EXPORT, template_name="basic", filters={"markdown2html": markdown_to_html})
    body = exporter.from_notebook_node(notebook)[0].replace("<pre>", '<pre tabindex="0">')  # may scroll
    return re.sub(r"<th([^>]*)>(?:&nbsp;|\s*)</th>", r"<td\1></td>", body)  # screen readers take a <th> for a name


def in_order(name: str) -> tuple[bool, bool, bool, list[int], str]:
    """The sort key of an item: the hero figure, the claims, the paper's items by number, then others."""
    numbers = [int(n) for n in re.findall(r"\d+", name)]
    return name != "hero", name != "claims", not re.match(r"(table|fig)\d", name), numbers, name


def item(folder: Path, name: str, known: Mapping[str, Item]) -> dict[str, str | bytes]:
    """A table or figure of a report for the page: its title, picture with alternative text, and table as HTML."""
    picture, text = folder / f"{name}.png", folder / f"{name}.md"
    title, _, table = ("\n" + text.read_text(encoding="utf-8") if text.exists() else "").partition("\n| ")
    title = known[name].title if name in known and name != "hero" else title.strip()
    found = {"name": name, "title": title, "says": "", "picture": b"", "table": ""}
    if table:
        found["table"] = markdown_to_html("| " + table, escape=True)
    if picture.exists():
        with Image.open(picture) as image:
            found["alt"] = str(image.info.get("Description", name))
            found["says"] = str(image.info.get("Comment", ""))
        found["picture"] = picture.read_bytes()
    return found


def write_gallery(folder: str | Path) -> Path | None:
    """Write `index.html` of the finished reports in `figures/<profile>`, and a page beside each of their notebooks."""
    folder = Path(folder)
    ends = ("claims.csv", "provenance.json")  # of a finished report
    finished = [folder / name for name in PAPERS if all((folder / name / end).exists() for end in ends)]
    if not finished:
        return None
    look = {"code": HtmlFormatter(style="xcode").get_style_defs(".highlight")}
    sections = []
    for report in finished:
        for path in report.glob("*.ipynb"):
            with suppress(NotJSONError):  # incomplete: being written, or interrupted; its old page is kept
                page = TEMPLATES.get_template("page.html").render(title=path.stem, body=notebook_body(path), **look)
                write_text(path.with_suffix(".html"), page)
        names = {path.stem for path in report.iterdir() if path.suffix in (".png", ".md")}
        known = study(report.name).shown
        items = [item(report, name, known) for name in sorted(names, key=in_order)]
        notebooks = sorted(path.name for path in report.glob("*.html"))
        sections.append({"name": report.name, "title": TITLES[report.name], "shown": items, "notebooks": notebooks})
    missing = [TITLES[name] for name in PAPERS if folder / name not in finished]
    title = f"Personalised federated learning: the {folder.name} results"
    index = TEMPLATES.get_template("index.html").render(title=title, papers=sections, missing=missing, **look)
    return write_text(folder / "index.html", index)
