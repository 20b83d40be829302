"""The two backends by name. They train on the same batches in the same order and agree up to rounding."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from filelock import FileLock
from torch.utils._pytree import tree_map

from fedlib.engine.convolution import FORMS
from fedlib.engine.loop import train_loop
from fedlib.engine.program import CaptureError
from fedlib.engine.stacked import Stacked
from fedlib.files import write_text
from fedlib.fingerprint import Registry
from fedlib.stack import repeat
from fedlib.training.losses import cross_entropy
from fedlib.training.phase import Phase, Trainer, roles

STEPS = 20  # per client in the phase that is timed


def stacked(device: torch.device, store: Path, graphs: bool) -> Trainer:
    """The stacked backend, with the faster measured form of convolutions on a GPU, and "grouped" on a CPU."""
    return Stacked(partial(measured_form, store, graphs) if device.type == "cuda" else "grouped", graphs)


# (device, run store, graphs) -> trainer
BACKENDS: dict[str, Callable[..., Trainer]] = Registry(loop=lambda *_: train_loop, stacked=stacked)


def measured_form(store: Path, graphs: bool, phase: Phase, size: int) -> str:
    """Faster form of convolutions for a stack of `size` clients."""
    # Measured once per run store, GPU, version of torch, model and size (rounded up to a power of two), then read from
    # the store, so that runs with the same store have the same bits.
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
    """Form of convolutions (see `convolution.convolutions`) with the shorter time for a `timed_phase`."""
    # A failing form is left out, for lack of memory for example. If all fail, the first error is raised.
    seconds, errors = {}, []
    for form in FORMS:
        try:
            seconds[form] = _seconds(Stacked(form, graphs), timed_phase(phase, size))
        except CaptureError:
            raise
        except RuntimeError as error:
            errors.append(error)
    if not seconds:
        raise errors[0]
    errors.clear()  # an error keeps the memory of the failed call alive
    return min(seconds, key=seconds.get)


def timed_phase(phase: Phase, size: int) -> Phase:
    """Phase of `size` clients with `STEPS` plain SGD steps each, with the model and the images of `phase`."""
    images, width = phase.images, phase.batches[0].shape[1]
    index = torch.arange(size * STEPS * width).remainder(len(images.y)).view(size, STEPS, width)
    w = repeat(tree_map(lambda t: t.to(images.scale), phase.model.weights), size)
    return phase._replace(w=w, batches=tuple(index), loss=cross_entropy, context=(), draws=(), roles=roles(w))


def _seconds(train: Trainer, phase: Phase) -> float:
    """Shortest of three times; an earlier call captures the graphs and warms up the libraries."""

    def once() -> float:
        start = time.perf_counter()
        train(phase)[1].sum().item()  # waits for the device
        return time.perf_counter() - start

    once()
    return min(once() for _ in range(3))
