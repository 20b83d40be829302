"""Whole runs of pFedSim, of its baselines and of FedAlt and FedSim, against their equations in plain PyTorch."""

import copy
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from oracle import Oracle, Weights, assert_run, assert_tested, mean, select, weights_of
from torch import Tensor, nn

import fedlib as fl
from fedlib.methods.fedgen import new_generator
from fedlib.streams import generator

TUNED = {"local_epochs": 3, "tune_epochs": 2}
PHI = {"classifier.weight", "classifier.bias"}
NORMS = {f"conv{i}.1.{name}" for i in (1, 2) for name in ("weight", "bias", "running_mean", "running_var")}


@pytest.mark.parametrize(
    ("method", "kept"),
    [(fl.fedbn(), NORMS), (fl.fedbn(affine=False), {name for name in NORMS if "running" in name}), (fl.fedper(), PHI)],
    ids=["FedBN", "SiloBN", "FedPer"],
)
def test_fedbn_and_fedper(method, kept):
    """Li et al. and Arivazhagan et al., Algorithm 1: all is trained; what is `kept` stays, the rest is averaged."""
    oracle = Oracle()
    w, v = oracle.weights, {i: select(oracle.weights, kept) for i in range(oracle.n_clients)}
    for t in oracle.rounds:
        w = oracle.averaged(w, t, v)
    assert_run(oracle.run(method), oracle, {i: w | v[i] for i in v})


def shortened(error: Tensor, net: nn.Module, clip: float) -> Tensor:
    """`error`, times what makes its gradient no longer than `clip`."""
    slope = torch.autograd.grad(error, list(net.parameters()), retain_graph=True)
    return error * (clip / (torch.cat([g.flatten() for g in slope]).norm() + 1e-6)).clamp(max=1)


@pytest.mark.parametrize("clip", [0.9, None])
def test_feddyn(clip):
    """Acar et al., Algorithm 1: loss f_i(w) - <g_i, w> + alpha / 2 ||w - theta||^2, and h = mean of all n g_i."""
    oracle, alpha = Oracle(seed=7), 0.21
    theta, n = oracle.weights, oracle.n_clients - oracle.federation.unseen
    zero = {k: torch.zeros_like(p) for k, p in oracle.net(theta).named_parameters()}
    g, h = {i: zero for i in range(oracle.n_clients)}, zero
    for t in oracle.rounds:
        models = {}
        for i in oracle.cohorts[t]:

            def loss(net, x, y, _, theta=theta, g_i=g[i]):
                w = dict(net.named_parameters())
                linear, far = sum((g_i[k] * w[k]).sum() for k in w), sum(((w[k] - theta[k]) ** 2).sum() for k in w)
                error = F.cross_entropy(net(x), y) - linear + alpha / 2 * far
                return error if clip is None else shortened(error, net, clip)

            models[i] = oracle.trained(theta, i, t, loss)
            g[i] = {k: g[i][k] - alpha * (models[i][k] - theta[k]) for k in zero}
        h = {k: h[k] - alpha / n * sum(w[k] - theta[k] for w in models.values()) for k in h}
        theta = mean(models.values())
        theta |= {k: theta[k] - h[k] / alpha for k in h}
    result = oracle.run(fl.feddyn(alpha=alpha, clip=clip))
    assert_run(result, oracle, theta)
    for k in zero:
        torch.testing.assert_close(-alpha * result.state.drift[k], torch.stack([g[i][k] for i in g]))


