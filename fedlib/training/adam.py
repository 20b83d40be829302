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
    """`w` after one step of Adam (Kingma and Ba, ICLR 2015) down loss(w, *batch) for each batch; `taken` lie behind it.

    The entries named in the moments `first` and `second` are trained; at the start the moments are zeros. Moments and
    `w`, whose other entries `loss` may change (BatchNorm statistics), are reused: `w` must not be used any more. With
    `fused` a step is one operation: faster, and other bits.
    """
    free = {name: w[name].requires_grad_() for name in first}
    optimiser = torch.optim.Adam(free.values(), lr, fused=fused)
    for name, t in free.items():
        step = torch.full((), float(taken), device=t.device if fused else None)  # nothing is copied there
        optimiser.state[t] = {"step": step, "exp_avg": first[name], "exp_avg_sq": second[name]}
    for batch in batches:
        optimiser.zero_grad()
        loss(w, *batch).backward()
        optimiser.step()
    return {name: t.detach() for name, t in w.items()}
