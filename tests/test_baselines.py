"""The five baselines of pFedSim with moving parts, against oracles, and what the library has for them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from phases import batches_of, phase

import fedlib as fl
from fedlib import streams
from fedlib.algorithms.fedap import neighbour_weights
from fedlib.algorithms.fedfomo import mixing_weights, usefulness
from fedlib.algorithms.fedgen import generator_loss
from fedlib.algorithms.perfedavg import first_order
from fedlib.models.generator import STATISTICS, generate, new_generator
from fedlib.runs.engine import Engine
from fedlib.runs.lockstep import lockstep
from fedlib.runs.loop import cohort_at
from fedlib.runs.plan import cohorts, prepare
from fedlib.similarity import bn_distances
from fedlib.stack import drop, own, repeat
from fedlib.training.adam import adam
from fedlib.training.backends import BACKENDS
from fedlib.training.batches import client_batches, on_device
from fedlib.training.cohort import TRAIN, Cohort, Meter
from fedlib.training.evaluate import batchnorm_inputs
from fedlib.training.losses import cross_entropy
from fedlib.training.phase import kind

SETTING = dict(rounds=4, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05)
EXACT = SETTING | {"dtype": "float64"}


def cohort_of(federation: fl.Federation, t: int, backend: str = "loop", method="fedavg", **setting) -> Cohort:
    """The cohort of round t (the first is 0) of a run with this setting."""
    plan, device = prepare(method, federation, **EXACT | setting), torch.device("cpu")
    engine = Engine(device, on_device(federation.data, device, plan.setting.torch_dtype), BACKENDS[backend]("grouped"))
    n_train = torch.tensor([len(part) for part in federation.train], dtype=torch.float32)
    ids = cohorts(federation.n_clients, plan.setting.join_ratio, plan.setting.rounds, plan.setting.seed)[t]
    return cohort_at(plan, engine, plan.model, n_train, ids, t, TRAIN)


def close(a: dict, b: dict, tolerance: float = 1e-9) -> bool:
    return a.keys() == b.keys() and all(torch.allclose(a[name], b[name], rtol=tolerance, atol=tolerance) for name in a)


# What the library has for them: both backends, one meaning


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_clipped_step_is_as_long_as_the_clip_says(backend, federation):
    cohort = cohort_of(federation, 0, backend, batch_size=200)  # one step per epoch
    start = repeat(cohort.model.weights, cohort.size)
    free, clipped = (cohort.train(cross_entropy, start, epochs=[0], clip=clip) for clip in (None, 0.01))
    names = cohort.model.trainable
    step = {name: free[name] - start[name] for name in names}
    norm = torch.cat([t.flatten(1) for t in step.values()], 1).norm(dim=1)  # lr * gradient, [k]
    assert (norm > 0.05 * 0.01).all()
    for name in names:
        shape = (-1,) + (1,) * (step[name].dim() - 1)
        assert torch.allclose(
            clipped[name] - start[name], step[name] * (0.05 * 0.01 / norm).view(shape), rtol=1e-4, atol=1e-12
        )
    assert close(free, cohort.train(cross_entropy, start, epochs=[0], clip=1e6))


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
        answers.append(cohort.train(with_draws, start, draws=draws))
        assert not close(answers[-1], cohort.train(with_draws, start, draws=no_draws))
        assert not close(answers[-1], cohort.train(with_draws, start, draws=draws))  # another phase of the round
    assert close(*answers)
    assert [client for client, _ in told] == 4 * cohort.ids.tolist()
    assert [steps for _, steps in told] == 4 * [2 * math.ceil(len(federation.train[i]) / 8) for i in cohort.ids]
    phases = [cohort._drawn(draws, [torch.zeros(3, 8)] * cohort.size, number) for number in (0, 0, 1)]
    assert torch.equal(phases[0][0]["z"], phases[1][0]["z"])
    assert not torch.equal(phases[0][0]["z"], phases[2][0]["z"])
    assert not torch.equal(phases[0][0]["z"], phases[0][1]["z"])


def test_seeds_in_lockstep_share_a_stack_and_keep_their_own_draws(federation):
    def draws(rng, client, steps):
        return {"z": rng.standard_normal((steps, 4)), "c": rng.integers(0, 84, (steps, 1))}

    def work(cohort):
        start = repeat(cohort.model.weights, cohort.size)
        return lambda trainer: replace(cohort, trainer=trainer, meter=Meter()).train(
            with_draws, start, clip=0.5, draws=draws, batches_per_step=2
        )

    first, second = (cohort_of(federation, 0, seed=seed) for seed in (0, 1))
    cohorts_of_two_seeds, together = (first, replace(second, images=first.images)), []
    stacked = BACKENDS["stacked"]("grouped")

    def trainer(phase):
        together.append(len(phase.batches))
        return stacked(phase)

    pairs = zip(lockstep([work(c) for c in cohorts_of_two_seeds], trainer), cohorts_of_two_seeds, strict=True)
    assert all(close(pooled, work(cohort)(cohort.trainer)) for pooled, cohort in pairs)
    assert together == [6]


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
    train, held_out = cohort.hold_out(0.2)
    for i, a, b in zip(cohort.ids, train, held_out, strict=True):
        assert np.array_equal(np.concatenate([a, b]), federation.train[i])
        assert len(b) == round(0.2 * len(federation.train[i]))
    assert [len(b) for b in cohort.hold_out(1e-6)[1]] == 3 * [1]
    assert [len(a) for a in cohort.hold_out(1 - 1e-6)[0]] == 3 * [1]
    only = replace(federation, train=tuple(own[:1] for own in federation.train))
    with pytest.raises(ValueError, match=r"client \d has one training sample; it needs two"):
        fl.run("fedfomo", only, **SETTING, progress=False)


def test_the_mean_loss_is_that_of_each_clients_own_samples(federation):
    cohort = cohort_of(federation, 0)
    models = own(cohort.model.weights, cohort.size)
    models["classifier.bias"][1, 0] += 1
    samples = cohort.hold_out(0.5)[1]
    cohort.model.net.eval()
    for row, index in enumerate(samples):
        batch = cohort.images.batch(torch.from_numpy(index), cohort.model)
        expected = F.cross_entropy(cohort.model({name: t[row] for name, t in models.items()}, batch.x), batch.y)
        assert torch.allclose(cohort.mean_loss(models, samples)[row], expected)


def test_phases_that_clip_or_draw_differently_do_not_share_a_stack(federation):
    model = prepare("fedavg", federation, **SETTING).model
    plain = phase(model, federation.data, federation.train[:2])
    draws = tuple({"z": torch.zeros(len(steps), 4)} for steps in plain.batches)
    kinds = [kind(p) for p in (plain, plain._replace(clip=1.0), plain._replace(clip=2.0), plain._replace(draws=draws))]
    assert len({(kind[0], *map(str, kind[1:])) for kind in kinds}) == 4


def test_the_statistics_of_batchnorm_inputs_equal_numpy(federation):
    cohort = cohort_of(federation, 0)
    models = own(cohort.model.weights, 2)
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


def test_feddyn_equals_its_equations_over_two_rounds(federation):
    """g_i, h and theta as the specification writes them, local training in bare PyTorch."""
    alpha, clip, n = 0.5, 1.0, federation.n_clients
    model = prepare("feddyn", federation, **EXACT).model
    theta = {name: w.numpy() for name, w in model.weights.items()}
    g = {name: np.zeros((n, *theta[name].shape)) for name in model.trainable}
    h = {name: np.zeros_like(theta[name]) for name in model.trainable}
    for t, clients in enumerate(cohorts(n, 0.5, 4, seed=0)[:2]):
        trained = []
        for i in clients:

            def penalty(w, i=i, theta=theta):
                linear = sum((torch.tensor(g[name][i]) * w[name]).sum() for name in g)
                return alpha / 2 * sum(((w[name] - torch.tensor(theta[name])) ** 2).sum() for name in g) - linear

            start = {name: torch.tensor(w) for name, w in theta.items()}
            trained.append({name: w.numpy() for name, w in sgd(federation, t, i, start, penalty, clip).items()})
        mean = {name: np.mean([w[name] for w in trained], axis=0) for name in theta}
        for name in g:
            for i, w in zip(clients, trained, strict=True):
                g[name][i] -= alpha * (w[name] - theta[name])
                h[name] -= alpha / n * (w[name] - theta[name])
        theta = {name: mean[name] - h[name] / alpha if name in h else mean[name] for name in theta}
    state = fl.run(fl.feddyn(alpha=alpha, clip=clip), federation, **EXACT | {"rounds": 2}, progress=False).state
    assert all(np.allclose(state.w[name], theta[name], rtol=1e-6, atol=1e-9) for name in theta)
    assert all(np.allclose(-alpha * state.drift[name], g[name], rtol=1e-6, atol=1e-9) for name in g)
    assert all(np.allclose(-alpha * state.mean_drift[name], h[name], rtol=1e-6, atol=1e-9) for name in h)


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


def test_the_server_state_of_feddyn_is_the_mean_of_its_clients(federation):
    state = fl.run("feddyn", federation, **EXACT, progress=False).state
    assert close({name: t.mean(0) for name, t in state.drift.items()}, state.mean_drift)


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
    trained = cohort.train(first_order(quadratic, alpha), start, lr=beta, batches_per_step=2)["classifier.bias"][:, 0]
    for row, i in enumerate(cohort.ids):
        a = cohort.model.weights["classifier.bias"][0].item()
        for index in client_batches(federation.train[i], range(2), 8, batches_of(0, i), per_step=2):
            m1, m2 = (federation.data.y[part].mean() for part in np.split(index.numpy(), 2))
            a -= beta * (a - alpha * (a - m1) - m2)
        assert trained[row].item() == pytest.approx(a)


@pytest.mark.parametrize("backend", BACKENDS)
def test_batchnorm_follows_the_second_batch_of_per_fedavg_only(backend, federation):
    cohort = cohort_of(federation, 0, backend, batch_size=6)
    start = repeat(cohort.model.weights, cohort.size)
    few = [own[:12] for own in take_samples(cohort)]  # two batches: one step
    trained = cohort.train(first_order(cross_entropy, 0.0), start, epochs=[0], samples=few, batches_per_step=2)
    for row, (i, own_samples) in enumerate(zip(cohort.ids, few, strict=True)):
        [index] = client_batches(own_samples, [0], 6, batches_of(0, i), per_step=2)
        second = cohort.images.batch(index[6:], cohort.model).x
        w = {name: t.clone() for name, t in cohort.model.weights.items()}
        cohort.model.net.train()
        cohort.model(w, second)
        for name in cohort.model.statistics:
            assert torch.allclose(trained[name][row], w[name]), name


def take_samples(cohort: Cohort) -> list[np.ndarray]:
    return [cohort.federation.train[i] for i in cohort.ids]


def test_per_fedavg_trains_at_beta_and_is_tuned_at_alpha_whatever_the_runs_lr(federation):
    once = SETTING | {"rounds": 1, "tune_epochs": 1}
    tables = [
        fl.run(fl.perfedavg(alpha=alpha), federation, **once | {"lr": lr}, progress=False).accuracy.set_index("when")
        for alpha, lr in [(0.05, 0.01), (0.05, 0.9), (1e-6, 0.9)]
    ]
    assert tables[0].equals(tables[1])
    before, after, idle = (
        t.loc[when, "loss"].mean() for t, when in zip(tables, ["before", "after", "after"], strict=True)
    )
    assert before - after > 0.01
    assert abs(before - idle) < (before - after) / 2  # only BatchNorm's statistics have moved


# FedFomo


def test_the_weights_of_fedfomo_by_hand():
    """Client 0 gains 0.5 at distance 1 and 0.25 at distance 1 from two others; client 1 gains nothing anywhere."""
    losses = torch.tensor([[2.0, 1.5, 1.75, 3.0], [1.0, 1.0, 2.0, 4.0]])
    useful = usefulness(losses, torch.tensor([[1.0, 1.0, 2.0], [0.0, 1.0, 1.0]]))
    assert torch.allclose(useful, torch.tensor([[0.5, 0.25, -0.5], [0.0, -1.0, -3.0]]), atol=1e-4)
    assert torch.allclose(mixing_weights(useful), torch.tensor([[2 / 3, 1 / 3, 0.0], [0.0, 0.0, 0.0]]))
    assert mixing_weights(torch.empty(2, 0)).shape == (2, 0)


def test_the_first_round_of_fedfomo_is_local_training_on_the_rest(federation):
    once = SETTING | {"rounds": 1}
    cuts = [len(own) - round(0.2 * len(own)) for own in federation.train]
    rest = replace(federation, train=tuple(own[:cut] for own, cut in zip(federation.train, cuts, strict=True)))
    a = fl.run("fedfomo", federation, **once, progress=False)
    b = fl.run("local_only", rest, **once, progress=False)
    assert all(torch.equal(a.models[name], t) for name, t in b.models.items())
    assert torch.equal(a.state.affinity, torch.eye(6))
    assert a.state.last.tolist() == cohorts(6, 0.5, 1, seed=0)[0].tolist()


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


def test_a_whole_run_of_fedap_equals_its_equations(federation):
    """Two rounds of FedBN, then W once, then two rounds of mixing."""
    half = fl.run("fedbn", federation, **EXACT | {"rounds": 2}, progress=False)
    state = fl.run("fedap", federation, **EXACT, progress=False).state
    v = {name: t.expand(6, *t.shape[1:]).clone() for name, t in half.models.items()}
    for t in (2, 3):
        cohort = cohort_of(federation, t)
        if t == 2:
            statistics = batchnorm_inputs(cohort.model, cohort.images, v, federation.train)
            weights = neighbour_weights(bn_distances(statistics), 0.5)
        mixed = {name: torch.einsum("ij,j...->i...", weights, w) for name, w in v.items()}
        start = {name: (v if name in cohort.model.batchnorm else mixed)[name][cohort.clients] for name in v}
        trained = cohort.train(cross_entropy, start)
        for name, w in v.items():
            w[cohort.clients] = trained[name]
    assert torch.allclose(state.weights, weights)
    assert torch.allclose(weights.sum(1), torch.ones(6, dtype=torch.float64))
    assert close(state.v, v, 1e-6)


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


def test_a_clients_loss_in_fedgen_equals_numpy(federation):
    """From the second round on: CE + 10 * 0.98 * (CE on generated features of own classes + KL), by the formulas."""
    setting = EXACT | {"rounds": 2, "local_epochs": 1, "batch_size": 64}  # one step per client and round
    half = fl.run("fedgen", federation, **setting | {"rounds": 1}, progress=False).state
    whole = fl.run("fedgen", federation, **setting, progress=False)
    cohort = cohort_of(federation, 1, **setting)
    g, losses = {name: t.numpy() for name, t in half.generator.items()}, []
    weight, bias = (t.numpy() for t in cohort.model.head(half.w))
    for i in cohort.ids:
        [index] = client_batches(federation.train[i], [0], 64, batches_of(1, i))
        x, y, *_ = cohort.images.batch(index, cohort.model)
        cohort.model.net.train()
        answers = softmax(cohort.model({name: t.clone() for name, t in half.w.items()}, x).numpy())
        rng = streams.generator(0, TRAIN, 1, "draws", int(i), 0)
        z = rng.standard_normal((1, 32 + 64, 32))[0]
        own_y = rng.choice(np.unique(federation.data.y[federation.train[i]]), (1, 32))[0]
        guess = softmax(features_in_numpy(g, np.concatenate([own_y, y.numpy()]), z, training=False) @ weight.T + bias)
        ce = -np.log(answers[np.arange(64), y]).mean()
        generated = -np.log(guess[np.arange(32), own_y]).mean()
        divergence = (guess[32:] * np.log(guess[32:] / answers)).sum(1).mean()
        losses.append(ce + 10 * 0.98 * (generated + divergence))
    assert whole.rounds["train_loss"].iloc[1] == pytest.approx(np.mean(losses), rel=1e-5)
