"""Tables of a run, by hand: three clients with 2, 3 and 10 test images, three evaluations; F1 and AUC."""

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from sklearn.metrics import f1_score, roc_auc_score

import fedlib as fl
from fedlib.runs.history import History
from fedlib.runs.result import RunResult
from fedlib.runs.sweep import Sweep
from fedlib.stack import PerArchitecture
from fedlib.training.channel import Channel
from fedlib.training.metrics import weighted_auc, weighted_f1

N, N_VALID = [2, 3, 10], [5, 4, 1]  # right answers by (round, tuned):
RIGHT = {(2, 0): [2, 0, 5], (4, 0): [1, 3, 4], (4, 1): [0, 3, 9], (6, 0): [1, 1, 10], (6, 1): [2, 2, 4]}
VALID = {(2, 0): [5, 0, 0], (4, 0): [1, 4, 1], (4, 1): [0, 4, 0], (6, 0): [0, 0, 1], (6, 1): [4, 0, 1]}

PARTS = {"accuracy": (N, RIGHT), "validation": (N_VALID, VALID)}  # name of the frame


def loss_of(part: int, t: int, tuned: int) -> torch.Tensor:
    return 0.1 * t + 7 * part + 3 * tuned + torch.arange(3).double()


def metrics_of(part: int, t: int, tuned: int) -> torch.Tensor:
    f1 = 0.01 * t + 0.1 * part + 0.2 * tuned + 0.001 * torch.arange(3).double()
    return torch.stack([f1, 0.9 - f1], 1)


def result(when: str, seed: int = 0) -> RunResult:
    history = History(torch.tensor([N, N_VALID]))
    for (t, tuned), hits in RIGHT.items():
        both = enumerate([hits, VALID[t, tuned]])
        parts = [(torch.tensor(h), loss_of(part, t, tuned), metrics_of(part, t, tuned)) for part, h in both]
        history.add_evaluation(t, bool(tuned), parts)
    for t in range(6):
        losses = [torch.tensor([1.0, 3.0]), torch.tensor([4.0 + seed])]
        cohort = SimpleNamespace(channel=Channel(bytes_down=100 + t, bytes_up=10 + t), losses=losses)
        history.add_round(float(t), float(t) + 0.5, cohort)
    frames = dict(accuracy=history.accuracy(), rounds=history.rounds(), validation=history.validation())
    return RunResult(
        {"seed": seed, "algorithm": "fedprox", "data": "digits", "clients": 3},
        trace={},
        models={},
        state=None,
        model=None,
        architectures=(),
        folder=Path(),
        when=when,
        **frames,
    )


@pytest.mark.parametrize("part", [0, 1])
def test_every_column_has_a_value_for_every_client_and_evaluation(part):
    name, (sizes, right) = list(PARTS.items())[part]
    frame = getattr(result("before"), name)
    expected = [
        {
            "round": t,
            "client": i,
            "n_test": sizes[i],
            "accuracy": 100 * right[t, tuned][i] / sizes[i],
            "loss": loss_of(part, t, tuned)[i].item(),
            "when": ("before", "after")[tuned],
            "f1": 100 * metrics_of(part, t, tuned)[i, 0].item(),
            "auc": 100 * metrics_of(part, t, tuned)[i, 1].item(),
        }
        for t, tuned in RIGHT
        for i in range(3)
    ]
    pd.testing.assert_frame_equal(frame, pd.DataFrame(expected).astype({"accuracy": "float32"}))


def test_the_headline_is_pooled_over_samples_and_the_mean_over_clients_stands_beside_it():
    before, after = (result(when).summary() for when in ("before", "after"))
    assert before["round"] == after["round"] == 6
    assert before["accuracy"] == pytest.approx(100 * 12 / 15)
    assert before["client_mean"] == pytest.approx((50 + 100 / 3 + 100) / 3)
    assert before["client_std"] == pytest.approx(np.std([50, 100 / 3, 100]))
    assert after["accuracy"] == pytest.approx(100 * 8 / 15)
    assert after["client_mean"] == pytest.approx((100 + 200 / 3 + 40) / 3)
    assert before[["bytes_down", "bytes_up", "seconds"]].tolist() == [615, 75, 3.0]


