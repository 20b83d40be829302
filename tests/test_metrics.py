"""Weighted F1 and AUC against scikit-learn and by counting; a run that has them at every evaluation."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score

import fedlib as fl
from fedlib.training.metrics import weighted_auc, weighted_f1

SETTING = dict(rounds=2, join_ratio=0.5, batch_size=8, lr=0.05, evaluate_every=1, progress=False)


def sample(n: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities [n, n_classes], rounded so that some are equal."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.ones(n_classes), n).round(2) + 1e-3
    return rng.integers(0, n_classes, n), q / q.sum(1, keepdims=True)


@pytest.mark.parametrize("seed", range(5))
def test_with_all_labels_present_they_are_those_of_scikit_learn(seed):
    y, q = sample(80, 4, seed)
    ours = weighted_auc(y, q, smoothing=0)
    assert ours == pytest.approx(roc_auc_score(y, q, average="weighted", multi_class="ovr"), abs=1e-12)
    guess = q.argmax(1)
    assert weighted_f1(y, guess) == pytest.approx(f1_score(y, guess, average="weighted"), abs=1e-12)


def test_f1_of_a_client_that_lacks_labels_is_that_of_scikit_learn_too():
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


def test_metrics_are_for_every_evaluation_and_read_back(federation):
    plain = fl.run("fedavg", federation, **SETTING, tune_epochs=1)
    result = fl.run("fedavg", federation, **SETTING, tune_epochs=1, client_metrics=True)
    assert result.folder != plain.folder
    assert result.accuracy.drop(columns=["f1", "auc"]).equals(plain.accuracy)
    assert result.accuracy[["f1", "auc"]].stack().between(0, 100).all()
    again = fl.run("fedavg", federation, **SETTING, tune_epochs=1, client_metrics=True)  # read back
    assert again.accuracy.equals(result.accuracy)
