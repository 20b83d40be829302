"""IFCA (Ghosh et al., NeurIPS 2020, Algorithm 1, model averaging): each client trains the best of several models."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import Count
from fedlib.stack import Params, repeat, row, take, tree_map
from fedlib.training import cross_entropy, mean_loss, train


class State(NamedTuple):
    w: Params  # [clusters, ...]
    cluster: Tensor  # int64 [n_clients]: each client's last choice


def cluster_mean(w: Params, cluster: Tensor, n_samples: Tensor, before: Params) -> Params:
    """Average the uploads of each cluster by training samples; a cluster without uploads stays as in `before`."""
    # uploads w [k, ...], their clusters [k], before [clusters, ...] -> [clusters, ...]
    n = len(next(iter(before.values())))
    member = cluster == torch.arange(n, device=cluster.device)[:, None]  # [clusters, k]
    weights = member * n_samples.double()  # rounded once, as in `client_mean`
    weights = weights / weights.sum(1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    chosen = member.any(1)  # [clusters]

    def mean(uploads, w):
        sums = torch.tensordot(weights.to(uploads.dtype), uploads, dims=1)
        return torch.where(chosen.view(-1, *[1] * (w.dim() - 1)), sums, w)

    return tree_map(mean, w, before)


@algorithm(label="IFCA", colour="sky", marker="p", line=":")
def ifca(clusters: Count = 3) -> Algorithm:
    """Several global models, the clusters, of which every client trains the one with the lowest loss on its data.

    The server sends all clusters. A client chooses the one with the lowest loss on its training samples, minimises
    cross-entropy from there and sends the result back. The server averages the uploads of each cluster, weighted with
    the numbers of training samples; a cluster without uploads is unchanged. Clusters start from independent draws;
    the authors' code draws again until each cluster is chosen by enough clients.
    BatchNorm, affine parameters and running statistics alike, is part of them.

    A client is evaluated with its latest choice, or with the first cluster before its first round; in the paper it
    chooses anew. Fine-tuning begins with a new choice.

    Args:
        clusters: number of global models, at least 1. `clusters=1` is FedAvg.

    Source:
        Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020 (with model averaging).

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.ifca(clusters=3), federation, rounds=1, progress=False)
        >>> result.rounds["bytes_down"].item() == 3 * result.rounds["bytes_up"].item()
        True
    """

    def init(model, federation):
        return State(model.independent(clusters), model.zeros(federation.n_clients).long())

    def choose(w, cohort):  # [clusters, ...] -> int64 [k]: the cluster with the lowest loss
        return torch.stack([mean_loss(cohort, repeat(row(w, j), cohort.size)) for j in range(clusters)]).argmin(0)

    def round(state, cohort):
        cohort.broadcast(state.w)  # all clusters
        chosen = choose(state.w, cohort)  # [k]
        w_i = cohort.receive(train(cohort, cross_entropy, take(state.w, chosen)))  # [k, ...]
        w = cluster_mean(w_i, chosen, cohort.n_samples, before=state.w)
        return State(w, cohort.keep(state.cluster, chosen))

    def models(state):
        return take(state.w, state.cluster)

    def tune(state, everyone):
        return train(everyone, cross_entropy, take(state.w, choose(state.w, everyone)))

    def trace(state):
        return {"cluster": state.cluster}

    return Algorithm("ifca", init, round, models, tune=tune, trace=trace)
