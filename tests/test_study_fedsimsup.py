"""FedSimSup's study: its cells, runs and reads, its claims, and its items with full, partial and no rows."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from captum.attr import LayerGradCam
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from studies import all_drawn_and_said, changed, done, given, judged, printed, row, verdicts, with_kept, with_numbers
from torch import nn
from torch.func import functional_call

import fedlib as fl
from fedlib.models import MODELS, build
from fedlib.papers.fedsimsup import gradcam, sizes
from fedlib.papers.fedsimsup.accuracy import chance
from fedlib.papers.fedsimsup.controls import STEPS, with_printed
from fedlib.papers.fedsimsup.gradcam import grad_cam
from fedlib.papers.fedsimsup.measure import comparable, correlations, shares_by_class, similarities, supervisor_moves
from fedlib.papers.fedsimsup.similarities import draw_matrix
from fedlib.papers.fedsimsup.sizes import MAIN, METHODS, PATHOLOGICAL, PROFILES, QUICK, Column, run
from fedlib.report.paper import reported
from fedlib.report.style import BLUE, GREY, RED
from fedlib.studies import rows, runner
from fedlib.studies.runner import Job
from fedlib.studies.study import study
from fedlib.studies.tasks import Images
from fedlib.training import on_device

OPEN = ("fs07", "fs09", "fs10", "fs11", "fs16", "fs17", "fs18", "fs19", "fs20")  # the paper prints no number for them


@pytest.fixture(scope="module")
def paper():
    return study("fedsimsup")


@pytest.fixture(scope="module")
def numbers():
    found = printed("fedsimsup")
    return pd.concat([found, found[found["item"] == "table1"].assign(item="table1_text")])


def test_the_papers_own_numbers_support_its_claims(paper, numbers):
    found = verdicts(paper, numbers)
    assert (found.loc[list(OPEN)] == "not tested").all()
    assert (found.drop(list(OPEN)) == "holds").all()


def test_the_maximum_of_a_curve_is_that_of_all_its_rounds(paper):
    [task] = next(c.tasks for c in paper.cells if (c.item, c.method, c.metric) == ("fig2", "fedsimsup", "last_tenth"))
    found = [(t, "before", [40 + t + 9 * (t == 7)]) for t in range(1, 11)]  # no number of the item has round 7
    one = paper.replace(rows={(task.name, 0): row(task.name, 0, *found, n_test=[100], config={"tune_epochs": 0})})
    assert "(red) rises by 5.0 points from 5 to 10 rounds; its maximum, 56.0 %, is at 7." in one.says("fig2")


def test_shorter_training_than_printed_decides_no_claim(paper, numbers):
    def told(one, *claims):
        return one.ledger().set_index("id").loc[[*claims], ["verdict", "stand_in"]].to_numpy().tolist()

    both, moves = pd.concat([numbers, numbers]), ("supervisor_moves", "fedsimsup", "cifar10", "with=gain")
    whole, one = (with_numbers(paper, both, **training) for training in ({}, paper.training))
    assert told(one, "fs04", "fs14") == [["consistent so far", "100 of 1,000 rounds"]] * 2
    assert told(whole, "fs04", "fs14") == [["holds", ""]] * 2
    of_moves = with_numbers(paper, given(*[(*moves, "rank correlation", -0.5)] * 2), **paper.training)
    assert told(of_moves, "fs18") == [["undecided", "30 of 1,000 rounds"]]
    assert study("fedsimsup", "quick").training == {}
    shortened = [one.shortened(item) for item in ("table1", "table1_text", "fig1")]
    assert shortened == [", with 100 of 1,000 rounds", "", ""]  # by the text, CIFAR-100 has all rounds


def test_one_column_behind_refutes_the_first_claim_and_a_missing_rival_leaves_it_open(paper, numbers):
    behind = changed(numbers, 60.0, "table1", "fedsimsup", "cifar10", "clients=50;dir=0.5")
    assert verdicts(paper, behind)["fs01"] == "refuted"
    some = numbers[numbers["method"].isin(MAIN)]
    assert verdicts(paper, some)["fs01"] == "not tested"
    assert verdicts(paper, behind[behind["method"].isin(MAIN)])["fs01"] == "refuted"  # behind one is behind the best
    here = numbers[numbers["dataset"] == "cifar10"]
    assert verdicts(paper, here)[["fs01", "fs04", "fs08", "fs12"]].tolist() == ["consistent so far"] * 4
    assert verdicts(paper, here)["fs02"] == "not tested"


@pytest.mark.parametrize(
    ("ahead", "rivals", "verdict"),
    [
        ([True] * 8, METHODS, "refuted"),
        ([True] * 7 + [False], METHODS, "holds"),
        ([False] * 8, METHODS, "refuted"),
        ([True, False], METHODS, "holds"),
        ([True, True], METHODS, "consistent so far"),  # six columns are open
        ([False, False], METHODS, "consistent so far"),
        ([True] * 8, MAIN, "not tested"),  # four rivals are open
    ],
)
def test_not_always_best_needs_one_column_of_each_kind(paper, ahead, rivals, verdict):
    values = [
        ("table2", method, *column, "accuracy", 80.0 + (1 if own else -1) * (method == "fedsimsup"))
        for column, own in zip(PATHOLOGICAL, ahead, strict=False)
        for method in rivals
    ]
    assert verdicts(paper, given(*values))["fs06"] == verdict


def test_some_gain_from_a_transformer_and_mixing_costs(paper, numbers):
    t = numbers["method"] == "fedsimsup-t"
    low = numbers.assign(value=numbers["value"].where(~t, 20.0))
    assert verdicts(paper, low)["fs15"] == "refuted"
    few = low[low["dataset"] == "cifar10"]
    assert verdicts(paper, few)["fs15"] == "not tested"  # it may be right elsewhere
    whole = numbers["method"] == "fedsimsup-whole"
    assert verdicts(paper, numbers.assign(value=numbers["value"] - 1 * whole))["fs14"] == "refuted"  # 6.28 + 1
    assert verdicts(paper, numbers.assign(value=numbers["value"] + 1 * whole))["fs13"] == "refuted"  # 0.64 - 1


def test_the_lead_is_lost_where_bounds_allow_to_say_so(paper, numbers):
    in_2 = numbers["item"] == "table2"
    gone = numbers[~in_2 | numbers["method"].isin(MAIN)]
    assert verdicts(paper, gone)["fs08"] == "holds"  # the rivals that are missing can only lower the lead in Table 2
    higher = gone.assign(value=gone["value"] + 9 * ((gone["item"] == "table2") & (gone["method"] == "fedsimsup")))
    assert verdicts(paper, higher)["fs08"] == "not tested"  # the rivals that are missing may be as good
    all_of_it = numbers.assign(value=numbers["value"] + 9 * (in_2 & (numbers["method"] == "fedsimsup")))
    assert verdicts(paper, all_of_it)["fs08"] == "refuted"


def test_similarities_are_judged_where_class_shares_are_equal_and_described_with_their_partitions(paper):
    def measured(distinct, equal, fine):
        place, pat = ("similarity", "partition", "cifar10"), "clients=100;pat=2"
        values = (pat, "distinct", distinct), (pat, "equal shares", equal), ("clients=100;dir=0.1", "distinct", fine)
        return given(*((*place, *value) for value in values))

    assert verdicts(paper, measured(3, 1, 500))["fs07"] == "consistent so far"
    assert verdicts(paper, measured(4, 1, 500))["fs07"] == "refuted"
    assert verdicts(paper, measured(3, 1, 20))["fs07"] == "refuted"
    assert verdicts(paper, measured(9, 0, 500))["fs07"] == "not tested"
    dirichlet_only = given(("similarity", "partition", "cifar10", "clients=100;dir=0.1", "distinct", 500))
    assert verdicts(paper, dirichlet_only)["fs07"] == "not tested"  # whether class shares are equal is unknown
    other = with_numbers(paper, given(("similarity", "partition", "cifar10", "clients=100;pat=5", "distinct", 5.0)))
    assert other.says("similarity") == ""  # without the partitions that are drawn


def test_similarities_of_unequal_class_shares_leave_no_case_open(paper):
    def measured(equal):  # 50 clients with 5 of 100 classes each: some classes have two owners, others three
        for name, classes in {"cifar10": (2, 5), "cifar100": (5, 20)}.items():
            for n in (50, 100):
                yield name, f"clients={n};dir=0.1", "distinct", 500
                for c in classes:
                    odd = (name, n, c) == ("cifar100", 50, 5)
                    yield name, f"clients={n};pat={c}", "distinct", 34 if odd else c + 1
                    yield name, f"clients={n};pat={c}", "equal shares", equal if odd else 1

    unequal, even = (given(*(("similarity", "partition", *value) for value in measured(equal))) for equal in (0, 1))
    assert (verdicts(paper, unequal)["fs07"], verdicts(paper, even)["fs07"]) == ("identity", "refuted")


def test_maps_of_different_regions_have_a_low_correlation_and_a_large_one_alone_does_not_cover_the_object(paper):
    large = {"area s": 0.5, "area theta": 0.1}
    for claim, numbers, verdict in (
        ("fs16", {"correlation": 0.6}, "holds"),
        ("fs16", {"correlation": 0.8}, "refuted"),
        ("fs17", large, "consistent so far"),
        ("fs17", large | {"kept": 0.4, "kept, another image": 0.7}, "holds"),
        ("fs17", large | {"kept": 0.7, "kept, another image": 0.7 - 1e-3}, "refuted"),
    ):
        values = given(*(("fig4", "fedsimsup", "cifar10", "class=cat", *own) for own in numbers.items()))
        assert verdicts(paper, values)[claim] == verdict


@pytest.mark.parametrize(("strong", "weak", "verdict"), [(1.0, 2.0, "holds"), (2.0, 1.0, "refuted")])
def test_curves_must_be_more_restless_where_the_skew_is_weaker(paper, strong, weak, verdict):
    places = product(("cifar10", "cifar100"), {"dir=0.1": strong, "dir=0.5": weak}.items())
    values = [("fig2", "fedsimsup", name, skew, "fluctuation", value) for name, (skew, value) in places]
    assert verdicts(paper, given(*values))["fs11"] == verdict


def test_grad_cam_is_captums():
    for network in ("lenet4", "lenet5_plain"):
        net = build(network, MODELS[network], (3, 32, 32), 10, 0).net.eval()
        x, y = torch.randn(4, 3, 32, 32), torch.arange(4)
        there = LayerGradCam(net, net.conv2[1]).attribute(x, target=y, relu_attributions=True).detach()[:, 0]
        assert torch.allclose(grad_cam(net, x, y), there / there.amax((1, 2), keepdim=True).clamp(min=1e-12), atol=1e-5)


def test_movement_is_correlated_from_the_second_time_on_and_within_clients():
    early = [(client, 1.0, 9.0, 0.0, 0.0) for client in (0, 1)]  # first time: left out
    late = [(0, 1.0, k, 0.0, 1.0 + k) for k in (1.0, 2.0, 3.0)] + [(1, 1.0, 10.0 * k, 0.0, -k) for k in (1.0, 2.0, 3.0)]
    late.append((0, 1.0, 0.0, 0.0, 99.0))  # nobody has moved its theta
    found = correlations(comparable(early + late, np.array([5, 7])))
    assert found["records"] == 6
    assert found["gain within clients"] == pytest.approx(0.0)
    assert found["gain"] < 0
    assert "received loss" not in found  # it never changed
    assert found["better on train"] == 100.0


def test_upload_shares_follow_the_servers_steps():
    counts = np.array([[8, 0], [8, 0], [0, 8]])
    found = shares_by_class(counts, [np.array([0, 2])])
    assert found["main"] == [0, 0, 1]
    assert found["authors"]["s_ij"][1] == [0.5, 0.0, 0.0]  # only from the one that is alike
    assert found["authors"]["equal"][1] == [0.25, 0.0, 0.25]
    assert (found["s_ij"], found["equal"]) == (100.0, 50.0)
    assert "equal" not in shares_by_class(counts, [np.arange(3)])  # nobody is away, nobody receives


def test_runs_of_both_protocols_keep_what_their_tables_read(paper):
    cells = [cell for cell in paper.cells if cell.item.startswith("table") and cell.dataset == "cifar10"]
    keeps = {(cell.item, cell.method, cell.setting): cell.tasks[0].keep for cell in cells}
    mixed = {keeps[table, "fedsimsup-t", "clients=50;dir=0.5"] for table in ("table3", "table3_inferred")}
    assert mixed == {sizes.supervisors}
    assert keeps["table1", "fedsimsup", "clients=100;dir=0.1"] is sizes.diverged  # Grad-CAM examines that of the text
    assert keeps["table1_text", "fedsimsup", "clients=100;dir=0.1"].func is gradcam.both_networks
    for small in (study("fedsimsup", profile) for profile in ("quick", "smoke")):  # with the text's settings
        tasks = [cell.tasks[0] for cell in small.cells if cell.item in ("table1", "fig2")]
        assert {(task.model, task.setting.get("statistics")) for task in tasks} == {("lenet5_plain", None)}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    return done(study("fedsimsup", "smoke", seeds=1), tmp_path_factory.mktemp("smoke"))


def test_what_rows_keep_and_measurements_give(smoke):
    found = smoke.measured()
    assert len(found) == len(smoke.cells)
    assert found[found["item"] == "table3"]["value"].notna().all()  # all three kinds of supervisors were drawn

    def value(item, metric, setting=""):
        return found[(found[["item", "metric", "setting"]] == [item, metric, setting]).all(axis=1)]["value"].item()

    assert all(0 < value("fig4", f"area {name}", "class=all") < 1 for name in ("theta", "s"))
    assert value("supervisor_moves", "records") > 0
    assert (found[(found["item"] == "separate_networks") & (found["metric"] == "accuracy")]["value"] > 0).all()
    assert found[found["setting"] == "network=l"]["value"].tolist() == [10_318, 11_778, 8_074]
    assert judged(smoke, found)["verdict"][["fs19", "fs20"]].tolist() == ["identity", "identity"]
    assert all(len(str(row.facts)) < 60_000 for row in smoke.rows.values())


# -- items ----------------------------------------------------------------------------------------------------------
def test_every_item_draws_and_speaks_with_all_rows_and_with_some(smoke):
    all_drawn_and_said(smoke, "fig1", "fig4")  # no answer may be right after two rounds


def test_chance_and_panels_are_of_the_data_that_were_used(smoke):
    own = pd.DataFrame({"dataset": "cifar100", "setting": ["clients=50;pat=20", "clients=50;dir=0.1"]})
    assert [chance(own.iloc[[k]]) for k in (0, 1)] == [5, 1]
    for name, words, guess in (("table1", "Dir(0.5)", 10.0), ("table2", "2 classes each", 50.0)):
        [ax] = smoke.figure(name).axes
        assert ax.get_title(loc="left") == f"digit_styles for CIFAR-10, {words}, 12 clients"
        assert [guess, guess] in [list(line.get_xdata()) for line in ax.lines]


def test_printed_numbers_stand_beside_a_control_but_not_beside_numbers_of_other_data(paper):
    place = "clients=100;dir=0.1"
    keys = [("network", m, "cifar10", f"{place};network=lenet4;accuracy=samples", "accuracy", 50.0) for m in MAIN]
    measured = with_printed(with_numbers(paper, given(*keys)).numbers("network"))
    printed = reported("fedsimsup").query("item == 'table1' and dataset == 'cifar10' and setting == @place")
    assert measured["paper"].tolist() == printed.set_index("method")["mean"][list(MAIN)].tolist()
    small, setting = study("fedsimsup", "quick"), "clients=50;dir=0.1;network=lenet4;accuracy=samples"
    other = with_numbers(small, given(("network", "local_only", "cifar10", setting, "accuracy", 50.0)))
    assert with_printed(other.numbers("network"))["paper"].isna().all()


@pytest.mark.parametrize("sign", [1, -1])
def test_sentences_turn_with_the_numbers(paper, sign):
    maps = {"correlation": 0.4, "with another image": 0.1, "kept, theta": 0.5, "kept": 0.7, "kept, another image": 0.7}
    maps["kept"] -= 0.2 * sign
    moves = {"with=gain": 0.3 * sign, "with=received loss": 0.2}
    shares = {"weights=s_ij": 20.0 + 10 * sign, "weights=equal": 10.0, "weights=chance": 9.0}
    one = with_numbers(
        paper,
        given(
            *(("fig4", "fedsimsup", "cifar10", "class=all", *own) for own in maps.items()),
            *(("supervisor_moves", "fedsimsup", "cifar10", where, "rank correlation", r) for where, r in moves.items()),
            *(("upload_shares", "fedsimsup", "cifar10", where, "percent", r) for where, r in shares.items()),
        ),
    )
    assert ("matters more than" if sign > 0 else "matters no more than") in one.says("fig4")
    assert (", as the paper" if sign > 0 else ", unlike what the paper") in one.says("supervisor_moves")
    assert ("similarity weights raise" if sign > 0 else "hardly change") in one.says("upload_shares")


def test_a_run_that_diverges_has_a_row(monkeypatch, tmp_path):
    """At the paper's step size FedRep is lost now and then (reading A11); the row names the round."""
    smoke = study("fedsimsup", "smoke")
    task = next(cell.tasks[0] for cell in smoke.cells if cell.method == "fedrep" and cell.item == "table2")
    wild = task._replace(setting={**task.setting, "lr": 1e18})
    with pytest.warns(UserWarning, match="the loss is not finite from round 1 on"):
        facts = runner.perform(Job("fedsimsup", wild, 0), tmp_path / "store")
    rows.write("fedsimsup", facts, tmp_path / "rows")
    [row] = rows.read("fedsimsup", tmp_path / "rows").values()
    assert row.kept["diverged"] == 1
    assert row.facts["evaluations"][-1]["loss"] is None
    assert np.isfinite(row.score())
    assert row.diverged == row.facts["evaluations"][0]["round"]


