"""f-FedAP (Lu et al., 2022; baseline of pFedSim, section 5): averages over clients with similar BatchNorm inputs."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedlib.algorithm import Algorithm, Partial, algorithm, download, init_partial, merged, upload
from fedlib.checks import Fraction
from fedlib.similarity import bn_distances
from fedlib.stack import Params, Shared, drop, mix, own_copies, select, tree_map
from fedlib.training import cross_entropy, train
from fedlib.training.evaluation import batchnorm_inputs


class State(NamedTuple):
    """All entries of the model except BatchNorm are shared in the warm-up and personal afterwards."""

    theta: Shared | Params  # entries except BatchNorm: [n_clients, ...]
    v: Params  # BatchNorm [n_clients, ...]
    weights: Tensor  # W [n_clients, n_clients], rows sum to 1; the identity in the warm-up and for unseen clients


def neighbour_weights(distances: Tensor, self_weight: float) -> Tensor:
    """Aggregation weights W: W_ii = self_weight, W_ij = (1 - self_weight) (1/d_ij) / sum_(k != i) 1/d_ik."""
    # distances d [n, n] -> W [n, n]; rows sum to 1
    if len(distances) == 1:
        return torch.ones_like(distances)
    closeness = (1 / distances.clamp(min=1e-12)).fill_diagonal_(0)
    weights = (1 - self_weight) * closeness / closeness.sum(1, keepdim=True)
    return weights.fill_diagonal_(self_weight)


@algorithm(label="f-FedAP", colour="brown", marker="p", line="--")
def fedap(
    warm_up: Fraction = 0.5, self_weight: Fraction = 0.5, evaluate: Literal["mixed", "own"] = "mixed"
) -> Algorithm:
    """FedBN, then a personal average of models, weighted by the similarity of BatchNorm inputs.

    A client minimises cross-entropy in all rounds and keeps its BatchNorm. For a share `warm_up` of the rounds all
    other entries are averaged as in FedBN. After that, client i starts from sum_j W_ij theta_j and its own BatchNorm,
    where theta_j is the model of client j without BatchNorm.

    The server computes W once, right after the warm-up, by `neighbour_weights`. The distance d_ij is a sum over
    BatchNorm layers of 2-Wasserstein distances between two Gaussians, which have the mean and standard deviation of the
    layer's inputs over all training samples of a client, in the client's model in evaluation mode. For that, all
    clients except unseen ones receive the shared part once more and send these statistics. A client that was never
    sampled in the warm-up sends them with its initial BatchNorm, because it may be sampled later.

    `warm_up=1` is FedBN; `self_weight=1` is FedBN followed by Local-Only.

    Args:
        warm_up: share of the rounds that are FedBN, from 0 to 1; pFedSim has 0.5.
        self_weight: weight of a client's own model in its average, from 0 to 1; pFedSim has 0.5.
        evaluate: evaluated model of a client: "mixed", sum_j W_ij theta_j with its BatchNorm, as in both published
            codes; "own", theta_i after the client's last training. In the warm-up, and for an unseen client also later,
            it is the shared part with the client's BatchNorm, as in FedBN.

    Source:
        Lu et al., "Personalized Federated Learning with Adaptive Batchnorm for Healthcare", 2022; here in the form
        that pFedSim compares with (section 5.1).

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedap(warm_up=0), federation, rounds=1, progress=False)
        >>> result.state.weights.diag(), result.state.weights.shape  # each client's weight for itself
        (tensor([0.5000, 0.5000, 0.5000, 0.5000]), torch.Size([4, 4]))
    """

    def init(model, federation):
        theta, v = init_partial(lambda model: model.batchnorm)(model, federation)
        return State(Shared(theta), v, torch.eye(federation.n_clients).to(model.zeros()))

    def meet(state, cohort):  # end of the warm-up: all but unseen clients send statistics, for W
        federation = cohort.federation
        n = federation.n_clients - federation.unseen
        theta = own_copies(state.theta, federation.n_clients)  # [n_clients, ...]
        first, v = tree_map(lambda t: t[:n], (theta, state.v))
        models = cohort.send(first) | v
        statistics = cohort.receive(batchnorm_inputs(cohort.model, cohort.images, models, federation.train[:n]))
        state.weights[:n, :n] = neighbour_weights(bn_distances(statistics), self_weight)  # in place, as `keep`
        return state._replace(theta=theta)

    def round(state, cohort):
        warm = math.floor(warm_up * cohort.rounds + 1e-9)
        if cohort.round < warm:  # FedBN
            shared = Partial(state.theta.tree, state.v)
            shared = upload(shared, cohort, train(cohort, cross_entropy, download(shared, cohort)))
            return State(Shared(shared.w), shared.v, state.weights)

        theta, v, W = meet(state, cohort) if cohort.round == warm else state
        mixed = cohort.send(mix(W[cohort.clients], theta))  # over all clients: [k, ...]
        w_i = train(cohort, cross_entropy, mixed | cohort.mine(v))
        sent = cohort.receive(drop(w_i, v))
        return State(cohort.keep(theta, sent), cohort.keep(v, select(w_i, v)), W)

    def models(state):
        if isinstance(state.theta, Shared):
            return merged(Partial(state.theta.tree, state.v))
        return (state.theta if evaluate == "own" else mix(state.weights, state.theta)) | state.v

    return Algorithm("fedap", init, round, models)
