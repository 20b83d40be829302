"""The figures and sentences of pFedHR on constructed rows."""

import numpy as np
import pandas as pd
import pytest
from studies import all_drawn_and_said, row

from fedlib.methods.pfedhr.record import Round
from fedlib.papers.pfedhr.accuracy import by_images, gains
from fedlib.papers.pfedhr.distillation import leads, taught_last
from fedlib.papers.pfedhr.measure import GROUPS, packed, unpacked
from fedlib.papers.pfedhr.reassembly import draw_teachers, first_run
from fedlib.papers.pfedhr.sizes import where
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
USUAL = {"local_only": 50, "pfedhr": 52, "fedmd": 60, "taught": 58, "untrained": 51, "foreign": 48, "better": 54}


def reaching(task, seed, accuracy, teacher=20.0):
    """A run whose clients reach `accuracy` [%] in the last round, ten points less in each round before it."""
    if isinstance(task, Probe):
        return row(task.name, seed, kept={"uses labels": 1, "bytes up": 10})
    evaluations = [(t, "after", [accuracy - 10 * (ROUNDS - t)] * CLIENTS) for t in range(1, ROUNDS + 1)]
    kept = {"active": accuracy, "all classes": accuracy / 2}
    if task.algorithm.name == "taught":
        kept |= {"teacher on test images": 80.0}
    if task.algorithm.name == "pfedhr":
        kept |= dict.fromkeys(("M", "kept", "fewer groups", "unmatched", "two or more", "kinds", "repeated"), 1.0)
        kept |= dict.fromkeys(("changed", "sources", "legal", "with a head"), 1.0) | {"teachers": teacher}
        kept |= {"M by groups": [9.0 - k for k in GROUPS], "none by groups": [10.0 * k for k in GROUPS]}
        blocks = [[0, 0, 1], [0, 0, 2], [1, 1, 4]]
        kept |= {"lessons": [[t, i, teacher, blocks] for t in range(1, ROUNDS + 1) for i in range(CLIENTS)]}
        kept |= {"architectures": BLOCKS, "full": [packed(1, SEEN), packed(ROUNDS, SEEN)]}
    return row(task.name, seed, *evaluations, when="after", n_test=[100] * CLIENTS, kept=kept)


def reached(task, accuracies):
    """Accuracy of a task: by method, or by the name of a variant in `USUAL`."""
    if isinstance(task, Probe):
        return 0
    name, hyper = task.algorithm.name, task.algorithm.hyper
    if name == "pfedhr" and hyper["stitch_depth"] > 1:
        name = "deep"
    elif name == "pfedhr" and not hyper["stitch_relu"]:
        name = "better"
    elif name == "taught" and not hyper["epochs"]:
        name = "untrained"
    elif task.public and task.public[0] != task.images:
        name = "foreign"
    return accuracies.get(name, accuracies["pfedhr"] if name == "deep" else 50)


def filled(accuracies=USUAL, teacher=20.0, profile="quick"):
    """The study with constructed rows; seed s has s points more."""
    empty, rows = study("pfedhr", profile), {}
    for cell in empty.cells:
        for task in cell.tasks:
            for seed in range(cell.seeds):
                rows[task.name, seed] = reaching(task, seed, reached(task, accuracies) + seed, teacher)
    return empty.replace(rows=rows)


@pytest.fixture(scope="module")
def quick():
    return filled()


def test_every_item_draws_and_speaks_with_all_rows_and_with_some(quick):
    all_drawn_and_said(quick)


def ends(ax):
    """Last value of each thick line, by colour."""
    return {line.get_color(): line.get_ydata()[-1] for line in ax.lines if line.get_linewidth() == 1.8}


def test_teachers_are_compared_with_their_clients_and_these_with_local_only(quick):
    above, below = quick.figure("teachers").axes
    assert sorted(ends(above).values()) == [20, 53, 80]  # teachers; clients: 52, 53 and 54 with three seeds
    assert sorted(ends(below).values()) == [2, 4, 8]  # pFedHR, better stitched, all-knowing
    assert {"pFedHR", "better stitched", "ideal teacher"} == {text.get_text() for text in below.texts}
    assert "of 20 % on their clients' training images (chance: 10 %)" in quick.says("teachers")
    assert "on their test images is 53 %" in quick.says("teachers")
    assert "+2.0 ± 0.0 points" in quick.says("teachers")
    rows = pd.DataFrame({"teacher": "as printed", "round": [1, 1, 2, 2], "knows": [9, 9, 20, np.nan]})
    assert taught_last(rows.assign(accuracy=[9, 9, 30, 90])) == (2, 20, 30)  # without the client that had no teacher


def test_the_control_has_a_diamond_for_every_teacher(quick):
    [ax] = quick.figure("other_teachers").axes
    drawn = {tuple(np.ravel(line.get_xydata())) for line in ax.lines if line.get_marker() == "D"}
    assert drawn == {(20, 2), (20, 4), (80, 1), (80, 8)}  # the random candidate like pFedHR
    assert 'ideal teacher" (8.0 points)' in quick.says("other_teachers")
    assert "pFedHR minus untrained teacher is +1.0 ± 0.0 points" in quick.says("other_teachers")


