"""Inputs that must have no influence: no model learns from test parts, from clients that are absent or unseen, or from
labels that it must not see; nor have two purposes of a run the same random numbers."""

import sys
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from methods import FACTORIES
from oracle import ragged
from test_contract import same_bits

import fedlib as fl
from fedlib import streams
from fedlib.checkpoint import flatten
from fedlib.federation import Federation
from fedlib.models import model
from fedlib.runs.plan import cohorts
from fedlib.training import local, server

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


def of_participants(result: fl.RunResult) -> tuple:
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
    seen = {part: getattr(other, part)[:SEEN] for part in ("train", "test", "validation")}
    one, two = run(VARIANTS[name], federation), run(VARIANTS[name], replace(other, **seen, unseen=0))
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


LONGER = dict(rounds=3, join_ratio=0.7, local_epochs=2, batch_size=64, lr=0.05, tune_epochs=2, progress=False)


def test_streams_that_integers_would_confuse_are_different_and_one_is_the_same_thing_on_every_machine():
    """NumPy pads seeds with zeros: (3, 5, 7) and (3, 5, 7, 0) are the same to it."""
    sha256 = "691673c74d9cdac4a320bb207bc00f81"  # its beginning, of the text `[3, "server", 0]`
    assert streams.entropy((3, "server", 0)).to_bytes(32, "little").hex().startswith(sha256)
    alike = [(3, 5, 7), (3, 5, 7, 0), (3, 57), (35, 7), (3, "57"), (3, "5", 7), (3, "5,7")]
    alike += [(3, "server"), ("3", "server")]
    assert len({streams.generator(*stream).random() for stream in alike}) == len(alike)
    assert len({streams.torch_seed(*stream) for stream in alike}) == len(alike)
    assert all(0 <= streams.torch_seed(*stream) < 2**63 for stream in alike)
    again = streams.generator(3, "server", 0).random(4)
    assert (streams.generator(3, "server", 0).random(4) == again).all()


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> dict[tuple, set]:
    """The use of every stream: the line that asks for it, and the permutation or draw there."""
    found, entropy, batches, draw = defaultdict(set), streams.entropy, local.client_batches, model.drawn

    def watched_entropy(stream):
        frame = sys._getframe(2)  # of the function that has called `generator` or `torch_seed`
        found[stream].add((frame.f_code.co_filename, frame.f_lineno))
        return entropy(stream)

    def watched_batches(own, epochs, batch_size, stream, per_step=1):
        for epoch in epochs:
            found[*stream, epoch].add((own.tobytes(), batch_size, per_step))
        return batches(own, epochs, batch_size, stream, per_step)

    def watched_draw(builder, shape, n_classes, seed):
        net = draw(builder, shape, n_classes, seed)
        found["weights", seed].add(tuple((name, t.shape) for name, t in net.state_dict().items()))
        return net

    monkeypatch.setattr(streams, "entropy", watched_entropy)
    monkeypatch.setattr(model, "drawn", watched_draw)
    for module in (local, server):
        monkeypatch.setattr(module, "client_batches", watched_batches)
    return found


DRAWING = {name: make() for name, make in FACTORIES.items()} | {
    "pfedhr, random": fl.pfedhr(labelled=False, match="random", server_epochs=2, server_batch=20),
    "fedsimsup, mixed": fl.fedsimsup("mixed", supervisor_epochs=1),
    "fedmd, thorough": fl.fedmd(warm_up=3, digest_epochs=4),
}


@pytest.mark.parametrize("name", DRAWING)
def test_no_two_purposes_of_a_run_share_a_stream(name, tiny, uses):
    method = DRAWING[name]
    dealt = fl.federate(tiny, fl.dirichlet(alpha=0.5, min_size=12), clients=5, public=0.2, unseen=1)
    fl.run(method, dealt, model="lenet5+lenet5_plain" if method.mixed else "lenet5", **LONGER)
    shared = {stream: found for stream, found in uses.items() if len(found) > (2 if "batches" in stream else 1)}
    assert not shared
    said = {stream[1] for stream in uses}
    assert {"cohorts", "partition", "public", "train", "tune"} <= said
    assert all(stream[0] == 0 for stream in uses if stream[0] != "weights")