def test_a_run_that_diverges_has_no_number_and_is_named(paper):
    """It is neither measured nor a rival in a claim; a loss that becomes finite again does not count as lost."""
    cells = [cell for cell in paper.cells if (cell.item, cell.dataset) == ("table1", "cifar10")]
    of = {(cell.method, cell.setting): cell.tasks[0].name for cell in cells}
    strong = "clients=50;dir=0.1"

    def with_losses(name, seed, *losses):
        evaluations = [(3 * k, "before", [20, 30], loss) for k, loss in enumerate(losses, 1)]
        return row(name, seed, *evaluations, n_test=[20, 30])

    found = [
        with_losses(of["fedrep", strong], 0, 1.0, None, None),
        with_losses(of["fedrep", strong], 1, 1.0, None, 2.0),
        with_losses(of["fedavg", strong], 0, None, None),
        with_losses(of["fedavg", "clients=100;dir=0.5"], 0, 1.0, 1.0),
        with_losses(of["fedsimsup", strong], 0, 1.0),
        with_losses(of["fedrep", strong], 2, None),
    ]
    one = paper.replace(rows={(row.task, row.seed): row for row in found})
    measured = one.measured()
    table = measured[measured["item"] == "table1"]
    assert sorted(table[["method", "setting", "seed"]].itertuples(index=False, name=None)) == [
        ("fedavg", "clients=100;dir=0.5", 0),
        ("fedprox", "clients=100;dir=0.5", 0),  # the run of FedAvg
        ("fedrep", strong, 1),
        ("fedsimsup", strong, 0),
    ]
    told = "FedAvg, CIFAR-10, 50 clients, Dir(0.1), seed 0 (round 3); FedRep, CIFAR-10, 50 clients, "
    told += "Dir(0.1), seed 0 (round 6); FedRep, CIFAR-10, 50 clients, Dir(0.1), seed 2 (round 3)."
    assert one.says("table1").endswith(told)
    assert told in one.differences().set_index("item").loc["table1", "says"]
    drawn = {*one.curves("table1")[["method", "seed"]].itertuples(index=False, name=None)}
    assert drawn == {("fedavg", 0), ("fedprox", 0), ("fedrep", 1), ("fedsimsup", 0)}
    assert len(one.curves("table1", diverged=True).query("method == 'fedrep'")) == 3 + 3 + 1
    claim = one.ledger().set_index("id").loc["fs05"]  # its rivals share a run, which was lost
    assert claim["verdict"] == "not tested"
    assert "(round" not in paper.replace(rows={(row.task, row.seed): row for row in found[3:5]}).says("table1")


