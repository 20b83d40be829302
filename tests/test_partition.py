"""Partitions: no sample is assigned twice or lost, and each has its documented property."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

import fedlib as fl

LABELS = np.arange(600) % 6
DOMAINS = np.arange(600) // 200
PARTITIONS = {
    "iid": fl.iid(),
    "dirichlet": fl.dirichlet(alpha=0.3, min_size=5),
    "shards": fl.shards(per_client=2),
    "classes_per_client": fl.classes_per_client(2),
    "label_groups": fl.label_groups([[0, 1], [2, 3], [4, 5]]),
    "domains": fl.domains(),
    "dirichlet_groups": fl.dirichlet_groups(alpha=2.0, groups=3, min_size=5),
}


def deal(partition: fl.Partition, clients: int, seed: int) -> list[np.ndarray]:
    return partition.assign(LABELS, DOMAINS, clients, np.random.default_rng(seed))


@given(name=st.sampled_from(sorted(PARTITIONS)), clients=st.sampled_from([3, 6, 12]), seed=st.integers(0, 99))
def test_every_sample_is_dealt_exactly_once(name, clients, seed):
    shares = deal(PARTITIONS[name], clients, seed)
    assert len(shares) == clients
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(600))


DEFAULTS = {
    fl.iid: dict(),
    fl.dirichlet: dict(min_size=40),
    fl.shards: dict(per_client=2),
    fl.classes_per_client: dict(),
    fl.uneven_classes: dict(n_classes=20, low=0.3, high=0.7),
    fl.label_groups: dict(),
    fl.dirichlet_groups: dict(groups=10, min_size=100),
    fl.mixed_domains: dict(mixed=0.1),
    fl.domains: dict(),
    fl.federate: dict(test_fraction=0.5, seed=0, validation_fraction=0, unseen=0, public=0),
}


@pytest.mark.parametrize("function", DEFAULTS, ids=lambda function: function.__name__)
def test_defaults(function):
    parameters = inspect.signature(function).parameters.values()
    assert {own.name: own.default for own in parameters if own.default is not own.empty} == DEFAULTS[function]


def test_a_draw_that_gives_a_class_to_nobody_is_repeated():
    """With a tiny alpha a class goes to one client, which may already be full."""
    for seed in range(20):
        shares = deal(fl.dirichlet(alpha=1e-3, min_size=0), 3, seed)
        assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(600))


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_partition_is_a_pure_function_of_its_seed(name):
    first, again, other = (deal(PARTITIONS[name], 6, seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@given(alpha=st.floats(0.05, 10), seed=st.integers(0, 99))
def test_dirichlet_keeps_its_minimum_size(alpha, seed):
    assert min(map(len, deal(fl.dirichlet(alpha, min_size=20), 5, seed))) >= 20


def test_dirichlet_with_a_large_alpha_is_nearly_iid_and_with_a_small_one_is_not():
    def top_share(alpha):
        counts = np.stack([np.bincount(LABELS[own], minlength=6) for own in deal(fl.dirichlet(alpha, 5), 6, 0)])
        return (counts.max(1) / counts.sum(1)).mean()

    assert top_share(1000.0) < 0.22 < 0.5 < top_share(0.1)


def test_dirichlet_gives_nothing_more_to_a_client_that_has_its_share():
    # Without the cap a client may be drawn nearly all of all classes; with it at most its share plus one class.
    y = np.arange(400) % 2
    for seed in range(20):
        assert max(map(len, deal(fl.dirichlet(0.1, 0), 6, seed))) < 600 / 6 + 100
        shares = fl.dirichlet(alpha=1e-6, min_size=0).assign(y, y, 2, np.random.default_rng(seed))
        assert sorted(map(len, shares)) == [200, 200]  # all of class 0 is exactly one client's share


@pytest.mark.parametrize("n_classes", [1, 2, 5])
def test_classes_per_client_gives_each_exactly_so_many_and_shares_owners_evenly(n_classes):
    shares = deal(fl.classes_per_client(n_classes), 12, 3)
    owned = [set(LABELS[own].tolist()) for own in shares]
    assert {len(classes) for classes in owned} == {n_classes}
    owners = [sum(c in classes for classes in owned) for c in range(6)]
    assert max(owners) - min(owners) <= 1


def test_label_groups_cut_a_shared_class_into_equal_parts():
    shares = deal(fl.label_groups([[0, 1], [1, 2]]), 2, 0)
    counts = [np.bincount(LABELS[own], minlength=6).tolist() for own in shares]
    assert counts == [[100, 50, 0, 0, 0, 0], [0, 50, 100, 0, 0, 0]]


def test_domains_keep_every_client_in_one_domain_with_equal_sizes():
    shares = deal(fl.domains(), 6, 0)
    assert [set(DOMAINS[own].tolist()) for own in shares] == [{0}, {0}, {1}, {1}, {2}, {2}]
    assert {len(own) for own in shares} == {100}


def test_dirichlet_groups_are_alike_inside_and_differ_between():
    shares = deal(fl.dirichlet_groups(0.3, groups=3, min_size=20), 12, 0)
    counts = np.stack([np.bincount(LABELS[own], minlength=6) for own in shares])
    share = (counts / counts.sum(1, keepdims=True)).reshape(3, 4, 6)
    assert np.abs(share - share.mean(1, keepdims=True)).mean() < 0.3 * np.abs(share.mean(1) - share.mean((0, 1))).mean()
    sizes = counts.sum(1).reshape(3, 4)
    assert (sizes.max(1) - sizes.min(1) <= 1).all()
    assert sizes.min() >= 20


def test_mixed_domains_take_turns_and_end_with_clients_that_mix_all():
    domain = np.repeat([0, 1, 2], [300, 200, 250])
    shares = fl.mixed_domains(mixed=0.1).assign(domain % 2, domain, 15, np.random.default_rng(0))
    held = np.stack([np.bincount(domain[own], minlength=3) for own in shares])
    assert (held[:12] == 45 * np.tile(np.eye(3), (4, 1))).all()  # (200 - 20) / 4
    assert (held[12:].sum(0) == 20).all()
    assert ((held[12:] >= 6) & (held[12:] <= 7)).all()
    assert len(np.unique(np.concatenate(shares))) == 600


def test_shards_give_each_client_few_classes():
    assert max(len(set(LABELS[own].tolist())) for own in deal(fl.shards(2), 6, 0)) <= 4


def test_the_images_of_a_client_are_those_of_all_its_parts(federation):
    assert federation.counts().sum() == 240
    assert np.array_equal(federation.counts().sum(1), federation.sizes)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda d: fl.dirichlet(alpha=0), r"alpha=0 is not allowed; it must be a number in \(0, inf\)"),
        (lambda d: fl.shards(0), "per_client=0 is not allowed"),
        (lambda d: fl.federate(d, fl.iid(), clients=121), "clients=121 is not allowed; tiny has 240 samples"),
        (lambda d: fl.federate(d, fl.iid(), clients=4, test_fraction=1.0), "test_fraction=1.0 is not allowed"),
        (lambda d: fl.federate(d, fl.iid(), clients=4, public=1), r"public=1 is not allowed; .* in \[0, 1\)"),
        (lambda d: fl.federate(d, fl.domains(), clients=3), "needs a multiple of the 2 domains"),
        (lambda d: fl.dirichlet_groups(alpha=0), "alpha=0 is not allowed"),
        (lambda d: fl.dirichlet_groups(1.0, groups=0), "groups=0 is not allowed"),
        (lambda d: fl.federate(d, fl.dirichlet_groups(1.0, groups=4), clients=6), "needs a multiple of 4"),
        (lambda d: fl.federate(d, fl.dirichlet_groups(0.1, 2, min_size=80), clients=4), "was not met in"),
        (lambda d: fl.mixed_domains(mixed=1), r"mixed=1 is not allowed; it must be a number in \(0, 1\)"),
        (lambda d: fl.federate(d, fl.mixed_domains(), clients=2), "needs a multiple of 2, at least 4"),
        (lambda d: fl.federate(d, fl.classes_per_client(5), clients=4), "n_classes=5 is not allowed"),
        (lambda d: fl.federate(d, fl.label_groups([[0, 9]]), clients=4), "labels must be among the data set's"),
        (lambda d: fl.federate(d, fl.dirichlet(0.5, min_size=100), clients=4), "need 400 samples"),
        (lambda d: fl.federate(d, fl.dirichlet(0.1, min_size=80), clients=3), "was not met in"),
        (lambda d: fl.uneven_classes(n_classes=0), "n_classes=0 is not allowed"),
        (lambda d: fl.uneven_classes(low=0), r"low=0 is not allowed; it must be a number in \(0, inf\)"),
        (lambda d: fl.uneven_classes(low=1, high=0.4), r"high=0.4 is not allowed; it must be a number in \[1, inf\)"),
        (lambda d: fl.federate(d, fl.uneven_classes(5), 4), "n_classes=5 is not allowed; .*, from 1 to 4"),
        (lambda d: fl.federate(d, fl.iid(), 4, validation_fraction=1), "validation_fraction=1 is not allowed"),
        (lambda d: fl.federate(d, fl.iid(), 81, validation_fraction=0.5), "needs one to train on and .* validate on"),
        (lambda d: fl.federate(d, fl.iid(), 4, validation_fraction=0.01), "leaves client 0 without .* to validate on"),
        (lambda d: fl.federate(d, fl.iid(), 4, None), "test_fraction=None is not allowed; 'tiny' has no official test"),
        (
            lambda d: fl.federate(replace(d, split=(np.arange(len(d)) < 2).astype(np.uint8)), fl.iid(), 4, None),
            r"leaves client \d without a sample to test on",
        ),
        (lambda d: fl.label_groups([[0, 0.9]]), "groups has the label 0.9; labels are whole numbers"),
    ],
)
def test_bad_arguments_get_one_sentence(tiny, make, sentence):
    refused(sentence, make, tiny)


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        ([range(80), range(80, 160)], "returned 2 arrays for 3 clients; it must return one array per client"),
        (iter([range(9)] * 3), "returned a .*iterator for 3 clients"),
        ([np.arange(240) < 80] * 3, r"returned bool \(240,\) for client 0; it must return positions"),
        ([[0], [1], [[2]]], r"returned int64 \(1, 1\) for client 2"),
        ([[0, 1], [2, 3], [3, 4]], "assigned a sample twice"),
        ([[0, 1], [2, 2], [3, 4]], "assigned a sample twice"),
        ([[0, 1], [2, 240], [3, 4]], "returned positions from 0 to 240; there are 240 samples"),
        ([[0, 1], [2, 3], [-1, 4]], "returned positions from -1 to 4"),
    ],
)
def test_a_partition_must_return_positions_of_different_samples(tiny, returned, sentence):
    mine = fl.Partition("mine", {}, lambda y, domain, n_clients, rng: returned)
    refused(rf"mine\(\) {sentence}", fl.federate, tiny, mine, clients=3)


def test_a_partition_may_leave_samples_out(tiny):
    mine = fl.Partition("mine", {}, lambda y, domain, n_clients, rng: np.split(np.arange(30), [7, 18]))
    assert fl.federate(tiny, mine, clients=3).sizes.tolist() == [7, 11, 12]