def test_fedgen():
    """Zhu et al., Algorithm 1, without its diversity: the generator learns from the classifiers, then they from it."""
    setting = dict(alpha=3.0, beta=1.3, decay=0.6, labels=6, noise=5, hidden=7, generator_steps=3, generator_lr=0.02)
    alpha, beta, decay, labels, d, hidden, steps, rate = setting.values()
    oracle = Oracle(seed=12, join_ratio=0.34)  # round 0: clients that have two of the four classes
    w, counts = oracle.weights, oracle.federation.train_counts
    make = nn.Sequential(nn.Linear(4 + d, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, 84)).double()
    adam = torch.optim.Adam(make.parameters())

    def client(i, t):
        rng, n = generator(oracle.seed, "train", t, "draws", i, 0), len(list(oracle.batches(i, t)))
        z = torch.tensor(rng.standard_normal((n, labels + oracle.setting["batch_size"], d)))
        drawn = zip(z, torch.tensor(rng.choice(np.flatnonzero(counts[i]), (n, labels))), strict=True)

        def loss(net, x, y, _):
            z, own = next(drawn)
            with torch.no_grad():
                features = make.eval()(torch.cat([F.one_hot(torch.cat([own, y]), 4), z], 1))
            guess, target = net.classifier(features).split([labels, len(y)])
            p, log_q = target.detach().softmax(1), net(x).log_softmax(1)
            divergence = (p * (p.log() - log_q)).sum(1).mean()
            return F.nll_loss(log_q, y) + decay**t * (alpha * F.cross_entropy(guess, own) + beta * divergence)

        net = oracle.net(w)
        oracle.train(net, i, t, loss if t else None)
        return net

    initial = new_generator(generator(oracle.seed, "fedgen", "generator"), 4, d, hidden, p=84).values()
    make.load_state_dict(dict(zip(weights_of(make), initial, strict=True)), strict=False)

    def server(nets, t):
        rng, here = generator(oracle.seed, "server", t, "generator"), counts[oracle.cohorts[t]]
        share = torch.tensor(here / np.maximum(here.sum(0), 1))
        ys = torch.tensor(rng.choice(np.flatnonzero(here.sum(0)), (steps, labels)))
        adam.param_groups[0]["lr"] = rate * decay**t
        for y, z in zip(ys, torch.tensor(rng.standard_normal((steps, labels, d))), strict=True):
            features = make.train()(torch.cat([F.one_hot(y, 4), z], 1))
            errors = [F.cross_entropy(net.classifier(features), y, reduction="none") for net in nets]
            adam.zero_grad()
            sum((share[row, y] * e).mean() for row, e in enumerate(errors)).backward()
            adam.step()

    for t in oracle.rounds:
        nets = [client(i, t) for i in oracle.cohorts[t]]
        w = mean(map(weights_of, nets), oracle.n[oracle.cohorts[t]])
        server(nets, t)
    result = oracle.run(fl.fedgen(**setting))
    assert_run(result, oracle, w)
    for found, expected in zip(result.state.generator.values(), weights_of(make).values(), strict=True):
        torch.testing.assert_close(found, expected)


def joined(oracle: Oracle, i: int, t: int, n: int, steps: int | None) -> Iterator[tuple[np.ndarray, ...]]:
    """Client i's mini-batches of round t, n for each step; who has fewer takes its samples again, for one step."""
    for epoch in range(steps or oracle.setting["local_epochs"]):
        batches, size = list(oracle.batches(i, t, [epoch])), n * oracle.setting["batch_size"]
        if len(batches) < n:
            batches = [own for whole in oracle.batches(i, t, [epoch], size=size) for own in np.split(whole, n)]
        yield from zip(*[iter(batches)] * n, strict=False)


def slope(oracle: Oracle, net: nn.Module, index: np.ndarray, rate: float = 0, way: tuple = ()) -> tuple:
    """The gradient on these samples of a copy of `net` that has moved by rate * way, and the copy, after them."""
    there = copy.deepcopy(net)
    with torch.no_grad():
        for p, d in zip(there.parameters(), way, strict=False):
            p += rate * d
    x, y = oracle.images(index)
    return torch.autograd.grad(F.cross_entropy(there(x), y), list(there.parameters())), there


@pytest.mark.parametrize("steps", [None, 4])
@pytest.mark.parametrize("hessian", ["first_order", "free"])
def test_perfedavg(hessian, steps):
    """Fallah et al., Algorithm 1, without H or with equation 8: w -= beta (I - alpha H(w)) g(w - alpha g(w))."""
    alpha, beta, delta, n, oracle = 0.3, 0.08, 0.02, 2 if hessian == "first_order" else 3, Oracle(**TUNED, seed=7)
    w = oracle.weights
    for t in oracle.rounds:
        nets = [oracle.net(w) for _ in oracle.cohorts[t]]
        for i, net in zip(oracle.cohorts[t], nets, strict=True):
            velocity = [torch.zeros_like(p) for p in net.parameters()]
            for first, second, *third in itertools.islice(joined(oracle, i, t, n, steps), steps):
                g, ahead = slope(oracle, net, second, -alpha, slope(oracle, net, first)[0])
                for index in third:
                    a, b = (slope(oracle, net, index, rate, g)[0] for rate in (delta, -delta))
                    g = [g - alpha * (a - b) / (2 * delta) for g, a, b in zip(g, a, b, strict=True)]
                velocity = [0.3 * v + g for v, g in zip(velocity, g, strict=True)]
                moved = {k: p - beta * v for (k, p), v in zip(net.named_parameters(), velocity, strict=True)}
                net.load_state_dict(weights_of(ahead) | moved, strict=False)  # statistics are those of `second`
        w = mean(map(weights_of, nets))
    tuned = oracle.tuned(dict.fromkeys(range(oracle.n_clients), w), 2, rate=alpha)
    result = oracle.run(fl.perfedavg(alpha=alpha, beta=beta, hessian=hessian, delta=delta, steps=steps))
    assert result.when == "after"
    assert_run(result, oracle, w, tuned)


