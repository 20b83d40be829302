"""Whole runs of Local-Only, FedMD, FedGH, FedKEMF, FCCL, pFedBayes and pFedHR, against their equations in PyTorch."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from oracle import Mixture, Oracle, assert_tested, drawing, mean, weights_of
from oracle_reassembly import nt_xent, reassemble, view
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.func import functional_call

import fedlib as fl
from fedlib.methods.pfedhr import public
from fedlib.methods.pfedhr.record import replay
from fedlib.models import MODELS
from fedlib.streams import generator

MIXED = "lenet5+lenet5_plain"
PUBLIC = np.arange(30)


def logits(net, x):
    """In evaluation mode, and held fixed."""
    was, z = net.training, net.eval()(x).detach()
    net.train(was)
    return z


def kl(z, own):
    """Mean over images of KL(softmax z || softmax own)."""
    p = z.softmax(1)
    return (p * (p.log() - own.softmax(1).log())).sum(1).mean()


@pytest.mark.parametrize("optimizer", [dict(), dict(optimizer="adam", momentum=0.0, lr=0.003)])
def test_local_only(optimizer):
    """A client trains in the rounds in which it takes part, and nobody hears of it; everybody tunes its own model."""
    oracle = Mixture("lenet5+m1_thin+lenet5_plain", tune_epochs=1, tune_every=3, **optimizer)
    nets = {i: oracle.own(i) for i in range(oracle.n_clients)}
    for t in oracle.rounds:
        for phase, part in enumerate(oracle.alike(t)):
            with drawing(oracle.seed, "train", t, "dropout", phase):
                for i in part:
                    oracle.train(nets[i], i, t)
    result = oracle.run(fl.local_only())
    oracle.assert_run(result, nets)
    for phase, model in enumerate(oracle.architectures):
        with drawing(oracle.seed, "tune", t, "dropout", phase):
            for i in (i for i in nets if oracle.of(i) is model):
                oracle.train(nets[i].train(), i, t, epochs=range(1), purpose="tune")
    assert_tested(replace(result, when="after"), oracle, lambda i: nets[i])


@pytest.mark.parametrize("shown", [17, 50])
def test_fedmd(shown):
    """Li and Wang, Algorithm 1: warm up; then send scores, digest their mean, revisit."""
    oracle, warm_up, digest_epochs = Mixture(MIXED), 1, 3
    nets, met, x = {i: oracle.own(i) for i in range(oracle.n_clients)}, set(), oracle.images(PUBLIC, public=True)[0]
    for t in oracle.rounds:
        for i in set(oracle.cohorts[t]) - met:
            epochs = range(warm_up)
            oracle.train(nets[i], i, t, public=True, samples=PUBLIC, name="public warm up", epochs=epochs)
            oracle.train(nets[i], i, t, name="warm up", epochs=epochs)
        met |= set(oracle.cohorts[t])
        chosen = np.sort(generator(oracle.seed, "server", t, "shown").permutation(PUBLIC)[:shown])
        scores = sum(logits(nets[i], x) for i in oracle.cohorts[t]) / len(oracle.cohorts[t])

        def distance(net, x, y, index, scores=scores):
            return (net(x) - scores[index]).abs().mean()

        for i in oracle.cohorts[t]:
            digest = dict(public=True, samples=chosen, name="digest", epochs=range(digest_epochs))
            oracle.train(nets[i], i, t, distance, **digest)
            oracle.train(nets[i], i, t)
    result = oracle.run(fl.fedmd(warm_up, digest_epochs, shown))
    oracle.assert_run(result, nets)
    assert set(result.rounds["bytes_up"]) == set(result.rounds["bytes_down"]) == {3 * len(chosen) * 4 * 8}


@pytest.mark.parametrize("public", [True, False])
def test_fedgh(public):
    """Yi et al., Algorithm 1: from the global header on, then means by class, on which the server trains the header."""
    oracle, width, steps, lr = Mixture(MIXED), 9, 7, 0.3
    nets = {}
    for i in range(oracle.n_clients):
        nets[i], model = oracle.own(i), oracle.of(i)
        with drawing(oracle.seed, "weights", *model.stream[1:], "adapter", 0):
            ending = nn.Sequential(nn.Linear(84, width), nn.ReLU(), nn.Linear(width, 4))
        nets[i].classifier = ending.double()
    first = nets[min(i for i in nets if oracle.kind[i] == 0)].classifier[2]
    header = {name: t.detach().clone() for name, t in first.named_parameters()}
    for t in oracle.rounds:
        z, y = [], []
        for i in oracle.cohorts[t]:
            nets[i].classifier[2].load_state_dict(header)
            oracle.train(nets[i], i, t)
            extractor = nn.Sequential(*list(nets[i])[:-1], *nets[i].classifier[:2]).eval()
            for x, labels in [oracle.images(oracle.federation.train[i])] + [oracle.images(PUBLIC, True)] * public:
                for c in labels.unique():
                    z.append(extractor(x)[labels == c].mean(0).detach())
                    y.append(c)
            nets[i].train()
        for _ in range(steps):
            weight, bias = (own.requires_grad_() for own in header.values())
            error = F.cross_entropy(torch.stack(z) @ weight.T + bias, torch.stack(y))
            slopes = torch.autograd.grad(error, [weight, bias])
            header = {k: (own - lr * s).detach() for (k, own), s in zip(header.items(), slopes, strict=True)}
    result = oracle.run(fl.fedgh(width, steps, lr, public))
    oracle.assert_run(result, nets)
    torch.testing.assert_close(list(result.state.header), [header["weight"], header["bias"]])


@pytest.mark.parametrize("knowledge", ["lenet5", "lenet5_plain"])
def test_fedkemf(knowledge):
    """Yu et al.: deep mutual learning on the clients, then the mean learns from the ensemble of the copies."""
    oracle, epochs, lr, size = Mixture(MIXED), 4, 0.004, 7
    nets, x = {i: oracle.own(i) for i in range(oracle.n_clients)}, oracle.images(PUBLIC, public=True)[0]
    known = oracle.model.sibling(knowledge, MODELS[knowledge])
    w = known.weights

    def network(w):
        net = copy.deepcopy(known.net).double().train()
        net.load_state_dict(w, strict=False)
        return net

    def mutual(pair, x, y, _):
        own, theirs = (net(x) for net in pair)
        errors = F.cross_entropy(own, y) + F.cross_entropy(theirs, y)
        return errors + kl(theirs.detach(), own) + kl(own.detach(), theirs)

    for t in oracle.rounds:
        copies = [network(w) for _ in oracle.cohorts[t]]
        for i, theirs in zip(oracle.cohorts[t], copies, strict=True):
            oracle.train(nn.ModuleList([nets[i], theirs]), i, t, mutual)
        ensemble = sum(logits(net, x).softmax(1) for net in copies) / len(copies)
        net = network(mean(map(weights_of, copies), oracle.n[oracle.cohorts[t]]))
        adam = torch.optim.Adam(net.parameters(), lr)
        for index in served(oracle, t, epochs, size):
            p = ensemble[index]
            adam.zero_grad()
            (p * (p.log() - net(x[index]).softmax(1).log())).sum(1).mean().backward()
            adam.step()
        w = weights_of(net)
    result = oracle.run(fl.fedkemf(knowledge, epochs, lr, size))
    oracle.assert_run(result, nets)
    torch.testing.assert_close(result.state.w, w, rtol=1e-7, atol=1e-10)


def served(oracle, t, epochs, size):
    """The server's mini-batches in round t: all public images in a fresh order each epoch, the last one filled up."""
    for epoch in range(epochs):
        order = generator(oracle.seed, "server", t, "batches", epoch).permutation(PUBLIC)
        yield from np.concatenate([order, order[: -len(order) % size]]).reshape(-1, size)


