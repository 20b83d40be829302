"""Whole runs of the methods that share a model or a part of it, against their equations in plain PyTorch."""

import torch.nn.functional as F
from oracle import Oracle, assert_models, assert_tested, mean, weights_of

import fedlib as fl


def test_fedavg():
    """McMahan et al., Algorithm 1: w = sum_i n_i / n w_i."""
    oracle = Oracle()
    w = oracle.weights
    for t in oracle.rounds:
        nets = [oracle.net(w) for _ in oracle.cohorts[t]]
        for i, net in zip(oracle.cohorts[t], nets, strict=True):
            oracle.train(net, i, t)
        w = mean(map(weights_of, nets), oracle.n[oracle.cohorts[t]])
    result = oracle.run(fl.fedavg())
    assert_models(result, w)
    assert_tested(result, oracle, lambda i: oracle.net(w))


def test_fedprox():
    """Li et al., Algorithm 2: local loss f_i(w) + mu / 2 ||w - w^t||^2."""
    oracle, mu = Oracle(), 0.37
    w = oracle.weights
    for t in oracle.rounds:

        def loss(net, x, y, _, w=w):
            far = sum(((p - w[name]) ** 2).sum() for name, p in net.named_parameters())
            return F.cross_entropy(net(x), y) + mu / 2 * far

        nets = [oracle.net(w) for _ in oracle.cohorts[t]]
        for i, net in zip(oracle.cohorts[t], nets, strict=True):
            oracle.train(net, i, t, loss)
        w = mean(map(weights_of, nets), oracle.n[oracle.cohorts[t]])
    assert_models(oracle.run(fl.fedprox(mu=mu)), w)


def test_fedrep():
    """Collins et al., Algorithm 1: the head's epochs first, then those of the body; the body is averaged."""
    oracle, body_epochs = Oracle(local_epochs=3), 2
    body = oracle.weights
    heads = {i: oracle.weights for i in range(oracle.n_clients)}
    for t in oracle.rounds:
        nets = [oracle.net(body | {k: v for k, v in heads[i].items() if "classifier" in k}) for i in oracle.cohorts[t]]
        for i, net in zip(oracle.cohorts[t], nets, strict=True):
            oracle.train(net, i, t, parameters=oracle.classifier(net), epochs=range(1))
            oracle.train(net, i, t, parameters=oracle.extractor(net), epochs=range(1, 1 + body_epochs))
            heads[i] = weights_of(net)
        body = mean(map(weights_of, nets), oracle.n[oracle.cohorts[t]])
    models = {i: body | {k: v for k, v in heads[i].items() if "classifier" in k} for i in heads}
    result = oracle.run(fl.fedrep(body_epochs=body_epochs))
    assert_models(result, models)
    assert_tested(result, oracle, lambda i: oracle.net(models[i]))
