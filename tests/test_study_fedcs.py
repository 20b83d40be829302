"""FedCS: its cells, what its measurements give, the verdicts on its claims, its figures and sentences."""

import json
import math
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import studies
import torch
from matplotlib import pyplot as plt
from studies import given, judged, row, verdicts, with_numbers

import fedlib as fl
from fedlib.methods.fedcs.alignment import scatters
from fedlib.papers.fedcs import controls, feature_map, sizes
from fedlib.papers.fedcs.diagnosis import COLUMNS, aligned_on, diagnose, j_ratio, latents, metrics_of
from fedlib.papers.fedcs.groups import domain_names, domain_of, group_number
from fedlib.papers.fedcs.scores import KINDS, kind, named, score, training_and_unseen
from fedlib.papers.fedcs.sizes import OURS, QUICK, WHITE
from fedlib.report.panels import dumbbell_panels
from fedlib.report.paper import KEY, reported
from fedlib.studies import rows
from fedlib.studies.runner import missing
from fedlib.studies.study import settled, study
from fedlib.studies.tasks import Images, Probe, Run
from fedlib.training import on_device

STUDY = study("fedcs", "paper")
PAPER = studies.official(STUDY)
LABEL = ("cifar10", "label-shift")


def as_printed():
    """The paper's numbers, and its standard deviations over clients, with both protocols."""
    numbers = {}
    for one, protocol in product(reported("fedcs").itertuples(), ("", "_text")):
        key = f"{one.item}{protocol}", one.method, one.dataset, one.setting
        numbers |= {(*key, one.metric): one.mean, (*key, f"{one.metric}_std"): one.std}
    return numbers


def frame(numbers):
    return given(*((*key, value) for key, value in numbers.items()))


def verdict(claim, numbers, one=PAPER):
    return verdicts(one, frame(numbers))[claim]


def test_at_the_papers_size_other_digits_stand_in_for_digit5_and_nothing_for_other_data():
    for profile in ("paper", "quick"):
        tasks = [task for cell in study("fedcs", profile).cells for task in cell.tasks if cell.item == "table2"]
        assert {task.images.stands_for for task in tasks} == {"" if profile == "paper" else "cifar10"}
    for cell in STUDY.cells:
        assert bool(cell.official) == (cell.dataset == "digit5")
        for other, own in zip(cell.tasks, cell.official, strict=bool(cell.official)):
            assert own.images == Images("digit5")
            assert (other.images.name, other.images.stands_for) == ("digit5", "digit5")
            assert len(dict(other.images.options)["domains"]) == 5
            if isinstance(other, Run):
                assert studies.differences(other, own).keys() == {"options", "stands_for"}
            else:
                assert sizes.PROFILES[other.arguments[0]].data["digit5"] == other.images


def test_once_digit5_itself_has_been_run_as_far_nothing_stands_in_for_it_any_more():
    pairs = {c.method: (c.tasks[0].name, c.official[0].name) for c in STUDY.cells if c.item == "fig8"}

    def after(*names):
        return settled(STUDY.cells, {(name, 0): row(name) for name in names})

    (fedrep, own_fedrep), (fedbn, own_fedbn) = pairs["fedrep"], pairs["fedbn"]
    for names in ((), (fedrep,), (fedrep, fedbn), (fedrep, fedbn, own_fedrep)):
        assert after(*names) == STUDY.cells
    for names in ((own_fedrep,), (fedrep, own_fedrep), (fedrep, own_fedrep, own_fedbn)):
        assert not any(cell.official for cell in after(*names))
        assert [cell.tasks for cell in after(*names)] == [cell.official or cell.tasks for cell in STUDY.cells]


