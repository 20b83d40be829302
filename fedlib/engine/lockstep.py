"""Lockstep: runs that differ in their seed train as one stack, and other runs at the same time on a GPU.

The results are those of separate runs.

Each run has a thread; only one thread works at a time. A run waits at each local phase. The run with the fewest trained
phases and all runs that wait at a phase of the same kind (see `phase.kind`) are joined into one stack and trained until
the first of them has ended its phase. That run continues, often to the next phase of this kind, while the others are
still in theirs: no run waits for the slowest client of another one.

Runs that cannot share a stack (different `Task`s) have separate CUDA streams: the host only starts the steps of their
phases, which a GPU then computes at the same time.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedlib.engine.begun import PartialPhase, begin, join, split
from fedlib.engine.stacked import Stacked
from fedlib.stack import Tree
from fedlib.training.phase import Loss, Phase, Trainer, kind


class Cancelled(Exception):
    """Another run has failed, or all were interrupted."""


class Task(NamedTuple):
    """Runs as functions of a trainer; `trainer` joins their local phases into stacks."""

    functions: Sequence[Callable[[Trainer], None]]
    trainer: Stacked


def lockstep(tasks: Iterable[Task], at_once: int = 1) -> None:
    """Call the functions of all tasks, at most `at_once` tasks at a time."""
    # The first exception, including Ctrl-C here, ends all functions and is raised.
    remaining, active = iter(tasks), []
    try:
        while True:
            active = [(runs, *about) for runs, *about in active if any(run.begun for run in runs)]
            if len(active) < at_once and (task := next(remaining, None)):
                stream = torch.cuda.Stream() if at_once > 1 and torch.cuda.is_initialized() else None
                active.append(([_Run(function, stream) for function in task.functions], task.trainer, set()))
                for run in active[-1][0]:
                    run.go_on()
            elif active:
                groups = [_behind(runs) for runs, *_ in active]
                for group, (_, *about) in zip(groups, active, strict=True):
                    with torch.cuda.stream(group[0].stream):
                        _train(group, *about)
                for run in (run for group in groups for run in group if not run.begun.left):
                    run.go_on()
            else:
                return
    finally:
        for run in (run for runs, *_ in active for run in runs):
            run.cancel()


def _behind(runs: Sequence["_Run"]) -> list["_Run"]:
    """The waiting run with the fewest trained phases, and all runs that wait at a phase of the same kind."""
    waiting = [run for run in runs if run.begun]
    behind = min(waiting, key=lambda run: run.phases)
    return [run for run in waiting if kind(run.begun.phase) == kind(behind.begun.phase)]


class _Run:
    """A function in its own thread, which waits at every phase until the phase has been trained.

    `begun` is the current phase, None after the end; `phases` counts the phases so far; `stream` is the CUDA
    stream of the function and its phases (None: the default one).
    """

    def __init__(self, function: Callable[[Trainer], None], stream: Any = None):
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream())  # which copies the images to the GPU
        self.stream, self._trained, self._phases = stream, SimpleQueue(), SimpleQueue()
        self.begun: PartialPhase | None = None
        self.phases = 0
        self._thread = threading.Thread(target=copy_context().run, args=(self._call, function), daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """Continue with the result of the phase, until the next phase or the end of the function."""
        with torch.cuda.stream(self.stream):
            self._trained.put(self.begun and self.begun.result())
            phase, error = self._phases.get()
            if error is not None:
                raise error
            self.begun = phase and begin(phase)
        self.phases += 1

    def cancel(self) -> None:
        self._trained.put(Cancelled())
        self._thread.join()

    def _call(self, function: Callable[[Trainer], None]) -> None:
        try:
            self._wait()
            with torch.cuda.stream(self.stream):
                function(self._train)
            self._phases.put((None, None))
        except Cancelled:
            pass
        except BaseException as error:
            self._phases.put((None, error))

    def _train(self, phase: Phase) -> tuple[Tree, Tensor]:
        self._phases.put((phase, None))
        return self._wait()

    def _wait(self) -> Any:
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices):  # other runs draw in the meantime
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
    if runs[0].stream is not None and loss in random_losses:
        parts = list(parts)
        runs[0].stream.synchronize()  # graphs share the counter of the random generator
    for run, part in zip(runs, parts, strict=True):
        run.begun = part
