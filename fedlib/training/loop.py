"""The loop backend: one client after the other. The fastest on a CPU, and the reference of the stacked backend."""

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from fedlib.stack import Tree, row, stack
from fedlib.training.phase import TRAINED, Phase, randomness


def train_loop(phase: Phase, check: bool = False) -> tuple[Tree, Tensor]:
    """The trained stack [k, ...] and each client's mean training loss [k].

    An error names the round, client and step in which it was raised. With `check`, a loss that is not finite raises
    `FloatingPointError`.
    """
    phase.model.net.train()
    with randomness(phase):
        trained, losses = zip(*(_train_client(phase, i, check) for i in range(len(phase.batches))), strict=True)
    return stack(trained), torch.stack(losses)


def _train_client(phase: Phase, i: int, check: bool) -> tuple[Tree, Tensor]:
    """The trained weights [...] and the mean training loss of the client in row i."""
    images, steps = phase.images, phase.batches[i]
    w_i, context = tree_map(torch.clone, row(phase.w, i)), row(phase.context, i)
    pairs = zip(tree_leaves(w_i), phase.roles, strict=True)
    free = [t.requires_grad_() for t, role in pairs if role == TRAINED]
    optimiser = _optimiser(phase, free)
    draws = {name: t.to(images.y.device) for name, t in phase.draws[i].items()} if phase.draws else {}
    total = torch.zeros((), device=images.y.device)
    for step, index in enumerate(steps.to(images.y.device)):
        try:
            optimiser.zero_grad()
            batch = images.batch(index, phase.model)._replace(draws={name: t[step] for name, t in draws.items()})
            value = phase.loss(w_i, batch, *context)
            value.backward()
            if check and not value.isfinite():
                raise FloatingPointError(f"the training loss is {value.item()}.")
            if phase.clip is not None:
                torch.nn.utils.clip_grad_norm_(free, phase.clip)
            optimiser.step()
        except Exception as error:
            client = phase.clients[i] if phase.clients else i
            samples = ", ".join(map(str, index.tolist()))
            error.add_note(f"in {phase.title}: client {client}, step {step + 1} of {len(steps)}, samples {samples}")
            raise
        total += value.detach()
    return tree_map(Tensor.detach, w_i), total / max(len(steps), 1)


def _optimiser(phase: Phase, free: list[Tensor]) -> torch.optim.Optimizer:
    if phase.optimizer == "adam":
        return torch.optim.Adam(free, phase.lr, fused=True)
    return torch.optim.SGD(free, phase.lr, phase.momentum)
