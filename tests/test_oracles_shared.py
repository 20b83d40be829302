"""Whole runs of the methods that share a model or a part of it, against their equations in plain PyTorch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from oracle import Oracle, assert_models, assert_run, mean, near, select, weights_of

import fedlib as fl


def test_fedavg():
    """McMahan et al., Algorithm 1: w = sum_i n_i / n w_i."""
    oracle = Oracle()
    w = oracle.weights
    for t in oracle.rounds:
        w = oracle.averaged(w, t)
    assert_run(oracle.run(fl.fedavg()), oracle, w)


def test_fedprox():
    """Li et al., Algorithm 2: local loss f_i(w) + mu / 2 ||w - w^t||^2."""
    oracle, mu = Oracle(), 0.37
    w = oracle.weights
    for t in oracle.rounds:
        w = oracle.averaged(w, t, loss=near(w, mu))
    assert_models(oracle.run(fl.fedprox(mu=mu)), w)


def test_fedrep():
    """Collins et al., Algorithm 1: the head's epochs first, then those of the body; the body is averaged."""
    oracle, body_epochs = Oracle(local_epochs=3), 2
    body = oracle.weights
    heads = dict.fromkeys(range(oracle.n_clients), select(body, oracle.model.classifier))
    for t in oracle.rounds:
        nets = {i: oracle.net(body | heads[i]) for i in oracle.cohorts[t]}
        for i, net in nets.items():
            oracle.train(net, i, t, parameters=oracle.classifier(net), epochs=range(1))
            oracle.train(net, i, t, parameters=oracle.extractor(net), epochs=range(1, 1 + body_epochs))
            heads[i] = select(weights_of(net), heads[i])
        body = mean(map(weights_of, nets.values()), oracle.n[oracle.cohorts[t]])
    assert_run(oracle.run(fl.fedrep(body_epochs=body_epochs)), oracle, {i: body | own for i, own in heads.items()})


def test_ditto():
    """Li et al., Algorithm 1: w by FedAvg, and f_i(v_i) + lambda / 2 ||v_i - w^t||^2 for more epochs than w has."""
    oracle, lam, epochs = Oracle(seed=5), 0.37, 3
    w, v = oracle.weights, dict.fromkeys(range(oracle.n_clients), oracle.weights)
    for t in oracle.rounds:
        v |= {i: oracle.trained(v[i], i, t, near(w, lam), epochs=range(epochs)) for i in oracle.cohorts[t]}
        w = oracle.averaged(w, t)
    result = oracle.run(fl.ditto(lam=lam, personal_epochs=epochs))
    assert_run(result, oracle, v)
    for name, t in w.items():
        torch.testing.assert_close(result.state.w[name], t)


def slope(net, images):
    """The gradient of a network on images and labels; its statistics move."""
    x, y = images
    names, parameters = zip(*net.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(F.cross_entropy(net(x), y), parameters), strict=True))


@pytest.mark.parametrize("momentum", [0.0, 0.3])
def test_scaffold(momentum):
    """Karimireddy et al., Algorithm 1: steps along g + c - c_i; c_i becomes the mean of the g, weighted by momentum."""
    oracle, rate_g = Oracle(seed=7, momentum=momentum), 1.7
    x, n = oracle.weights, oracle.n_clients - oracle.federation.unseen
    zero = {name: torch.zeros_like(p) for name, p in oracle.net(x).named_parameters()}
    c, c_i = zero, {i: zero for i in range(oracle.n_clients)}
    for t in oracle.rounds:
        nets, change = [], []
        for i in oracle.cohorts[t]:
            net, seen, velocity = oracle.net(x), [], zero
            for index in oracle.batches(i, t):
                seen.append(slope(net, oracle.images(index)))
                velocity = {k: momentum * velocity[k] + seen[-1][k] + c[k] - c_i[i][k] for k in zero}
                with torch.no_grad():
                    for name, p in net.named_parameters():
                        p -= oracle.rate(t) * velocity[name]
            lasting = [sum(momentum**later for later in range(len(seen) - s)) for s in range(len(seen))]
            new = mean(seen, lasting)
            change.append({k: new[k] - c_i[i][k] for k in zero})
            c_i[i] = new
            nets.append(weights_of(net))
        average = mean(nets)
        x = average | {k: x[k] + rate_g * (average[k] - x[k]) for k in zero}
        c = {k: c[k] + sum(d[k] for d in change) / n for k in zero}
    result = oracle.run(fl.scaffold(server_lr=rate_g))
    assert_run(result, oracle, x)
    for k in zero:
        torch.testing.assert_close(result.state.c[k], c[k])
        torch.testing.assert_close(result.state.c_i[k], torch.stack([c_i[i][k] for i in c_i]))