def loss_on(oracle: Oracle, w: Weights, index: np.ndarray) -> float:
    x, y = oracle.images(index)
    with torch.no_grad():
        return F.cross_entropy(oracle.net(w).eval()(x), y).item()


@pytest.mark.parametrize("explore", [0.0, 0.7])
def test_fedfomo(explore):
    """Zhang et al., with the epsilon-greedy choice of their code: v_j = (L_i(i) - L_i(j)) / ||theta_j - theta_i||."""
    oracle, m, share, decay = Oracle(seed=7, join_ratio=0.67), 2, 0.3, 0.1
    theta, last = {i: oracle.weights for i in range(oracle.n_clients)}, []
    affinity, parameters = np.eye(oracle.n_clients), [name for name, _ in oracle.net(oracle.weights).named_parameters()]
    for t in oracle.rounds:
        rng, k, p, after = generator(oracle.seed, "server", t, "neighbours"), len(oracle.cohorts[t]), len(last), {}
        order, lots = rng.random((k, p)).argsort(1), rng.random((k, p))
        luck, epsilon = rng.random((min(m, p), k)), explore - decay * t
        for row, i in enumerate(oracle.cohorts[t]):
            own, held = oracle.federation.train[i], round(share * oracle.n[i])
            lot = {last[place]: x for place, x in zip(order[row], lots[row], strict=True) if last[place] != i}
            start, gain = theta[i], {}
            for exploring in luck[:, row] < epsilon:
                j = max((j for j in lot if j not in gain), key=lot.get if exploring else affinity[i].__getitem__)
                far = math.sqrt(sum(((theta[j][name] - theta[i][name]) ** 2).sum() for name in parameters))
                gain[j] = loss_on(oracle, theta[i], own[-held:]) - loss_on(oracle, theta[j], own[-held:])
                gain[j] /= far + 1e-5
            total = sum(max(v, 0) for v in gain.values()) or 1
            for j, v in gain.items():
                affinity[i, j] += v
                start = {name: w + max(v, 0) / total * (theta[j][name] - theta[i][name]) for name, w in start.items()}
            after[i] = oracle.trained(start, i, t, samples=own[:-held])
        theta, last = theta | after, oracle.cohorts[t]
    result = oracle.run(fl.fedfomo(neighbours=m, validation=share, explore=explore, explore_decay=decay))
    np.testing.assert_allclose(result.state.affinity.numpy(), affinity)
    assert_run(result, oracle, theta)


def batchnorm_inputs(oracle: Oracle, w: Weights, i: int) -> list[np.ndarray]:
    """Means and deviations of what enters each BatchNorm layer on client i's train part, in evaluation mode."""
    net, seen = oracle.net(w).eval(), []
    for layer in (net.conv1[1], net.conv2[1]):
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().transpose(0, 1).flatten(1)))
    net(oracle.images(oracle.federation.train[i])[0])
    return [np.concatenate([x.mean(1), x.std(1, correction=0)]) for x in seen]


@pytest.mark.parametrize("evaluate", ["mixed", "own"])
def test_fedap(evaluate, monkeypatch):
    """Lu et al.: after a warm-up by FedBN theta_i = sum_j W_ij theta_j but for BatchNorm, W from its inputs, once."""
    monkeypatch.setattr("fedlib.training.evaluation.CHUNK", 7)  # several chunks per client, the last one smaller
    oracle, mu = Oracle(seed=11), 0.3  # client 4 is never sampled, 1 and 5 are not in the warm-up
    n, seen = oracle.n_clients, oracle.n_clients - oracle.federation.unseen
    v = {i: select(oracle.weights, NORMS) for i in range(n)}
    w = oracle.averaged(oracle.weights, 0, v)  # floor(0.4 * 3) rounds
    theta = {i: w | v[i] for i in v}

    inputs, closeness = [batchnorm_inputs(oracle, theta[i], i) for i in range(seen)], np.zeros((seen, seen))
    for i, j in itertools.permutations(range(seen), 2):
        closeness[i, j] = 1 / sum(np.linalg.norm(a - b) for a, b in zip(inputs[i], inputs[j], strict=True))
    weights = np.eye(n)  # an unseen client stays as the warm-up has left it
    weights[:seen, :seen] = mu * np.eye(seen) + (1 - mu) * closeness / closeness.sum(1, keepdims=True)

    def mixed(i):
        return mean(theta.values(), weights[i]) | select(theta[i], NORMS)

    for t in (1, 2):
        theta |= {i: oracle.trained(mixed(i), i, t) for i in oracle.cohorts[t]}
    result = oracle.run(fl.fedap(warm_up=0.4, self_weight=mu, evaluate=evaluate))
    np.testing.assert_allclose(result.state.weights.numpy(), weights)
    assert_run(result, oracle, {i: mixed(i) for i in theta} if evaluate == "mixed" else theta)
    shared, statistics = 8 * sum(w[name].numel() for name in w.keys() - NORMS), 8 * 2 * (6 + 16)
    assert result.rounds["bytes_down"].tolist() == [3 * shared, (3 + seen) * shared, 3 * shared]
    assert result.rounds["bytes_up"].tolist() == [3 * shared, 3 * shared + seen * statistics, 3 * shared]


