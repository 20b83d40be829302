"""Inputs that must have no influence: no model learns from test parts, from clients that are absent or unseen, or from
labels that it must not see. In the second of two runs all of these differ, and no client is unseen."""

from dataclasses import replace

import numpy as np
import pytest
from methods import FACTORIES
from oracle import ragged
from test_contract import same_bits

import fedlib as fl
from fedlib.federation import Federation
from fedlib.runs.plan import cohorts
from fedlib.runs.store import flatten

SETTING = dict(rounds=2, join_ratio=0.34, local_epochs=2, batch_size=16, lr=0.05, tune_epochs=1, progress=False)
SEEN = 6  # of seven clients
PRESENT = sorted(set(np.concatenate(cohorts(SEEN, 0.34, SETTING["rounds"], seed=0)).tolist()))
ABSENT = [i for i in range(SEEN) if i not in PRESENT]
VARIANTS = {name: make() for name, make in FACTORIES.items()} | {
    "pfedhr, unlabelled": fl.pfedhr(labelled=False, server_epochs=1, server_batch=20),
    "pfedhr, averaged": fl.pfedhr(average=True, server_epochs=1, server_batch=20),
    "fedgh, without public images": fl.fedgh(public=False),
    "fedsimsup, mixed": fl.fedsimsup("mixed", supervisor_epochs=1),
    "fedcs, around FedRep": fl.fedcs(base="fedrep", every=1),
    "perfedavg, free": fl.perfedavg(alpha=0.05, beta=0.05, hessian="free"),
    "fedap, from the start": fl.fedap(warm_up=0),
    "pfedsim, from the start": fl.pfedsim(generalization=0),
}
SEES_PUBLIC_LABELS = {"pfedhr", "pfedhr, averaged", "fedmd", "fedgh"}
ASKS_ABSENT_CLIENTS = {"fedap", "fedap, from the start"}  # once, for the statistics of everybody's BatchNorm inputs
SEES_PUBLIC_IMAGES = SEES_PUBLIC_LABELS | {"pfedhr, unlabelled", "fedkemf", "fccl"}


@pytest.fixture(scope="module")
def federation() -> Federation:
    """The ragged clients of the oracles, each with four images more to validate on."""
    whole = ragged()
    spare = np.setdiff1d(np.arange(len(whole.data)), np.concatenate([*whole.train, *whole.test]))
    return replace(whole, validation=tuple(spare[4 * i : 4 * i + 4] for i in range(whole.n_clients)))


def shuffled(federation: Federation, index: np.ndarray, seed: int = 0) -> Federation:
    """The images at `index` change places, and get labels at random: the mean over all images stays what it is."""
    x, y, rng = federation.data.x.copy(), federation.data.y.copy(), np.random.default_rng(seed)
    x[index], y[index] = x[rng.permutation(index)], rng.integers(0, 4, len(index))
    return replace(federation, data=replace(federation.data, x=x, y=y))


def other_public(federation: Federation, images: bool) -> Federation:
    """Other labels for the public images, and other images if wanted."""
    public, rng = federation.public, np.random.default_rng(0)
    x = public.x[::-1].copy() // 2 if images else public.x
    return replace(federation, public=replace(public, x=x, y=rng.permutation(public.y)))


def without_the_unseen(federation: Federation) -> Federation:
    """Everybody but the last client, who is never sampled anyway."""
    parts = {name: getattr(federation, name)[:SEEN] for name in ("train", "test", "validation")}
    return replace(federation, **parts, unseen=0)


def of_participants(result: fl.RunResult) -> tuple:
    """The models of those who took part."""
    return tuple(result.weights(i) for i in PRESENT)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs that both tests want are run once."""
    store = tmp_path_factory.mktemp("influence")
    return lambda method, federation: fl.run(method, federation, **SETTING, store=store)


@pytest.mark.parametrize("name", VARIANTS)
def test_what_must_not_matter_does_not_matter(name, federation, run):
    other = shuffled(federation, np.concatenate(federation.test))
    if name not in ASKS_ABSENT_CLIENTS:
        other = shuffled(other, np.concatenate([federation.train[i] for i in ABSENT]), seed=1)
    if name not in SEES_PUBLIC_LABELS:
        other = other_public(other, images=name not in SEES_PUBLIC_IMAGES)
    one, two = run(VARIANTS[name], federation), run(VARIANTS[name], without_the_unseen(other))
    assert same_bits(of_participants(one), of_participants(two))
    assert one.rounds.drop(columns="seconds").equals(two.rounds.drop(columns="seconds"))
    losses = [own.validation[own.validation["client"].isin(PRESENT)].reset_index(drop=True) for own in (one, two)]
    assert losses[0].equals(losses[1])
    assert set(losses[0]["when"]) == {"before", "after"}  # so nobody is tuned on a test part, either


@pytest.mark.parametrize("name", VARIANTS)
def test_what_must_matter_does(name, federation, run):
    """So the test above can fail: other labels of a participant; other public labels, or images, where it has them."""
    one, two = run(VARIANTS[name], federation), run(VARIANTS[name], shuffled(federation, federation.train[PRESENT[0]]))
    assert not same_bits(of_participants(one), of_participants(two))
    if name in SEES_PUBLIC_IMAGES:
        three = run(VARIANTS[name], other_public(federation, images=name not in SEES_PUBLIC_LABELS))
        assert not same_bits(flatten(one.state), flatten(three.state))
