"""Partitions: no sample is assigned twice or lost, and no client is tested on images that another trains on."""

import inspect
import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import python
from refusals import refused
from test_methods import QUIET, cohort_of

import fedlib as fl
from fedlib.data import Dataset
from fedlib.federation.federation import _cut
from fedlib.studies.tasks import Run
from fedlib.training.evaluation import evaluate

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


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_partition_is_a_pure_function_of_its_seed(name):
    first, again, other = (deal(PARTITIONS[name], 6, seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@given(alpha=st.floats(0.05, 10), seed=st.integers(0, 99))
def test_dirichlet_keeps_its_minimum_size(alpha, seed):
    assert min(map(len, deal(fl.dirichlet(alpha, min_size=20), 5, seed))) >= 20


def test_dirichlet_is_nearly_iid_with_a_large_alpha_deals_every_class_and_gives_nobody_more_than_its_share():
    def top_share(alpha):
        counts = np.stack([np.bincount(LABELS[own], minlength=6) for own in deal(fl.dirichlet(alpha, 5), 6, 0)])
        return (counts.max(1) / counts.sum(1)).mean()

    assert top_share(1000.0) < 0.22 < 0.5 < top_share(0.1)
    for seed in range(20):
        shares = deal(fl.dirichlet(alpha=1e-3, min_size=0), 3, seed)
        assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(600))
    # Without the cap a client may be drawn nearly all of all classes; with it at most its share plus one class.
    y = np.arange(400) % 2
    for seed in range(20):
        assert max(map(len, deal(fl.dirichlet(0.1, 0), 6, seed))) < 600 / 6 + 100
        shares = fl.dirichlet(alpha=1e-6, min_size=0).assign(y, y, 2, np.random.default_rng(seed))
        assert sorted(map(len, shares)) == [200, 200]  # all of class 0 is exactly one client's share


@pytest.mark.parametrize("n_classes", [1, 2, 5])
def test_classes_per_client_gives_each_exactly_so_many_and_shares_owners_evenly_and_shards_give_few(n_classes):
    shares = deal(fl.classes_per_client(n_classes), 12, 3)
    owned = [set(LABELS[own].tolist()) for own in shares]
    assert {len(classes) for classes in owned} == {n_classes}
    owners = [sum(c in classes for classes in owned) for c in range(6)]
    assert max(owners) - min(owners) <= 1
    assert max(len(set(LABELS[own].tolist())) for own in deal(fl.shards(n_classes), 6, 0)) <= 2 * n_classes


def test_label_groups_cut_a_shared_class_into_equal_parts_and_domains_are_cut_into_clients_of_equal_sizes():
    shares = deal(fl.label_groups([[0, 1], [1, 2]]), 2, 0)
    counts = [np.bincount(LABELS[own], minlength=6).tolist() for own in shares]
    assert counts == [[100, 50, 0, 0, 0, 0], [0, 50, 100, 0, 0, 0]]
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
    plain, result = (fl.run("fedavg", f, "lenet5_plain", **QUIET, evaluate_every=2) for f in (without, fed))
    assert plain.validation is None
    assert not (plain.folder / "validation.csv").exists()
    table, cohort = result.validation, cohort_of(fed, 0, model="lenet5_plain")
    assert list(table) == ["round", "client", "n_test", "accuracy", "loss", "when"]
    assert table["n_test"].tolist() == 2 * sizes
    models = {name: t.double() for name, t in result.models.items()}
    assert np.allclose(table["loss"][5:], evaluate(cohort.model, cohort.images, models, fed.validation)[1], rtol=1e-5)
    assert np.allclose(pd.read_csv(result.folder / "validation.csv")["loss"], table["loss"])


def test_public_images_are_the_same_share_of_every_class_nobodys_and_of_the_official_train_part(tiny):
    alone, shown = (fl.federate(tiny, fl.iid(), 4, test_fraction=0.25, public=share) for share in (0.0, 0.2))
    assert alone.public is None
    assert np.bincount(shown.public.y).tolist() == [9, 9, 9, 9]  # of 60: 3/4 would train, a fifth of that
    dealt = np.concatenate([*shown.train, *shown.test])
    assert len(dealt) == len(set(dealt.tolist())) == 240 - 36
    assert sum(map(len, shown.test)) == 60  # a quarter of all, as without public images
    pixels = {x.tobytes() for x in tiny.x[dealt]}
    assert not any(x.tobytes() in pixels for x in shown.public.x)
    assert not np.array_equal(shown.public.y, np.sort(shown.public.y))
    again, other = (fl.federate(tiny, fl.iid(), 4, seed=seed, public=0.2).fingerprint for seed in (0, 1))
    assert fl.federate(tiny, fl.iid(), 4, public=0.2).fingerprint == again != other
    split = (np.arange(240) >= 160).astype(np.uint8)
    shown = fl.federate(replace(tiny, split=split), fl.iid(), 4, test_fraction=None, public=0.1)
    assert len(shown.public) == 16
    assert (shown.public.split == 0).all()
    assert (sum(map(len, shown.train)), sum(map(len, shown.test))) == (144, 80)
    rare = tiny.subset(np.concatenate([np.flatnonzero(tiny.y != 3), np.flatnonzero(tiny.y == 3)[:4]]))
    public = fl.federate(rare, fl.iid(), 4, test_fraction=0.25, public=0.1).public
    assert np.bincount(public.y).tolist() == [5, 5, 5, 1]  # a rare class has one, too


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
        ([[0, 1], [2, 240], [3, 4]], "returned positions from 0 to 240 of 240 samples"),
        ([[0, 1], [2, 3], [-1, 4]], "returned positions from -1 to 4"),
    ],
)
def test_a_partition_must_return_positions_of_different_samples_but_may_leave_some_out(tiny, returned, sentence):
    mine, few = (fl.Partition("mine", {}, lambda *_, r=r: r) for r in (returned, np.split(np.arange(30), [7, 18])))
    refused(rf"mine\(\) {sentence}", fl.federate, tiny, mine, clients=3)
    assert fl.federate(tiny, few, clients=3).sizes.tolist() == [7, 11, 12]


