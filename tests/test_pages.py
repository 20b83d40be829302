"""The starting pages: every link leads to a file, and every term to the code that defines it."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

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


PLAYED = [*sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")), NOTEBOOKS / "playground.ipynb"]


@pytest.mark.parametrize("source", PLAYED, ids=lambda source: source.stem)
def test_every_notebook_has_something_to_play_with(source):
    code = [cell.source for cell in nbformat.read(source, 4).cells if cell.cell_type == "code"]
    assert any("fl.report.explore(" in text or "fl.report.playground(" in text for text in code)
    assert source.stem in ("00_first_steps", "playground") or any("report.readings()" in text for text in code)


@pytest.mark.slow
def test_the_first_lesson_runs_and_its_plain_code_gives_the_bits_of_the_library(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_RUNS", str(tmp_path))
    notebook = nbformat.read(NOTEBOOKS / "00_first_steps.ipynb", 4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("rounds=5", "rounds=1")
    done = NotebookClient(notebook, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    assert any("torch.equal(result.weights(0)[name], w[name])" in cell.source for cell in done.cells)
    pages = ["".join(o.get("data", {}).get("text/html", "")) for cell in done.cells for o in cell.get("outputs", [])]
    assert any('type="range"' in page for page in pages)  # the playground moves without a kernel
