"""The study of pFedMB: its cells, its claims on constructed numbers, and a few of its runs."""

import re
import time
from typing import ClassVar

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

import fedlib as fl
from fedlib.papers.pfedmb import alpha as of_alpha
from fedlib.papers.pfedmb import figures
from fedlib.papers.pfedmb.claims import CLAIMS
from fedlib.papers.pfedmb.draw import PAIRS, chance, reported_curve, rows_that_count
from fedlib.papers.pfedmb.figures import SHOWN
from fedlib.papers.pfedmb.given import groups
from fedlib.papers.pfedmb.study import (
    COLUMNS,
    PROFILES,
    branch_use,
    branches_of_best,
    choices,
    chosen,
    rounds_to,
)
from fedlib.studies import rows, runner
from fedlib.studies.layout import parts_of
from fedlib.studies.number import Number
from fedlib.studies.runner import missing, work
from fedlib.studies.study import study
from fedlib.studies.tasks import Run

KEY = ["item", "method", "dataset", "setting", "metric"]
DECIDED = {"pb01", "pb02", *(f"pb{n:02d}" for n in range(8, 17))}  # by printed numbers


@pytest.fixture(scope="module")
def paper():
    return study("pfedmb", "paper")


def printed():
    return fl.report.reported("pfedmb").rename(columns={"mean": "value"})


def frame(*numbers):
    return pd.DataFrame(numbers, columns=[*KEY, "value"])


def verdict(paper, claim, measured):
    return paper.ledger(pd.concat([measured, measured])).set_index("id").loc[claim, "verdict"]  # of two seeds


def changed(method, at, value):
    """The printed numbers with another one in Table II."""
    numbers = printed()
    there = (numbers["item"] == "table2") & (numbers["method"] == method)
    numbers.loc[there & (numbers["dataset"] == at[0]) & (numbers["setting"] == at[1]), "value"] = value
    return numbers


def test_every_printed_number_has_a_cell(paper):
    wanted = set(fl.report.reported("pfedmb")[KEY].itertuples(index=False, name=None))
    assert wanted <= {cell.key for cell in paper.cells}


@pytest.mark.parametrize("profile", PROFILES)
def test_no_number_is_declared_twice(profile):
    keys = [cell.key for cell in study("pfedmb", profile).cells]
    assert len(keys) == len(set(keys))


def test_only_the_papers_own_data_have_its_name(paper):
    runs = [(cell, task) for cell in paper.cells for task in cell.tasks if isinstance(task, Run)]
    assert all(task.images.name == cell.dataset and not task.images.stands_for for cell, task in runs)
    for profile in ("quick", "smoke"):
        runs = [(cell, task) for cell in study("pfedmb", profile).cells for task in cell.tasks if isinstance(task, Run)]
        assert all(task.images.stands_for == cell.dataset for cell, task in runs)


def test_every_claim_has_a_judge_and_cells(paper):
    assert [claim.id for claim in CLAIMS] == [f"pb{n:02d}" for n in range(1, 21)]
    assert all(paper.needed(claim) for claim in paper.claims)


PARTITIONS = {
    "classes=2": fl.classes_per_client(2),
    "dir=0.4": fl.dirichlet(0.4, min_size=10),
    "classes=20;u=0.3-0.7": fl.uneven_classes(20, 0.3, 0.7),
}


def test_the_paper_profile_has_the_papers_protocol_in_every_column(paper):
    cells = [cell for cell in paper.cells if cell.item == "table2"]
    assert len(cells) == 6 * 9
    for cell in cells:
        n, words = cell.setting.removeprefix("clients=").split(";", 1)
        alone = cell.method == "local_only"
        rounds, ratio = (100, 0.2) if n == "50" and not alone else (20, 1)  # a client trains in 20 rounds
        setting = {"rounds": rounds, "join_ratio": ratio, "evaluate_every": rounds / 4, "batch_size": 64}
        setting |= {"local_epochs": 5, "tune_epochs": 0 if alone else 5}
        for task in cell.tasks:
            assert {name: value for name, value in task.setting.items() if name != "lr"} == setting, cell.key
            assert (task.clients, task.model, str(task.partition)) == (int(n), "lenet5_plain", str(PARTITIONS[words]))
            assert task.federate == {"test_fraction": None, "validation_fraction": 0.2}
        tried = sorted((task.algorithm.hyper.get("branches", 1), round(task.setting["lr"], 9)) for task in cell.tasks)
        of_pfedmb = [(2, 0.05), (5, 0.05), (10, 0.05), (10, 0.1), (15, 0.05), (15, 0.15)]
        assert tried == {"pfedmb": of_pfedmb, "fedamp": [(1, 0.05)] * 2}.get(cell.method, [(1, 0.05)])
        if cell.method == "fedamp":
            assert {task.algorithm.hyper["sigma"] for task in cell.tasks} == {10, 100}