def leaks(federation: fl.Federation) -> set[int]:
    """Originals of a client's test images that any client sees before, or of validation images that any trains on."""
    data, public = federation.data, federation.public
    source = np.arange(len(data)) if data.source is None else data.source
    parts = (federation.train, federation.test, federation.validation)
    train, test, validation = ({s for own in part for s in source[own].tolist()} for part in parts)
    if public is not None and public.source is not None:
        train |= set(public.source.tolist())
    return test & train | test & validation | validation & train


@pytest.mark.parametrize("profile", ["smoke", "quick"])
@pytest.mark.parametrize("paper", fl.report.PAPERS)
def test_nobody_in_a_study_is_tested_on_an_original_that_somebody_trains_on(paper, profile):
    runs = [task for task in fl.study(paper, profile).tasks.values() if isinstance(task, Run)]
    made = {(run.images, str(run.partition), run.clients, str(run.federate), run.public): run for run in runs}
    assert made
    for federation in (run.arguments(0)["federation"] for run in made.values()):
        assert leaks(federation) == set(), federation
        assert (federation.data.source is None) == (federation.data.name == "characters")


def with_sources(source: np.ndarray) -> Dataset:
    """As many images of four classes in two domains, a fifth of the sources for test."""
    n = len(source)
    x, split = np.zeros((n, 1, 2, 2), np.uint8), (source % 5 == 0).astype(np.uint8)
    return Dataset("made up", x, np.arange(n) % 4, tuple("abcd"), split, np.arange(n) // 4 % 2, ("l", "r"), source)


HOW = st.fixed_dictionaries(
    {
        "partition": st.sampled_from([fl.iid(), fl.dirichlet(0.3, 4), fl.shards(2), fl.domains()]),
        "clients": st.sampled_from([2, 4, 8]),
        "test_fraction": st.sampled_from([None, 0.2, 0.5, 0.8]),
        "validation_fraction": st.sampled_from([0.0, 0.3]),
        "public": st.sampled_from([0.0, 0.2]),
        "seed": st.integers(0, 99),
    }
)


def dealt_out(data: Dataset, how: dict) -> fl.Federation | None:
    """None where a client would be left without a part."""
    try:
        return fl.federate(data, **how)
    except ValueError as error:
        if "leaves client" not in str(error):
            raise
    return None


@given(how=HOW, n=st.integers(80, 200), n_sources=st.integers(5, 150), seed=st.integers(0, 99))
def test_sources_stay_whole_however_they_are_dealt_out(how, n, n_sources, seed):
    data = with_sources(np.random.default_rng(seed).integers(0, n_sources, n))
    if federation := dealt_out(data, how):
        assert leaks(federation) == set()
        assert fl.federate(data, **how).fingerprint == federation.fingerprint
        dealt = np.concatenate([own for part in federation.parts for own in part])
        assert len(np.unique(dealt)) == len(dealt) == federation.counts().sum()
        assert np.array_equal(federation.counts().sum(1), federation.sizes)
        if how["test_fraction"]:
            assert len(dealt) + len(federation.public or ()) == n


@given(how=HOW, n=st.integers(80, 200))
def test_sources_of_one_image_each_change_nothing(how, n):
    data = with_sources(np.random.default_rng(n).permutation(n))
    with_them, without = (dealt_out(own, how) for own in (data, replace(data, source=None)))
    assert (with_them is None) == (without is None)
    for one, other in zip(with_them.parts, without.parts, strict=True) if with_them else ():
        assert all(map(np.array_equal, one, other))


def test_without_sources_the_last_of_each_share_are_cut_off_and_with_them_whole_sources():
    shares = [np.array([3, 1, 4, 5]), np.array([0, 6, 2])]
    data = with_sources(np.arange(7))
    for source in (None, 7 - np.arange(7)):
        kept, off = _cut(replace(data, source=source), shares, 0.5, np.array([], int))
        assert [own.tolist() for own in kept + off] == [[3, 1], [0], [4, 5], [6, 2]]
    # Two images of source 9 are 2 and 3. The first of them, 2, is at the very end: both go, and 5 fills up.
    kept, off = _cut(replace(data, source=np.array([0, 1, 9, 9, 4, 5, 6])), shares, 0.5, np.array([], int))
    assert [own.tolist() for own in kept + off] == [[1, 4], [0], [3, 5], [6, 2]]
    kept, off = _cut(replace(data, source=np.array([0, 1, 9, 9, 4, 5, 6])), shares, 0.5, np.array([2]))
    assert [own.tolist() for own in kept + off] == [[3, 1], [2], [4, 5], [0, 6]]


def test_public_images_of_an_original_that_somebody_is_tested_on_are_left_out():
    data = with_sources(np.arange(120) % 60)
    federation = fl.federate(data, fl.iid(), 4, test_fraction=0.25, validation_fraction=0.25)
    shown = federation.with_public(replace(data, name="other"))
    assert (leaks(shown), len(shown.public)) == (set(), sum(map(len, federation.train)))
    assert len(federation.with_public(replace(data, source=None)).public) == 120


@pytest.mark.parametrize(("name", "fraction"), [("digits", 0.5), ("digit_styles", 0.2), ("digit_pairs", 0.2)])
def test_clients_keep_their_share_of_test_images_though_sources_stay_whole(name, fraction):
    data = fl.load(name)
    for partition in (fl.dirichlet(0.5), fl.iid()):
        federation = fl.federate(data, partition, clients=12, test_fraction=fraction)
        share = np.array([len(own) for own in federation.test]) / federation.sizes
        np.testing.assert_allclose(share, fraction, atol=0.05)
        copies = np.bincount(data.source)[data.source]  # of the original of each image
        tested = np.concatenate(federation.test)
        assert copies[tested].mean() == pytest.approx(copies.mean(), rel=0.05)


LISTS = [[7, 0, 3], [1, 2], list(range(100, 140))]
PARTS = [{"train": one[:1], "val": [], "test": one[1:]} for one in LISTS]
ONCE = dict(rounds=1, join_ratio=1.0, lr=0.05, progress=False)
FILES = {
    "json": lambda file: file.write(json.dumps(LISTS).encode()),
    "json by name": lambda file: file.write(json.dumps({str(i): LISTS[i] for i in (2, 0, 1)}).encode()),
    "json by part": lambda file: file.write(json.dumps(PARTS).encode()),
    "npz": lambda file: np.savez(file, *map(np.array, LISTS)),
    "npz by name": lambda file: np.savez_compressed(file, **{str(i): np.uint16(one) for i, one in enumerate(LISTS)}),
}


def written(path: Path, form: str) -> Path:
    with path.open("wb") as file:
        FILES[form](file)
    return path


def federate(data, partition, **given):
    return fl.federate(data, partition, clients=3, **given)


@pytest.mark.parametrize("form", FILES)
def test_a_file_gives_each_client_the_images_that_it_names(tiny, tmp_path, form):
    federation = federate(tiny, fl.partition_file(written(tmp_path / "mine", form)))
    same = federate(tiny, fl.index_lists(LISTS))
    assert (federation.fingerprint, str(federation.partition)) == (same.fingerprint, str(same.partition))


def test_the_lists_enter_the_address_of_a_run_and_are_read_when_the_partition_is_made(tiny, tmp_path):
    moved = [[7, 0, 4], *LISTS[1:]]
    results = [fl.run("fedavg", federate(tiny, fl.index_lists(lists)), **ONCE) for lists in (LISTS, moved, LISTS)]
    names = [result.folder.name for result in results]
    assert names[0] == names[2] != names[1]
    shifted = [[7, 0], [3, 1, 2], LISTS[2]]  # the same images in the same order
    assert len({str(fl.index_lists(lists)) for lists in (LISTS, moved, shifted)}) == 3
    assert results[0].config["partition"].startswith("index_lists(clients=3, sha256=")
    path = written(tmp_path / "mine", "json")
    partition = fl.partition_file(path)
    path.unlink()
    assert federate(tiny, partition).sizes.tolist() == [3, 2, 40]


def test_with_the_official_split_positions_count_the_other_images():
    data = fl.load("digits", copies=1)
    assert (data.split != 0).any()
    positions = np.flatnonzero(data.split != 1)
    lists = [[0, 2, 900], list(range(10, 60)), list(range(100, 400))]
    federation = federate(data, fl.index_lists(lists), test_fraction=None)
    for train, one in zip(federation.train, lists, strict=True):
        assert sorted(train) == sorted(positions[one])


@pytest.mark.parametrize(
    ("lists", "sentence"),
    [
        ([], "there is no client; give one list"),
        ([[0], []], "client 1 has no image"),
        ([[0], [-1]], "the list of client 1 must hold positions of images, whole numbers from 0"),
        ([[0], [1.0]], "the list of client 1 must hold"),
        ([[0], [True]], "the list of client 1 must hold"),
        ([[0], ["1"]], "the list of client 1 must hold"),
        ([[0], [[1], [2]]], "the list of client 1 must hold"),
        ([[0], [[1], [2, 3]]], "the list of client 1 must hold"),
        ([[0], None], "the list of client 1 must hold"),
        ([[5, 0], [1, 5]], "image 5 is in the lists of clients 0 and 1; it may occur only once"),
        ([[5, 0], [1, 2, 1]], "image 1 is in the lists of clients 1 and 1"),
    ],
)
def test_wrong_lists_are_one_sentence(lists, sentence, tmp_path):
    refused(rf"index_lists: .*{sentence}", fl.index_lists, lists)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(lists))
    refused(rf"mine\.json: .*{sentence}", fl.partition_file, path)


