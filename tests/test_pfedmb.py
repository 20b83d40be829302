"""pFedMB and its three baselines; official test splits, validation parts and traces."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from test_baselines import SETTING, cohort_of

import fedlib as fl
from fedlib.methods.pfedmb import SHARED, branch_mean
from fedlib.training.evaluation import evaluate

PLAIN = {"model": "lenet5_plain", "progress": False}


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def test_eq_5_with_one_hot_alphas_is_the_mean_of_each_cluster_and_a_branch_without_weight_stays():
    w, before, chosen = normal(4, 3, 5), normal(3, 5, seed=1), F.one_hot(torch.tensor([2, 0, 2, 0]), 3).double()
    [mean] = branch_mean({"a": w}, {SHARED: chosen}, torch.tensor([3.0, 1.0, 4.0, 1.0]), {"a": before}).values()
    expected = (w[1, 0] + w[3, 0]) / 2, before[1], (3 * w[0, 2] + 4 * w[2, 2]) / 7
    assert torch.allclose(mean, torch.stack(expected))


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