def mixed(v, w, alpha, names=None):
    """alpha v + (1 - alpha) w, of all entries or of those named."""
    return {name: alpha * t + (1 - alpha) * w[name] for name, t in v.items() if names is None or name in names}


@pytest.mark.parametrize(("start", "adaptive"), [(0.3, True), (0.3, False), (1.0, True)])
def test_apfl(start, adaptive):
    """Deng et al., Algorithm 1: w_i by its own gradient, v_i by alpha times that of the mixture; w = mean of w_i."""
    oracle = Oracle(seed=7, lr=0.2)
    w, beta, names = oracle.weights, oracle.setting["momentum"], [k for k, _ in oracle.model.net.named_parameters()]
    v, alpha, cut = {i: w for i in range(oracle.n_clients)}, np.full(oracle.n_clients, start), 0
    for t in oracle.rounds:
        rate, after = oracle.rate(t), []
        for i in oracle.cohorts[t]:
            own, shared = v[i], w
            if adaptive:
                g = slope(oracle.net(own | mixed(own, w, alpha[i], names)), oracle.images(next(oracle.batches(i, t))))
                moved = alpha[i] - rate * sum(((own[k] - w[k]) * g[k]).sum().item() for k in names)
                cut += not 0 <= moved <= 1
                alpha[i] = np.clip(moved, 0, 1)
            speed = [{k: torch.zeros_like(w[k]) for k in names} for _ in range(2)]
            for index in oracle.batches(i, t):
                nets = oracle.net(own | mixed(own, shared, alpha[i], names)), oracle.net(shared)
                slopes = [slope(net, oracle.images(index)) for net in nets]
                speed = [
                    {k: beta * old[k] + factor * g[k] for k in names}
                    for old, g, factor in zip(speed, slopes, (alpha[i], 1), strict=True)
                ]
                own, shared = (
                    weights_of(net) | {k: start[k] - rate * step[k] for k in names}
                    for net, start, step in zip(nets, (own, shared), speed, strict=True)
                )
            v[i] = own
            after.append(shared)
        w = mean(after)
    result = oracle.run(fl.apfl(alpha=start, adaptive=adaptive))
    np.testing.assert_allclose(result.state.alpha[:, 0].numpy(), alpha)
    assert_run(result, oracle, {i: mixed(v[i], w, alpha[i]) for i in v})
    assert (cut > 0) == (start == 1)  # so the limits of alpha are tested, too


@pytest.mark.parametrize("part", ["all", "head", "body"])
def test_fedbabu(part):
    """Oh et al., Algorithm 1: only the body is trained and averaged; everybody fine-tunes a copy, or a part of it."""
    oracle = Oracle(seed=7, tune_epochs=2, tune_every=3)
    w = oracle.weights
    for t in oracle.rounds:
        nets = [oracle.net(w) for _ in oracle.cohorts[t]]
        for i, net in zip(oracle.cohorts[t], nets, strict=True):
            oracle.train(net, i, t, parameters=oracle.extractor(net))
        w = mean(map(weights_of, nets), oracle.n[oracle.cohorts[t]])
    assert all(torch.equal(w[k], oracle.weights[k]) for k in w if "classifier" in k)
    result = oracle.run(fl.fedbabu(tuned=part))
    assert result.when == "after"
    assert_run(result, oracle, w, oracle.tuned(dict.fromkeys(range(oracle.n_clients), w), 2, part))