@pytest.mark.parametrize("column", ["clients=100;dir=0.1", "clients=100;dir=0.5"])
def test_the_long_control_reads_one_run_of_the_papers_length(paper, column):
    """The mean of the last five evaluations up to a round, pooled over samples, and the extremes of the last fifth."""
    own = [cell for cell in paper.cells if (cell.item, cell.method) == ("longer_training", "fedavg")]
    own = [cell for cell in own if cell.setting.partition(";round=")[0] == column]
    [name] = {cell.tasks[0].name for cell in own}
    right = np.random.default_rng(3).integers(0, 10, (100, 2))
    evaluations = [(10 * k, "before", [a, 3 * b]) for k, (a, b) in enumerate(right, 1)]
    one = row(name, 0, *evaluations, n_test=[10, 30])
    pooled = [100 * (a + 3 * b) / 40 for a, b in right]
    means = {int(cell.setting.partition("round=")[2]): cell.read(one) for cell in own if cell.metric == "accuracy"}
    assert means == {10 * k: pytest.approx(np.mean(pooled[k - 5 : k])) for k in range(10, 101, 10)}
    ends = {cell.metric: cell.read(one) for cell in own if cell.metric != "accuracy"}
    assert ends == {"lowest": pytest.approx(min(pooled[80:])), "highest": pytest.approx(max(pooled[80:]))}


