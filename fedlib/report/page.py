"""An executed notebook as one web page that needs no network: pictures inside, formulas as MathML, no script."""

from pathlib import Path

import nbformat
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from traitlets.config import Config

SHOWN = ("text/html", "image/png", "text/plain")  # of what an output holds, the first that is there
PLAIN = Config({"NbConvertBase": {"display_data_priority": SHOWN}})


class Formulas(IPythonRenderer):
    """Markdown whose formulas become MathML, which browsers draw by themselves."""

    def block_math(self, body: str) -> str:
        return convert(body, display="block")

    def inline_math(self, body: str) -> str:
        return convert(body)

    def latex_environment(self, name: str, body: str) -> str:
        return convert(rf"\begin{{{name}}}{body}\end{{{name}}}", display="block")


def markdown_to_html(source: str, escape: bool = False) -> str:
    """Markdown as HTML; with `escape` tags in it are text."""
    return MarkdownWithMath(renderer=Formulas(escape=escape, exclude_anchor_links=True)).render(source)


def notebook_body(path: str | Path) -> str:
    """The cells of an executed notebook and their outputs as HTML without a head.

    Progress bars and other stderr are left out; a widget appears as the picture that it carries.
    """
    notebook = nbformat.read(path, 4)
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    exporter = HTMLExporter(config=PLAIN, template_name="basic", filters={"markdown2html": markdown_to_html})
    body, _ = exporter.from_notebook_node(notebook)
    return body
