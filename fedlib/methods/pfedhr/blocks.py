"""Layer-wise decomposition (pFedHR, section 3.1.2): a sequential network as a list of operation blocks."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedlib.models import Model
from fedlib.stack import Params

CONV, FC = 0, 1  # operation types, in the order in which a network may have them
OPERATIONS = {nn.Conv2d: CONV, nn.Linear: FC}
DROPOUT = nn.modules.dropout._DropoutNd
TYPES = ("Conv", "FC")  # their names


class Block(NamedTuple):
    """One convolution or linear layer with all that follows until the next one: BatchNorm, ReLU, pooling.

    Dropout stays behind: it belongs to the training of the whole network. `h` counts from 1. `names` says what an entry
    of `net` is called in the whole model. Shapes are those of one sample; a flattening before the first linear layer
    belongs to that block, whose `in_shape` is still [C, H, W]. The last linear block is the head: it answers logits.
    """

    h: int
    op: int
    net: nn.Sequential
    names: dict[str, str]
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    head: bool

    @property
    def width(self) -> int:
        """What a stitch in front of the block must answer: input channels, or features."""
        return next(layer for layer in self.net if type(layer) in OPERATIONS).weight.shape[1]

    def weights(self, w: Params) -> Params:
        """The block's entries of a whole model, under their names in `net`."""
        return {name: w[whole] for name, whole in self.names.items()}

    def __call__(self, w: Params, x: Tensor) -> Tensor:
        """What the block answers, with its entries of the whole model `w`, to x [batch, *in_shape]."""
        return functional_call(self.net, self.weights(w), (x,))


def decompose(model: Model) -> list[Block]:
    """The blocks of a network in their order. Raises `ValueError` unless it is one sequence of Conv2d and Linear
    layers, BatchNorm, and layers without weights.
    """
    cuts: list[list[tuple[str, nn.Module]]] = []
    for name, layer in _layers(model, model.net):
        complete = cuts and any(type(own) in OPERATIONS for _, own in cuts[-1])
        if not cuts or isinstance(layer, nn.Flatten) or (complete and type(layer) in OPERATIONS):
            cuts.append([])
        cuts[-1].append((name, layer))

    blocks, x = [], next(iter(model.weights.values())).new_zeros(1, *model.shape)
    model.net.eval()
    for h, cut in enumerate(cuts, 1):
        [op] = [OPERATIONS[type(layer)] for _, layer in cut if type(layer) in OPERATIONS]
        net = nn.Sequential(*(layer for _, layer in cut))
        names = {f"{i}.{entry}": f"{name}.{entry}" for i, (name, layer) in enumerate(cut) for entry in _entries(layer)}
        block = Block(h, op, net, names, tuple(x.shape[1:]), (), op == FC and h == len(cuts))
        with torch.no_grad():
            x = block(model.weights, x)
        blocks.append(block._replace(out_shape=tuple(x.shape[1:])))
    return blocks


def block_names(blocks: list[Block]) -> list[str]:
    """As the paper counts them, each type for itself: Conv1, Conv2, FC1, ..."""
    return [f"{TYPES[block.op]}{sum(own.op == block.op for own in blocks[: block.h])}" for block in blocks]


@torch.no_grad()
def outputs(blocks: list[Block], w: Params, x: Tensor) -> list[Tensor]:
    """What every block of one network answers in evaluation mode to images x [n, C, H, W]: [n, *out_shape] each."""
    answers = []
    for block in blocks:
        block.net.eval()
        x = block(w, x)
        answers.append(x)
    return answers


def _entries(layer: nn.Module) -> list[str]:
    return list(layer.state_dict())


def _layers(model: Model, net: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers inside nested sequences, by name, without dropout."""
    if not isinstance(net, nn.Sequential):
        raise ValueError(f"model={model.name!r} cannot be taken apart; only a sequence of layers can.")
    for name, layer in net.named_children():
        if isinstance(layer, nn.Sequential):
            yield from _layers(model, layer, f"{prefix}{name}.")
        elif isinstance(layer, DROPOUT):
            continue
        elif type(layer) in (*OPERATIONS, nn.BatchNorm2d) or not list(layer.state_dict()):
            yield f"{prefix}{name}", layer
        else:
            kind = type(layer).__name__
            raise ValueError(f"model={model.name!r} cannot be taken apart; {prefix}{name} is a {kind}, no known layer.")
