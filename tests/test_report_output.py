"""Files in the figures folder: the same bytes for the same content, and clear error messages."""

import json
import re

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from processes import git
from refusals import refused

import fedlib as fl
import fedlib.report as report
from fedlib.report import provenance
from fedlib.report.output import WRAPPED, markdown, with_deviations
from fedlib.report.paper import QUESTIONS
from fedlib.report.provenance import commit
from fedlib.studies.item import Cell, Item
from fedlib.studies.rows import Row
from fedlib.studies.study import Study
from fedlib.studies.tasks import Probe


@pytest.fixture(autouse=True)
def _own_style():
    report.use_style()


def test_the_folder_appears_with_the_first_file_and_a_wrong_name_is_refused(tmp_path):
    r = report.open("fedcs", "smoke", tmp_path / "smoke" / "fedcs")
    assert not r.folder.exists()
    for paper, profile, sentence in (("fedcs", "quik", "did you mean 'quick'"), ("fedc", "quick", "paper='fedc'")):
        refused(sentence, report.open, paper, profile, tmp_path)
    for name, alt, sentence in (("../fig", "x", r"name='../fig' is not allowed"), ("fig", " ", "has an empty alt")):
        refused(sentence, r.figure, plt.figure(), name, alt=alt)
    assert not r.folder.exists()


def test_a_figure_has_the_same_bytes_whatever_salt_is_set_200_dpi_and_its_alternative_text(tmp_path):
    pictures = []
    for folder, salt in (("a", "fedlib"), ("b", None)):
        mpl.rcParams["svg.hashsalt"] = salt
        figure, ax = plt.subplots(figsize=(report.COLUMN, 2))
        report.plot_partition(np.arange(12).reshape(4, 3), ax)
        pictures.append(report.open("pfedsim", "quick", tmp_path / folder).figure(figure, "fig3", alt="only circles"))
    assert plt.get_fignums() == []
    png, svg = ((tmp_path / "a" / f"fig3.{kind}").read_bytes() for kind in ("png", "svg"))
    assert png == (tmp_path / "b" / "fig3.png").read_bytes() == pictures[0].data == pictures[1].data
    assert svg == (tmp_path / "b" / "fig3.svg").read_bytes()
    assert b"only circles" in svg
    assert b"<dc:date>" not in svg
    assert int.from_bytes(png[16:20]) == 680
    assert pictures[0]._repr_png_()[1] == {"alt": "only circles", "width": 326}


def test_a_table_is_written_as_csv_and_markdown_and_can_be_shown(tmp_path):
    r = report.open("pfedsim", "quick", tmp_path)
    frame = pd.DataFrame({"method": ["a|b", "c"], "value": [1.23456, np.nan], "n": pd.array([3, None], "Int64")})
    shown = r.table(frame, "table3", caption="Table 3: accuracy")
    pd.testing.assert_frame_equal(pd.read_csv(r.folder / "table3.csv", dtype={"n": "Int64"}), frame, check_dtype=False)
    assert (r.folder / "table3.md").read_text() == (
        "Table 3: accuracy\n\n| method | value | n |\n| --- | ---: | ---: |\n| a\\|b | 1.23 | 3 |\n| c | - | - |\n"
    )
    html = shown.to_html()
    assert "Table 3: accuracy" in html
    assert "1.23" in html
    assert html == r.table(frame, "table3", caption="Table 3: accuracy").to_html()


def test_a_named_index_becomes_columns_and_column_levels_are_joined(tmp_path):
    frame = pd.DataFrame({("cifar10", "0.1"): [80 - 86.76]}, index=pd.Index(["FedAvg"], name="method"))
    r = report.open("pfedsim", "quick", tmp_path)
    r.table(frame, "wide")
    assert (r.folder / "wide.csv").read_text() == "method,cifar10 0.1\nFedAvg,-6.76\n"


def test_numbers_for_reading_have_their_deviation_beside_them_and_a_signed_difference():
    frame = pd.DataFrame({"value": [1.0, np.nan], "std": [0.5, np.nan], "paper": [2.0, 3.0], "paper_std": [np.nan] * 2})
    frame = frame.assign(difference=[-1.0, np.nan], commit=["0123456789", None])
    shown = with_deviations(frame)
    assert shown.to_numpy().tolist() == [["1.00 ± 0.50", "2.00", "-1.00", "0123456"], ["-", "3.00", "", ""]]
    assert markdown(frame[["commit"]], missing="").endswith("|  |\n")


