"""The loop backend: one client after the other; the fastest on a CPU, and the reference for the stacked backend."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from fedlib.stack import Tree, row, stack
from fedlib.training.adam import step_of_adam
from fedlib.training.phase import TRAINED, Phase, randomness


def train_loop(phase: Phase, check: bool = False) -> tuple[Tree, Tensor]:
    """Trained stack [k, ...] and mean training loss [k] of each client; an error names its round, client and step."""
    # With `check`, a loss that is not finite raises `FloatingPointError`.
    phase.model.net.train()
    with randomness(phase):
        trained, losses = zip(*(_train_client(phase, i, check) for i in range(len(phase.batches))), strict=True)
    return stack(trained), torch.stack(losses)


def _train_client(phase: Phase, i: int, check: bool) -> tuple[Tree, Tensor]:
    """Trained weights [...] and mean training loss of the client in row i."""
    images, steps = phase.images, phase.batches[i]
    w_i, context = tree_map(torch.clone, row(phase.w, i)), row(phase.context, i)
    pairs = zip(tree_leaves(w_i), phase.roles, strict=True)
    free = [t.requires_grad_() for t, role in pairs if role == TRAINED]
    step_along = _adam(phase, free) if phase.optimizer == "adam" else _sgd(phase, free)
    draws = {name: t.to(images.y.device) for name, t in phase.draws[i].items()} if phase.draws else {}
    total = torch.zeros((), device=images.y.device)
    for step, index in enumerate(steps.to(images.y.device)):
        try:
            batch = images.batch(index, phase.model)._replace(draws={name: t[step] for name, t in draws.items()})
            value = phase.loss(w_i, batch, *context)
            gradient = [g.contiguous() for g in torch.autograd.grad(value, free, materialize_grads=True)]
            if check and not value.isfinite():
                raise FloatingPointError(f"the training loss is {value.item()}.")
            if phase.clip is not None:
                gradient = _clipped(gradient, phase.clip)
            step_along(gradient)
        except Exception as error:
            client = phase.clients[i] if phase.clients else i
            samples = ", ".join(map(str, index.tolist()))
            error.add_note(f"in {phase.title}: client {client}, step {step + 1} of {len(steps)}, samples {samples}")
            raise
        total += value.detach()
    return tree_map(Tensor.detach, w_i), total / max(len(steps), 1)


def _clipped(gradient: Sequence[Tensor], clip: float) -> Sequence[Tensor]:
    """Gradient, scaled down to the norm `clip` if its norm is larger, as by `torch.nn.utils.clip_grad_norm_`."""
    norm = torch.nn.utils.get_total_norm(gradient)
    return torch._foreach_mul(gradient, (clip / (norm + 1e-6)).clamp(max=1))


def _sgd(phase: Phase, free: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], None]:
    """Step of SGD along a gradient. `torch.optim.SGD` gives the same bits; its first use imports a compiler."""
    velocity = [torch.zeros_like(t) for t in free]

    @torch.no_grad()
    def step_along(gradient: Sequence[Tensor]) -> None:
        if phase.momentum:
            torch._foreach_mul_(velocity, phase.momentum)
            torch._foreach_add_(velocity, gradient)
            gradient = velocity
        torch._foreach_add_(free, gradient, alpha=-phase.lr)

    return step_along


def _adam(phase: Phase, free: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], None]:
    """Step of Adam along a gradient."""
    first, second = ([torch.zeros_like(t) for t in free] for _ in range(2))
    taken = [torch.zeros((), device=t.device) for t in free]

    def step_along(gradient: Sequence[Tensor]) -> None:
        step_of_adam(free, gradient, first, second, taken, phase.lr, fused=True)

    return step_along