def test_a_result_is_shown_in_one_line_with_the_accuracy_it_is_judged_by():
    for when, accuracy in (("before", 80.0), ("after", 53.3)):
        line = f"RunResult(fedprox on digits, 3 clients, 6 rounds: accuracy {accuracy} % over all test images)"
        assert repr(result(when)) == line
    assert repr(Sweep(pd.DataFrame(), [result("after")] * 2)).startswith("Sweep of 2 runs")


def test_a_curve_has_a_point_for_every_evaluation():
    curve = result("before").curve()
    assert curve["round"].tolist() == [2, 4, 4, 6, 6]
    assert curve["when"].tolist() == ["before", "after", "before", "after", "before"]
    assert curve["accuracy"].tolist() == pytest.approx([100 * n / 15 for n in (7, 12, 8, 8, 12)])
    assert curve["client_mean"][0] == pytest.approx((100 + 0 + 50) / 3)


def test_the_rounds_add_up_and_one_in_which_nobody_trains_has_no_training_loss():
    rounds = result("before").rounds
    assert rounds["round"].tolist() == [1, 2, 3, 4, 5, 6]
    assert rounds["bytes_down"].tolist() == [100, 101, 102, 103, 104, 105]
    assert rounds["train_loss"].tolist() == 6 * [(2 + 4) / 2]  # of phases, each a mean over its clients
    assert rounds["seconds"].tolist() == 6 * [0.5]
    history = History(torch.tensor([N]))
    history.add_round(0.0, 0.5, SimpleNamespace(channel=Channel(bytes_down=1, bytes_up=0), losses=[]))
    assert history.rounds()["train_loss"].tolist() == [0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, 12 / 15),
        ({"over": "clients"}, (1 / 2 + 1 / 3 + 1) / 3),
        ({"when": "after"}, 8 / 15),
        ({"until": 4}, 8 / 15),
        ({"until": 5, "when": "after", "over": "clients"}, (0 + 1 + 0.9) / 3),
        ({"last": 2}, (8 / 15 + 12 / 15) / 2),
        ({"last": 2, "until": 4, "over": "clients"}, ((1 + 0 + 1 / 2) / 3 + (1 / 2 + 1 + 0.4) / 3) / 2),
        ({"last": 9}, (7 / 15 + 8 / 15 + 12 / 15) / 3),
        ({"clients": [0, 2]}, 11 / 12),
        ({"clients": [0, 2], "over": "clients"}, (1 / 2 + 1) / 2),
        ({"part": "validation"}, 1 / 10),
        ({"part": "validation", "over": "clients", "when": "after"}, (4 / 5 + 0 + 1) / 3),
        ({"metric": "f1", "until": 4, "over": "clients"}, 0.041),
        ({"metric": "auc", "part": "validation", "when": "after"}, 0.5394),  # 0.9 less F1
    ],
)
def test_a_score_is_a_mean_over_samples_or_clients_and_over_evaluations(arguments, expected):
    assert result("before").score(**arguments) == pytest.approx(100 * expected)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"metric": "f2"}, "metric='f2' is unknown; allowed: accuracy, auc, f1, loss"),
        ({"metric": "round"}, "metric='round' is unknown"),
        ({"when": "later"}, r"when='later' is unknown \(did you mean 'after'\?\); allowed: after, before"),
        ({"clients": [1, 3]}, "client=3 is not allowed; it must be a whole number, from 0 to 2"),
        ({"clients": [-1]}, "client=-1 is not allowed"),
        ({"over": "images"}, "over='images' is unknown; allowed: clients, samples"),
        ({"last": 0}, "last=0 is not allowed"),
        ({"clients": (i for i in range(2))}, "clients is of type generator; it must be a list of client numbers"),
    ],
)
def test_a_score_of_what_is_not_there_is_refused(arguments, sentence):
    refused(sentence, result("before").score, **arguments)
    if "when" in arguments:
        refused(sentence, result("before").best_round, **arguments)


