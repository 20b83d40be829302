"""Stacks: the values of all clients in one tensor, with the client axis first.

The weights of a network are a `Params` dict, name -> tensor. A *tree* is a tensor, or a dict, a tuple or a NamedTuple
of trees. A *stack* is a tree whose tensors have the client axis first: [k, ...].
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_map  # the trees of torch.func

Params = dict[str, Tensor]
Tree = Any  # of tensors; not a closed type, because a tree may contain any NamedTuple


class Shared(NamedTuple):
    """A tree that is the same for every client.

    Attributes:
        tree: a tree without a client axis, [...].
    """

    tree: Tree  # [...]


class PerArchitecture(NamedTuple):
    """Stacks of clients with different architectures.

    Attributes:
        stacks: one stack per architecture, in the order of the run, with one row per client of the architecture.
    """

    stacks: tuple[Tree, ...]


LARGE = 32  # number of clients per weighted sum from which `mix` skips clients of weight 0


def repeat(tree: Tree, n: int) -> Tree:
    """Give n clients the same tree, without copying.

    Args:
        tree: a tree, [...].
        n: number of clients.

    Returns:
        A read-only stack, [n, ...].

    Example:
        >>> from fedlib.stack import repeat
        >>> repeat({"w": torch.tensor([1.0, 2.0])}, 3)["w"].shape
        torch.Size([3, 2])
    """
    return tree_map(lambda t: t.expand(n, *t.shape), tree)


def for_each(models: Tree | Shared | PerArchitecture, n: int) -> Tree | PerArchitecture:
    """Convert the models of an algorithm to one row per client, without copying.

    Args:
        models: a stack [n, ...], one tree for all clients (`Shared`), or stacks by architecture.
        n: number of clients.

    Returns:
        A stack, [n, ...]; `PerArchitecture` if there is more than one architecture.

    Example:
        >>> from fedlib.stack import Shared, for_each
        >>> for_each(Shared({"w": torch.tensor([1.0, 2.0])}), 3)["w"].shape
        torch.Size([3, 2])
    """
    if isinstance(models, PerArchitecture) and len(models.stacks) == 1:
        return models.stacks[0]
    return repeat(models.tree, n) if isinstance(models, Shared) else models


def copies(tree: Tree, n: int) -> Tree:
    """Give each of n clients a copy of a tree.

    Args:
        tree: a tree, [...].
        n: number of clients.

    Returns:
        A writable stack, [n, ...].

    Example:
        >>> from fedlib.stack import copies
        >>> stack = copies({"w": torch.zeros(2)}, 3)
        >>> stack["w"][0] = 1.0
        >>> stack["w"].sum()
        tensor(2.)
    """
    return tree_map(torch.clone, repeat(tree, n))


def own_copies(v: Tree | Shared, n: int) -> Tree:
    """Give every client a copy of a shared tree; a stack is returned unchanged.

    Args:
        v: `Shared`, or a stack, [n, ...].
        n: number of clients.

    Returns:
        A writable stack, [n, ...].

    Example:
        >>> from fedlib.stack import Shared, own_copies
        >>> own_copies(Shared({"w": torch.tensor([1.0, 2.0])}), 3)["w"].shape
        torch.Size([3, 2])
    """
    return copies(v.tree, n) if isinstance(v, Shared) else v


def take(stack: Tree, clients: Tensor) -> Tree:
    """Copy the rows of some clients.

    Args:
        stack: a stack, [n, ...].
        clients: numbers of the clients, int64 [k].

    Returns:
        A stack, [k, ...].

    Example:
        >>> from fedlib.stack import take
        >>> take({"w": torch.tensor([10.0, 11.0, 12.0])}, torch.tensor([2, 0]))
        {'w': tensor([12., 10.])}
    """
    return tree_map(lambda t: t[clients], stack)


def put(stack: Tree, clients: Tensor, rows: Tree) -> Tree:
    """Replace the rows of some clients in place: the cost depends on k, not on n.

    Args:
        stack: a stack, [n, ...]; it is changed.
        clients: numbers of the clients, int64 [k].
        rows: their new rows, a stack [k, ...].

    Returns:
        The changed stack, [n, ...].

    Example:
        >>> from fedlib.stack import put
        >>> put({"w": torch.zeros(3)}, torch.tensor([2, 0]), {"w": torch.tensor([12.0, 10.0])})
        {'w': tensor([10.,  0., 12.])}
    """
    return tree_map(lambda t, new: t.index_copy_(0, clients, new), stack, rows)


def row(stack: Tree, i: int) -> Tree:
    """Select the row of one client.

    Args:
        stack: a stack, [k, ...].
        i: position of the client in the stack.

    Returns:
        A tree, [...], of views.

    Example:
        >>> from fedlib.stack import row
        >>> row({"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}, 1)
        {'w': tensor([3., 4.])}
    """
    return tree_map(lambda t: t[i], stack)


def select(w: Params, names: Collection[str]) -> Params:
    """Keep the entries of a network whose name is in `names`.

    Args:
        w: tensors by name.
        names: names of the entries to keep.

    Returns:
        A new dict with the same tensors, in the order of `w`.

    Example:
        >>> from fedlib.stack import drop, select
        >>> w = {"weight": torch.ones(2), "bias": torch.zeros(1)}
        >>> select(w, {"bias"}), list(drop(w, {"bias"}))
        ({'bias': tensor([0.])}, ['weight'])
    """
    return {name: t for name, t in w.items() if name in names}


def drop(w: Params, names: Collection[str]) -> Params:
    """Keep the entries of a network whose name is not in `names`.

    Args:
        w: tensors by name.
        names: names of the entries to leave out.

    Returns:
        A new dict with the same tensors, in the order of `w`.

    Example:
        >>> from fedlib.stack import drop
        >>> drop({"weight": torch.ones(2), "bias": torch.zeros(1)}, {"weight"})
        {'bias': tensor([0.])}
    """
    return {name: t for name, t in w.items() if name not in names}


def cat(stacks: Sequence[Tree]) -> Tree:
    """Join stacks along the client axis.

    Args:
        stacks: stacks [k_1, ...], [k_2, ...], ... of the same structure.

    Returns:
        A stack, [k_1 + k_2 + ..., ...].

    Example:
        >>> from fedlib.stack import cat
        >>> cat([{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0])}])
        {'w': tensor([1., 2., 3.])}
    """
    return tree_map(lambda *tensors: torch.cat(tensors), *stacks)


def stack(trees: Sequence[Tree]) -> Tree:
    """Make a stack of the trees of k clients.

    Args:
        trees: k trees [...] of the same structure.

    Returns:
        A stack, [k, ...].

    Example:
        >>> from fedlib.stack import stack
        >>> stack([{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 4.0])}])["w"].shape
        torch.Size([2, 2])
    """
    return tree_map(lambda *rows: torch.stack(rows), *trees)


def mix(weights: Tensor, stack: Tree) -> Tree:
    """Compute weighted sums over the client axis.

    On a CPU, clients of a large stack whose weights are all 0 are skipped.

    Args:
        weights: weight of each client in each sum, [n] or [m, n].
        stack: a stack, [n, ...].

    Returns:
        A tree, [...], or a stack, [m, ...].

    Example:
        >>> from fedlib.stack import mix
        >>> weights = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
        >>> mix(weights, {"w": torch.tensor([1.0, 3.0])})
        {'w': tensor([2., 3.])}
    """
    n = weights.shape[-1]
    if weights.device.type == "cpu" and n >= LARGE * max(weights.numel() // n, 1):
        [used] = weights.reshape(-1, n).any(0).nonzero(as_tuple=True)
        weights, stack = weights[..., used], take(stack, used)
    return tree_map(lambda t: torch.tensordot(weights.to(t.dtype), t, dims=1), stack)


def client_mean(stack: Tree, n_samples: Tensor) -> Tree:
    """Average over clients, each weighted by its number of samples.

    Args:
        stack: a stack, [k, ...].
        n_samples: samples of each client, [k].

    Returns:
        The average, a tree, [...].

    Source:
        FedAvg, McMahan et al., AISTATS 2017, Algorithm 1.

    Example:
        >>> from fedlib.stack import client_mean
        >>> client_mean({"w": torch.tensor([0.0, 4.0])}, torch.tensor([30, 10]))
        {'w': tensor(1.)}
    """
    n_samples = n_samples.double()  # rounded once, to the dtype of the stack
    return mix(n_samples / n_samples.sum(), stack)


def uniform_mean(stack: Tree) -> Tree:
    """Average over clients, all with the same weight.

    Args:
        stack: a stack, [k, ...].

    Returns:
        The average, a tree, [...].

    Example:
        >>> from fedlib.stack import uniform_mean
        >>> uniform_mean({"w": torch.tensor([0.0, 4.0])})
        {'w': tensor(2.)}
    """
    return tree_map(lambda t: t.mean(0), stack)


def sq_distance(w: Params, anchor: Params) -> Tensor:
    """Compute the squared Euclidean distance of two networks, over the entries of `anchor`.

    Args:
        w: tensors by name; entries that `anchor` lacks are left out.
        anchor: tensors by name.

    Returns:
        The distance, a scalar tensor.

    Example:
        >>> from fedlib.stack import sq_distance
        >>> sq_distance({"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([0.0, 0.0])})
        tensor(5.)
    """
    return sum(((w[name] - t) ** 2).sum() for name, t in anchor.items())  # pyright: ignore[reportReturnType] - or 0


def n_bytes(tree: Tree) -> int:
    """Count the bytes of all tensors of a tree.

    Args:
        tree: a tree.

    Returns:
        Number of bytes.

    Example:
        >>> from fedlib.stack import n_bytes
        >>> n_bytes({"w": torch.zeros(3, 2)})  # float32
        24
    """
    return sum(t.numel() * t.element_size() for t in tree_leaves(tree))


def keys(tree: Tree) -> list[tuple[str, ...]]:
    """List the path to each tensor of a tree: names in dicts, fields of NamedTuples, positions in tuples.

    Args:
        tree: a tree.

    Returns:
        One path per tensor, in the order of the tree.

    Example:
        >>> from fedlib.stack import keys
        >>> keys({"w": torch.zeros(2), "teachers": (torch.zeros(1), torch.zeros(1))})
        [('w',), ('teachers', '0'), ('teachers', '1')]
    """
    return [tuple(str(_key(step)) for step in path) for path, _ in tree_flatten_with_path(tree)[0]]


def places(tree: Tree, names: Iterable[str]) -> dict[str, int]:
    """Find tensors of a tree by name.

    Args:
        tree: a tree.
        names: names of tensors ("fc.weight") or ends of their paths ("private/fc.weight").

    Returns:
        For each name, the position of the first tensor whose path ends in that name; missing names are left out.

    Example:
        >>> from fedlib.stack import places
        >>> places(({"b": torch.zeros(2)}, {"a": torch.zeros(1)}), ["a", "c"])
        {'a': 1}
    """
    paths = ["/" + "/".join(path) for path in keys(tree)]
    found = ((name, next((i for i, path in enumerate(paths) if path.endswith(f"/{name}")), None)) for name in names)
    return {name: i for name, i in found if i is not None}


def _key(step: object) -> str | int:
    """Name or number in one step of a PyTorch path."""
    return next(value for field in ("key", "name", "idx") if (value := getattr(step, field, None)) is not None)
