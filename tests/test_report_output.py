"""Files in the figures folder, plots, one look per method, and parts of figures."""

import json
import re

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from matplotlib.collections import EllipseCollection
from processes import git
from refusals import refused

import fedlib as fl
import fedlib.report as report
from fedlib.algorithm import ALGORITHMS, LOOKS
from fedlib.papers.pfedhr.reassembly import plot_block_map, plot_chain
from fedlib.report import provenance
from fedlib.report.charts import plot_points
from fedlib.report.marks import apart, dots, if_near, mark_chance, name_ends, panels, seeds_and_mean
from fedlib.report.output import WRAPPED, markdown, with_deviations
from fedlib.report.panels import shaded_panels
from fedlib.report.paper import QUESTIONS
from fedlib.report.provenance import commit
from fedlib.report.style import PALETTE
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


def test_a_table_is_written_as_csv_and_markdown_with_a_named_index_as_columns_and_can_be_shown(tmp_path):
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
    r.table(pd.DataFrame({("cifar10", "0.1"): [80 - 86.76]}, index=pd.Index(["FedAvg"], name="method")), "wide")
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


def test_a_figure_without_numbers_is_described_as_such(tmp_path):
    html = report.open("fedcs", "quick", tmp_path).item(fl.study("fedcs", "quick"), "fewer_images").data
    assert 'alt="Not measured at this size."' in html


def test_differences_are_those_of_the_papers_size_and_lead_to_their_tables(tmp_path):
    r, study = report.open("pfedmb", "quick", tmp_path), fl.study("pfedmb", "smoke")
    html, expected = r.differences(study).data, fl.study("pfedmb").differences()
    assert pd.read_csv(r.folder / "differences.csv")["says"].tolist() == expected["says"].tolist()
    assert re.findall(r'href="#(\w+)"', html) == expected["item"].tolist()
    assert html.count("<li>") == sum(len(says.split("\n")) for says in expected["says"]) > len(expected)
    fedcs = fl.study("fedcs")
    html, said = r.differences(fedcs).data, fedcs.differences()["says"]
    tables = re.findall(r'href="#(\w+)">([^<]*)<', html)
    assert tables[:2] == [("table1", "Table 1 (inferred settings)"), ("table1", "Table 1 (paper&#39;s text)")]
    controls = [line for says in said for line in says.split("\n") if line.startswith("The control")]
    shown = re.findall(r"<li>(The control .*)</li>", html)
    assert len(shown) == len(controls)
    assert sum("see Table" in line for line in shown) == len(controls) - len({*controls}) > 0  # each stands once
    assert shown[-1].endswith(": see Table 2 (inferred settings).")
    nothing = r.differences(fl.study("pfedmb").replace(rows={})).data
    assert "None of the printed percentages" in nothing


def test_claims_are_written_with_both_verdicts_and_lead_to_their_figures(tmp_path):
    r, study = report.open("fedcs", "quick", tmp_path), fl.study("fedcs", "smoke")
    html = r.verdicts(study).data
    written = pd.read_csv(r.folder / "claims.csv", keep_default_na=False)
    assert (written["id"].tolist(), set(written["verdict"])) == ([f"cs{i:02d}" for i in range(1, 22)], {"not tested"})
    assert written["full_size"].tolist() == fl.study("fedcs").ledger()["verdict"].tolist()
    counts = ", ".join(f"{verdict}: {n}" for verdict, n in written["full_size"].value_counts().items())
    assert f"At its own size: {counts}." in html
    assert (r.folder / "claims.md").read_text().startswith(f"Claims at full size: {counts}.\n")
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
    assert (lines[0], lines[1]) == ("A. Gap 0.5: Fig. 3 has it. full size", "B. Here. here")
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


def test_no_two_methods_look_alike_labels_are_the_printed_names_and_a_variant_keeps_the_colour_of_its_method():
    looks = [tuple(report.method_style(name).values()) for name in fl.algorithms()]
    assert len(set(looks)) == len(fl.algorithms())
    assert {color for color, _, _ in looks} <= set(PALETTE)
    names = ["pfedsim", "fedavg", "local_only", "perfedavg", "fedap", "fedcs-fc2", "pfedsim(rho=0.5)"]
    printed = ["pFedSim", "FedAvg", "Local-Only", "Per-FedAvg", "f-FedAP", "FedCS-FC2", "pFedSim(rho=0.5)"]
    assert [report.label(name) for name in names] == printed
    for function in (report.label, report.method_style):
        refused(r"method='fedavgg' is unknown \(did you mean 'fedavg'", function, "fedavgg")
    plain, variant = report.method_style("fedavg"), report.method_style("fedavg+ft")
    assert (plain["color"], plain["marker"]) == (variant["color"], variant["marker"])
    assert plain["linestyle"] != variant["linestyle"]
    unlisted = report.method_style("pfedsim(rho=0.5)")
    assert unlisted == report.method_style("pfedsim(rho=0.5)")
    assert unlisted["linestyle"] != report.method_style("pfedsim")["linestyle"]
    assert all(report.method_style(name) for look in LOOKS.values() for name in look.variants)


