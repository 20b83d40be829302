"""SCAFFOLD (Karimireddy et al., ICML 2020, Algorithm 1, option II): FedAvg with control variates against drift."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, one_for_all
from fedlib.checks import Positive
from fedlib.stack import Params, copies, select, tree_map, uniform_mean
from fedlib.training import cross_entropy, train


class State(NamedTuple):
    w: Params  # x [...]
    c: Params  # control variate of the server [...]
    c_i: Params  # of every client [n_clients, ...]


class Counted(NamedTuple):
    """The weights that a client trains, and its number of steps."""

    y: Params
    steps: Tensor


def total_weight(steps: Tensor, momentum: float) -> Tensor:
    """Sum of the weights of the gradients of K = `steps` [k] steps of SGD, in units of the step size: [k].

    With momentum the gradient of step s has the weight (1 - momentum^(K - s + 1)) / (1 - momentum); without, it is 1.

    Example:
        >>> from fedlib.methods.scaffold import total_weight
        >>> total_weight(torch.tensor([1.0, 2.0]), 0.0), total_weight(torch.tensor([1.0, 2.0]), 0.5)
        (tensor([1., 2.]), tensor([1.0000, 2.5000]))
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


@algorithm(label="SCAFFOLD", colour="blue", marker="X", line="-.")
def scaffold(server_lr: Positive = 1.0) -> Algorithm:
    """FedAvg with control variates, which correct each gradient for the drift of its client.

    Client i has a control variate c_i, its mean gradient of the last round in which it took part, and the server has
    c, the mean of all c_i; they start at 0. A client starts from the global model x and minimises cross-entropy +
    <c - c_i, y>, that is, it adds c - c_i to each gradient, which gives y_i after K steps. Then
    c_i+ = c_i - c + (x - y_i) / (K lr) (option II).

    The server moves by `server_lr` towards the mean of all y_i and adds |S|/N times the mean of all c_i+ - c_i to c; S
    is the set of clients of the round, N the number of those that may take part. All means are unweighted. BatchNorm's
    running statistics have no gradient: they are averaged and have no control variate. Every client is evaluated with
    the global model.

    With momentum a gradient also counts in later steps; K is then the sum of these weights (`total_weight`), so that
    c_i remains a mean gradient. The paper has no momentum.

    With a single client c_i = c, and with `server_lr=1` this is FedAvg; so is the first round, with equal client
    weights.

    Args:
        server_lr: step size of the server, above 0; 1 in the paper's experiments.

    Raises:
        ValueError: in the first round, if the run's optimizer is not SGD.

    Source:
        Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> state = fl.run(fl.scaffold(), federation, rounds=2, progress=False).state
        >>> state.c["fc1.0.weight"].allclose(state.c_i["fc1.0.weight"].mean(0), atol=1e-6)
        True
    """

    def loss(counted, batch, correction):  # ONE client; correction: c - c_i
        counted.steps.add_(1)  # in place, like BatchNorm statistics, without the optimiser
        return cross_entropy(counted.y, batch) + sum((counted.y[name] * t).sum() for name, t in correction.items())

    def init(model, federation):
        zero = tree_map(torch.zeros_like, select(model.weights, model.trainable))
        return State(model.weights, zero, copies(zero, federation.n_clients))

    def local_update(x, c, c_i, cohort):  # [k, ...] -> y_i, c_i+
        if cohort.local.optimizer != "sgd":
            raise ValueError(f"optimizer={cohort.local.optimizer!r} is not allowed; scaffold needs 'sgd'.")
        start = Counted(x, torch.zeros_like(cohort.n_samples, dtype=cohort.images.scale.dtype))
        y, steps = train(cohort, loss, start, tree_map(torch.sub, c, c_i), written=["steps"])
        moved = cohort.local.lr * total_weight(steps, cohort.local.momentum)  # K lr: [k]
        mean = {name: torch.vmap(torch.div)(x[name] - y[name], moved) for name in c}  # of the corrected gradients
        return y, {name: c_i[name] - c[name] + t for name, t in mean.items()}

    def round(state, cohort):
        n = cohort.federation.n_clients - cohort.federation.unseen
        x, c = cohort.broadcast((state.w, state.c))  # [k, ...]
        c_i = cohort.mine(state.c_i)
        y, new = local_update(x, c, c_i, cohort)
        y, change = cohort.receive((y, tree_map(torch.sub, new, c_i)))
        mean = uniform_mean(y)
        w = {name: torch.lerp(state.w[name], mean[name], server_lr) for name in state.c}
        c = tree_map(lambda c, t: c + cohort.size / n * t, state.c, uniform_mean(change))
        return State(mean | w, c, cohort.keep(state.c_i, new))

    return Algorithm("scaffold", init, round, models=one_for_all)
