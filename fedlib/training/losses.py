"""Losses of one client: functions of (weights, batch, context...) that return a scalar."""

import torch.nn.functional as F
from torch import Tensor

from fedlib.stack import Params
from fedlib.training.batches import Batch


def cross_entropy(w: Params, batch: Batch) -> Tensor:
    """Mean cross-entropy of the model with weights `w` on one mini-batch."""
    return F.cross_entropy(batch.model(w, batch.x), batch.y)