def test_other_numbers_of_clients_or_images_are_refused_when_dealt_out(tiny):
    refused("clients=4 is not allowed; index_lists has 3 clients", fl.federate, tiny, fl.index_lists(LISTS), clients=4)
    outside = fl.index_lists([[0, 1], [2, 3], [4, 240]])
    refused("index_lists names image 240, but there are only 240, counted from 0", federate, tiny, outside)
    assert federate(tiny, fl.index_lists([[0, 1], [2, 3], [4, 239]])).sizes.tolist() == [2, 2, 2]


def test_a_file_that_is_none_is_one_sentence(tmp_path):
    path = tmp_path / "mine"
    for content in (b"", b"{", b"7", b'"0"', b"PK\x03\x04", b"\x93NUMPY", b"\xff\xfe", b"[" * 100_000):
        path.write_bytes(content)
        refused(r"mine is not a partition file: it is neither JSON nor \.npz of lists \(", fl.partition_file, path)
    refused(r"nowhere' cannot be read \(No such file", fl.partition_file, tmp_path / "nowhere")
    path.write_text('{"a": [0], "1": [1]}')
    refused(r"the clients are named a, 1; their names must be 0, 1, 2, \.\.\.", fl.partition_file, path)
    path.write_text('{"0": [0], "2": [1]}')
    refused(r"the clients are named 0, 2; their names", fl.partition_file, path)