def test_where_digit5_is_its_runs_are_missing_too_after_those_that_stand_in(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    x, y = np.zeros((20, 8, 8), np.uint8), np.arange(20) % 10
    for name in ("mnist", "mnist_m", "usps", "printed_digits"):
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    ran = []
    monkeypatch.setattr("fedlib.studies.study._run_all", lambda todo, *_: ran.extend(todo) or {})
    todo, own = partial(missing, [STUDY], ["table3"], tmp_path), STUDY.replace(rows={})
    own.run("table3")
    assert {job.task.images.stands_for for job in todo()} == {task.images.stands_for for task, _ in ran} == {"digit5"}
    for name in ("svhn", "synthetic_digits"):
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    ran.clear()
    own.run("table3")
    both = {sizes.PROFILES["paper, other digits"].data["digit5"], Images("digit5")}
    assert {job.task.images for job in todo()} == {task.images for task, _ in ran} == both
    assert len(todo()) == len(ran) == 36  # nine runs twice, two seeds
    order = [(job.task.algorithm.name, job.task.images.stands_for) for job in todo() if job.seed == 0]
    assert all(order.index((name, "digit5")) < order.index((name, "")) for name, _ in order)
    cells = [cell._replace(read=lambda row: 1.0) for cell in STUDY.cells if cell.item == "table3"]
    others = {(cell.tasks[0].name, 0): row(cell.tasks[0].name) for cell in cells}
    assert own.replace(cells=cells, rows=others).items()["missing"].tolist() == [27]  # nine stand in for others


def test_the_verdicts_with_other_digits_are_provisional_and_their_numbers_not_compared_with_print():
    told = judged(STUDY, frame(as_printed()))
    assert told.loc["cs03", "verdict"] == "consistent so far"
    assert told.loc["cs03", "stand_in"].endswith(" for digit5")
    assert told.loc["cs02", "verdict"] == "holds"
    worse = {key: value if key[2] == "digit5" else -value for key, value in as_printed().items()}
    assert verdict("cs07", worse, STUDY) == "refuted"  # by MNIST and CIFAR-10
    table = with_numbers(STUDY, frame(as_printed())).table("table3")
    assert (table["value"].notna() & table["paper"].notna()).sum() == 18
    assert table["difference"].isna().all()


def test_the_printed_numbers_bear_out_the_claims_about_tables():
    found = judged(PAPER, frame(as_printed()))["verdict"].to_dict()
    held = dict.fromkeys(["cs01", "cs02", "cs03", "cs04", "cs06", "cs07", "cs08", "cs11"], "holds")
    noise = dict.fromkeys(["cs05", "cs09"], "undecided")  # CIFAR-10: differences below the error of a mean over clients
    assert found == dict.fromkeys(found, "not tested") | held | noise


def test_inferred_settings_decide_a_claim_only_together_with_the_papers_text():
    def told(*behind):
        one = as_printed() | {(item, "fedbn", *LABEL, "weighted_f1"): 99.0 for item in behind}
        return judged(PAPER, frame(one)).loc["cs02", ["verdict", "protocol", "other_verdicts"]].tolist()

    others = "inferred settings: holds; paper's text: refuted"
    assert told("table2_text") == ["undecided", "inferred settings", others]
    assert told("table2")[::2] == ["undecided", "inferred settings: refuted; paper's text: holds"]
    assert told("table2", "table2_text")[::2] == ["refuted", ""]
    first = frame({key: value for key, value in as_printed().items() if not key[0].endswith("_text")})
    alone = judged(PAPER, first).loc["cs02"]
    assert (alone["verdict"], alone["other_verdicts"]) == ("undecided", "inferred settings: holds")


@pytest.mark.parametrize(
    ("claim", "values", "verdict"),
    [
        ("cs19", {"J ratio": 0.3, "J ratio, later": 0.95}, "refuted"),
        ("cs19", {"J ratio": 0.95, "J ratio, later": 0.3}, "consistent so far"),
        ("cs20", {f"separability of {k}": v for k, v in {"z": 30, "c": 20, "c, later": 60}.items()}, "refuted"),
        ("cs20", {f"separability of {k}": v for k, v in {"z": 30, "c": 40, "c, later": 20}.items()}, "holds"),
    ],
)
def test_the_map_is_judged_as_it_is_at_the_end_of_a_run(claim, values, verdict):
    item, metric = {"cs19": ("eq5", "j_ratio"), "cs20": ("fig1", "separability")}[claim]
    places = product(OURS, sizes.TABLES, values.items())
    found = {(item, method, data, setting, metric): value for method, data, (setting, value) in places}
    assert verdicts(PAPER, frame(found))[claim] == verdict


def test_sizes_are_compared_with_the_printed_means_and_with_the_printed_deviations_over_clients():
    printed, numbers = as_printed(), {}
    for method, images, metric in product(("fedbn", "fedrep"), ("5000", "all"), ("weighted_f1", "weighted_f1_std")):
        near = (images == "5000") == (metric == "weighted_f1")  # one size has the printed means, the other deviations
        key = method, "mnist", f"images={images}"
        numbers["fewer_images", *key, metric] = printed["table1", *key[:2], "label-shift", metric] + (1 if near else 4)
    says = with_numbers(PAPER, frame(numbers)).says("fewer_images")
    assert "the results are nearer to the 2 printed numbers with 5,000 images in all (mean distance 1.0 points)" in says
    start = "for the standard deviation over clients, the results are nearer to the 2 printed numbers with all images"
    assert f"{start} (mean distance 1.0 points) than with 5,000 images in all (4.0)" in says
    keys = product(("mnist", "digit5"), {"classifier": 60.0, "linear layers": 40.0}.items())
    numbers = {("personal_layers", "fedrep", d, f"personal={part}", "weighted_f1"): v for d, (part, v) in keys}
    own = with_numbers(PAPER, frame(numbers)).numbers("personal_layers").replace({"data": {"digit5": "substitutes"}})
    found = controls.with_printed(SimpleNamespace(numbers=lambda name: own, printed=PAPER.printed), "personal_layers")
    assert found["paper"].notna().tolist() == [True, True, False, False]


def test_a_layer_that_was_not_measured_refutes_nothing_where_the_best_one_counts():
    numbers = as_printed()
    for metric in ("weighted_auc", "weighted_f1"):
        numbers["table1", "fedcs-fc1", "mnist", "label-shift", metric] = 50.0
    assert verdict("cs01", numbers) == "holds"
    del numbers["table1", "fedcs-fc3", "mnist", "label-shift", "weighted_auc"]
    del numbers["table1", "fedcs-fc3", "mnist", "label-shift", "weighted_f1"]
    numbers["table1", "fedcs-fc2", "mnist", "label-shift", "weighted_f1"] = 50.0
    assert verdict("cs01", numbers) == "consistent so far"
    assert verdict("cs07", numbers) == "refuted"  # all three count there


def test_the_band_must_be_the_narrowest_of_all():
    numbers = {}
    for item, name in (("fig6", "mnist"), ("fig7", "cifar10"), ("fig8", "digit5")):
        for i, method in enumerate((*sizes.BASELINES, *OURS)):
            key = item, method, name, sizes.SHIFT[name]
            numbers |= {(*key, "accuracy"): 50.0 + i, (*key, "accuracy_std"): 20.0 - i}
    assert verdict("cs16", numbers) == "holds"
    numbers["fig7", "fedcs-fc3", *LABEL, "accuracy_std"] = 17.0  # that of the best: below the median, not the narrowest
    assert verdict("cs16", numbers) == "refuted"
    numbers["fig7", "fedcs-fc1", *LABEL, "accuracy"] = 59.0  # another one is the best, and has a narrow band
    assert verdict("cs16", numbers) == "holds"
    numbers["fig7", sizes.BASELINES[-1], *LABEL, "accuracy"] = 60.0  # the best baseline counts, whichever it is
    assert verdict("cs16", numbers) == "refuted"


def test_a_gap_counts_in_both_directions_and_one_model_is_an_identity_that_a_bit_refutes():
    gaps = {("fig2", m, *LABEL, "gap"): value for m, value in zip(sizes.PANELS, (5.0, -8.0, -4.0), strict=True)}
    assert verdict("cs12", gaps) == "refuted"  # FedBN is better on unseen clients
    assert verdict("cs13", gaps) == "holds"
    assert verdict("cs13", gaps | {("fig2", "fedcs-fc1", *LABEL, "gap"): -6.0}) == "refuted"
    assert verdict("cs13", gaps | {("fig2", "fedbn", *LABEL, "gap"): 3.0}) == "refuted"
    bits = {("sec5", k, "mnist", "label-shift", m): 1.0 for k in OURS for m in ("models", "same_bits")}
    assert verdict("cs21", bits) == "identity"
    assert verdict("cs21", bits | {("sec5", "fedcs-fc2", "mnist", "label-shift", "models"): 50.0}) == "refuted"
    assert verdict("cs21", bits | {("sec5", "fedcs-fc2", "mnist", "label-shift", "same_bits"): 0.0}) == "refuted"


# -- measurements -------------------------------------------------------------------------------------------------
def test_numbers_about_groups_are_read_off_a_row():
    early, late = [0, 10, 20, 30], [[40, 60, 10, 30], [50, 70, 20, 40]]
    kept = {"groups f1 after": [early, *late], "rounds after": [10, 20, 30], "f1 after": [1, None, 3]}
    one = row("task", kept=kept)
    numbers = {key: group_number(key, "f1", "after", 10, one) for key in ("gap", "width", "group=2", "spread")}
    assert numbers == pytest.approx({"gap": 60 - 30, "width": 50, "group=2": 20, "spread": np.std(late[-1])})
    two = np.mean([np.std(groups) for groups in late])
    assert group_number("spread", "f1", "after", 20, one) == pytest.approx(two)
    assert math.isnan(score("f1", "after", one))  # a client's model has diverged
    assert score("f1", "after", one, chosen=np.array([True, False, True])) == 2
    assert domain_of(15).tolist() == [*"0123401234", *["mixed"] * 5]


def test_latents_are_those_of_the_clients_that_train():
    data = fl.load("digits", copies=1)
    few = data.subset(np.arange(0, len(data), 8))
    federation = fl.federate(few, fl.dirichlet(0.5, min_size=5), 5, test_fraction=0.4, unseen=2)
    result = fl.run(fl.fedcs("fc3"), federation, "lenet5_plain", rounds=1, batch_size=8, progress=False)
    net, pixels = result.model.net.eval(), on_device(few, torch.device("cpu"))
    net.load_state_dict(result.state.base.w)
    for part in ("train", "test"):
        own = getattr(federation, part)[:3]
        z, owner = latents(result, federation, part)
        assert np.bincount(owner).tolist() == [len(rows) for rows in own]
        with torch.no_grad():
            there = net[:-1](pixels.batch(torch.from_numpy(np.concatenate(own)), result.model).x)
        torch.testing.assert_close(z, there.double(), atol=1e-5, rtol=1e-5)


def test_further_alignments_weigh_clients_by_their_samples():
    rng = np.random.default_rng(0)
    own = [rng.normal(mean, 3.0, (n, 3)).astype(np.float32) for mean, n in ((0.0, 2), (4.0, 6))]
    S, Phi, z_g = np.diag([0.5, 1.0, 0.8]), np.eye(3), np.ones(3)
    ra = {name: torch.tensor(value).float() for name, value in (("S", S), ("Phi", Phi), ("z_g", z_g), ("P", S @ Phi))}
    hyper = {"steps": "paper", "centred": True, "beta": 0.3}
    config = {"hyper": hyper, "seed": 5, "batch_size": 6, "join_ratio": 1.0}  # one batch, every sample equally often
    result = SimpleNamespace(config=config, state=SimpleNamespace(ra=ra))
    path = aligned_on(result, torch.from_numpy(np.concatenate(own)), torch.tensor([0] * 2 + [1] * 6), 2)
    assert len(path) == 3
    for found in path[1:]:
        returned = []
        for z in own:
            s = S + 0.001 * (np.eye(3) - S @ np.cov(z.T, ddof=0) @ S)
            u = s @ (z.mean(0) - z_g)
            y = Phi.T @ u
            returned.append((s, Phi + 0.001 * (np.outer(u, y) - Phi @ np.triu(np.outer(y, y))), z.mean(0)))
        S, Phi, mean = (0.25 * one + 0.75 * other for one, other in zip(*returned, strict=True))
        Phi, R = np.linalg.qr(Phi)
        Phi, z_g = Phi * np.sign(np.diag(R)), z_g + 0.3 * (mean - z_g)
        for name, value in (("S", S), ("Phi", Phi), ("z_g", z_g)):
            np.testing.assert_allclose(found[name], value, atol=1e-5)


CHEAP = [("fig10", "fedavg", "accuracy"), ("unseen_and_training_clients", "fedcs-fc2", "weighted_f1")]
CHEAP += [("eq12", "fedcs", "cosine"), ("fig5", "partition", "smallest"), ("sec5", "fedcs-fc2", "models")]
CHEAP += [("other_readings", "fedcs-fc2", "j_ratio")]


def test_runs_and_measurements_give_numbers_to_all_their_cells(tmp_path):
    smoke = study("fedcs", "smoke")
    cells = [cell for cell in smoke.cells if cell.dataset != "cifar10"]  # in this profile the same images as for MNIST
    wanted = {task.name for cell in cells if (cell.item, cell.method, cell.metric) in CHEAP for task in cell.tasks}
    small = studies.done(smoke.replace(cells=[cell for cell in cells if cell.tasks[0].name in wanted]), tmp_path)
    assert len(small.rows) == 7
    assert all(rows.path_of("fedcs", *key, tmp_path / "rows").stat().st_size < 30_000 for key in small.rows)
    measured = small.measured()
    assert len(measured) == len(small.cells)
    value = measured.set_index(KEY)["value"].to_dict()
    later = {key: number for key, number in value.items() if "later" in key[3] and key[1] != "fedcs-fc2"}
    assert all(not math.isnan(number) for key, number in value.items() if key not in later)
    by_group = [value["fig10", "fedavg", "digit5", f"group={g}", "accuracy"] for g in range(3)]
    by_client = value["fig8", "fedavg", "digit5", "feature-shift", "accuracy"]
    assert by_client == pytest.approx(np.mean(by_group), abs=1e-3)  # groups of one size
    gap = value["fig10", "fedavg", "digit5", "feature-shift", "gap"]
    assert gap == pytest.approx(by_group[0] - np.mean(by_group[1:]), abs=1e-3)
    domains = [value["fig10", "fedavg", "digit5", f"domain={d}", "accuracy"] for d in "01234"]
    mixed = value["fig10", "fedavg", "digit5", "domain=mixed", "accuracy"]
    assert by_client == pytest.approx((10 * np.mean(domains) + 5 * mixed) / 15, abs=1e-3)
    assert value["fig5", "partition", "digit5", "feature-shift", "unseen"] == 10
    planes = [one.kept["plane"] for one in small.rows.values() if "plane" in one.kept]
    assert any(np.array(plane["c, later"]["mean"]).shape == (5, 2) for plane in planes if "c, later" in plane)
    verdicts = small.ledger().set_index("id")["verdict"]
    assert verdicts["cs18"] == "identity"
    assert verdicts["cs21"] == "consistent so far"  # one of three layers


def test_fewer_images_are_those_of_the_data_set_and_nothing_else_and_the_inferred_number_is_for_mnist_only():
    for name in ("mnist", "cifar10"):
        pair = sizes.run_on_few(sizes.PAPER, name, "fedbn", 700), sizes.run(sizes.PAPER, name, "fedbn")
        few = studies.differences(*pair)
        assert (few.keys(), few["few"]) == ({"few", "partition"}, 700)
    assert [sizes.inferred_run(sizes.PAPER, name, "fedbn").images.few for name in sizes.TABLES] == [5000, 0, 0]
    made = sizes.run_on_few(QUICK, "mnist", "fedbn", 700).arguments(3)["federation"]
    assert len(made.data) == 700
    assert min(map(len, made.train)) >= 4


def test_a_run_on_few_images_keeps_the_metrics_of_every_client_at_its_end():
    setting = {"rounds": 2, "evaluate_every": 1, "tune_epochs": 1, "client_metrics": True, "local_epochs": 1}
    federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(alpha=0.5), clients=3)
    result = fl.run("fedavg", federation, progress=False, **setting)
    kept, rows = metrics_of(result), result.accuracy.query("round == 2")
    for when in ("before", "after"):
        for name in ("f1", "auc"):
            own = rows[rows["when"] == when].sort_values("client")[name]
            assert kept[f"{name} {when}"] == [round(x, 3) for x in own]
    assert len(kept) == 4


