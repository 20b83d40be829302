"""The engine of a run: images on the device, a trainer, and the rules under which the device computes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path

import torch
from filelock import FileLock

from fedlib.data import Dataset
from fedlib.files import write_text
from fedlib.runs.plan import Plan
from fedlib.runs.setting import Setting
from fedlib.runs.store import store_root
from fedlib.training.backends import BACKENDS, faster_form
from fedlib.training.batches import Images, beside, on_device
from fedlib.training.phase import Phase, Trainer


@dataclass(frozen=True)
class Engine:
    """What runs on the same data share."""

    device: torch.device
    images: Images
    trainer: Trainer
    placed: dict[str, Images] = field(default_factory=dict)  # by fingerprint

    def beside(self, data: Dataset) -> Images:
        """`data` on the device, normalised as `images` are: put there once, so that programs on it are used again."""
        if data.fingerprint not in self.placed:
            self.placed[data.fingerprint] = beside(self.images, data)
        return self.placed[data.fingerprint]


def engine(plan: Plan, store: str | Path | None = None) -> Engine:
    """An engine for `plan`, and for others with its data, model and setting. Raises `ValueError` without a GPU."""
    own = plan.setting
    check_device(own)
    device = torch.device(own.device)
    images = on_device(plan.federation.data, device, own.torch_dtype, own.pixels)
    measured = device.type == "cuda" and own.backend == "stacked"  # on a CPU "grouped" is several times faster
    form = partial(_faster_form, store_root(store), own.graphs) if measured else "grouped"
    return Engine(device, images, BACKENDS[own.backend](form, own.graphs))


def _faster_form(store: Path, graphs: bool, phase: Phase, size: int) -> str:
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


def check_device(own: Setting) -> None:
    """`ValueError` for a device that is not here."""
    if own.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' is not allowed; torch finds no GPU on this machine, use 'cpu' or 'auto'.")


PINNED = (  # place in torch.backends, name, value: what decides the bits of a float32 product or convolution on a GPU
    ("cudnn", "enabled", True),
    ("cudnn", "benchmark", False),
    ("cudnn", "deterministic", True),
    ("cudnn.conv", "fp32_precision", "ieee"),  # no TF32
    ("cuda.matmul", "fp32_precision", "ieee"),
)


@contextmanager
def rules(device: str) -> Iterator[None]:
    """Inside, the same seed gives the same bits.

    On a CPU: one thread, whatever the machine has (run several side by side with `fl.sweep`). On a GPU: full
    float32 products and convolutions, and those of cuDNN's kernels that always add up in the same order.
    """
    pinned = [(attrgetter(place)(torch.backends), name, value) for place, name, value in PINNED]
    threads, before = torch.get_num_threads(), [getattr(where, name) for where, name, _ in pinned]
    torch.set_num_threads(1 if device == "cpu" else threads)
    try:
        for where, name, value in pinned:
            setattr(where, name, value)
        yield
    finally:
        for (where, name, _), value in zip(pinned, before, strict=True):
            setattr(where, name, value)
        torch.set_num_threads(threads)
