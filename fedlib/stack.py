"""Stacks: whatever belongs to the clients is one tensor with the client axis first.

The weights of a network are a `Params` dict, name -> tensor. What a method sends, trains and keeps is a *tree*: a
tensor, or a dict, a tuple or a NamedTuple of trees. A *stack* is a tree whose tensors have the client axis first:
[k, ...].
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_map  # the trees of torch.func

Params = dict[str, Tensor]
Tree = Any  # of tensors


class Shared(NamedTuple):
    """The same for every client: no client axis."""

    tree: Tree  # [...]


class PerArchitecture(NamedTuple):
    """Clients with different architectures: a stack for each of them, with a row for each client that has it."""

    stacks: tuple[Tree, ...]  # in the order of the run's architectures


LARGE = 32  # clients per weighted sum


def repeat(tree: Tree, n: int) -> Tree:
    """The same for n clients: [...] -> [n, ...], without copying."""
    return tree_map(lambda t: t.expand(n, *t.shape), tree)


def for_each(models: Tree | Shared | PerArchitecture, n: int) -> Tree | PerArchitecture:
    """The same with a row for each of n clients, without copying. A single architecture is a plain stack."""
    if isinstance(models, PerArchitecture) and len(models.stacks) == 1:
        return models.stacks[0]
    return repeat(models.tree, n) if isinstance(models, Shared) else models


def copies(tree: Tree, n: int) -> Tree:
    """For each of n clients a copy of its own: [...] -> [n, ...], writable."""
    return tree_map(torch.clone, repeat(tree, n))


def take(stack: Tree, clients: Tensor) -> Tree:
    """The rows of `clients` (int64 [k]): [n, ...] -> [k, ...], a copy."""
    return tree_map(lambda t: t[clients], stack)


def put(stack: Tree, clients: Tensor, rows: Tree) -> Tree:
    """`stack` with the rows of `clients` replaced by `rows` [k, ...].

    The buffer of `stack` is reused (donated): the cost depends on k, not on the number of clients.
    """
    return tree_map(lambda t, new: t.index_copy_(0, clients, new), stack, rows)


def row(stack: Tree, i: int) -> Tree:
    """What client i has of a stack: [k, ...] -> [...], a view."""
    return tree_map(lambda t: t[i], stack)


def select(w: Params, names: Collection[str]) -> Params:
    """The entries whose name is in `names`."""
    return {name: t for name, t in w.items() if name in names}


def drop(w: Params, names: Collection[str]) -> Params:
    """The entries whose name is not in `names`."""
    return {name: t for name, t in w.items() if name not in names}


def cat(stacks: Sequence[Tree]) -> Tree:
    """The clients of several stacks, one after the other: [k_1, ...], [k_2, ...] -> [k_1 + k_2, ...]."""
    return tree_map(lambda *parts: torch.cat(parts), *stacks)


def stack(trees: Sequence[Tree]) -> Tree:
    """What each of k clients has, as one: k times [...] -> [k, ...]."""
    return tree_map(lambda *rows: torch.stack(rows), *trees)


def mix(weights: Tensor, stack: Tree) -> Tree:
    """Weighted sums over the client axis: weights [..., n], stack [n, ...] -> [..., ...].

    On a CPU clients that have no weight in a large stack are left out: the cost does not depend on their number.
    """
    n = weights.shape[-1]
    if weights.device.type == "cpu" and n >= LARGE * max(weights.numel() // n, 1):
        [used] = weights.reshape(-1, n).any(0).nonzero(as_tuple=True)
        weights, stack = weights[..., used], take(stack, used)
    return tree_map(lambda t: torch.tensordot(weights.to(t.dtype), t, dims=1), stack)


def client_mean(stack: Tree, n_samples: Tensor) -> Tree:
    """The server's average (McMahan et al., 2017): weights n_samples / sum; [k, ...] -> [...]."""
    n_samples = n_samples.double()  # rounded once, to the dtype of the stack
    return mix(n_samples / n_samples.sum(), stack)


def uniform_mean(stack: Tree) -> Tree:
    """The server's average where every client counts alike: [k, ...] -> [...]."""
    return tree_map(lambda t: t.mean(0), stack)


def sq_distance(w: Params, anchor: Params) -> Tensor:
    """Squared Euclidean distance over the entries of `anchor`: a scalar."""
    return sum(((w[name] - t) ** 2).sum() for name, t in anchor.items())


def n_bytes(tree: Tree) -> int:
    """Bytes of all tensors."""
    return sum(t.numel() * t.element_size() for t in tree_leaves(tree))


def keys(tree: Tree) -> list[tuple[str, ...]]:
    """The way to each tensor of a tree, in order: names in dicts, fields of NamedTuples, places in tuples."""
    return [tuple(str(_key(step)) for step in way) for way, _ in tree_flatten_with_path(tree)[0]]


def _key(step: Any) -> str | int:
    """A step of PyTorch's, without the brackets."""
    return next(value for field in ("key", "name", "idx") if (value := getattr(step, field, None)) is not None)
