"""Plots: what they draw, one look per method, and parts of figures: names, thick lines, the line of chance."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import EllipseCollection
from refusals import refused

import fedlib as fl
import fedlib.report as report
from fedlib.algorithm import ALGORITHMS, LOOKS
from fedlib.papers.pfedhr.reassembly import plot_block_map, plot_chain
from fedlib.report.charts import plot_points
from fedlib.report.marks import apart, dots, if_near, mark_chance, name_ends, panels, seeds_and_mean
from fedlib.report.style import PALETTE


@pytest.fixture(autouse=True)
def _own_style():
    report.use_style()


def test_no_two_methods_look_alike_and_all_use_the_palette():
    looks = [tuple(report.method_style(name).values()) for name in fl.algorithms()]
    assert len(set(looks)) == len(fl.algorithms())
    assert {color for color, _, _ in looks} <= set(PALETTE)


def test_a_variant_keeps_its_method_s_colour_and_gets_its_own_line():
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


def test_labels_are_the_printed_names():
    names = ["pfedsim", "fedavg", "local_only", "perfedavg", "fedap", "fedcs-fc2", "pfedsim(rho=0.5)"]
    printed = ["pFedSim", "FedAvg", "Local-Only", "Per-FedAvg", "f-FedAP", "FedCS-FC2", "pFedSim(rho=0.5)"]
    assert [report.label(name) for name in names] == printed
    for function in (report.label, report.method_style):
        refused(r"method='fedavgg' is unknown \(did you mean 'fedavg'", function, "fedavgg")


@pytest.mark.parametrize("source", ["full size", "here"])
@pytest.mark.parametrize("other", ["", "pen for cifar10"])
def test_a_panel_of_points_names_other_data_only(source, other):
    title = "cifar10, IID" + f"\n{source}: {other}" * bool(other)
    names = {"row": "a", "place": "cifar10, IID", "column": other or "cifar10", "source": source}
    pair = names | {"value": [4.0], "std": 1}
    assert [ax.get_title("left") for ax in plot_points(pd.DataFrame(pair)).axes] == [title]


def test_partition_circles_have_areas_in_proportion_and_no_circle_for_zero():
    counts = np.array([[100, 25], [0, 50], [4, 0]])
    ax = report.plot_partition(counts, classes=["cat", "dog"])
    (circles,) = [c for c in ax.collections if isinstance(c, EllipseCollection)]
    np.testing.assert_array_equal(circles.get_offsets(), [[0, 0], [0, 1], [1, 1], [2, 0]])
    area = circles.get_widths() ** 2
    np.testing.assert_allclose(area / area[0], [1, 0.25, 0.5, 0.04])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["cat", "dog"]
    assert ax.get_title(loc="right") == "largest circle: 100 samples"


@pytest.mark.parametrize(
    ("counts", "classes", "sentence"),
    [([1, 2], None, r"shape \(2,\)"), ([[-1]], None, "without negative"), ([[1]], ["a", "b"], "2 names")],
)
def test_plot_partition_refuses_what_is_no_partition(counts, classes, sentence):
    refused(sentence, report.plot_partition, counts, classes=classes)


def test_heat_maps_share_one_scale_and_one_colour_bar():
    matrices = [np.full((3, 3), 0.25), np.eye(3)]
    figure = report.plot_heatmaps(matrices, ["a", "b"], -1, 1, bar="cosine", rows=["x", "y", "z"])
    *maps, bar = figure.axes
    assert [ax.get_title() for ax in maps] == ["a", "b"]
    assert {ax.images[0].get_clim() for ax in maps} == {(-1, 1)}
    assert bar.get_ylabel() == "cosine"
    assert [text.get_text() for text in maps[1].texts[:4]] == ["1.00", "0.00", "0.00", "0.00"]
    assert [tick.get_text() for tick in maps[0].get_yticklabels()] == ["x", "y", "z"]


def test_numbers_are_left_out_where_they_could_not_be_read():
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


def test_a_curve_is_the_mean_over_seeds_with_a_band_of_one_std():
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


def test_one_seed_has_no_band_and_a_missing_column_is_named():
    frame = pd.DataFrame({"round": [1, 2], "method": "fedavg", "accuracy": [1.0, 2.0]})
    ax = report.plot_curves(frame, legend=False)
    assert not ax.collections
    assert ax.get_legend() is None
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
    plot_chain(NETWORKS, ["a", "b"], chain, ax)
    boxes = [patch for patch in ax.patches if isinstance(patch, mpl.patches.Rectangle)]
    filled = [box for box in boxes if mpl.colors.to_hex(box.get_facecolor()) != "#ffffff"]
    assert (len(boxes), len(filled)) == (6 + new, len(chain) + new)
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


def test_chance_is_left_out_far_below_the_values_only():
    assert np.isnan(if_near(10.0, [80.0, np.nan, 90.0]))
    assert if_near(10.0, [40.0, 90.0]) == 10.0
    assert if_near(50.0, [14.0, 28.0]) == 50.0


def test_chance_is_a_line_along_either_axis_unless_nobody_knows_it(ax):
    mark_chance(ax, np.nan)
    assert not ax.lines
    mark_chance(ax, 10)
    mark_chance(ax, 20, "y")
    assert list(ax.lines[0].get_ydata()) == [10, 10]
    assert list(ax.lines[1].get_xdata()) == [20, 20]


def test_as_many_panels_as_asked_for_each_as_high_as_its_lines_need():
    figure, axes = panels(3, 1.5)
    assert len(axes) == len(figure.axes) == 3
    assert figure.get_size_inches().tolist() == [4.8, 3.0]
    figure, (low, high) = panels(2, [1.0, 3.0], across=1)
    assert figure.get_size_inches().tolist() == [4.8, 4.0]
    assert high.get_position().height == pytest.approx(3 * low.get_position().height)