class Evil:
    def __reduce__(self):
        return pytest.fail, ("a pickle was read",)


def test_pickles_of_lists_and_of_images_are_refused_with_the_way_to_convert_them(tiny, tmp_path):
    path = tmp_path / "partition.pkl"
    path.write_bytes(pickle.dumps({"data_indices": Evil()}))
    sentence = refused("is a pickle, and reading one can execute any code; if you trust it", fl.partition_file, path)
    arrays = [{"train": np.array(one[:1]), "val": [], "test": one[1:]} for one in LISTS]  # as FL-bench has it
    path.write_bytes(pickle.dumps({"separation": {}, "data_indices": arrays}))
    convert = sentence.partition("trust it, run ")[2].rstrip(".")
    python("-c", f"import json, pickle; {convert}", cwd=tmp_path)
    converted = federate(tiny, fl.partition_file(tmp_path / "partition.json"))
    assert converted.fingerprint == federate(tiny, fl.index_lists(LISTS)).fingerprint
    (tmp_path / "train").mkdir()
    file = tmp_path / "train" / "0.npz"  # as PFLlib has it: its array `data` is a pickled dict
    np.savez(file, data=np.array({"x": np.zeros((2, 1, 8, 8)), "y": [0, 1]}, dtype=object))
    for path in (file, file.parent.parent):
        refused(r"PFLlib's.*save the images of all clients in one \.npz with x_train", fl.partition_file, path)