@pytest.mark.parametrize("words", ["classes=2", "dir=0.4"])
def test_every_variant_of_the_control_is_a_run_of_its_own(paper, words):
    at = f"clients=15;{words};branches=5"
    found = {c.setting.removeprefix(f"{at};"): c.tasks for c in paper.cells if c.item == "parts" and at in c.setting}
    [plain] = [c.tasks for c in paper.cells if (c.item, c.setting, c.metric) == ("branches", at, "accuracy")]
    hyper = {"branches": 5, "share_alpha": False, "weighted": True, "alpha_lr": 1, "gain": False}
    made = {"": (hyper, 20, 0.05)} | {
        "weighted=no": (hyper | {"weighted": False}, 20, 0.05),
        "share_alpha=yes": (hyper | {"share_alpha": True}, 20, 0.05),
        "alpha_lr=0.1": (hyper | {"alpha_lr": 0.1}, 20, 0.05),
        "alpha_lr=0": (hyper | {"alpha_lr": 0}, 20, 0.05),
        "gain=yes": (hyper | {"gain": True}, 20, 0.05),
        "alpha_lr=0;lr=x5": (hyper | {"alpha_lr": 0}, 20, 0.25),
        "alpha=labels": (hyper | {"alpha_lr": 0, "alpha": "labels"}, 20, 0.05),
        "rounds=x2": (hyper, 40, 0.05),
    }
    runs = {name: task for name, [task] in (found | {"": plain}).items()}
    assert {name: (one.algorithm.hyper, one.rounds, one.setting["lr"]) for name, one in runs.items()} == made
    assert len({one.name for one in runs.values()}) == 9


def test_the_papers_own_numbers_are_for_its_claims(paper):
    verdicts = paper.ledger(pd.concat([printed(), printed()])).set_index("id")["verdict"]
    assert verdicts.to_dict() == {claim.id: "holds" if claim.id in DECIDED else "not tested" for claim in CLAIMS}


@pytest.mark.parametrize(
    ("claim", "method", "at", "value"),
    [
        ("pb08", "pfedmb", COLUMNS[2], 73.51),  # printed: 73.53, FedAvg 73.52
        ("pb09", "fedamp", COLUMNS[0], 91.70),  # pFedMB: 90.69
        ("pb10", "fedavg", COLUMNS[5], 39.90),  # still the lowest mean rank
        ("pb11", "fedper", COLUMNS[1], 86.58),  # FedProx: 86.07
        ("pb12", "fedfomo", COLUMNS[3], 70.33),  # FedAvg: 70.32
        ("pb13", "fedfomo", COLUMNS[1], 84.67),  # FedAvg: 85.68
        ("pb14", "ifca", COLUMNS[2], 73.53),  # FedAvg: 73.52
    ],
)
def test_one_other_number_refutes_a_claim_about_table_2(paper, claim, method, at, value):
    expected = "holds" if claim == "pb10" else "refuted"
    assert verdict(paper, claim, changed(method, at, value)) == expected


@pytest.mark.parametrize(("branches", "expected"), [(10, "holds"), (11, "refuted")])
def test_ten_branches_are_enough_and_eleven_are_too_many(paper, branches, expected):
    numbers = printed()
    here = (numbers["item"] == "table3") & (numbers["dataset"] == "cifar10") & (numbers["setting"] == COLUMNS[1][1])
    numbers.loc[here, "value"] = branches
    assert here.sum() == 1
    assert verdict(paper, "pb15", numbers) == expected


def test_the_mean_rank_of_some_columns_is_not_that_of_all(paper):
    numbers = printed()
    ours = numbers[(numbers["item"] == "table2") & (numbers["dataset"] == "cifar10")]
    assert verdict(paper, "pb10", ours) == "consistent so far"
    behind = ours.assign(value=ours["value"] - 1.5 * (ours["method"] == "pfedmb"))
    assert verdict(paper, "pb10", behind) == "undecided"  # two columns of CIFAR-100 could still turn it
    last = ours.assign(value=ours["value"] - 50 * (ours["method"] == "pfedmb"))
    assert verdict(paper, "pb10", last) == "refuted"  # they could not
    one = ours[(ours["setting"] == COLUMNS[0][1]) & (ours["method"] != "ifca")]
    assert verdict(paper, "pb10", one) == "not tested"


