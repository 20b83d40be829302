"""Baselines of pFedSim: their formulas by hand, and what the library has for them. Whole runs have oracles."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from phases import batches_of, phase
from trees import close

import fedlib as fl
from fedlib.engine.backends import BACKENDS
from fedlib.engine.lockstep import lockstep
from fedlib.methods.fedap import neighbour_weights
from fedlib.methods.fedfomo import hold_out, mixing_weights, usefulness
from fedlib.methods.fedgen.fedgen import generator_loss
from fedlib.methods.fedgen.generator import STATISTICS, generate, new_generator
from fedlib.methods.perfedavg import first_order
from fedlib.runs.prepare import prepare
from fedlib.runs.session import Session
from fedlib.similarity import bn_distances
from fedlib.stack import copies, drop, repeat
from fedlib.training.adam import adam
from fedlib.training.batches import client_batches, on_device
from fedlib.training.channel import Channel
from fedlib.training.cohort import Cohort
from fedlib.training.evaluation import batchnorm_inputs, mean_loss
from fedlib.training.local import _drawn, train
from fedlib.training.losses import cross_entropy
from fedlib.training.phase import kind

SETTING = dict(rounds=4, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05)
EXACT = SETTING | {"dtype": "float64"}


def cohort_of(federation: fl.Federation, t: int, backend: str = "loop", method="fedavg", **setting) -> Cohort:
    """The cohort of round t (the first is 0) of a run with this setting."""
    return Session(prepare(method, federation, **EXACT | setting, backend=backend)).cohort(t)


# What the library has for them: both backends, one meaning


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_clipped_step_is_as_long_as_the_clip_says(backend, federation):
    cohort = cohort_of(federation, 0, backend, batch_size=200)  # one step per epoch
    start = repeat(cohort.model.weights, cohort.size)
    free, clipped = (train(cohort, cross_entropy, start, epochs=[0], clip=clip) for clip in (None, 0.01))
    names = cohort.model.trainable
    step = {name: free[name] - start[name] for name in names}
    norm = torch.cat([t.flatten(1) for t in step.values()], 1).norm(dim=1)  # lr * gradient, [k]
    assert (norm > 0.05 * 0.01).all()
    for name in names:
        shape = (-1,) + (1,) * (step[name].dim() - 1)
        assert torch.allclose(
            clipped[name] - start[name], step[name] * (0.05 * 0.01 / norm).view(shape), rtol=1e-4, atol=1e-12
        )
    assert close(free, train(cohort, cross_entropy, start, epochs=[0], clip=1e6))


def with_draws(w, batch):
    """A loss that uses what was drawn: a number and a class."""
    return cross_entropy(w, batch) + (batch.draws["z"] @ w["classifier.bias"] * w["fc2.0.bias"][batch.draws["c"]]).sum()


def test_draws_are_the_same_in_both_backends_and_differ_between_clients(federation):
    told = []

    def draws(rng, client, steps):
        told.append((client, steps))
        return {"z": rng.standard_normal((steps, 4)), "c": rng.integers(0, 84, (steps, 1))}

    def no_draws(rng, client, steps):
        return {"z": np.zeros((steps, 4)), "c": np.zeros((steps, 1), dtype=np.int64)}

    answers = []
    for backend in BACKENDS:
        cohort = cohort_of(federation, 1, backend)
        start = repeat(cohort.model.weights, cohort.size)
        answers.append(train(cohort, with_draws, start, draws=draws))
        assert not close(answers[-1], train(cohort, with_draws, start, draws=no_draws))
        assert not close(answers[-1], train(cohort, with_draws, start, draws=draws))  # another phase of the round
    assert close(*answers)
    assert [client for client, _ in told] == 4 * cohort.ids.tolist()
    assert [steps for _, steps in told] == 4 * [2 * math.ceil(len(federation.train[i]) / 8) for i in cohort.ids]
    phases = [_drawn(cohort, draws, [torch.zeros(3, 8)] * cohort.size, number) for number in (0, 0, 1)]
    assert torch.equal(phases[0][0]["z"], phases[1][0]["z"])
    assert not torch.equal(phases[0][0]["z"], phases[2][0]["z"])
    assert not torch.equal(phases[0][0]["z"], phases[0][1]["z"])


def test_seeds_in_lockstep_share_a_stack_and_keep_their_own_draws(federation):
    def draws(rng, client, steps):
        return {"z": rng.standard_normal((steps, 4)), "c": rng.integers(0, 84, (steps, 1))}

    def work(cohort):
        start = repeat(cohort.model.weights, cohort.size)
        return lambda trainer: train(
            replace(cohort, trainer=trainer, channel=Channel(), losses=[]),
            *(with_draws, start),
            clip=0.5,
            draws=draws,
            batches_per_step=2,
        )

    first, second = (cohort_of(federation, 0, seed=seed) for seed in (0, 1))
    cohorts_of_two_seeds, together = (first, replace(second, images=first.images)), []
    stacked = BACKENDS["stacked"](torch.device("cpu"), None, True)
    advance = stacked.advance

    def spy(begun, steps):
        together.append(len(begun.phase.batches))
        return advance(begun, steps)

    stacked.advance = spy
    pairs = zip(lockstep([work(c) for c in cohorts_of_two_seeds], stacked), cohorts_of_two_seeds, strict=True)
    assert all(close(pooled, work(cohort)(cohort.trainer)) for pooled, cohort in pairs)
    assert together == [6, 3]  # one of them has ended


def test_batches_are_joined_in_their_order_and_the_odd_one_is_dropped():
    for n, pairs in [(33, 2), (40, 2), (41, 3), (16, 1), (8, 1), (3, 1)]:  # batches: 5, 5, 6, 2, 1, 1
        samples = np.arange(100, 100 + n)
        single = client_batches(samples, range(2), 8, (0, 1))
        joined = client_batches(samples, range(2), 8, (0, 1), per_step=2)
        assert joined.shape == (2 * pairs, 16)
        if n > 8:
            epochs = single.unflatten(0, (2, -1))[:, : 2 * pairs]  # [epochs, batches, 8]
            assert torch.equal(joined, epochs.reshape(-1, 16))
        else:  # one batch: the samples are taken again
            assert set(joined[0].tolist()) == set(samples.tolist())


def test_a_part_of_the_train_samples_is_held_out(federation):
    cohort = cohort_of(federation, 0)
    kept, held_out = hold_out(cohort, 0.2)
    for i, a, b in zip(cohort.ids, kept, held_out, strict=True):
        assert np.array_equal(np.concatenate([a, b]), federation.train[i])
        assert len(b) == round(0.2 * len(federation.train[i]))
    assert [len(b) for b in hold_out(cohort, 1e-6)[1]] == 3 * [1]
    assert [len(a) for a in hold_out(cohort, 1 - 1e-6)[0]] == 3 * [1]
    two = replace(cohort, federation=replace(federation, train=tuple(own[:2] for own in federation.train)))
    assert [[len(own) for own in part] for part in hold_out(two, 0.2)] == [3 * [1], 3 * [1]]
    only = replace(federation, train=tuple(own[:1] for own in federation.train))
    with pytest.raises(ValueError, match=r"client \d has one training sample; it needs two"):
        fl.run("fedfomo", only, **SETTING, progress=False)


def test_the_mean_loss_is_that_of_each_clients_own_samples(federation):
    cohort = cohort_of(federation, 0)
    models = copies(cohort.model.weights, cohort.size)
    models["classifier.bias"][1, 0] += 1
    samples = hold_out(cohort, 0.5)[1]
    cohort.model.net.eval()
    for row, index in enumerate(samples):
        batch = cohort.images.batch(torch.from_numpy(index), cohort.model)
        expected = F.cross_entropy(cohort.model({name: t[row] for name, t in models.items()}, batch.x), batch.y)
        assert torch.allclose(mean_loss(cohort, models, samples)[row], expected)


def test_phases_that_clip_or_draw_differently_do_not_share_a_stack(federation):
    model = prepare("fedavg", federation, **SETTING).model
    plain = phase(model, federation.data, federation.train[:2])
    draws = tuple({"z": torch.zeros(len(steps), 4)} for steps in plain.batches)
    kinds = [kind(p) for p in (plain, plain._replace(clip=1.0), plain._replace(clip=2.0), plain._replace(draws=draws))]
    assert len({(kind[0], *map(str, kind[1:])) for kind in kinds}) == 4


def test_the_statistics_of_batchnorm_inputs_equal_numpy(federation, monkeypatch):
    monkeypatch.setattr("fedlib.training.evaluation.CHUNK", 7)  # several chunks per client, the last one smaller
    cohort = cohort_of(federation, 0)
    models = copies(cohort.model.weights, 2)
    models["conv1.1.running_mean"][1] += 0.5  # evaluation mode: changes what enters the second layer only
    found = batchnorm_inputs(cohort.model, cohort.images, models, federation.train[:2])
    net = cohort.model.net
    assert list(found) == ["conv1.1", "conv2.1"]
    for i in range(2):
        net.load_state_dict({name: t[i] for name, t in models.items()}, strict=False)
        net.double().eval()
        x = cohort.images.batch(torch.from_numpy(federation.train[i]), cohort.model).x
        first = net.conv1[0](x)
        inputs = {"conv1.1": first, "conv2.1": net.conv2[0](net.conv1[1:](first))}
        for layer, t in inputs.items():
            rows = t.detach().numpy().swapaxes(0, 1).reshape(t.shape[1], -1)
            assert np.allclose(found[layer][0][i], rows.mean(1))
            assert np.allclose(found[layer][1][i], rows.std(1))


# FedDyn


def sgd(federation, t, client, start, penalty, clip):
    """Bare PyTorch: one client's local training in round t, from `start`, with an extra term in the loss."""
    plan = prepare("fedavg", federation, **EXACT)
    images, net = on_device(federation.data, torch.device("cpu"), torch.float64), plan.model.net.double().train()
    net.load_state_dict(start, strict=False)
    optimiser = torch.optim.SGD(net.parameters(), 0.05)
    for index in client_batches(federation.train[client], range(2), 8, batches_of(t, client)):
        x, y, *_ = images.batch(index, plan.model)
        optimiser.zero_grad()
        (F.cross_entropy(net(x), y) + penalty(dict(net.named_parameters()))).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimiser.step()
    return {name: t.clone() for name, t in net.state_dict().items()}


