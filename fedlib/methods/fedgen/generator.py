"""FedGen's generator of features (Zhu et al., ICML 2021; sizes of pFedSim, section 5): a function of its weights."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.stack import Params

STATISTICS = ("norm.running_mean", "norm.running_var")


def new_generator(rng: np.random.Generator, n_classes: int, noise: int, hidden: int, p: int) -> Params:
    """Draw the initial weights of the network [one-hot y, noise] - Linear - BatchNorm - ReLU - Linear.

    It has 4,212 parameters and 64 BatchNorm statistics for 10 classes, noise = hidden = 32 and p = 84.

    Args:
        rng: the weights are drawn from it, with PyTorch's distribution for linear layers.
        n_classes: number of classes.
        noise: size of the noise vector.
        hidden: width of the hidden layer.
        p: number of features.

    Returns:
        The weights by name, float64 [...].
    """
    a, b = 1 / math.sqrt(n_classes + noise), 1 / math.sqrt(hidden)
    arrays = {
        "hidden.weight": rng.uniform(-a, a, (hidden, n_classes + noise)),
        "hidden.bias": rng.uniform(-a, a, hidden),
        "norm.weight": np.ones(hidden),
        "norm.bias": np.zeros(hidden),
        "norm.running_mean": np.zeros(hidden),
        "norm.running_var": np.ones(hidden),
        "out.weight": rng.uniform(-b, b, (p, hidden)),
        "out.bias": rng.uniform(-b, b, p),
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def generate(g: Params, y: Tensor, noise: Tensor, training: bool = False) -> Tensor:
    """Generate features for labels.

    Args:
        g: weights of the generator, [...].
        y: labels, int64 [batch].
        noise: Gaussian noise, [batch, noise].
        training: True: BatchNorm normalises by the batch, and its running statistics in `g` follow. False: it
            normalises by these statistics.

    Returns:
        The features, [batch, p].
    """
    n_classes = g["hidden.weight"].shape[1] - noise.shape[1]
    one_hot = (y[:, None] == torch.arange(n_classes, device=y.device)).to(noise.dtype)
    x = F.linear(torch.cat([one_hot, noise], 1), g["hidden.weight"], g["hidden.bias"])
    x = F.batch_norm(x, *(g[name] for name in STATISTICS), g["norm.weight"], g["norm.bias"], training)
    return F.linear(F.relu(x), g["out.weight"], g["out.bias"])