SIMILARITY = {  # pFedSim, equation 3, and its variants, of the cosines s of all classes
    "per_class": lambda s, cap: np.mean(-np.log(1 - np.clip(s, 0, 1 - cap))),
    "log_of_mean": lambda s, cap: -np.log(1 - np.clip(np.mean(s), 0, 1 - cap)),
    "mean_cos": lambda s, cap: np.maximum(np.mean(s), 0),
}


@pytest.mark.parametrize("kind", SIMILARITY)
def test_pfedsim(kind):
    """Tan et al., Algorithm 2: FedAvg, then omega_i = sum_j Phi_ij omega_j / sum_j Phi_ij under the own classifier."""
    oracle, cap = Oracle(rounds=4), 0.05
    w = oracle.averaged(oracle.weights, 0)  # floor(0.4 * 4) rounds
    theta, similarity = {i: w for i in range(oracle.n_clients)}, np.eye(oracle.n_clients)
    similarity *= 1 if kind == "mean_cos" else -np.log(cap)
    for t in (1, 2, 3):
        start = {i: mean(theta.values(), similarity[i]) | select(theta[i], PHI) for i in oracle.cohorts[t]}
        theta |= {i: oracle.trained(start[i], i, t) for i in oracle.cohorts[t]}
        for i, j in itertools.permutations(oracle.cohorts[t], 2):
            a, b = (theta[c]["classifier.weight"].numpy() for c in (i, j))
            cosines = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1) + 1e-8)
            similarity[i, j] = SIMILARITY[kind](cosines, cap)
    result = oracle.run(fl.pfedsim(generalization=0.4, similarity=kind, cap=cap))
    np.testing.assert_allclose(result.state.similarity.numpy(), similarity)
    assert_run(result, oracle, theta)


@pytest.mark.parametrize("part", ["output", "input"])
@pytest.mark.parametrize("method", ["fedalt", "fedsim"])
def test_fedalt_and_fedsim(method, part):
    """Pillutla et al., Algorithms 1 and 2: the personal v_i first, then u; or both at once; u is averaged."""
    oracle = Oracle("lenet5" if part == "output" else "lenet5_plain", **TUNED)  # BatchNorm would keep the bias as it is
    names = PHI if part == "output" else {"conv1.0.weight", "conv1.0.bias"}

    def phase(net, i, t, personal, **which):
        parameters = [p for name, p in net.named_parameters() if (name in names) == personal]
        oracle.train(net, i, t, parameters=parameters, **which)

    u = oracle.averaged(oracle.weights, 0)  # floor(0.4 * 3) rounds
    v = {i: select(u, names) for i in range(oracle.n_clients)}
    for t in (1, 2):
        if method == "fedsim":
            u = oracle.averaged(u, t, v)
            continue
        nets = {i: oracle.net(u | v[i]) for i in oracle.cohorts[t]}
        for i, net in nets.items():
            phase(net, i, t, personal=True, name="personal")
            phase(net, i, t, personal=False)
            v[i] = select(weights_of(net), names)
        u = mean(map(weights_of, nets.values()), oracle.n[oracle.cohorts[t]])

    tuned = [oracle.net(u | v[i]) for i in range(oracle.n_clients)]
    for i, net in enumerate(tuned):
        phase(net, i, 2, personal=True, purpose="tune", epochs=range(2))
    result = oracle.run(getattr(fl, method)(warm_up=0.4, part=part))
    assert_run(result, oracle, {i: u | v[i] for i in v})
    assert_tested(replace(result, when="after"), oracle, tuned.__getitem__)
