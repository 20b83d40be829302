"""DP-SGD against a loop over single images, its noise, and refused methods; epsilon against the accountant's steps."""

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from torch.nn.functional import cross_entropy

import fedlib as fl
from fedlib.algorithm import Algorithm, Global, init_global, one_for_all
from fedlib.runs.plan import cohorts
from fedlib.stack import client_mean
from fedlib.training import train
from fedlib.training.batches import client_batches

DATA = fl.load("digits", copies=1).subset(range(60))
FEDERATION = fl.federate(DATA, fl.dirichlet(alpha=0.7, min_size=6), clients=4, test_fraction=0.3, seed=1)
SETTING = dict(model="lenet5_plain", rounds=1, local_epochs=2, batch_size=16, lr=0.1, seed=5, progress=False)


def by_hand(result, client: int, clip: float) -> dict[str, torch.Tensor]:
    """Two or more steps of Algorithm 1 without noise, image by image; a repeated image counts once."""
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
    ("method", "model", "word"),
    [
        ("fedavg", "lenet5", "BatchNorm"),
        ("fedavg", "m1", "dropout"),
        ("fedproto", "lenet5_plain", "uploads"),
        ("fedgen", "lenet5_plain", "uploads"),
    ],
)
def test_what_noise_does_not_protect_is_refused(method, model, word):
    refused(word, fl.run, fl.private(method), FEDERATION, **SETTING | {"model": model})


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


def test_epsilon_counts_the_rounds_before_an_early_end():
    pytest.importorskip("opacus")
    federation = fl.federate(DATA, fl.iid(), clients=3, validation_fraction=0.3)
    setting = SETTING | dict(lr=1e-7, evaluate_every=1)
    early = fl.run_early(fl.private("fedavg"), federation, patience=1, **setting | {"rounds": 9})
    whole = fl.run(fl.private("fedavg"), federation, **setting | {"rounds": 2})
    assert len(early.rounds) == 2
    pd.testing.assert_frame_equal(fl.epsilon(early, federation), fl.epsilon(whole, federation))


def test_a_compressed_method_and_a_loss_that_writes_are_refused():
    refused(r"use compressed\(private", fl.private, fl.compressed("fedavg", share=0.5))
    refused("one compressed", fl.compressed, fl.compressed("fedavg", share=0.5), bits=8)
    refused("scaffold is not allowed in private.*writes", fl.run, fl.private("scaffold"), FEDERATION, **SETTING)


@pytest.mark.parametrize("method", [fl.ditto(), fl.pfedme(lam=1, steps=2), fl.perfedavg()])
def test_a_method_that_trains_longer_than_epsilon_counts_is_refused(method):
    refused("more or larger steps", fl.run, fl.private(method), FEDERATION, **SETTING)


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
