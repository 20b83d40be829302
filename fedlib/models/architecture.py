"""Architectures of a run, and checks of a user's builder."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedlib.models.model import Builder, Model, build, drawn, is_shared, norms
from fedlib.stack import Params


class Architecture(NamedTuple):
    """A builder and its name."""

    name: str
    build: Builder
    made_of: tuple[Builder | str, ...]  # code that is part of a run's address, or its fingerprint


Models = str | Builder | Sequence[str | Builder]  # the argument `model=` of a run


def from_builder(builder: Builder) -> Architecture:
    """Architecture of a user's function or class; `ValueError` for anything else."""
    if isinstance(builder, nn.Module) or not callable(builder):
        raise ValueError(
            f"model is of type {type(builder).__name__}; it must be a name, a function "
            f"(shape, n_classes) -> nn.Module, or a list of at least one of these."
        )
    function = getattr(builder, "func", builder)  # of a partial
    return Architecture(getattr(function, "__qualname__", type(function).__qualname__), builder, (builder,))


def check_builder(name: str, builder: Builder, shape: tuple[int, int, int], n_classes: int, dtype: torch.dtype) -> None:
    """Raise `ValueError` unless a run can train and evaluate the module that `builder` returns for these images."""
    try:
        fault = _fault(name, builder, shape, n_classes, dtype)
    except ValueError:
        raise
    except Exception as error:  # a user's code may raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
        raise ValueError(f"model={name!r} fails for images {shape} and {n_classes} classes ({reason}).") from error
    if fault:
        raise ValueError(f"model={name!r} is not allowed; {fault}.")


def _fault(name: str, builder: Builder, shape: tuple[int, int, int], n_classes: int, dtype: torch.dtype) -> str | None:
    """First requirement that a builder violates, in words."""
    net = drawn(builder, shape, n_classes, seed=0)
    if not isinstance(net, nn.Module):
        return f"it returns a {type(net).__name__}, not a torch.nn.Module"
    if isinstance(net, torch.jit.ScriptModule):
        return "it returns a module that torch.jit has compiled; it must return the module itself"
    if not any(isinstance(layer, nn.Linear) for layer in net.modules()):
        return "it has no nn.Linear as its classifier"
    state = net.state_dict(keep_vars=True)
    if unseen := [key for key, t in state.items() if nn.parameter.is_lazy(t)]:
        return f"its {unseen[0]!r} has no shape; a lazy layer gets its shape in a forward pass"
    if elsewhere := [key for key, t in state.items() if t.device.type != "cpu"]:
        return f"its {elsewhere[0]!r} is on {state[elsewhere[0]].device}; make it on the CPU, a run moves it"
    if frozen := [key for key, weight in net.named_parameters() if not weight.requires_grad]:
        return f"its {frozen[0]!r} does not require a gradient, but a run trains all weights"
    if any(isinstance(norm, nn.SyncBatchNorm) for norm in norms(net).values()):
        return "its SyncBatchNorm is for several processes; use BatchNorm2d"
    if any(norm.momentum is None for norm in norms(net).values()):
        return "its BatchNorm has no momentum; give a number, such as momentum=0.1"
    if unreal := [key for key, weight in net.named_parameters() if weight.is_complex()]:
        return f"its {unreal[0]!r} is complex; all weights must be real"
    model = build(name, builder, shape, n_classes, seed=0)
    if not {*map(id, net.parameters())}.isdisjoint(map(id, model.net.parameters())):
        return "its weights are the same tensors at every call; it must make all layers anew"
    if others := sorted({*model.weights, *model.statistics} - {*model.trainable} - model.batchnorm):
        return f"its {others[0]!r} is neither a trainable weight nor a statistic of BatchNorm"
    if not any(key.endswith("weight") for key in model.classifier):
        return "the weight of its last nn.Linear is computed from other tensors; it must be a parameter"
    if tied := [key for key in model.classifier if is_shared(model.net, key)]:
        return f"its {tied[0]!r} is also a weight of another layer; the last nn.Linear must have separate weights"
    if not all(torch.equal(weight, model.weights[key]) for key, weight in model.redraw(0).items()):
        return "its initial weights differ from call to call; only draws of torch come from the run's seed"
    w = {key: weight.to(dtype) for key, weight in model.weights.items()}
    x = torch.randn(2, *shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    return _evaluation_fault(model, w, x) or _training_fault(model, w, x)


@torch.no_grad()
def _evaluation_fault(model: Model, w: Params, x: Tensor) -> str | None:
    """Fault of the logits of two images, which must be the output of the classifier, in words."""
    layer, outputs = next(iter(model.classifier)).rpartition(".")[0], []
    hook = model.net.get_submodule(layer).register_forward_hook(lambda _, inputs, output: outputs.append(output))
    model.net.eval()
    logits = model(w, x)
    hook.remove()
    fault = _other_than_logits(logits, model)
    if not fault and not (len(outputs) == 1 and torch.equal(logits, outputs[0])):
        fault = f"other numbers than its layer {layer!r}"
    logits = f"the logits [batch, {model.n_classes}]"
    return fault and f"it returns {fault}; it must return what its last nn.Linear gives: {logits}"


def _training_fault(model: Model, w: Params, x: Tensor) -> str | None:
    """Fault of a training step on two images or of its repetition, in words."""
    logits, gradients = [], []
    model.net.to(x.dtype).train()
    for _ in range(2):
        each = {key: t.clone().requires_grad_(key in model.trainable) for key, t in w.items()}
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            logits.append(model(each, x))
            if fault := _other_than_logits(logits[-1], model):
                return f"in training it returns {fault}, not the logits [batch, {model.n_classes}]"
            if not logits[-1].requires_grad:
                return "its logits have no gradient, but a run trains all weights"
            free = [each[key] for key in model.trainable]
            gradients.append(torch.autograd.grad(logits[-1].sum(), free, materialize_grads=True))
        for t in model.net.parameters():
            t.data.fill_(torch.nan)  # the next step must use `w` only
    if not torch.equal(*logits):
        return "its logits change from call to call; it must keep no state but its weights, and draw from torch only"
    if not all(torch.allclose(a, b, equal_nan=True) for a, b in zip(*gradients, strict=True)):
        return "its backward pass runs layers again, as torch.utils.checkpoint does, but with other weights"
    return None


def _other_than_logits(output: object, model: Model) -> str | None:
    """Description of an output for two images that cannot be logits; None for logits."""
    if not isinstance(output, Tensor):
        return f"an object of type {type(output).__name__}"
    return None if output.shape == (2, model.n_classes) else f"a tensor of shape {tuple(output.shape)} for two images"
