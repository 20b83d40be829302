"""Runs in lockstep: runs that differ in their seed train their cohorts as one stack, with unchanged results.

Each run has a thread; only one thread works at a time. A run that reaches a local phase waits until every other run
has reached a phase or its end. Phases of one kind (see `phase.kind`) are then joined into one stack and trained at
once, and each run receives the rows of its clients.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from queue import SimpleQueue
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map

from fedlib.stack import Tree
from fedlib.training.phase import Loss, Phase, Trainer, join, kind


class Cancelled(Exception):
    """Another run has failed, or all were interrupted."""


def lockstep(functions: Sequence[Callable[[Trainer], Any]], trainer: Trainer) -> list[Any]:
    """Call each of `functions` with a trainer that joins their local phases; returns their results.

    The first exception, also one raised here by Ctrl-C, ends all functions and is raised.
    """
    runs, random_losses = [_Run(function) for function in functions], set()
    try:
        waiting = [run for run in runs if run.advance(None)]
        while waiting:
            trained = _train([run.phase for run in waiting], trainer, random_losses)
            waiting = [run for run, result in zip(waiting, trained, strict=True) if run.advance(result)]
    finally:
        for run in runs:
            run.cancel()
    return [run.result for run in runs]


class _Run:
    """A function in its own thread, which waits at every phase until the phase has been trained."""

    def __init__(self, function: Callable[[Trainer], Any]):
        self._trained, self._phases = SimpleQueue(), SimpleQueue()
        self.phase: Phase | None = None
        self.result: Any = None
        self._thread = threading.Thread(target=self._call, args=(function,), daemon=True)
        self._thread.start()

    def advance(self, trained: tuple[Tree, Tensor] | None) -> bool:
        """Continue with the result of the last phase; returns whether the function waits for another phase."""
        self._trained.put(trained)
        self.phase, self.result, error = self._phases.get()
        if error is not None:
            raise error
        return self.phase is not None

    def cancel(self) -> None:
        self._trained.put(Cancelled())
        self._thread.join()

    def _call(self, function: Callable[[Trainer], Any]) -> None:
        try:
            self._wait()
            self._phases.put((None, function(self._train), None))
        except Cancelled:
            pass
        except BaseException as error:
            self._phases.put((None, None, error))

    def _train(self, phase: Phase) -> tuple[Tree, Tensor]:
        self._phases.put((phase, None, None))
        return self._wait()

    def _wait(self) -> Any:
        trained = self._trained.get()
        if isinstance(trained, Cancelled):
            raise trained
        return trained


def _train(phases: Sequence[Phase], trainer: Trainer, random_losses: set[Loss]) -> list[tuple[Tree, Tensor]]:
    """Train the phases, those of one kind as one stack.

    `random_losses` collects the losses that draw random numbers; their phases are trained one after the other.
    """
    by_kind: dict[Any, list[int]] = defaultdict(list)
    for i, phase in enumerate(phases):
        by_kind[i if phase.loss in random_losses else (phase.lr, *kind(phase))].append(i)
    trained = {}
    for positions in by_kind.values():
        alike = [phases[i] for i in positions]
        results = _train_together(alike, trainer, random_losses) if len(alike) > 1 else None
        trained |= dict(zip(positions, results or map(trainer, alike), strict=True))
    return [trained[i] for i in range(len(phases))]


def _train_together(
    phases: Sequence[Phase], trainer: Trainer, random_losses: set[Loss]
) -> list[tuple[Tree, Tensor]] | None:
    """Train phases of one kind as one stack.

    None if model or loss draw random numbers: the draws of a run must not depend on the other runs.
    """
    try:
        w, losses = trainer(join(phases))
    except RuntimeError as error:
        if "randomness error mode" not in str(error):
            raise
        random_losses.add(phases[0].loss)
        return None
    sizes = [len(phase.batches) for phase in phases]
    ends = list(accumulate(sizes, initial=0))
    rows = [tree_map(lambda t, a=a, b=b: t[a:b], w) for a, b in pairwise(ends)]
    return list(zip(rows, losses.split(sizes), strict=True))