def test_where_the_classifier_has_one_epoch_anyway_that_is_no_step_to_fedpac():
    for profile in ("quick", "smoke"):
        small = [cell for cell in study("fedsimsup", profile).cells if cell.item == "fedrep_to_fedpac"]
        assert [cell.setting.partition(";step=")[2] for cell in small] == [STEPS[0], *STEPS[2:]]
        assert len({cell.tasks[0].name for cell in small}) == 3


def test_classifiers_that_are_trained_again_are_tested_after_that(paper):
    usual, again = [cell for cell in paper.cells if cell.item == "fine_tuned_classifiers"][:2]
    right = [0, 0, 0, 0, 0, 2, 3, 5, 7, 8]
    evaluations = [(10 * k, "before", [9, 30]) for k in range(1, 11)]
    evaluations += [(10 * k, "after", [n, 2 * n]) for k, n in enumerate(right, 1)]
    made = row("", 0, *evaluations, n_test=[10, 30])  # reported before fine-tuning, as FedRep is
    assert again.read(made) == pytest.approx(100 * 3 * np.mean(right[-5:]) / 40)
    assert usual.read(made) == pytest.approx(100 * 39 / 40)


COLUMN = Column("cifar10", 50, "dir", 0.5)


@pytest.fixture
def tiny(monkeypatch):
    images = {"cifar10": Images("digits", (("copies", 1),), train=90)}
    sizes = QUICK._replace(data=images, clients={50: 6}, dirichlet={"cifar10": (0.5,)}, join_ratio=0.5, theta_epochs=1)
    sizes = sizes._replace(batch_size=24, moves_rounds=3)
    monkeypatch.setitem(PROFILES, "tiny", sizes)
    return sizes


