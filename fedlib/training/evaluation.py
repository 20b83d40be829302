"""Evaluation of the clients' models on the clients' samples."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from fedlib.models import Assignment, Model
from fedlib.stack import Params, PerArchitecture, Shared, Tree, row, take
from fedlib.training.batches import Images, to_device
from fedlib.training.cohort import Cohort
from fedlib.training.metrics import client_metrics

CHUNK = 512  # samples per forward pass; twice as fast on a CPU as 1024
CHUNK_GPU = 16_384
Forward = Callable[[Params, Tensor], Tensor]  # (w, x) -> [batch, p] of ONE model; by default its logits


@torch.no_grad()
def logits(model: Model, w: Params, images: Images, index: Tensor, forward: Forward | None = None) -> Tensor:
    """Outputs of `forward` (default: logits) of one model on the samples `index`, in evaluation mode: [n, p]."""
    model.net.eval()
    size, forward = CHUNK_GPU if index.is_cuda else CHUNK, forward or model
    return torch.cat([forward(w, images.batch(chunk, model).x) for chunk in index.split(size)])


class Evaluation:
    """Evaluation of the model of each client i on the samples with the indices `samples[i]`."""

    def __init__(self, images: Images, samples: Sequence[np.ndarray], stacked: bool = False, metrics: bool = False):
        device = images.y.device
        self.images, self.stacked, self.metrics = images, stacked, metrics
        self.sizes = list(map(len, samples))
        self.index = to_device(torch.from_numpy(np.concatenate(samples)), device)  # sorted by client
        self.blocks = [tuple(to_device(t, device) for t in block) for block in _blocks(self.sizes)] if stacked else []

    @torch.no_grad()
    def __call__(self, model: Model, models: Tree | Shared) -> tuple[Tensor, ...]:
        """Number of correct predictions (int64 [n_clients]) and mean cross-entropy (float64 [n_clients])."""
        # With `metrics` also `client_metrics` (float64 [n_clients, 2], on the host). `models` is a stack [n_clients,
        # ...], or `Shared`: one model for all clients, with one pass over all samples.
        out, y = self.outputs(model, models), self.images.y[self.index]
        hit = (out.argmax(1) == y).split(self.sizes)
        loss = F.cross_entropy(out.double(), y, reduction="none").split(self.sizes)
        results = torch.stack([h.sum() for h in hit]), torch.stack([value.mean() for value in loss])
        return (*results, client_metrics(out, y, self.sizes)) if self.metrics else results

    @torch.no_grad()
    def outputs(self, model: Model, models: Tree | Shared, forward: Forward | None = None) -> Tensor:
        """Outputs [n, p] of `forward` (default: logits) for every client's samples; client i has `sizes[i]` rows."""
        model.net.eval()
        if isinstance(models, Shared):
            return logits(model, models.tree, self.images, self.index, forward)
        if self.stacked:
            return self._stacked_outputs(model, models, forward)
        indices = enumerate(self.index.split(self.sizes))
        return torch.cat([logits(model, row(models, i), self.images, index, forward) for i, index in indices])

    def _stacked_outputs(self, model: Model, models: Tree, forward: Forward | None) -> Tensor:
        """`outputs`, for one block of clients at a time."""
        block_forward, out = vmap(forward or model), None
        for clients, positions in self.blocks:
            x = self.images.batch(self.index[positions], model).x  # [clients of the block, longest, C, H, W]
            block = block_forward(take(models, clients), x)
            out = block.new_empty(len(self.index), block.shape[-1]) if out is None else out
            out[positions.flatten()] = block.flatten(0, 1)
        return out


class MixedEvaluation:
    """`Evaluation` for clients with different architectures."""

    def __init__(
        self,
        images: Images,
        samples: Sequence[np.ndarray],
        architectures: Sequence[Assignment],
        stacked: bool = False,
        metrics: bool = False,
    ):
        self.tests = [
            (model, Evaluation(images, [samples[i] for i in clients], stacked, metrics))
            for model, clients in architectures
        ]
        order = np.concatenate([clients for _, clients in architectures]).argsort()
        self.order = to_device(torch.from_numpy(order), images.y.device)

    def __call__(self, models: Tree | Shared | PerArchitecture) -> tuple[Tensor, ...]:
        """Results of `Evaluation` for all clients, by client number."""
        stacks = models.stacks if isinstance(models, PerArchitecture) else (models,)
        results = [test(model, v) for (model, test), v in zip(self.tests, stacks, strict=True)]
        return tuple(torch.cat(values)[self.order.to(values[0].device)] for values in zip(*results, strict=True))


