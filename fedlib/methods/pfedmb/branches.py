"""Multi-branch layers (pFedMB, section IV-A): any model with B copies of its layers, mixed by weights alpha."""

import math
from collections.abc import Iterable

import torch

from fedlib.models.model import Model
from fedlib.stack import Params

SHARED = "all layers"  # the key of alpha when all layers share it


def layer(name: str) -> str:
    """The layer that an entry belongs to: `fc1.0` for `fc1.0.weight`."""
    return name.rpartition(".")[0]


def layers(names: Iterable[str]) -> list[str]:
    """The layers that own these entries, in that order."""
    return list(dict.fromkeys(map(layer, names)))


def new_branches(model: Model, branches: int, gain: bool = True) -> Params:
    """B independent draws of everything trainable: [B, ...]; the first is the model's own.

    With `gain` linear and convolution layers are multiplied by sqrt(B), so that their mixture with alpha = 1/B has
    the variance of a single draw (reading A2). BatchNorm starts as always.
    """
    drawn, factor = model.independent(branches), math.sqrt(branches) if gain else 1.0
    return {name: drawn[name] * (1.0 if name in model.batchnorm else factor) for name in model.trainable}


def merge(branches: Params, alpha: Params) -> Params:
    """The mixture of ONE client, weights and biases alike (eq. 1): sum_b alpha_b W_b, [B, ...] -> [...].

    `alpha` are [B], by layer, or one for all of them under `SHARED`. Mixing weights is mixing outputs (eq. 2): in
    training and inference a layer is called once, not B times.
    """
    own = {name: alpha[SHARED] if SHARED in alpha else alpha[layer(name)] for name in branches}
    return {name: torch.tensordot(own[name], t, dims=1) for name, t in branches.items()}
