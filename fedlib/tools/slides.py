"""`python -m fedlib.tools.slides`: executed notebooks as slides for a lecture, made by nbconvert for reveal.js."""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbconvert import SlidesExporter
from nbformat.v4 import new_markdown_cell, new_notebook
from traitlets.config import Config

from fedlib.files import write_text
from fedlib.tools.gallery import EXPORT, markdown_to_html

SKIPPED = ("Exercises", "Provenance")  # sections
FULL = 1100  # characters on a slide; a picture or table counts as half a slide, a line of text as LINE
LINE = 50
LOOKS = Config({"SlidesExporter": {"reveal_theme": "simple", "reveal_scroll": True, "reveal_number": "c/t"}})


def slides_of(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with a slide for each section: its text, by paragraphs, and the outputs of its code."""
    # A section that does not fit on a slide continues on the ones below it.
    cells, filled, section = [], 0, ""
    for cell, weight in _blocks(notebook):
        kind = "-"
        if heading := re.match(r"##? (?:\d+\. )?(.*)", cell.source) if cell.cell_type == "markdown" else None:
            section, kind, filled = heading[1], "slide", 0
        elif filled + weight > FULL:
            kind, filled = "subslide", 0
        if section in SKIPPED:
            continue
        filled += weight
        cell.metadata["slideshow"] = {"slide_type": kind}
        cells.append(cell)
    return new_notebook(cells=cells, metadata=notebook.metadata)


def _blocks(notebook: nbformat.NotebookNode) -> Iterator[tuple[nbformat.NotebookNode, int]]:
    """Paragraphs and code cells with outputs, each with its weight on a slide in characters."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"^(###.*)\n+", r"\1\n", cell.source, flags=re.MULTILINE)  # a heading stays with its text
            for paragraph in re.split(r"\n\n+(?!\$\$)", text):  # and a formula with the text before it
                yield new_markdown_cell(paragraph), len(paragraph)
        elif outputs := [output for output in cell.outputs if output.get("name") != "stderr"]:
            cell.outputs = outputs
            yield cell, sum(map(_weight, outputs))


def _weight(output: nbformat.NotebookNode) -> int:
    data = output.get("data", {})
    lines = (output.get("text") or data.get("text/plain", "")).count("\n") + 1
    return FULL // 2 if {"image/png", "text/html"} & {*data} else min(FULL // 2, LINE * lines)


def main() -> int:
    """Write `<folder>/slides/<notebook>.slides.html` for the executed notebooks in a folder; returns the status."""
    parser = argparse.ArgumentParser(prog="python -m fedlib.tools.slides", description=__doc__)
    parser.add_argument("folder", type=Path, help="figures/<profile>, where `make figures` has put the notebooks")
    folder = parser.parse_args().folder
    sources = sorted(folder.glob("*/*.ipynb"))
    if not sources:
        print(f"{folder} has no executed notebooks; run make figures first.", file=sys.stderr)
        return 2
    no_code = {"exclude_input": True, "exclude_input_prompt": True, "exclude_output_prompt": True}
    exporter = SlidesExporter(config=EXPORT | LOOKS, filters={"markdown2html": markdown_to_html}, **no_code)
    for source in sources:
        text, _ = exporter.from_notebook_node(slides_of(nbformat.read(source, 4)))
        print(write_text(folder / "slides" / f"{source.stem}.slides.html", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
