"""A phase: one local training of all clients of a cohort, the input of a backend."""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fedlib.models import Model
from fedlib.models.model import is_statistic
from fedlib.stack import Params, Tree, keys
from fedlib.streams import Stream, torch_seed
from fedlib.training.batches import Images

TRAINED, WRITTEN, FROZEN = "trained", "written", "frozen"  # roles of the tensors of `Phase.w`
Loss = Callable[..., Tensor]  # (w, batch, *context) -> scalar, for ONE client


class Phase(NamedTuple):
    """SGD or Adam of k clients, each on its mini-batches."""

    model: Model
    images: Images
    loss: Loss
    w: Tree  # [k, ...]: initial weights of the clients
    batches: tuple[Tensor, ...]  # k times int64 [steps_i, batch], on the host
    context: tuple[Tree, ...]  # stacks [k, ...]; the loss of a client receives its row
    roles: tuple[str, ...]  # of the tensors of `w`: TRAINED, WRITTEN in place by a forward pass or the loss, FROZEN
    lr: float
    stream: Stream | None  # of random numbers in the model, such as dropout; None: random numbers are an error
    clip: float | None = None  # largest norm of a client's gradient over all trained tensors
    momentum: float = 0.0  # of SGD
    optimizer: str = "sgd"  # or "adam"; its moments start at zero
    draws: tuple[Params, ...] = ()  # k times {name: [steps_i, ...]}, on the host: `Batch.draws` of each step
    title: str = "training"  # round and name, for error messages
    clients: tuple[int, ...] = ()  # numbers of the clients, for error messages


Trainer = Callable[[Phase], tuple[Tree, Tensor]]  # -> trained stack [k, ...], mean training losses [k]


def roles(
    w: Tree, trainable: Collection[str] | None = None, written: Collection[str] = (), frozen: Collection[str] = ()
) -> tuple[str, ...]:
    """Role of each tensor of `w`, by the names in its path."""
    # WRITTEN: BatchNorm statistics and names in `written`; then FROZEN: names in `frozen` or not in `trainable`

    def role(path: tuple[str, ...]) -> str:
        if (path and is_statistic(path[-1])) or not set(written).isdisjoint(path):
            return WRITTEN
        trained = trainable is None or not set(trainable).isdisjoint(path)
        return TRAINED if trained and set(frozen).isdisjoint(path) else FROZEN

    return tuple(map(role, keys(w)))


def kind(phase: Phase) -> tuple:
    """Key of phases that can share a `Program` and a stack: equal except for weights, samples, step size and seed."""

    def shapes(stack: Tree) -> tuple:
        return tuple((path, t.shape[1:], str(t.dtype)) for path, t in zip(keys(stack), tree_leaves(stack), strict=True))

    stacks = (phase.w, *phase.context, *phase.draws[:1])
    data = id(phase.images.x), phase.batches[0].shape[1:]
    steps = phase.roles, phase.clip, phase.momentum, phase.optimizer
    return phase.loss, phase.model.name, *data, *steps, *map(shapes, stacks)


def randomness(phase: Phase) -> AbstractContextManager[None]:
    """`drawing` from the stream of the phase, if it has one."""
    return nullcontext() if phase.stream is None else drawing(phase.stream, phase.images.y.device)


@contextmanager
def drawing(stream: Stream, device: torch.device) -> Iterator[None]:
    """Context in which PyTorch draws from `stream` on the host and on `device`; its random state is restored."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(torch_seed(*stream))
        yield