def task_of(sizes, rounds):
    return run(sizes, COLUMN, fl.fedsimsup("small_lenet", 1), rounds)


def hits(task, seed, correct, n_test=(10,), **facts):
    evaluations = [(t, "before", right) for t, right in enumerate(correct, 1)]
    return row(task.name, seed, *evaluations, n_test=n_test, **facts)


def test_the_line_with_the_weights_ends_where_the_runs_with_similarities_end():
    small, ends = study("fedsimsup", "smoke"), {"True": [6, 8], "False": [3, 5]}
    tasks = {cell.setting.split("similarity=")[1][:5]: cell.tasks[0] for cell in small.cells if cell.item == "fig3"}
    rows = {(tasks[k].name, seed): hits(tasks[k], seed, [[1], [end]]) for k in ends for seed, end in enumerate(ends[k])}
    [ax] = small.replace(rows=rows).figure("fig3").axes
    ends_at = {text.get_text(): text.xy[1] for text in ax.texts}
    assert ends_at == {"weights $s_{ij}$": 70, "all $s_{ij}=1$": 40, "chance": 10}
    colours = {text.get_text(): text.get_color() for text in ax.texts}
    assert (colours["weights $s_{ij}$"], colours["all $s_{ij}=1$"]) == (RED, "black")  # as the sentence says


