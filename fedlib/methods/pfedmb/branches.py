"""Multi-branch layers (pFedMB, section IV-A): any model with B copies of its layers, mixed by weights alpha."""

import math
from collections.abc import Iterable

import torch

from fedlib.models.model import Model
from fedlib.stack import Params

SHARED = "all layers"  # the key of alpha when all layers share it


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
        >>> import torch
        >>> from fedlib.methods.pfedmb import merge
        >>> merge({"fc.bias": torch.tensor([[0.0, 4.0], [8.0, 4.0]])}, {"fc": torch.tensor([0.75, 0.25])})
        {'fc.bias': tensor([2., 4.])}
    """
    mixing = {name: alpha[SHARED] if SHARED in alpha else alpha[layer(name)] for name in branches}
    return {name: torch.tensordot(mixing[name], t, dims=1) for name, t in branches.items()}
