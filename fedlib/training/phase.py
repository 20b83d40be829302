"""A local phase: what the clients of a cohort are told to do between two messages to the server."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fedlib.models import Model
from fedlib.models.model import is_statistic
from fedlib.stack import Params, Tree, cat, keys
from fedlib.streams import Stream, torch_seed
from fedlib.training.batches import Images

OPTIMIZERS = ("sgd", "adam")
TRAINED, WRITTEN, FROZEN = "trained", "written", "frozen"  # what becomes of a tensor that a phase starts from
Loss = Callable[..., Tensor]  # (w, batch, *context) -> scalar, for ONE client


class Phase(NamedTuple):
    """k clients take steps of SGD, or of Adam, each on its own mini-batches."""

    model: Model
    images: Images
    loss: Loss
    w: Tree  # [k, ...]: where the clients start
    batches: tuple[Tensor, ...]  # k times int64 [steps_i, batch], on the host
    context: tuple[Tree, ...]  # stacks [k, ...]; the loss of a client sees its row
    roles: tuple[str, ...]  # of the tensors of `w`: TRAINED; WRITTEN in place by a forward pass or the loss; FROZEN
    lr: float
    stream: Stream | None  # of what the model draws at random (dropout, say); None: nothing may be drawn
    clip: float | None = None  # largest norm of a client's gradient over all that is trainable
    momentum: float = 0.0  # of SGD
    optimizer: str = "sgd"  # one of OPTIMIZERS; its moments start at zero
    draws: tuple[Params, ...] = ()  # k times {name: [steps_i, ...]}, on the host: `Batch.draws` of each step


Trainer = Callable[[Phase], tuple[Tree, Tensor]]  # -> trained stack [k, ...], mean training losses [k]


def roles(
    w: Tree, trainable: Collection[str] | None = None, written: Collection[str] = (), frozen: Collection[str] = ()
) -> tuple[str, ...]:
    """The role of each tensor of `w`: WRITTEN if it is a BatchNorm statistic or a name on the way to it is in
    `written`; else FROZEN if one is in `frozen` or none in `trainable` (default: all are); else TRAINED.
    """

    def role(way: tuple[str, ...]) -> str:
        if is_statistic(way[-1]) or any(name in written for name in way):
            return WRITTEN
        moves = trainable is None or any(name in trainable for name in way)
        return TRAINED if moves and not any(name in frozen for name in way) else FROZEN

    return tuple(map(role, keys(w)))


def kind(phase: Phase) -> tuple:
    """What phases have in common that tell their clients the same; weights, samples, rate and seed may differ."""

    def shapes(stack: Tree) -> tuple:
        return tuple((way, t.shape[1:], str(t.dtype)) for way, t in zip(keys(stack), tree_leaves(stack), strict=True))

    stacks = (phase.w, *phase.context, *phase.draws[:1])
    data = id(phase.images.x), phase.batches[0].shape[1:]
    steps = phase.roles, phase.clip, phase.momentum, phase.optimizer
    return phase.loss, phase.model.name, *data, *steps, *map(shapes, stacks)


@contextmanager
def randomness(phase: Phase) -> Iterator[None]:
    """Inside, PyTorch draws from the phase's stream; afterwards its random state is what it was before."""
    with nullcontext() if phase.stream is None else drawing(phase.stream, phase.images.y.device):
        yield


@contextmanager
def drawing(stream: Stream, device: torch.device) -> Iterator[None]:
    """Inside, PyTorch draws from `stream`, on the host and on `device`; afterwards its random state is as before."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(torch_seed(*stream))
        yield


def join(phases: Sequence[Phase]) -> Phase:
    """Several cohorts that do the same, as one: clients one after the other. Nothing may be drawn at random."""
    first = phases[0]
    return first._replace(
        w=cat([phase.w for phase in phases]),
        batches=tuple(steps for phase in phases for steps in phase.batches),
        context=cat([phase.context for phase in phases]),
        draws=tuple(own for phase in phases for own in phase.draws),
        stream=None,
    )