def test_a_rival_that_was_not_run_cannot_save_a_claim(paper):
    """pb09 with one rival ahead is refuted; pb11 says nothing while one of its own two methods is not measured."""
    at = COLUMNS[0]
    numbers = frame(*(("table2", m, *at, "accuracy", v) for m, v in (("pfedmb", 85.6), ("local_only", 88.5))))
    assert verdict(paper, "pb09", numbers) == "refuted"
    fedavg = ("table2", "fedavg", *at, "accuracy", 85.6)
    assert verdict(paper, "pb11", frame(fedavg, *numbers.to_numpy())) == "not tested"
    fedprox = ("table2", "fedprox", *at, "accuracy", 85.7)
    assert verdict(paper, "pb11", frame(fedavg, fedprox, *numbers.to_numpy())) == "refuted"


def test_a_peak_needs_both_sides(paper):
    def fig5(accuracies):
        at = ("fig5", "pfedmb", "cifar10")
        return frame(*((*at, f"clients=50;classes=2;branches={b}", "accuracy", v) for b, v in accuracies.items()))

    assert verdict(paper, "pb17", fig5({2: 80.0, 10: 82.0, 20: 81.0})) == "consistent so far"
    everything = {b: 80 - abs(b - 9) / 10 for b in (2, 4, 5, 6, 8, 10, 12, 14, 15, 16, 18, 20)}
    assert verdict(paper, "pb17", fig5(everything)) == "holds"
    assert verdict(paper, "pb17", fig5(everything | {20: 81.0})) == "refuted"
    assert verdict(paper, "pb17", fig5({2: 80.0, 10: 79.0})) == "not tested"  # another number could be the peak


def test_seeds_that_disagree_decide_nothing(paper):
    table1 = [("table1", m, "cifar10", PAIRS, "accuracy", v) for m, v in (("pfedmb", 89.0), ("fedavg", 88.0))]
    assert verdict(paper, "pb01", frame(*table1)) == "holds"
    second = [("table1", m, "cifar10", PAIRS, "accuracy", v) for m, v in (("pfedmb", 87.0), ("fedavg", 86.0))]
    assert verdict(paper, "pb01", frame(*table1, *second)) == "undecided"
    apart = [("fig3", "pfedmb", "cifar10", PAIRS, "all_apart", v) for v in (1.0, 1.0)]
    assert verdict(paper, "pb04", frame(*apart)) == "holds"


def row(accuracies, branches=2, validation=50.0, tune_every=5):
    """A row of one client with 100 test images, tuned every so many rounds."""
    found = [
        {"round": tune_every * (t + 1), "when": when, "correct": [n if when == "after" else 0]}
        for t, n in enumerate(accuracies)
        for when in ("before", "after")
    ]
    kept = {"validation": validation, "accuracy": float(accuracies[-1])}
    config = {"tune_every": tune_every, "tune_epochs": 1, "hyper": {"branches": branches}}
    facts = {"n_test": [100], "when": "before", "evaluations": found, "config": config, "kept": kept}
    return rows.Row("run", 0, facts)


def test_of_several_runs_the_one_that_validates_best_counts():
    two, five = row([90], 2, validation=70.0), row([80], 5, validation=71.0)
    for tried in ((two, five), (five, two)):
        assert branches_of_best(*tried) == 5
        assert chosen("accuracy", *tried) == 80
        assert np.isnan(chosen("clients_per_branch", *tried))


def test_rounds_to_99_percent_of_the_final_accuracy():
    fast, slow, low = row([50, 90, 91, 91]), row([50, 60, 80, 90]), row([50, 60, 70, 80])
    assert rounds_to(1, fast, slow) == 10  # 90 of 0.99 * 90
    assert rounds_to(1, slow, slow) == 20
    assert rounds_to(1, low, slow) == 21
    assert rounds_to(2, row([100, 91], validation=40.0), fast, slow, row([0], validation=10.0)) == 10
    every = row([50, 90, 90, 90, 90, 90, 90], tune_every=1)
    assert rounds_to(1, every, slow) == 6  # the mean of five rounds has left the first one behind


