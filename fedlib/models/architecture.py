"""The architecture of a run: one of the library or a user's function, and the checks of a user's function."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedlib.models.model import Builder, Model, build, drawn, norms


class Architecture(NamedTuple):
    """A builder and its name. `made_of`: the code that is part of a run's address, or its fingerprint."""

    name: str
    build: Builder
    made_of: tuple[Builder | str]


Models = str | Builder | Sequence[str | Builder]  # the argument `model=` of a run


def from_builder(builder: Builder) -> Architecture:
    """A user's function or class as an architecture with its name. `ValueError` for anything else."""
    if isinstance(builder, nn.Module) or not callable(builder):
        raise ValueError(
            f"model is of type {type(builder).__name__}; it must be a name, a function "
            f"(shape, n_classes) -> nn.Module, or a list of at least one of these."
        )
    function = getattr(builder, "func", builder)  # of a partial
    return Architecture(getattr(function, "__qualname__", type(function).__qualname__), builder, (builder,))


def check_builder(name: str, builder: Builder, shape: tuple[int, int, int], n_classes: int, dtype: torch.dtype) -> None:
    """`ValueError` unless a run can train and evaluate the module that `builder` makes for these images."""
    try:
        fault = _fault(name, builder, shape, n_classes, dtype)
    except ValueError:
        raise
    except Exception as error:  # a user's code may raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
        raise ValueError(
            f"model={name!r} fails for images of shape {shape} and {n_classes} classes ({reason})."
        ) from error
    if fault:
        raise ValueError(f"model={name!r} is not allowed; {fault}.")


def _fault(name: str, builder: Builder, shape: tuple[int, int, int], n_classes: int, dtype: torch.dtype) -> str | None:
    """The first requirement that the builder does not meet."""
    net = drawn(builder, shape, n_classes, seed=0)
    if not isinstance(net, nn.Module):
        return f"it returns a {type(net).__name__}, not a torch.nn.Module"
    if not any(isinstance(layer, nn.Linear) for layer in net.modules()):
        return "it has no nn.Linear as its classifier"
    if frozen := [key for key, weight in net.named_parameters() if not weight.requires_grad]:
        return f"its {frozen[0]!r} does not require a gradient, but a run trains all weights"
    if any(norm.momentum is None for norm in norms(net).values()):
        return "its BatchNorm has no momentum; give a number, such as momentum=0.1"
    if tied := {*dict(net.named_parameters(remove_duplicate=False))} - {*dict(net.named_parameters())}:
        return f"its {min(tied)!r} is another of its weights as well; every layer must have its own"
    if unreal := [key for key, weight in net.named_parameters() if weight.is_complex()]:
        return f"its {unreal[0]!r} is complex; all weights must be real"
    model = build(name, builder, shape, n_classes, seed=0)
    if others := sorted({*model.weights, *model.statistics} - {*model.trainable} - model.batchnorm):
        return f"its {others[0]!r} is neither a weight of its own nor a statistic of BatchNorm"
    if not any(key.endswith("weight") for key in model.classifier):
        return "the weight of its last nn.Linear is made of others; it must be a parameter of its own"
    if not all(torch.equal(weight, model.weights[key]) for key, weight in model.redraw(0).items()):
        return "its initial weights differ from call to call; only what torch draws comes from the run's seed"
    if not _ends_in_classifier(model, dtype):
        return f"it must return what its last nn.Linear gives: the logits [batch, {n_classes}]"
    return None


@torch.no_grad()
def _ends_in_classifier(model: Model, dtype: torch.dtype) -> bool:
    """Whether the output of the model, for two random images, is the output of its classifier."""
    w = {key: weight.to(dtype) for key, weight in model.weights.items()}
    x = torch.randn(2, *model.shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    layer, outputs = model.net.get_submodule(next(iter(model.classifier)).rpartition(".")[0]), []
    layer.register_forward_hook(lambda _, inputs, output: outputs.append(output))
    model.net.eval()
    logits = model(w, x)
    same = len(outputs) == 1 and isinstance(logits, Tensor) and torch.equal(logits, outputs[0])
    return same and logits.shape == (2, model.n_classes)
