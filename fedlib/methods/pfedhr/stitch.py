"""Stitching (pFedHR, section 3.1.3, reading A12): small layers between blocks that were not made for each other."""

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

LARGEST = 4  # side of a feature map, in pixels, that a stitch flattens


class Resize(nn.Module):
    """[batch, C, *size] -> [batch, C, *to]: adaptive average pooling along a side that shrinks, else bilinear.

    Both are products with a matrix, here written as such: their derivatives give the same bits every time.
    """

    def __init__(self, size: tuple[int, int], to: tuple[int, int]):
        super().__init__()
        self.sides = [_resizing(*both) for both in zip(size, to, strict=True)]

    def forward(self, x: Tensor) -> Tensor:
        self.sides = [to_device(side, x.device).to(x.dtype) for side in self.sides]  # where they stay
        rows, columns = self.sides
        return rows @ x @ columns.T


def _resizing(size: int, to: int) -> Tensor:
    """The matrix [to, size] that resizes one side."""
    one = torch.eye(size, dtype=torch.float64)[None]  # [1, size, size]
    pooled = F.adaptive_avg_pool1d(one, to) if to <= size else F.interpolate(one, to, mode="linear")
    return pooled[0].T


class Link(NamedTuple):
    """A block of the network at place `b` of the pool."""

    b: int
    block: Block


def stitch(shape: tuple[int, ...], block: Block, depth: int, relu: bool = True) -> nn.Sequential:
    """Layers from answers of `shape` to what `block` takes: `depth` linear maps, each with a ReLU, or none with one.

    Between convolutions they are 1x1 convolutions on maps resized to the block's; before a linear layer maps are
    pooled to 4x4 pixels at most and flattened. The first map has (d_i + 1) d_j parameters.
    """
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


def classifier(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Logits for a candidate without a head."""
    return nn.Linear(shape[0], n_classes)


def assemble(
    chain: Sequence[Link], uploads: Sequence[Params], like: Model, depth: int, stream: Stream, relu: bool = True
) -> Model:
    """The stitched candidate with copies of the weights in `uploads` [b]; stitches are drawn from `stream`.

    Neighbours in their own network need no stitch, nor does a first block before the images; the last block is
    followed by a new classifier unless it is a head. `like` is a model for the same images.
    """

    def builder(shape, n_classes):
        layers, before = [], None
        for place, (b, block) in enumerate(chain, 1):
            native = block.h == 1 if before is None else (before.b, before.block.h + 1) == (b, block.h)
            if not native:
                ends = before.block.out_shape if before else shape
                layers.append((f"stitch{place}", stitch(ends, block, depth, relu)))
            layers.append((f"block{place}", copy.deepcopy(block.net)))
            before = chain[place - 1]
        if not before.block.head:
            layers.append(("classifier", classifier(before.block.out_shape, n_classes)))
        return nn.Sequential(OrderedDict(layers))

    first = next(iter(like.weights.values()))
    model = build("candidate", builder, like.shape, like.n_classes, *stream)
    own = {
        f"block{place}.{name}": t
        for place, (b, block) in enumerate(chain, 1)
        for name, t in block.weights(uploads[b]).items()
    }
    weights = model.weights | own
    there = {name: to_device(t.detach(), first.device) for name, t in weights.items()}
    return model._replace(weights={name: t.to(first.dtype, copy=True) for name, t in there.items()})


def added(model: Model) -> int:
    """Parameters of a candidate that belong to no block: its stitches and its new classifier."""
    return sum(t.numel() for name, t in model.weights.items() if not name.startswith("block"))
