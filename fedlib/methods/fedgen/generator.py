"""FedGen's generator of features (Zhu et al., ICML 2021; sizes of pFedSim, section 5): a function of its weights."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.stack import Params

STATISTICS = ("norm.running_mean", "norm.running_var")


def new_generator(rng: np.random.Generator, n_classes: int, noise: int, hidden: int, p: int) -> Params:
    """Initial weights of the network [one-hot y, noise] - Linear - BatchNorm - ReLU - Linear, float64."""
    # PyTorch's distribution; 4,212 parameters and 64 statistics for 10 classes, noise = hidden = 32 and p = 84
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
    """Features [batch, p] for labels y [batch] and noise [batch, noise]."""
    # In training BatchNorm normalises by the batch and updates its running statistics in `g`.
    n_classes = g["hidden.weight"].shape[1] - noise.shape[1]
    one_hot = (y[:, None] == torch.arange(n_classes, device=y.device)).to(noise.dtype)
    x = F.linear(torch.cat([one_hot, noise], 1), g["hidden.weight"], g["hidden.bias"])
    x = F.batch_norm(x, *(g[name] for name in STATISTICS), g["norm.weight"], g["norm.bias"], training)
    return F.linear(F.relu(x), g["out.weight"], g["out.bias"])
