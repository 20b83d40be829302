"""Compressed uploads: only the largest changes, with few bits."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from fedlib.algorithm import Algorithm, resolve
from fedlib.checks import Share, at_least, at_most, check_annotation
from fedlib.models.model import is_statistic
from fedlib.stack import Tree, keys
from fedlib.training.channel import Channel

INDEX = 4  # bytes of a position or a scale
CHANGES = {"scaffold": "1/"}  # beginning of the names of uploads that already are changes, by method


def compressed(algorithm: str | Algorithm, share: float = 1.0, bits: int = 32) -> Algorithm:
    """Compress the uploads of a method: clients send only the largest changes of their model, with few bits each.

    A client sends the change of its model since the download of the round. Of the entries of this change, over all
    layers together, it sends the share with the largest absolute values; the others count as zero. Each tensor is
    rounded to `bits` bits, uniformly between minus and plus its largest absolute value. A tensor that the client did
    not receive in the round, such as prototypes or a personal classifier, is sent uncompressed, and so is one that it
    received in several versions, as in FedFomo and IFCA. SCAFFOLD's update of the control variate already is a change.
    Omitted changes are not added to later ones.

    `bytes_up` counts four bytes for each position and for the scale of each tensor. With `share=1` and `bits=32` the
    result is the method itself.

    Args:
        algorithm: the method, or its name.
        share: share of the changes that are sent, in (0, 1].
        bits: bits for each number, 2 to 16, or 32.

    Returns:
        The method, with `+compressed` after its name.

    Raises:
        ValueError: an argument is not allowed, or the method is compressed already.

    Source:
        Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017 (the share, without its
        residuals); Alistarh et al., "QSGD", NeurIPS 2017 (the uniform levels, here with rounding to the nearest).

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.iid(), clients=3)
        >>> sent = [fl.run(method, federation, rounds=1, progress=False).rounds["bytes_up"].item()
        ...         for method in ("fedavg", fl.compressed("fedavg", share=0.1, bits=8))]
        >>> round(sent[0] / sent[1])
        8
    """
    method = resolve(algorithm)
    if "upload_share" in method.hyper:
        raise ValueError("compressed(compressed(...)) is not allowed; give both arguments to one compressed().")
    share = check_annotation("share", share, Share)
    if bits != 32:
        bits = check_annotation("bits", bits, Annotated[int, at_least(2), at_most(16)])

    changes = next((CHANGES[made.__name__] for made in method.made_of if made.__name__ in CHANGES), "")  # also inside

    def round(state, cohort):
        return method.round(state, replace(cohort, channel=Lossy(cohort.channel, share, bits, changes)))

    hyper = method.hyper | {"upload_share": share, "upload_bits": bits}
    made_of = (compressed, *method.made_of)
    return method._replace(name=f"{method.name}+compressed", round=round, hyper=hyper, made_of=made_of)


class Lossy(Channel):
    """A channel that compresses the uploads as changes of the downloads; `inner` counts the bytes."""

    def __init__(self, inner: Channel, share: float, bits: int, changes: str = ""):
        super().__init__(inner.statistics)
        self.inner, self.share, self.bits, self.changes = inner, share, bits, changes
        self.received: dict[str, tuple[Tensor, bool]] = {}  # last tensors received, and True if all clients got one

    def down(self, tree: Tree, times: int = 1) -> Tree:
        """Send to the clients; the last tensor of a name is the reference for its upload."""
        for path, t in zip(keys(tree), tree_leaves(tree), strict=True):
            self.received["/".join(path)] = t, times > 1
        return self.inner.down(tree, times)

    def reference(self, path: str, t: Tensor) -> Tensor | float | None:
        """What a client received in the place of `t` [k, ...], by its path or the last part of it; 0 for a change."""
        known = self.received.get(path) or self.received.get(path.rpartition("/")[2])
        hidden = is_statistic(path.rpartition("/")[2]) and not self.statistics
        if known is None or hidden or not t.is_floating_point():
            return None
        base, common = known
        fits = base.shape == t.shape[1:] or (base.shape == t.shape and not common)
        return None if not fits else 0.0 if self.changes and path.startswith(self.changes) else base

    def up(self, tree: Tree) -> Tree:
        """Receive `tree` [k, ...] from the clients, with compressed changes."""
        (leaves, structure), paths = tree_flatten(tree), ["/".join(path) for path in keys(tree)]
        found = enumerate(map(self.reference, paths, leaves))
        bases = {i: base for i, base in found if base is not None}  # by position: the reference of the change
        self.inner.up({path: leaves[i] for i, path in enumerate(paths) if i not in bases})
        if bases:
            changes = [leaves[i] - base for i, base in bases.items()]
            sparse, n_bytes = largest(changes, self.share, self.bits)
            self.inner.bytes_up += n_bytes
            for (i, base), change in zip(bases.items(), sparse, strict=True):
                leaves[i] = leaves[i] if self.share == 1 and self.bits == 32 else base + change
        return tree_unflatten(leaves, structure)


def largest(changes: Sequence[Tensor], share: float, bits: int) -> tuple[list[Tensor], int]:
    """The largest changes [k, ...] of each client, rounded, with zeros elsewhere; and the bytes of all clients."""
    k, sizes = len(changes[0]), [t[0].numel() for t in changes]
    kept = math.ceil(share * sum(sizes))
    flat = torch.cat([t.reshape(k, -1) for t in changes], 1)  # [k, n]
    if share < 1:
        index = flat.abs().topk(kept, 1).indices
        flat = torch.zeros_like(flat).scatter(1, index, flat.gather(1, index))
    parts = [part.view_as(t) for part, t in zip(flat.split(sizes, 1), changes, strict=True)]
    parts = parts if bits == 32 else [rounded(part, bits) for part in parts]
    one = math.ceil(kept * (changes[0].element_size() * 8 if bits == 32 else bits) / 8)
    one += INDEX * kept * (share < 1) + INDEX * len(sizes) * (bits < 32)
    return parts, k * one


def rounded(t: Tensor, bits: int) -> Tensor:
    """Rows of t [k, ...], rounded to 2^bits - 1 equidistant levels between -m and m, their largest absolute value."""
    steps = 2 ** (bits - 1) - 1
    scale = t.abs().flatten(1).amax(1).clamp(min=torch.finfo(t.dtype).tiny) / steps
    scale = scale.view(-1, *[1] * (t.dim() - 1))
    return (t / scale).round() * scale
