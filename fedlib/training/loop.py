"""The loop backend: one client after the other. Fastest on a CPU, and what the stacked backend is checked against."""

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from fedlib.stack import Tree, row, stack
from fedlib.training.phase import TRAINED, Phase, randomness


def train_loop(phase: Phase) -> tuple[Tree, Tensor]:
    """The trained stack [k, ...] and each client's mean training loss [k]."""
    phase.model.net.train()
    with randomness(phase):
        return _train(phase)


def _train(phase: Phase) -> tuple[Tree, Tensor]:
    model, images, loss = phase.model, phase.images, phase.loss
    trained, losses = [], []
    for i, steps in enumerate(phase.batches):
        w_i, context = tree_map(torch.clone, row(phase.w, i)), row(phase.context, i)
        pairs = zip(tree_leaves(w_i), phase.roles, strict=True)
        free = [t.requires_grad_() for t, role in pairs if role == TRAINED]
        optimiser = _optimiser(phase, free)
        draws = {name: t.to(images.y.device) for name, t in phase.draws[i].items()} if phase.draws else {}
        total = torch.zeros((), device=images.y.device)
        for step, index in enumerate(steps.to(images.y.device)):
            optimiser.zero_grad()
            batch = images.batch(index, model)._replace(draws={name: t[step] for name, t in draws.items()})
            value = loss(w_i, batch, *context)
            value.backward()
            if phase.clip is not None:
                torch.nn.utils.clip_grad_norm_(free, phase.clip)
            optimiser.step()
            total += value.detach()
        trained.append(tree_map(Tensor.detach, w_i))
        losses.append(total / max(len(steps), 1))
    return stack(trained), torch.stack(losses)


def _optimiser(phase: Phase, free: list[Tensor]) -> torch.optim.Optimizer:
    if phase.optimizer == "adam":
        return torch.optim.Adam(free, phase.lr, fused=True)
    return torch.optim.SGD(free, phase.lr, phase.momentum)
