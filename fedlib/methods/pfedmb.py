"""pFedMB (Mori et al., IJCNN 2023, Algorithm 1): layers of B shared branches, mixed with personal weights."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch.func import vmap

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import Count, NonNegative
from fedlib.models import Model
from fedlib.stack import Params, copies, repeat, select, tree_map
from fedlib.training import cross_entropy, train

SHARED = "all layers"  # the key of alpha when all layers share it


class Branched(NamedTuple):
    """A model with branches. In a state the branches are shared; all other entries have a row for every client."""

    branches: Params  # W [B, ...]
    z: Params  # {layer: [B]}, of which alpha is the softmax
    statistics: Params  # of BatchNorm


def layer(name: str) -> str:
    """Name of the layer of an entry: fc1.0 for fc1.0.weight."""
    return name.rpartition(".")[0]


def layers(names: Iterable[str]) -> list[str]:
    """Names of the layers of the entries, in order, without repeats."""
    return list(dict.fromkeys(map(layer, names)))


def new_branches(model: Model, branches: int, gain: bool = True) -> Params:
    """Draw B independent branches [B, ...] of all trainable entries; the first one has the model's initial weights."""
    # With the gain sqrt(B) of linear and convolution layers, their mixture with alpha = 1/B has the variance of a
    # single draw (reading A2).
    drawn, factor = model.independent(branches), math.sqrt(branches) if gain else 1.0
    return {name: drawn[name] * (1.0 if name in model.batchnorm else factor) for name in model.trainable}


def merge(branches: Params, alpha: Params) -> Params:
    """Mix the branches [B, ...] of ONE client, weights and biases alike: sum_b alpha_b W_b (eq. 1).

    Mixing weights is the same as mixing outputs (eq. 2), so a layer is called once, in training and in inference.
    `alpha` holds the mixing weights [B] of each layer by its name, or those of all layers under `SHARED`.

    Example:
        >>> from fedlib.methods.pfedmb import merge
        >>> merge({"fc.bias": torch.tensor([[0.0, 4.0], [8.0, 4.0]])}, {"fc": torch.tensor([0.75, 0.25])})
        {'fc.bias': tensor([2., 4.])}
    """
    mixing = {name: alpha[SHARED] if SHARED in alpha else alpha[layer(name)] for name in branches}
    return {name: torch.tensordot(mixing[name], t, dims=1) for name, t in branches.items()}


def alphas(z: Params) -> Params:
    """Mixing weights alpha = softmax(z) of each layer, [..., B]."""
    return tree_map(lambda t: t.softmax(-1), z)


def merged(w: Branched) -> Params:
    """Merge the branches of ONE client into an ordinary model (eq. 1)."""
    return merge(w.branches, alphas(w.z)) | w.statistics


def branch_mean(w: Params, alpha: Params, n_samples: torch.Tensor, before: Params) -> Params:
    """Average each branch b of each layer l: sum_i n_i alpha_ilb W_ilb / sum_j n_j alpha_jlb (eq. 5).

    A branch with weight 0 in all clients stays as in `before`.

    Example:
        >>> from fedlib.methods.pfedmb import branch_mean
        >>> w = {"fc.bias": torch.tensor([[1.0, 5.0], [4.0, 5.0]])}
        >>> alpha, n = {"fc": torch.tensor([[1.0, 0.0], [0.5, 0.5]])}, torch.tensor([10.0, 10.0])
        >>> branch_mean(w, alpha, n_samples=n, before={"fc.bias": torch.zeros(2)})
        {'fc.bias': tensor([2., 5.])}
    """
    # uploads w [k, B, ...], alpha [k, B] by layer, n_samples [k], before [B, ...] -> [B, ...]
    mean = {}
    for name, t in w.items():
        weights = n_samples[:, None] * (alpha[SHARED] if SHARED in alpha else alpha[layer(name)])  # [k, B]
        total = weights.sum(0)
        used = (total > 1e-12).view(-1, *[1] * (t.dim() - 2))
        weights = (weights / torch.where(total > 1e-12, total, 1)).to(t.dtype)
        mean[name] = torch.where(used, torch.einsum("kb,kb...->b...", weights, t), before[name])
    return mean