def test_readings_are_shown_folded_and_complete_and_leave_no_file(tmp_path):
    r = report.open("pfedmb", "quick", tmp_path / "figures")
    html, frame = r.readings().data, report.readings("pfedmb")
    assert html.startswith(f"<details><summary>{len(frame)} passages")
    assert html.endswith("</details>")
    shown = [cell.get_text() for cell in BeautifulSoup(html, "html.parser").find_all("td")]
    assert shown == frame.to_numpy().ravel().tolist()
    assert not r.folder.exists()


def test_provenance_is_valid_json_with_versions_and_the_notebook_s_facts(tmp_path):
    r = report.open("pfedmb", "quick", tmp_path)
    given = {"seconds": np.float32(1.5), "fingerprints": {"digits": "ab12"}, "nan": float("nan"), "seeds": (0, 1)}
    returned = r.provenance(given | {"at": tmp_path})
    facts = json.loads((r.folder / "provenance.json").read_text())
    assert facts == returned
    assert (facts["seconds"], facts["nan"], facts["seeds"], facts["paper"]) == (1.5, None, [0, 1], "pfedmb")
    assert facts["packages"]["torch"].startswith("2.")
    assert facts["at"] == str(tmp_path)


def test_commit_marks_changed_code_but_no_row_of_evidence_and_is_none_without_an_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit(tmp_path) is None
    row, *code = (tmp_path / name for name in ("figures/reference/runs/a.json", "fedlib/a.py", "figures/a.py"))
    git(tmp_path, "init")
    for path in (row, *code):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    row.write_text("2")
    clean = commit(code[0].parent)
    assert len(clean) == 40
    for path in code:
        path.write_text("2")
        assert commit(code[0].parent) == clean + "+changes"
        git(tmp_path, "checkout", path)
    ask = provenance.git
    monkeypatch.setattr(provenance, "git", lambda where, *words: None if "status" in words else ask(where, *words))
    assert commit(tmp_path) is None  # git does not answer: nobody knows whether files have changed


def test_an_item_shows_its_figure_its_table_and_what_it_says(tmp_path):
    def draw(study):
        figure, ax = plt.subplots()
        ax.plot([0, 1])
        return figure

    item = Item("table2", "Four pairs <b>.", alt="A rising line.", digits=1)
    item.draw(draw)
    item.says(lambda study: "1 < 2.")
    probe = Probe("pairs", lambda seed: {})
    cell = Cell("pfedsim", "cifar10", "i-j", (probe,), lambda row: 0.5, item="table2")
    row = Row(probe.name, 0, {"seconds": 1.0, "commit": None, "code": ""})
    study = fl.study("pfedsim", "smoke").replace(cells=[cell], shown={"table2": item}, rows={(probe.name, 0): row})
    r = report.open("pfedsim", "smoke", tmp_path)
    assert "1 &lt; 2." not in r.item(study.replace(rows={}), "table2").data  # nothing has been measured yet
    html = r.item(study, "table2").data
    assert "Four pairs &lt;b&gt;." in html
    assert 'alt="A rising line."' in html
    assert "1 &lt; 2." in html
    assert "<td" in html
    assert {path.name for path in tmp_path.iterdir()} == {f"table2.{kind}" for kind in ("csv", "md", "png", "svg")}
    folded = r.items(study, "table2").data
    assert folded.count("<details>") == 1
    refused("item='table22'", r.item, study, "table22")


def test_a_notebook_begins_with_what_was_measured_at_full_size_or_else_with_what_it_runs(tmp_path, monkeypatch):
    asked = []
    item = Item("table3", "A hero.", alt="Nothing is drawn.")
    item.draw(lambda study: asked.append(study.profile) or plt.figure())
    monkeypatch.setattr(Study, "item", lambda self, name: item)
    monkeypatch.setattr(Study, "figure", lambda self, name: item.drawing(self))
    monkeypatch.setattr(Study, "run", lambda self, *names, **options: self)
    r, study = report.open("pfedsim", "smoke", tmp_path), fl.study("pfedsim", "smoke")
    full = fl.study("pfedsim")
    monkeypatch.setattr(Study, "at_full_size", full.replace(rows={}))
    r.hero(study, "table3")
    assert asked == ["smoke"]
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"hero.md", "hero.png", "hero.svg", "table3.png", "table3.svg"}


