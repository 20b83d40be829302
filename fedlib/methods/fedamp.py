"""FedAMP (Huang et al., AAAI 2021, Algorithm 1): cloud models, mixed mainly from similar clients."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import NonNegative, Positive
from fedlib.models.model import is_statistic
from fedlib.stack import Params, copies, mix, select, sq_distance
from fedlib.training import cross_entropy, train


class State(NamedTuple):
    v: Params  # [n_clients, ...]: every client's last model
    uploaded: Tensor  # [n_clients]: 1 for a client that has taken part, else 0


def sq_distances(v: Params, clients: Tensor) -> Tensor:
    """Squared distances ||w_i - w_j||^2 over the parameters, from models `clients` [k] to all v [n, ...]: [k, n]."""
    flat = torch.cat([t.flatten(1) for name, t in v.items() if not is_statistic(name)], 1)  # [n, P]
    return torch.cdist(flat[clients], flat, compute_mode="donot_use_mm_for_euclid_dist") ** 2


def cloud_weights(sq: Tensor, clients: Tensor, uploaded: Tensor, alpha: float, sigma: float) -> Tensor:
    """Weights xi_ij of the models j in the cloud model of client i; every row sums to 1.

    xi_ij = alpha exp(-||w_i - w_j||^2 / sigma) / sigma for every other client j that has uploaded a model, divided by
    their sum if it is larger than 1; the weight of client i itself is 1 minus their sum.
    """
    # squared distances sq [k, n], clients [k], uploaded [n] -> [k, n]
    self = clients[:, None] == torch.arange(sq.shape[1], device=sq.device)
    others = (alpha / sigma * torch.exp(-sq / sigma) * uploaded).masked_fill(self, 0)
    others = others / others.sum(1, keepdim=True).clamp(min=1)
    return others + self * (1 - others.sum(1, keepdim=True))


@algorithm(label="FedAMP", colour="green", marker="h", line=":")
def fedamp(sigma: Positive = 10.0, alpha: Positive = 1.0, lam: NonNegative = 1.0) -> Algorithm:
    """Attentive message passing: a cloud model for every client, mixed mainly from the models of similar clients.

    The server keeps the last upload w_j of every client and sends client i the cloud model u_i = sum_j xi_ij w_j, with
    the weights xi of `cloud_weights`. The client starts from u_i and minimises cross-entropy + lam / (2 alpha)
    ||w - u_i||^2. Before the first upload, u_i is the client's own model. A client that never took part has the initial
    model, which has weight 0 for others.

    While the models of n clients are close together, the other clients have a total weight of (n - 1) alpha / sigma.
    Choose sigma larger than (n - 1) alpha, or a client's own model has weight 0.

    BatchNorm, affine parameters and running statistics alike, is mixed with the same weights; distances are over the
    parameters only. Every client is evaluated with u_i, or with u_i after fine-tuning, if the run has any;
    in the paper with w_i.

    As alpha / sigma goes to 0, every client keeps its own model. A smaller alpha strengthens the pull, and above
    lr lam / alpha = 2 the steps diverge. PFLlib has alpha = 1; FLGO has 10000, with a tenth of it every 30 rounds.

    Args:
        sigma: scale of the squared distance over which weights decay, above 0.
        alpha: weight of the other clients, above 0.
        lam: strength of the pull towards u_i, at least 0; it is divided by `alpha`.

    Source:
        Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedamp(), federation, rounds=1, progress=False)
        >>> result.weights(client=0)["fc1.0.weight"].equal(result.weights(client=1)["fc1.0.weight"])
        False
    """

    def loss(w, batch, cloud):
        return cross_entropy(w, batch) + lam / (2 * alpha) * sq_distance(w, select(cloud, batch.model.trainable))

    def clouds(state, clients):  # u_i of `clients`: [k, ...]
        sq = sq_distances(state.v, clients)
        return mix(cloud_weights(sq, clients, state.uploaded, alpha, sigma), state.v)

    def init(model, federation):
        return State(copies(model.weights, federation.n_clients), model.zeros(federation.n_clients))

    def round(state, cohort):
        u = cohort.send(clouds(state, cohort.clients))  # the cloud models: [k, ...]
        v = cohort.receive(train(cohort, loss, u, u))  # [k, ...]
        return State(cohort.keep(state.v, v), state.uploaded.index_fill(0, cohort.clients, 1))

    def models(state):
        return clouds(state, torch.arange(len(state.uploaded), device=state.uploaded.device))

    return Algorithm("fedamp", init, round, models)
