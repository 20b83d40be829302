"""A local phase: what the clients of a cohort are told to do between two messages to the server."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from fedlib.models import Model
from fedlib.stack import Params
from fedlib.streams import Stream, torch_seed
from fedlib.training.batches import Images

OPTIMIZERS = ("sgd", "adam")
Loss = Callable[..., Tensor]  # (w, batch, *context) -> scalar, for ONE client


class Phase(NamedTuple):
    """k clients take steps of SGD, or of Adam, each on its own mini-batches."""

    model: Model
    images: Images
    loss: Loss
    w: Params  # [k, ...]: where the clients start
    batches: tuple[Tensor, ...]  # k times int64 [steps_i, batch], on the host
    context: tuple[Params, ...]  # stacks [k, ...]; the loss of a client sees its row
    trainable: tuple[str, ...]
    lr: float
    stream: Stream | None  # of what the model draws at random (dropout, say); None: nothing may be drawn
    clip: float | None = None  # largest norm of a client's gradient over all that is trainable
    momentum: float = 0.0  # of SGD
    optimizer: str = "sgd"  # one of OPTIMIZERS; its moments start at zero
    draws: tuple[Params, ...] = ()  # k times {name: [steps_i, ...]}, on the host: `Batch.draws` of each step


Trainer = Callable[[Phase], tuple[Params, Tensor]]  # -> trained stack [k, ...], mean training losses [k]


def kind(phase: Phase) -> tuple:
    """What phases have in common that tell their clients the same; weights, samples, rate and seed may differ."""

    def shapes(stack: Params) -> tuple:
        return tuple(sorted((name, t.shape[1:], str(t.dtype)) for name, t in stack.items()))

    stacks = (phase.w, *phase.context, *phase.draws[:1])
    data = id(phase.images.x), phase.batches[0].shape[1:]
    steps = phase.trainable, phase.clip, phase.momentum, phase.optimizer
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
        w=_cat([phase.w for phase in phases]),
        batches=tuple(steps for phase in phases for steps in phase.batches),
        context=tuple(map(_cat, zip(*(phase.context for phase in phases), strict=True))),
        draws=tuple(own for phase in phases for own in phase.draws),
        stream=None,
    )


def _cat(stacks: Sequence[Params]) -> Params:
    return {name: torch.cat([stack[name] for stack in stacks]) for name in stacks[0]}
