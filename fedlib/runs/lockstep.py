"""Runs in lockstep: replicates over seeds train their cohorts as one stack, and none of them notices.

Each run goes its own way in a thread; only one thread works at a time. A run that comes to a local phase waits until
all others have come to theirs (or to their end); phases that tell the clients the same are then joined, trained at
once, and every run gets its clients back.
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
    """Another run of the group has failed, or was interrupted."""


def lockstep(works: Sequence[Callable[[Trainer], Any]], trainer: Trainer) -> list[Any]:
    """Call every work with a trainer that pools local phases, return what they return.

    The first exception, also one raised here by Ctrl-C, ends all works and is raised.
    """
    runs, draws = [_Run(work) for work in works], set()
    try:
        waiting = [run for run in runs if run.advance(None)]
        while waiting:
            answers = _train([run.phase for run in waiting], trainer, draws)
            waiting = [run for run, answer in zip(waiting, answers, strict=True) if run.advance(answer)]
    finally:
        for run in runs:
            run.cancel()
    return [run.result for run in runs]


class _Run:
    """A work in a thread of its own, stopped at its next phase."""

    def __init__(self, work: Callable[[Trainer], Any]):
        self._answers, self._questions = SimpleQueue(), SimpleQueue()
        self.phase: Phase | None = None
        self.result: Any = None
        self._thread = threading.Thread(target=self._work, args=(work,), daemon=True)
        self._thread.start()

    def advance(self, answer: tuple[Tree, Tensor] | None) -> bool:
        """Let the work go on with the answer to its last phase; is it waiting for another one?"""
        self._answers.put(answer)
        self.phase, self.result, error = self._questions.get()
        if error is not None:
            raise error
        return self.phase is not None

    def cancel(self) -> None:
        self._answers.put(Cancelled())
        self._thread.join()

    def _work(self, work: Callable[[Trainer], Any]) -> None:
        try:
            self._next()
            self._questions.put((None, work(self._ask), None))
        except Cancelled:
            pass
        except BaseException as error:
            self._questions.put((None, None, error))

    def _ask(self, phase: Phase) -> tuple[Tree, Tensor]:
        self._questions.put((phase, None, None))
        return self._next()

    def _next(self) -> Any:
        answer = self._answers.get()
        if isinstance(answer, Cancelled):
            raise answer
        return answer


def _train(phases: Sequence[Phase], trainer: Trainer, draws: set[Loss]) -> list[tuple[Tree, Tensor]]:
    """Train the phases, at once where they can share a stack. `draws` collects the losses for which they cannot."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for i, phase in enumerate(phases):
        groups[i if phase.loss in draws else (phase.lr, *kind(phase))].append(i)
    answers = {}
    for members in groups.values():
        own = [phases[i] for i in members]
        parts = _train_together(own, trainer, draws) if len(own) > 1 else None
        answers |= dict(zip(members, parts or map(trainer, own), strict=True))
    return [answers[i] for i in range(len(phases))]


def _train_together(phases: Sequence[Phase], trainer: Trainer, draws: set[Loss]) -> list[tuple[Tree, Tensor]] | None:
    """None if model or loss draw random numbers: what a run draws must not depend on its neighbours."""
    try:
        w, losses = trainer(join(phases))
    except RuntimeError as error:
        if "randomness error mode" not in str(error):
            raise
        draws.add(phases[0].loss)
        return None
    sizes = [len(phase.batches) for phase in phases]
    ends = list(accumulate(sizes, initial=0))
    rows = [tree_map(lambda t, a=a, b=b: t[a:b], w) for a, b in pairwise(ends)]
    return list(zip(rows, losses.split(sizes), strict=True))
