"""Training on public images (pFedHR, section 3.1.3): on their labels, or without them on two views of each."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.methods.pfedhr.contrastive import nt_xent, view
from fedlib.models import Model
from fedlib.stack import Params
from fedlib.streams import Stream, generator
from fedlib.training.batches import Images
from fedlib.training.server import fine_tuned, server_batches


def views(images: Images, batches: Tensor, stream: Stream) -> list[Tensor]:
    """Two views of every image of each batch [steps, batch], normalised: the first ones, then the second ones."""
    rng, pairs = generator(*stream, "views"), []
    for index in batches:
        x = images.x[index].to(images.scale.dtype) / 255
        x = torch.cat([view(x, rng), view(x, rng)])
        pairs.append(torch.addcmul(images.shift, 255 * x, images.scale))
    return pairs


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
