"""The two backends by name. They train on the same batches in the same order and agree up to rounding."""

import json
import math
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from filelock import FileLock
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedlib.engine.begun import begin
from fedlib.engine.convolution import GROUPED, convolutions, forms_of, layers_of
from fedlib.engine.loop import train_loop
from fedlib.engine.program import FUSED, PLAIN, CaptureError, Forms, Layers, Program, captured
from fedlib.engine.stacked import Stacked
from fedlib.files import write_text
from fedlib.fingerprint import Registry
from fedlib.training.phase import Phase, Trainer

device_idle = torch.cuda.synchronize  # waits for all streams, on which other runs may train
STEPS = 20  # gradients of a layer, or steps, that are timed together


def stacked(device: torch.device, store: Path, graphs: bool) -> Trainer:
    """The stacked backend, with the fastest measured forms on a GPU, and "grouped" convolutions on a CPU."""
    return Stacked(partial(measured_forms, store, graphs) if device.type == "cuda" else GROUPED, graphs)


# (device, run store, graphs) -> trainer
BACKENDS: dict[str, Callable[..., Trainer]] = Registry(loop=lambda *_: train_loop, stacked=stacked)


def measured_forms(store: Path, graphs: bool, phase: Phase, size: int) -> Forms:
    """Fastest form of each convolution, and of the rest of a step, for a stack of `size` clients."""
    # Measured once per run store, GPU, version of torch, model and size (rounded up to a power of two), then read from
    # the store, so that runs with the same store have the same bits.
    gpu, shape = torch.cuda.get_device_name(phase.images.y.device), "x".join(map(str, phase.images.x.shape[1:]))
    size = 1 << (size - 1).bit_length()
    case = f"{gpu}, torch {torch.__version__}, {phase.model.name} {shape}, step of {size} clients"
    store.mkdir(parents=True, exist_ok=True)
    path = store / "forms.json"
    with FileLock(path.with_suffix(".lock")):
        known = json.loads(path.read_text()) if path.exists() else {}
        if case not in known:
            layers = fastest_forms(phase, size, graphs)
            known[case] = layers, fastest_rest(phase, size, layers, graphs)
            write_text(path, json.dumps(known, indent=2) + "\n")
    return Forms(*known[case])


def fastest_forms(phase: Phase, size: int, graphs: bool) -> list[str]:
    """Form (see `convolution.convolutions`) with the shortest time for each layer, forward and backward."""
    entering: dict[nn.Module, Tensor] = {}
    if phase.images.y.is_cuda:
        device_idle()

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:  # a returned value would replace the input
        entering.setdefault(layer, inputs[0])

    hooks = [layer.register_forward_pre_hook(note) for layer in layers_of(phase.model.net)]
    scale = phase.images.scale  # for its dtype and device
    w = {name: t.detach().to(scale, copy=True) for name, t in phase.model.weights.items()}
    for name in phase.model.trainable:
        w[name].requires_grad_()
    phase.model.net.eval()  # no random draws
    try:
        phase.model(w, scale.new_zeros(phase.batches[0].shape[1], *phase.model.shape))
    finally:
        phase.model.net.train()
        for hook in hooks:
            hook.remove()
    return [_fastest(layer, entering.get(layer), size, graphs) for layer in layers_of(phase.model.net)]


def _fastest(layer: nn.Conv2d, x: Tensor | None, size: int, graphs: bool) -> str:
    """Fastest form of a layer with input x [batch, C, H, W]; None: the layer is not used."""
    # A form that fails, for lack of memory for example, is left out. If all fail, the first error is raised.
    seconds, errors = {}, []
    for form in forms_of(layer, x.dtype) if x is not None else ():
        try:
            seconds[form] = _seconds(layer, form, x, size, graphs)
        except CaptureError:
            raise
        except Exception as error:  # also of the compiler of the kernels
            errors.append(error)
    if errors and not seconds:
        raise errors[0]
    errors.clear()  # an error keeps the memory of the failed call alive
    return min(seconds, key=seconds.get, default=GROUPED)


def fastest_rest(phase: Phase, size: int, layers: Layers, graphs: bool) -> str:
    """Fastest form of the rest of a step, given the forms of the convolutions."""
    fused = phase.images.scale.dtype == torch.float32 and find_spec("triton") is not None
    return min((PLAIN, FUSED), key=partial(step_seconds, phase, size, layers, graphs)) if fused else PLAIN


def step_seconds(phase: Phase, size: int, layers: Layers, graphs: bool, rest: str) -> float:
    """Shortest of three timings of a step with zero weights; infinity if the kernels fail."""
    program = Program(begin(phase), size, 4 * STEPS, Forms(layers, rest), graphs)
    with torch.random.fork_rng([program.step.device] if program.step.is_cuda else []):
        try:
            step = program._prepared(phase, size)
            return min(_wall(step, program.flat) for _ in range(3)) / STEPS
        except CaptureError:
            raise
        except Exception:  # also of the compiler of the kernels
            if rest == PLAIN:
                raise
            return math.inf


def _seconds(layer: nn.Conv2d, form: str, x: Tensor, size: int, graphs: bool) -> float:
    """Shortest of three timings of `STEPS` gradients of a layer for `size` clients."""
    inner = x.requires_grad  # the input comes from another layer, with the client axis next to the channels
    images = x.detach().unsqueeze(int(inner)).repeat_interleave(size, int(inner))
    w = {name: t.to(x).expand(size, *t.shape).contiguous() for name, t in layer.named_parameters()}

    def loss(w: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(layer, w, (x,)).square().sum()

    gradient = vmap(grad(loss, argnums=(0, 1) if inner else 0), in_dims=(0, int(inner)))
    with convolutions(layer, form):
        step = partial(gradient, w, images)
        step()
        if graphs and x.is_cuda:
            step = captured(step, step, x.device).replay
        return min(_wall(step, images) for _ in range(3))


def _wall(step: Callable[[], object], images: Tensor) -> float:
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    images.sum().item()  # waits for the device
    return time.perf_counter() - start
