"""A clock for rounds: a GPU's own time, without waiting for it."""

import time
from typing import Any

import torch


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
