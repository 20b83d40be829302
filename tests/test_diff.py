"""Two runs compared: the same where only time and place differ, different where a number does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from processes import git

from fedlib.tools import diff

ROOT = Path(__file__).parent.parent
PICTURE = {"image/png": "aGk=", "text/plain": "<Figure at 0x1>"}


def executed(path, number="0.5", seconds="1.5", where="a", timing=("timing",), rounds=3):
    """An executed notebook: parameters, a table, a timed cell, a picture, progress."""
    table = f"<table><tr><td>accuracy</td><td>{number}</td></tr><tr><td>time</td><td>{seconds}</td></tr></table>"
    cells = [
        new_code_cell(f'# x\noutput = "{where}"\nrounds = {rounds}\n', metadata={"tags": ["injected-parameters"]}),
        new_code_cell("table", outputs=[new_output("display_data", data={"text/html": table, "text/plain": where})]),
        new_code_cell("clock", metadata={"tags": [*timing]}, outputs=[new_output("stream", text=seconds)]),
        new_code_cell("draw", outputs=[new_output("execute_result", data=PICTURE, execution_count=len(where))]),
        new_code_cell("run", outputs=[new_output("stream", name="stderr", text=seconds)]),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata={"papermill": {"duration": seconds}}), path)
    return str(path)


def test_time_and_place_make_no_difference(tmp_path, capsys):
    a = executed(tmp_path / "a.ipynb")
    b = executed(tmp_path / "b.ipynb", seconds="2.5", where="elsewhere")
    assert diff.main([a, b]) == 0
    assert capsys.readouterr().out == "a.ipynb: the same, cell by cell\n"


@pytest.mark.parametrize("change", [{"number": "0.6"}, {"seconds": "2.5", "timing": ()}, {"rounds": "4"}])
def test_a_number_that_differs_is_shown(tmp_path, capsys, change):
    a = executed(tmp_path / "a.ipynb", **{name: value for name, value in change.items() if name == "timing"})
    b = executed(tmp_path / "b.ipynb", **change)
    assert diff.main([a, b]) == 1
    shown = capsys.readouterr().out
    assert "a.ipynb: DIFFERENT" in shown
    assert next(iter(change.values())) in shown


def test_folders_are_compared_notebook_by_notebook(tmp_path, capsys):
    for folder in "ab":
        executed(tmp_path / folder / "quick" / "pfedsim" / "01_pfedsim.ipynb", where=folder)
        executed(tmp_path / folder / "quick" / "pfedmb" / "04_pfedmb.ipynb", number="1" if folder == "a" else "2")
    assert diff.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    shown = capsys.readouterr().out
    assert "01_pfedsim.ipynb: the same" in shown
    assert "04_pfedmb.ipynb: DIFFERENT" in shown


def test_what_cannot_be_compared_is_said_in_one_sentence(tmp_path, capsys):
    executed(tmp_path / "a" / "01_a.ipynb")
    executed(tmp_path / "b" / "02_b.ipynb")
    assert diff.main([str(tmp_path / "a"), str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert diff.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "only in one: 01_a.ipynb, 02_b.ipynb" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="make needs a POSIX shell")
def test_git_shows_and_merges_notebooks_cell_by_cell_after_make_setup(tmp_path):
    """In a clone whose Makefile and .gitattributes are ours and whose .venv is the running one."""
    for name in ("Makefile", ".gitattributes"):
        shutil.copy(ROOT / name, tmp_path)
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    venv = f"VENV={sys.prefix}"
    subprocess.run(["make", "-C", str(tmp_path), venv, "-o", f"{sys.prefix}/.installed-notebooks", "setup"], check=True)

    def commit(first, second):
        cells = [new_code_cell(first, id="one"), new_code_cell("middle", id="two"), new_code_cell(second, id="three")]
        nbformat.write(new_notebook(cells=cells), tmp_path / "01_a.ipynb")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "--message", "change")

    commit("a = 1", "b = 1")
    git(tmp_path, "branch", "other")
    commit("a = 2", "b = 1")
    assert "modified /cells/0/source" in git(tmp_path, "diff", "HEAD~1")
    git(tmp_path, "checkout", "--quiet", "other")
    commit("a = 1", "b = 2")
    git(tmp_path, "merge", "--quiet", "--no-edit", "main")
    merged = nbformat.read(tmp_path / "01_a.ipynb", 4)
    assert [cell.source for cell in merged.cells] == ["a = 2", "middle", "b = 2"]
