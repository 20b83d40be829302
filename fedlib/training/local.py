"""Local training: SGD or Adam of each client of a cohort on its training samples."""

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedlib.stack import Params, Tree
from fedlib.streams import generator
from fedlib.training.batches import client_batches
from fedlib.training.cohort import Cohort
from fedlib.training.phase import TRAINED, Loss, Phase, roles

Draws = Callable[[np.random.Generator, int, int], dict[str, np.ndarray]]  # (rng, client, steps) -> {name: [steps, ...]}


def train(
    cohort: Cohort,
    loss: Loss,
    w: Tree,
    *context: Tree,
    name: str = "local",
    epochs: Iterable[int] | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    trainable: Collection[str] | None = None,
    written: Collection[str] = (),
    lr: float | None = None,
    clip: float | None = None,
    samples: Sequence[np.ndarray] | None = None,
    batches_per_step: int = 1,
    repeats: int = 1,
    draws: Draws | None = None,
) -> Tree:
    """Train the model of each client on the client's training samples with the run's optimiser: [k, ...] -> [k, ...].

    Args:
        cohort: the clients.
        loss: `loss(w, batch, *context)` returns the loss of ONE client, a scalar. Define it once, outside `round`, and
            pass changing values as context: a GPU compiles every new function, and seeds share a stack only with the
            same function. It must not draw random numbers; see `draws`.
        w: the weights that the clients start from, a stack [k, ...].
        context: stacks [k, ...]; the loss of a client receives its row of each stack.
        name: name of the random stream of the mini-batches. Several trainings of one round on the same epochs need
            different names to get different batches.
        epochs: numbers of the epochs in that stream (default: all local epochs): training over range(0, 4) and then
            over range(4, 5) takes the same batches as over range(0, 5).
        steps: maximum number of steps of a client (default: no limit).
        batch_size: samples per mini-batch (default: the run's).
        trainable: names of the entries or fields of `w` that the optimiser moves (default: all). BatchNorm statistics
            are updated by every forward pass.
        written: names of the entries or fields of `w` that the loss itself writes, in place.
        lr: step size (default: the run's).
        clip: maximum norm of the gradient of all trainable entries (default: no limit).
        samples: indices to train on, k times int64 [n_i] (default: the client's training samples).
        batches_per_step: number of consecutive mini-batches of an epoch that form one step; `batch.split(n)` separates
            them. Remaining mini-batches are dropped; a client with fewer takes one step per epoch.
        repeats: number of consecutive times that each step is taken.
        draws: `draws(rng, client, steps)` draws the random numbers of a loss beforehand, {name: [steps, ...]}, on the
            host, from a stream of this round, client and training; `batch.draws` holds the numbers of the step.

    Returns:
        The trained stack [k, ...]. The mean training losses [k] are appended to `cohort.losses`.
    """
    number, local = len(cohort.losses), cohort.local
    index = batches(cohort, epochs, samples, batch_size, batches_per_step, name)
    index = tuple(i[:steps].repeat_interleave(repeats, 0) for i in index)
    start = cohort.with_statistics(w)
    phase = Phase(
        model=cohort.model,
        images=cohort.images,
        loss=loss,
        w=start,
        batches=index,
        context=context,
        roles=roles(start, trainable, written, cohort.model.frozen),
        lr=local.lr if lr is None else lr,
        stream=(*cohort.stream, "dropout", number),
        clip=clip,
        momentum=local.momentum,
        optimizer=local.optimizer,
        draws=_drawn(cohort, draws, index, number),
        title=f"round {cohort.round + 1}, {cohort.purpose}, {name!r}",
        clients=tuple(cohort.ids.tolist()),
    )
    _check_trained(phase)
    trained, losses = cohort.trainer(phase)
    cohort.losses.append(losses)
    cohort.keep_statistics(trained)
    return trained


def _check_trained(phase: Phase) -> None:
    """Raise `ValueError` if a training with steps has no weight to move."""
    if TRAINED not in phase.roles and any(map(len, phase.batches)):
        raise ValueError(
            f"model={phase.model.name!r} has no weight for this training; the method trains the layers before the "
            f"last one, or a part of the model that this one lacks."
        )


def batches(
    cohort: Cohort,
    epochs: Iterable[int] | None = None,
    samples: Sequence[np.ndarray] | None = None,
    batch_size: int | None = None,
    batches_per_step: int = 1,
    name: str = "local",
) -> tuple[Tensor, ...]:
    """Mini-batches of `train` with the same arguments: k times int64 [steps_i, batch], on the host."""
    epochs = list(range(cohort.local.epochs) if epochs is None else epochs)
    samples, size = samples or cohort.samples, batch_size or cohort.local.batch_size
    return tuple(
        client_batches(index, epochs, size, (*cohort.stream, "batches", i, name), batches_per_step)
        for i, index in zip(cohort.ids.tolist(), samples, strict=True)
    )


def _drawn(cohort: Cohort, draws: Draws | None, index: Sequence[Tensor], number: int) -> tuple[Params, ...]:
    """Random numbers of the round's local training `number` as tensors, floats in the dtype of the images."""
    if draws is None:
        return ()
    dtype, drawn = cohort.images.scale.dtype, []
    for i, steps in zip(cohort.ids.tolist(), index, strict=True):
        arrays = draws(generator(*cohort.stream, "draws", i, number), i, len(steps))
        tensors = {name: torch.as_tensor(array) for name, array in arrays.items()}
        drawn.append({name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()})
    return tuple(drawn)
