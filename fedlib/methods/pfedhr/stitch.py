"""Stitching (pFedHR, section 3.1.3, reading A12): small layers between blocks of different networks."""

import copy
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedlib.methods.pfedhr.blocks import CONV, Block
from fedlib.models import Model, build
from fedlib.stack import Params
from fedlib.streams import Stream
from fedlib.training.batches import to_device

LARGEST = 4  # pixels: the largest side of a feature map that a stitch flattens


class Resize(nn.Module):
    """Resize feature maps [batch, C, *size] to [batch, C, *to]: adaptive average pooling, or linear interpolation.

    Both are products with a matrix, so that derivatives are reproducible to the bit.
    """

    def __init__(self, size: tuple[int, int], to: tuple[int, int]):
        super().__init__()
        self.sides = [_resizing(*side) for side in zip(size, to, strict=True)]

    def forward(self, x: Tensor) -> Tensor:
        self.sides = [to_device(side, x.device).to(x.dtype) for side in self.sides]  # moved once
        rows, columns = self.sides
        return rows @ x @ columns.T


def _resizing(size: int, to: int) -> Tensor:
    """Matrix [to, size] that resizes one side."""
    one = torch.eye(size, dtype=torch.float64)[None]  # [1, size, size]
    pooled = F.adaptive_avg_pool1d(one, to) if to <= size else F.interpolate(one, to, mode="linear")
    return pooled[0].T


class Link(NamedTuple):
    """A block, and the position `b` of its network in the pool."""

    b: int
    block: Block


def stitch(shape: tuple[int, ...], block: Block, depth: int, relu: bool = True) -> nn.Sequential:
    """Stitch of `depth` linear maps, with or without ReLU, from an output of `shape` to the input of a block."""
    # Before a convolution: 1x1 convolutions on feature maps resized to the block's size. Before a linear layer: feature
    # maps are pooled to at most 4x4 pixels and flattened. The first map has (d_i + 1) d_j parameters from d_i to d_j
    # features.
    width, layers = block.width, []
    if block.op == CONV:
        size = tuple(block.in_shape[1:])
        layers += [Resize(shape[1:], size)] if shape[1:] != size else []
        kind, n = lambda a, b: nn.Conv2d(a, b, 1), shape[0]
    else:
        if len(shape) == 3:
            side = min(LARGEST, *shape[1:])
            layers += [Resize(shape[1:], (side, side))] if shape[1:] != (side, side) else []
            layers += [nn.Flatten()]
            shape = (shape[0] * side * side,)
        kind, n = nn.Linear, shape[0]
    for _ in range(depth):
        layers += [kind(n, width), *([nn.ReLU()] if relu else [])]
        n = width
    return nn.Sequential(*layers)


def assemble(
    chain: Sequence[Link], uploads: Sequence[Params], like: Model, depth: int, stream: Stream, relu: bool = True
) -> Model:
    """Stitch a chain of blocks together into a candidate, with copies of the weights of the networks in the pool."""
    # Consecutive blocks of a network need no stitch, nor does a first block; a new classifier follows a last block
    # without logits.

    def builder(shape, n_classes):
        layers, before = [], None
        for position, (b, block) in enumerate(chain, 1):
            native = block.h == 1 if before is None else (before.b, before.block.h + 1) == (b, block.h)
            if not native:
                ends = before.block.out_shape if before else shape
                layers.append((f"stitch{position}", stitch(ends, block, depth, relu)))
            layers.append((f"block{position}", copy.deepcopy(block.net)))
            before = chain[position - 1]
        if not before.block.head:
            layers.append(("classifier", nn.Linear(before.block.out_shape[0], n_classes)))
        return nn.Sequential(OrderedDict(layers))

    first = next(iter(like.weights.values()))
    model = build("candidate", builder, like.shape, like.n_classes, *stream)
    copied = {
        f"block{position}.{name}": t
        for position, (b, block) in enumerate(chain, 1)
        for name, t in block.weights(uploads[b]).items()
    }
    weights = {name: to_device(t.detach(), first.device) for name, t in (model.weights | copied).items()}
    return model._replace(weights={name: t.to(first.dtype, copy=True) for name, t in weights.items()})


def added(model: Model) -> int:
    """Number of parameters of a candidate outside its blocks: stitches and new classifier."""
    return sum(t.numel() for name, t in model.weights.items() if not name.startswith("block"))
