"""DP-SGD against a loop over single images, its noise and its epsilon; compressed uploads against NumPy."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import corners
from refusals import refused
from torch.nn.functional import cross_entropy
from torch.utils._pytree import tree_leaves
from trees import same_bits

import fedlib as fl
from fedlib.algorithm import Algorithm, Global, init_global, one_for_all
from fedlib.runs.compression import Lossy, largest
from fedlib.runs.plan import cohorts
from fedlib.stack import client_mean
from fedlib.training import train
from fedlib.training.batches import client_batches
from fedlib.training.channel import Channel

DATA = fl.load("digits", copies=1).subset(range(60))
FEDERATION = fl.federate(DATA, fl.dirichlet(alpha=0.7, min_size=6), clients=4, test_fraction=0.3, seed=1)
SETTING = dict(model="lenet5_plain", rounds=1, local_epochs=2, batch_size=16, lr=0.1, seed=5, progress=False)


def by_hand(result, client: int, clip: float) -> dict[str, torch.Tensor]:
    net, lr = result.model.net, SETTING["lr"]
    w = {name: t.clone() for name, t in result.model.weights.items()}
    steps = client_batches(FEDERATION.train[client], [0, 1], 16, (5, "train", 0, "batches", client, "local"))
    assert any(len(set(step.tolist())) < 16 for step in steps)
    for step in steps:
        total = {name: torch.zeros_like(t) for name, t in w.items()}
        for i in sorted(set(step.tolist())):
            x = torch.as_tensor((DATA.x[i] / 255 - DATA.mean[:, None, None]) / DATA.std[:, None, None]).float()
            leaves = {name: t.clone().requires_grad_() for name, t in w.items()}
            logits = torch.func.functional_call(net, leaves, (x[None],))
            g = torch.autograd.grad(cross_entropy(logits, torch.tensor([int(DATA.y[i])])), list(leaves.values()))
            norm = torch.cat([each.flatten() for each in g]).norm()
            for name, each in zip(leaves, g, strict=True):
                total[name] += each * min(1.0, clip / norm)
        w = {name: w[name] - lr * total[name] / 16 for name in w}
    return w


@pytest.mark.parametrize("backend", ["loop", "stacked"])
@pytest.mark.parametrize("clip", [0.4, 2.5])
def test_a_step_sums_the_clipped_gradients_of_single_images(clip, backend):
    result = fl.run(fl.private("local_only", clip, noise=0), FEDERATION, backend=backend, **SETTING)
    client = next(i for i, index in enumerate(FEDERATION.train) if len(index) < 16)
    for name, expected in by_hand(result, client, clip).items():
        assert torch.allclose(result.weights(client)[name], expected, atol=2e-6), name


def test_noise_is_gaussian_and_every_client_has_its_own():
    setting = SETTING | {"batch_size": 64, "lr": 0.5, "local_epochs": 1}  # one step
    quiet, loud = (fl.run(fl.private("local_only", 0.4, noise), FEDERATION, **setting) for noise in (0.0, 3.0))
    drawn = []
    for i in (0, 1):
        gaps = [loud.weights(i)[name] - quiet.weights(i)[name] for name in quiet.model.weights]
        drawn.append(torch.cat([gap.flatten() for gap in gaps]).numpy() * 64 / (0.5 * 0.4 * 3.0))
    for z in drawn:
        assert abs(z.mean()) < 0.02
        assert z.std() == pytest.approx(1, abs=0.02)
        assert (np.abs(z) > 2).mean() == pytest.approx(0.0455, abs=0.005)
    assert abs(np.corrcoef(drawn)[0, 1]) < 0.02
    first, second = (fl.run(fl.private("fedavg", 0.4, 3.0), FEDERATION, **setting | {"rounds": n}) for n in (1, 2))
    models = first.model.weights, first.weights(0), second.weights(0)
    start, once, twice = (w["fc1.0.weight"].flatten() for w in models)
    assert abs(np.corrcoef(once - start, twice - once)[0, 1]) < 0.1  # and every round


@pytest.mark.parametrize(
    ("method", "model", "sentence"),
    [
        ("fedavg", "lenet5", "BatchNorm"),
        ("fedavg", "m1", "dropout"),
        ("fedproto", "lenet5_plain", "uploads"),
        ("fedgen", "lenet5_plain", "uploads"),
        ("scaffold", "lenet5_plain", "scaffold is not allowed in private.*writes"),
        (fl.ditto(), "lenet5_plain", "more or larger steps"),  # than epsilon counts
        (fl.pfedme(lam=1, steps=2), "lenet5_plain", "more or larger steps"),
        (fl.perfedavg(), "lenet5_plain", "more or larger steps"),
    ],
)
def test_what_noise_does_not_protect_is_refused(method, model, sentence):
    refused(sentence, fl.run, fl.private(method), FEDERATION, **SETTING | {"model": model})


def test_a_compressed_method_and_other_values_are_refused():
    refused(r"use compressed\(private", fl.private, fl.compressed("fedavg", share=0.5))
    refused("one compressed", fl.compressed, fl.compressed("fedavg", share=0.5), bits=8)
    for name, value in (("share", 0), ("share", 1.5), ("bits", 1), ("bits", 20)):
        refused(name, fl.compressed, "fedavg", **{name: value})


def test_epsilon_composes_the_steps_of_the_rounds_in_which_a_client_took_part():
    accountants = pytest.importorskip("opacus.accountants")
    federation = fl.federate(DATA, fl.dirichlet(alpha=0.7, min_size=6), clients=5, unseen=1, test_fraction=0.3, seed=1)
    setting = SETTING | dict(rounds=3, join_ratio=0.5, batch_size=4)
    table = fl.epsilon(fl.run(fl.private("fedavg", noise=1.3), federation, **setting), federation, delta=1e-3)
    drawn = np.concatenate(cohorts(4, 0.5, 3, 5)).tolist()
    assert table["rounds"].tolist() == [drawn.count(i) for i in range(4)]
    assert len(set(table["rounds"])) > 1
    for row in table.itertuples():
        accountant = accountants.RDPAccountant()
        for _ in range(row.rounds * 2 * int(np.ceil(row.n_train / 4))):
            accountant.step(noise_multiplier=1.3, sample_rate=min(1, 4 / row.n_train))
        expected = accountant.get_epsilon(1e-3) if row.rounds else 0
        assert row.epsilon == pytest.approx(expected, rel=1e-6)
        every = accountants.RDPAccountant()
        for _ in range(row.rounds * 2 * (1 + (row.n_train % 4 > 0 and row.n_train > 4))):  # twice with a filled batch
            every.step(noise_multiplier=1.3, sample_rate=1.0)
        assert row.bound == pytest.approx(every.get_epsilon(1e-3) if row.rounds else 0, rel=1e-6)
    assert len(set(table["n_train"] % 4 > 0)) == 2
    assert table["n_train"].max() < 500
    whole = fl.epsilon(fl.run(fl.private("fedavg"), federation, **setting | {"batch_size": 500}), federation)
    assert whole["bound"].tolist() == whole["epsilon"].tolist()  # without sampling: every step uses all images


def test_epsilon_counts_the_rounds_before_an_early_end():
    pytest.importorskip("opacus")
    federation = fl.federate(DATA, fl.iid(), clients=3, validation_fraction=0.3)
    setting = SETTING | dict(lr=1e-7, evaluate_every=1)
    early = fl.run_early(fl.private("fedavg"), federation, patience=1, **setting | {"rounds": 9})
    whole = fl.run(fl.private("fedavg"), federation, **setting | {"rounds": 2})
    assert len(early.rounds) == 2
    pd.testing.assert_frame_equal(fl.epsilon(early, federation), fl.epsilon(whole, federation))


def test_a_method_that_trains_on_few_images_again_and_again_is_refused():
    def loss(w, batch):
        return cross_entropy(batch.model(w, batch.x), batch.y)

    @fl.algorithm
    def favourites(repeats: int):
        def round(state, cohort):
            few = [np.tile(index[:4], repeats) for index in cohort.samples]
            trained = train(cohort, loss, cohort.broadcast(state.w), samples=few)
            return Global(client_mean(cohort.receive(trained), cohort.n_samples))

        return Algorithm("favourites", init_global, round, models=one_for_all)

    setting = SETTING | {"local_epochs": 1, "batch_size": 2}
    fl.run(fl.private(favourites(1)), FEDERATION, **setting)
    alone = fl.federate(DATA, fl.iid(), clients=2, test_fraction=0.3)
    assert len(alone.train[0]) >= 16  # as many steps as its own images allow, all on four of them
    refused("repeats images", fl.run, fl.private(favourites(4)), alone, **setting)


def test_epsilon_of_another_run_is_refused():
    pytest.importorskip("opacus")
    others = ("fedavg", FEDERATION), ("fedgen", FEDERATION), (fl.private("fedavg"), fl.federate(DATA, fl.iid(), 4))
    for method, federation in others:  # FedGen has a hyper-parameter `noise`
        refused("federation of this run", fl.epsilon, fl.run(method, FEDERATION, **SETTING), federation)
    endless = fl.epsilon(fl.run(fl.private("fedavg", noise=0.0), FEDERATION, **SETTING), FEDERATION)
    assert np.isinf(endless[["epsilon", "bound"]]).all(axis=None)


ROUND = dict(rounds=1, local_epochs=1, batch_size=16, lr=0.05, model="lenet5", progress=False)
FOUR = fl.federate(corners(240, seed=0), fl.dirichlet(alpha=0.5), clients=4, test_fraction=0.6, seed=1)


@pytest.mark.parametrize("share", [0.03, 0.4])
def test_the_server_averages_the_largest_changes_of_each_client(share):
    alone = fl.run("local_only", FOUR, **ROUND)
    start, sizes = alone.model.weights, np.array([len(index) for index in FOUR.train], float)
    assert len(set(sizes)) == 4
    flat = np.concatenate([start[name].numpy().ravel() for name in sorted(start)]).astype(float)
    changes = []
    for i in range(4):
        change = np.concatenate([alone.weights(i)[name].numpy().ravel() for name in sorted(start)]) - flat
        change[np.argsort(-np.abs(change), kind="stable")[math.ceil(share * len(flat)) :]] = 0
        changes.append(change)
    expected = flat + np.average(changes, axis=0, weights=sizes)
    result = fl.run(fl.compressed("fedavg", share=share), FOUR, **ROUND)
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
    plain, whole = (fl.run(one, FOUR, **ROUND | {"rounds": 2}) for one in (method, fl.compressed(method)))
    assert same_bits(plain.state, whole.state)
    assert plain.rounds["bytes_up"].tolist() == whole.rounds["bytes_up"].tolist()
    assert plain.config["code"] != whole.config["code"]


def test_what_was_not_received_is_sent_as_it_is_and_a_second_tensor_is_a_change_already():
    names, whole = ("fedproto", "scaffold", "pfedsim"), fl.run("fedproto", FOUR, **ROUND)
    few = {name: fl.run(fl.compressed(name, 0.01), FOUR, **ROUND) for name in names}
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
    setting = ROUND | {"local_epochs": 3, "model": "lenet5_plain"}  # without BatchNorm
    plain, still = (fl.run(made, FOUR, **setting | {"lr": lr}) for lr in (0.05, 1e-9))
    lost = fl.run(fl.compressed(made, 0.5), FOUR, **setting)
    if method == "ifca":  # four clusters for four clients, who received all of them: nothing is compressed
        assert same_bits(plain.state.w, lost.state.w)
        return
    shared = next(part for part in ("branches", "theta", "w", "v") if hasattr(plain.state, part))
    leaves = [tree_leaves(getattr(run.state, shared)) for run in (lost, still, plain)]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b, _ in zip(*leaves, strict=True))
    assert any((b - c).abs().max() > 1e-3 for _, b, c in zip(*leaves, strict=True))


@pytest.mark.parametrize("base", [False, True])
def test_a_control_variate_stays_as_it_is_where_its_changes_are_lost(base, monkeypatch):
    def lose(t):  # in the second round
        none = lambda changes, share, bits: ([torch.zeros_like(t) for t in changes], 0)  # noqa: E731
        monkeypatch.setattr("fedlib.runs.compression.largest", none)

    method = fl.compressed(fl.fedcs("fc3", base="scaffold", every=50) if base else "scaffold", 0.5)
    states = [fl.run(method, FOUR, **ROUND | more).state for more in ({}, {"rounds": 2, "progress": lose})]
    once, twice = ((state.base if base else state).c for state in states)
    assert any(t.any() for t in once.values())
    assert same_bits(once, twice)


def test_groups_of_clients_have_references_of_their_own():
    channel, first, second = Lossy(Channel(), 0.5, 32), torch.zeros(2, 3), torch.ones(2, 3)
    for sent in (first, second):
        channel.down({"w": sent})
        assert channel.reference("w", sent + 0.1) is sent
    channel.down({"w": second[:1]})
    assert channel.reference("w", first) is None


def test_neither_local_statistics_nor_dropped_clients_are_counted():
    result = fl.run(fl.compressed("fedavg", 0.1, 8), FOUR, **ROUND, statistics="local")
    trained = sum(t.numel() for name, t in result.model.weights.items() if "running" not in name)
    n, tensors = math.ceil(0.1 * trained), len(result.model.trainable)
    assert result.rounds["bytes_up"].item() == 4 * (n + 4 * n + 4 * tensors)
    result = fl.run(fl.compressed("fedavg", 0.1), FOUR, **ROUND | {"rounds": 4}, dropout=0.6)
    sizes = result.rounds["bytes_up"] / (8 * math.ceil(0.1 * sum(w.numel() for w in result.weights(0).values())))
    assert set(sizes) <= {0, 1, 2, 3, 4}
    assert len(set(sizes)) > 1
