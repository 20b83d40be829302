"""Which candidate is most like a client's network (pFedHR, equations 2 and 5)."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.methods.pfedhr.reassemble import Network
from fedlib.models import Model
from fedlib.stack import Params
from fedlib.training.batches import Images
from fedlib.training.evaluate import logits

Train = Callable[[Model, Params, int], Params]  # what `training.server.public_training` answers


def alike(own: Tensor, candidates: Tensor) -> Tensor:
    """Mean cosine of logits (eq. 5): own [k, P, n_classes], candidates [M, P, n_classes] -> [k, M]."""
    unit, others = (F.normalize(z, dim=2).flatten(1) for z in (own, candidates))
    return unit @ others.T / own.shape[1]


def trained(
    uploads: Sequence[Network], candidates: Sequence[Model], public: Images, train: Train
) -> tuple[list[Params], Tensor, Tensor]:
    """Of the candidates after training the weights, and the logits of all public images: of trained copies of the
    uploads [k, P, n_classes], and of the candidates [M, P, n_classes].
    """
    k, networks = len(uploads), [*uploads, *(Network(model, model.weights) for model in candidates)]
    tuned = [train(*network, number) for number, network in enumerate(networks)]
    every = torch.arange(len(public.y), device=public.y.device)
    z = torch.stack([logits(model, w, public, every) for (model, _), w in zip(networks, tuned, strict=True)])
    return tuned[k:], z[:k], z[k:]
