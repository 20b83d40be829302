"""FedDyn (Acar et al., ICLR 2021, Algorithm 1; baseline of pFedSim, section 5): FedAvg with dynamic regularisation."""

from typing import NamedTuple

import torch

from fedlib.algorithm import Algorithm, algorithm, one_for_all
from fedlib.checks import NonNegative, Positive
from fedlib.stack import Params, copies, repeat, select, sq_distance, tree_map, uniform_mean
from fedlib.training import cross_entropy, train


class State(NamedTuple):
    w: Params  # theta [...]
    drift: Params  # -g_i / alpha [n_clients, ...]: the sum of client i's updates theta_i - theta^t
    mean_drift: Params  # -h / alpha [...]: mean of drift over all clients that may take part


@algorithm(label="FedDyn", colour="blue", marker="D", line="--")
def feddyn(alpha: NonNegative = 0.01, clip: Positive | None = 10.0) -> Algorithm:
    """FedAvg with a dynamic regulariser, which aligns the local optima with the global optimum.

    In round t a client starts from the global model theta^t and minimises cross-entropy - <g_i, w> + alpha/2
    ||w - theta^t||^2, which gives theta_i. Then it updates its linear term: g_i -= alpha (theta_i - theta^t).

    The server keeps h, with h -= alpha/n sum_i (theta_i - theta^t) over the clients of the round, where n counts all
    clients that may take part. The new global model is mean_i theta_i - h / alpha, with the unweighted mean. BatchNorm
    is averaged; its running statistics have no gradient, so the mean is their only update. Every client is evaluated
    with the global model.

    g_i and h are stored divided by -alpha, so `alpha=0` is the limit of these equations: local training as in FedAvg
    (with `clip=None`), and a server that adds the sum of all updates so far, divided by n. This is not FedAvg: with all
    clients in the round the first step is twice as long. The code behind pFedSim's tables computes this limit: its
    linear term has no gradient, and its penalty next to none.

    Args:
        alpha: strength of both terms of the regulariser, at least 0; pFedSim has 0.01.
        clip: maximum norm of a client's gradient, above 0; 10 in the code of FedDyn's authors. None: no limit.

    Source:
        Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021; in pFedSim a baseline
        (section 5.1).

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> state = fl.run(fl.feddyn(), federation, rounds=1, progress=False).state
        >>> mean = state.drift["fc1.0.weight"].mean(0)  # of all g_i; h is this mean
        >>> mean.allclose(state.mean_drift["fc1.0.weight"], atol=1e-6)
        True
    """

    def loss(w, batch, theta, drift):  # ONE client; -<g_i, w> = alpha <drift, w>
        pull = sum((w[name] * t).sum() for name, t in drift.items())
        return cross_entropy(w, batch) + alpha * pull + alpha / 2 * sq_distance(w, theta)

    def init(model, federation):
        zero = tree_map(torch.zeros_like, select(model.weights, model.trainable))
        return State(model.weights, copies(zero, federation.n_clients), zero)

    def round(state, cohort):
        n = cohort.federation.n_clients - cohort.federation.unseen
        theta, drift = select(state.w, state.mean_drift), cohort.mine(state.drift)
        w_i = train(cohort, loss, cohort.broadcast(state.w), repeat(theta, cohort.size), drift, clip=clip)
        w_i = cohort.receive(w_i)  # [k, ...]
        update = tree_map(torch.sub, select(w_i, theta), theta)
        drift = cohort.keep(state.drift, tree_map(torch.add, drift, update))  # all g_i
        mean_drift = tree_map(lambda h, u: h + u.sum(0) / n, state.mean_drift, update)  # h
        mean = uniform_mean(w_i)
        return State(mean | tree_map(torch.add, select(mean, theta), mean_drift), drift, mean_drift)

    return Algorithm("feddyn", init, round, models=one_for_all)