def test_methods_of_your_own_look_like_none_of_the_papers_and_differ_in_marker_where_they_share_a_colour(monkeypatch):
    names = [f"mine{i}" for i in range(99)]
    for name in names:
        monkeypatch.setitem(ALGORITHMS, name, report.label)
    looks = {tuple(report.method_style(name).values())[:2] for name in names}
    assert report.method_style("pfedsim")["color"] not in {color for color, _ in looks}
    assert len(looks) > 35  # of 7 colours with 7 markers


@pytest.mark.parametrize("source", ["full size", "here"])
@pytest.mark.parametrize("other", ["", "pen for cifar10"])
def test_a_panel_of_points_names_other_data_only(source, other):
    title = "cifar10, IID" + f"\n{source}: {other}" * bool(other)
    names = {"row": "a", "place": "cifar10, IID", "column": other or "cifar10", "source": source}
    pair = names | {"value": [4.0], "std": 1}
    assert [ax.get_title("left") for ax in plot_points(pd.DataFrame(pair)).axes] == [title]


def test_the_first_row_of_a_table_is_the_top_line_of_its_figure():
    frame = pd.DataFrame({"row": ["a", "b"], "place": "x", "column": "x", "source": "here", "value": [4.0, 7.0]})
    [ax] = plot_points(frame.assign(std=1.0)).axes
    [points] = [line for line in ax.lines if len(line.get_xdata()) == 2]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["b", "a"]  # upwards
    assert points.get_xydata().tolist() == [[4, 1], [7, 0]]


def test_partition_circles_have_areas_in_proportion_and_no_circle_for_zero():
    counts = np.array([[100, 25], [0, 50], [4, 0]])
    ax = report.plot_partition(counts, classes=["cat", "dog"])
    (circles,) = [c for c in ax.collections if isinstance(c, EllipseCollection)]
    np.testing.assert_array_equal(circles.get_offsets(), [[0, 0], [0, 1], [1, 1], [2, 0]])
    area = circles.get_widths() ** 2
    np.testing.assert_allclose(area / area[0], [1, 0.25, 0.5, 0.04])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["cat", "dog"]
    assert ax.get_title(loc="right") == "largest circle: 100 samples"


