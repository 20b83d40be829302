"""Local training: one meaning, two backends. Both take SGD steps on the same batches in the same order.

`loop` trains one client after the other (fastest on a CPU). `stacked` maps the client's loss over the client axis
with `torch.func.vmap`, one kernel launch for the whole cohort (the way to keep a GPU busy); clients whose steps
are over stand still.
"""

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.nn.utils.rnn import pad_sequence

from fedlib.models import Model
from fedlib.stack import Params, drop, select
from fedlib.training.batches import Images

Loss = Callable[..., Tensor]  # (w, batch, *context) -> scalar, for ONE client


def train_loop(
    model: Model,
    images: Images,
    loss: Loss,
    w: Params,
    batches: Sequence[Tensor],
    context: tuple[Params, ...],
    trainable: Collection[str],
    lr: float,
) -> tuple[Params, Tensor]:
    """Train k clients one by one; see `fedlib.training.cohort.Cohort.train` for the arguments.

    Returns the trained stack [k, ...] and each client's mean training loss [k].
    """
    model.net.train()
    trained, losses = [], []
    for i, steps in enumerate(batches):
        w_i = {name: t[i].clone() for name, t in w.items()}
        own = [{name: t[i] for name, t in c.items()} for c in context]
        sgd = torch.optim.SGD([w_i[name].requires_grad_() for name in trainable], lr)
        total = torch.zeros((), device=images.y.device)
        for index in steps:
            sgd.zero_grad()
            value = loss(w_i, images.batch(index, model), *own)
            value.backward()
            sgd.step()
            total += value.detach()
        trained.append({name: t.detach() for name, t in w_i.items()})
        losses.append(total / max(len(steps), 1))
    return {name: torch.stack([w_i[name] for w_i in trained]) for name in w}, torch.stack(losses)


def train_stacked(
    model: Model,
    images: Images,
    loss: Loss,
    w: Params,
    batches: Sequence[Tensor],
    context: tuple[Params, ...],
    trainable: Collection[str],
    lr: float,
) -> tuple[Params, Tensor]:
    """As `train_loop`, for all clients at once."""
    model.net.train()

    def step_loss(free: Params, rest: Params, index: Tensor, own: tuple[Params, ...]):  # ONE client
        rest = {name: t.clone() for name, t in rest.items()}  # the forward pass updates statistics in place
        return loss({**rest, **free}, images.batch(index, model), *own), rest

    gradients = vmap(grad_and_value(step_loss, has_aux=True), randomness="different")
    free, rest = select(w, trainable), drop(w, trainable)
    n_steps = torch.tensor([len(steps) for steps in batches], device=images.y.device)  # [k]
    index = pad_sequence(list(batches)).to(images.y.device)  # [steps, k, batch]
    total = torch.zeros(len(batches), device=images.y.device)

    for step in range(len(index)):
        running = step < n_steps  # [k]
        grads, (value, new_rest) = gradients(free, rest, index[step], context)
        free = {name: _advance(running, t - lr * grads[name], t) for name, t in free.items()}
        rest = {name: _advance(running, new_rest[name], t) for name, t in rest.items()}
        total += torch.where(running, value.to(total.dtype), 0)
    return {name: {**free, **rest}[name] for name in w}, total / n_steps.clamp(min=1)


def _advance(running: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """`new` for clients that are still running, `old` for those whose steps are over."""
    return torch.where(running.view(-1, *[1] * (new.dim() - 1)), new, old)


BACKENDS = {"loop": train_loop, "stacked": train_stacked}