def test_whether_a_better_teacher_helps_more_is_computed(quick):
    rows = leads(quick)
    own = rows[rows["teacher"] == "as printed"]
    assert len(own) == 3 * CLIENTS * (ROUNDS - 1)
    assert own[["seed", "lead", "gain"]].iloc[0].tolist() == [0, 20 - 22, 2]  # round 1: 52 less three times ten
    assert "36 of 36 teachers" in quick.says("pupils")
    assert "a better teacher helps more" in quick.says("pupils")
    assert "hardly matters" in filled(USUAL | {"pfedhr": 58, "better": 56, "taught": 50}).says("pupils")


def test_figures_3_to_6_are_differences_to_local_only_of_the_same_seed(quick):
    for item in ("fig3", "fig4", "fig5", "fig6"):
        assert set(gains(quick, item)["value"]) == {2}
    assert "S = 2 minus S = 1 is \N{MINUS SIGN}7.0 points" in filled(USUAL | {"deep": 45}).says("fig5")


def test_lines_join_runs_of_the_same_seed(quick):
    later = {key: one for key, one in quick.rows.items() if key[1] and key[0].startswith("pfedhr")}
    rows = {key: reaching(quick.tasks[key[0]], key[1], 80) for key in later}
    [ax] = quick.replace(rows=quick.rows | rows).figure("fig6").axes
    assert list(ends(ax).values()) == [2]  # seed 0 alone has both values


def test_figure_5_has_the_papers_drops(quick):
    [ax] = quick.figure("fig5").axes
    [paper] = [line for line in ax.lines if line.get_linestyle() == ":" and len(line.get_xdata()) == 3]
    np.testing.assert_allclose(paper.get_ydata(), [2, 2 - 0.0174 * 52, 2 - 0.0392 * 52])  # only seed 0 has both depths


def test_few_images_are_compared_with_all_of_the_same_seed_and_with_the_printed_number():
    empty, rows = study("pfedhr"), {}
    for cell in empty.cells:
        key, net = cell.key[:3], cell.setting.partition(";split=iid;clients=12;active=4;models=")[2]
        if (*key, net) in {("table4", "fedavg", "mnist", "M1"), ("few", "fedavg", "mnist", "M1;images=450")}:
            for seed in (0, 1) if cell.item == "table4" else (0,):  # the mean of 3 rounds is 10 less
                rows[cell.tasks[0].name, seed] = reaching(cell.tasks[0], seed, len(net) + 50 + 9 * seed)
    numbers = by_images(empty.replace(rows=rows)).set_index("kind")[["seed", "value", "paper"]]
    assert numbers.T.to_dict("list") == {"all images": [0, 42, 91.23], "450 images per client": [0, 53, 91.23]}


def test_the_distance_from_the_printed_numbers_is_said_for_all_clients_and_for_active_ones():
    empty, rows = study("pfedhr"), {}
    for method, active, every in (("fedavg", 92.23, 95.23), ("pfedme", 90.57, 92.57)):  # 91.23 and 93.57 are printed
        key = ("table4", method, "mnist", where("none", "iid", (12, 4, "M1")), "accuracy")
        [task] = [cell.tasks[0] for cell in empty.cells if cell.key == key]
        evaluations = [(t, "before", [every] * CLIENTS) for t in range(3)]
        rows[task.name, 0] = row(task.name, 0, *evaluations, n_test=[100] * CLIENTS, kept={"active": active})
    says = empty.replace(rows=rows).says("tested")
    assert "2 printed numbers with the active clients (mean distance 2.0 points) than with all clients (2.5)" in says


def test_a_round_is_packed_and_unpacked():
    again = unpacked(packed(3, SEEN))
    assert again._replace(distance=0, similarity=0) == SEEN._replace(distance=0, similarity=0)
    np.testing.assert_allclose(again.distance, SEEN.distance, rtol=0.02)
    np.testing.assert_array_equal(again.similarity, SEEN.similarity)


def test_rounds_show_candidates_teachers_and_the_clients_that_learn_from_them(quick):
    words = [text.get_text() for ax in quick.figure("round").axes for text in ax.texts]
    assert {"to 0, 1", "to 2"} <= set(words)
    assert "2 of 2 candidates" in quick.says("round")
    assert "12 to 50 %" in quick.says("round")
    titles = [ax.get_title("left") for ax in quick.figure("fig7").axes]
    assert titles == [f"round {t}: teacher of client 0, accuracy 25 %" for t in (1, ROUNDS)]
    [ax] = draw_teachers(first_run(quick), 2).axes
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [f"client {i}" for i in range(CLIENTS)]
    assert "teacher 20 %, client 32 %" in [text.get_text() for text in ax.texts]
