"""Training on public images (pFedHR, section 3.1.3): supervised, or self-supervised on two views of each image."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.methods.pfedhr.contrastive import nt_xent, view
from fedlib.models import Model
from fedlib.stack import Params
from fedlib.streams import Stream, generator
from fedlib.training import Images
from fedlib.training.server import fine_tuned, server_batches


def views(images: Images, batches: Tensor, stream: Stream) -> list[Tensor]:
    """Two views of every image of each batch, normalised: first views and then second ones, [2 batch, C, H, W]."""
    rng, pairs = generator(*stream, "views"), []
    for index in batches:
        x = images.x[index].to(images.scale.dtype) / 255
        x = torch.cat([view(x, rng), view(x, rng)])
        pairs.append(torch.addcmul(images.shift, 255 * x, images.scale))
    return pairs


def public_training(
    images: Images, labelled: bool, epochs: int, batch_size: int, lr: float, temperature: float, stream: Stream
) -> Callable[[Model, Params, int], Params]:
    """Prepare train(model, w, number) -> trained copy of w; all networks get the same batches, and the same views."""
    # minimises cross-entropy, or without labels `nt_xent` of the logits of two views; `number` seeds the dropout
    batches = server_batches(images, epochs, batch_size, stream)
    pairs = [] if labelled else views(images, batches, stream)

    def train(model: Model, w: Params, number: int) -> Params:
        def error(w: Params, index: Tensor) -> Tensor:
            x, y, *_ = images.batch(index, model)
            return F.cross_entropy(model(w, x), y)

        def contrast(w: Params, x: Tensor) -> Tensor:
            return nt_xent(model(w, x), temperature)

        loss, data = (error, batches) if labelled else (contrast, pairs)
        return fine_tuned(model, w, loss, ((batch,) for batch in data), lr, (*stream, number))

    return train
