"""APFL (Deng et al., 2020, Algorithm 1): every client uses a mixture of a personal and the global model."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import Fraction
from fedlib.stack import Params, copies, select, tree_map, uniform_mean
from fedlib.training import cross_entropy, train


class State(NamedTuple):
    w: Params  # global: [...]
    v: Params  # personal: [n_clients, ...]
    alpha: Tensor  # [n_clients, 1]: the weight of v_i in the mixture


class Client(NamedTuple):
    """Entries that a client trains: personal weights, a copy of the global model, and the mixing weight alpha."""

    v: Params
    w: Params
    alpha: Tensor


def mixture(v: Params, w: Params, alpha: Tensor) -> Params:
    """Mix a personal and a global model: alpha v + (1 - alpha) w, for the entries of `v`."""
    return {name: alpha * t + (1 - alpha) * w[name] for name, t in v.items()}


@algorithm(label="APFL", colour="yellow", marker="s", line="-.")
def apfl(alpha: Fraction = 0.5, adaptive: bool = True) -> Algorithm:
    """Personal models, trained and evaluated in a mixture with the global model.

    On each batch a client updates w_i, its copy of the global model, by a gradient step on cross-entropy, and its
    personal v_i by one on the cross-entropy of the mixture alpha_i v_i + (1 - alpha_i) w_i, in which w_i is a constant.
    With `adaptive` the client first updates alpha_i by one step on the cross-entropy of the mixture, on the first batch
    of the round, and clips it to [0, 1]. The server sets w to the unweighted mean of all w_i; v_i and alpha_i stay with
    the client.

    BatchNorm's affine parameters are mixed like all weights. Running statistics of w_i are updated by passes of w_i,
    those of v_i by passes of the mixture. A client is evaluated with alpha_i v_i + (1 - alpha_i) w, running statistics
    included; a client that never took part has the initial v_i and alpha_i.

    With `adaptive=False`, `alpha=1` is Local-Only, and `alpha=0` is FedAvg with equal client weights.

    Args:
        alpha: weight of the personal model, from 0 to 1; with `adaptive` its initial value. The paper's fixed values
            are 0.25, 0.5 and 0.75.
        adaptive: whether every client adapts its alpha_i once per round (in the authors' code after the first step,
            with a further gradient of 0.02 alpha_i; that code also mixes outputs instead of weights).

    Source:
        Deng et al., "Adaptive Personalized Federated Learning", arXiv:2003.13461, 2020, Algorithm 1.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> personal = fl.run(fl.apfl(alpha=1, adaptive=False), federation, rounds=1, progress=False)
        >>> personal.score() == fl.run(fl.local_only(), federation, rounds=1, progress=False).score()
        True
    """

    def mixed_loss(client, batch):  # ONE client
        free = select(client.v, batch.model.trainable)
        return cross_entropy(client.v | mixture(free, client.w, client.alpha), batch)  # moves the statistics of v_i

    def loss(client, batch):  # ONE client
        fixed = tree_map(torch.detach, client.w)
        return cross_entropy(client.w, batch) + mixed_loss(client._replace(w=fixed), batch)

    def init(model, federation):
        n = federation.n_clients
        return State(model.weights, copies(model.weights, n), model.zeros(n, 1) + alpha)

    def round(state, cohort):
        clients = Client(cohort.mine(state.v), cohort.broadcast(state.w), cohort.mine(state.alpha))  # [k, ...]
        if adaptive:
            stepped = train(cohort, mixed_loss, clients, epochs=[0], steps=1, trainable=["alpha"])
            clients = clients._replace(alpha=stepped.alpha.clamp(0, 1))
        clients = train(cohort, loss, clients, trainable=["v", "w"])
        w = uniform_mean(cohort.receive(clients.w))
        return State(w, cohort.keep(state.v, clients.v), cohort.keep(state.alpha, clients.alpha))

    def models(state):
        return torch.vmap(mixture, in_dims=(0, None, 0))(state.v, state.w, state.alpha)

    return Algorithm("apfl", init, round, models)
