"""FedDyn (Acar et al., ICLR 2021, Algorithm 1; baseline of pFedSim, section 5): FedAvg with dynamic regularisation."""

from typing import Annotated, NamedTuple

import torch

from fedlib.algorithm import Algorithm, algorithm, one_for_all
from fedlib.checks import above, at_least
from fedlib.stack import Params, copies, put, repeat, select, sq_distance, take, uniform_mean
from fedlib.training.losses import cross_entropy


class State(NamedTuple):
    w: Params  # theta [...]
    drift: Params  # -g_i / alpha [n_clients, ...]: the sum of client i's updates theta_i - theta^t
    mean_drift: Params  # -h / alpha [...]: its mean over all clients that may take part


@algorithm
def feddyn(alpha: Annotated[float, at_least(0)] = 0.01, clip: Annotated[float, above(0)] | None = 10.0) -> Algorithm:
    """Local loss: cross-entropy - <g_i, w> + alpha/2 ||w - theta^t||^2; the gradient's norm is at most `clip`.

    Afterwards g_i -= alpha (theta_i - theta^t), h -= alpha/n sum_i (theta_i - theta^t), and the server takes
    theta^(t+1) = mean_i theta_i - h / alpha: a uniform mean, over the cohort; n counts the clients that may take part.
    g_i and h are kept divided by -alpha, so `alpha=0` is the limit of these equations: local training as in FedAvg, and
    a server that adds the sum of all updates so far, over n. (It is not FedAvg: with everybody in the cohort the first
    step is twice as long.)
    BatchNorm is aggregated; its statistics, which have no gradient, only by the uniform mean. `clip=None` does not
    clip. Evaluated: the global model theta.
    """

    def loss(w, batch, theta, drift):  # ONE client; -<g_i, w> = alpha <drift, w>
        pull = sum((w[name] * t).sum() for name, t in drift.items())
        return cross_entropy(w, batch) + alpha * pull + alpha / 2 * sq_distance(w, theta)

    def init(model, federation):
        zero = {name: torch.zeros_like(model.weights[name]) for name in model.trainable}
        return State(model.weights, copies(zero, federation.n_clients), zero)

    def round(state, cohort):
        theta, drift = select(state.w, state.drift), take(state.drift, cohort.clients)
        w_i = cohort.train(loss, cohort.broadcast(state.w), repeat(theta, cohort.size), drift, clip=clip)  # [k, ...]
        w_i = cohort.receive(w_i)
        update = {name: w_i[name] - t for name, t in theta.items()}  # [k, ...]
        drift = {name: drift[name] + t for name, t in update.items()}
        n = cohort.federation.n_clients - cohort.federation.unseen
        mean_drift = {name: t + update[name].sum(0) / n for name, t in state.mean_drift.items()}
        mean = uniform_mean(w_i)
        w = mean | {name: mean[name] + t for name, t in mean_drift.items()}
        return State(w, put(state.drift, cohort.clients, drift), mean_drift)

    return Algorithm("feddyn", init, round, models=one_for_all)