def test_directions_are_compared_with_whitening_in_runs_that_differ_in_nothing_else():
    cells = {(c.dataset, c.method): c for c in STUDY.cells if c.item == "learned_directions"}
    for name in ("mnist", "cifar10", "digit5"):
        tasks = [cells[name, method].tasks[0] for method in ("fedavg", WHITE, "fedcs-fc2")]
        assert [task.algorithm.hyper.get("steps") for task in tasks] == [None, "whitening", "normalised"]
        assert len({(task.images, str(task.partition), str(task.setting["rounds"])) for task in tasks}) == 1


# -- figures, from rows that were made by hand ----------------------------------------------------------------------

BASE = {"fedavg": 50.0, "fedavg+bn": 60.0, "fedrep": 30.0, "fedalt": 40.0, "fedcs": 70.0}
TUNED = 6.0  # points that fine-tuning brings


def made(task, seed, gain=0.0, gap=0.0):
    """A row of a run: every client has the same score before fine-tuning; the control has `gain` less.

    Unseen clients have `gap` less, those of the last group three times as much less as the others.
    """
    n, blind, own = task.clients, "whitening" in str(task.algorithm), task.algorithm.name
    name = own + "+bn" * (own == "fedavg" and task.model == "lenet5_bn")
    unseen = np.arange(n) >= n - int(dict(task.federate)["unseen"])
    group = np.arange(n) // (5 if task.images.stands_for == "digit5" else n // 10)
    before = BASE.get(name, 55.0) + 2 * seed - gain * blind - gap * unseen * np.where(group == group[-1], 1.5, 0.5)
    scores = {"before": before} | ({"after": before + TUNED} if "tune_epochs" in task.setting else {})
    kept = {}
    for when, values in scores.items():
        groups = [values[group == g].mean() for g in np.unique(group)]
        kept |= {f"rounds {when}": [1, 2], f"f1 {when}": values.tolist(), f"auc {when}": values.tolist()}
        kept |= {f"groups {metric} {when}": [groups, groups] for metric in ("f1", "accuracy")}
    if name == "fedcs":
        plane = {"mean": [[g, 0.1 * g] for g in range(5)], "covariance": [np.eye(2).tolist()] * 5}
        plane["points"] = [[[g, 0.0], [g, 1.0]] for g in range(5)]
        kept |= {"plane": dict.fromkeys(("z", "c", "c, later"), plane), "lag": [[0, 5.0], [10, 0.5]]}
        kept |= {"separability of z": 38.0 + 2 * seed, "separability of c": 45.0 - 10 * blind}
        kept |= {"J ratio": 0.2, "J ratio of components": 0.3, "residual": 5.0}
        if getattr(task.keep, "args", ())[2:] != (0,):  # the alignment goes on
            kept |= {"separability of c, later": 58.0 + 2 * seed, "J ratio, later": 0.8, "residual, later": 0.5}
    evaluations = [(t, when, (values * 10).round().tolist()) for t in (1, 2) for when, values in scores.items()]
    one = row(task.name, seed, *evaluations, when=[*scores][-1], n_test=[1000] * n, kept=kept)
    return rows.Row(task.name, seed, json.loads(json.dumps(one.facts, sort_keys=True)))  # as from a file


