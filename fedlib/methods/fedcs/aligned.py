"""The RA module of FedCS: a linear map c = P'(z - shift) in front of one of a model's linear layers, or behind it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor

from fedlib.models.model import Model
from fedlib.stack import Params, repeat, select

if TYPE_CHECKING:
    from fedlib.training.cohort import Cohort

SIDES = ("input", "output")


class Alignment(NamedTuple):
    """Where the map is, and what it is. Models train with it as a layer; a trained one has it folded in."""

    layer: str  # name of the linear layer
    side: str  # "input" or "output" of it
    P: Tensor  # [d, d]
    shift: Tensor | None = None  # [d]; None: 0

    @contextmanager
    def inserted(self, model: Model) -> Iterator[None]:
        """Inside, the map is part of the model."""

        def c(z: Tensor) -> Tensor:
            return (z if self.shift is None else z - self.shift) @ self.P

        module = model.net.get_submodule(self.layer)
        if self.side == "input":
            hook = module.register_forward_pre_hook(lambda _, inputs: (c(*inputs),))
        else:
            hook = module.register_forward_hook(lambda _, __, output: c(output))
        try:
            yield
        finally:
            hook.remove()

    def fold(self, w: Params) -> Params:
        """The weights, of one model or a stack [n, ...], with which the model without the map answers the same.

        In front of the layer W P'(z - shift) + b = (W P') z + (b - W P' shift), behind it P'(W z + b - shift).
        """
        W, b = w[f"{self.layer}.weight"], w[f"{self.layer}.bias"]
        if self.side == "input":
            W = W @ self.P.T
            b = b if self.shift is None else b - W @ self.shift
        else:
            W, b = self.P.T @ W, (b if self.shift is None else b - self.shift) @ self.P
        return w | {f"{self.layer}.weight": W, f"{self.layer}.bias": b}

    def latents(self, model: Model, w: Params, x: Tensor) -> Tensor:
        """What the map would see, z [batch, d], in the model without it."""
        z = model.entering(self.layer, w, x)[0]
        return z if self.side == "input" else F.linear(z, w[f"{self.layer}.weight"], w[f"{self.layer}.bias"])


class Aligned:
    """A model with the map in its place: called like the model, on the model's weights, and with all that it has."""

    def __init__(self, model: Model, alignment: Alignment):
        self._model, self._alignment = model, alignment

    def __call__(self, w: Params, x: Tensor) -> Tensor:
        with self._alignment.inserted(self._model):
            return self._model(w, x)

    def penultimate(self, w: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        with self._alignment.inserted(self._model):
            return self._model.penultimate(w, x)

    def head(self, w: Params) -> tuple[Tensor, Tensor]:
        return self._model.head(self._alignment.fold(w) if self._alignment.side == "output" else w)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def plugged_in(cohort: "Cohort", alignment: Alignment) -> "tuple[Cohort, Params]":
    """The cohort as a method sees it whose clients are to train with the map in their model, the map being fixed.

    Also what they trained last, [k, ...], once they have. The map reaches a loss as context, so that losses stay the
    same functions from round to round. Raises `ValueError` when they train something else than the cohort's model.
    """
    model, last = cohort.model, {}
    told = {"P": alignment.P} | ({} if alignment.shift is None else {"shift": alignment.shift})

    def trainer(phase):
        w = phase.w if isinstance(phase.w, dict) else {}
        theirs = {name: t.shape[1:] for name, t in w.items() if name in model.weights}
        if theirs != {name: t.shape for name, t in model.weights.items()}:
            raise ValueError("there is no place for the map: the method's clients do not train the run's model.")
        loss = aligned_loss(phase.loss, alignment.layer, alignment.side)
        context = *phase.context, repeat(told, len(phase.batches))
        trained, losses = cohort.trainer(phase._replace(model=model, loss=loss, context=context))
        last.update(select(trained, model.weights))
        return trained, losses

    return replace(cohort, model=Aligned(model, alignment), trainer=trainer), last


@cache
def aligned_loss(loss: Callable[..., Tensor], layer: str, side: str) -> Callable[..., Tensor]:
    """`loss` of ONE client in a model with the map; P, and shift if there is one, come as its last context."""

    def with_map(w, batch, *context):
        *own, told = context
        return loss(w, batch._replace(model=Aligned(batch.model, Alignment(layer, side, **told))), *own)

    return with_map


def linear_layer(w: Params, number: int, stacked: bool = False) -> str:
    """The name of linear layer 1, 2, ... in the weights of a model, or (`stacked`) of a stack of them.

    Raises `ValueError` for a model with fewer.
    """
    matrices = [name for name, t in w.items() if name.endswith(".weight") and t.dim() == 2 + stacked]
    if number > len(matrices):
        raise ValueError(f"fc{number} is not there; the model has {len(matrices)} linear layer(s).")
    return matrices[number - 1].removesuffix(".weight")