def test_a_kind_of_supervisor_gains_over_the_same_clients_and_rounds():
    cells = {cell.method: cell for cell in study("fedsimsup", "smoke").cells if cell.item == "table3_paired"}
    mixed, original = cells["fedsimsup-t"].tasks
    n_test, kept = (10, 30, 20), {"t": [0, 2], "c": [1]}
    rows = hits(mixed, 0, [[4, 24, 8]], n_test, kept=kept), hits(original, 0, [[2, 27, 7], [9, 3, 18]], n_test)
    assert mixed.rounds == 1 < original.rounds
    assert [cells[f"fedsimsup-{kind}"].read(*rows) for kind in "tcl"] == pytest.approx([10, -10, np.nan], nan_ok=True)


def test_maps_are_compared_with_those_of_the_other_network_for_another_image(monkeypatch):
    theta = np.array([[0.9, 0.1, 0.2, 0.3], [0.8, 0.7, 0.0, 0.1], [0.0, 0.3, 1.0, 0.9]], np.float32)
    s = np.array([[0.6, 0.0, 0.1, 0.4], [0.2, 0.9, 0.0, 0.8], [0.3, 0.1, 0.2, 0.7]], np.float32)
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(4, 2)) for _ in range(2)]
    own = [{"1.weight": torch.zeros(2, 4), "1.bias": torch.zeros(2)} for _ in range(2)]
    own[0]["1.weight"][0, 0], own[1]["1.bias"][1] = 1, 0.5  # class 0 where the first pixel is seen
    maps = {0.0: torch.from_numpy(theta), 0.5: torch.from_numpy(s)}
    monkeypatch.setattr(gradcam, "grad_cam", lambda net, x, y: maps[net[1].bias[1].item()].view(3, 2, 2))
    two = SimpleNamespace(networks=[SimpleNamespace(net=net) for net in nets])
    batch = SimpleNamespace(x=torch.ones(3, 1, 2, 2), y=torch.zeros(3, dtype=torch.int64))
    pixels = SimpleNamespace(batch=lambda index, model: batch)
    table = gradcam.on_client(own, two, pixels, np.array([5, 7, 9]), np.array([0, 4]))
    other = s[[2, 0, 1]]
    for name, there in (("correlation", s), ("with another image", other)):
        expected = [np.corrcoef(a, b)[0, 1] for a, b in zip(theta, there, strict=True)]
        np.testing.assert_allclose(table[name], expected, atol=1e-6)
    assert (table["area theta"].tolist(), table["area s"].tolist()) == ([0.25, 0.5, 0.5], [0.25, 0.5, 0.25])
    np.testing.assert_allclose(table["overlap"], [1, 1 / 3, 1 / 2])
    assert (table["kept, theta"].tolist(), table["kept"].tolist()) == ([0, 0, 1], [0, 1, 1])
    assert table["kept, another image"].tolist() == [1, 0, 1]
    np.testing.assert_array_equal(np.stack(table["maps"]).reshape(3, 3, 4), np.stack([theta, s, other], 1))
    assert table[["both", "theta", "s"]].to_numpy().tolist() == [[True, True, False]] * 3
    assert table[["own both", "own theta", "own s", "main s"]].to_numpy().tolist() == [[False, False, True, True]] * 3


