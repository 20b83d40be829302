"""Adam (Kingma and Ba, ICLR 2015) with its state in plain tensors, which are checkpointed with the rest."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam as functional

from fedlib.stack import Params

Tensors = Sequence[Tensor]
BETAS, EPSILON = (0.9, 0.999), 1e-8  # as in torch.optim
OPTIONS = dict(
    foreach=False, amsgrad=False, weight_decay=0, maximize=False, beta1=BETAS[0], beta2=BETAS[1], eps=EPSILON
)


def step_of_adam(
    w: Tensors, gradient: Tensors, first: Tensors, second: Tensors, taken: Tensors, lr: float, fused: bool
) -> None:
    """Move `w` one step along `gradient`, in place, and update its moments and step counts `taken`."""
    # The function behind `torch.optim.Adam`, whose first use imports a compiler. A fused step is a single, faster
    # operation that rounds differently; it reads gradients in memory order, so a transposed one is copied first.
    gradient = [g.contiguous() for g in gradient]
    with torch.no_grad():
        functional(list(w), gradient, list(first), list(second), [], list(taken), **OPTIONS, fused=fused, lr=lr)


def adam(
    loss: Callable[..., Tensor],
    w: Params,
    first: Params,
    second: Params,
    taken: int,
    batches: Iterable[tuple[Tensor, ...]],
    lr: float,
    fused: bool = False,
) -> Params:
    """Take one step of Adam on loss(w, *batch) for each batch; return the new `w`."""
    # The moments `first` and `second` after `taken` steps (zeros before the first step) name the trained entries;
    # moments and `w` change in place. The loss may change other entries of `w` (BatchNorm statistics).
    free = [w[name].requires_grad_() for name in first]
    steps = [torch.full((), float(taken), device=t.device if fused else None) for t in free]
    for batch in batches:
        gradient = torch.autograd.grad(loss(w, *batch), free, materialize_grads=True)
        step_of_adam(free, gradient, [*first.values()], [second[name] for name in first], steps, lr, fused)
    return {name: t.detach() for name, t in w.items()}
