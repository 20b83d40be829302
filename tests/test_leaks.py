"""No client is tested on images that another trains on: all federations of all studies, and invented ones."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedlib as fl
from fedlib.data import Dataset
from fedlib.federation.federation import _cut
from fedlib.studies.tasks import Run


def federations_of(paper: str, profile: str) -> list[fl.Federation]:
    """All federations of a paper's runs, those with other public images too."""
    runs = [task for task in fl.study(paper, profile).tasks.values() if isinstance(task, Run)]
    made = {(run.images, str(run.partition), run.clients, str(run.federate), run.public): run for run in runs}
    return [run.arguments(0)["federation"] for run in made.values()]


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
    made = federations_of(paper, profile)
    assert made
    for federation in made:
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
        assert len(np.unique(dealt)) == len(dealt)
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
    assert leaks(shown) == set()
    assert len(shown.public) == sum(map(len, federation.train))
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
