"""IFCA (Ghosh et al., NeurIPS 2020, Algorithm 1, model averaging): every client trains the cluster it likes best."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import at_least
from fedlib.stack import Params, take
from fedlib.training.losses import cross_entropy


class State(NamedTuple):
    w: Params  # [clusters, ...]
    cluster: Tensor  # int64 [n_clients]: each client's last choice


def cluster_mean(w: Params, cluster: Tensor, n_samples: Tensor, before: Params) -> Params:
    """Average of each cluster's uploads with weights n_samples: [k, ...] -> [clusters, ...].

    `cluster` int64 [k] says who belongs where; a cluster without clients stays what it was in `before`.
    """
    n = len(next(iter(before.values())))
    member = cluster == torch.arange(n, device=cluster.device)[:, None]  # [clusters, k]
    weights = member * n_samples.double()  # rounded once, as in `client_mean`
    weights = weights / weights.sum(1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    means = {name: torch.tensordot(weights.to(t.dtype), t, dims=1) for name, t in w.items()}
    taken = member.any(1)
    return {name: torch.where(taken.view(-1, *[1] * (t.dim() - 1)), t, before[name]) for name, t in means.items()}


@algorithm
def ifca(clusters: Annotated[int, at_least(1)] = 3) -> Algorithm:
    """The server sends all clusters; a client trains the one with the lowest loss on its train part and sends it back.

    Clusters start from independent draws; BatchNorm, affine and statistics alike, is part of them. `clusters=1` is
    FedAvg. Evaluated: the cluster a client chose last (the first one before its first round); tuned: the one it
    chooses now, fine-tuned.
    """

    def init(model, federation):
        device = next(iter(model.weights.values())).device
        return State(model.independent(clusters), torch.zeros(federation.n_clients, dtype=torch.int64, device=device))

    def choose(w, cohort):  # [clusters, ...] -> int64 [k]
        own = [cohort.federation.train[i] for i in cohort.ids]
        losses = [
            cohort.mean_loss({name: t[j].expand(cohort.size, *t.shape[1:]) for name, t in w.items()}, own)
            for j in range(clusters)
        ]
        return torch.stack(losses).argmin(0)

    def round(state, cohort):
        cohort.broadcast(state.w)
        chosen = choose(state.w, cohort)  # [k]
        w_i = cohort.receive(cohort.train(cross_entropy, take(state.w, chosen)))
        w = cluster_mean(w_i, chosen, cohort.n_samples, before=state.w)
        return State(w, state.cluster.index_copy(0, cohort.clients, chosen))

    def models(state):
        return take(state.w, state.cluster)

    def tune(state, everyone):
        return everyone.train(cross_entropy, take(state.w, choose(state.w, everyone)))

    def trace(state):
        return {"cluster": state.cluster}

    return Algorithm("ifca", init, round, models, tune=tune, trace=trace)
