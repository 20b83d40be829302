"""The RA module of FedCS: a linear map c = P'(z - shift) before or after one of a model's linear layers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fedlib.models.model import Model, is_shared
from fedlib.stack import Params, places, repeat

if TYPE_CHECKING:
    from fedlib.training.cohort import Cohort


class Alignment(NamedTuple):
    """A linear map and its position: a layer during training, folded into the weights afterwards."""

    layer: str  # name of the linear layer
    side: str  # "input" or "output" of the layer
    P: Tensor  # [d, d]
    shift: Tensor | None = None  # [d]; None: 0

    @contextmanager
    def inserted(self, model: Model) -> Iterator[None]:
        """Context in which the map is part of the model."""

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
        """Fold the map into its layer, for a model [...] or a stack [n, ...]: the new weights give the same logits.

        Before the layer W P'(z - shift) + b = (W P') z + (b - W P' shift), after it P'(W z + b - shift).
        """
        W, b = w[f"{self.layer}.weight"], w.get(f"{self.layer}.bias")
        if b is None and self.shift is None:  # a layer without bias
            return w | {f"{self.layer}.weight": W @ self.P.T if self.side == "input" else self.P.T @ W}
        if self.side == "input":
            W = W @ self.P.T
            b = b if self.shift is None else b - W @ self.shift
        else:
            W, b = self.P.T @ W, (b if self.shift is None else b - self.shift) @ self.P
        return w | {f"{self.layer}.weight": W, f"{self.layer}.bias": b}

    def latents(self, model: Model, w: Params, x: Tensor) -> Tensor:
        """Latents z [batch, d] of images x [batch, C, H, W]: the input of the map, in the model without it."""
        z = model.entering(self.layer, w, x)[0]
        return z if self.side == "input" else F.linear(z, w[f"{self.layer}.weight"], w.get(f"{self.layer}.bias"))


class Aligned:
    """A model with the map inserted, with the interface of the model."""

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
    """A cohort whose clients train with the fixed map in their model, and a dict that receives their weights."""
    # The map reaches a loss as context, so that losses stay the same functions from round to round.
    model, last = cohort.model, {}
    tensors = {"P": alignment.P} | ({} if alignment.shift is None else {"shift": alignment.shift})

    def weights_in(tree):  # the model's weights in the tree that a method trains
        leaves = tree_leaves(tree)
        return {name: leaves[i] for name, i in places(tree, model.weights).items()}

    def trainer(phase):
        shapes = {name: t.shape[1:] for name, t in weights_in(phase.w).items()}
        if phase.model.name != model.name or shapes != {name: t.shape for name, t in model.weights.items()}:
            raise ValueError("the map cannot be inserted: the method's clients do not train the run's model.")
        loss = aligned_loss(phase.loss, alignment.layer, alignment.side)
        context = *phase.context, repeat(tensors, len(phase.batches))
        trained, losses = cohort.trainer(phase._replace(model=model, loss=loss, context=context))
        last.update(weights_in(trained))
        return trained, losses

    return replace(cohort, model=Aligned(model, alignment), trainer=trainer), last


@cache
def aligned_loss(loss: Callable[..., Tensor], layer: str, side: str) -> Callable[..., Tensor]:
    """Loss of ONE client whose model has the map inserted; its last context holds P and any shift."""

    def with_map(w, batch, *context):
        *others, tensors = context
        return loss(w, batch._replace(model=Aligned(batch.model, Alignment(layer, side, **tensors))), *others)

    return with_map


def linear_layer(w: Params, number: int, stacked: bool = False) -> str:
    """Name of linear layer `number`, from 1, of a model w [...], or of a stack [n, ...]."""
    matrices = [name for name, t in w.items() if name.endswith(".weight") and t.dim() == 2 + stacked]
    if number > len(matrices):
        raise ValueError(f"fc{number} does not exist; the model has {len(matrices)} linear layer(s).")
    return matrices[number - 1].removesuffix(".weight")


def has_place(model: Model, layer: str) -> bool:
    """True if the map can be folded into `layer`: a linear layer with one vector per image and untied weights."""
    module, inputs = model.net.get_submodule(layer), []
    hook = module.register_forward_pre_hook(lambda _, args: inputs.extend(args))
    model.net.eval()
    model(model.weights, model.zeros(1, *model.shape))
    hook.remove()
    untied = not any(is_shared(model.net, f"{layer}.{name}") for name, _ in module.named_parameters(recurse=False))
    return isinstance(module, nn.Linear) and untied and [z.dim() for z in inputs[:1]] == [2]