@algorithm(label="pFedMB", colour="red", marker="s", variants={"pfedmb-avg": ("pFedMB-avg", "--")})
def pfedmb(
    branches: Count = 5,
    share_alpha: bool = False,
    weighted: bool = True,
    alpha_lr: NonNegative = 1.0,
    gain: bool = True,
) -> Algorithm:
    """Layers of B shared branches, which every client mixes with its personal weights alpha.

    A client minimises the cross-entropy of its merged model (eq. 1) twice: for the local epochs over alpha with the
    branches frozen (eq. 3), then for as many epochs over the branches with alpha frozen (eq. 4). alpha = softmax(z)
    starts with z = 0 and stays with the client; it is one vector for each layer.

    The server averages each branch, weighted with n_i alpha_i, where n_i counts the client's training samples (eq. 5).
    So the influence of a client on a branch grows with its use of the branch. Branches are drawn independently
    (`new_branches`). BatchNorm's affine parameters are branched; its running statistics stay with the client.

    A client is evaluated with the global branches, merged with its alpha. Fine-tuning is another local update of
    branches and alpha, on copies. `branches=1` is FedAvg, on a model without
    BatchNorm, whose statistics would also follow the training of alpha.

    Args:
        branches: B, at least 1; the paper has 5 in section V-B and chooses it for each setting in Table III.
        share_alpha: one alpha for all layers of a client, as in section V-B.
        weighted: average with n_i alpha_i (eq. 5); False: with n_i alone (eq. 6).
        alpha_lr: step size of z, at least 0; the branches move at the run's lr.
        gain: multiply the initial branches by sqrt(B).

    Source:
        Mori et al., "Personalized Federated Learning with Multi-branch Architecture", IJCNN 2023, Algorithm 1,
        equations 1 to 6.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.pfedmb(branches=3), federation, rounds=1, progress=False)
        >>> alpha = result.trace["classifier"][-1]  # at the last evaluation
        >>> alpha.shape, alpha.sum(1).allclose(alpha.new_ones(4))
        (torch.Size([4, 3]), True)
    """

    def loss(w, batch):  # ONE client
        return cross_entropy(merged(w), batch)

    def init(model, federation):
        names = [SHARED] if share_alpha else layers(model.trainable)
        z = {name: model.zeros(federation.n_clients, branches) for name in names}
        statistics = copies(select(model.weights, model.statistics), federation.n_clients)
        return Branched(new_branches(model, branches, gain), z, statistics)

    def local_update(w, cohort):  # [k, ...]
        w = train(cohort, loss, w, name="alpha", trainable=["z"], lr=alpha_lr)  # eq. 3
        return train(cohort, loss, w, trainable=["branches"])  # eq. 4, on the batches of FedAvg

    def round(state, cohort):
        start = Branched(cohort.broadcast(state.branches), cohort.mine(state.z), cohort.mine(state.statistics))
        W, z, statistics = local_update(start, cohort)  # [k, B, ...], [k, B], [k, ...]
        W, alpha = cohort.receive((W, alphas(z)))
        alpha = alpha if weighted else tree_map(torch.ones_like, alpha)
        mean = branch_mean(W, alpha, cohort.n_samples, before=state.branches)  # eq. 5, or 6
        return Branched(mean, cohort.keep(state.z, z), cohort.keep(state.statistics, statistics))

    def models(state):
        return vmap(lambda z, statistics: merged(Branched(state.branches, z, statistics)))(*state[1:])

    def tune(state, everyone):
        start = Branched(repeat(state.branches, everyone.size), *everyone.mine(state[1:]))
        return vmap(merged)(local_update(start, everyone))

    return Algorithm("pfedmb", init, round, models, tune=tune, trace=lambda state: alphas(state.z))
