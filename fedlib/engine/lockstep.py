"""Lockstep: runs that differ in their seed train their cohorts as one stack, with unchanged results.

Each run has a thread; only one thread works at a time. A run waits at each local phase. The run with the fewest trained
phases and all runs that wait at a phase of the same kind (see `phase.kind`) are joined into one stack and trained until
the first of them has ended its phase. That run goes on, often to the next phase of this kind, while the others are
still in theirs: no run waits for the slowest client of another one.
"""

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from fedlib.engine.begun import PartialPhase, begin, join, split
from fedlib.engine.stacked import Stacked
from fedlib.stack import Tree
from fedlib.training.phase import Loss, Phase, Trainer, kind


class Cancelled(Exception):
    """Another run has failed, or all were interrupted."""


def lockstep(functions: Sequence[Callable[[Trainer], Any]], trainer: Stacked) -> list[Any]:
    """Call each of `functions` with a trainer that joins their local phases; returns their results."""
    # The first exception, including Ctrl-C here, ends all functions and is raised.
    runs, random_losses = [_Run(function) for function in functions], set()
    try:
        for run in runs:
            run.go_on()
        while waiting := [run for run in runs if run.begun]:
            behind = min(waiting, key=lambda run: run.phases)
            alike = [run for run in waiting if kind(run.begun.phase) == kind(behind.begun.phase)]
            _train(alike, trainer, random_losses)
            for run in alike:
                if not run.begun.left:
                    run.go_on()
    finally:
        for run in runs:
            run.cancel()
    return [run.result for run in runs]


class _Run:
    """A function in its own thread, which waits at every phase until the phase has been trained.

    `begun` is the current phase, None after the end; `phases` counts the phases so far.
    """

    def __init__(self, function: Callable[[Trainer], Any]):
        self._trained, self._phases = SimpleQueue(), SimpleQueue()
        self.begun: PartialPhase | None = None
        self.phases = 0
        self.result: Any = None
        self._thread = threading.Thread(target=copy_context().run, args=(self._call, function), daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """Continue with the result of the phase, until the next phase or the end of the function."""
        self._trained.put(self.begun and self.begun.result())
        phase, self.result, error = self._phases.get()
        if error is not None:
            raise error
        self.begun = phase and begin(phase)
        self.phases += 1

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
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices):  # other runs draw meanwhile
            trained = self._trained.get()
        if isinstance(trained, Cancelled):
            raise trained
        return trained


def _train(runs: Sequence[_Run], trainer: Stacked, random_losses: set[Loss]) -> None:
    """Train runs that wait at phases of one kind as one stack, until the first of them has ended its phase."""
    # If model or loss draw random numbers, each phase is trained alone to its end: the draws of a run must not depend
    # on other runs. `random_losses` collects such losses.
    begun = [run.begun for run in runs]
    loss = begun[0].phase.loss
    if loss not in random_losses:
        try:
            trained = trainer.advance(join(begun), min(one.left for one in begun))
        except RuntimeError as error:
            if "randomness error mode" not in str(error):
                raise
            random_losses.add(loss)
    if loss in random_losses:
        parts = map(trainer.advance, begun)
    else:
        parts = split(trained, [len(one.phase.batches) for one in begun])
    for run, part in zip(runs, parts, strict=True):
        run.begun = part
