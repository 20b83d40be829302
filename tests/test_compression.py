"""Compressed uploads against a calculation in NumPy, and the limiting case."""

import math

import numpy as np
import pytest
import torch
from conftest import corners
from refusals import refused
from torch.utils._pytree import tree_leaves
from trees import same_bits

import fedlib as fl
from fedlib.runs.compression import Lossy, largest
from fedlib.training.channel import Channel

SETTING = dict(rounds=1, local_epochs=1, batch_size=16, lr=0.05, model="lenet5", progress=False)
FEDERATION = fl.federate(corners(240, seed=0), fl.dirichlet(alpha=0.5), clients=4, test_fraction=0.6, seed=1)


def sparse(change: np.ndarray, share: float) -> np.ndarray:
    """The largest entries of a vector, by sorting."""
    order = np.argsort(-np.abs(change), kind="stable")[: math.ceil(share * len(change))]
    kept = np.zeros_like(change)
    kept[order] = change[order]
    return kept


@pytest.mark.parametrize("share", [0.03, 0.4])
def test_the_server_averages_the_largest_changes_of_each_client(share):
    alone = fl.run("local_only", FEDERATION, **SETTING)
    start, sizes = alone.model.weights, np.array([len(index) for index in FEDERATION.train], float)
    assert len(set(sizes)) == 4
    flat = np.concatenate([start[name].numpy().ravel() for name in sorted(start)]).astype(float)
    changes = []
    for i in range(4):
        trained = np.concatenate([alone.weights(i)[name].numpy().ravel() for name in sorted(start)])
        changes.append(sparse(trained - flat, share))
    expected = flat + np.average(changes, axis=0, weights=sizes)
    result = fl.run(fl.compressed("fedavg", share=share), FEDERATION, **SETTING)
    found = np.concatenate([result.weights(0)[name].numpy().ravel() for name in sorted(start)])
    assert (np.abs(found - expected) > 2e-6).sum() <= 4 * 2  # of two changes that are almost equal either may be kept
    assert result.rounds["bytes_up"].item() == 4 * math.ceil(share * len(flat)) * (4 + 4)
    assert result.rounds["bytes_down"].item() == 4 * 4 * len(flat)


@pytest.mark.parametrize("bits", [3, 8])
def test_numbers_are_rounded_to_equal_levels_by_client_and_tensor(bits):
    changes = [torch.randn(3, 5, 2, dtype=torch.float64), 100 * torch.randn(3, 7, dtype=torch.float64)]
    kept, n_bytes = largest(changes, 1.0, bits)
    for before, after in zip(changes, kept, strict=True):
        for x, y in zip(before, after, strict=True):
            step = x.abs().max() / (2 ** (bits - 1) - 1)
            assert (x - y).abs().max() <= step / 2 + 1e-12
            assert torch.allclose(y / step, (y / step).round())
            assert y.abs().max() == pytest.approx(x.abs().max().item())
    assert n_bytes == 3 * (math.ceil(17 * bits / 8) + 2 * 4)
    assert largest([torch.zeros(2, 3)], 0.5, bits)[0][0].tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize("method", ["fedavg", "pfedsim", "scaffold", "fedproto"])
def test_everything_with_all_bits_is_the_method_itself(method):
    plain, whole = (fl.run(one, FEDERATION, **SETTING | {"rounds": 2}) for one in (method, fl.compressed(method)))
    assert same_bits(plain.state, whole.state)
    assert plain.rounds["bytes_up"].tolist() == whole.rounds["bytes_up"].tolist()
    assert plain.config["code"] != whole.config["code"]