def test_a_reported_curve_is_a_mean_over_clients_of_any_size():
    found = [(2, "before", [1, 9]), (2, "after", [9, 45]), (4, "before", [0, 0]), (4, "after", [5, 90])]
    evaluations = [{"round": t, "when": when, "correct": correct} for t, when, correct in found]
    for tune_epochs, curve in ((3, {2: 70, 4: 75}), (0, {2: 10, 4: 0})):  # (90 + 50) / 2, (50 + 100) / 2
        facts = {"n_test": [10, 90], "evaluations": evaluations, "config": {"tune_epochs": tune_epochs}}
        assert reported_curve(rows.Row("run", 0, facts)).to_dict() == pytest.approx(curve)


class Traced:
    """A run of ten clients of which pairs 0 and 1 choose branch 0, and pair p = 2, 3, 4 branch p."""

    diverged = None
    config: ClassVar = {"tune_epochs": 1}

    def __init__(self):
        chosen = np.maximum(np.repeat(range(5), 2), 1) - 1 + np.repeat([0, 0, 1, 1, 1], 2)
        self.trace = {"all layers": torch.stack([torch.full((10, 5), 0.2), torch.eye(5)[chosen]])}

    def best_round(self, over, when):
        return 2

    def score(self, *, when, **_):
        return {"before": 40.0, "after": 50.0}[when]


def test_what_fig_3_keeps_is_what_the_pairs_choose():
    kept = choices(Traced())
    assert (kept["before"], kept["accuracy"], kept["validation"]) == (40, 50, 50)  # reported after fine-tuning
    assert kept["branches_used"] == [1, 4]
    assert kept["rand_indices"][0] == 0
    assert 0 < kept["rand_indices"][1] < 1
    assert kept["within"] == [0, 0]
    assert kept["between"] == [0, pytest.approx(2 * 36 / 40)]  # 4 of the 40 pairs of clients agree
    assert kept["alpha_rounds"] == [1, 2]


def test_how_decided_clients_are_is_read_off_the_last_evaluation():
    undecided, three_to_one = torch.full((4, 2), 0.5), torch.eye(2)[[0, 0, 0, 1]]
    result = Traced()
    result.trace = {"first": torch.stack([undecided, three_to_one]), "second": torch.stack([undecided] * 2)}
    kept = branch_use(result)
    assert (kept["layers"], kept["largest_alphas"]) == (["first", "second"], [1, 0.5])
    assert kept["clients_by_layer"] == [3 * 3 / 4 + 1 / 4, 4]
    assert (kept["largest_alpha"], kept["clients_per_branch"]) == (0.75, 3.25)


# -- a few runs, and the figures ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """The smoke profile without most of Table II, with its rows, and the folder of those."""
    folder = tmp_path_factory.mktemp("pfedmb")
    smoke = study("pfedmb", "smoke")
    cells = [cell for cell in smoke.cells if cell.item != "table2" or cell.method in ("fedper", "pfedmb")]
    small = smoke.replace(cells=cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "check_clean", lambda: "0123")
        work(missing([small], folder=folder / "rows"), time.time() + 600, folder / "rows", folder / "store")
    return small.replace(rows=rows.read("pfedmb", folder / "rows")), folder / "rows"


def test_a_few_runs_make_numbers_of_every_kind(few):
    small, folder = few
    measured, sizes = small.measured(), PROFILES["smoke"]
    assert set(measured["item"]) == {cell.item for cell in small.cells}
    assert len(measured) == len(small.cells)
    assert np.isfinite(measured["value"]).all()
    [at] = {cell.setting for cell in small.cells if cell.item == "table2"}
    values = measured.set_index(KEY[:1] + KEY[1:2] + KEY[3:])["value"]
    assert values["table3", "pfedmb", at, "num_branches"] in (*sizes.branches, *sizes.more_branches)
    assert values.xs("rounds", level="metric").between(1, sizes.pair_rounds + 1).all()
    assert values.xs("clients_per_branch", level="metric").between(0.99, 15.01).all()
    assert values["parts", "pfedmb", f"{at};branches=5;alpha_lr=0", "largest_alpha"] == pytest.approx(0.2)
    assert values["parts", "pfedmb", f"{at};branches=5;alpha=labels", "largest_alpha"] == pytest.approx(1)
    assert max(path.stat().st_size for path in folder.glob("*/*.json")) < 20_000
    verdicts = small.ledger(measured).set_index("id")["verdict"]
    assert verdicts["pb18"] == "identity"
    assert verdicts["pb19"] == "consistent so far"  # on a stand-in


