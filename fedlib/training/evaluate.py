"""Evaluation: every client's own model on its own test samples."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.models import Model
from fedlib.stack import Params
from fedlib.training.batches import Images

CHUNK = 512  # samples per forward pass; twice as fast on a CPU as 1024


@torch.no_grad()
def logits(model: Model, w: Params, images: Images, index: Tensor) -> Tensor:
    """Logits [len(index), n_classes] in evaluation mode of one model on the samples `index`."""
    model.net.eval()
    return torch.cat([model(w, images.batch(chunk, model).x) for chunk in index.split(CHUNK)])


@torch.no_grad()
def evaluate(model: Model, images: Images, models: Params, samples: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Correct answers (int64 [n_clients]) and mean cross-entropy (float64 [n_clients]).

    `models` is a stack [n_clients, ...], or [1, ...]: one model for everybody, run over all samples at once.
    `samples[i]` are the test indices of client i.
    """
    device = images.y.device
    sizes = [len(own) for own in samples]
    if next(iter(models.values())).shape[0] == 1:
        one = {name: t[0] for name, t in models.items()}
        out = logits(model, one, images, torch.as_tensor(np.concatenate(samples), device=device))
    else:
        rows = ({name: t[i] for name, t in models.items()} for i in range(len(samples)))
        own = (torch.as_tensor(index, device=device) for index in samples)
        out = torch.cat([logits(model, w, images, index) for w, index in zip(rows, own, strict=True)])
    y = images.y[torch.as_tensor(np.concatenate(samples), device=device)]
    hit = (out.argmax(1) == y).split(sizes)
    loss = F.cross_entropy(out.double(), y, reduction="none").split(sizes)
    return torch.stack([h.sum() for h in hit]).cpu(), torch.stack([value.mean() for value in loss]).cpu()
