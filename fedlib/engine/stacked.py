"""The stacked backend: all clients of a cohort at once by `torch.func.vmap`, to use a GPU fully.

Clients have different numbers of steps. The stack is sorted by them and halved when half of its clients have finished,
so that little is computed for finished clients.
"""

import re
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedlib.engine.begun import PartialPhase, Progress, begin
from fedlib.engine.program import Form, Program
from fedlib.models import Model
from fedlib.stack import Tree, cat, take
from fedlib.training.batches import to_device
from fedlib.training.phase import Phase, drawing, kind, randomness

AT_ONCE = 128  # largest number of clients in one stack; it bounds the memory
SMALLEST = 4  # a smaller stack is not halved: on a GPU it would not be faster
ROOMY = {"cuda"}  # devices on which stacks have unused rows; on a CPU these would cost time
KEPT = 16  # maximum number of programs, so that a new loss in every round does not fill the memory


class Stacked:
    """A `Trainer` that keeps its programs for later phases of the same kind.

    `form`: see `convolution.convolutions` and `program.Forms`; `graphs`: see `runs.setting.Setting`.
    """

    def __init__(self, form: Form = "grouped", graphs: bool = True):
        self.form, self.graphs = form, graphs
        self._programs: dict[tuple, Program] = {}

    def __call__(self, phase: Phase) -> tuple[Tree, Tensor]:
        """Trained stack [k, ...] and mean training loss [k] of each client."""
        return self.advance(begin(phase)).result()

    def advance(self, begun: PartialPhase, steps: int | None = None) -> PartialPhase:
        """Take at most `steps` of each client's remaining steps (default: all of them)."""
        steps = begun.left if steps is None else steps
        now, later = begun.steps(slice(steps)), begun.steps(slice(steps, None))
        lengths = [len(index) for index in now.phase.batches]
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        blocks = [order[i : i + AT_ONCE] for i in range(0, len(order), AT_ONCE)]
        with randomness(begun.phase):
            results = cat([self._run(now.rows(rows)) for rows in blocks])
        back = to_device(torch.tensor(order).argsort(), begun.phase.images.y.device)
        w, progress = take(results, back)
        return PartialPhase(later.phase._replace(w=w), progress)

    def _run(self, begun: PartialPhase) -> tuple[Tree, Progress]:
        n_steps = [len(index) for index in begun.phase.batches]
        if begun.phase.images.y.device.type in ROOMY:
            n_steps += [0] * (roomy(len(n_steps)) - len(n_steps))
        return self._program(begun, len(n_steps), n_steps[0]).run(begun, stages(n_steps))

    def _program(self, begun: PartialPhase, clients: int, steps: int) -> Program:
        """Program for this kind of phase; a larger one replaces it if clients or steps (a power of two) do not fit."""
        key = (*kind(begun.phase), begun.phase.stream is None)
        program, capacity = self._programs.pop(key, None), 1 << max(steps - 1, 0).bit_length()
        if program is not None and (program.clients < clients or program.capacity < steps):
            clients, capacity = max(clients, program.clients), max(capacity, program.capacity)
            program = None  # frees its memory for the new one
        program = program or Program(begun, clients, capacity, self.form, self.graphs)
        self._programs[key] = program  # last in order: the most recent
        while len(self._programs) > KEPT:
            del self._programs[next(iter(self._programs))]
        return program


def unstacked(model: Model) -> list[str]:
    """Operations of a model that PyTorch computes client by client; `ValueError` if the model cannot be stacked."""
    w = {name: torch.stack([t, t]) for name, t in model.weights.items()}
    trained = {name: w.pop(name) for name in model.trainable}
    model.net.train()
    each = grad(lambda trained, w, x: model(trained | w, x).sum())
    with warnings.catch_warnings(record=True) as caught, drawing(model.stream, model.zeros().device):
        warnings.simplefilter("always")
        try:
            vmap(each, randomness="different")(trained, w, model.zeros(2, 2, *model.shape))
        except Exception as error:  # a user's code may raise anything
            reason = f"{type(error).__name__}: {error}".splitlines()[0].partition(". ")[0].rstrip(".")
            raise ValueError(
                f"model={model.name!r} cannot be trained with backend='stacked' ({reason}); use backend='loop'."
            ) from error
    messages = " ".join(str(warning.message) for warning in caught)
    return sorted(set(re.findall(r"batching rule for (\S+)\.", messages)))


def roomy(n: int) -> int:
    """Number of rows for n clients: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, ..., so that similar cohorts share graphs."""
    power = 1 << (n - 1).bit_length()
    return 3 * power // 4 if power > 2 and n <= 3 * power // 4 else power


def stages(n_steps: Sequence[int]) -> list[tuple[int, int]]:
    """Size and number of steps of the stack before each halving; `n_steps` of the clients are descending."""
    plan, size, done = [], len(n_steps), 0
    while size:
        rest = -(-size // 2) if size > SMALLEST else 0
        until = n_steps[rest] if rest else n_steps[0]
        plan.append((size, until - done))
        size, done = rest, until
    return [(size, n) for size, n in plan if n]