def test_feddyn_at_alpha_0_is_the_limit_whose_first_step_is_twice_that_of_a_uniform_fedavg(federation):
    once = EXACT | {"rounds": 1, "join_ratio": 1.0}
    initial = prepare("feddyn", federation, **once).model
    equal = replace(federation, train=tuple(own[:6] for own in federation.train))  # a uniform mean, then
    average = fl.run("fedavg", equal, **once, progress=False).state.w
    zero = fl.run(fl.feddyn(alpha=0, clip=None), equal, **once, progress=False).state
    for name, w in average.items():
        factor = 2 if name in initial.trainable else 1
        assert torch.allclose(zero.w[name], initial.weights[name] + factor * (w - initial.weights[name])), name
    two = EXACT | {"rounds": 2}
    zero, small = (fl.run(fl.feddyn(alpha), federation, **two, progress=False).state for alpha in (0, 1e-9))
    assert close(zero.w, small.w, 1e-6)


# Per-FedAvg


def quadratic(w, batch):
    """1/2 (a - mean of the labels)^2: gradient a - mean."""
    return (w["classifier.bias"][0] - batch.y.to(w["classifier.bias"].dtype).mean()) ** 2 / 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_of_per_fedavg_on_a_quadratic_has_a_closed_form(backend, federation):
    """a' = a - alpha (a - m1); a -= beta (a' - m2), the derivative of a' being taken as 1."""
    alpha, beta = 0.3, 0.1
    cohort = cohort_of(federation, 0, backend)
    start = repeat(cohort.model.weights, cohort.size)
    trained = train(cohort, first_order(quadratic, alpha), start, lr=beta, batches_per_step=2)["classifier.bias"][:, 0]
    for row, i in enumerate(cohort.ids):
        a = cohort.model.weights["classifier.bias"][0].item()
        for index in client_batches(federation.train[i], range(2), 8, batches_of(0, i), per_step=2):
            m1, m2 = (federation.data.y[part].mean() for part in np.split(index.numpy(), 2))
            a -= beta * (a - alpha * (a - m1) - m2)
        assert trained[row].item() == pytest.approx(a)


