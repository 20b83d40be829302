"""What FedCS's study declares, and how its claims are judged."""

import math
import time

import numpy as np
import pandas as pd
import pytest

from fedlib.papers import rows, runner
from fedlib.papers.fedcs import study as fedcs
from fedlib.papers.rows import Row
from fedlib.papers.runner import missing, work
from fedlib.papers.study import Numbers, study
from fedlib.report.paper import reported

KEYS = ["item", "method", "dataset", "setting", "metric"]
PAPER = study("fedcs", "paper")
LABEL = ("cifar10", "label-shift")


def as_printed():
    """The paper's numbers, and its standard deviations over clients."""
    numbers = {}
    for row in reported("fedcs").itertuples():
        key = row.item, row.method, row.dataset, row.setting
        numbers |= {(*key, row.metric): row.mean, (*key, f"{row.metric}_std"): row.std}
    return numbers


def ledger(numbers):
    """The verdicts if these had been measured twice: {(item, method, dataset, setting, metric): value}."""
    frame = pd.DataFrame([(*key, value) for key, value in numbers.items()], columns=[*KEYS, "value"])
    return PAPER.ledger(pd.concat([frame, frame])).set_index("id")


def verdict(claim, numbers):
    return ledger(numbers).loc[claim, "verdict"]


@pytest.mark.parametrize("profile", ["smoke", "quick", "paper"])
def test_every_claim_has_a_judge_and_cells_and_every_key_is_there_once(profile):
    one = study("fedcs", profile)
    keys = [cell.key for cell in one.cells]
    assert len(set(keys)) == len(keys)
    assert [claim.id for claim in one.claims] == [f"cs{i:02d}" for i in range(1, 22)] == list(ledger({}).index)
    assert all(one.needed(claim) for claim in one.claims)


def test_every_number_that_a_claim_asks_for_and_every_printed_one_has_a_cell():
    numbers, keys = Numbers(PAPER, pd.DataFrame()), {cell.key for cell in PAPER.cells}
    for claim in PAPER.claims:
        claim.cases(numbers)
    assert set(numbers.asked) <= keys
    printed = set(reported("fedcs")[KEYS].itertuples(index=False, name=None))
    assert len(printed) == 54
    assert printed <= keys


def test_nothing_stands_in_for_the_papers_data_at_its_own_size():
    for profile in ("paper", "quick"):
        tasks = [task for cell in study("fedcs", profile).cells for task in cell.tasks if cell.item == "table2"]
        assert {task.images.stands_for for task in tasks} == {"" if profile == "paper" else "cifar10"}


def test_the_printed_numbers_bear_out_the_claims_about_tables():
    found = ledger(as_printed())["verdict"].to_dict()
    held = dict.fromkeys(["cs01", "cs02", "cs03", "cs04", "cs06", "cs07", "cs08", "cs11"], "holds")
    noise = dict.fromkeys(["cs05", "cs09"], "undecided")  # CIFAR-10: differences below the error of a mean over clients
    assert found == dict.fromkeys(found, "not tested") | held | noise


def test_a_layer_that_was_not_measured_refutes_nothing_where_the_best_one_counts():
    numbers = as_printed()
    for metric in ("weighted_auc", "weighted_f1"):
        numbers["table1", "fedcs-fc1", "mnist", "label-shift", metric] = 50.0
    assert verdict("cs01", numbers) == "holds"
    del numbers["table1", "fedcs-fc3", "mnist", "label-shift", "weighted_auc"]
    del numbers["table1", "fedcs-fc3", "mnist", "label-shift", "weighted_f1"]
    numbers["table1", "fedcs-fc2", "mnist", "label-shift", "weighted_f1"] = 50.0
    assert verdict("cs01", numbers) == "not tested"
    assert verdict("cs07", numbers) == "refuted"  # all three count there


def test_the_band_must_be_the_narrowest_of_all():
    numbers = {}
    for item, name in (("fig6", "mnist"), ("fig7", "cifar10"), ("fig8", "digit5")):
        for i, method in enumerate((*fedcs.BASELINES, *fedcs.OURS)):
            key = item, method, name, fedcs.SHIFT[name]
            numbers |= {(*key, "accuracy"): 50.0 + i, (*key, "accuracy_std"): 20.0 - i}
    assert verdict("cs16", numbers) == "holds"
    numbers["fig7", "fedcs-fc3", *LABEL, "accuracy_std"] = 17.0  # that of the best: below the median, not the narrowest
    assert verdict("cs16", numbers) == "refuted"
    numbers["fig7", "fedcs-fc1", *LABEL, "accuracy"] = 59.0  # another one is the best, and has a narrow band
    assert verdict("cs16", numbers) == "holds"