def test_what_was_not_received_is_sent_as_it_is_and_a_second_tensor_is_a_change_already():
    names, whole = ("fedproto", "scaffold", "pfedsim"), fl.run("fedproto", FEDERATION, **SETTING)
    few = {name: fl.run(fl.compressed(name, 0.01), FEDERATION, **SETTING) for name in names}
    size = sum(w.numel() for w in whole.weights(0).values())
    assert few["fedproto"].rounds["bytes_up"].tolist() == whole.rounds["bytes_up"].tolist()  # prototypes: first round
    assert few["fedproto"].score() == whole.score()
    (w, c), start = few["scaffold"].state[:2], few["scaffold"].model.weights
    changed = sum(int((t != 0).sum()) for t in c.values()) + sum(int((w[n] - start[n] != 0).sum()) for n in w)
    assert 0 < changed <= 4 * math.ceil(0.01 * 2 * size)
    assert few["pfedsim"].rounds["bytes_up"].item() < 4 * 4 * size / 10


OTHERS = {"pfedbayes": {}, "ifca": {"clusters": 4}, "fedsimsup": {"supervisor": "mixed"}, "fedamp": {}, "pfedmb": {}}


@pytest.mark.parametrize("method", [*OTHERS, "fedavg", "pfedsim", "fedpac", "scaffold"])
def test_without_its_changes_a_client_uploads_what_it_received(method, monkeypatch):
    """All changes are dropped, which is like a training with steps of almost no size."""
    none = lambda changes, share, bits: ([torch.zeros_like(t) for t in changes], 0)  # noqa: E731
    monkeypatch.setattr("fedlib.runs.compression.largest", none)
    made = getattr(fl, method)(**OTHERS.get(method, {}))
    setting = SETTING | {"local_epochs": 3, "model": "lenet5_plain"}  # without BatchNorm
    plain, still = (fl.run(made, FEDERATION, **setting | {"lr": lr}) for lr in (0.05, 1e-9))
    lost = fl.run(fl.compressed(made, 0.5), FEDERATION, **setting)
    if method == "ifca":  # four clusters for four clients, who received all of them: nothing is compressed
        assert same_bits(plain.state.w, lost.state.w)
        return
    leaves = [tree_leaves(shared(run.state)) for run in (lost, still, plain)]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b, _ in zip(*leaves, strict=True))
    assert any((b - c).abs().max() > 1e-3 for _, b, c in zip(*leaves, strict=True))


def test_groups_of_clients_have_references_of_their_own():
    """Clients with different supervisors receive and send one group after the other (FedSimSup)."""
    channel, first, second = Lossy(Channel(), 0.5, 32), torch.zeros(2, 3), torch.ones(2, 3)
    for sent in (first, second):
        channel.down({"w": sent})
        assert channel.reference("w", sent + 0.1) is sent
    channel.down({"w": second[:1]})
    assert channel.reference("w", first) is None


def shared(state):
    """The part of a state that uploads change."""
    return next(getattr(state, name) for name in ("branches", "theta", "w", "v") if hasattr(state, name))


def test_local_statistics_are_neither_compressed_nor_counted():
    result = fl.run(fl.compressed("fedavg", 0.1, 8), FEDERATION, **SETTING, statistics="local")
    trained = sum(t.numel() for name, t in result.model.weights.items() if "running" not in name)
    n, tensors = math.ceil(0.1 * trained), len(result.model.trainable)
    assert result.rounds["bytes_up"].item() == 4 * (n + 4 * n + 4 * tensors)


def test_dropped_clients_send_nothing():
    result = fl.run(fl.compressed("fedavg", 0.1), FEDERATION, **SETTING | {"rounds": 4}, dropout=0.6)
    sizes = result.rounds["bytes_up"] / (8 * math.ceil(0.1 * sum(w.numel() for w in result.weights(0).values())))
    assert set(sizes) <= {0, 1, 2, 3, 4}
    assert len(set(sizes)) > 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"share": 0}, "share"), ({"share": 1.5}, "share"), ({"bits": 1}, "bits"), ({"bits": 20}, "bits")],
)
def test_other_values_are_refused(arguments, words):
    refused(words, fl.compressed, "fedavg", **arguments)
