"""The page of all results: complete, readable without a network, a mouse or eyes; slides of executed notebooks."""

import shutil
import sys

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import fedlib as fl
from fedlib import report
from fedlib.tools.gallery import write_gallery
from fedlib.tools.slides import FULL, main, slides_of


def finished(folder, paper="pfedmb"):
    own = report.open(paper, "quick", folder / paper)
    figure, ax = plt.subplots()
    ax.plot([0, 1])
    picture = own.figure(figure, "fig3", alt="A line that rises from 0 to 1.", says='It rises by 1.5. "a" is <b>.')
    own.table(pd.DataFrame({"method": "<b>", "value": range(3)}), "table1", caption="Table I.")
    own.table(pd.DataFrame({"a": [1]}), "side", caption="No item of the paper.")
    own.verdicts(fl.study(paper, "smoke"))
    own.provenance({"seconds": 1.5})
    shown = new_output("display_data", data={"image/png": "aGk="}, metadata={"image/png": {"alt": picture.alt}})
    progress = new_output("stream", name="stderr", text="cell 0/2: 10%")
    cells = [new_markdown_cell("# Title\n\n$\\alpha_i$ and $$x = 1$$"), new_code_cell("1", outputs=[shown, progress])]
    nbformat.write(new_notebook(cells=cells), folder / paper / f"04_{paper}.ipynb")
    return own


def read(path):
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quick")
    finished(folder)
    assert write_gallery(folder) == folder / "index.html"
    return folder


@pytest.mark.parametrize("name", ["index.html", "pfedmb/04_pfedmb.html"])
def test_a_page_makes_no_request_can_be_read_without_eyes_and_has_links_that_lead_somewhere(folder, name):
    page, html = folder / name, read(folder / name)
    assert not html.find_all(["script", "link", "iframe", "object"])
    assert not any(word in style.text for style in html.find_all("style") for word in ("url(", "@import"))
    [image] = html.find_all("img")
    assert image["src"].startswith("data:")
    assert image["alt"] == "A line that rises from 0 to 1."
    assert html.html["lang"] == "en"
    assert html.find("a")["href"] == "#content"  # the first stop of the Tab key skips to the content
    assert all(scroller["tabindex"] == "0" for scroller in html.select(".wide"))
    assert html.find("meta", {"name": "viewport"})
    ids = [tag["id"] for tag in html.find_all(id=True)]
    assert len(ids) == len(set(ids))
    for link in html.find_all("a"):
        target = link["href"]
        assert target[1:] in ids if target.startswith("#") else (page.parent / target).exists()


def test_the_index_has_everything_and_a_figure_begins_with_its_finding_in_bold(folder):
    html = read(folder / "index.html")
    [finding] = [text for text in html.find_all("p") if text.strong]
    assert (finding.strong.text, finding.text) == ("It rises by 1.5.", 'It rises by 1.5. "a" is <b>.')
    assert finding.find_next("img")["alt"] == "A line that rises from 0 to 1."
    shown = [figure["id"] for figure in html.select("section figure")]
    wanted = ["claims", "table1", "fig3", "side"]  # the paper's items, in its order, then others
    assert shown == [f"pfedmb-{name}" for name in wanted]
    assert html.select_one("#pfedmb-claims figcaption").text.startswith("Claims at full size: ")
    claims = [row.td.text for row in html.select("#pfedmb-claims tbody tr")]
    assert claims == [f"pb{i:02d}" for i in range(1, 21)]
    assert html.select_one("#pfedmb-table1 td").text == "<b>"
    assert html.select_one("#pfedmb-table1 p a")["href"] == "pfedmb/table1.csv"
    assert html.select_one("#pfedmb-side figcaption").text == "No item of the paper."
    assert html.select_one("#pfedmb-fig3 a")["href"] == "pfedmb/fig3.svg"
    assert "A line that rises from 0 to 1." in html.select_one("#pfedmb-fig3 p.soft").text
    assert "FedCS, pFedHR, FedSimSup" in html.text  # what is missing is said


def test_formulas_are_drawn_by_the_browser_and_progress_is_left_out(folder):
    html = read(folder / "pfedmb" / "04_pfedmb.html")
    assert [math["display"] for math in html.find_all("math")] == ["inline", "block"]
    assert "$" not in html.main.text
    assert "10%" not in html.text


def test_a_notebook_that_a_kill_has_cut_off_keeps_its_last_page(folder, tmp_path):
    folder = shutil.copytree(folder, tmp_path / "quick")
    page = (folder / "pfedmb" / "04_pfedmb.html").read_text(encoding="utf-8")
    (folder / "pfedmb" / "04_pfedmb.ipynb").write_text('{"cells": [')
    index = write_gallery(folder)
    assert (folder / "pfedmb" / "04_pfedmb.html").read_text(encoding="utf-8") == page
    assert "pfedmb/04_pfedmb.html" in {link["href"] for link in read(index).find_all("a")}


def test_an_unfinished_report_is_left_out(tmp_path):
    assert write_gallery(tmp_path / "nothing") is None
    finished(tmp_path)
    (tmp_path / "pfedmb" / "provenance.json").unlink()
    assert write_gallery(tmp_path) is None


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
        new_markdown_cell(f"Last.\n\n{LONG}\n\n## 2. Second\n\n{LONG}\n\n{LONG}"),
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
        ("-", LONG.strip()),
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
