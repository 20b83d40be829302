"""Random streams: no two purposes share one, in any run."""

import sys
from collections import defaultdict

import pytest
from methods import FACTORIES

import fedlib as fl
from fedlib import streams
from fedlib.models import model
from fedlib.training import local, server

RUN = dict(rounds=3, join_ratio=0.7, local_epochs=2, batch_size=64, lr=0.05, tune_epochs=2, progress=False)


def test_streams_that_integers_would_confuse_are_different():
    """NumPy pads seeds with zeros: (3, 5, 7) and (3, 5, 7, 0) are the same to it."""
    alike = [(3, 5, 7), (3, 5, 7, 0), (3, 57), (35, 7), (3, "57"), (3, "5", 7), (3, "5,7")]
    alike += [(3, "server"), ("3", "server")]
    assert len({streams.generator(*stream).random() for stream in alike}) == len(alike)
    assert len({streams.torch_seed(*stream) for stream in alike}) == len(alike)
    assert all(0 <= streams.torch_seed(*stream) < 2**63 for stream in alike)
    again = streams.generator(3, "server", 0).random(4)
    assert (streams.generator(3, "server", 0).random(4) == again).all()


def test_a_stream_is_one_thing_on_every_machine():
    """SHA-256 of the text `[3, "server", 0]`, as `sha256sum` has it."""
    assert streams.entropy((3, "server", 0)).to_bytes(32, "little").hex().startswith("691673c74d9cdac4a320bb207bc00f81")


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


VARIANTS = {name: make() for name, make in FACTORIES.items()} | {
    "pfedhr, random": fl.pfedhr(labelled=False, match="random", server_epochs=2, server_batch=20),
    "fedsimsup, mixed": fl.fedsimsup("mixed", supervisor_epochs=1),
    "fedmd, thorough": fl.fedmd(warm_up=3, digest_epochs=4),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_no_two_purposes_of_a_run_share_a_stream(name, tiny, uses):
    method = VARIANTS[name]
    dealt = fl.federate(tiny, fl.dirichlet(alpha=0.5, min_size=12), clients=5, public=0.2, unseen=1)
    fl.run(method, dealt, model="lenet5+lenet5_plain" if method.mixed else "lenet5", **RUN)
    shared = {stream: found for stream, found in uses.items() if len(found) > (2 if "batches" in stream else 1)}
    assert not shared
    said = {stream[1] for stream in uses}
    assert {"cohorts", "partition", "public", "train", "tune"} <= said
    assert all(stream[0] == 0 for stream in uses if stream[0] != "weights")
