"""A phase in progress: remaining steps, and the progress of each client.

Runs that share a stack need not wait for the slowest one: a run without remaining steps continues with its next phase,
while the clients of the other runs are still in theirs.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from fedlib.stack import Tree, cat, take
from fedlib.training.batches import to_device
from fedlib.training.phase import TRAINED, Phase


class Progress(NamedTuple):
    """Training progress of each client."""

    lr: Tensor  # [k]: step sizes
    taken: Tensor  # int64 [k]: steps taken
    total: Tensor  # [k]: sums of the training losses of these steps
    moments: tuple[Tensor, ...]  # [k, P] each: none, the velocity of momentum, or the two moments of Adam


class PartialPhase(NamedTuple):
    """A phase in progress: `phase` has the current weights and the remaining steps."""

    phase: Phase
    progress: Progress

    @property
    def left(self) -> int:
        """Remaining steps of the slowest client."""
        return max(map(len, self.phase.batches))

    def result(self) -> tuple[Tree, Tensor]:
        """The trained stack [k, ...] and each client's mean training loss [k]."""
        return self.phase.w, self.progress.total / self.progress.taken.clamp(min=1)

    def rows(self, rows: Sequence[int]) -> "PartialPhase":
        """Progress of the clients in these rows, in that order."""
        phase, device = self.phase, self.phase.images.y.device
        index = slice(rows.start, rows.stop) if isinstance(rows, range) else to_device(torch.tensor(rows), device)
        w, context, progress = take((phase.w, phase.context, self.progress), index)
        batches = tuple(phase.batches[i] for i in rows)
        draws = tuple(phase.draws[i] for i in rows) if phase.draws else ()
        return PartialPhase(phase._replace(w=w, batches=batches, context=context, draws=draws), progress)

    def steps(self, chosen: slice) -> "PartialPhase":
        """Restriction to a slice of the remaining steps."""
        batches = tuple(index[chosen] for index in self.phase.batches)
        draws = tuple(tree_map(lambda t: t[chosen], drawn) for drawn in self.phase.draws)
        return self._replace(phase=self.phase._replace(batches=batches, draws=draws))


def begin(phase: Phase) -> PartialPhase:
    """Phase before its first step; the moments of the optimiser are zero."""
    k, device, dtype = len(phase.batches), phase.images.y.device, phase.images.scale.dtype
    trained = [t for t, role in zip(tree_leaves(phase.w), phase.roles, strict=True) if role == TRAINED]
    numbers = sum(t.shape[1:].numel() for t in trained)
    moments = 2 if phase.optimizer == "adam" else int(phase.momentum > 0)
    progress = Progress(
        lr=torch.full((k,), phase.lr, dtype=dtype, device=device),
        taken=torch.zeros(k, dtype=torch.int64, device=device),
        total=torch.zeros(k, device=device),
        moments=tuple(torch.zeros(k, numbers, dtype=dtype, device=device) for _ in range(moments)),
    )
    return PartialPhase(phase, progress)


def join(several: Sequence[PartialPhase]) -> PartialPhase:
    """Join phases of one kind, which must not draw random numbers, into one phase with all their clients."""
    phases = [one.phase for one in several]
    phase = phases[0]._replace(
        w=cat([phase.w for phase in phases]),
        batches=tuple(steps for phase in phases for steps in phase.batches),
        context=cat([phase.context for phase in phases]),
        draws=tuple(draws for phase in phases for draws in phase.draws),
        stream=None,
    )
    return PartialPhase(phase, cat([one.progress for one in several]))


def split(joined: PartialPhase, sizes: Sequence[int]) -> list[PartialPhase]:
    """Split into consecutive groups of clients with these sizes."""
    return [joined.rows(range(a, b)) for a, b in pairwise(accumulate(sizes, initial=0))]
