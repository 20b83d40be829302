"""Evaluation: every client's own model on its own test samples."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from fedlib.models import Group, Model
from fedlib.stack import Params, PerArchitecture, Shared, Tree, row, take
from fedlib.training.batches import Images, to_device
from fedlib.training.metrics import client_metrics

CHUNK = 512  # samples per forward pass; twice as fast on a CPU as 1024
CHUNK_GPU = 16_384
Answer = Callable[[Params, Tensor], Tensor]  # (w, x) -> [batch, ...] of ONE model, by default its logits


@torch.no_grad()
def logits(model: Model, w: Params, images: Images, index: Tensor, answer: Answer | None = None) -> Tensor:
    """Logits [len(index), n_classes] in evaluation mode of one model on the samples `index`, or another `answer`."""
    model.net.eval()
    chunk, answer = CHUNK_GPU if index.is_cuda else CHUNK, answer or model
    return torch.cat([answer(w, images.batch(part, model).x) for part in index.split(chunk)])


class Evaluation:
    """A set of samples per client, put on the device once: `samples[i]` are the indices of client i."""

    def __init__(self, images: Images, samples: Sequence[np.ndarray], stacked: bool = False, metrics: bool = False):
        device = images.y.device
        self.images, self.stacked, self.metrics = images, stacked, metrics
        self.sizes = [len(own) for own in samples]
        self.index = to_device(torch.from_numpy(np.concatenate(samples)), device)  # one client after the other
        self.blocks = [tuple(to_device(t, device) for t in block) for block in _blocks(self.sizes)] if stacked else []

    @torch.no_grad()
    def __call__(self, model: Model, models: Tree | Shared) -> tuple[Tensor, ...]:
        """Correct answers (int64 [n_clients]) and mean cross-entropy (float64 [n_clients]).

        With `metrics` also what `client_metrics` answers (float64 [n_clients, 2], on the host). `models` is a stack
        [n_clients, ...], or `Shared`: one model for everybody, run over all samples at once.
        """
        out, y = self.outputs(model, models), self.images.y[self.index]
        hit = (out.argmax(1) == y).split(self.sizes)
        loss = F.cross_entropy(out.double(), y, reduction="none").split(self.sizes)
        answers = torch.stack([h.sum() for h in hit]), torch.stack([value.mean() for value in loss])
        return (*answers, client_metrics(out, y, self.sizes)) if self.metrics else answers

    @torch.no_grad()
    def outputs(self, model: Model, models: Tree | Shared, answer: Answer | None = None) -> Tensor:
        """Logits [len(index), n_classes] of every client's model on its samples, or another `answer` [len(index), p].

        They come client by client: those of client i are `sizes[i]` rows.
        """
        model.net.eval()
        if isinstance(models, Shared):
            return logits(model, models.tree, self.images, self.index, answer)
        if self.stacked:
            return self._all_at_once(model, models, answer)
        own = zip((row(models, i) for i in range(len(self.sizes))), self.index.split(self.sizes), strict=True)
        return torch.cat([logits(model, w, self.images, index, answer) for w, index in own])

    def _all_at_once(self, model: Model, models: Tree, answer: Answer | None) -> Tensor:
        """`outputs`, a block of clients at a time."""
        forward, out = vmap(answer or model), None
        for clients, places in self.blocks:
            x = self.images.batch(self.index[places], model).x  # [g, longest, C, H, W]
            answers = forward(take(models, clients), x)
            out = answers.new_empty(len(self.index), answers.shape[-1]) if out is None else out
            out[places.flatten()] = answers.flatten(0, 1)
        return out


class GroupEvaluation:
    """`Evaluation` of clients that may have different architectures: who has which is in `groups`."""

    def __init__(
        self,
        images: Images,
        samples: Sequence[np.ndarray],
        groups: Sequence[Group],
        stacked: bool = False,
        metrics: bool = False,
    ):
        self.parts = [(own, Evaluation(images, [samples[i] for i in own.clients], stacked, metrics)) for own in groups]
        order = np.concatenate([own.clients for own in groups]).argsort()
        self.order = to_device(torch.from_numpy(order), images.y.device)

    def __call__(self, models: Tree | Shared | PerArchitecture) -> tuple[Tensor, ...]:
        """As `Evaluation`."""
        stacks = models.stacks if isinstance(models, PerArchitecture) else (models,)
        answers = [test(own.model, v) for (own, test), v in zip(self.parts, stacks, strict=True)]
        return tuple(torch.cat(part)[self.order.to(part[0].device)] for part in zip(*answers, strict=True))


def evaluate(model: Model, images: Images, models: Params, samples: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """`Evaluation`, once: correct answers and mean cross-entropy of `models` on the indices `samples`."""
    return Evaluation(images, samples)(model, models)


@torch.no_grad()
def batchnorm_inputs(
    model: Model, images: Images, models: Params, samples: Sequence[np.ndarray]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and standard deviation of what enters each BatchNorm layer: layer -> two tensors [n_clients, C].

    Row i of `models` [n_clients, ...] sees, in evaluation mode, the samples `samples[i]`, and all pixels count alike.
    """
    layers = {name: m for name, m in model.net.named_modules() if f"{name}.running_mean" in model.batchnorm}
    found = {name: ([], []) for name in layers}
    for i, own in enumerate(samples):
        w, chunks = {name: t[i] for name, t in models.items()}, {name: [] for name in layers}
        hooks = [
            layer.register_forward_pre_hook(lambda _, inputs, seen=chunks[name]: seen.append(_moments(*inputs)))
            for name, layer in layers.items()
        ]
        try:
            logits(model, w, images, to_device(torch.from_numpy(own), images.y.device))
        finally:
            for hook in hooks:
                hook.remove()
        for name, seen in chunks.items():
            n, total, squares = (sum(part) for part in zip(*seen, strict=True))
            mean = total / n
            found[name][0].append(mean)
            found[name][1].append((squares / n - mean**2).clamp(min=0).sqrt())
    dtype = images.scale.dtype
    return {name: tuple(torch.stack(part).to(dtype) for part in pair) for name, pair in found.items()}