def test_gains_are_over_the_model_that_the_client_sent_when_it_last_took_part(tiny):
    points = np.array(supervisor_moves(36, "tiny")["points"])
    federation = task_of(tiny, 3).arguments(36)["federation"]
    pixels = on_device(federation.data, torch.device("cpu"))
    after = [None, *(fl.run(**task_of(tiny, t).arguments(36), progress=False) for t in (1, 2, 3))]
    two = after[1].architectures[0].model

    def loss(i, theta, s):
        batch = pixels.batch(torch.from_numpy(federation.train[i]), two)
        logits = [functional_call(one.net, own, batch.x) for one, own in zip(two.networks, (theta, s), strict=True)]
        return F.cross_entropy(sum(logits), batch.y).item()

    expected = []
    for i in (4, 5):  # sampled: 3 4 5, then 0 2 3, then 3 4 5; the server leaves alone what client 3 has sent
        theta, s = after[2].weights(i)
        received, moved = loss(i, theta, s), after[3].weights(i).s
        gain = loss(i, after[1].weights(i).theta, s) - received
        expected.append([received, gain, sum((moved[name] - s[name]).square().sum().item() for name in s) ** 0.5])
    np.testing.assert_allclose(points, expected, atol=1e-4)


def test_similarities_are_those_of_the_clients_of_the_runs(tiny):
    counts = task_of(tiny, 1).arguments(0)["federation"].train_counts
    assert counts.sum() == 90
    found = similarities(0, "tiny", *COLUMN)
    assert found["counts"] == counts.tolist()
    unit = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[np.triu_indices(6, 1)]
    assert found["median"] == pytest.approx(np.median(cosines), abs=1e-3)
    assert found["zero"] == pytest.approx(100 * np.mean(cosines == 0))
    assert found["share of top class"] == pytest.approx(np.mean(counts.max(1) / counts.sum(1)))


@pytest.mark.parametrize(("early", "late", "verdict"), [(-1, 1, "holds"), (1, 1, "refuted"), (-1, -1, "refuted")])
def test_behind_at_the_start_and_ahead_at_the_end(paper, early, late, verdict):
    values = [
        ("fig2", m, "cifar100", f"dir={a}{at}", metric, 50.0 + by * (m == "fedsimsup"))
        for at, metric, by in ((";round=50", "accuracy", early), ("", "last_tenth", late))
        for a in (0.1, 0.5)
        for m in METHODS
    ]
    assert verdicts(paper, given(*values))["fs10"] == verdict


def test_lines_lie_between_clients_of_different_main_classes():
    draw_matrix(ax := plt.subplots()[1], np.eye(5), [0, 0, 1, 1, 4])
    upright = [line.get_xdata()[0] for line in ax.lines if line.get_xdata()[0] == line.get_xdata()[1]]
    assert (upright, len(ax.lines)) == ([1.5, 3.5], 4)
    labels = {tick: text.get_text() for tick, text in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True)}
    assert labels == {0.5: "0", 2.5: "1", 4: "4"}


def test_a_dot_is_blue_where_the_received_model_has_a_lower_loss(paper):
    kept = {"gain": 0.1, "received loss": 0.2, "points": [[1.0, 0.5, 2.0], [1.5, -0.5, 1.0], [0.5, 0.25, 0.5]]}
    left, right = with_kept(paper, "supervisor_moves", kept).figure("supervisor_moves").axes
    assert [to_hex(own).upper() for own in left.collections[0].get_facecolors()] == [BLUE, GREY, BLUE]
    places = [ax.collections[0].get_offsets()[:, 0].tolist() for ax in (left, right)]
    assert places == [[0.5, -0.5, 0.25], [1.0, 1.5, 0.5]]
    assert {text.get_text(): text.get_color() for text in left.texts} == {"lower loss": BLUE, "higher loss": GREY}


