"""Adam for what a server trains, its state in plain tensors, so that it is checkpointed with everything else."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from fedlib.stack import Params


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
    """Take one step of Adam (Kingma and Ba, ICLR 2015) on loss(w, *batch) for each batch; returns the new `w`.

    `first` and `second` are the moments after `taken` steps (zeros before the first one); the entries that they name
    are trained. Moments and `w` are changed in place; `loss` may change the other entries of `w` (BatchNorm
    statistics). `fused=True` runs a step as one operation, which is faster and rounds differently.
    """
    free = {name: w[name].requires_grad_() for name in first}
    optimiser = torch.optim.Adam(free.values(), lr, fused=fused)
    for name, t in free.items():
        step = torch.full((), float(taken), device=t.device if fused else None)
        optimiser.state[t] = {"step": step, "exp_avg": first[name], "exp_avg_sq": second[name]}
    for batch in batches:
        optimiser.zero_grad()
        loss(w, *batch).backward()
        optimiser.step()
    return {name: t.detach() for name, t in w.items()}
