"""An executed notebook as one web page that needs no network: embedded pictures, formulas as MathML, no scripts."""

from pathlib import Path

import nbformat
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from traitlets.config import Config

SHOWN = ("text/html", "image/png", "text/plain")  # the first of these formats that an output has is shown
PLAIN = Config({"NbConvertBase": {"display_data_priority": SHOWN}})


class Formulas(IPythonRenderer):
    """Markdown whose formulas become MathML, which browsers can display."""

    def block_math(self, body: str) -> str:
        """A formula between two `$$`, on lines of its own."""
        return convert(body, display="block")

    def inline_math(self, body: str) -> str:
        """A formula between two `$`, in a line of text."""
        return convert(body)

    def latex_environment(self, name: str, body: str) -> str:
        r"""A formula between `\begin{name}` and `\end{name}`."""
        return convert(rf"\begin{{{name}}}{body}\end{{{name}}}", display="block")


def markdown_to_html(source: str, escape: bool = False) -> str:
    """Markdown as HTML; with `escape`, HTML tags in it are shown as text."""
    return MarkdownWithMath(renderer=Formulas(escape=escape, exclude_anchor_links=True)).render(source)


def notebook_body(path: str | Path) -> str:
    """The cells of an executed notebook and their outputs as HTML without a head.

    Progress bars and other stderr are left out; a widget is shown as its picture.
    """
    notebook = nbformat.read(path, 4)
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    exporter = HTMLExporter(config=PLAIN, template_name="basic", filters={"markdown2html": markdown_to_html})
    body, _ = exporter.from_notebook_node(notebook)
    return body
