"""Determinism: settings of torch with which the same seed gives the same bits."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter

import torch

from fedlib.runs.alone import alone

PINNED = (  # module of torch.backends, name, value; they determine the bits of float32 operations
    ("cudnn", "enabled", True),
    ("cudnn", "benchmark", False),
    ("cudnn", "deterministic", True),
    ("cudnn.conv", "fp32_precision", "ieee"),  # no TF32
    ("cuda.matmul", "fp32_precision", "ieee"),
    ("mkldnn.conv", "fp32_precision", "ieee"),  # no bfloat16
    ("mkldnn.matmul", "fp32_precision", "ieee"),
)


@contextmanager
def untouched() -> Iterator[None]:
    """Context in which torch has its default settings (float32, CPU, gradients); other threads wait, see `alone`."""
    with ExitStack() as stack:
        stack.enter_context(alone())
        dtype = torch.get_default_dtype()
        stack.callback(torch.set_default_dtype, dtype)
        torch.set_default_dtype(torch.float32)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def deterministic(device: str) -> Iterator[None]:
    """Context in which the same seed gives the same bits; outer settings of torch have no effect."""
    # A CPU uses one thread on every machine. A GPU computes float32 products and convolutions without TF32, and only
    # with deterministic kernels of cuDNN. Runs of other threads wait; see `alone`.
    pinned = [(attrgetter(module)(torch.backends), name, value) for module, name, value in PINNED]
    with untouched(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop")  # a session has its own warning
        threads, before = torch.get_num_threads(), [getattr(module, name) for module, name, _ in pinned]
        torch.set_num_threads(1 if device == "cpu" else threads)
        try:
            for module, name, value in pinned:
                setattr(module, name, value)
            yield
        finally:
            for (module, name, _), value in zip(pinned, before, strict=True):
                setattr(module, name, value)
            torch.set_num_threads(threads)
