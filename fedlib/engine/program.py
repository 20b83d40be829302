"""One training step of many clients at once, in fixed buffers, which a GPU can replay as one CUDA graph."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.nn.utils.rnn import pad_sequence
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten

from fedlib.engine.begun import PartialPhase, Progress
from fedlib.engine.convolution import convolutions
from fedlib.engine.rules import Rules
from fedlib.models import Model
from fedlib.stack import Params, Tree
from fedlib.training.adam import BETAS, EPSILON
from fedlib.training.batches import Batch, to_device
from fedlib.training.phase import FROZEN, TRAINED, WRITTEN, Loss, Phase

ROLES = (TRAINED, WRITTEN, FROZEN)
WARM_UP = 3  # steps before a capture, in which libraries allocate their workspaces
PLAIN, FUSED = RESTS = ("plain", "fused")
Layers = str | Sequence[str]  # forms of convolutions: one for all layers, or one for each


class Forms(NamedTuple):
    """Forms of the convolutions of a step and of the rest; "fused": the kernels of `fedlib.engine.fused`."""

    layers: Layers
    rest: str = PLAIN


Form = Layers | Forms | Callable[[Phase, int], Layers | Forms]  # fixed, or chosen for each size of the stack


class CaptureError(RuntimeError):
    """A failed capture of a step. Its memory stays occupied, so the process cannot use the GPU any more."""


class Program:
    """Buffers for `clients` clients and `capacity` steps, and the step on them, for all phases of one `kind`.

    Clients are sorted by their number of steps in descending order. A step trains the first `size` clients, the first
    rows of all buffers; finished clients do not change. With `graphs` a GPU replays the step as a CUDA graph. There is
    no reference cycle, so an unused program frees its memory at once.
    """

    def __init__(self, begun: PartialPhase, clients: int, capacity: int, form: Form, graphs: bool):
        phase, device = begun.phase, begun.phase.images.y.device
        self.model, self.images = phase.model, phase.images
        self.clients, self.capacity, self.form = clients, capacity, form
        self.clip, self.momentum = phase.clip, phase.momentum
        dtype = phase.images.scale.dtype

        def zeros(t: Tensor) -> Tensor:
            return t.new_zeros(clients, *t.shape[1:])

        leaves, structure = tree_flatten(phase.w)
        by_role = {role: [t for t, r in zip(leaves, phase.roles, strict=True) if r == role] for role in ROLES}
        self.flat, self.trained = _side_by_side(by_role[TRAINED], clients, dtype)
        self.noted, self.written = _side_by_side(by_role[WRITTEN], clients, dtype)
        self.frozen = list(map(zeros, by_role[FROZEN]))
        self.adam = phase.optimizer == "adam"
        self.w = _whole(phase.roles, structure, self.trained, self.written, self.frozen)
        self.context = tree_map(zeros, phase.context)
        self.index = torch.zeros(capacity, clients, phase.batches[0].shape[1], dtype=torch.int64, device=device)
        self.draws = {
            name: torch.zeros(capacity, clients, *t.shape[1:], dtype=t.dtype, device=device)
            for name, t in (phase.draws[0] if phase.draws else {}).items()
        }
        self.n_steps = torch.zeros(clients, dtype=torch.int64, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.zero = self.flat.new_zeros(())  # a Python number would be copied to the device in every step
        self.progress = tree_map(zeros, begun.progress)
        randomness = "error" if phase.stream is None else "different"
        self._gradients = {}  # by form of the rest
        for rest in RESTS:
            one_client = partial(_loss, rest == FUSED, phase.loss, phase.model, phase.roles, structure)
            self._gradients[rest] = vmap(grad_and_value(one_client, has_aux=True), randomness=randomness)
        replays = graphs and device.type == "cuda"
        self._forms: dict[int, Layers | Forms] = {}  # by size
        self._graphs: dict[int, torch.cuda.CUDAGraph] | None = {} if replays else None  # by size
        self._pool = torch.cuda.graph_pool_handle() if replays else None  # memory that the graphs share

    def run(self, begun: PartialPhase, stages: Sequence[tuple[int, int]]) -> tuple[Tree, Progress]:
        """Load the phase, take `stages` of (size, steps), and return the trained stack [k, ...] and the progress."""
        phase, k = begun.phase, len(begun.phase.batches)
        self.model.net.train()
        steps = {size: self._prepared(phase, size) for size, _ in stages}  # before loading: a capture runs the step
        self._load(begun)
        for size, n in stages:
            for _ in range(n):
                steps[size]()
        w, progress = tree_map(lambda t: t[:k].clone(), (self.w, self.progress))
        return w, progress._replace(taken=progress.taken + self.n_steps[:k])

    def _load(self, begun: PartialPhase) -> None:
        phase, k = begun.phase, len(begun.phase.batches)
        buffers, values = (self.w, self.context, self.progress), (phase.w, phase.context, begun.progress)
        for t, value in zip(tree_leaves(buffers), tree_leaves(values), strict=True):
            t[:k].copy_(value)
        index = pad_sequence(list(phase.batches))  # [steps, k, batch]
        self.index[: len(index), :k].copy_(to_device(index, self.index.device))
        for name, t in self.draws.items():
            drawn = pad_sequence([draws[name] for draws in phase.draws])  # [steps, k, ...]
            t[: len(drawn), :k].copy_(to_device(drawn, t.device))
        n_steps = torch.tensor([len(steps) for steps in phase.batches])
        self.n_steps[:k].copy_(to_device(n_steps, self.index.device))
        self.step.zero_()

    def _advance(self, size: int, form: Layers | Forms) -> None:
        """One step of the first `size` clients, with these forms."""
        layers, rest = form if isinstance(form, Forms) else Forms(form)
        lists = self.trained, self.written, self.frozen, self.context, self.progress
        trained, written, frozen, context, progress = tree_map(lambda t: t[:size], lists)
        flat, noted, n_steps = self.flat[:size], self.noted[:size], self.n_steps[:size]
        drawn = (t[:, :size].index_select(0, self.step)[0] for t in self.draws.values())  # [size, ...] each
        draws = dict(zip(self.draws, drawn, strict=True))
        joins = nullcontext()
        if rest == FUSED:
            from fedlib.engine import fused  # Triton comes with PyTorch for CUDA only

            joins, batch = fused.joined(self.model.net), fused.batch(self.images, self.index, self.step, size)
            new = noted.clone()  # the loss writes into the copy
            written = _parts(new, [t.shape[1:] for t in written])
        else:
            [index] = self.index[:, :size].index_select(0, self.step)  # [size, batch]
            made = self.images.batch(index, self.model)
            batch = made.x, made.y, index
        with convolutions(self.model.net, layers), joins:
            grads, (value, left) = self._gradients[rest](trained, written, frozen, batch, draws, context)
        gradient = torch.cat([t.reshape(size, -1) for t in grads], 1)  # [size, P]
        if self.clip is not None:  # as torch.nn.utils.clip_grad_norm_, for each client
            norm = gradient.norm(dim=1, keepdim=True)
            gradient = gradient * (self.clip / (norm + 1e-6)).clamp(max=1)
        if self.adam:
            gradient = self._by_adam(gradient, progress)
        if rest == FUSED:
            moved = flat, gradient, progress.moments[0] if self.momentum else None, progress.lr, noted, new
            fused.update(*moved, progress.total, value.contiguous(), self.step, n_steps, self.momentum)
        else:
            running = self.step < n_steps  # [size]
            if self.momentum:
                [velocity] = progress.moments  # also of finished clients, whose weights do not change
                gradient = velocity.mul_(self.momentum).add_(gradient).clone()
            flat.addcmul_(torch.where(running[:, None], gradient, self.zero), progress.lr[:, None], value=-1)
            if left:
                new = torch.cat([t.reshape(size, -1) for t in left], 1)
                noted.copy_(torch.where(running[:, None], new, noted))
            progress.total.add_(torch.where(running, value, self.zero))
        self.step += 1

    def _by_adam(self, gradient: Tensor, progress: Progress) -> Tensor:
        """Direction [size, P] of a step of Adam."""
        taken, unbiased = (progress.taken + self.step).double()[:, None] + 1, []
        for moment, power, beta in zip(progress.moments, (gradient, gradient**2), BETAS, strict=True):
            moment.lerp_(power, 1 - beta)
            unbiased.append(moment / (1 - beta**taken).to(moment.dtype))
        first, second = unbiased
        return first / (second.sqrt() + EPSILON)

    def _prepared(self, phase: Phase, size: int) -> Callable[[], object]:
        """Step of `size` clients as a function; with CUDA graphs it is captured at the first use."""
        if size not in self._forms:
            self._forms[size] = self.form(phase, size) if callable(self.form) else self.form
        step = partial(self._advance, size, self._forms[size])
        if self._graphs is None:
            return step
        if size not in self._graphs:

            def first() -> None:
                self.step.zero_()
                step()

            self._graphs[size] = captured(step, first, self.step.device, self._pool)
        return self._graphs[size].replay


def captured(
    step: Callable[[], object], warm_up: Callable[[], object], device: torch.device, pool: Any = None
) -> torch.cuda.CUDAGraph:
    """CUDA graph of a step. The random state is restored, so that a capture does not change later draws."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                warm_up()
        torch.cuda.current_stream().wait_stream(side)
        try:
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                step()
        except RuntimeError as error:
            raise CaptureError(
                "A training step could not be captured as a CUDA graph, after which this process cannot use "
                "the GPU; restart Python with graphs=False."
            ) from error
    return graph


