"""Stacks: whatever belongs to the clients is one tensor with the client axis first.

A model is a `Params` dict, name -> tensor. The models of k clients are one such dict of tensors [k, ...].
"""

from collections.abc import Collection

import torch
from torch import Tensor

Params = dict[str, Tensor]
LARGE = 32  # clients per weighted sum


def repeat(w: Params, n: int) -> Params:
    """One model for n clients: [...] -> [n, ...], without copying."""
    return {name: t.expand(n, *t.shape) for name, t in w.items()}


def take(stack: Params, clients: Tensor) -> Params:
    """The models of `clients` (int64 [k]): [n, ...] -> [k, ...], a copy."""
    return {name: t[clients] for name, t in stack.items()}


def put(stack: Params, clients: Tensor, rows: Params) -> Params:
    """`stack` with the models of `clients` replaced by `rows` [k, ...].

    The buffer of `stack` is reused (donated): the cost depends on k, not on the number of clients.
    """
    return {name: t.index_copy_(0, clients, rows[name]) for name, t in stack.items()}


def own(w: Params, n: int) -> Params:
    """Every client its own copy of one model: [...] -> [n, ...], writable."""
    return {name: t.clone() for name, t in repeat(w, n).items()}


def select(w: Params, names: Collection[str]) -> Params:
    """The entries whose name is in `names`."""
    return {name: t for name, t in w.items() if name in names}


def drop(w: Params, names: Collection[str]) -> Params:
    """The entries whose name is not in `names`."""
    return {name: t for name, t in w.items() if name not in names}


def mix(weights: Tensor, stack: Params) -> Params:
    """Weighted sums over the client axis: weights [..., n], stack [n, ...] -> [..., ...].

    On a CPU clients that have no weight in a large stack are left out: the cost does not depend on their number.
    """
    n = weights.shape[-1]
    if weights.device.type == "cpu" and n >= LARGE * max(weights.numel() // n, 1):
        [used] = weights.reshape(-1, n).any(0).nonzero(as_tuple=True)
        weights, stack = weights[..., used], take(stack, used)
    return {name: torch.tensordot(weights.to(t.dtype), t, dims=1) for name, t in stack.items()}


def client_mean(stack: Params, n_samples: Tensor) -> Params:
    """The server's average (McMahan et al., 2017): weights n_samples / sum; [k, ...] -> [...]."""
    n_samples = n_samples.double()  # rounded once, to the dtype of the stack
    return mix(n_samples / n_samples.sum(), stack)


def uniform_mean(stack: Params) -> Params:
    """The server's average where every client counts alike: [k, ...] -> [...]."""
    return {name: t.mean(0) for name, t in stack.items()}


def sq_distance(w: Params, anchor: Params) -> Tensor:
    """Squared Euclidean distance over the entries of `anchor`: a scalar."""
    return sum(((w[name] - t) ** 2).sum() for name, t in anchor.items())


def n_bytes(w: Params) -> int:
    """Bytes of all entries."""
    return sum(t.numel() * t.element_size() for t in w.values())
