"""Whole runs of the methods that give every client a model of its own, and of FedCS, against their equations."""

from dataclasses import replace
from itertools import combinations

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


FEW = dict(rounds=4, join_ratio=0.34, seed=198)  # two clients a round; those of the first and the last lack two classes


def class_means(oracle, net, i):
    """What enters the classifier, in evaluation mode, on client i's train part: z, y, and the mean z of each class."""
    x, y = oracle.images(oracle.federation.train[i])
    with torch.no_grad():
        z = net.eval()[:-1](x)
    net.train()
    return z, y, {c: z[y == c].mean(0) for c in y.unique().tolist()}


def towards(prototypes, lam):
    """Cross-entropy + lam R: mean squared error of the features to the prototype of their class, where there is one."""

    def loss(net, x, y, _):
        z = net[:-1](x)
        R = sum(((z[k] - prototypes[c]) ** 2).mean() for k, c in enumerate(y.tolist()) if c in prototypes) / len(y)
        return F.cross_entropy(net[-1](z), y) + lam * R

    return loss


def average_prototypes(before, means, counts):
    """By counts, over those of `means` [client] that have the class; all others stay what they were."""
    after = dict(before)
    for c in sorted({c for own in means.values() for c in own}):
        owners = [i for i in means if c in means[i]]
        after[c] = sum(counts[i, c] * means[i][c] for i in owners) / counts[owners, c].sum()
    return after


def assert_prototypes(state, prototypes):
    assert state.known.nonzero().flatten().tolist() == sorted(prototypes)
    for c, z in prototypes.items():
        torch.testing.assert_close(state.z[c], z, rtol=1e-7, atol=1e-10)


def test_fedproto():
    """Tan et al., Algorithm 1: private models with cross-entropy + lam R; prototypes after training, by counts."""
    oracle, lam, prototypes = Oracle(**FEW), 2.5, {}
    nets = {i: oracle.net(oracle.weights) for i in range(oracle.n_clients)}
    for t, cohort in enumerate(oracle.cohorts):
        for i in cohort:
            oracle.train(nets[i], i, t, towards(prototypes, lam))
        means = {i: class_means(oracle, nets[i], i)[2] for i in cohort}
        prototypes = average_prototypes(prototypes, means, oracle.federation.train_counts)
        assert len(prototypes) == (2 if t == 0 else 4)
    result = oracle.run(fl.fedproto(lam=lam), **TUNED)
    assert_models(result, {i: weights_of(net) for i, net in nets.items()})
    assert_prototypes(result.state, prototypes)
    assert_tested(result, oracle, nets.get)
    assert_tuned(result, oracle, tuned(oracle, {i: weights_of(net) for i, net in nets.items()}))


def simplex_minimum(Q):
    """argmin a'Qa over the simplex: of all supports the best on which Qa = constant has a nonnegative solution."""
    best = None
    for size in range(1, len(Q) + 1):
        for support in map(list, combinations(range(len(Q)), size)):
            a = np.zeros(len(Q))
            a[support] = np.linalg.solve(Q[np.ix_(support, support)], np.ones(size))
            a /= a.sum()
            if (a >= 0).all() and (best is None or a @ Q @ a < best @ Q @ best):
                best = a
    return best


@pytest.mark.parametrize("setting", [{}, FEW], ids=["three clients a round", "two clients a round"])
def test_fedpac(setting):
    """Xu et al., Algorithm 1: classifier, then body, with lam R from round 1 on; each client gets a mix of classifiers.

    V and h, for the combination, are of the received model; prototypes are of the trained one.
    """
    oracle, lam, prototypes = Oracle(**setting), 0.8, {}
    counts, body = oracle.federation.train_counts, oracle.weights
    phi = {i: oracle.weights for i in range(oracle.n_clients)}

    def joined(i):
        return body | {name: phi[i][name] for name in oracle.model.classifier}

    for t, cohort in enumerate(oracle.cohorts):
        nets, h, V, means = {i: oracle.net(joined(i)) for i in cohort}, {}, {}, {}
        for i, net in nets.items():
            z, y, own = class_means(oracle, net, i)
            h[i] = np.concatenate([(z[y == c].sum(0) / len(y)).numpy() for c in range(4)])  # p_ic mu_ic
            V[i] = ((z**2).sum(1).mean().item() - h[i] @ h[i]) / len(y)
            aims = own | prototypes if t else {}
            oracle.train(net, i, t, parameters=oracle.classifier(net), epochs=range(2))
            oracle.train(net, i, t, towards(aims, lam), parameters=oracle.extractor(net), epochs=range(2, 3))
            means[i] = class_means(oracle, net, i)[2]
        uploads = {i: weights_of(net) for i, net in nets.items()}
        body = mean(uploads.values(), oracle.n[cohort])
        for i in cohort:
            Q = np.array([[(h[i] - h[j]) @ (h[i] - h[k]) + V[j] * (j == k) for k in cohort] for j in cohort])
            phi[i] = mean(uploads.values(), [a if a >= 1e-3 else 0 for a in simplex_minimum(Q)])
        prototypes = average_prototypes(prototypes, means, counts)
    result = oracle.run(fl.fedpac(lam=lam, head_epochs=2), **TUNED)
    assert_prototypes(result.state, prototypes)
    assert_models(result, {i: joined(i) for i in phi})
    assert_tested(result, oracle, lambda i: oracle.net(joined(i)))
    assert_tuned(result, oracle, tuned(oracle, {i: joined(i) for i in phi}))
