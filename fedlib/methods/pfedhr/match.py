"""Which candidate is most like a client's network (pFedHR, equations 2 and 5)."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.methods.pfedhr.reassemble import Network
from fedlib.models import Model
from fedlib.stack import Params
from fedlib.training import Images, logits

Train = Callable[[Model, Params, int], Params]  # as `public_training` returns it


def alike(copies: Tensor, candidates: Tensor) -> Tensor:
    """Compare networks by the mean cosine of their logits (eq. 5).

    Args:
        copies: logits of the clients' networks on P images, [k, P, n_classes].
        candidates: logits of the candidates on the same images, [M, P, n_classes].

    Returns:
        The similarities, [k, M], from -1 to 1.

    Example:
        >>> import torch
        >>> from fedlib.methods.pfedhr import alike
        >>> alike(torch.tensor([[[2.0, 0.0]]]), torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[-1.0, 0.0]]]))
        tensor([[ 1.,  0., -1.]])
    """
    a, b = (F.normalize(z, dim=2).flatten(1) for z in (copies, candidates))
    return a @ b.T / copies.shape[1]


def after_training(
    uploads: Sequence[Network], candidates: Sequence[Model], public: Images, train: Train
) -> tuple[list[Params], Tensor, Tensor]:
    """Train copies of the uploads, and the candidates, on the public images.

    Args:
        uploads: the clients' networks.
        candidates: the stitched candidates.
        public: the public images.
        train: trains one network on them.

    Returns:
        The candidates' weights, and the logits of all P public images: those of the copies [k, P, n_classes] and those
        of the candidates [M, P, n_classes].
    """
    k, networks = len(uploads), [*uploads, *(Network(model, model.weights) for model in candidates)]
    tuned = [train(*network, number) for number, network in enumerate(networks)]
    every = torch.arange(len(public.y), device=public.y.device)
    z = torch.stack([logits(model, w, public, every) for (model, _), w in zip(networks, tuned, strict=True)])
    return tuned[k:], z[:k], z[k:]
