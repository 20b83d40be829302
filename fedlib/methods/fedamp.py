"""FedAMP (Huang et al., AAAI 2021, Algorithm 1): every client gets a cloud model of its own, mostly of its likes."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import above, at_least
from fedlib.models.model import is_statistic
from fedlib.stack import Params, copies, mix, put, sq_distance
from fedlib.training.losses import cross_entropy


class State(NamedTuple):
    v: Params  # [n_clients, ...]: every client's last model
    uploaded: Tensor  # [n_clients]: 1 for a client that has taken part, else 0


def sq_distances(v: Params, clients: Tensor) -> Tensor:
    """||w_i - w_j||^2 over the parameters, i in `clients` (int64 [k]), j all n clients: [k, n]."""
    flat = torch.cat([t.flatten(1) for name, t in v.items() if not is_statistic(name)], 1)  # [n, P]
    return torch.cdist(flat[clients], flat, compute_mode="donot_use_mm_for_euclid_dist") ** 2


def cloud_weights(sq: Tensor, clients: Tensor, uploaded: Tensor, alpha: float, sigma: float) -> Tensor:
    """xi_ij = alpha exp(-||w_i - w_j||^2 / sigma) / sigma for j != i, and what is left of 1 for i itself: [k, n].

    0 for a j that has not `uploaded` [n] a model yet. Others get no more than 1 in all: beyond, their weights are
    divided by their sum.
    """
    self = clients[:, None] == torch.arange(sq.shape[1], device=sq.device)
    others = (alpha / sigma * torch.exp(-sq / sigma) * uploaded).masked_fill(self, 0)
    others = others / others.sum(1, keepdim=True).clamp(min=1)
    return others + self * (1 - others.sum(1, keepdim=True))


@algorithm
def fedamp(
    sigma: Annotated[float, above(0)] = 10.0,
    alpha: Annotated[float, above(0)] = 1.0,
    lam: Annotated[float, at_least(0)] = 1.0,
) -> Algorithm:
    """u_i = sum_j xi_ij w_j over the last uploads and the own model; local loss f_i(w) + lam / (2 alpha) ||w - u_i||^2.

    xi by `cloud_weights`. A client starts from its cloud model u_i: before anybody has uploaded, from its own one. A
    client that never took part has the initial model as its own, and nobody else gets any of it. BatchNorm, affine and
    statistics alike, is mixed with the same weights; the distances are over the parameters. As sigma grows all others
    weigh alike. `alpha -> 0` leaves every client its own model. Evaluated: u_i; tuned: after fine-tuning of u_i.
    """

    def loss(w, batch, cloud):
        anchor = {name: cloud[name] for name in batch.model.trainable}
        return cross_entropy(w, batch) + lam / (2 * alpha) * sq_distance(w, anchor)

    def clouds(state, clients):  # u_i of `clients`: [k, ...]
        sq = sq_distances(state.v, clients)
        return mix(cloud_weights(sq, clients, state.uploaded, alpha, sigma), state.v)

    def init(model, federation):
        n, like = federation.n_clients, next(iter(model.weights.values()))
        return State(copies(model.weights, n), like.new_zeros(n))

    def round(state, cohort):
        u = cohort.send(clouds(state, cohort.clients))  # [k, ...]
        v = cohort.receive(cohort.train(loss, u, u))
        return State(put(state.v, cohort.clients, v), state.uploaded.index_fill(0, cohort.clients, 1))

    def models(state):
        return clouds(state, torch.arange(len(state.uploaded), device=state.uploaded.device))

    return Algorithm("fedamp", init, round, models)
