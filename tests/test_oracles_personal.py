"""Whole runs of the methods that give every client a model of its own, and of FedCS, against their equations."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from oracle import Oracle, assert_models, assert_tested, mean, weights_of

import fedlib as fl

TUNED = {"tune_epochs": 1, "tune_every": 3}


def tuned(oracle, models):
    """Everybody's network after an epoch of SGD on the own train part, at the end of the last round."""
    nets = {i: oracle.net(w) for i, w in models.items()}
    for i, net in nets.items():
        oracle.train(net, i, oracle.rounds[-1], epochs=range(1), purpose="tune")
    return nets


def assert_tuned(result, oracle, nets):
    """The last evaluation after tuning is that of these networks."""
    assert_tested(replace(result, when="after"), oracle, nets.get)


@pytest.mark.parametrize(("alpha", "sigma"), [(0.4, 5.0), (9.0, 4.0)])
def test_fedamp(alpha, sigma):
    """Huang et al., Algorithm 1: u_i = sum_j xi_ij w_j, local loss f_i(w) + lam / (2 alpha) ||w - u_i||^2.

    Of models that were uploaded, and the own one; in the second case all others would weigh more than 1.
    """
    oracle, lam, crowded = Oracle(), 0.6, []
    models, uploaded = {i: oracle.weights for i in range(oracle.n_clients)}, set()
    parameters = oracle.model.trainable

    def cloud(i):
        others = sorted(uploaded - {i})
        square = [sum(((models[i][name] - models[j][name]) ** 2).sum().item() for name in parameters) for j in others]
        xi = alpha * np.exp(-np.array(square) / sigma) / sigma
        crowded.append(xi.sum() > 1)
        xi = xi / max(xi.sum(), 1)
        return mean([models[i], *(models[j] for j in others)], [1 - xi.sum(), *xi])

    def loss(u):
        def f(net, x, y, _):
            far = sum(((p - u[name]) ** 2).sum() for name, p in net.named_parameters())
            return F.cross_entropy(net(x), y) + lam / (2 * alpha) * far

        return f

    for t in oracle.rounds:
        clouds = {i: cloud(i) for i in oracle.cohorts[t]}
        for i, u in clouds.items():
            net = oracle.net(u)
            oracle.train(net, i, t, loss(u))
            clouds[i] = weights_of(net)
        models |= clouds
        uploaded |= set(clouds)
    clouds = {i: cloud(i) for i in models}
    assert any(crowded) == (alpha > 1)

    result = oracle.run(fl.fedamp(sigma=sigma, alpha=alpha, lam=lam), **TUNED)
    assert_models(result, clouds)
    assert_tested(result, oracle, lambda i: oracle.net(clouds[i]))
    assert_tuned(result, oracle, tuned(oracle, clouds))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_pfedme(optimizer):
    """Dinh et al., Algorithm 1: K steps of the run's optimiser on a batch, then w_i -= eta lam (w_i - theta_i)."""
    how = {"sgd": {}, "adam": {"optimizer": "adam", "momentum": 0.0, "model": "lenet5_plain"}}
    oracle = Oracle(**how[optimizer])
    lam, rate, K, beta = 7.0, 0.02, 2, 0.4
    w, thetas = oracle.weights, {i: oracle.weights for i in range(oracle.n_clients)}

    def local_update(i, t, **which):
        net, w_i = oracle.net(w), {name: v.clone() for name, v in w.items()}
        adam = torch.optim.Adam(net.parameters(), rate)
        sgd = torch.optim.SGD(net.parameters(), rate, oracle.setting["momentum"])
        for index in oracle.batches(i, t, **which):
            x, y = oracle.images(index)
            for _ in range(K):
                net.zero_grad()
                far = sum(((p - w_i[name]) ** 2).sum() for name, p in net.named_parameters())
                (F.cross_entropy(net(x), y) + lam / 2 * far).backward()
                (adam if optimizer == "adam" else sgd).step()
            for name, p in net.named_parameters():
                w_i[name] -= oracle.rate(t) * lam * (w_i[name] - p.detach())
        return net, weights_of(net) | {name: w_i[name] for name in oracle.model.trainable}

    for t in oracle.rounds:
        updates = {i: local_update(i, t) for i in oracle.cohorts[t]}
        thetas |= {i: weights_of(net) for i, (net, _) in updates.items()}
        uploads = mean(w_i for _, w_i in updates.values())
        w = {name: (1 - beta) * v + beta * uploads[name] for name, v in w.items()}
    result = oracle.run(fl.pfedme(lam=lam, personal_lr=rate, steps=K, beta=beta), **TUNED)
    torch.testing.assert_close(result.state.w, w, rtol=1e-7, atol=1e-10)
    assert_models(result, thetas)
    assert_tested(result, oracle, lambda i: oracle.net(thetas[i]))
    assert_tuned(result, oracle, {i: local_update(i, t, epochs=range(1), purpose="tune")[0] for i in thetas})