@pytest.mark.parametrize("size", [7, 50])
def test_fccl(size):
    """Huang et al., Algorithm 1: logits correlate with their mean; then private data, and both former models."""
    oracle, warm_up, weight, public_epochs = Mixture(MIXED, lr=0.01), 1, 0.3, 3
    nets, first, x = {i: oracle.own(i) for i in range(oracle.n_clients)}, {}, oracle.images(PUBLIC, public=True)[0]

    def standardised(z):
        return (z - z.mean(0)) / (z.std(0) + 1e-6)

    def private(net, x, y, _):
        z = net(x)
        return F.cross_entropy(z, y) + kl(logits(inter, x), z) + kl(logits(first[i], x), z)

    for t in oracle.rounds:
        for i in set(oracle.cohorts[t]) - set(first):
            oracle.train(nets[i], i, t, name="warm up", epochs=range(warm_up))
            first[i] = copy.deepcopy(nets[i])
        scores = sum(logits(nets[i], x) for i in oracle.cohorts[t]) / len(oracle.cohorts[t])

        def collaborative(net, x, y, index, scores=scores):
            m = standardised(net(x)).T @ standardised(scores[index]) / len(index)
            others = (1 + m[~torch.eye(4, dtype=bool)]) ** 2
            return ((1 - m.diagonal()) ** 2).sum() + weight * others.sum()

        for i in oracle.cohorts[t]:
            inter = copy.deepcopy(nets[i])
            everything = dict(public=True, samples=PUBLIC, name="public", epochs=range(public_epochs))
            oracle.train(nets[i], i, t, collaborative, size=min(size, 30), **everything)
            oracle.train(nets[i], i, t, private)
    result = oracle.run(fl.fccl(warm_up, weight, public_epochs, size))
    oracle.assert_run(result, nets)
    assert set(result.rounds["bytes_up"]) == set(result.rounds["bytes_down"]) == {3 * 30 * 4 * 8}