def evaluate(model: Model, images: Images, models: Params, samples: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Correct predictions and mean cross-entropy of `models` on the indices `samples`; see `Evaluation`."""
    return Evaluation(images, samples)(model, models)


@torch.no_grad()
def batchnorm_inputs(
    model: Model, images: Images, models: Params, samples: Sequence[np.ndarray]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and standard deviation of the inputs of each BatchNorm layer: layer -> two tensors [n_clients, C]."""
    # over all pixels of the samples `samples[i]`, for the model in row i of `models`, in evaluation mode
    layers = {name: m for name, m in model.net.named_modules() if f"{name}.running_mean" in model.batchnorm}
    statistics = {name: ([], []) for name in layers}
    for i, index in enumerate(samples):
        moments = {name: [] for name in layers}  # of each chunk of samples
        hooks = [
            layer.register_forward_pre_hook(lambda _, inputs, to=moments[name]: to.append(_moments(*inputs)))
            for name, layer in layers.items()
        ]
        try:
            logits(model, row(models, i), images, to_device(torch.from_numpy(index), images.y.device))
        finally:
            for hook in hooks:
                hook.remove()
        for name, chunks in moments.items():
            n, total, squares = (sum(values) for values in zip(*chunks, strict=True))
            statistics[name][0].append(total / n)
            statistics[name][1].append((squares / n - (total / n) ** 2).clamp(min=0).sqrt())
    dtype = images.scale.dtype
    return {name: tuple(torch.stack(rows).to(dtype) for rows in pair) for name, pair in statistics.items()}


def class_features(cohort: Cohort, models: Tree) -> tuple[Tensor, Tensor]:
    """Mean features z [p] per client and class, [k, n_classes, p], and mean of ||z||^2 per client, [k].

    z is the input of the classifier of row i of `models` [k, ...] on client i's training samples, in evaluation mode. A
    class without samples has the mean 0.
    """
    model, test = cohort.model, _evaluation(cohort)
    z = test.outputs(model, cohort.with_statistics(models), lambda w, x: model.penultimate(w, x)[0])  # [samples, p]
    member = cohort.images.y[test.index, None] == torch.arange(model.n_classes, device=z.device)
    means, squares = [], []
    for z_i, member_i in zip(z.split(test.sizes), member.to(z.dtype).split(test.sizes), strict=True):
        means.append(member_i.T @ z_i / member_i.sum(0).clamp(min=1)[:, None])
        squares.append((z_i**2).sum(1).mean())
    return torch.stack(means), torch.stack(squares)


def client_logits(cohort: Cohort, models: Tree) -> tuple[Tensor, ...]:
    """Logits of row i of `models` [k, ...] on client i's training samples (eval mode): k times [n_i, n_classes]."""
    test = _evaluation(cohort)
    return test.outputs(cohort.model, cohort.with_statistics(models)).split(test.sizes)


def write_logits(table: Tensor, cohort: Cohort, models: Tree) -> None:
    """Write `client_logits` into `table` [len(data), n_classes], one row per sample of the data set."""
    for index, z in zip(cohort.samples, client_logits(cohort, models), strict=True):
        table[to_device(torch.from_numpy(index), table.device)] = z.to(table.dtype)


def mean_loss(cohort: Cohort, models: Tree, samples: Sequence[np.ndarray] | None = None) -> Tensor:
    """Mean cross-entropy of row i of `models` [k, ...] in evaluation mode: float64 [k].

    `samples[i]` are indices of client i; default: the training samples.
    """
    return _evaluation(cohort, samples)(cohort.model, cohort.with_statistics(models))[1]


def _evaluation(cohort: Cohort, samples: Sequence[np.ndarray] | None = None) -> Evaluation:
    return Evaluation(cohort.images, cohort.samples if samples is None else samples, cohort.images.y.is_cuda)


def _moments(x: Tensor) -> tuple[int, Tensor, Tensor]:
    """Number of values per channel of x [batch, C, ...], and sums of values and of squares, float64 [C]."""
    x = x.double().transpose(0, 1).flatten(1)
    return x.shape[1], x.sum(1), (x**2).sum(1)


def _blocks(sizes: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of clients of similar size: client numbers [g], positions of their samples [g, longest]."""
    # A block has at most CHUNK_GPU samples, or one client; shorter clients are padded with their last sample.
    n = torch.tensor(sizes)
    first, order = n.cumsum(0) - n, n.argsort(descending=True, stable=True)
    while len(order):
        longest = int(n[order[0]])
        block, order = order.tensor_split([max(CHUNK_GPU // longest, 1)])
        yield block, first[block, None] + torch.arange(longest).minimum(n[block, None] - 1)
