"""SimCLR (Chen et al., ICML 2020): two random views of every image, and a contrastive loss."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.training.batches import to_device

MIRRORED, JITTERED, GREY = 0.5, 0.8, 0.2  # shares of the images
SMALLEST, RATIO = 0.8, math.log(4 / 3)  # of a crop: smallest area, and logarithm of the largest aspect ratio
JITTER, HUE = 0.4, 0.1
YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]], dtype=torch.float64)


def nt_xent(z: Tensor, temperature: float) -> Tensor:
    """NT-Xent: the mean over i of -log(exp(cos(z_i, z_j) / t) / sum_(k != i) exp(cos(z_i, z_k) / t)).

    Here j is the other view of the image of i, and t is the temperature. The rows of z [2n, p] are the logits of the
    first views of n images and then of the second views.

    Example:
        >>> import torch
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
