"""Slides of executed notebooks: their content, and the division of a section."""

import sys

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from fedlib.tools.slides import FULL, main, slides_of

LONG = "word " * (FULL // 12)  # two fit on a slide, three do not


def code(source: str, *texts: str, **about) -> nbformat.NotebookNode:
    return new_code_cell(source, outputs=[new_output("stream", text=text, **about) for text in texts])


@pytest.fixture
def notebook() -> nbformat.NotebookNode:
    cells = [
        new_markdown_cell("# A title\n\n## 1. First\n\nOne.\n\n$$x^2$$"),
        code("silent = 1"),
        code("print('two')", "two"),
        code("warn()", "a warning", name="stderr"),
        new_markdown_cell(f"Last.\n\n## 2. Second\n\n{LONG}\n\n{LONG}"),
        code("print('a line')", "a line"),
        new_markdown_cell(f"### Part\n\n{LONG}"),
        new_markdown_cell("## 3. Exercises\n\nThree.\n\n<details>\n\nSolution.\n\n</details>"),
        code("print('four')", "four"),
        new_markdown_cell("## 4. Provenance"),
        new_markdown_cell("## 5. Provenance of ideas"),
    ]
    return new_notebook(cells=cells, metadata={})


def test_sections_begin_slides_and_long_ones_continue_below(notebook):
    slides = slides_of(notebook)
    kinds = [(cell.metadata.slideshow.slide_type, cell.source.split("\n")[0].strip()) for cell in slides.cells]
    assert kinds == [
        ("slide", "# A title"),
        ("slide", "## 1. First"),
        ("-", "One."),
        ("-", "print('two')"),
        ("-", "Last."),
        ("slide", "## 2. Second"),
        ("-", LONG.strip()),
        ("-", LONG.strip()),
        ("-", "print('a line')"),
        ("subslide", "### Part"),
        ("slide", "## 5. Provenance of ideas"),
    ]


def test_command_writes_text_formulas_and_outputs_without_code(notebook, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["slides", str(tmp_path)])
    assert main() == 2
    assert "make figures" in capsys.readouterr().err
    (tmp_path / "paper").mkdir()
    nbformat.write(notebook, tmp_path / "paper" / "09_paper.ipynb")
    assert main() == 0
    page = BeautifulSoup((tmp_path / "slides" / "09_paper.slides.html").read_text(encoding="utf-8"), "html.parser")
    text = page.find(class_="slides").get_text()
    assert "two" in text
    assert not {"print", "warning", "four", "Solution"} & set(text.replace("(", " ").split())
    assert page.find("math") is not None
    assert "$" not in text
    assert len(page.select(".slides > section")) == 4
    assert len(page.select(".slides > section > section")) == 5
