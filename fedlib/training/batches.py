"""Mini-batches: samples, their order, and the batch that a loss receives."""

import warnings
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib.data.dataset import Dataset
from fedlib.models import Model
from fedlib.streams import Stream, generator

BRIGHTEST = {"unit": 1.0, "raw": 255.0}  # value of a white pixel


class Batch(NamedTuple):
    """Input of a client's loss: normalised images x [batch, C, H, W], labels y [batch], and the architecture.

    `draws` are the random numbers of the step by name, drawn beforehand (see `train`); `index`, int64 [batch], are the
    positions of the images in `Images`.
    """

    x: Tensor
    y: Tensor
    model: Model
    draws: Mapping[str, Tensor] = {}
    index: Tensor | None = None

    def split(self, n: int) -> "list[Batch]":
        """Split a step with `batches_per_step=n` into its mini-batches."""
        chunks = zip(*(t.chunk(n) for t in (self.x, self.y, self.index)), strict=True)
        return [self._replace(x=x, y=y, index=index) for x, y, index in chunks]


class Images(NamedTuple):
    """A data set on the device: x uint8 [N, C, H, W], y int64 [N]; a batch is an index and a normalisation."""

    x: Tensor
    y: Tensor
    scale: Tensor  # [C, 1, 1]
    shift: Tensor

    def batch(self, index: Tensor, model: Model) -> Batch:
        """Normalised batch of the samples `index`, int64 [..., batch]; see `on_device`."""
        x = torch.addcmul(self.shift, _at(self.x, index).to(self.scale.dtype), self.scale)
        if index.dim() == 1 and x.device.type == "cpu" and not model.batchnorm:
            x = x.contiguous(memory_format=torch.channels_last)  # faster, except with BatchNorm
        return Batch(x, _at(self.y, index), model, index=index)


def _at(t: Tensor, index: Tensor) -> Tensor:
    """`t[index]`, twice as fast on a CPU."""
    return t.index_select(0, index.flatten()).unflatten(0, index.shape)


def on_device(data: Dataset, device: torch.device, dtype: torch.dtype = torch.float32, pixels: str = "unit") -> Images:
    """Copy `data` to `device` once, as uint8. On a CPU the arrays are shared, not copied, and never written."""
    # A batch is (pixel - mean) / std per channel, where mean and std are those of the whole data set with pixels scaled
    # to [0, 1]. With `pixels="raw"` pixels range from 0 to 255, with the same mean and std.
    mean, std = (torch.tensor(v, dtype=dtype, device=device)[:, None, None] for v in (data.mean, data.std))
    return Images(
        x=_shared(data.x).to(device),
        y=_shared(data.y).to(device),
        scale=BRIGHTEST[pixels] / (255 * std),
        shift=-mean / std,
    )


def beside(images: Images, data: Dataset) -> Images:
    """Copy `data` to the device of `images`, with the same normalisation."""
    return images._replace(x=_shared(data.x).to(images.x.device), y=_shared(data.y).to(images.y.device))


def _shared(values: np.ndarray) -> Tensor:
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # the array is read-only
        return torch.from_numpy(np.ascontiguousarray(values))


def to_device(t: Tensor, device: torch.device) -> Tensor:
    """Copy `t` to `device`; to a GPU from pinned memory, asynchronously."""
    leaves = t.device.type == "cpu" and device.type == "cuda"
    return (t.pin_memory() if leaves else t).to(device, non_blocking=True)


def client_batches(
    samples: np.ndarray, epochs: Iterable[int], batch_size: int, stream: Stream, per_step: int = 1
) -> Tensor:
    """Mini-batches of a client, one fresh permutation of `samples` per epoch: int64 [steps, per_step * batch_size].

    The permutation of epoch e is drawn from the stream (*stream, e), so batches do not depend on the method, the
    backend or the number of workers. The last batch of an epoch is filled up with the first samples of the permutation:
    all batches have the same shape, and BatchNorm never gets a single sample. A step takes `per_step` consecutive
    batches; remaining batches of an epoch are dropped. A client with fewer batches takes one step per epoch, filled up
    likewise.
    """
    steps, width = max(-(-len(samples) // batch_size) // per_step, 1), per_step * batch_size
    permutations = (generator(*stream, epoch).permutation(samples) for epoch in epochs)
    filled = [np.resize(permutation, (steps, width)) for permutation in permutations]
    return torch.from_numpy(np.concatenate(filled) if filled else np.empty((0, width), dtype=np.int64))
