"""Evaluation: every client's own model on its own test samples."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from fedlib.models import Model
from fedlib.stack import Params
from fedlib.training.batches import Images, to_device

CHUNK = 512  # samples per forward pass; twice as fast on a CPU as 1024
CHUNK_GPU = 16_384


@torch.no_grad()
def logits(model: Model, w: Params, images: Images, index: Tensor) -> Tensor:
    """Logits [len(index), n_classes] in evaluation mode of one model on the samples `index`."""
    model.net.eval()
    chunk = CHUNK_GPU if index.is_cuda else CHUNK
    return torch.cat([model(w, images.batch(part, model).x) for part in index.split(chunk)])


class Evaluation:
    """A set of samples per client, put on the device once: `samples[i]` are the indices of client i."""

    def __init__(self, images: Images, samples: Sequence[np.ndarray], stacked: bool = False):
        device = images.y.device
        self.images, self.stacked, self.sizes = images, stacked, [len(own) for own in samples]
        self.index = to_device(torch.from_numpy(np.concatenate(samples)), device)  # one client after the other
        self.blocks = [tuple(to_device(t, device) for t in block) for block in _blocks(self.sizes)] if stacked else []

    @torch.no_grad()
    def __call__(self, model: Model, models: Params) -> tuple[Tensor, Tensor]:
        """Correct answers (int64 [n_clients]) and mean cross-entropy (float64 [n_clients]).

        `models` is a stack [n_clients, ...], or [1, ...]: one model for everybody, run over all samples at once.
        """
        model.net.eval()
        if next(iter(models.values())).shape[0] == 1:
            out = logits(model, {name: t[0] for name, t in models.items()}, self.images, self.index)
        elif self.stacked:
            out = self._all_at_once(model, models)
        else:
            rows = ({name: t[i] for name, t in models.items()} for i in range(len(self.sizes)))
            own = zip(rows, self.index.split(self.sizes), strict=True)
            out = torch.cat([logits(model, w, self.images, index) for w, index in own])
        y = self.images.y[self.index]
        hit = (out.argmax(1) == y).split(self.sizes)
        loss = F.cross_entropy(out.double(), y, reduction="none").split(self.sizes)
        return torch.stack([h.sum() for h in hit]), torch.stack([value.mean() for value in loss])

    def _all_at_once(self, model: Model, models: Params) -> Tensor:
        """Logits of all samples [len(index), n_classes], a block of clients at a time."""
        forward, out = vmap(model), None
        for clients, places in self.blocks:
            x = self.images.batch(self.index[places], model).x  # [g, longest, C, H, W]
            answers = forward({name: t[clients] for name, t in models.items()}, x)
            out = answers.new_empty(len(self.index), answers.shape[-1]) if out is None else out
            out[places.flatten()] = answers.flatten(0, 1)
        return out


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