def test_every_committed_row_belongs_to_a_run_of_the_study(paper):
    assert {task for task, _ in rows.read("pfedmb")} <= set(paper.tasks())


def test_groups_of_clients_with_similar_labels():
    counts = np.kron(np.eye(5, dtype=int), [[7, 9], [70, 90]])  # ten clients in five pairs, one of each with few images
    found = groups(counts, 5)
    assert (found[0::2] == found[1::2]).all()
    assert len(set(found)) == 5


@pytest.mark.parametrize("item", [name for name, one in SHOWN.items() if one.draw])
def test_every_figure_draws_what_there_is(few, item):
    small, _ = few
    for one in (small, small.replace(rows={})):
        plt.close(one.figure(item))
        assert (SHOWN[item].says or str)(one)
    assert len(SHOWN[item].alt) > 20


def test_the_hero_has_a_panel_for_each_pair_and_a_line_for_each_client_and_branch(few):
    figure = few[0].figure("hero")
    assert [len(ax.lines) for ax in figure.axes] == [10] * 5  # two clients, five branches
    assert figure.axes[3].get_title().startswith("clients 6 and 7")
    alpha = np.array(rows_that_count(few[0], "fig3", "pfedmb")[0].kept["alpha"])
    np.testing.assert_allclose(figure.axes[3].lines[7].get_ydata(), alpha[:, 7, 2])
    plt.close(figure)


def test_the_hero_names_the_branch_that_a_pair_prefers_in_the_end():
    first, last = np.zeros((10, 5)), np.zeros((10, 5))
    for client in range(10):
        pair = client // 2
        first[client, pair] = 1
        one, other = (0.6, 0.4) if client % 2 == 0 else (0.1, 0.9)
        last[client, [(pair + 1) % 5, (pair + 2) % 5]] = one, other
    figure = of_alpha.hero(Kept({"alpha": [first, last], "alpha_rounds": [1, 9]}, {}))
    names = [[text.get_text() for text in ax.texts] for ax in figure.axes]
    assert names == [["branch 3"], ["branch 4"], ["branch 5"], ["branch 1"], ["branch 2"]]


def test_fig_3_shows_alpha_with_weighting_on_the_left(few):
    figure = few[0].figure("fig3")
    images = [ax.images[0].get_array() for ax in figure.axes[:-1]]  # the last is the colour bar
    assert len(images) == 4  # two rounds, with and without
    for at, method in ((0, "pfedmb"), (1, "pfedmb-avg")):
        alpha = rows_that_count(few[0], "fig3", method)[0].kept["alpha"][0]
        np.testing.assert_allclose(images[at], alpha)
    assert figure.axes[0].get_ylabel() == "round 1\nclient"
    plt.close(figure)
    figure = of_alpha.at_round(few[0], of_alpha.rounds_of(few[0])[-1])
    assert figure.axes[0].get_title().startswith("with weighting: Rand index")
    plt.close(figure)


def test_the_best_method_is_on_top_and_guessing_is_a_line():
    figure = figures.table1(of(("table1", "fedavg", PAIRS, 60.0), ("table1", "pfedmb", PAIRS, 80.0)))
    [ax] = figure.axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["pFedMB", "FedAvg"]
    assert 50.0 in [line.get_xdata()[0] for line in ax.lines]
    crosses = [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if line.get_marker() == "x"]
    assert crosses == [(89.49, 0), (87.99, 1)]  # as printed
    assert np.isnan(chance("clients=15;dir=0.4"))
    assert chance("clients=50;classes=2") == 50
    assert np.isnan(chance("clients=15;classes=20;u=0.3-0.7"))
    plt.close(figure)


def test_printed_numbers_stand_beside_measured_ones_unless_other_data_stand_in(paper, few):
    ours = few[0].numbers("table1")["paper"]
    assert len(ours)
    assert ours.isna().all()
    beside = paper.numbers("table1", "fig4").set_index(["item", "method"])["paper"]
    assert beside["table1"].to_dict() == {"local_only": 87.26, "fedavg": 87.99, "pfedmb-avg": 89.08, "pfedmb": 89.49}
    assert beside["fig4"].isna().all()


