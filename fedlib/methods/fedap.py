"""f-FedAP (Lu et al., 2022; baseline of pFedSim, section 5): clients with alike BatchNorm inputs are averaged."""

import math
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, download, init_partial, merged, upload
from fedlib.checks import at_least, at_most
from fedlib.similarity import bn_distances
from fedlib.stack import Params, copies, drop, mix, put, repeat, select, take
from fedlib.training.evaluate import batchnorm_inputs
from fedlib.training.losses import cross_entropy


class State(NamedTuple):
    w: Params  # [...]: what FedBN shares in the warm-up
    v: Params  # [n_clients, ...]: BatchNorm in the warm-up, then every client's whole model
    weights: Tensor  # W [n_clients, n_clients], rows sum to 1; the identity in the warm-up and for unseen clients


def neighbour_weights(distances: Tensor, self_weight: float) -> Tensor:
    """W_ii = self_weight, W_ij = (1 - self_weight) (1/d_ij) / sum_(k != i) 1/d_ik: [n, n] -> [n, n].

    Distances below 1e-12 count as 1e-12; a client that is alone gets 1.
    """
    if len(distances) == 1:
        return torch.ones_like(distances)
    closeness = (1 / distances.clamp(min=1e-12)).fill_diagonal_(0)
    weights = (1 - self_weight) * closeness / closeness.sum(1, keepdim=True)
    return weights.fill_diagonal_(self_weight)


@algorithm
def fedap(
    warm_up: Annotated[float, at_least(0), at_most(1)] = 0.5,
    self_weight: Annotated[float, at_least(0), at_most(1)] = 0.5,
    evaluate: Literal["mixed", "own"] = "mixed",
) -> Algorithm:
    """FedBN for a fraction `warm_up` of the rounds; then a client starts from sum_j W_ij theta_j, BatchNorm its own.

    W (`neighbour_weights`) is made once, after the warm-up, from d_ij: the 2-Wasserstein distances, summed over
    BatchNorm layers, of Gaussians with the mean and standard deviation of the layer's inputs over the whole train part
    of a client, in its own model and evaluation mode. For that, all clients but the unseen ones get the global rest
    once more, and send the statistics: also one that was never sampled in the warm-up, with its initial BatchNorm, as
    the sums run over everybody who can be sampled later. The classifier is mixed like all the rest; BatchNorm stays
    with its client throughout. Evaluated: sum_j W_ij theta_j with the client's own BatchNorm, as in both published
    codes, or, with `evaluate="own"`, theta_i as its last training has left it; in the warm-up, and for an unseen client
    ever after, as FedBN. `warm_up=1` is FedBN; `self_weight=1` is FedBN followed by Local-Only.
    """
    init_fedbn = init_partial(lambda model: model.batchnorm)

    def init(model, federation):
        like = next(iter(model.weights.values()))
        return State(*init_fedbn(model, federation), torch.eye(federation.n_clients).to(like))

    def meet(state, cohort):  # the end of the warm-up: everybody's model, and W
        federation = cohort.federation
        seen = federation.n_clients - federation.unseen
        v = copies(state.w, federation.n_clients) | state.v  # [n_clients, ...]
        cohort.send(repeat(state.w, seen))
        theirs = {name: t[:seen] for name, t in v.items()}
        statistics = batchnorm_inputs(cohort.model, cohort.images, theirs, federation.train[:seen])
        cohort.receive({f"{layer} {part}": t for layer, pair in statistics.items() for part, t in enumerate(pair)})
        state.weights[:seen, :seen] = neighbour_weights(bn_distances(statistics), self_weight)  # in place, as `put`
        return state._replace(v=v)

    def round(state, cohort):
        warm, clients = math.floor(warm_up * cohort.rounds + 1e-9), cohort.clients
        if cohort.round < warm:
            trained = cohort.train(cross_entropy, download(state, cohort))  # [k, ...]
            return State(*upload(state, cohort, trained), state.weights)

        state, norms = meet(state, cohort) if cohort.round == warm else state, cohort.model.batchnorm
        mixed = mix(state.weights[clients], drop(state.v, norms))  # over all clients: [k, ...]
        start = cohort.send(mixed) | take(select(state.v, norms), clients)
        v = cohort.train(cross_entropy, start)
        cohort.receive(drop(v, norms))
        return state._replace(v=put(state.v, clients, v))

    def models(state):
        theta = select(state.v, state.w)  # without BatchNorm; empty in the warm-up
        if evaluate == "own" or not theta:
            return merged(state)
        return mix(state.weights, theta) | drop(state.v, theta)

    return Algorithm("fedap", init, round, models)
