"""The study of pFedMB: its cells, its claims on constructed numbers, and a few of its runs."""

import time

import numpy as np
import pandas as pd
import pytest

import fedlib as fl
from fedlib.papers import rows, runner
from fedlib.papers.pfedmb.study import CLAIMS, COLUMNS, PAIRS, PROFILES, branches_of_best, choices, chosen, rounds_to
from fedlib.papers.run import Run
from fedlib.papers.runner import missing, work
from fedlib.papers.study import study

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
    config = {"tune_every": tune_every, "hyper": {"branches": branches}}
    facts = {"n_test": [100], "when": "after", "evaluations": found, "config": config, "kept": kept}
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


class Traced:
    """A run of ten clients of which pairs 0 and 1 choose branch 0, and pair p = 2, 3, 4 branch p."""

    diverged = None

    def __init__(self):
        import torch

        chosen = np.maximum(np.repeat(range(5), 2), 1) - 1 + np.repeat([0, 0, 1, 1, 1], 2)
        self.trace = {"all layers": torch.stack([torch.full((10, 5), 0.2), torch.eye(5)[chosen]])}

    def best_round(self, over):
        return 2

    def score(self, **_):
        return 50.0


def test_what_fig_3_keeps_is_what_the_pairs_choose():
    kept = choices(Traced())
    assert kept["branches_used"] == [1, 4]
    assert kept["rand_indices"][0] == 0
    assert 0 < kept["rand_indices"][1] < 1
    assert kept["within"] == [0, 0]
    assert kept["between"] == [0, pytest.approx(2 * 36 / 40)]  # 4 of the 40 pairs of clients agree
    assert kept["alpha_rounds"] == [1, 2]


def test_a_few_runs_make_numbers_of_every_kind(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "check_clean", lambda: "0123")
    smoke = study("pfedmb", "smoke")
    [at] = {cell.setting for cell in smoke.cells if cell.item == "table2" and cell.setting.endswith("classes=2")}
    kinds = ("cost", "table1", "fig3", "fig4", "pairs")
    wanted = {("table2", "fedamp", at), ("table2", "pfedmb", at), ("table3", "pfedmb", at)}
    wanted |= {("branches", "pfedmb", f"{at};branches={b}") for b in (1, *PROFILES["smoke"].branches)}
    cells = [cell for cell in smoke.cells if cell.item in kinds or (cell.item, cell.method, cell.setting) in wanted]
    small = smoke._replace(cells=cells)
    work(missing([small], folder=tmp_path / "rows"), time.time() + 600, tmp_path / "rows", tmp_path / "store")
    measured = small.measured(rows.read("pfedmb", tmp_path / "rows"))
    assert set(measured["item"]) == {*kinds, "table2", "table3", "branches"}
    assert len(measured) == len(cells)
    assert np.isfinite(measured["value"]).all()
    values = measured.set_index(KEY[:1] + KEY[1:2] + KEY[3:])["value"]
    assert values["table3", "pfedmb", at, "num_branches"] in PROFILES["smoke"].branches
    rounds = values.xs("rounds", level="metric")
    assert rounds.between(1, PROFILES["smoke"].pair_rounds + 1).all()
    use = values.xs("clients_per_branch", level="metric")
    assert use.between(1, 15).all()
    assert max(path.stat().st_size for path in (tmp_path / "rows").glob("*/*.json")) < 20_000
    verdicts = small.ledger(measured).set_index("id")["verdict"]
    assert verdicts["pb18"] == "identity"
    assert verdicts["pb19"] == "consistent so far"  # on a stand-in
