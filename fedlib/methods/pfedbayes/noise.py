"""Normal numbers as a function of seed and position: the same in every backend, drawn inside a loss."""

import math

import torch
from torch import Tensor

GOLDEN, FIRST, SECOND = (n - (1 << 64) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def mixed(counter: Tensor) -> Tensor:
    """Turn int64 numbers into 64 random bits each by splitmix64 (Steele et al., OOPSLA 2014)."""
    z = counter * GOLDEN
    z = (z ^ _right(z, 30)) * FIRST
    z = (z ^ _right(z, 27)) * SECOND
    return z ^ _right(z, 31)


def normal(seed: Tensor, like: Tensor) -> Tensor:
    """Draw standard normal numbers by the Box-Muller method, of the size, type and device of `like` [n]."""
    bits = mixed(mixed(seed) + torch.arange(like.numel(), device=like.device))
    high, low = (half.to(like.dtype) for half in (_right(bits, 32), bits & 0xFFFFFFFF))
    radius, angle = (high + 0.5) * 2.0**-32, low * 2.0**-32
    return (-2 * radius.log()).sqrt() * (2 * math.pi * angle).cos()


def _right(z: Tensor, n: int) -> Tensor:
    """Shift z to the right by n bits and fill with zeros; PyTorch's own shift keeps the sign."""
    return (z >> n) & ((1 << (64 - n)) - 1)
