"""Matching of candidates and clients (pFedHR, equations 2 and 5)."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.methods.pfedhr.reassemble import Network
from fedlib.models import Model
from fedlib.stack import Params
from fedlib.training import Images, logits

Train = Callable[[Model, Params, int], Params]  # see `public_training`


def alike(copies: Tensor, candidates: Tensor) -> Tensor:
    """Similarity of networks: the mean cosine of their logits (eq. 5), from -1 to 1.

    Example:
        >>> import torch
        >>> from fedlib.methods.pfedhr import alike
        >>> alike(torch.tensor([[[2.0, 0.0]]]), torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[-1.0, 0.0]]]))
        tensor([[ 1.,  0., -1.]])
    """
    # logits of k copies and M candidates on the same P images, [., P, n_classes] -> [k, M]
    a, b = (F.normalize(z, dim=2).flatten(1) for z in (copies, candidates))
    return a @ b.T / copies.shape[1]


def after_training(
    uploads: Sequence[Network], candidates: Sequence[Model], public: Images, train: Train
) -> tuple[list[Params], Tensor, Tensor]:
    """Train copies of the uploads, and the candidates, on the public images."""
    # -> weights of the candidates; logits of the copies [k, P, n_classes] and of the candidates [M, P, n_classes]
    k, networks = len(uploads), [*uploads, *(Network(model, model.weights) for model in candidates)]
    tuned = [train(*network, number) for number, network in enumerate(networks)]
    every = torch.arange(len(public.y), device=public.y.device)
    z = torch.stack([logits(model, w, public, every) for (model, _), w in zip(networks, tuned, strict=True)])
    return tuned[k:], z[:k], z[k:]