def test_differences_are_those_of_the_papers_size_and_lead_to_their_tables(tmp_path):
    r, study = report.open("pfedmb", "quick", tmp_path), fl.study("pfedmb", "smoke")
    html, expected = r.differences(study).data, fl.study("pfedmb").differences()
    assert pd.read_csv(r.folder / "differences.csv")["says"].tolist() == expected["says"].tolist()
    assert re.findall(r'href="#(\w+)"', html) == expected["item"].tolist()
    assert html.count("<li>") == sum(len(says.split("\n")) for says in expected["says"]) > len(expected)
    nothing = r.differences(fl.study("pfedmb").replace(rows={})).data
    assert "None of the printed percentages" in nothing


def test_claims_are_written_with_both_verdicts_and_lead_to_their_figures(tmp_path):
    r, study = report.open("fedcs", "quick", tmp_path), fl.study("fedcs", "smoke")
    html = r.verdicts(study).data
    written = pd.read_csv(r.folder / "claims.csv", keep_default_na=False)
    assert written["id"].tolist() == [f"cs{i:02d}" for i in range(1, 22)]
    assert set(written["verdict"]) == {"not tested"}
    assert written["full_size"].tolist() == fl.study("fedcs").ledger()["verdict"].tolist()
    assert html.count("<details>") == 21
    assert html.count('href="#') == 21
    assert "Judged by:" in html


def test_what_was_learned_is_the_first_sentence_of_an_item_at_full_size_or_else_here(tmp_path, monkeypatch):
    full, here = {"table3": "Gap 0.5 (red): Fig. 3 has it. More."}, {"table3": "Other.", "weights": "Here."}
    said = {"paper": full, "smoke": here}
    monkeypatch.setattr(Study, "says", lambda self, name: said[self.profile].get(name, ""))
    r, study = report.open("pfedsim", "smoke", tmp_path), fl.study("pfedsim", "smoke")
    page = BeautifulSoup(r.learned(study, table3="A", weights="B", fig1="C").data, "html.parser")
    lines = [" ".join(line.get_text().split()) for line in page.find_all("li")]
    assert lines[0] == "A. Gap 0.5: Fig. 3 has it. full size"
    assert lines[1] == "B. Here. here"
    assert lines[2].startswith("C. Nothing has been measured yet.")
    assert [link["href"] for link in page.find_all("a")] == ["#table3", "#weights", "#fig1"]
    refused("did you mean 'table3'", r.learned, study, table33="D")


def documented(x):
    """Double.

    Args:
        x: a <number>.
    """
    return 2 * x  # code


def short(x):
    """Triple."""
    return 3 * x


def test_a_source_has_the_first_line_of_its_docstring_and_the_rest_folded():
    page = BeautifulSoup(report.source(documented).data, "html.parser")
    folded = page.find("details").extract()
    page.style.extract()
    assert page.get_text().strip() == 'def documented(x):\n    """Double."""\n    return 2 * x  # code'
    assert "Args:\n    x: a <number>." in folded.get_text()
    assert {pre["style"] for pre in (*folded.find_all("pre"), *page.find_all("pre"))} == {WRAPPED}
    page = BeautifulSoup(report.source(short).data, "html.parser")
    page.style.extract()
    assert page.find("details") is None
    assert page.get_text().strip() == 'def short(x):\n    """Triple."""\n    return 3 * x'


def test_the_answer_is_that_of_the_papers_size_with_its_three_numbers(tmp_path):
    r, study = report.open("pfedsim", "smoke", tmp_path), fl.study("pfedsim", "smoke")
    page, answer = BeautifulSoup(r.answer(study).data, "html.parser"), fl.study("pfedsim").answer()
    assert " ".join(page.p.get_text().split()) == f"{QUESTIONS['pfedsim']} {answer.says}"
    assert [part.get_text() for part in page.select("div span")] == [number for number, _ in answer.numbers]
    empty = r.answer(study.replace(profile="paper", rows={}))
    assert "not been measured" in empty.data