# FedFomo


def test_the_weights_of_fedfomo_by_hand():
    """Client 0 gains 0.5 at distance 1 and 0.25 at distance 1 from two others; client 1 gains nothing anywhere."""
    losses = torch.tensor([[2.0, 1.5, 1.75, 3.0], [1.0, 1.0, 2.0, 4.0]])
    useful = usefulness(losses, torch.tensor([[1.0, 1.0, 2.0], [0.0, 1.0, 1.0]]))
    assert torch.allclose(useful, torch.tensor([[0.5, 0.25, -0.5], [0.0, -1.0, -3.0]]), atol=1e-4)
    assert torch.allclose(mixing_weights(useful), torch.tensor([[2 / 3, 1 / 3, 0.0], [0.0, 0.0, 0.0]]))
    assert mixing_weights(torch.empty(2, 0)).shape == (2, 0)


@pytest.mark.parametrize("explore", [0, 0.3])
def test_fedfomo_tries_more_than_the_first_of_twenty_equal_clients(explore, tiny):
    equal = fl.federate(tiny, fl.iid(), clients=20)
    state = fl.run(fl.fedfomo(explore=explore), equal, rounds=3, lr=0.05, progress=False).state
    tried = (state.affinity != torch.eye(20)).any(0)
    assert tried.sum() >= 15
    assert ((state.affinity != torch.eye(20)).sum(1) <= 2 * 5).all()


# f-FedAP