def test_half_a_client_the_time_before_the_first_evaluation_and_no_validation_images_have_no_score():
    with pytest.raises(TypeError, match="float"):
        result("before").score(clients=[0.5])
    assert np.isnan(result("before").score(until=1))
    run = replace(result("before"), validation=None)
    for ask in (run.best_round, lambda: run.score(part="validation")):
        refused("has no validation images; give federate", ask)


@pytest.mark.parametrize("client", [3, -1])
@pytest.mark.parametrize("mixed", [False, True])
def test_weights_of_a_client_that_is_not_there_are_refused(client, mixed):
    stack = {"w": torch.arange(3.0)}
    models = PerArchitecture(({"w": torch.tensor([0.0, 2.0])}, {"w": torch.tensor([1.0])})) if mixed else stack
    run = replace(result("before"), models=models, architectures=[(None, np.array([0, 2])), (None, np.array([1]))])
    assert [run.weights(own)["w"].item() for own in range(3)] == [0, 1, 2]
    refused(f"client={client} is not allowed; it must be a whole number, from 0 to 2", run.weights, client)


def test_the_best_round_is_the_one_that_validates_best_not_the_one_that_tests_best():
    assert result("before").best_round() == 4  # clients 1/5, 1, 1; test samples have their best in round 6
    assert result("before").best_round(over="samples") == 4  # 6 of 10, before 5 and 1
    assert result("after").best_round() == result("before").best_round(when="after") == 6
    assert result("after").best_round(over="samples") == 6
    one = result("before")  # of equally good rounds the first counts
    assert replace(one, validation=one.validation.assign(accuracy=50.0)).best_round() == 2


def test_a_sweep_has_a_line_for_every_run():
    both = Sweep(pd.DataFrame({"method": ["a", "a"], "seed": [0, 1]}), [result("before"), result("after", seed=1)])
    summary = both.summary()
    assert summary["accuracy"].tolist() == pytest.approx([80, 160 / 3])
    assert summary["seed"].tolist() == [0, 1]
    assert both.accuracy()["seed"].tolist() == 15 * [0] + 15 * [1]
    assert both.curves()["seed"].tolist() == 5 * [0] + 5 * [1]
    for frame, own in ((both.accuracy(), "accuracy"), (both.curves(), "curve")):
        each = [getattr(run, own)() if own == "curve" else getattr(run, own) for run in both.results]
        pd.testing.assert_frame_equal(frame.drop(columns=["method", "seed"]), pd.concat(each, ignore_index=True))


def test_equal_names_of_hyper_parameters_settings_and_results_are_told_apart():
    federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(alpha=0.3), clients=3)
    made = fl.fedavg()
    own = [made._replace(name="own", hyper={"lr": lr, "accuracy": 3.0, "alpha": 2.0}) for lr in (0.1, 0.2)]
    cells = fl.grid(algorithm=own, federation=federation, lr=[0.01, 0.02], rounds=1, model="lenet5_plain")
    done = fl.sweep(cells, jobs=1, progress=False)
    table = done.summary()
    assert (table["algorithm.lr"].tolist(), table["lr"].tolist()) == ([0.1, 0.1, 0.2, 0.2], [0.01, 0.02, 0.01, 0.02])
    assert (table["alpha"].tolist(), table["partition.alpha"].tolist()) == ([2.0] * 4, [0.3] * 4)
    assert table["algorithm.accuracy"].tolist() == [3.0] * 4
    assert table["accuracy"].tolist() == [run.score() for run in done.results]


def test_a_run_that_has_lost_its_way_says_in_which_round():
    lost = result("before")
    assert lost.diverged is None
    lost.rounds.loc[[3, 5], "train_loss"] = [np.nan, np.inf]
    assert lost.diverged == 4
    lost.accuracy.loc[lost.accuracy["round"] == 2, "loss"] = np.inf  # tested after the last step, which was too large
    assert lost.diverged == 2
    lost.accuracy.loc[lost.accuracy["round"] == 2, "n_test"] = 0  # without images there is no loss
    assert lost.diverged == 4


