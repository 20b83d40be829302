"""Every notebook of a paper runs in the smoke profile, has the common form, and writes all its outputs."""

import ast
import json
import re
import sys
import types
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import papermill
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbclient import NotebookClient

import fedlib as fl
from fedlib.extras import install
from fedlib.tools import batch

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
PARAMETERS = ["profile", "output", "jobs", "seeds"]
SOURCES = {path.stem.split("_", 1)[1]: path for path in sorted(NOTEBOOKS.glob("0[1-5]_*.ipynb"))}
IN_COLAB = {"first-colab", "pfedsim-colab", "playground-colab"}
NUMBER = re.compile(r"(?<![\w.(\[-])\d+([.,]\d+)?\s*(%|points?\b)|(?<![\w.\[])\d+\.\d+(?![\w.])")


@pytest.fixture(scope="module", params=[pytest.param(paper, marks=pytest.mark.slow) for paper in SOURCES])
def executed(request, tmp_path_factory) -> Path:
    """The output folder of each paper's notebook in the smoke profile."""
    paper, root = request.param, tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLIB_RUNS", str(root / "runs"))
        chosen = ["--notebook", paper, "--output", str(root), "--notebooks", str(NOTEBOOKS)]
        assert batch.main(["--profile", "smoke", "--jobs", "1", *chosen]) == 0  # the other core has other tests
    return root / "smoke" / paper


@pytest.fixture(params=SOURCES)
def cells(request) -> list:
    return nbformat.read(SOURCES[request.param], 4).cells


def kinds(cells) -> list:
    return [cell for cell in cells if cell.cell_type == "code"]


# -- the form -----------------------------------------------------------------------------------------------------
def test_a_notebook_is_short(cells):
    lines = [len(re.findall(r"^ *[^ #\n]", cell.source, re.MULTILINE)) for cell in kinds(cells)]
    assert len(cells) <= 45
    assert sum(lines) <= 200
    assert max(lines) <= 12


def test_its_parameters_are_those_of_every_notebook(cells):
    [tagged] = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    assert [line.targets[0].id for line in ast.parse(tagged.source).body] == PARAMETERS


def test_it_has_five_exercises_whose_solutions_run(cells):
    solved = [cell for cell in kinds(cells) if "solution" in cell.metadata.get("tags", [])]
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert len(re.findall(r"^\*\*Exercise \d", text, re.MULTILINE)) == 5
    assert 2 <= len(solved) <= 5
    assert text.count("<details>") >= 5
    assert all(cell.metadata["jupyter"]["source_hidden"] for cell in solved)


def test_it_says_what_was_learned_in_three_sentences_before_the_exercises(cells):
    sources = [cell.source for cell in cells]
    [at] = [i for i, text in enumerate(sources) if "report.learned(" in text]
    [call] = [node for node in ast.walk(ast.parse(sources[at])) if isinstance(node, ast.Call)]
    assert len(call.keywords) == 3
    assert sources[at + 1].startswith("## 11. Exercises")


@pytest.mark.parametrize("paper", SOURCES)
def test_no_result_is_typed(paper):
    """A number about results comes from a frame; others stand in formulas, code, or the section of the method."""
    found, section = [], ""
    for cell in nbformat.read(SOURCES[paper], 4).cells:
        if cell.cell_type != "markdown":
            continue
        heading = re.search(r"^## (\d+)\.", cell.source, re.MULTILINE)
        section = heading.group(1) if heading else section
        if section in ("4", "11"):  # the method by hand, and the exercises
            continue
        prose = re.sub(r"\$[^$]*\$|`[^`]*`|\]\([^)]*\)|<[^>]*>|^>.*$|^\|.*$", "", cell.source, flags=re.MULTILINE)
        found += [(section, match.group()) for match in NUMBER.finditer(prose)]
    assert not found


@pytest.mark.parametrize("paper", SOURCES)
def test_every_table_and_figure_is_in_the_notebook(paper):
    source = "\n".join(cell.source for cell in kinds(nbformat.read(SOURCES[paper], 4).cells))
    declared = {cell.item for profile in ("quick", "paper") for cell in fl.study(paper, profile).cells}
    declared |= set(fl.study(paper).shown)
    declared -= {other.name for item in fl.study(paper).shown.values() for other in item.others}  # are in its table
    assert {item for item in declared if f'"{item}"' not in source} == set()


@pytest.mark.parametrize("colab", [True, False])
@pytest.mark.parametrize("name", ["00_first_steps", "01_pfedsim", "playground"])
def test_the_first_cell_installs_the_package_in_colab_only(name, colab, monkeypatch):
    first = kinds(nbformat.read(NOTEBOOKS / f"{name}.ipynb", 4).cells)[0]
    assert first.id in IN_COLAB
    if colab:
        monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    asked = []
    shell = types.SimpleNamespace(run_line_magic=lambda *words: asked.append(" ".join(words)))
    exec(TransformerManager().transform_cell(first.source), {"get_ipython": lambda: shell})
    assert asked == [install("notebooks").replace("install", "install --quiet")] * colab


@pytest.mark.parametrize("sheet", sorted(NOTEBOOKS.glob("problems*.ipynb")), ids=lambda path: path.stem)
def test_every_problem_of_a_sheet_has_a_folded_solution_and_a_hidden_check(sheet):
    text, hidden = "", {"jupyter": {"source_hidden": True}, "tags": ["solution"]}
    for cell in nbformat.read(sheet, 4).cells:
        text += "[solution]\n" if cell.metadata == hidden else "[code]\n" * (cell.cell_type == "code")
        text += f"{cell.source}\n"
    _, *problems = re.split(r"^## Problem \d", text, flags=re.MULTILINE)
    assert len(problems) == 4
    for problem in problems:
        assert [problem.count(part) for part in ("<details>", "</details>", "[solution]", "[code]")] == [1] * 4
        assert "assert" in problem.split("[solution]")[1]