def test_pictures_of_clients_are_training_images_of_their_own_in_the_order_of_classes(federation):
    data, axes = federation.data, report.plot_clients(federation, (1, 4), images=3).axes
    for client, row in zip((1, 4), (axes[:3], axes[3:]), strict=True):
        shown = {np.asarray(ax.images[0].get_array()).tobytes() for ax in row}  # of one channel
        assert shown <= {data.x[i].tobytes() for i in federation.train[client]}
        own = np.sort(data.y[federation.train[client]])
        assert [ax.get_title() for ax in row] == [data.classes[c] for c in own[[0, (len(own) - 1) // 2, -1]]]


def test_plot_partition_refuses_what_is_no_partition():
    refused(r"shape \(2,\)", report.plot_partition, [1, 2])
    refused("without negative", report.plot_partition, [[-1]])
    refused("2 names", report.plot_partition, [[1]], classes=["a", "b"])


def test_heat_maps_share_one_scale_and_one_colour_bar_without_numbers_where_they_could_not_be_read():
    matrices = [np.full((3, 3), 0.25), np.eye(3)]
    figure = report.plot_heatmaps(matrices, ["a", "b"], -1, 1, bar="cosine", rows=["x", "y", "z"])
    *maps, bar = figure.axes
    assert [ax.get_title() for ax in maps] == ["a", "b"]
    assert {ax.images[0].get_clim() for ax in maps} == {(-1, 1)}
    assert bar.get_ylabel() == "cosine"
    assert [text.get_text() for text in maps[1].texts[:4]] == ["1.00", "0.00", "0.00", "0.00"]
    assert [text.get_color() for text in maps[1].texts[:2]] == ["black", "white"]  # on yellow, and on a dark cell
    assert [tick.get_text() for tick in maps[0].get_yticklabels()] == ["x", "y", "z"]
    assert not report.plot_heatmaps([np.eye(10)] * 5, list("abcde")).axes[0].texts
    assert len(report.plot_heatmaps([np.eye(10)], ["a"], width=report.TEXT).axes[0].texts) == 100
    assert not report.plot_heatmaps([np.eye(30)], ["a"], width=report.TEXT).axes[0].texts
    refused("1 titles for matrices of shapes", report.plot_heatmaps, [np.eye(2), np.eye(3)], ["a"])


@pytest.mark.parametrize("width", [report.COLUMN, report.TEXT])
def test_numbers_stay_inside_their_cells(width):
    values = np.random.default_rng(0).uniform(-1, 1, (4, 11))
    figure = report.plot_heatmaps([values], ["cosines"], -1, 1, columns=[*map(str, range(10)), "mean"], width=width)
    figure.canvas.draw()
    ax = figure.axes[0]
    cell = ax.get_window_extent().width / 11
    assert len(ax.texts) == 44
    assert max(text.get_window_extent().width for text in ax.texts) <= cell


def test_a_curve_is_the_mean_over_seeds_with_a_band_of_one_std_unless_there_is_one_seed():
    methods, values = ["fedavg"] * 4 + ["pfedsim"] * 4, [1.0, 3, 5, 5, 2, 2, 2, 2]
    frame = pd.DataFrame({"round": [1, 1, 2, 2] * 2, "method": methods, "accuracy": values})
    ax = report.plot_curves(frame)
    first, second = ax.lines
    np.testing.assert_array_equal(first.get_ydata(), [2, 5])
    colours = [report.method_style(name)["color"] for name in ("fedavg", "pfedsim")]
    assert [first.get_color(), second.get_color()] == colours
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(2 - np.sqrt(2))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["FedAvg", "pFedSim"]
    ax = report.plot_curves(frame[::2], plt.subplots()[1], legend=False)
    assert (len(ax.collections), ax.get_legend()) == (0, None)
    refused("the frame lacks accuracy", report.plot_curves, frame.drop(columns="accuracy"))


# Networks put together again

NETWORKS = [["Conv1", "Conv2", "FC1"], ["Conv1", "FC1", "FC2"]]


@pytest.mark.parametrize(
    ("chain", "stitches", "new"),
    [
        ([(0, 1), (0, 2), (0, 3)], 0, 0),  # a whole network
        ([(0, 2), (1, 3)], 2, 0),  # not its first block; another network
        ([(1, 1), (0, 2)], 1, 1),  # no head
        ([(0, 1), (0, 3)], 1, 0),  # the same network, but not its next block
    ],
)
def test_a_chain_shows_its_blocks_its_stitches_and_a_new_classifier(chain, stitches, new):
    _, ax = plt.subplots()
    plot_chain(NETWORKS, ["a", "b"], ["red", "blue"], chain, ax)
    boxes = [patch for patch in ax.patches if isinstance(patch, mpl.patches.Rectangle)]
    filled = [box for box in boxes if mpl.colors.to_hex(box.get_facecolor()) != "#ffffff"]
    assert (len(boxes), len(filled)) == (6 + new, len(chain) + new)
    inside = [box.get_facecolor() for box in boxes[:6] if box in filled]
    assert inside == [mpl.colors.to_rgba(("red", "blue")[b]) for b, _ in sorted(chain)]
    assert len(ax.lines) == stitches
    assert len([text for text in ax.texts if text.get_text() == "new"]) == new
    assert len(ax.patches) - len(boxes) == len(chain) + new  # an arrow to each of them


def test_the_map_of_blocks_is_ordered_by_group():
    distances = np.array([[0.5, 2.0, 1.0], [2.0, 0.5, 4.0], [1.0, 4.0, 0.5]])
    _, ax = plt.subplots()
    plot_block_map(distances, ["a", "b", "c"], [0, 1, 0], ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "c", "b"]
    np.testing.assert_allclose(ax.images[0].get_array(), [[2, 1, 0.5], [1, 2, 0.25], [0.5, 0.25, 2]])
    assert [patch.get_width() for patch in ax.patches] == [2, 1]


# Parts of figures
@pytest.fixture
def ax():
    return plt.subplots()[1]


def test_places_that_touch_are_moved_apart_and_stay_around_their_middle():
    assert apart([1.0, 2.0, 30.0], 6) == [-1.5, 4.5, 30.0]
    assert apart([1.0, 2.0, 6.0], 4) == [-1.0, 3.0, 7.0]
    assert apart([], 6) == []


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_names_at_line_ends_do_not_touch_and_chance_is_one_of_them(ax, scale):
    ax.set(ylim=(0.01, 1), yscale=scale)
    name_ends(ax, {"a": (1, 0.5, "red"), "b": (2, 0.51, "blue"), "c": (1, 0.02, "black")}, chance=0.1)
    assert {text.get_text(): text.xy for text in ax.texts if text.get_text()}["chance"] == (2, 0.1)
    points = [ax.transData.transform(text.xy)[1] * 72 / ax.figure.dpi + text.xyann[1] for text in ax.texts]
    heights = [y for y, text in zip(points, ax.texts, strict=True) if text.get_text()]
    assert len(heights) == 4
    assert np.diff(sorted(heights)).min() > 9.4
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.1, 0.1]]


def test_seeds_are_thin_lines_beside_their_mean(ax):
    both = pd.DataFrame({0: [0.0, 0.4], 1: [0.0, 0.8]}, index=[1, 2])
    assert seeds_and_mean(ax, both, "red") == (2, pytest.approx(0.6), "red")
    assert [line.get_linewidth() for line in ax.lines] == [0.6, 0.6, 1.8]
    seeds_and_mean(ax, both[[1]], "blue")
    assert len(ax.lines) == 4  # a seed alone is its mean


def test_dots_stand_in_order_with_their_mean_written(ax):
    dots(ax, [("first", [1.0, 3.0], "red"), ("second", [-5.0], "blue")])
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["first", "second"]
    assert [text.get_text() for text in ax.texts] == ["2.0", "\N{MINUS SIGN}5.0"]
    low, high = ax.get_ylim()
    assert low > high  # the first one is on top
    assert not any(line.get_clip_on() for line in ax.lines)  # nor cut by the frame


def test_what_the_paper_prints_is_a_bar_in_its_line_and_the_legend_says_so_once():
    figure, axes = panels(2, 1.0, across=1)
    for ax in axes:
        dots(ax, [("a", [1.0], "red"), ("b", [2.0], "blue"), ("c", [3.0], "red")], {"c": 7.5, "a": np.nan, "d": 1.0})
        bars = [line for line in ax.lines if line.get_marker() == "|"]
        assert [(*line.get_xdata(), *line.get_ydata()) for line in bars] == [(7.5, 2)]
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["printed"]


@pytest.mark.parametrize("words", ["{}", "public images that come from {}"])
def test_a_legend_of_shades_stays_inside_its_figure_and_later_kinds_are_darker(words):
    kinds = [words.format(name) for name in ("the domain of the clients", "another one", "none")]
    numbers = pd.DataFrame({"method": "fedavg", "data": "digits", "kind": kinds, "value": [1.0, 2, 3], "paper": 2.0})
    figure = shaded_panels(numbers, "kind")
    figure.draw_without_rendering()
    [legend] = figure.legends
    inside, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= inside.x0 < inside.x1 <= whole.x1
    assert {*kinds, "printed"} == {text.get_text() for text in legend.get_texts()}
    light = {line.get_label(): sum(line.get_color()[:3]) for line in figure.axes[0].lines if line.get_label() in kinds}
    assert light[kinds[0]] > light[kinds[1]] > light[kinds[2]]


def test_chance_is_a_line_along_either_axis_unless_nobody_knows_it_or_the_values_are_far_above(ax):
    mark_chance(ax, np.nan)
    assert not ax.lines
    mark_chance(ax, 10)
    mark_chance(ax, 20, "y")
    assert (list(ax.lines[0].get_ydata()), list(ax.lines[1].get_xdata())) == ([10, 10], [20, 20])
    assert np.isnan(if_near(10.0, [80.0, np.nan, 90.0]))
    assert (if_near(10.0, [40.0, 90.0]), if_near(50.0, [14.0, 28.0])) == (10.0, 50.0)


def test_as_many_panels_as_asked_for_each_as_high_as_its_lines_need():
    figure, axes = panels(3, 1.5)
    assert len(axes) == len(figure.axes) == 3
    assert figure.get_size_inches().tolist() == [4.8, 3.0]
    figure, (low, high) = panels(2, [1.0, 3.0], across=1)
    assert figure.get_size_inches().tolist() == [4.8, 4.0]
    assert high.get_position().height == pytest.approx(3 * low.get_position().height)
