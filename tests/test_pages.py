"""The pages that people start from: every link leads to a file, every term to the code that is its meaning."""

import re
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
PAGES = [NOTEBOOKS / "start.ipynb", NOTEBOOKS / "glossary.ipynb"]  # notebooks, because JupyterLab opens them rendered
LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+)(#[^)]*)?\)")


def text_of(page):
    """The page's Markdown; it has nothing else."""
    cells = nbformat.read(page, 4).cells
    assert {cell.cell_type for cell in cells} == {"markdown"}
    return "\n\n".join(cell.source for cell in cells)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_every_name_is_defined_there(page):
    links = LINK.findall(text_of(page))
    assert links
    for text, target, _ in links:
        path = (page.parent / target).resolve()
        assert path.is_file(), target
        if text.startswith("`"):
            defined = re.findall(r"^(?:def|class) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert text.strip("`") in defined, target


def test_the_first_page_lists_every_notebook():
    page = text_of(NOTEBOOKS / "start.ipynb")
    assert [path.name for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")) if f"({path.name})" not in page] == []


def test_every_paper_has_a_term_of_its_own():
    page = text_of(NOTEBOOKS / "glossary.ipynb")
    own = page.partition("## The five papers")[2].partition("##")[0]
    assert all(f"({paper})" in own for paper in ("pFedSim", "FedCS", "pFedHR", "pFedMB", "FedSimSup"))


@pytest.mark.parametrize("source", sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")), ids=lambda source: source.stem)
def test_every_notebook_has_something_to_play_with_its_readings_and_exercises_with_folded_solutions_that_run(source):
    heading, cells = "", {}
    for cell in nbformat.read(source, 4).cells:
        *_, heading = [heading, *re.findall(r"^## (?:\d+\. )?(.*)", cell.source, re.MULTILINE)]
        cells.setdefault(heading, []).append(cell)
    code = {name: [cell for cell in own if cell.cell_type == "code"] for name, own in cells.items()}
    assert any("fl.report.explore(" in cell.source for cell in code["Play with it"])
    assert any(cell.source == "report.readings()" for cell in code["What differed from the paper, and why"])
    assert code["Exercises"]
    assert all(cell.metadata["tags"] == ["solution"] for cell in code["Exercises"])
    assert all(cell.metadata["jupyter"] == {"source_hidden": True} for cell in code["Exercises"])
