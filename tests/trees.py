"""Comparing trees of tensors."""

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fedlib.stack import Tree, keys


def _pairs(a: Tree, b: Tree) -> list[tuple[Tensor, Tensor]]:
    """The tensors at the same places."""
    first, second = (dict(zip(keys(tree), tree_leaves(tree), strict=True)) for tree in (a, b))
    assert first.keys() == second.keys()
    return [(t, second[way]) for way, t in first.items()]


def same_bits(a: Tree, b: Tree) -> bool:
    return all(torch.equal(t, other) for t, other in _pairs(a, b))


def close(a: Tree, b: Tree, tolerance: float = 1e-9) -> bool:
    return all(torch.allclose(t, other, rtol=tolerance, atol=tolerance) for t, other in _pairs(a, b))


def distance(a: Tree, b: Tree) -> float:
    """The largest difference, relative to the largest weight of the tensor."""
    return max(((t - other).abs().max() / other.abs().max()).item() for t, other in _pairs(a, b))