# -- what is said under a figure, on both sides of its comparison -------------------------------------------------


class of:
    """A study of these numbers: item, method, setting, value, and "accuracy" or another metric."""

    def __init__(self, *numbers):
        table = [(item, method, "cifar10", setting, *(rest or ["accuracy"]), 0, value)
                 for item, method, setting, value, *rest in numbers]  # fmt: skip
        self.frame = pd.DataFrame(table, columns=[*KEY, "seed", "value"])

    def numbers(self, *items, metric=""):
        frame = self.frame[self.frame["item"].isin(items) & self.frame["metric"].isin([metric or "accuracy"])]
        printed = fl.report.reported("pfedmb").drop_duplicates(KEY).set_index(KEY)["mean"]
        paper = [printed.get(key, np.nan) for key in frame[KEY].itertuples(index=False, name=None)]
        parts = pd.DataFrame([parts_of(s) for s in frame["setting"]], index=frame.index)
        return frame.assign(paper=paper).join(parts)


class Kept:
    """A study of one run with weighting and one without, by what they keep."""

    def __init__(self, ours, theirs):
        self.cells, self.rows = [], {}
        for method, kept in (("pfedmb", ours), ("pfedmb-avg", theirs)):
            task = type("Task", (), {"name": method})
            self.cells.append(type("Cell", (), {"item": "fig3", "method": method, "tasks": [task]}))
            self.rows[method, 0] = rows.Row(method, 0, {"kept": {"validation": 1.0, **kept}})

    def known(self):
        return self.rows


def test_the_ranking_says_who_is_ahead_and_by_how_much():
    def says(ours):
        numbers = of(
            ("table1", "pfedmb", PAIRS, ours), ("table1", "fedavg", PAIRS, 80.0), ("table1", "fedper", PAIRS, 70.0)
        )
        return figures.says_ranking(numbers, "table1")

    assert "number 1 of 3, 2.5 points ahead of FedAvg" in says(82.5)
    assert "number 2 of 3, 4.0 points behind FedAvg" in says(76.0)
    assert ", level with FedAvg" in says(80.04)
    assert "guessing" not in says(76.0)
    assert "No better than guessing: pFedMB." in says(51.0)
    assert "Nothing can be compared" in figures.says_ranking(of(("table1", "pfedmb", PAIRS, 1.0)), "table1")


def test_what_fig_3_says_depends_on_who_is_first():
    fast = {"rand_indices": [0.5, 1.0, 1.0], "branches_used": [3, 5, 5]}
    slow = {"rand_indices": [0.2, 0.4, 0.6], "branches_used": [2, 3, 4]}
    assert "found earlier with weighting" in of_alpha.says_fig3(Kept(fast, slow))
    assert "found earlier without weighting" in of_alpha.says_fig3(Kept(slow, fast))
    assert "equally fast" in of_alpha.says_fig3(Kept(slow, slow))
    assert "5 branches with weighting and 4 without" in of_alpha.says_fig3(Kept(fast, slow))


