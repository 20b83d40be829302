"""Reports made from the rows: tables, ledgers, figures, the scoreboard, and the score in the README."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from studies import each_number_once

import fedlib as fl
from fedlib.report.paper import PROFILES, TITLES
from fedlib.report.style import data_label, label, setting_label, use_style
from fedlib.studies import layout, rows
from fedlib.studies import pages as report
from fedlib.studies.pages import FOLDER, all_differences, build, printed_and_measured
from fedlib.studies.tasks import Run, here
from fedlib.studies.verdict import VERDICTS

pytestmark = pytest.mark.slow
PERCENT = "metric in ('accuracy', 'weighted_f1', 'weighted_auc')"
COMPARED = PERCENT + " and difference.notna()"
FURTHER = "_(?:code|inferred|text)$"  # items with a further protocol
NAMES = ["scoreboard", "ledger", "summary", "items", "differences"]
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
full_size = cache(fl.study)


@pytest.fixture(scope="module", autouse=True)
def numbers():
    with each_number_once():
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evidence")
    return folder, build(folder)


@pytest.fixture
def board(built):
    return pd.read_csv(built[0] / "scoreboard.csv")


@pytest.fixture
def apart(built):
    return pd.read_csv(built[0] / "differences.csv")


def first_of_all(frame):
    """Without the numbers of further protocols."""
    return frame[~frame["item"].str.contains(FURTHER)]


def item_of(paper, item):
    return f"{TITLES[paper]}, {layout.item_title(item)}"


def test_a_heading_has_the_names_of_methods_and_protocols():
    names = "fedrep_to_fedpac", "table3_code", "fig3_rand_index", "Section IV-A", "five_pairs"
    titles = ["FedRep to FedPAC", "Table 3 (authors' code)", "Figure 3 rand index", "Section IV-A", "Five pairs"]
    assert [*map(layout.item_title, names)] == titles


def test_the_scoreboard_has_every_printed_number_once(board):
    keys = ["paper_id", "item", "method", "dataset", "setting", "metric"]
    printed = pd.concat([fl.report.reported(paper).assign(paper_id=paper) for paper in fl.report.PAPERS])
    wanted = printed[keys].fillna("").astype(str).drop_duplicates()
    there = first_of_all(board[board["paper"].notna()])[keys].fillna("").astype(str)
    assert not there.duplicated().any()
    assert len(wanted.merge(there)) == len(wanted) == len(there)


def test_the_summary_counts_what_the_scoreboard_and_the_ledger_say(built, board):
    folder, summary = built
    ledger = pd.read_csv(folder / "ledger.csv")
    parts = [(TITLES[p], board["paper_id"] == p, ledger["paper"] == p) for p in fl.report.PAPERS]
    parts += [("all", board["paper_id"] != "", ledger["paper"] != "")]
    for (name, paper, claims), row in zip(parts, summary.to_dict("records"), strict=True):
        own = board[paper & board["paper"].notna()]
        measured = own[(own["n_seeds"] > 0) & own["stand_in"].isna()]
        counts = len(first_of_all(own)), len(first_of_all(measured))
        assert (row["paper"], row["printed"], row["measured"]) == (name, *counts)
        percent = measured.query(PERCENT)
        protocols = {"code": "authors' code", "inferred": "inferred settings", "text": "paper's text"}
        for protocol, words in protocols.items():
            gaps = percent.loc[percent["protocol"] == protocol, "difference"].abs()
            assert row[words] == (f"{sum(gaps <= 3)} of {len(gaps)}" if len(gaps) else "")
        verdicts = ledger.loc[claims, "verdict"].value_counts()
        assert {verdict: row[verdict] for verdict in VERDICTS} == verdicts.reindex(VERDICTS, fill_value=0).to_dict()
    assert len(ledger) == 106


def test_the_readme_has_the_score_and_the_answers(built, tmp_path):
    old = re.sub(r"(?m)^(- \*\*\w+\.\*\* .*?\?) .*", r"\1 No.", re.sub(r"(?m)^(\| \w+ \|) \d.*", r"\1 0 |", README))
    assert old.count(" No.\n") == len(TITLES)
    path = tmp_path / "README.md"
    path.write_text(old, encoding="utf-8")
    report.write_score(built[1], path)
    assert path.read_text(encoding="utf-8") == README


@pytest.mark.parametrize("paper", fl.report.PAPERS)
def test_the_images_and_clients_of_a_row_are_those_of_today(paper, data_root):
    """The code of a row is that of its run; the code that loads images and deals them out is proved by their hash."""
    tasks = full_size(paper).tasks
    known = [(tasks[row.task], row) for row in rows.read(paper).values()]
    runs = [(task, row) for task, row in known if isinstance(task, Run) and here(task)]
    then = {(row.task, row.seed): row.facts["config"]["federation"] for _, row in runs}
    assert then
    assert {(row.task, row.seed): task.arguments(row.seed)["federation"].fingerprint for task, row in runs} == then


def test_the_tables_and_figures_of_every_paper_are_those_of_the_rows(built):
    there, new = ({path.relative_to(folder) for path in folder.rglob("*.*")} for folder in (FOLDER, built[0]))
    assert there == new
    for name in (name for name in new if name.suffix == ".csv"):
        tables = (pd.read_csv(folder / name).drop(columns="changed", errors="ignore") for folder in (FOLDER, built[0]))
        pd.testing.assert_frame_equal(*tables, check_exact=False, rtol=1e-5)  # make evidence-report


@pytest.mark.parametrize("name", NAMES)
def test_words_stand_above_a_table_and_their_links_lead_somewhere(built, name):
    head, _, table = (built[0] / f"{name}.md").read_text(encoding="utf-8").partition("\n\n| ")
    assert head.startswith("# ")
    columns = table.partition(" |\n")[0].split(" | ")
    assert set(re.findall(r"`(\w+)`", head)) <= {*columns, *PROFILES}
    assert all((FOLDER / link).exists() for link in re.findall(r"\]\(([^)#]+)", head))


@pytest.mark.parametrize("paper", fl.report.PAPERS)
def test_every_measured_percentage_stands_against_the_printed_one(board, paper):
    of_paper = board[board["paper_id"] == paper]
    own = first_of_all(of_paper.query(COMPARED))
    printed = len(fl.report.reported(paper).query(PERCENT))
    figure = printed_and_measured(full_size(paper), of_paper)
    [ax] = figure.axes
    shown = [point for bars in ax.containers for point in zip(*bars[0].get_data(), strict=True)]
    assert sorted(shown) == sorted(zip(own["paper"], own["value"], strict=True))
    across = [np.ptp(bar[:, 0]) for _, _, (bars, _) in ax.containers for bar in bars.get_segments()]
    assert sorted(across) == pytest.approx(sorted(2 * own["paper_std"].fillna(0)))
    assert len(shown) > 10
    assert f" {len(shown)} of {printed} " in ax.get_title("left")
    assert len(ax.get_legend().get_texts()) == len(own[["item", "metric"]].drop_duplicates())


def test_every_measured_percentage_is_a_line_in_the_row_of_its_table(built, board):
    own = board.query(COMPARED)
    [ax] = all_differences(board).axes
    drawn = {}
    for line in ax.lines:
        [row] = {float(y) for y in line.get_ydata()}
        drawn[row] = sorted(map(float, line.get_xdata()))
    names = {item_of(*key): sorted(gaps) for key, gaps in own.groupby(["paper_id", "item"])["difference"]}
    at = {tick: label.get_text() for tick, label in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True)}
    assert {at[row]: gaps for row, gaps in drawn.items()} == names
    [band] = ax.patches
    assert (band.get_x(), band.get_width()) == (-3, 6)
    near = {at[t.get_position()[1]]: t.get_text() for t in ax.texts[1:]}
    assert near == {name: f"{sum(abs(d) <= 3 for d in gaps)} of {len(gaps)}" for name, gaps in names.items()}
    assert list(at.values()) == [item_of(*key) for key in own[["paper_id", "item"]].drop_duplicates().to_numpy()]
    gaps = first_of_all(own)["difference"]
    counts = [len(gaps), sum(abs(gaps) <= 3), 3, sum(gaps > 3), sum(gaps < -3)]
    assert list(map(int, re.findall(r"\d+", report.how_near(board)))) == counts
    assert report.how_near(board) in (built[0] / "differences.md").read_text(encoding="utf-8")


def test_an_item_of_which_nothing_was_measured_has_an_empty_table():
    nothing = pd.DataFrame(columns=["row", "place", "column", "source", "value", "std", "cell"])
    assert layout.wide(nothing, "method").shape == (0, 0)


def test_the_last_bits_of_a_layout_do_not_change_a_figure(tmp_path):
    use_style()
    for name, more in (("one", 0.0), ("other", 1e-9)):
        figure, axes = plt.subplots(2, 1, height_ratios=[1, 1 + more])
        axes[0].plot([1, 2], [3, 4], "o", label="dots")
        figure.legend(loc="outside upper right")
        report._save(figure, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()


def test_every_difference_of_more_than_three_points_is_counted_and_its_controls_speak(board, apart):
    gaps = board.query(COMPARED).groupby(["paper_id", "item"])["difference"]
    expected = gaps.agg([len, lambda gap: (gap.abs() > 3).sum(), lambda gap: max(gap, key=abs)]).reset_index()
    found = apart[["paper_id", "item", "measured", "apart", "difference"]].sort_values(["paper_id", "item"])
    assert found.to_numpy().tolist() == [pytest.approx(row) for row in expected.to_numpy().tolist()]
    for (paper, table), own in apart.groupby(["paper_id", apart["item"].str.replace(FURTHER, "", regex=True)]):
        study, told = full_size(paper), own.loc[own["apart"] > 0, "says"]
        for control in [one.name for one in study.shown.values() if table in one.explains and len(told)]:
            words = 'The control "{}"' if study.says(control) else 'Not run yet: .*"{}"'
            assert told.str.contains(words.format(control)).any()


def test_the_page_of_differences_has_every_table_and_what_its_controls_say(built, apart):
    folder, text = built[0], (built[0] / "differences.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert all((folder / link).exists() for link in re.findall(r"\]\(([^)]+)\)", text))
    for line, own in zip((line for line in lines if line.startswith("| [")), apart.itertuples(), strict=True):
        kind = "md" if layout.printed_item(own.item)[1] else "svg"  # a further protocol has a table only
        assert line.startswith(f"| [{item_of(own.paper_id, own.item)}]({own.paper_id}/{own.item}.{kind}) |")
    told, bullets = set(), []
    for line in lines:
        if line.startswith("## "):
            paper = line.removeprefix("## ")
        elif line.startswith("- "):
            tables, _, line = line.removeprefix("- ").partition(": ")
            line = re.sub(r"^The control \[(\w+)\]\([^)]+\)", r'The control "\1"', line)
            told |= {(paper, table, line) for table in tables.split(", ")}
            bullets.append((paper, line))
    said = [(TITLES[own.paper_id], layout.item_title(own.item), own.says.split("\n")[1:]) for own in apart.itertuples()]
    assert told == {(paper, table, line) for paper, table, own in said for line in own}
    assert len(bullets) == len(set(bullets))  # nothing is told twice


def test_text_of_a_difference_is_no_markup():
    frame = pd.DataFrame(
        [["fedcs", "table1", 9, 2, "A*", 1.25, 3.5, -2.25, 'First.\nThe control "few": a_b <i>, $x$ [y].\nThe "few".']],
        columns=["paper_id", "item", "measured", "apart", "name", "value", "paper", "difference", "says"],
    )
    text = report.differences_page(frame, lambda paper, item: f"{paper}-{item}", "![]()")
    assert text.endswith(
        "\n\n## FedCS\n\n- Table 1: The control [few](fedcs-few): a_b \\<i\\>, \\$x\\$ \\[y\\].\n"
        '- Table 1: The "few".\n'
    )
    assert "\n\n![]()\n\n| table" in text
    assert "| [FedCS, Table 1](fedcs-table1) | 9 | 2 | A\\* | 3.5 | 1.2 | -2.2 |\n" in text


def test_the_farthest_number_is_named_by_what_sets_it_apart(apart):
    apart = apart.query("apart > 0")
    names = apart.set_index(["paper_id", "item"])["name"]
    for paper, item, says in apart[["paper_id", "item", "says"]].to_numpy():
        name = says.partition("The largest difference is ")[2].partition(": ")[0].split(", ")
        assert ", ".join(name) == names[paper, item]
        metrics = {"accuracy": "", "weighted_f1": "weighted F1", "weighted_auc": "weighted AUC"}
        cells = [cell for cell in full_size(paper).cells if cell.item == item and cell.metric in metrics]
        words = [{label(c.method), metrics[c.metric], data_label(c.dataset)} - {""} for c in cells]
        words = [own.union(map(setting_label, c.setting.split(";"))) for own, c in zip(words, cells, strict=True)]
        assert sum(own.issuperset(name) for own in words) == 1
        assert not set(name[1:]) & set.intersection(*words)  # the method is named in any case


def test_a_control_speaks_as_soon_as_it_has_something_to_say():
    study = full_size("fedcs")

    def with_rows_of(*items):
        names = {task.name for cell in study.cells if cell.item in items for task in cell.tasks}
        return study.replace(rows={key: row for key, row in study.rows.items() if key[0] in names})

    def says(one, **points):
        return one.differences(**points).set_index("item").loc["table2", "says"]

    before, after = says(with_rows_of("table2")), says(with_rows_of("table2", "other_readings"))
    assert "Not run yet" in before
    assert "The control" not in before
    assert f'The control "other_readings": {study.says("other_readings")}' in after
    none = says(with_rows_of("table2"), points=100.0)
    assert none.startswith("All ")
    assert "ontrol" not in none
    one = "table2", "local_only", "weighted_f1"
    alone = study.replace(cells=[c for c in study.cells if (c.item, c.method, c.metric) == one])
    assert says(alone).startswith("1 of 1 measured numbers is more than 3 points")
    assert says(alone, points=100.0).startswith("The measured number is within 100 points")


def test_no_table_or_figure_of_a_paper_is_lost_and_what_was_measured_is_drawn(built):
    items = pd.read_csv(built[0] / "items.csv").fillna("").set_index(["paper_id", "item"])
    for paper in fl.report.PAPERS:
        assert {*fl.report.reported(paper)["item"], *full_size(paper).shown} == {*items.loc[paper].index}
    made = items[["smoke", "quick", "paper"]] > 0
    lost = items[(items["printed"] > 0) & ~(made.all(axis=1) | (items["figure"] == "yes"))]
    assert [*lost.index] == [("pfedsim", "text")]  # two numbers of its running text
    assert items["printed"].sum() == sum(len(fl.report.reported(paper)) for paper in fl.report.PAPERS)
    assert items.loc[("pfedsim", "table2"), ["paper", "measured"]].tolist() == [20, 20]
    folder, _ = built
    for paper in fl.report.PAPERS:
        study = full_size(paper)
        done = {*study.frame["item"], *(name for name, item in study.shown.items() if item.scheme)}
        assert (folder / paper / "printed_and_measured.svg").exists()
        for name, item in study.shown.items():
            assert (folder / paper / f"{name}.svg").exists() == (name in done and item.drawing is not None)


@pytest.mark.parametrize("paper", fl.report.PAPERS)
def test_a_sentence_is_made_of_whatever_has_been_measured_so_far(paper):
    study = full_size(paper)
    for item in study.shown:
        names = {task.name for cell in study.cells if cell.item == item for task in cell.tasks}
        rows = [(key, row) for key, row in study.rows.items() if key[0] in names]
        for part in (rows[:1], rows[1:2], rows):
            sentence = study.replace(rows=dict(part)).says(item)
            assert sentence == "" or sentence.endswith("."), item


TABLES = ["fedcs/table1", "fedcs/table2", "pfedhr/table4", "pfedmb/table1", "fedsimsup/table1", "fedsimsup/table3"]


@pytest.mark.parametrize("table", TABLES)
def test_a_figure_of_a_table_has_each_printed_number_beside_the_measured_one(table):
    paper, item = table.split("/")
    study, found = full_size(paper), []
    table = study.table(item).query("value.notna() and paper.notna() and metric in ('accuracy', 'weighted_f1')")
    for ax in study.figure(item).axes:
        large = [line for line in ax.lines if (line.get_marker(), line.get_markersize()) == ("o", 6)]
        means = {line.get_ydata()[0]: line.get_xdata()[0] for line in large}
        bars = [(*line.get_ydata(), *line.get_xdata()) for line in ax.lines if line.get_marker() == "|"]
        found += [(means[y], value) for y, value in bars]
    assert len(found) > 0
    np.testing.assert_allclose(sorted(found), sorted(zip(table["value"], table["paper"], strict=True)))