@pytest.fixture(scope="module")
def measured_here():
    """What is quick to measure: the clients, and what no training decides."""
    cells, found = [cell for p in ("smoke", "paper") for cell in study("fedcs", p).cells], {}
    for task in {cell.tasks[0].name: cell.tasks[0] for cell in cells}.values():
        if isinstance(task, Probe) and task.label == "counts" and task.arguments[0] == "smoke":
            found[task.name] = task.measure(0, *task.arguments)
        elif isinstance(task, Probe) and task.label != "counts":
            keys = [cell.read for cell in cells if cell.tasks[0].name == task.name]
            found[task.name] = {key: 0.02 if key.startswith("lower") else 1.0 for key in keys}
    return found


def by_hand(measured_here, profile="smoke", seeds=3, **changes):
    one, found = study("fedcs", profile), {}
    for task in one.tasks.values():
        for seed in range(seeds):
            if isinstance(task, Run):
                found[task.name, seed] = made(task, seed, **changes)
        if task.name in measured_here:
            found[task.name, 0] = row(task.name, kept=measured_here[task.name])
    return one.replace(rows=found)


@pytest.fixture(scope="module")
def shown(measured_here):
    return by_hand(measured_here, gap=10.0)


def texts(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def test_every_item_draws_and_speaks_with_all_rows_with_some_and_of_data_that_stand_in(measured_here, shown):
    studies.all_drawn_and_said(by_hand(measured_here, "paper", seeds=2, gap=10.0))
    assert all(studies.drawn_and_said(shown, name, rendered=False) for name in shown.shown if len(shown.numbers(name)))


def test_sentences_follow_the_numbers(measured_here, shown):
    ahead = by_hand(measured_here, gain=15.0).says("learning_curves")
    assert "FedCS-FC2 (red) ends at 72.0 %" in ahead
    assert "FedCS-FC2 minus whitening only is +15.0 ± 0.0 points in 3 pairs of runs." in ahead
    assert "in one pair of runs" in by_hand(measured_here, seeds=1).says("learning_curves")
    assert " 45 % after the map at the end" in shown.says("fig1")
    assert " 60 % after more alignments" in shown.says("fig1")
    assert " in 3 of 3 cases at the end of the run, and in 3 of 3 cases after more" in shown.says("fig1")
    own, low = {key: one.facts for key, one in shown.rows.items() if "lag" in one.kept}, {"separability of c": 39.0}
    worse = {key: rows.Row(*key, facts | {"kept": facts["kept"] | low}) for key, facts in own.items()}
    says = shown.replace(rows={**shown.rows, **worse}).says("fig1")
    assert " in 0 of 3 cases at the end of the run, and in 3 of 3 cases after" in says
    assert texts(shown.figure("fig1"))[-5:] == ["40.0", "45.0", "35.0", "60.0", "chance"]  # z, c, whitening, c later
    assert "+10.0 with FedCS-FC2" in shown.says("fig2")
    assert "\N{MINUS SIGN}10.0 with FedCS (red)" in shown.says("unseen_and_training_clients")
    assert "10 of 15 clients" in shown.says("fig5")
    assert ["smallest client" in shown.says(name) for name in ("fig3", "fig4", "fig5")] == [True, False, True]
    assert shown.figure("fig5").axes[0].get_title("left") == "digit_styles for Digit-5"
    values = {"fedcs-fc1": 70.0, "fedcs-fc2": 60.0, "fedavg": 50.0}
    one = with_numbers(PAPER, given(*(("table2", m, *LABEL, "weighted_f1", v) for m, v in values.items())))
    assert "FedCS-FC1 minus FedAvg is +20.0 points" in one.says("table2")  # the best FedCS


def test_the_digits_that_stand_in_for_digit5_are_named_in_figures():
    def with_domains(one, *names):
        counted = dict.fromkeys(("clients", "unseen", "samples", "smallest", "largest"), 1) | {"domains": names}
        return domain_names(studies.with_kept(one, "fig5", counted))

    others = with_domains(STUDY, "mnist", "mnist_m", "digits", "usps", "printed_digits")
    assert others == ["MNIST", "MNIST-M-style", "digits in colour", "USPS", "printed digits"]
    own = with_domains(PAPER, "mnist", "mnist_m", "svhn", "usps", "synthetic_digits")
    assert own == ["MNIST", "MNIST-M", "SVHN", "USPS", "Synthetic Digits"]
    assert domain_names(STUDY.replace(rows={})) == [f"domain {d}" for d in range(5)]  # before they are counted


def test_panels_by_group_end_in_the_means_of_training_and_unseen_clients(shown):
    figure = shown.figure("fig2")
    assert [ax.get_title("left") for ax in figure.axes] == ["FedAvg+FT", "FedRep", "FedCS-FC2"]
    ends = [{text.get_text() for text in ax.texts} - {"chance"} for ax in figure.axes]
    assert ends == [{"train 58", "unseen 48"}, {"train 38", "unseen 28"}, {"train 72", "unseen 62"}]
    assert texts(shown.figure("fig8")) == ["chance", "45", "55", "41", "65"]  # 52, 62, 42 + 6, 72 less 10 for 10 of 15


def test_a_line_is_that_of_its_own_data_and_local_only_is_no_shared_model():
    quick, f1 = study("fedcs", "quick"), "weighted_f1"
    [side] = {cell.dataset for cell in quick.cells if cell.item == "other_readings"}
    shifts = {cell.item: (cell.dataset, cell.setting) for cell in quick.cells if cell.item in ("table2", "table3")}
    assert shifts["table3"][0] == side
    numbers = [(item, "fedavg", *shifts[item], f1, value) for item, value in (("table2", 76.0), ("table3", 43.0))]
    values = {"default": 64, "whitening": 30}.items()
    numbers += [("other_readings", "fedcs-fc2", side, f"reading={reading}", f1, value) for reading, value in values]
    [ax] = with_numbers(quick, given(*numbers)).figure("other_readings").axes
    assert [43.0, 43.0] in [[*line.get_xdata()] for line in ax.lines]
    place = "mnist", "at=fc2", f1
    values = ("fedcs-fc2", 0, 60.0), (WHITE, 0, 50.0), ("fedcs-fc2", 1, 40.0)  # of two seeds
    numbers = [given(("learned_directions", m, *place, value)).assign(seed=seed) for m, seed, value in values]
    says = with_numbers(STUDY, pd.concat(numbers)).says("learned_directions")
    assert "(red minus blue) change weighted F1 by +10.0 points (MNIST)" in says  # of the common seed
    methods = "fedavg", "local_only", "fedcs-fc1"
    name, parts = "unseen_and_training_clients", ("training", "unseen")
    numbers = [(name, m, "mnist", f"{who};before", f1, 50.0) for m in methods for who in parts]
    [ax] = with_numbers(PAPER, given(*numbers)).figure(name).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["FedAvg", "FedCS-FC1"]


def test_methods_that_adapt_are_compared_after_fine_tuning_and_fedavg_at_both_moments(shown):
    table = training_and_unseen(shown)
    own = table.loc["digit_styles for digit5"]
    assert own["training"].to_dict() == {"fedavg": 52, "fedavg+bn": 62, "fedcs-fc2": 72, "fedalt": 48}
    assert (own["unseen"] == own["training"] - 10).all()
    order = ["fedavg", "fedavg+bn", "fedcs-fc2", "fedavg+ft", "fedrep", "fedalt"]
    assert table.loc["digit_styles for mnist"].index.tolist() == order
    assert "digit_styles for cifar10" not in table.index  # the same images as for MNIST
    assert list(map(kind, ("fedcs-fc1", "fedbn", "fedavg"))) == list(KINDS)


def test_the_slider_turns_the_whitened_clouds_and_changes_no_distance():
    z, path = feature_map.five_clients()
    S, Phi = path[-1]
    assert torch.allclose(torch.pdist((z @ S)[:, 0]), torch.pdist((z @ S @ Phi)[:, 0]), atol=1e-4)
    centres = (z @ S @ Phi).mean(1)
    assert centres[:, 0].var() > 20 * centres[:, 1].var()  # they lie along the first axis
    before, after = (torch.tensor(np.array(ax.lines[0].get_data()).T) for ax in feature_map.clouds(40).axes[1:])
    assert torch.allclose(torch.pdist(before), torch.pdist(after), atol=1e-4)


def test_fedrep_with_personal_linear_layers_shares_the_convolutions_only():
    algorithm, model, tuning = sizes.MADE[sizes.REP]
    federation = fl.federate(fl.load("digits", copies=1), fl.iid(), clients=3, test_fraction=0.5)
    result = fl.run(algorithm, federation, rounds=1, local_epochs=2, lr=0.1, model=model, progress=False, **tuning)
    first, second = (result.weights(client=k) for k in (0, 1))
    linear = [f"{layer}.{of}" for layer in ("fc1.0", "fc2.0", "classifier") for of in ("weight", "bias")]
    assert [name for name in first if not first[name].equal(second[name])] == linear


def test_principal_components_are_those_of_the_train_images():
    data = fl.load("digits", copies=1)
    federation = fl.federate(data.subset(np.arange(0, len(data), 4)), fl.iid(), 5, test_fraction=0.4)
    result = fl.run(fl.fedcs("fc3"), federation, "lenet5_plain", rounds=1, batch_size=8, progress=False)
    z, owner = latents(result, federation, "train")
    components = torch.linalg.eigh(z.T.cov()).eigenvectors.flip(1)[:, :COLUMNS]
    found = diagnose(result, federation, np.arange(5), 0)["J ratio of components"]
    assert found == pytest.approx(j_ratio(components, *scatters(z, owner), COLUMNS), rel=1e-4)


def test_bars_of_classes_stand_on_one_another_and_circles_in_the_line_of_their_group(shown):
    for ax in shown.figure("fig4").axes:
        bars = np.array([[(bar.get_y(), bar.get_height()) for bar in of_class] for of_class in ax.containers])
        np.testing.assert_allclose(bars[..., 0], np.cumsum(bars[..., 1], 0) - bars[..., 1], atol=1e-9)
    kept = dict.fromkeys(("clients", "samples", "smallest", "largest"), 30) | {"unseen": 4, "of class": [[1] * 10] * 30}
    [ax] = studies.with_kept(PAPER, "fig3", kept).figure("fig3").axes
    assert ax.collections[0].get_offsets().tolist() == [[client, client // 3] for client in range(30)]


def test_an_ellipse_lies_along_its_cloud():
    along, across = np.array([[1, 2], [-2, 1]]) / 5**0.5
    covariance = 9 * np.outer(along, along) + np.outer(across, across)
    plane = {"mean": [[0, 0]], "covariance": [covariance.tolist()], "points": [[[0.0, 1.0]]]}
    feature_map.draw_clouds(ax := plt.subplots()[1], plane, [])
    [ellipse] = ax.patches
    assert (ellipse.width, ellipse.height, np.tan(np.radians(ellipse.angle))) == pytest.approx((9, 3, 2))


def test_a_grey_bar_lies_in_the_line_of_its_method(shown):
    [ax] = shown.figure("table1").axes
    lines = [text.get_text() for text in ax.get_yticklabels()]
    [bars] = [own.get_segments() for own in ax.collections if hasattr(own, "get_segments")]
    means = {named(m): mean for m, mean in shown.means("table1", "method", metric="weighted_f1").items()}
    assert {lines[round(bar[0, 1])]: bar[:, 0].mean() for bar in bars} == pytest.approx(means)
    assert len({*means.values()}) > 3


def test_a_dumbbell_leads_from_the_hollow_dot_to_the_full_one():
    index = pd.MultiIndex.from_tuples([("mnist", "fedavg"), ("mnist", "fedper")], names=["data", "method"])
    table = pd.DataFrame({"before": [40.0, 70.0], "after": [55.0, 61.5]}, index=index)
    [ax] = dumbbell_panels(table, ("before", "after")).axes
    points = [line for line in ax.lines if len(line.get_xdata()) == 1]
    dots = {(line.get_markerfacecolor() == "white", *line.get_xydata()[0]) for line in points}
    assert dots == {(True, 40, 0), (False, 55, 0), (True, 70, 1), (False, 61.5, 1)}
    assert [text.get_text() for text in ax.texts] == ["+15.0", "\N{MINUS SIGN}8.5"]