def test_the_hero_counts_pairs_that_agree():
    def says(chosen):
        kept = {"alpha": [np.eye(5)[chosen].tolist()], "alpha_rounds": [1]}
        kept |= {"rand_indices": [1.0 if chosen == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4] else 0.3]}
        return of_alpha.says_hero(Kept(kept | {"branches_used": [len(set(chosen))]}, {}))

    assert "in 5 of 5 pairs, and the pairs prefer 5 different" in says([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    assert "With 1 of 1 seed the" in says([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    assert "in 3 of 5 pairs, and the pairs prefer 4 different" in says([0, 1, 1, 1, 2, 2, 3, 1, 3, 3])
    assert "With 0 of 1 seed the" in says([0, 1, 1, 1, 2, 2, 3, 1, 3, 3])


@pytest.mark.parametrize(("uniform", "given", "word"), [(60.0, 75.0, "choice given"), (75.0, 60.0, "nobody chooses")])
def test_the_control_names_what_helps_most(uniform, given, word):
    at = "clients=15;classes=2"
    numbers = [("table2", "pfedmb", at, 65.0), ("table2", "local_only", at, 80.0)]
    numbers += [("parts", "pfedmb", f"{at};branches=5;alpha_lr=0", uniform)]
    numbers += [("parts", "pfedmb", f"{at};branches=5;alpha=labels", given)]
    said = figures.says_parts(of(*numbers))
    assert re.search(f"'{word}[^']*' helps most, from one seed", said)
    assert "+10.0" in said
    assert "stays behind a client that trains alone (80.0)" in said
    numbers[1] = ("table2", "local_only", at, 70.0)
    assert "reaches a client that trains alone" in figures.says_parts(of(*numbers))


def test_a_bar_of_the_control_stands_at_the_name_of_its_variant():
    at = "clients=15;classes=2"
    of_variants = {"alpha=labels": (75.0, 3.0), "alpha_lr=0": (50.0, 15.0), "gain=yes": (80.0, 6.0)}
    numbers = [("table2", "local_only", at, 70.0), ("table2", "pfedmb", at, 65.0)]
    numbers.append(("branches", "pfedmb", f"{at};branches=5", 4.0, "clients_per_branch"))
    for name, (accuracy, clients) in of_variants.items():
        place = ("parts", "pfedmb", f"{at};branches=5;{name}")
        numbers += [(*place, accuracy), (*place, clients, "clients_per_branch")]
    left, right = figures.parts(of(*numbers)).axes
    rows_by_accuracy = [text.get_text() for text in left.get_yticklabels()]
    assert rows_by_accuracy == [
        "initial branches scaled up",
        "choice given by the labels",
        "Local-Only",
        "pFedMB",
        "nobody chooses: alpha = 1/B",
    ]
    bars = {bar.get_y() + bar.get_height() / 2: bar.get_width() for bar in right.patches}
    assert bars == pytest.approx({0: 6, 1: 3, 3: 4, 4: 15})


def test_the_control_says_how_accuracy_goes_with_the_clients_of_a_branch():
    assert figures._trend([(3, 66.0), (15, 50.0), (5, 64.0)]).endswith("accuracy falls.")
    assert figures._trend([(3, 50.0), (15, 66.0), (5, 64.0)]).endswith("accuracy rises.")
    assert "neither" in figures._trend([(3, 50.0), (15, 60.0), (5, 64.0)])
    assert not figures._trend([(3, 50.0), (15, 60.0)])


def test_the_control_of_fedamp_changes_its_pull_alone_and_begins_at_that_of_table_2(paper):
    of_table = {c.setting: c.tasks for c in paper.cells if (c.item, c.method) == ("table2", "fedamp")}
    cells = [cell for cell in paper.cells if cell.item == "pull"]
    assert len(cells) == 6
    for cell in cells:
        at, lam = cell.setting.rsplit(";lam=", 1)
        same = [task.name for task in cell.tasks] == [task.name for task in of_table[at]]
        assert same == (lam == "1")
        assert [task._replace(algorithm=None) for task in cell.tasks] == [
            task._replace(algorithm=None) for task in of_table[at]
        ]
        assert [(t.algorithm.hyper["sigma"], t.algorithm.hyper["lam"]) for t in cell.tasks] == [
            (sigma, float(lam)) for sigma in (10, 100)
        ]


def test_the_control_of_fedamp_stands_beside_what_is_printed():
    at = "clients=15;dir=0.4"
    numbers = [("pull", "fedamp", f"{at};lam=0.1", value) for value in (70.0, 72.0)]
    assert "Nothing can be compared" in figures.says_pull(of(*numbers))
    numbers += [("pull", "fedamp", f"{at};lam=1", value) for value in (66.0, 67.0)]
    said = "15 clients, Dir(0.4): 66.5 with λ = 1, 71.0 with λ = 0.1; printed 72.9."
    assert figures.says_pull(of(*numbers)).endswith(said)
    [ax] = figures.pull(of(*numbers)).axes
    [mean] = [line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linewidth() > 1.5]
    assert mean.get_xydata().tolist() == [[0.1, 71.0], [1.0, 66.5]]
    assert [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == ":"] == [72.91]


def test_the_best_number_of_branches_is_named():
    def says(*values):
        return figures.says_branches(pd.DataFrame({"branches": [1, 2, 5], "value": values}))

    assert says(60.0, 70.0, 80.0).startswith("Best are 5 branches (80.0 %)")
    assert (
        says(60.0, 50.0, 40.0)
        == "Best is one branch, FedAvg (60.0 %), of 3 numbers that were tried; lowest is 5 (40.0 %)."
    )


def test_a_column_of_fig_5_with_one_number_of_branches_is_not_shown():
    one = ("fig5", "pfedmb", "clients=15;dir=0.4;branches=1", 70.0)
    assert figures.says_fig5(of(one)) == figures.says_branches(pd.DataFrame())
    assert not figures.fig5(of(one)).axes[0].lines
    two = [("fig5", "pfedmb", f"clients=15;classes=2;branches={b}", value) for b, value in ((2, 80.0), (10, 82.0))]
    assert figures.says_fig5(of(one, *two)).startswith("15 clients, two classes each: Best are 10 branches")
    [ax] = figures.fig5(of(one, *two)).axes
    assert ax.get_title() == "15 clients, two classes each"


def test_as_many_branches_with_weighting_as_without_is_against_a_slower_clustering(paper):
    names = {"branches_used": Number(4.0), "mean_branches": Number(5.0)}

    def numbers(item, method, dataset, setting, metric="accuracy"):
        return names[metric]

    [claim] = [claim for claim in paper.claims if claim.id == "pb05"]
    assert [case.side for case in claim.cases(numbers)] == ["for", "against"]


def test_the_control_on_pairs_replaces_one_part_at_a_time(paper):
    [ours] = [cell.tasks[0] for cell in paper.cells if cell.item == "table1" and cell.method == "pfedmb"]
    cells = [cell for cell in paper.cells if cell.item == "pairs_parts"]
    other = {cell.setting.rsplit(";", 1)[1]: cell.tasks[0] for cell in cells if cell.method == "pfedmb"}
    [average] = [cell.tasks[0] for cell in cells if cell.method == "pfedmb-avg"]
    assert average.algorithm.hyper == dict(other["gain=yes"].algorithm.hyper) | {"weighted": False}
    scaled, given = other["gain=yes"], other["alpha=labels"]
    assert not ours.algorithm.hyper["gain"]  # reading A2
    assert scaled.algorithm.hyper == dict(ours.algorithm.hyper) | {"gain": True}
    assert (given.algorithm.hyper["alpha"], given.algorithm.hyper["branches"]) == ("labels", 5)
    for one in (scaled, given):
        assert one._replace(algorithm=ours.algorithm, keep=ours.keep).name == ours.name


def test_the_control_on_pairs_stands_beside_table_1():
    at = f"{PAIRS};branches=5"
    table1 = [("table1", "pfedmb", PAIRS, 80.0), ("table1", "fedavg", PAIRS, 85.0)]
    variants = [("pairs_parts", "pfedmb", f"{at};gain=yes", v) for v in (86.0, 88.0)]
    variants.append(("pairs_parts", "pfedmb-avg", f"{at};gain=yes", 78.5))
    figure = figures.pairs_parts(of(*table1, *variants))
    [ax] = figure.axes
    names = ["initial branches scaled up", "FedAvg", "pFedMB", "pFedMB-avg with initial branches scaled up"]
    assert [text.get_text() for text in ax.get_yticklabels()] == names
    assert [line.get_ydata()[0] for line in ax.lines if line.get_marker() == "x"] == [1, 2]  # those that are printed
    plt.close(figure)
    said = figures.says_pairs_parts(of(*table1, *variants))
    assert "(80.0): initial branches scaled up 87.0 (+7.0), pFedMB-avg with initial branches scaled up 78.5 (" in said
    assert said.endswith("The best of them is 2.0 points ahead of FedAvg (85.0).")
    said = figures.says_pairs_parts(of(*table1, *variants[2:]))
    assert said.endswith("The best of them is 6.5 points behind FedAvg (85.0).")
    for some in (table1, [*table1[:1], *variants]):
        assert "Nothing can be compared" in figures.says_pairs_parts(of(*some))


@pytest.mark.parametrize(("ours", "said"), [(4.5, "4.5"), (30.0, "30"), (31.0, "more than 30")])
def test_fig_4_says_who_is_there_first(ours, said, paper):
    at = f"{PAIRS};aim=fedavg"
    numbers = of(("fig4", "pfedmb", at, ours, "rounds"), ("fig4", "fedavg", at, 6.0, "rounds"))
    numbers.cells = paper.cells
    [task, *_] = [task for cell in paper.cells if cell.item == "fig4" for task in cell.tasks]
    assert task.rounds == 30
    sentence = f"Rounds to 99 % of the final accuracy of FedAvg: pFedMB {said}, FedAvg itself 6."
    assert figures.says_fig4(numbers) == sentence
