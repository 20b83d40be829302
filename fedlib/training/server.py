"""What a server trains in one round, from its own data: Adam that starts anew, one network after the other."""

from collections.abc import Callable, Iterable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.models import Model
from fedlib.stack import Params, select
from fedlib.streams import Stream, generator
from fedlib.training.adam import adam
from fedlib.training.batches import Images, client_batches, to_device
from fedlib.training.contrastive import nt_xent, view
from fedlib.training.phase import drawing


def server_batches(images: Images, epochs: int, batch_size: int, stream: Stream) -> Tensor:
    """Indices of all `images` in random order, once an epoch: int64 [steps, batch]; see `client_batches`."""
    n = len(images.y)
    batches = client_batches(np.arange(n), range(epochs), min(batch_size, n), (*stream, "batches"))
    return to_device(batches, images.y.device)


def views(images: Images, batches: Tensor, stream: Stream) -> list[Tensor]:
    """Two views of every image of each batch [steps, batch], normalised: the first ones, then the second ones."""
    rng, pairs = generator(*stream, "views"), []
    for index in batches:
        x = images.x[index].to(images.scale.dtype) / 255
        x = torch.cat([view(x, rng), view(x, rng)])
        pairs.append(torch.addcmul(images.shift, 255 * x, images.scale))
    return pairs


def fine_tuned(
    model: Model, w: Params, loss: Callable[..., Tensor], batches: Iterable[tuple], lr: float, stream: Stream
) -> Params:
    """A copy of `w` after one step of Adam down loss(w, *batch) for each batch; `stream` is that of its dropout."""
    w = {name: t.clone() for name, t in w.items()}
    first, second = ({name: torch.zeros_like(t) for name, t in select(w, model.trainable).items()} for _ in range(2))
    model.net.train()
    with drawing((*stream, "dropout"), next(iter(w.values())).device):
        return adam(loss, w, first, second, 0, batches, lr, fused=True)


def public_training(
    images: Images, labelled: bool, epochs: int, batch_size: int, lr: float, temperature: float, stream: Stream
) -> Callable[[Model, Params, int], Params]:
    """A function (model, w, number) that answers a copy of `w` trained on all `images`; `number` seeds its dropout.

    With `labelled` on the cross-entropy, else on `nt_xent` of the logits of two views (pFedHR, section 3.1.3). All
    networks see the same batches, and the same views.
    """
    batches = server_batches(images, epochs, batch_size, stream)
    pairs = [] if labelled else views(images, batches, stream)

    def train(model: Model, w: Params, number: int) -> Params:
        def error(w: Params, index: Tensor) -> Tensor:
            x, y, *_ = images.batch(index, model)
            return F.cross_entropy(model(w, x), y)

        def contrast(w: Params, x: Tensor) -> Tensor:
            return nt_xent(model(w, x), temperature)

        loss, data = (error, batches) if labelled else (contrast, pairs)
        return fine_tuned(model, w, loss, ((own,) for own in data), lr, (*stream, number))

    return train