class Bayes(nn.Module):
    """A network with weights N(mu, softplus(rho)^2), but for BatchNorm: the personal q, and the client's copy of w."""

    def __init__(self, net, rho, names):
        super().__init__()
        self.net, self.shapes = net, {name: t.shape for name, t in net.named_parameters() if name in names}
        mu = torch.cat([t.detach().flatten() for name, t in net.named_parameters() if name in names])
        self.q = nn.ParameterList([mu, torch.full_like(mu, rho)])
        self.w = nn.ParameterList([mu.clone(), torch.full_like(mu, rho)])

    def forward(self, x, noise=0.0):
        sample = self.q[0] + F.softplus(self.q[1]) * noise
        parts = sample.split([shape.numel() for shape in self.shapes.values()])
        named = {name: t.view(shape) for (name, shape), t in zip(self.shapes.items(), parts, strict=True)}
        return functional_call(self.net, named, (x,))

    def divergence(self):
        """KL(q || w), once for q alone and once for w alone."""
        q, w = (Normal(mu, F.softplus(rho)) for mu, rho in (self.q, self.w))
        fixed_q, fixed_w = (Normal(own.mean.detach(), own.stddev.detach()) for own in (q, w))
        return kl_divergence(q, fixed_w).sum() + kl_divergence(fixed_q, w).sum()


def normal(seed, n):
    """Box-Muller on splitmix64, in 64-bit arithmetic."""

    def mixed(z):
        z = z * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return z ^ z >> np.uint64(31)

    bits = mixed(mixed(np.array([seed], np.uint64)) + np.arange(n, dtype=np.uint64))
    u, v = ((bits >> np.uint64(32)) + 0.5) / 2**32, (bits & np.uint64(2**32 - 1)) / 2**32
    return torch.from_numpy(np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v))


def test_pfedbayes():
    """Zhang et al., Algorithm 1, both steps at once; fine-tuning moves copies of the q_i."""
    oracle, zeta, rho, noise = Oracle(local_epochs=3, tune_epochs=2), 0.3, -1.4, 0.6
    norms = {name for name in oracle.weights if name.startswith(("conv1.1.", "conv2.1."))}
    nets = [Bayes(oracle.net(oracle.weights), rho, set(oracle.weights) - norms) for _ in range(oracle.n_clients)]
    w = [t.detach().clone() for t in nets[0].w]

    def train(net, i, t, **which):
        seeds = iter(generator(oracle.seed, which.get("purpose", "train"), t, "draws", i, 0).integers(1 << 62, size=99))

        def loss(net, x, y, _):
            z = net(x, noise * normal(next(seeds), len(w[0])))
            return F.cross_entropy(z, y) + zeta / oracle.n[i] * net.divergence()

        net.w = nn.ParameterList(t.clone() for t in w)
        oracle.train(net, i, t, loss, **which)

    for t in oracle.rounds:
        for i in oracle.cohorts[t]:
            train(nets[i], i, t)
        w = [torch.stack(own).mean(0).detach() for own in zip(*(nets[i].w for i in oracle.cohorts[t]), strict=True)]
    result, close = oracle.run(fl.pfedbayes(zeta, rho, noise)), dict(rtol=1e-7, atol=1e-10)
    assert_tested(result, oracle, lambda i: nets[i])
    for entries, t in zip(result.state.w, w, strict=True):
        found = [entries[name].flatten() for name in nets[0].shapes]
        torch.testing.assert_close(torch.cat(found), t, **close)
    for i, net in enumerate(nets):
        found = [result.models[name][i].flatten() for name in net.shapes]
        torch.testing.assert_close(torch.cat(found), net.q[0].detach(), **close)
        for name in norms:
            torch.testing.assert_close(result.models[name][i], net.net.state_dict()[name], **close)
        tuned, (x, y) = copy.deepcopy(net).train(), oracle.images(oracle.federation.test[i])
        train(tuned, i, 2, purpose="tune", epochs=range(2))
        after = result.accuracy.query(f"round == 3 and client == {i} and when == 'after'")
        assert after["loss"].item() == pytest.approx(F.cross_entropy(tuned.eval()(x), y).item())


