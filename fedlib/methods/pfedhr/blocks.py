"""Layer-wise decomposition (pFedHR, section 3.1.2): a sequential network as a list of operation blocks."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedlib.models import Model
from fedlib.stack import Params

CONV, FC = 0, 1  # operation types, in their order in a network
OPERATIONS = {nn.Conv2d: CONV, nn.Linear: FC}
DROPOUT = nn.modules.dropout._DropoutNd
TYPES = ("Conv", "FC")  # names of the types


class Block(NamedTuple):
    """One convolution or linear layer with the layers up to the next one: BatchNorm, ReLU, pooling.

    Dropout is left out: it belongs to the training of the whole network. A flattening before the first linear layer
    belongs to that block, whose `in_shape` is still [C, H, W].
    """

    h: int  # depth in its network, from 1
    op: int  # type of its operation, CONV or FC
    net: nn.Sequential
    names: dict[str, str]  # name in the whole model of each entry of `net`
    in_shape: tuple[int, ...]  # of one sample
    out_shape: tuple[int, ...]
    head: bool  # True for the last linear block, whose outputs are logits

    @property
    def width(self) -> int:
        """Number of input channels, or features."""
        return next(layer for layer in self.net if type(layer) in OPERATIONS).weight.shape[1]

    def weights(self, w: Params) -> Params:
        """The block's entries of a whole model, under their names in `net`."""
        return {name: w[whole] for name, whole in self.names.items()}

    def __call__(self, w: Params, x: Tensor) -> Tensor:
        """Apply the block, with its entries of the whole model `w`, to x [batch, *in_shape]."""
        return functional_call(self.net, self.weights(w), (x,))


def decompose(model: Model) -> list[Block]:
    """Cut a network into blocks; `ValueError` unless it is one sequence of layers with known operations.

    Example:
        >>> from fedlib.methods.pfedhr import block_names, decompose
        >>> from fedlib.models import MODELS, build
        >>> block_names(decompose(build("m1", MODELS["m1"], (3, 32, 32), 10, seed=0)))
        ['Conv1', 'Conv2', 'FC1', 'FC2']
    """
    if len(model.net.state_dict()) > len(model.weights):
        raise ValueError(f"model={model.name!r} cannot be cut into blocks; some of its layers share weights.")
    cuts: list[list[tuple[str, nn.Module]]] = []
    for name, layer in _layers(model, model.net):
        complete = cuts and any(type(last) in OPERATIONS for _, last in cuts[-1])
        if not cuts or isinstance(layer, nn.Flatten) or (complete and type(layer) in OPERATIONS):
            cuts.append([])
        cuts[-1].append((name, layer))

    blocks, x = [], next(iter(model.weights.values())).new_zeros(1, *model.shape)
    model.net.eval()
    for h, cut in enumerate(cuts, 1):
        [op] = [OPERATIONS[type(layer)] for _, layer in cut if type(layer) in OPERATIONS]
        net = nn.Sequential(*(layer for _, layer in cut))
        names = {f"{i}.{e}": f"{name}.{e}" for i, (name, layer) in enumerate(cut) for e in layer.state_dict()}
        block = Block(h, op, net, names, tuple(x.shape[1:]), (), op == FC and h == len(cuts))
        with torch.no_grad():
            x = block(model.weights, x)
        blocks.append(block._replace(out_shape=tuple(x.shape[1:])))
    return blocks


def block_names(blocks: list[Block]) -> list[str]:
    """Names of the blocks of a network as in the paper, such as Conv1, Conv2, FC1."""
    return [f"{TYPES[block.op]}{sum(b.op == block.op for b in blocks[: block.h])}" for block in blocks]


@torch.no_grad()
def outputs(blocks: list[Block], w: Params, x: Tensor) -> list[Tensor]:
    """Outputs of all blocks of a network for images x [n, C, H, W], in evaluation mode: [n, *out_shape] each."""
    answers = []
    for block in blocks:
        block.net.eval()
        x = block(w, x)
        answers.append(x)
    return answers


def _layers(model: Model, net: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers inside nested sequences, by name, without dropout."""
    if not isinstance(net, nn.Sequential):
        raise ValueError(f"model={model.name!r} cannot be cut into blocks; it is not a sequence of layers.")
    for name, layer in net._modules.items():  # `named_children` leaves out repeated layers
        if isinstance(layer, nn.Sequential):
            yield from _layers(model, layer, f"{prefix}{name}.")
        elif isinstance(layer, DROPOUT):
            continue
        elif type(layer) in (*OPERATIONS, nn.BatchNorm2d) or not list(layer.state_dict()):
            yield f"{prefix}{name}", layer
        else:
            kind = type(layer).__name__
            raise ValueError(f"model={model.name!r} cannot be cut into blocks; {prefix}{name} is an unknown {kind}.")