class Halves:
    def __init__(self, clients: int = 2):
        self.dataset = None
        self.clients = clients
        self._secret = [1]

    @property
    def num_partitions(self) -> int:
        return self.clients

    def load_partition(self, partition_id: int):
        return self.dataset.select(range(partition_id, len(self.dataset), self.clients))


def test_anything_with_flowers_interface_deals_out(tiny):
    pytest.importorskip("datasets")
    partition = fl.flower(Halves())
    assert str(partition) == "flower(partitioner=Halves, clients=2)"
    lists = fl.index_lists([range(0, 240, 2), range(1, 240, 2)])
    both = [fl.federate(tiny, own, clients=2).fingerprint for own in (partition, lists)]
    assert both[0] == both[1]
    refused("clients=3 is not allowed; the Halves makes 2 partitions", fl.federate, tiny, partition, clients=3)


def test_flowers_own_partitioners_deal_out(tiny):
    flwr = pytest.importorskip("flwr_datasets.partitioner")
    given = dict(num_partitions=3, partition_by="label", seed=1)
    skewed = [fl.flower(flwr.DirichletPartitioner(alpha=alpha, **given)) for alpha in (0.5, 5.0, 0.5)]
    first, second, third = (federate(tiny, partition) for partition in skewed)
    assert federate(tiny, skewed[0]).fingerprint == first.fingerprint  # it takes one data set: ours is a copy
    assert first.sizes.sum() == len(tiny)
    assert first.fingerprint == third.fingerprint != second.fingerprint
    assert "alpha=0.5" in str(skewed[0])
    assert str(skewed[0]) == str(skewed[2]) != str(skewed[1])
    by_domain = fl.federate(tiny, fl.flower(flwr.NaturalIdPartitioner(partition_by="domain")), clients=2)
    for train, domain in zip(by_domain.train, (0, 1), strict=True):
        assert set(tiny.domain[train]) == {domain}
    assert fl.run("fedavg", first, **ONCE).folder.name != fl.run("fedavg", second, **ONCE).folder.name


def test_a_partitioner_that_cannot_be_used_is_one_sentence(tiny, monkeypatch):
    pytest.importorskip("datasets")
    refused(r"partitioner is of type float; it must have num_partitions and load_part", fl.flower, 0.5)
    used = Halves()
    used.dataset = "mine"
    refused("the Halves already has a data set; create it without one", fl.flower, used)
    greedy, idle = Halves(), Halves()
    monkeypatch.setattr(Halves, "load_partition", lambda self, i: self.dataset.select(range(5 * (self is not None))))
    refused("Halves: image 0 is in the lists of clients 0 and 1", fl.federate, tiny, fl.flower(greedy), clients=2)
    monkeypatch.setattr(Halves, "load_partition", lambda self, i: self.dataset.select([]))
    refused("Halves: client 0 has no image; every client", fl.federate, tiny, fl.flower(idle), clients=2)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r'fl\.flower needs datasets, .*pip install "fedlib-papers\[hf\]"'):
        fl.flower(Halves())