def test_views():
    x = np.random.default_rng(0).random((40, 3, 9, 12))
    found = public.view(torch.from_numpy(x), np.random.default_rng(1))
    np.testing.assert_allclose(found.numpy(), view(x, np.random.default_rng(1)), atol=1e-12)


def distillation(teacher, lam):
    """Equation (6)."""

    def loss(net, x, y, _):
        z = net(x)
        return F.cross_entropy(z, y) + lam * kl(logits(teacher, x), z)

    return loss


READINGS = [{}, {"labelled": False}, {"keep_teacher": True, "stitch_relu": False}, {"match": "random"}]
READINGS += [{"average": True, "end_in_head": True, "groups": 6}]


def tune(oracle, net, t, own):
    """Adam on the labels of the public images, or on two views of each."""
    adam, rng = torch.optim.Adam(net.parameters(), own.server_lr), generator(oracle.seed, "server", t, "views")
    for index in served(oracle, t, own.server_epochs, own.server_batch):
        x, y = oracle.images(index, public=True)
        if own.labelled:
            error = F.cross_entropy(net(x), y)
        else:
            pixels = oracle.federation.public.x[index] / 255
            views = oracle.normalised(np.concatenate([view(pixels, rng), view(pixels, rng)]))
            error = nt_xent(net(views), own.temperature)
        adam.zero_grad()
        error.backward()
        adam.step()


@pytest.mark.parametrize("reading", READINGS)
def test_pfedhr(reading):
    """Wang et al.: distil from the last teacher; cut, group, search and stitch; tune, and match the next teacher."""
    numbers = dict(groups=3, lam=0.7, server_epochs=2, stitch_depth=2, most=3, probes=17, temperature=0.3)
    method = fl.pfedhr(**numbers | dict(server_lr=0.004, server_batch=7) | reading)
    oracle, own = Mixture("lenet5+m4_thin+m1_thin", seed=8, local_epochs=3), SimpleNamespace(**method.hyper)
    nets, teachers = {i: oracle.own(i) for i in range(oracle.n_clients)}, {}  # of client i: network, round
    result, x = oracle.run(method), oracle.images(PUBLIC, public=True)[0]
    probes = x[generator(oracle.seed, "pfedhr", "probes").permutation(PUBLIC)[: own.probes]]
    for t in oracle.rounds:
        cohort, server = oracle.cohorts[t], (oracle.seed, "server", t)
        told = {i: net for i, (net, since) in teachers.items() if own.keep_teacher or since == t - 1}
        for phase, part in enumerate(oracle.alike(t)):
            with drawing(oracle.seed, "train", t, "dropout", phase):
                for i in part:
                    oracle.train(nets[i], i, t, distillation(told[i], own.lam) if i in told else None)

        pool = [copy.deepcopy(nets[i]) for i in cohort]
        if own.average:
            parts = [(part, [weights_of(nets[i]) for i in part]) for part in oracle.alike(t)]
            pool = [oracle.own(part[0], mean(models, oracle.n[part])) for part, models in parts]
        made = reassemble(pool, probes, own, oracle.seed, "weights", "server", t, "candidate")
        copies = [copy.deepcopy(nets[i]) for i in cohort]
        for number, net in enumerate([*copies, *made.candidates]):
            with drawing(*server, number, "dropout"):
                tune(oracle, net.train(), t, own)
        answers = [logits(net, x) for net in made.candidates]
        similarity = torch.tensor([[F.cosine_similarity(logits(a, x), z).mean() for z in answers] for a in copies])
        match = similarity.argmax(1).tolist()
        if own.match == "random":
            match = generator(*server, "match").integers(len(answers), size=len(cohort)).tolist()
        teachers |= {i: (made.candidates[m], t) for i, m in zip(cohort, match, strict=True)}

        seen = replay(result.state.log, t)
        assert (seen.found, seen.candidates, seen.match) == (made.found, made.chains, match)
        assert len(set(seen.group.values())) == made.groups
        for i, m, share in zip(cohort, match, seen.right, strict=True):
            own_x, own_y = oracle.images(oracle.federation.train[i])
            assert share == pytest.approx((logits(made.candidates[m], own_x).argmax(1) == own_y).double().mean().item())
        torch.testing.assert_close(result.state.log["similarity"][t, :, : len(answers)], similarity)
        sent = [p.numel() for i in cohort if i in told for p in weights_of(told[i]).values()]
        assert result.rounds["bytes_down"][t] == 8 * sum(sent)  # what is taught in this round is sent in this round
        assert result.rounds["bytes_up"][t] == 8 * sum(p.numel() for i in cohort for p in weights_of(nets[i]).values())
    oracle.assert_run(result, nets)
