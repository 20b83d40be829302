"""Server-side training on public images: one network at a time, each with a new Adam."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from fedlib.models import Model
from fedlib.stack import Params, select
from fedlib.streams import Stream
from fedlib.training.adam import adam
from fedlib.training.batches import Images, client_batches, to_device
from fedlib.training.phase import Loss, drawing


def server_batches(images: Images, epochs: int, batch_size: int, stream: Stream) -> Tensor:
    """Mini-batches of all `images`, one permutation per epoch: int64 [steps, batch]; see `client_batches`."""
    n = len(images.y)
    batches = client_batches(np.arange(n), range(epochs), min(batch_size, n), (*stream, "batches"))
    return to_device(batches, images.y.device)


def fine_tuned(model: Model, w: Params, loss: Loss, batches: Iterable[tuple], lr: float, stream: Stream) -> Params:
    """Copy of `w` after one step of Adam on loss(w, *batch) for each batch; dropout draws from `stream`."""
    w = {name: t.clone() for name, t in w.items()}
    first, second = ({name: torch.zeros_like(t) for name, t in select(w, model.trainable).items()} for _ in range(2))
    model.net.train()
    with drawing((*stream, "dropout"), next(iter(w.values())).device):
        return adam(loss, w, first, second, 0, batches, lr, fused=True)