def class_features(
    model: Model, images: Images, models: Params, samples: Sequence[np.ndarray], stacked: bool = False
) -> tuple[Tensor, Tensor]:
    """Means of the classifier's inputs z by class [n_clients, n_classes, p], zeros where a client has none of a class,
    and of ||z||^2 [n_clients]. Row i of `models` [n_clients, ...] sees, in evaluation mode, the samples `samples[i]`.
    """
    own, means, squares = Evaluation(images, samples, stacked), [], []
    z = own.outputs(model, models, lambda w, x: model.penultimate(w, x)[0])  # [len(index), p]
    member = images.y[own.index, None] == torch.arange(model.n_classes, device=z.device)
    for z_i, member_i in zip(z.split(own.sizes), member.to(z.dtype).split(own.sizes), strict=True):
        means.append(member_i.T @ z_i / member_i.sum(0).clamp(min=1)[:, None])
        squares.append((z_i**2).sum(1).mean())
    return torch.stack(means), torch.stack(squares)


def _moments(x: Tensor) -> tuple[int, Tensor, Tensor]:
    """Values per channel, their sum and the sum of their squares (float64 [C]) of x [batch, C, ...]."""
    x = x.double().transpose(0, 1).flatten(1)
    return x.shape[1], x.sum(1), (x**2).sum(1)


def _blocks(sizes: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Clients of similar size together: (clients [g], places of their samples [g, longest], the last one repeated).

    At most CHUNK_GPU samples in a block, or one client.
    """
    n = torch.tensor(sizes)
    first, order = n.cumsum(0) - n, n.argsort(descending=True, stable=True)
    while len(order):
        longest = int(n[order[0]])
        block, order = order.tensor_split([max(CHUNK_GPU // longest, 1)])
        yield block, first[block, None] + torch.arange(longest).minimum(n[block, None] - 1)
