"""pFedMB and the three baselines that came with it; official test parts, validation parts and traces."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from test_baselines import EXACT, SETTING, close, cohort_of

import fedlib as fl
from fedlib.methods.fedamp import cloud_weights, sq_distances
from fedlib.methods.ifca import cluster_mean
from fedlib.methods.pfedmb.branches import SHARED, layer, merge, new_branches
from fedlib.methods.pfedmb.pfedmb import branch_mean
from fedlib.models import MODELS, build
from fedlib.stack import copies
from fedlib.training.evaluation import evaluate

PLAIN = {"model": "lenet5_plain", "progress": False}
LAYERS = ("conv1.0", "conv2.0", "fc1.0", "fc2.0", "classifier")  # of lenet5_plain
SHARE = pytest.mark.parametrize("shared", [False, True])


def lenet(name="lenet5_plain"):
    return build(name, MODELS[name], (3, 32, 32), 10, seed=0)


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def watched(cohort):
    """The cohort, and a list that will hold its local phases: (phase, trained stack)."""
    seen = []

    def trainer(phase):
        answer = cohort.trainer(phase)
        seen.append((phase, answer[0]))
        return answer

    return replace(cohort, trainer=trainer), seen


# Branches


@SHARE
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_the_merged_network_is_a_plain_one_that_answers_as_its_branches_do_layer_by_layer(shared, dtype, tolerance):
    """Eq. 2: mixing the weights and biases of linear and convolution layers is mixing their outputs."""
    model = lenet()
    branches = {name: t.to(dtype) for name, t in new_branches(model, 4).items()}
    alpha = {place: normal(4, seed=i).softmax(0).to(dtype) for i, place in enumerate([SHARED] if shared else LAYERS)}
    merged = merge(branches, alpha)
    assert {name: t.shape for name, t in merged.items()} == {name: t.shape for name, t in model.weights.items()}
    assert sum(t.numel() for t in merged.values()) == 62_006

    def mixed(place, f, x):
        weight, bias = branches[f"{place}.weight"], branches[f"{place}.bias"]
        return sum(a * f(x, W, c) for a, W, c in zip(alpha[SHARED if shared else place], weight, bias, strict=True))

    images = x = normal(9, 3, 32, 32).to(dtype)
    for place in LAYERS[:2]:
        x = F.max_pool2d(mixed(place, F.conv2d, x).relu(), 2)
    hidden = mixed("fc2.0", F.linear, mixed("fc1.0", F.linear, x.flatten(1)).relu()).relu()
    assert (model(merged, images) - mixed("classifier", F.linear, hidden)).abs().max() <= tolerance


def test_branches_are_independent_and_their_mean_is_as_large_as_one_draw():
    model = lenet("lenet5")
    plain, scaled, again = (new_branches(model, 4, gain) for gain in (False, True, True))
    assert list(scaled) == list(model.trainable)
    for name, t in scaled.items():
        assert torch.equal(t, again[name])
        assert torch.equal(t, (1 if name in model.batchnorm else 2) * plain[name]), name
        assert torch.equal(plain[name][0], model.weights[name])
    fc = scaled["fc1.0.weight"]  # 48,000 entries
    assert np.abs(np.corrcoef(fc.flatten(1)) - np.eye(4)).max() < 0.02
    assert fc.mean(0).std().item() == pytest.approx(model.weights["fc1.0.weight"].std().item(), rel=0.02)


def test_equal_branches_with_equal_alphas_stay_so_for_ever(federation):
    cohort, seen = watched(cohort_of(federation, 0, model="lenet5_plain"))
    method = fl.pfedmb(branches=4)
    state = method.init(cohort.model, federation)
    method.round(state, cohort)
    method.round(method.init(cohort.model, federation)._replace(branches=copies(cohort.model.weights, 4)), cohort)
    [(_, free), _, (_, adapted), (_, trained)] = seen
    for place, t in adapted.z.items():
        assert t.abs().max() < 1e-12 < 1e-6 < free.z[place].abs().max()
    for name, t in adapted.branches.items():
        assert torch.allclose(trained.branches[name], trained.branches[name][:, :1], rtol=0, atol=1e-12)
        assert not torch.allclose(trained.branches[name], t)


@SHARE
def test_eq_5_is_the_weighted_mean_of_every_branch_and_eq_6_if_all_alphas_agree(shared):
    n, shapes = np.array([3.0, 1.0, 4.0]), {"a.weight": (5, 4), "a.bias": (5,), "b.x": ()}
    w, before = ({name: normal(*k, 2, *shape) for name, shape in shapes.items()} for k in ([3], []))
    alpha = {place: normal(3, 2, seed=i).softmax(1) for i, place in enumerate([SHARED] if shared else ["a", "b"])}
    equal, ones = ({place: f(a[:1].expand(3, 2)) for place, a in alpha.items()} for f in (torch.clone, torch.ones_like))
    mean, same, plain = (branch_mean(w, a, torch.tensor(n), before) for a in (alpha, equal, ones))
    assert close(same, plain)
    for name, t in w.items():
        for b in range(2):
            weights = n * alpha[SHARED if shared else layer(name)][:, b].numpy()
            assert np.allclose(mean[name][b], np.average(t[:, b], axis=0, weights=weights))
            assert np.allclose(plain[name][b], np.average(t[:, b], axis=0, weights=n))


def test_eq_5_with_one_hot_alphas_is_the_mean_of_each_cluster_and_a_branch_without_weight_stays():
    w, before, chosen = normal(4, 3, 5), normal(3, 5, seed=1), F.one_hot(torch.tensor([2, 0, 2, 0]), 3).double()
    [mean] = branch_mean({"a": w}, {SHARED: chosen}, torch.tensor([3.0, 1.0, 4.0, 1.0]), {"a": before}).values()
    expected = (w[1, 0] + w[3, 0]) / 2, before[1], (3 * w[0, 2] + 4 * w[2, 2]) / 7
    assert torch.allclose(mean, torch.stack(expected))


ONE = [fl.pfedmb(branches=1), fl.pfedmb(branches=1, share_alpha=True, weighted=False), fl.ifca(clusters=1)]


@pytest.mark.parametrize("method", ONE, ids=str)
def test_one_branch_and_one_cluster_are_fedavg(method, federation):
    """In float64 over a run with partial participation, tuned as well."""
    a, b = (fl.run(m, federation, **EXACT | PLAIN, tune_epochs=1) for m in ("fedavg", method))
    assert close(b.models, {name: t.expand(6, *t.shape[1:]) for name, t in a.models.items()})
    assert np.allclose(a.accuracy["loss"], b.accuracy["loss"], rtol=1e-9)


TRACED = {
    "one alpha per layer": (fl.pfedmb(branches=3), {place: (2, 6, 3) for place in LAYERS}),
    "one alpha": (fl.pfedmb(branches=3, share_alpha=True), {SHARED: (2, 6, 3)}),
    "clusters": (fl.ifca(), {"cluster": (2, 6)}),
}


@pytest.mark.parametrize("case", TRACED)
def test_the_trace_holds_every_evaluation_and_survives_an_interruption(case, federation, tmp_path):
    def stop(t):
        if t == 3:
            raise InterruptedError

    (method, shapes), setting = TRACED[case], SETTING | PLAIN | {"evaluate_every": 2, "tune_epochs": 1}
    whole = fl.run(method, federation, **setting)
    with pytest.raises(InterruptedError):
        fl.run(method, federation, **setting | {"progress": stop}, store=tmp_path, checkpoint_seconds=0)
    resumed, read = (fl.run(method, federation, **setting, store=tmp_path) for _ in range(2))
    for result in (whole, resumed, read):
        assert {name: tuple(t.shape) for name, t in result.trace.items()} == shapes
        assert all(torch.equal(t, whole.trace[name]) for name, t in result.trace.items())
    for name, t in whole.trace.items():
        assert torch.equal(t[-1], method.trace(whole.state)[name])
        assert name == "cluster" or ((t >= 0).all() and torch.allclose(t.sum(-1), torch.ones(2, 6)))


# pFedMe


def test_pfedme_refuses_steps_of_w_that_overshoot(federation):
    with pytest.raises(ValueError, match=r"lr \* lam=1.5 is not allowed; it must be a number in \[0, 1\]"):
        fl.run(fl.pfedme(lam=30), federation, **SETTING | PLAIN)


# IFCA


def test_the_mean_of_a_cluster_by_hand():
    w, before = {"a": torch.tensor([[1.0], [2.0], [5.0]])}, {"a": torch.tensor([[7.0], [8.0], [9.0]])}
    mean = cluster_mean(w, torch.tensor([2, 0, 2]), torch.tensor([3.0, 5.0, 1.0]), before)
    assert mean["a"].tolist() == [[2.0], [8.0], [2.0]]  # nobody is in the second one; (3 * 1 + 1 * 5) / 4


# FedAMP


def test_the_cloud_weights_of_fedamp_by_hand():
    """Three clients on a line, at 0, 1 and 3; xi_ij = 0.5 exp(-d^2 / 2) / 2."""
    clients, all_, sq = torch.tensor([0, 2]), torch.ones(3), torch.tensor([[0.0, 1.0, 9.0], [9.0, 4.0, 0.0]])
    near, far, middle = (0.25 * math.exp(-d / 2) for d in (1, 9, 4))
    weights = cloud_weights(sq, clients, all_, alpha=0.5, sigma=2.0)
    assert torch.allclose(weights, torch.tensor([[1 - near - far, near, far], [far, middle, 1 - far - middle]]))
    alike = cloud_weights(sq, clients, all_, alpha=1e9, sigma=1e9)  # no more than 1 for the others
    assert torch.allclose(alike, torch.tensor([[0.0, 0.5, 0.5], [0.5, 0.5, 0.0]]))
    assert torch.allclose(cloud_weights(sq, clients, all_, 1e-12, 2.0), torch.eye(3)[clients])
    first = cloud_weights(sq, clients, torch.tensor([1.0, 0.0, 0.0]), alpha=0.5, sigma=2.0)  # who has uploaded so far
    assert torch.allclose(first, torch.tensor([[1.0, 0.0, 0.0], [far, 0.0, 1 - far]]))
    assert torch.equal(cloud_weights(sq, clients, 0 * all_, 0.5, 2.0), torch.eye(3)[clients])
    v = {"a.weight": normal(4, 3, 2), "a.running_mean": normal(4, 3)}  # distances are over the parameters
    expected = ((v["a.weight"][[1, 3], None] - v["a.weight"]).numpy() ** 2).sum((2, 3))
    assert np.allclose(sq_distances(v, torch.tensor([1, 3])), expected)


def test_fedamp_whose_others_weigh_nothing_is_local_only(federation):
    alone, local = (fl.run(m, federation, **EXACT | PLAIN) for m in (fl.fedamp(alpha=1e-12, lam=0), "local_only"))
    assert close(alone.models, local.models)


# Federations


@pytest.fixture(scope="module")
def official(tiny):
    """The tiny data set with an official split: a third each to train, to test and to validate."""
    return replace(tiny, split=(np.arange(240) % 3).astype(np.uint8))


def test_the_official_test_part_follows_the_train_part_class_by_class(official):
    fed = fl.federate(official, fl.dirichlet(0.5, min_size=12), clients=5, test_fraction=None, seed=3)
    train, test = (np.sort(np.concatenate(part)) for part in (fed.train, fed.test))
    assert np.array_equal(train, np.flatnonzero(official.split != 1))
    assert np.array_equal(test, np.flatnonzero(official.split == 1))
    for kind in (official.domain * 4 + official.y == k for k in range(8)):
        held, got = (np.array([kind[own].sum() for own in part]) for part in (fed.train, fed.test))
        assert np.abs(got - held / held.sum() * got.sum()).max() <= 1
    few = fl.federate(official, fl.label_groups([[0], [2]]), clients=2, test_fraction=None)
    assert [np.unique(official.y[own]).tolist() for own in few.test] == [[0], [2]]


@pytest.mark.parametrize("test_fraction", [None, 0.25])
def test_a_validation_part_is_cut_from_what_would_train_and_a_run_reports_on_it(test_fraction, official):
    arguments = dict(partition=fl.dirichlet(0.5, min_size=12), clients=5, test_fraction=test_fraction)
    without, fed = (fl.federate(official, **arguments, validation_fraction=share) for share in (0.0, 0.3))
    for i, whole in enumerate(without.train):
        assert np.array_equal(np.concatenate([fed.train[i], fed.validation[i]]), whole)
        assert np.array_equal(fed.test[i], without.test[i])
    sizes = [len(own) for own in fed.validation]
    assert sizes == [round(0.3 * len(own)) for own in without.train]
    assert len(np.unique(np.concatenate([own for part in fed.parts for own in part]))) == 240 == fed.sizes.sum()
    plain, result = (fl.run("fedavg", f, **SETTING | PLAIN, evaluate_every=2) for f in (without, fed))
    assert plain.validation is None
    assert not (plain.folder / "validation.csv").exists()
    table, cohort = result.validation, cohort_of(fed, 0, model="lenet5_plain")
    assert list(table) == ["round", "client", "n_test", "accuracy", "loss", "when"]
    assert table["n_test"].tolist() == 2 * sizes
    models = {name: t.double() for name, t in result.models.items()}
    assert np.allclose(table["loss"][5:], evaluate(cohort.model, cohort.images, models, fed.validation)[1], rtol=1e-5)
    assert np.allclose(pd.read_csv(result.folder / "validation.csv")["loss"], table["loss"])


def test_uneven_classes_cuts_a_class_between_its_owners_within_the_range():
    y, rng = np.arange(6000) % 6, np.random.default_rng(0)

    def deal(partition, clients):
        shares = partition.assign(y, y, clients, rng)
        assert len(np.unique(np.concatenate(shares))) == sum(map(len, shares))
        return np.stack([np.bincount(y[own], minlength=6) for own in shares])

    cases = (fl.uneven_classes(3), 7), (fl.uneven_classes(3, 1, 1), 7), (fl.uneven_classes(2), 2)
    uneven, even, few = (deal(*case) for case in cases)
    assert [set((counts > 0).sum(1)) for counts in (uneven, even, few)] == [{3}, {3}, {2}]
    assert all(set(counts.sum(0)) <= {0, 1000} for counts in (uneven, even, few))  # what somebody owns is dealt out
    assert (few.sum(0) == 0).sum() >= 2
    assert all(np.ptp(column[column > 0]) <= 1 for column in even.T)
    owned = [column[column > 0] for column in uneven.T]
    assert 1.3 < max(n.max() / n.min() for n in owned) < 0.7 / 0.3 * 1.02
