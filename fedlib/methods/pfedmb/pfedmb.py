"""pFedMB (Mori et al., IJCNN 2023, Algorithm 1): layers of B shared branches, mixed by each client's own alpha."""

from typing import Annotated

import torch
from torch.func import vmap

from fedlib.algorithm import Algorithm, Partial, algorithm, download
from fedlib.checks import at_least
from fedlib.methods.pfedmb.branches import SHARED, layer, layers, merge, new_branches
from fedlib.models.model import is_statistic
from fedlib.stack import Params, copies, put, repeat, select, take
from fedlib.training.losses import cross_entropy

PREFIX = "alpha of "  # entries of a client's weights: z [B] of a layer, of which alpha is the softmax


def alphas(w: Params) -> Params:
    """alpha = softmax(z), on the simplex: {layer: [..., B]}."""
    return {name.removeprefix(PREFIX): z.softmax(-1) for name, z in w.items() if name.startswith(PREFIX)}


def merged(w: Params) -> Params:
    """ONE client's branches, z and BatchNorm statistics as weights of the plain model."""
    statistics = set(filter(is_statistic, w))
    branches = {name: t for name, t in w.items() if not (name in statistics or name.startswith(PREFIX))}
    return merge(branches, alphas(w)) | select(w, statistics)


def branch_mean(w: Params, alpha: Params, n_samples: torch.Tensor, before: Params) -> Params:
    """Eq. 5: sum_i n_i alpha_ilb W_ilb / sum_j n_j alpha_jlb over the cohort, [k, B, ...] -> [B, ...].

    A branch that nobody uses stays what it was in `before` [B, ...].
    """
    mean = {}
    for name, t in w.items():
        weights = n_samples[:, None] * (alpha[SHARED] if SHARED in alpha else alpha[layer(name)])  # [k, B]
        total = weights.sum(0)
        used = (total > 1e-12).view(-1, *[1] * (t.dim() - 2))
        weights = (weights / torch.where(total > 1e-12, total, 1)).to(t.dtype)
        mean[name] = torch.where(used, torch.einsum("kb,kb...->b...", weights, t), before[name])
    return mean


@algorithm
def pfedmb(
    branches: Annotated[int, at_least(1)] = 5,
    share_alpha: bool = False,
    weighted: bool = True,
    alpha_lr: Annotated[float, at_least(0)] = 1.0,
    gain: bool = True,
) -> Algorithm:
    """First alpha, branches frozen, for the local epochs (eq. 3), then the branches, alpha frozen, for as many (eq. 4).

    alpha = softmax(z), z = 0 at first, is the client's own, one vector per layer, or with `share_alpha` one for all
    layers (section V-B). SGD moves z at rate `alpha_lr`, the branches at the run's. The server averages each branch
    with weights n_i alpha_i (eq. 5), or with n_i alone (`weighted=False`, eq. 6). Branches are drawn independently,
    with `gain` times sqrt(B): see `new_branches`. BatchNorm's affine part is branched, its statistics stay with the
    client. `branches=1` is FedAvg (with local statistics). Evaluated: the merged model of the global branches and the
    own alpha; tuned: after another local update of both, on copies.
    """

    def loss(w, batch):  # ONE client
        return cross_entropy(merged(w), batch)

    def init(model, federation):
        places = [SHARED] if share_alpha else layers(model.trainable)
        like = next(iter(model.weights.values()))
        z = {PREFIX + place: like.new_zeros(federation.n_clients, branches) for place in places}
        statistics = copies(select(model.weights, model.statistics), federation.n_clients)
        return Partial(new_branches(model, branches, gain), z | statistics)

    def local_update(w, cohort):
        z = [name for name in w if name.startswith(PREFIX)]
        w = cohort.train(loss, w, name="alpha", trainable=z, lr=alpha_lr)
        return cohort.train(loss, w, trainable=cohort.model.trainable)  # the batches of FedAvg

    def round(state, cohort):
        trained = local_update(download(state, cohort), cohort)  # [k, B, ...]
        sent = cohort.receive(select(trained, state.w)), cohort.receive(alphas(trained))
        alpha = sent[1] if weighted else {name: torch.ones_like(a) for name, a in sent[1].items()}
        w = branch_mean(sent[0], alpha, cohort.n_samples, before=state.w)
        return Partial(w, put(state.v, cohort.clients, select(trained, state.v)))

    def models(state):
        return vmap(lambda v: merged(state.w | v))(state.v)

    def tune(state, everyone):
        return vmap(merged)(local_update(repeat(state.w, everyone.size) | take(state.v, everyone.clients), everyone))

    return Algorithm("pfedmb", init, round, models, tune=tune, trace=lambda state: alphas(state.v))