def _side_by_side(tensors: Sequence[Tensor], clients: int, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    """Zeros [clients, P] with one row for all tensors of a client, and their views in the shapes of `tensors`."""
    shapes = [t.shape[1:] for t in tensors]
    size = sum(shape.numel() for shape in shapes)
    flat = torch.zeros(clients, size, dtype=dtype, device=tensors[0].device if tensors else None)
    return flat, _parts(flat, shapes)


def _parts(flat: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Views of flat [k, P] in these shapes, which fill its rows."""
    parts = zip(flat.split([shape.numel() for shape in shapes], dim=1) if shapes else (), shapes, strict=True)
    return [t.unflatten(1, shape) if shape else t[:, 0] for t, shape in parts]


def _loss(
    fused: bool,
    loss: Loss,
    model: Model,
    roles: Sequence[str],
    structure: TreeSpec,
    trained: list[Tensor],
    written: list[Tensor],
    frozen: list[Tensor],
    batch: tuple[Tensor, Tensor, Tensor],
    draws: Params,
    context: tuple[Tree, ...],
) -> tuple[Tensor, list[Tensor]]:
    """Loss of ONE client on `batch` (x, y, index), and the new values of the tensors that the loss writes."""
    written = written if fused else [t.clone() for t in written]  # the loss writes copies
    x, y, index = batch
    with Rules(y, fused):
        w = _whole(roles, structure, trained, written, frozen)
        return loss(w, Batch(x, y, model, draws, index), *context), written


def _whole(roles: Sequence[str], structure: TreeSpec, *lists: list[Tensor]) -> Tree:
    """Tree of the tensors with the roles TRAINED, WRITTEN and FROZEN in `lists`."""
    tensors = dict(zip(ROLES, map(iter, lists), strict=True))
    return tree_unflatten([next(tensors[role]) for role in roles], structure)