def test_a_gap_counts_in_both_directions():
    gaps = {("fig2", m, *LABEL, "gap"): value for m, value in zip(fedcs.PANELS, (5.0, -8.0, -4.0), strict=True)}
    assert verdict("cs12", gaps) == "refuted"  # FedBN is better on unseen clients
    assert verdict("cs13", gaps) == "holds"
    assert verdict("cs13", gaps | {("fig2", "fedcs-fc1", *LABEL, "gap"): -6.0}) == "refuted"
    assert verdict("cs13", gaps | {("fig2", "fedbn", *LABEL, "gap"): 3.0}) == "refuted"


def test_one_model_is_an_identity_that_a_bit_refutes():
    bits = {("sec5", k, "mnist", "label-shift", m): 1.0 for k in fedcs.OURS for m in ("models", "same_bits")}
    assert verdict("cs21", bits) == "identity"
    assert verdict("cs21", bits | {("sec5", "fedcs-fc2", "mnist", "label-shift", "models"): 50.0}) == "refuted"
    assert verdict("cs21", bits | {("sec5", "fedcs-fc2", "mnist", "label-shift", "same_bits"): 0.0}) == "refuted"


def test_numbers_about_groups_are_read_off_a_row():
    early, late = [0, 10, 20, 30], [[40, 60, 10, 30], [50, 70, 20, 40]]
    kept = {"groups f1 after": [early, *late], "rounds after": [10, 20, 30], "f1 after": [1, None, 3]}
    row = Row("task", 0, {"kept": kept})
    assert fedcs.gap("f1", "after", row) == 60 - 30
    assert fedcs.width("f1", "after", row) == 50
    assert fedcs.group_mean("f1", "after", 2, row) == 20
    assert fedcs.spread("f1", "after", 10, row) == pytest.approx(np.std(late[-1]))
    assert fedcs.spread("f1", "after", 20, row) == pytest.approx(np.mean([np.std(groups) for groups in late]))
    assert math.isnan(fedcs.over_clients("f1", "after", np.mean, row))  # a client's model has diverged
    assert fedcs.domain_of(15).tolist() == [*"0123401234", *["mixed"] * 5]


CHEAP = [
    ("fig10", "fedavg+ft", "accuracy"),
    ("unseen", "fedcs-fc3", "weighted_f1"),
    ("eq12", "fedcs", "cosine"),
    ("fig5", "partition", "smallest"),
    ("sec5", "fedcs-fc3", "models"),
    ("plug_in", "fedprox", "weighted_f1"),
]


def test_runs_and_measurements_give_numbers_to_all_their_cells(monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "check_clean", lambda: "0123")
    smoke = study("fedcs", "smoke")
    cells = [cell for cell in smoke.cells if cell.dataset != "cifar10"]  # in this profile the same images as for MNIST
    wanted = {task.name for cell in cells if (cell.item, cell.method, cell.metric) in CHEAP for task in cell.tasks}
    small = smoke._replace(cells=[cell for cell in cells if cell.tasks[0].name in wanted])
    jobs = missing([small], folder=tmp_path)
    assert work(jobs, time.time() + 600, tmp_path, tmp_path / "store", lambda text: None) == len(jobs) == 8
    found = rows.read("fedcs", tmp_path)
    assert all(rows.path_of("fedcs", job.task, 0, tmp_path).stat().st_size < 20_000 for job in jobs)
    measured = small.measured(found)
    assert len(measured) == len(small.cells)
    assert measured["value"].notna().all()
    value = measured.set_index(KEYS)["value"].to_dict()
    by_group = [value["fig10", "fedavg+ft", "digit5", f"group={g}", "accuracy"] for g in range(3)]
    by_client = value["fig8", "fedavg+ft", "digit5", "feature-shift", "accuracy"]
    assert by_client == pytest.approx(np.mean(by_group), abs=1e-3)  # groups of one size
    assert value["fig10", "fedavg+ft", "digit5", "feature-shift", "gap"] == pytest.approx(
        by_group[0] - np.mean(by_group[1:]), abs=1e-3
    )
    domains = [value["fig10", "fedavg+ft", "digit5", f"domain={d}", "accuracy"] for d in "01234"]
    mixed = value["fig10", "fedavg+ft", "digit5", "domain=mixed", "accuracy"]
    assert by_client == pytest.approx((10 * np.mean(domains) + 5 * mixed) / 15, abs=1e-3)
    assert value["fig5", "partition", "digit5", "feature-shift", "unseen"] == 10
    verdicts = small.ledger(measured).set_index("id")["verdict"]
    assert verdicts["cs18"] == verdicts["cs21"] == "identity"
