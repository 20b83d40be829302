"""Whole runs of the methods that give every client a model of its own, and of FedCS, against their equations."""

import copy
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from oracle import Oracle, assert_models, assert_run, assert_tested, mean, near, ragged, weights_of
from torch import nn
from torch.func import functional_call

import fedlib as fl
from fedlib.methods.fedsimsup.supervisors import SUPERVISORS
from fedlib.streams import generator

TUNED = {"tune_epochs": 1, "tune_every": 3}


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

    for t in oracle.rounds:
        clouds = {i: cloud(i) for i in oracle.cohorts[t]}
        models |= {i: oracle.trained(u, i, t, near(u, lam / alpha)) for i, u in clouds.items()}
        uploaded |= set(clouds)
    clouds = {i: cloud(i) for i in models}
    assert any(crowded) == (alpha > 1)
    result = oracle.run(fl.fedamp(sigma=sigma, alpha=alpha, lam=lam), **TUNED)
    assert_run(result, oracle, clouds, oracle.tuned(clouds))


def test_ifca():
    """Ghosh et al., Algorithm 1: a client trains the cluster with the lowest loss; a cluster averages its uploads."""
    federation, clusters = ragged(), 4
    federation = replace(federation, test=(*federation.test[1:], federation.test[0]))  # other labels than in training
    oracle = Oracle(federation=federation)
    w = [oracle.weights, *({k: v.double() for k, v in oracle.model.redraw(j).items()} for j in range(1, clusters))]
    cluster = dict.fromkeys(range(oracle.n_clients), 0)

    def choice(i):
        x, y = oracle.images(federation.train[i])
        with torch.no_grad():
            return int(np.argmin([F.cross_entropy(oracle.net(own).eval()(x), y).item() for own in w]))

    for t in oracle.rounds:
        cluster |= {i: choice(i) for i in oracle.cohorts[t]}
        uploads = {i: oracle.trained(w[cluster[i]], i, t) for i in oracle.cohorts[t]}
        for j in range(clusters):
            if members := [i for i in uploads if cluster[i] == j]:
                w[j] = mean([uploads[i] for i in members], oracle.n[members])
    result = oracle.run(fl.ifca(clusters=clusters), **TUNED)
    assert result.state.cluster.tolist() == result.trace["cluster"][-1].tolist() == list(cluster.values())
    assert_run(result, oracle, {i: w[j] for i, j in cluster.items()}, oracle.tuned({i: w[choice(i)] for i in cluster}))


class Branched(nn.Module):
    """A network whose layers are mixtures of B branches: sum_b alpha_b W_b, alpha = softmax(z) of the layer."""

    def __init__(self, net, branches, z):
        super().__init__()
        self.net, self.names, self.layers = net, list(branches), list(z)
        self.branches, self.z = (nn.ParameterList(t.clone() for t in own.values()) for own in (branches, z))

    def alpha(self, name):
        own = name.rpartition(".")[0]
        return self.z[self.layers.index(own) if own in self.layers else 0].softmax(0)

    def merged(self):
        both = zip(self.names, self.branches, strict=True)
        return {name: sum(a * W for a, W in zip(self.alpha(name), own, strict=True)) for name, own in both}

    def forward(self, x):
        return functional_call(self.net, self.merged(), (x,))


