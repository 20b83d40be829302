"""The figures of pFedHR on constructed rows: what is in the axes, and that sentences follow the numbers."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import fedlib as fl
from fedlib.methods.pfedhr.record import Round
from fedlib.papers.pfedhr.draw import taught_by
from fedlib.papers.pfedhr.figures import deviations, draw_few, say_few, say_narrow, say_step_sizes
from fedlib.papers.pfedhr.keep import GROUPS, packed, unpacked
from fedlib.papers.pfedhr.teachers import draw_lesson, first_run, pupils
from fedlib.studies.rows import Row
from fedlib.studies.study import study
from fedlib.studies.tasks import Probe

ROUNDS, CLIENTS = 4, 4
BLOCKS = {"m1_thin": ["Conv1", "Conv2", "FC1", "FC2"], "m2_thin": ["Conv1", "Conv2", "Conv3", "FC1", "FC2", "FC3"]}
SEEN = Round(
    clients=[0, 1, 2, 3],
    networks=[0, 1, 0, 1],
    group={(0, 1): 0, (0, 2): 0, (1, 1): 0, (1, 3): 1, (2, 3): 1, (3, 4): 1},
    distance=0.5 + np.abs(np.subtract.outer(np.arange(6), np.arange(6))) / 2,
    found=3,
    candidates=[[(0, 1), (0, 2), (2, 3)], [(1, 1), (3, 4)]],
    similarity=np.array([[0.5, 0.25]] * 4),
    match=[0, 0, 1, -1],
    right=[0.25, 0.5, 0.125, -1.0],
)


def row(task, seed, accuracy, teacher):
    """A run whose clients reach `accuracy` [%] in the last round, ten points less in each round before it."""
    facts = {"seconds": 1.0, "commit": None, "when": "after", "n_test": [100] * CLIENTS}
    if isinstance(task, Probe):
        return Row(task.name, seed, facts | {"kept": {"uses labels": 1, "bytes up": 10}})
    steps = [(t, accuracy - 10 * (ROUNDS - t)) for t in range(1, ROUNDS + 1)]
    evaluations = [{"round": t, "when": "after", "correct": [a] * CLIENTS, "loss": 1.0} for t, a in steps]
    kept = {"active": accuracy, "all classes": accuracy / 2, "teacher on test images": 80.0, "teachers": teacher}
    if task.algorithm.name == "pfedhr":
        kept |= dict.fromkeys(("M", "kept", "fewer groups", "unmatched", "two or more", "kinds", "repeated"), 1.0)
        kept |= dict.fromkeys(("changed", "sources", "legal", "with a head"), 1.0)
        kept |= {"M by groups": [9.0 - k for k in GROUPS], "none by groups": [10.0 * k for k in GROUPS]}
        blocks = [[0, 0, 1], [0, 0, 2], [1, 1, 4]]
        kept |= {"lessons": [[t, i, teacher, blocks] for t in range(1, ROUNDS + 1) for i in range(CLIENTS)]}
        kept |= {"architectures": BLOCKS, "full": [packed(1, SEEN), packed(ROUNDS, SEEN)]}
    return Row(task.name, seed, facts | {"evaluations": evaluations, "kept": kept})


def filled(accuracies, teacher=20.0, profile="quick"):
    """The study with constructed rows; accuracies by method, and of pFedHR with other arguments under their names."""
    empty = study("pfedhr", profile)
    rows = {}
    for name, (task, seeds) in empty.tasks().items():
        for seed in range(seeds):
            rows[name, seed] = row(task, seed, reached(task, accuracies) + seed, teacher)
    return empty.replace(rows=rows)


def reached(task, accuracies):
    if isinstance(task, Probe):
        return 0
    hyper, method = task.algorithm.hyper, task.algorithm.name
    if method == "pfedhr" and hyper["stitch_depth"] > 1:
        return accuracies.get("deep", 52)
    if method == "pfedhr" and not hyper["stitch_relu"]:
        return accuracies.get("both", 54)
    if method == "taught" and not hyper["epochs"]:
        return accuracies.get("untrained", 51)
    if task.public and task.public[0] != task.images:
        return accuracies["foreign"]
    return accuracies.get(method, 50)


USUAL = {"local_only": 50, "pfedhr": 52, "fedmd": 60, "taught": 58, "foreign": 48}


@pytest.fixture(scope="module")
def quick():
    return filled(USUAL)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def words(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts]


@pytest.mark.parametrize("name", [name for name, item in study("pfedhr", "quick").shown.items() if item.drawing])
def test_every_figure_is_drawn_with_all_rows_with_some_and_with_none(quick, name):
    few = {key: value for key, value in quick.rows.items() if "local_only" not in key[0]}
    for rows in (quick.rows, few, {}):
        some = quick.replace(rows=rows)
        some.figure(name).canvas.draw()
        says = some.item(name).says
        assert says is None or isinstance(says(some), str)


def test_every_item_is_shown(quick):
    assert {cell.item for cell in study("pfedhr", "paper").cells} <= set(quick.shown)
    assert all(item.alt for item in quick.shown.values() if item.drawing)


def test_teachers_are_compared_with_their_pupils_and_their_pupils_with_local_only(quick):
    left, right = quick.figure("teachers").axes
    ends = {line.get_color(): line.get_ydata()[-1] for line in left.lines if line.get_linewidth() == 1.8}
    assert sorted(ends.values()) == [20, 53]  # teachers, and pupils: 52, 53 and 54 with three seeds
    assert [text.get_text() for text in right.texts] == ["pFedHR", "better stitched", "all-knowing"]
    gains = [line.get_ydata()[-1] for line in right.lines if line.get_linewidth() == 1.8]
    assert gains == [2, 4, 8]
    says = quick.shown["teachers"].sentence
    assert "20 % of their clients' images" in says(quick)
    assert "know less than their pupils" in says(quick)
    assert "+2.0 ± 0.0 points over Local-Only" in says(quick)
    assert "know more than their pupils" in says(filled(USUAL, teacher=90.0))


def test_a_control_has_a_diamond_for_every_teacher(quick):
    [ax] = quick.figure("other_teachers").axes
    assert [line.get_marker() for line in ax.lines].count("D") == 5
    text = quick.shown["other_teachers"].sentence(quick)
    assert "'all-knowing'" in text
    assert "all-knowing +8.0 ± 0.0" in text
    assert "within 7.0 points, more than twice" in text
    assert "'pFedHR'" in quick.shown["other_teachers"].sentence(filled(USUAL | {"pfedhr": 70}))
    one = {key: row for key, row in quick.rows.items() if key[1] == 0}
    told = quick.replace(rows=one).says("other_teachers")
    assert told.endswith("within 7.0 points, with one seed: too few to tell.")


def test_few_images_are_compared_with_all_and_with_the_printed_number():
    columns = ["method", "dataset", "split", "value", "paper"]

    def numbers(item, metric):
        whole = [("fedavg", "cifar10", "iid", 66.0, 43.0), ("fedprox", "cifar10", "iid", 67.0, 44.0)]
        whole += [("fedavg", "mnist", "iid", 99.0, 91.0), ("pfedhr", "mnist", "iid", 49.0, 54.0)]
        fewer = [("fedavg", "cifar10", "iid", 45.0, "450"), ("fedprox", "cifar10", "iid", 47.0, "450")]
        fewer += [("fedavg", "cifar10", "iid", 54.0, "900"), ("fedprox", "cifar10", "iid", 53.0, "900")]
        fewer += [("fedavg", "mnist", "iid", 93.0, "450")]  # not with 900 images so far
        if item == "table4":
            frame = pd.DataFrame(whole, columns=columns)
        else:
            frame = pd.DataFrame(fewer, columns=[*columns[:4], "images"]).assign(paper=np.nan)
        return frame.assign(models="M1", seed=0)

    one = SimpleNamespace(numbers=numbers, only=lambda item: SimpleNamespace(cells=[]))
    assert say_few(one) == (
        "Look at which dots lie at the red bars: the mean distance from 2 printed numbers is 2.5 points with 450 "
        "images, 10.0 points with 900 images, 23.0 points with all images. It is smallest with 450 images."
    )
    figure = draw_few(one)
    first, second = figure.axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["FedAvg", "FedProx"]
    drawn = {line.get_label(): line.get_xdata().tolist() for line in first.lines}
    assert drawn == {"450 images": [45, 47], "900 images": [54, 53], "all images": [66, 67], "printed": [43, 44]}
    assert [text.get_text() for text in second.get_yticklabels()] == ["FedAvg"]
    nothing = SimpleNamespace(numbers=lambda item, metric: numbers(item, metric).iloc[:0])
    assert say_few(nothing) == ""
    plt.close(figure)


def test_larger_steps_are_compared_with_the_usual_ones_and_with_the_printed_number():
    def numbers(item, metric):
        rows = {
            "table4": [("cifar10", "iid", s, v, 44.14) for s, v in ((0, 29.5), (1, 60.0))]  # the control has one seed
            + [("cifar10", "noniid", 0, 70.0, 42.0)],
            "step_sizes": [("cifar10", "iid", 0, 41.0, np.nan)],
        }[item]
        frame = pd.DataFrame(rows, columns=["dataset", "split", "seed", "value", "paper"])
        return frame.assign(method="perfedavg", models="M1")

    assert say_step_sizes(SimpleNamespace(numbers=numbers)) == (
        "Accuracy with steps ten times larger (with the usual steps, printed): Per-FedAvg with M1 on CIFAR-10 IID 41.0 "
        "(29.5, 44.1). The distance from the printed number is 3.1 points with steps ten times larger, 14.6 with the "
        "usual steps."
    )
    nothing = SimpleNamespace(numbers=lambda item, metric: numbers(item, metric).iloc[:0])
    assert say_step_sizes(nothing) == ""


def test_a_narrower_start_is_compared_with_the_usual_one_and_with_the_printed_number():
    def numbers(item, metric):
        value = {"table4": 11.4, "narrow": 92.0}[item]
        row = {"dataset": "mnist", "split": "iid", "seed": 0, "value": value, "paper": 94.39, "models": "M1"}
        return pd.DataFrame([row | {"method": "pfedbayes"}])

    assert say_narrow(SimpleNamespace(numbers=numbers)) == (
        "Accuracy with an initial standard deviation of 0.0067 (with 0.079, printed): pFedBayes with M1 on MNIST IID "
        "92.0 (11.4, 94.4). The distance from the printed number is 2.4 points with an initial standard deviation of "
        "0.0067, 83.0 with 0.079."
    )


def test_whether_a_better_teacher_helps_more_is_computed(quick):
    dots = pupils(quick)
    own = dots[dots["teacher"] == "as printed"]
    assert len(own) == 3 * CLIENTS * (ROUNDS - 1)
    assert own.loc[0, ["lead", "gain"]].tolist() == [20 - 22, 2]  # round 1 of seed 0: 52 less three times ten
    says = quick.shown["pupils"].sentence
    assert "36 of 36 teachers" in says(quick)
    assert "a better teacher helps more" in says(quick)
    assert "hardly matters" in says(filled(USUAL | {"pfedhr": 58, "both": 56, "taught": 50}))


@pytest.mark.parametrize(("own", "word"), [(52, "2.0 points above Local-Only"), (47, "3.0 points below Local-Only")])
def test_table_2_says_where_pfedhr_stands(own, word):
    one = filled(USUAL | {"pfedhr": own})
    assert word in one.shown["table2"].sentence(one)
    first, second = one.figure("table2").axes
    assert [ax.get_title("left") for ax in (first, second)] == ["IID", "Non-IID"]  # never the name of the paper's data
    assert {"Local-Only", "chance"} <= {text.get_text() for text in second.texts}
    assert [line.get_xdata()[0] for line in first.lines[-2:]] == [10, 51]  # chance, and Local-Only with three seeds


def test_figures_3_to_6_are_differences_to_local_only_of_the_same_seed(quick):
    for item in ("fig3", "fig4", "fig5", "fig6"):
        assert set(deviations(quick, item)["value"]) == {2}
    text = quick.shown["fig5"].sentence(filled(USUAL | {"deep": 45}))
    assert "from 1 to 2 (depth S of a stitch) the accuracy of pFedHR changes by -7.0 points" in text


def test_lines_join_runs_of_the_same_seed(quick):
    rows = {(name, seed): shifted(one, 7 * seed) for (name, seed), one in quick.rows.items()}
    [ax] = quick.replace(rows=rows).figure("fig6").axes
    [line] = [line for line in ax.lines if len(line.get_ydata()) == 2 and line.get_linestyle() == "-"][-1:]
    assert line.get_ydata().tolist() == [2, 2]  # seed 0 alone; the mean of all seeds at the second point is higher
    assert sum(line.get_marker() == "o" for line in ax.lines) == 1


def shifted(one, points):
    """The same run of pFedHR with more right answers."""
    if not one.task.startswith("pfedhr"):
        return one
    evaluations = [e | {"correct": [c + points for c in e["correct"]]} for e in one.facts["evaluations"]]
    return Row(one.task, one.seed, one.facts | {"evaluations": evaluations})


def test_figure_5_has_the_papers_drops(quick):
    [ax] = quick.figure("fig5").axes
    [paper] = [line for line in ax.lines if line.get_linestyle() == ":"]
    np.testing.assert_allclose(paper.get_ydata(), [2, 2 - 0.0174 * 52])  # only seed 0 has both depths
    assert "IID, paper" in words(ax.figure)


def test_figure_1_says_what_is_lost(quick):
    assert "pFedHR, -7.7 %" in words(quick.figure("fig1"))  # from 52 to 48: the seed that has both
    assert "pFedHR 7.7 %" in quick.shown["fig1"].sentence(quick)


def test_tables_3_and_4_say_who_is_ahead():
    for own, word in ((52, "pFedHR is 8.0 points behind"), (65, "pFedHR is 5.0 points ahead of")):
        one = filled(USUAL | {"pfedhr": own})
        assert word in one.shown["table3"].sentence(one)


def test_candidates_fall_or_not(quick):
    assert "never rising" in quick.shown["candidates"].sentence(quick)
    rising = {key: with_kept(value, {"M by groups": [float(k) for k in GROUPS]}) for key, value in quick.rows.items()}
    assert "with rises between" in quick.shown["candidates"].sentence(quick.replace(rows=rising))


def with_kept(one, new):
    kept = one.kept | new if "M by groups" in one.kept else one.kept
    return Row(one.task, one.seed, one.facts | {"kept": kept})


def test_own_classes_and_all_classes(quick):
    split = {"iid": 50, "noniid": 90}
    rows = {}
    for name, (task, seeds) in quick.tasks().items():
        kind = "iid" if isinstance(task, Probe) or str(task.partition) == str(fl.iid()) else "noniid"
        for seed in range(seeds):
            rows[name, seed] = row(task, seed, split[kind], 20.0)
    text = quick.shown["tested"].sentence(quick.replace(rows=rows))
    assert "+40.0 points on own classes" in text
    assert "an easier problem; its network knows more" in text


def test_the_distance_from_the_printed_numbers_is_said_for_all_clients_and_for_active_ones(quick):
    empty, rows = study("pfedhr"), {}
    for method, active, every in (("fedavg", 92.23, 95.23), ("pfedme", 90.57, 92.57)):  # 91.23 and 93.57 are printed
        [cell] = [c for c in empty.only("table4").cells if (c.method, c.dataset) == (method, "mnist")
                  and "iid;" in c.setting and "noniid" not in c.setting and "M1" in c.setting]  # fmt: skip
        [task] = cell.tasks
        one = row(task, 0, every + 10, 20.0)  # the mean of the last three rounds is ten points below the last one
        rows[task.name, 0] = Row(task.name, 0, one.facts | {"kept": {"active": active}})
    text = empty.replace(rows=rows).says("tested")
    assert text == (
        "Which clients are tested: over 2 numbers the mean distance from the printed ones is 2.5 points with all "
        "clients and 2.0 points with those that have just trained."
    )
    assert not empty.replace(rows=rows).figure("tested").axes[0].lines  # nothing on all classes
    assert "Which clients" not in quick.says("tested")  # its data stand in for the paper's


def test_a_round_is_packed_and_unpacked():
    again = unpacked(packed(3, SEEN))
    assert again._replace(distance=0, similarity=0) == SEEN._replace(distance=0, similarity=0)
    np.testing.assert_allclose(again.distance, SEEN.distance, rtol=0.02)
    np.testing.assert_array_equal(again.similarity, SEEN.similarity)


def test_a_round_shows_its_candidates_and_who_gets_them(quick):
    figure = quick.figure("round")
    assert {"to 0, 1", "to 2"} <= set(words(figure))
    assert "2 of 2 candidates" in quick.shown["round"].sentence(quick)
    assert "12 to 50 %" in quick.shown["round"].sentence(quick)


def test_only_splits_that_were_measured_have_a_panel(quick):
    for splits, there in (
        (["IID", "Non-IID"], quick.cells),
        (["IID"], [c for c in quick.cells if "=iid" in c.setting]),
    ):
        titles = [ax.get_title("left") for ax in quick.replace(cells=there).figure("tested").axes]
        assert titles == [f"pen, {split}" for split in splits]


def test_figure_7_has_the_first_and_the_last_round(quick):
    titles = [ax.get_title("left") for ax in quick.figure("fig7").axes]
    assert titles == ["round 1: teacher of client 0, 25 % right", f"round {ROUNDS}: teacher of client 0, 25 % right"]


def test_a_lesson_has_a_row_for_every_pupil(quick):
    [ax] = draw_lesson(first_run(quick), 2).axes
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [f"client {i}" for i in range(CLIENTS)]
    assert "teacher 20 %, pupil 32 %" in [text.get_text() for text in ax.texts]


def test_only_runs_with_this_teacher_and_split_are_taken(quick):
    runs = taught_by(quick, "none", "svhn", "iid")
    assert sorted(runs) == [0, 1, 2]
    assert {one.task.split("-")[0] for one in runs.values()} == {"local_only"}
    assert taught_by(quick, "none", "svhn", "noniid") == {}