COLUMN_1 = "cifar10", "clients=100;dir=0.1"


def test_the_change_from_fedrep_to_fedpac_stands_beside_the_printed_one(paper):
    data, column = COLUMN_1
    own = [c for c in paper.cells if (c.item, c.dataset) == ("fedrep_to_fedpac", data) and c.setting.startswith(column)]
    rows = {(c.tasks[0].name, 0): hits(c.tasks[0], 0, [[n]]) for n, c in enumerate(own, 4)}  # 40, 50, 60 and 70 %
    mean = reported("fedsimsup").query("item == 'table1' and dataset == @data and setting == @column")
    mean = mean.set_index("method")["mean"]
    says = paper.replace(rows=rows).says("fedrep_to_fedpac").replace("\N{MINUS SIGN}", "-")
    assert f"+30.0 points in one pair of runs (printed {mean['fedpac'] - mean['fedrep']:+.1f})" in says


def test_controls_of_table_1_name_what_varies_most_and_what_was_trained_again(paper):
    data, column = COLUMN_1
    numbers = []
    for method, lowest, highest in (("fedavg", 50.0, 60.0), ("fedrep", 70.0, 72.0)):
        own = ("", "lowest", lowest), ("", "highest", highest), (";round=100", "accuracy", lowest)
        own += ((";round=1000", "accuracy", highest),)
        numbers += [("longer_training", method, data, column + at, *number) for at, *number in own]
    for classifier, value in (("as it is", 50.0), ("trained again", 60.0)):
        setting = f"{column};classifier={classifier}"
        numbers.append(("fine_tuned_classifiers", "fedrep", data, setting, "accuracy", value))
    one = with_numbers(paper, given(*numbers))
    assert "FedAvg varies most, by 10.0 points" in one.says("longer_training")
    assert "60.0 % with fine-tuning, 50.0 % without" in one.says("fine_tuned_classifiers")


TWO_KINDS = {  # part of the setting, method, column, and the words for both kinds
    "outer_step": ("beta", "perfedavg", "clients=50;dir=0.1", {"0.1": "outer step 0.1", "0.001": "outer step 0.001"}),
    "participation": (
        "participants",
        "fedavg",
        "clients=50;dir=0.5",
        {"usual": "usual number", "twice": "twice as many"},
    ),
    "shards": ("partition", "fedrep", "clients=50;pat=5", {"classes": "exact numbers", "shards": "random shards"}),
}


@pytest.mark.parametrize("control", TWO_KINDS)
def test_a_control_of_two_kinds_of_runs_tells_them_apart(paper, control):
    part, method, column, words = TWO_KINDS[control]
    own = reported("fedsimsup").query("method == @method and setting == @column and dataset == 'cifar10'")
    [printed] = own["mean"]
    for near, far in (words, reversed(words)):
        values = {near: printed + 2, far: printed - 7}
        at = {kind: (control, method, "cifar10", f"{column};{part}={kind}", "accuracy") for kind in words}
        one = with_numbers(paper, given(*((*key, values[kind]) for kind, key in at.items())))
        first, second = one.says(control).split(" than ")
        assert words[near] in first
        assert words[far] in second
        [ax] = one.figure(control).axes
        names = [text.get_text() for text in ax.get_yticklabels()]
        drawn = {word: [text.get_text() for text in ax.texts if word in names[text.xy[1]]] for word in words.values()}
        assert drawn == {word: [f"{values[kind]:.1f}"] for kind, word in words.items()}


def test_matrices_of_clients_are_in_the_order_of_main_classes_and_have_their_own_share_of_similar_clients(paper):
    kept = {"counts": [[0, 5], [4, 1], [3, 0]], "distinct": 3, "zero": 0.0}
    figure = with_kept(paper, "fig5", kept).figure("similarity")
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["0", "1"]
    authors = dict.fromkeys(("s_ij", "equal"), np.eye(2).tolist())
    kept = {"s_ij": 30.0, "equal": 10.0, "chance": 9.0, "main": [0, 1], "s": np.eye(2).tolist(), "authors": authors}
    axes = with_kept(paper, "upload_shares", kept).figure("upload_shares").axes
    assert ["equal" in ax.get_title() for ax in axes[1:3]] == [False, True]
    assert [ax.get_xlabel() for ax in axes[1:3]] == ["from similar clients: 30 %", "from similar clients: 10 %"]
