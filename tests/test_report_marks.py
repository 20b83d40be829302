"""Parts of figures: positions of names, thick lines, and the line of chance."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from fedlib.report.marks import apart, dots, if_near, mark_chance, name_ends, panels, seeds_and_mean


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


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
    plt.close(figure)


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
    plt.close("all")