@pytest.mark.parametrize(("shared", "weighted", "gain"), [(0, 1, 0), (1, 1, 1), (1, 0, 0)])
def test_pfedmb(shared, weighted, gain):
    """Mori et al., Algorithm 1: alpha of each layer (eq. 3), then the branches (eq. 4), their average (eq. 5, 6)."""
    oracle, B, rate = Oracle(), 3, 0.7
    names = oracle.model.trainable
    draws = [oracle.weights, *({k: v.double() for k, v in oracle.model.redraw(j).items()} for j in range(1, B))]
    W = {name: torch.stack([own[name] for own in draws]) for name in names}
    if gain:  # of linear and convolution layers
        W = {name: t if name in oracle.model.batchnorm else B**0.5 * t for name, t in W.items()}
    layers = ["all layers"] if shared else list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    z = {i: {place: torch.zeros(B).double() for place in layers} for i in range(oracle.n_clients)}
    statistics = {i: oracle.weights for i in z}

    def local_update(i, t, **which):
        net = Branched(oracle.net(statistics[i]), W, z[i])
        oracle.train(net, i, t, parameters=net.z, rate=rate, name="alpha", **which)
        oracle.train(net, i, t, parameters=net.branches, **which)
        return net

    for t in oracle.rounds:
        nets = {i: local_update(i, t) for i in oracle.cohorts[t]}
        for place, name in enumerate(names):
            for b in range(B):
                uploads = [net.branches[place][b].detach().numpy() for net in nets.values()]
                alpha = [net.alpha(name)[b].item() if weighted else 1 for net in nets.values()]
                W[name][b] = torch.from_numpy(np.average(uploads, axis=0, weights=oracle.n[[*nets]] * alpha))
        for i, net in nets.items():
            z[i] = dict(zip(layers, (own.detach().clone() for own in net.z), strict=True))
            statistics[i] = weights_of(net.net)
    nets = {i: Branched(oracle.net(statistics[i]), W, z[i]) for i in z}
    models = {i: weights_of(net.net) | {k: t.detach() for k, t in net.merged().items()} for i, net in nets.items()}
    method = fl.pfedmb(branches=B, share_alpha=bool(shared), weighted=bool(weighted), alpha_lr=rate, gain=bool(gain))
    result = oracle.run(method, **TUNED)
    assert_run(result, oracle, models, {i: local_update(i, t, epochs=range(1), purpose="tune") for i in z})
    for place in layers:
        alpha = torch.stack([z[i][place].softmax(0) for i in z])
        assert result.trace[place].shape == (len(oracle.rounds), *alpha.shape)
        torch.testing.assert_close(result.trace[place][-1], alpha, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_pfedme(optimizer):
    """Dinh et al., Algorithm 1: K steps of the run's optimiser on a batch, then w_i -= eta lam (w_i - theta_i)."""
    adaptive = {"optimizer": "adam", "momentum": 0.0, "model": "lenet5_plain", "backend": "stacked"}
    oracle = Oracle(**adaptive if optimizer == "adam" else {})
    lam, rate, K, beta = 7.0, 0.02, 3, 0.4
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
    tuned = {i: local_update(i, t, epochs=range(1), purpose="tune")[0] for i in thetas}
    assert_run(result, oracle, thetas, tuned)


class Pair(nn.Module):
    def __init__(self, theta, s):
        super().__init__()
        self.theta, self.s = theta, s

    def forward(self, x):
        return self.theta(x) + self.s(x)


MIXED = ["small_lenet", "small_cnn", "small_vit"]


@pytest.mark.parametrize(
    ("supervisor", "similarity", "epochs"),
    [("small_cnn", True, 1), ("small_lenet", False, 0), ("mixed", True, 1), ("small_vit+small_lenet4", True, 3)],
)
def test_fedsimsup(supervisor, similarity, epochs):
    """Equations 3 to 9: s_i, then theta_i; participants keep theirs, all others are pulled towards similar uploads."""
    oracle, kinds = Oracle(local_epochs=3), MIXED if supervisor == "mixed" else supervisor.split("+")
    drawn = generator(oracle.seed, "fedsimsup", "supervisors").integers(len(kinds), size=oracle.n_clients)
    kind = {i: kinds[j] for i, j in enumerate(drawn)}
    nets, counts, m = {}, oracle.federation.train_counts, oracle.n
    for i in kind:  # one theta for all, s_i independent draws
        drawn = oracle.model.sibling(kind[i], SUPERVISORS[kind[i]])
        nets[i] = Pair(oracle.net(oracle.weights), copy.deepcopy(drawn.net).double().train())
        nets[i].s.load_state_dict(drawn.weights if i == 0 else drawn.redraw(i))

    for t, cohort in enumerate(oracle.cohorts):
        for i in cohort:
            theta = weights_of(nets[i].theta)
            oracle.train(nets[i], i, t, parameters=nets[i].s.parameters(), epochs=range(epochs))
            nets[i].theta.load_state_dict(theta, strict=False)  # BatchNorm does not move with the other network
            oracle.train(nets[i], i, t, parameters=nets[i].theta.parameters(), epochs=range(epochs, 3))
        uploads = {j: weights_of(nets[j].theta) for j in cohort}
        for i in set(nets) - set(cohort):
            cosines = [counts[i] @ counts[j] / np.linalg.norm(counts[i]) / np.linalg.norm(counts[j]) for j in cohort]
            s_ij = np.array(cosines) if similarity else np.ones(len(cohort))
            alpha = len(cohort) * m[i] / (m[cohort].sum() + len(cohort) * m[i])
            pulled = mean([weights_of(nets[i].theta), *uploads.values()], [alpha, *(1 - alpha) * s_ij / s_ij.sum()])
            nets[i].theta.load_state_dict(pulled, strict=False)

    result = oracle.run(fl.fedsimsup(supervisor, supervisor_epochs=epochs, similarity=similarity), **TUNED)
    assert_models(replace(result, models=result.state.theta), {i: weights_of(net.theta) for i, net in nets.items()})
    for members, stack in zip(result.state.members, result.state.s.stacks, strict=True):
        for row, i in enumerate(members.tolist()):
            torch.testing.assert_close({name: t[row] for name, t in stack.items()}, weights_of(nets[i].s))
    assert_tested(result, oracle, nets.get)
    for i, net in nets.items():
        oracle.train(net.train(), i, oracle.rounds[-1], epochs=range(1), purpose="tune")
    assert_tested(replace(result, when="after"), oracle, nets.get)


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
    assert state.prototypes.known.nonzero().flatten().tolist() == sorted(prototypes)
    for c, z in prototypes.items():
        torch.testing.assert_close(state.prototypes.z[c], z, rtol=1e-7, atol=1e-10)


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
    assert_prototypes(result.state, prototypes)
    models = {i: weights_of(net) for i, net in nets.items()}
    assert_run(result, oracle, models, oracle.tuned(models))


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
    oracle, lam, prototypes = Oracle(local_epochs=3, **setting), 0.8, {}
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
    models = {i: joined(i) for i in phi}
    assert_run(result, oracle, models, oracle.tuned(models))


class Map:
    """FedCS's map c = P'(z - z_g) at a linear layer, S and Phi from which P is made, and what the server does."""

    def __init__(self, d, seed, at="fc1", side="input", steps="normalised", beta=0.1, rank=None, **flags):
        self.at, self.side, self.steps, self.beta, self.rank = ("fc1", "fc2", "fc3").index(at), side, steps, beta, rank
        self.centred, self.shifted = flags.get("centred", True), flags.get("shifted", False)
        self.S, self.z_g = (np.eye(d) if steps == "paper" else None), None
        self.Phi = orthonormal(generator(seed, "fedcs", "rotation").standard_normal((d, d)))
        self.P = self.leading(self.Phi)

    def leading(self, P):
        return P if self.rank is None else np.hstack([P[:, : self.rank], 0 * P[:, self.rank :]])

    def layer(self, net):
        return [net.fc1[0], net.fc2[0], net.classifier][self.at]

    def placed(self, net):
        """The network with the map in it."""
        P, shift = torch.tensor(self.P), torch.tensor(self.z_g) if self.shifted and self.z_g is not None else 0
        if self.side == "input":
            self.layer(net).register_forward_pre_hook(lambda _, z: (z[0] - shift) @ P)
        else:
            self.layer(net).register_forward_hook(lambda _, __, z: (z - shift) @ P)
        return net

    def latents(self, net, x):
        with torch.no_grad():
            z = net.eval()[: self.at + 2](x)
            return (z if self.side == "input" else F.linear(z, self.layer(net).weight, self.layer(net).bias)).numpy()

    def passed(self, batches):
        """Algorithm 1: S and Phi of a client after its batches [b, d], and the mean z."""
        S, Phi, eye = self.S, self.Phi, np.eye(len(self.Phi))
        for z in batches:
            W = np.cov(z, rowvar=False, bias=True)
            if self.steps != "paper":
                W = 0.99 * W + 0.01 * np.trace(W) / len(W) * eye
            S = eye / np.trace(W) ** 0.5 if S is None else S
            rate = 0.001 if self.steps == "paper" else 0.3 / max(np.trace(W) ** 0.5, np.linalg.norm(S @ W))
            S = S + rate * (eye - S @ W @ S)
            S = (S + S.T) / 2
            if self.z_g is not None:
                u = S @ (z.mean(0) - self.z_g * self.centred)
                rate = {"paper": 0.001, "whitening": 0, "normalised": 0.1 / (u @ u)}[self.steps]
                Phi = Phi + rate * (np.outer(u, u) @ Phi - Phi @ np.triu(Phi.T @ np.outer(u, u) @ Phi))
        return S, Phi, np.concatenate(batches).mean(0)

    def move(self, uploads, n):
        """The server: means by n_i, Phi made orthonormal, z_g moved by beta, P = S Phi."""
        self.S, Phi, z = (np.average(own, axis=0, weights=n) for own in zip(*uploads, strict=True))
        self.Phi = orthonormal(Phi)
        self.z_g = z if self.z_g is None else (1 - self.beta) * self.z_g + self.beta * z
        self.P = self.leading(self.S @ self.Phi)


def orthonormal(A):
    """Q of A = QR with a positive diagonal of R, by Cholesky of A'A = R'R."""
    return A @ np.linalg.inv(np.linalg.cholesky(A.T @ A).T)


READINGS = {
    "fc1": (16, dict(at="fc1", every=1, beta=0.3)),
    "fc1, every other round": (16, dict(at="fc1", every=2, beta=0.3, shifted=True)),
    "fc1, not centred": (16, dict(at="fc1", every=1, beta=0.7, centred=False)),
    "fc2, lower rank": (120, dict(at="fc2", every=1, beta=0.3, rank=7)),
    "fc2, output": (84, dict(at="fc2", side="output", every=1, beta=0.3, shifted=True)),
    "fc2, paper": (120, dict(at="fc2", steps="paper", every=1, beta=0.3)),
    "fc3, whitening": (84, dict(at="fc3", steps="whitening", every=1, beta=0.3)),
    "fc3, output": (4, dict(at="fc3", side="output", every=1, beta=0.3, rank=3, shifted=True)),
}


@pytest.mark.parametrize(
    ("base", "reading"), [*(("fedavg", r) for r in READINGS), ("fedalt", "fc1"), ("fedalt", "fc3, output")]
)
def test_fedcs(base, reading):
    """Yan and Long, Algorithms 1 and 2, around FedAvg and FedAlt: local training with P fixed, then S and Phi."""
    oracle, (d, options) = Oracle(), READINGS[reading]
    ra = Map(d, oracle.seed, **options)
    w, n = oracle.weights, oracle.n
    own = {i: {k: w[k] for k in oracle.model.classifier if base == "fedalt"} for i in range(oracle.n_clients)}
    down, up = [], []
    for t, cohort in enumerate(oracle.cohorts):
        nets = {i: ra.placed(oracle.net(w | own[i])) for i in cohort}
        for i, net in nets.items():
            if base == "fedalt":
                oracle.train(net, i, t, parameters=oracle.classifier(net), name="personal")
                oracle.train(net, i, t, parameters=oracle.extractor(net))
            else:
                oracle.train(net, i, t)
            own[i] = {name: weights_of(net)[name] for name in own[i]}
        w = mean(map(weights_of, nets.values()), n[cohort])
        aligning = t % options["every"] == 0
        sent = [ra.S, ra.Phi, ra.z_g] if aligning else [ra.P, ra.z_g if ra.shifted else None]
        down.append(sum(array.size for array in sent if array is not None))
        up.append((2 * d**2 + d) * aligning)
        if aligning:
            batches = {i: [oracle.images(index)[0] for index in oracle.batches(i, t, epochs=[0])] for i in cohort}
            ra.move([ra.passed([ra.latents(nets[i], x) for x in batches[i]]) for i in cohort], n[cohort])
    method = fl.fedalt(warm_up=0) if base == "fedalt" else "fedavg"
    result = oracle.run(fl.fedcs(base=method, **options), **TUNED)
    for name, found in result.state.ra.items():
        np.testing.assert_allclose(found, getattr(ra, name), rtol=1e-7, atol=1e-9, err_msg=name)
    shared = {name: t for name, t in w.items() if name not in own[0]}
    torch.testing.assert_close(result.state.base.w, shared, rtol=1e-7, atol=1e-10)
    whole = sum(t.numel() for t in shared.values())
    for direction, floats in (("down", down), ("up", up)):
        assert result.rounds[f"bytes_{direction}"].tolist() == [3 * 8 * (whole + more) for more in floats]
    nets = {i: ra.placed(oracle.net(w | own[i])) for i in own}
    assert_tested(result, oracle, nets.get)
    for i, net in nets.items():  # FedAlt tunes what is personal
        parameters = oracle.classifier(net) if base == "fedalt" else None
        oracle.train(net.train(), i, t, parameters=parameters, epochs=range(1), purpose="tune")
    assert_tested(replace(result, when="after"), oracle, nets.get)
