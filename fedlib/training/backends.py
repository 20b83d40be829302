"""The two backends by name: one meaning, the same batches in the same order, the same numbers up to rounding."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from filelock import FileLock
from torch.utils._pytree import tree_map

from fedlib.files import write_text
from fedlib.fingerprint import Registry
from fedlib.stack import repeat
from fedlib.training.convolution import FORMS
from fedlib.training.loop import train_loop
from fedlib.training.losses import cross_entropy
from fedlib.training.phase import Phase, Trainer, roles
from fedlib.training.program import CaptureError
from fedlib.training.stacked import Stacked

STEPS = 20  # of a sample


def stacked(device: torch.device, store: Path, graphs: bool) -> Trainer:
    """On a GPU with the faster form of convolutions; on a CPU "grouped" is several times faster."""
    return Stacked(partial(measured_form, store, graphs) if device.type == "cuda" else "grouped", graphs)


# (device, run store, graphs) -> trainer
BACKENDS: dict[str, Callable[..., Trainer]] = Registry(loop=lambda *_: train_loop, stacked=stacked)


def measured_form(store: Path, graphs: bool, phase: Phase, size: int) -> str:
    """Measured once per store, GPU, version, model and size of the stack, then read: the same store, the same bits.

    A size counts as the next power of two, so that few are measured.
    """
    gpu, shape = torch.cuda.get_device_name(phase.images.y.device), "x".join(map(str, phase.images.x.shape[1:]))
    size = 1 << (size - 1).bit_length()
    case = f"{gpu}, torch {torch.__version__}, {phase.model.name} {shape}, {size} clients"
    store.mkdir(parents=True, exist_ok=True)
    path = store / "convolutions.json"
    with FileLock(path.with_suffix(".lock")):
        known = json.loads(path.read_text()) if path.exists() else {}
        if case not in known:
            known[case] = faster_form(phase, size, graphs)
            write_text(path, json.dumps(known, indent=2) + "\n")
    return known[case]


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
    w = repeat(tree_map(lambda t: t.to(images.scale), phase.model.weights), size)
    told = {"loss": cross_entropy, "context": (), "draws": (), "roles": roles(w)}
    return phase._replace(w=w, batches=tuple(index), **told)


def _seconds(train: Trainer, phase: Phase) -> float:
    """The shortest of three times; before them graphs are captured, and libraries warm up."""

    def once() -> float:
        start = time.perf_counter()
        train(phase)[1].sum().item()  # waits for the device
        return time.perf_counter() - start

    once()
    return min(once() for _ in range(3))