def test_what_is_written_down_stays_as_it_was_when_the_run_goes_on():
    history, state = History(torch.tensor([N])), torch.tensor([1.0, 2.0])
    for _ in range(2):
        history.add_trace({"alpha": state})
        state += 10  # in its place, as rounds do
    assert history.traced()["alpha"].tolist() == [[1.0, 2.0], [11.0, 12.0]]


SETTING = dict(rounds=2, join_ratio=0.5, batch_size=8, lr=0.05, evaluate_every=1, progress=False)


def sample(n: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities [n, n_classes], rounded so that some are equal."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.ones(n_classes), n).round(2) + 1e-3
    return rng.integers(0, n_classes, n), q / q.sum(1, keepdims=True)


def test_f1_and_auc_are_those_of_scikit_learn_also_f1_of_a_client_that_lacks_labels():
    for y, q in (sample(80, 4, seed) for seed in range(5)):
        ours, guess = weighted_auc(y, q, smoothing=0), q.argmax(1)
        assert ours == pytest.approx(roc_auc_score(y, q, average="weighted", multi_class="ovr"), abs=1e-12)
        assert weighted_f1(y, guess) == pytest.approx(f1_score(y, guess, average="weighted"), abs=1e-12)
    for y, guess in itertools.product(([3, 3, 3], [0, 3, 3]), ([3, 3, 3], [1, 2, 0], [3, 5, 0])):
        expected = f1_score(y, guess, average="weighted", zero_division=0)
        assert weighted_f1(np.array(y), np.array(guess)) == pytest.approx(expected)


@pytest.mark.parametrize("labels", [[0, 0, 2, 2, 2], [1, 1, 1, 1, 1]])
def test_the_smoothed_auc_by_counting_pairs(labels):
    y, (_, q) = np.array(labels), sample(5, 4, 0)
    total = 0.0
    for c in set(labels):
        pairs = [(j, k) for j in range(5) for k in range(5) if labels[j] == c != labels[k]]
        right = sum((q[j, c] > q[k, c]) + 0.5 * (q[j, c] == q[k, c]) for j, k in pairs)
        total += labels.count(c) / 5 * (right + 0.5) / (len(pairs) + 1)
    assert weighted_auc(y, q) == pytest.approx(total)
    one_class = np.ones(5, dtype=int)  # nothing to tell apart
    assert (weighted_auc(one_class, q), weighted_auc(one_class, q, smoothing=0)) == (0.5, 0)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_every_column_of_an_evaluation_from_the_models_and_the_images_themselves(backend, tiny):
    """Validation and test of different sizes, models that differ from client to client."""
    federation = fl.federate(tiny, fl.dirichlet(1.0), clients=4, test_fraction=0.4, validation_fraction=0.3, seed=3)
    result = fl.run("local_only", federation, **SETTING, client_metrics=True, backend=backend)
    images = (torch.from_numpy(tiny.x) / 255 - tiny.mean.item()) / tiny.std.item()
    result.model.net.eval()
    for frame, part in ((result.accuracy, federation.test), (result.validation, federation.validation)):
        last = frame.query("round == 2").set_index("client")
        for i, own in enumerate(part):
            y, out = tiny.y[own], result.model(result.weights(i), images[own]).detach()
            q, c = out.softmax(1).numpy(), out.argmax(1).numpy()
            expected = {
                "n_test": len(own),
                "accuracy": 100 * (c == y).mean(),
                "loss": -np.log(q[range(len(y)), y]).mean(),
                "f1": 100 * f1_score(y, c, average="weighted", zero_division=0),
                "auc": 100 * weighted_auc(y, q),
            }
            assert last.loc[i, [*expected]].tolist() == pytest.approx([*expected.values()], rel=1e-3)
    assert not result.validation["f1"].equals(result.accuracy["f1"])
