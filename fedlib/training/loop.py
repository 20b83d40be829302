"""The loop backend: one client after the other. Fastest on a CPU, and what the stacked backend is checked against."""

import torch
from torch import Tensor

from fedlib.stack import Params
from fedlib.training.phase import Phase, randomness


def train_loop(phase: Phase) -> tuple[Params, Tensor]:
    """The trained stack [k, ...] and each client's mean training loss [k]."""
    phase.model.net.train()
    with randomness(phase):
        return _train(phase)


def _train(phase: Phase) -> tuple[Params, Tensor]:
    model, images, loss = phase.model, phase.images, phase.loss
    trained, losses = [], []
    for i, steps in enumerate(phase.batches):
        w_i = {name: t[i].clone() for name, t in phase.w.items()}
        own = [{name: t[i] for name, t in c.items()} for c in phase.context]
        free = [w_i[name].requires_grad_() for name in phase.trainable]
        optimiser = _optimiser(phase, free)
        draws = {name: t.to(images.y.device) for name, t in phase.draws[i].items()} if phase.draws else {}
        total = torch.zeros((), device=images.y.device)
        for step, index in enumerate(steps.to(images.y.device)):
            optimiser.zero_grad()
            batch = images.batch(index, model)._replace(draws={name: t[step] for name, t in draws.items()})
            value = loss(w_i, batch, *own)
            value.backward()
            if phase.clip is not None:
                torch.nn.utils.clip_grad_norm_(free, phase.clip)
            optimiser.step()
            total += value.detach()
        trained.append({name: t.detach() for name, t in w_i.items()})
        losses.append(total / max(len(steps), 1))
    return {name: torch.stack([w_i[name] for w_i in trained]) for name in phase.w}, torch.stack(losses)


def _optimiser(phase: Phase, free: list[Tensor]) -> torch.optim.Optimizer:
    if phase.optimizer == "adam":
        return torch.optim.Adam(free, phase.lr, fused=True)
    return torch.optim.SGD(free, phase.lr, phase.momentum)
