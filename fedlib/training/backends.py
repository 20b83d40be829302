"""The two backends by name: one meaning, the same batches in the same order, the same numbers up to rounding."""

import time
from collections.abc import Callable

import torch

from fedlib.fingerprint import Registry
from fedlib.stack import repeat
from fedlib.training.convolution import FORMS
from fedlib.training.loop import train_loop
from fedlib.training.losses import cross_entropy
from fedlib.training.phase import Phase, Trainer
from fedlib.training.program import CaptureError
from fedlib.training.stacked import Stacked

BACKENDS: dict[str, Callable[..., Trainer]] = Registry(loop=lambda form, graphs=True: train_loop, stacked=Stacked)
STEPS = 20  # of a sample


def faster_form(phase: Phase, size: int, graphs: bool) -> str:
    """The form of convolution (see `convolution.convolutions`) with which a `sample` is trained in less time here.

    A form that fails, for want of memory perhaps, counts as endlessly slow. Where all do, the first error is raised.
    """
    seconds, errors = {}, []
    for form in FORMS:
        try:
            seconds[form] = _seconds(Stacked(form, graphs), sample(phase, size))
        except CaptureError:
            raise
        except RuntimeError as error:
            errors.append(error)
    if not seconds:
        raise errors[0]
    errors.clear()  # they hold on to the memory of what has failed
    return min(seconds, key=seconds.get)


def sample(phase: Phase, size: int) -> Phase:
    """`size` clients who take the same number of steps on the model and the images of `phase`, and nothing else."""
    images, width = phase.images, phase.batches[0].shape[1]
    index = torch.arange(size * STEPS * width).remainder(len(images.y)).view(size, STEPS, width)
    w = repeat({name: t.to(images.scale) for name, t in phase.model.weights.items()}, size)
    told = {"loss": cross_entropy, "context": (), "draws": (), "trainable": phase.model.trainable}
    return phase._replace(w=w, batches=tuple(index), **told)


def _seconds(train: Trainer, phase: Phase) -> float:
    """The shortest of three times; before them graphs are captured, and libraries warm up."""

    def once() -> float:
        start = time.perf_counter()
        train(phase)[1].sum().item()  # waits for the device
        return time.perf_counter() - start

    once()
    return min(once() for _ in range(3))
