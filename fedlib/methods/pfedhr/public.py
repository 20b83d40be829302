"""Training on public images (pFedHR, section 3.1.3), and similarity of the trained networks (equations 2 and 5).

Training is supervised, or as in SimCLR (Chen et al., ICML 2020), with a contrastive loss of two random views of each
image.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.methods.pfedhr.reassemble import Network
from fedlib.models import Model
from fedlib.stack import Params
from fedlib.streams import Stream, generator
from fedlib.training import Images, logits
from fedlib.training.batches import to_device
from fedlib.training.server import fine_tuned, server_batches

Train = Callable[[Model, Params, int], Params]  # see `public_training`
MIRRORED, JITTERED, GREY = 0.5, 0.8, 0.2  # shares of the images
SMALLEST, RATIO = 0.8, math.log(4 / 3)  # of a crop: smallest area, and logarithm of the largest aspect ratio
JITTER, HUE = 0.4, 0.1
YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]], dtype=torch.float64)


def nt_xent(z: Tensor, temperature: float) -> Tensor:
    """NT-Xent: the mean over i of -log(exp(cos(z_i, z_j) / t) / sum_(k != i) exp(cos(z_i, z_k) / t)).

    Here j is the other view of the image of i, and t is the temperature. The rows of z [2n, p] are the logits of the
    first views of n images and then of the second views.

    Example:
        >>> from fedlib.methods.pfedhr import nt_xent
        >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])  # of two images
        >>> bool(nt_xent(torch.cat([z, z]), temperature=0.5) < nt_xent(torch.cat([z, z.flip(0)]), temperature=0.5))
        True
    """
    z = F.normalize(z, dim=1)
    cosines = (z @ z.T / temperature).fill_diagonal_(-math.inf)
    return F.cross_entropy(cosines, torch.arange(len(z), device=z.device).roll(len(z) // 2))


def view(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Random views of images x [n, C, H, W] with pixels from 0 to 1.

    Half of the views are mirrored. Each is a crop of 0.8 to 1 of the area, enlarged to the size of the image. Four of
    five have brightness, contrast and saturation times 0.6 to 1.4 and a hue turned by up to a tenth of the circle (in
    the plane of I and Q). One of five is grey. Images without exactly three channels keep their saturation and hue.
    """

    def put(values: np.ndarray) -> Tensor:
        return to_device(torch.from_numpy(values), x.device).to(x.dtype)

    n, jittered = len(x), rng.random(len(x)) < JITTERED
    area, ratio = rng.uniform(SMALLEST, 1, n), np.exp(rng.uniform(-RATIO, RATIO, n))
    width, height = np.sqrt(area * ratio).clip(max=1), np.sqrt(area / ratio).clip(max=1)
    left, top = rng.uniform(width - 1, 1 - width), rng.uniform(height - 1, 1 - height)
    mirror, zero = np.where(rng.random(n) < MIRRORED, -1, 1), np.zeros(n)
    crop = np.stack([mirror * width, zero, left, zero, height, top], 1).reshape(n, 2, 3)
    grid = F.affine_grid(put(crop), list(x.shape), align_corners=False)
    x = F.grid_sample(x, grid, padding_mode="border", align_corners=False)

    brightness, contrast, saturation = 1 + jittered[:, None] * rng.uniform(-JITTER, JITTER, (3, n, 1))
    angle = 2 * np.pi * jittered * rng.uniform(-HUE, HUE, n)
    x = (x * put(brightness)[:, :, None, None]).clamp(max=1)
    mean = x.mean((1, 2, 3), keepdim=True)
    x = mean + put(contrast)[:, :, None, None] * (x - mean)
    if x.shape[1] == len(YIQ):
        colour = np.where(rng.random(n) < GREY, 0, saturation[:, 0])
        turned = np.zeros((n, 3, 3))
        turned[:, 0, 0] = 1
        turned[:, 1:, 1:] = (colour * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])).T
        x = torch.einsum("nij,njhw->nihw", put(YIQ.inverse().numpy() @ turned @ YIQ.numpy()), x)
    return x.clamp(0, 1)


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
) -> Train:
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


def alike(copies: Tensor, candidates: Tensor) -> Tensor:
    """Similarity of networks: the mean cosine of their logits (eq. 5), from -1 to 1.

    Example:
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