@pytest.mark.slow
@pytest.mark.parametrize("sheet", sorted(NOTEBOOKS.glob("problems*.ipynb")), ids=lambda path: path.stem)
def test_the_checks_of_a_problem_sheet_hold(sheet, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_RUNS", str(tmp_path / "runs"))
    papermill.execute_notebook(sheet, tmp_path / sheet.name, cwd=NOTEBOOKS, progress_bar=False)


# -- what it leaves -----------------------------------------------------------------------------------------------
def test_every_claim_is_judged_here_and_at_full_size_and_identities_hold_whatever_the_size(executed):
    ledger = pd.read_csv(executed / "claims.csv", keep_default_na=False)
    claims = pd.read_csv(Path(fl.__file__).parent / "papers" / executed.name / "claims.csv")
    assert ledger["id"].tolist() == claims["id"].tolist()
    full = fl.study(executed.name).ledger()
    assert ledger["full_size"].tolist() == full["verdict"].tolist()
    judged = ledger[ledger["verdict"] != "not tested"]
    assert (judged["measured"] != "").all()
    assert len(judged) >= 5
    ledger = ledger.set_index("id")
    identities = [claim.id for claim in fl.study(executed.name).claims if claim.quantifier == "identity"]
    assert set(ledger.loc[identities, "verdict"]) <= {"identity", "not tested", "consistent so far", "undecided"}
    assert "refuted" not in set(ledger.loc[identities, "verdict"])


def test_every_item_leaves_its_table_and_its_figure_and_provenance_says_what_was_run(executed):
    study = fl.study(executed.name, "smoke")
    for name in {cell.item for cell in study.cells}:
        table = pd.read_csv(executed / f"{name}.csv")
        assert table["value"].notna().any(), name
    for name, item in study.shown.items():
        if item.drawing:
            assert (executed / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name
            assert "<svg" in (executed / f"{name}.svg").read_text(), name
    facts = json.loads((executed / "provenance.json").read_text())
    assert facts["profile"] == "smoke"
    assert facts["packages"]["torch"]


def test_the_executed_notebook_shows_pictures_early_and_warns_of_nothing(executed):
    [path] = executed.glob("*.ipynb")
    cells = json.loads(path.read_text())["cells"]
    outputs = [(i, output) for i, cell in enumerate(cells) for output in cell.get("outputs", [])]
    pages = ["".join(output.get("data", {}).get("text/html", [])) for _, output in outputs]
    both = zip(outputs, pages, strict=True)
    first = next(i for (i, output), page in both if "<img" in page or "image/png" in output.get("data", {}))
    assert first <= 7  # with the cell that papermill adds
    pictures = [picture for page in pages for picture in re.findall(r"<img [^>]*>", page)]
    assert all(re.search(r'alt="[^"]{10,}"', picture) for picture in pictures)
    [learned] = [page for page in pages if page.startswith("<h3>What we learned")]
    assert learned.count("<li>") == 3
    assert "Nothing has been measured" not in learned
    said = "".join(line for _, output in outputs if output.get("name") == "stderr" for line in output["text"])
    assert "Warning" not in said


# -- the starting pages -------------------------------------------------------------------------------------------


PAGES = [NOTEBOOKS / "start.ipynb", NOTEBOOKS / "glossary.ipynb"]  # notebooks, because JupyterLab opens them rendered
LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+)(#[^)]*)?\)")


def text_of(page):
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


def test_the_first_page_lists_every_notebook_and_every_paper_has_a_term_of_its_own():
    page, glossary = (text_of(NOTEBOOKS / f"{name}.ipynb") for name in ("start", "glossary"))
    assert [path.name for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")) if f"({path.name})" not in page] == []
    own = glossary.partition("## The five papers")[2].partition("##")[0]
    assert all(f"({paper})" in own for paper in ("pFedSim", "FedCS", "pFedHR", "pFedMB", "FedSimSup"))


def test_the_two_partitions_of_pfedmb_stand_below_their_titles():
    [code] = [cell.source for cell in nbformat.read(SOURCES["pfedmb"], 4).cells if '"partitions"' in cell.source]
    shown = []
    report = types.SimpleNamespace(figure=lambda figure, *_, **about: shown.append((figure, about["alt"])))
    exec(code, {"plt": plt, "fl": fl, "study": fl.study("pfedmb", "smoke"), "report": report})
    [(figure, alt)] = shown
    pairs, other = ({tuple(at) for at in ax.collections[0].get_offsets().tolist()} for ax in figure.axes)
    alike = [{(client ^ 1, c) for client, c in map(lambda at: map(int, at), own)} == own for own in (pairs, other)]
    assert alike == [True, False]  # with the classes of the client beside it
    assert [ax.get_title() for ax in figure.axes] == ["five pairs", "two classes at random"]
    assert "in pairs (left) and at random (right)" in alt


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
    shorter = {"LR = 15, 2,": "LR = 2, 2,", "rounds=5": "rounds=1", "sweep(cells,": "sweep(cells, jobs=1,"}
    for cell, (old, new) in product(notebook.cells, shorter.items()):  # a solution has numbers of rounds of its own
        cell.source = cell.source.replace(old, new)
    done = NotebookClient(notebook, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    assert any("torch.equal(result.weights(0)[name], w[name])" in cell.source for cell in done.cells)
    pages = ["".join(o.get("data", {}).get("text/html", "")) for cell in done.cells for o in cell.get("outputs", [])]
    assert any('type="range"' in page for page in pages)  # the playground moves without a kernel