def test_the_weights_of_fedap_by_hand():
    """Two channels each: client 1 is 3 away in a mean and 4 in a standard deviation, client 2 is 10 away in a mean."""
    mean = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 10.0]])
    std = torch.tensor([[1.0, 1.0], [1.0, 5.0], [1.0, 1.0]])
    distances = bn_distances({"norm": (mean, std)})
    assert torch.allclose(distances[0], torch.tensor([0.0, 5.0, 10.0], dtype=torch.float64))
    weights = neighbour_weights(distances, 0.4)
    assert torch.allclose(weights[0], torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64))  # 0.6 * (2/3, 1/3)
    assert torch.allclose(weights.sum(1), torch.ones(3, dtype=torch.float64))
    twins = neighbour_weights(torch.zeros(3, 3, dtype=torch.float64), 0.5)  # clients with equal statistics
    assert torch.allclose(twins, torch.full((3, 3), 0.25, dtype=torch.float64).fill_diagonal_(0.5))
    assert neighbour_weights(torch.zeros(1, 1), 0.5).item() == 1


# FedGen


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def features_in_numpy(g, y, noise, training):
    x = np.concatenate([np.eye(4)[y], noise], 1) @ g["hidden.weight"].T + g["hidden.bias"]
    mean, var = (x.mean(0), x.var(0)) if training else (g[name] for name in STATISTICS)
    x = (x - mean) / np.sqrt(var + 1e-5) * g["norm.weight"] + g["norm.bias"]
    return np.maximum(x, 0) @ g["out.weight"].T + g["out.bias"]


@pytest.fixture
def generator():
    """A generator for 4 classes with affine BatchNorm and statistics that are not trivial."""
    rng = np.random.default_rng(5)
    g = new_generator(rng, n_classes=4, noise=3, hidden=6, p=84)
    return g | {name: g[name] + torch.tensor(rng.uniform(0, 1, 6)) for name in g if name.startswith("norm")}


def test_the_generator_has_the_parameters_of_the_specification():
    g = new_generator(np.random.default_rng(0), n_classes=10, noise=32, hidden=32, p=84)
    assert sum(t.numel() for t in drop(g, STATISTICS).values()) == 4212
    assert sum(g[name].numel() for name in STATISTICS) == 64


def test_the_generators_loss_equals_numpy(generator):
    rng = np.random.default_rng(1)
    weight, bias = rng.normal(size=(3, 4, 84)), rng.normal(size=(3, 4))
    counts, y, noise = rng.integers(1, 9, (3, 4)), rng.integers(0, 4, 7), rng.normal(size=(7, 3))
    share = counts / counts.sum(0)
    features = features_in_numpy({name: t.numpy() for name, t in generator.items()}, y, noise, training=True)
    expected = np.mean(
        [
            sum(share[i, y[b]] * -np.log(softmax(features[b] @ weight[i].T + bias[i])[y[b]]) for i in range(3))
            for b in range(7)
        ]
    )
    phi = torch.tensor(weight), torch.tensor(bias)
    value = generator_loss(generator, phi, torch.tensor(share), torch.tensor(y), torch.tensor(noise))
    assert value.item() == pytest.approx(expected)


def test_adam_of_the_server_goes_on_where_it_was(generator):
    """Two rounds of two steps equal four steps of one optimiser."""
    rng = np.random.default_rng(2)
    phi, share = (torch.tensor(rng.normal(size=(3, 4, 84))), torch.zeros(3, 4)), torch.full((3, 4), 1 / 3)
    batches = [(phi, share, torch.tensor(rng.integers(0, 4, 7)), torch.tensor(rng.normal(size=(7, 3))))] * 4
    expected, g = ({name: t.clone() for name, t in generator.items()} for _ in range(2))
    optimiser = torch.optim.Adam([t.requires_grad_() for t in drop(expected, STATISTICS).values()], 0.01)
    for batch in batches:
        optimiser.zero_grad()
        generator_loss(expected, *batch).backward()
        optimiser.step()
    first, second = ({name: torch.zeros_like(t) for name, t in drop(g, STATISTICS).items()} for _ in range(2))
    for taken in (0, 2):
        g = adam(generator_loss, g, first, second, taken, batches[taken : taken + 2], lr=0.01)
    assert close(g, {name: t.detach() for name, t in expected.items()})
    assert not any(torch.equal(g[name], generator[name]) for name in g)  # statistics follow, too
    assert not any(t.requires_grad for t in g.values())


def test_on_the_clients_the_generator_uses_its_running_statistics(generator):
    y, noise = np.array([0, 0, 3]), np.random.default_rng(3).normal(size=(3, 3))
    expected = features_in_numpy({name: t.numpy() for name, t in generator.items()}, y, noise, training=False)
    assert np.allclose(generate(generator, torch.tensor(y), torch.tensor(noise)), expected)
    alone = generate(generator, torch.tensor(y[:1]), torch.tensor(noise[:1]))  # no batch to depend on
    assert np.allclose(alone, expected[:1])
