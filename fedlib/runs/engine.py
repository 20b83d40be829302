"""The engine of a run: images on the device, a trainer, a clock, and the rules under which the device computes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from fedlib.data import Dataset
from fedlib.runs.setting import Setting
from fedlib.training.backends import BACKENDS
from fedlib.training.batches import Images, on_device
from fedlib.training.phase import Trainer


class Engine(NamedTuple):
    """What runs on the same data share."""

    device: torch.device
    images: Images
    trainer: Trainer


def engine(data: Dataset, own: Setting) -> Engine:
    """An engine for runs on `data` with the device, dtype and backend of `own`. Raises `ValueError` without a GPU."""
    check_device(own)
    device = torch.device(own.device)
    return Engine(device, on_device(data, device, own.torch_dtype), BACKENDS[own.backend]())


def check_device(own: Setting) -> None:
    """`ValueError` for a device that is not here."""
    if own.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' is not allowed; torch finds no GPU on this machine, use 'cpu' or 'auto'.")


@contextmanager
def rules(device: str) -> Iterator[None]:
    """Inside, the same seed gives the same bits.

    On a CPU: one thread, whatever the machine has (run several side by side with `fl.sweep`). On a GPU: full
    float32 convolutions and those of cuDNN's kernels that always add up in the same order.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if device == "cpu" else threads)
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_num_threads(threads)


def mark(device: torch.device) -> Any:
    """A moment on the device's own clock; the host does not wait for it."""
    if device.type == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds(start: Any, end: Any) -> float:
    """Between two marks; waits until the device has come to the second one."""
    if isinstance(start, float):
        return end - start
    end.synchronize()
    return start.elapsed_time(end) / 1000
