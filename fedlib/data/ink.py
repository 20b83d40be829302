"""Image operations of the embedded sets: motion, bending, colouring and drawing of masks of ink.

A mask is float64 [N, H, W] in [0, 1] (1 = ink); a picture is float64 [N, 3, H, W] in [0, 1]. With float64 the rounded
pixels are the same on every machine.
"""

import numpy as np
import torch
from torch.nn import functional

Range = tuple[float, float]


def uniform(rng: np.random.Generator, n: int, limits: Range, *axes: int) -> np.ndarray:
    """Uniform draws from `limits`: [n, *axes]."""
    return rng.uniform(*limits, (n, *axes))


def affine(angle: np.ndarray, scale: np.ndarray, slant: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Inverse affine maps of ink, from the output square [-1, 1]^2 to the input square: [N, 2, 3]."""
    # angle [N] in degrees, counter-clockwise; scale [N, 2] of width and height; slant [N] to the right; shift [N, 2] to
    # the right and down, 1 = half a picture
    cos, sin, zero, one = np.cos(np.radians(angle)), np.sin(np.radians(angle)), 0 * angle, 0 * angle + 1
    rotate = np.array([[cos, sin], [-sin, cos]])  # [2, 2, N]
    shear = np.array([[one, -slant], [zero, one]])
    size = np.array([[scale[:, 0], zero], [zero, scale[:, 1]]])
    forward = np.einsum("abn,bcn,cdn->nad", rotate, shear, size)
    inverse = np.linalg.inv(forward)
    return np.concatenate([inverse, -np.einsum("nab,nb->na", inverse, shift)[..., None]], axis=2)


def warp(mask: np.ndarray, maps: np.ndarray, size: tuple[int, int], bend: np.ndarray | None = None) -> np.ndarray:
    """Transform `mask` [N, h, w] by `maps` [N, 2, 3] and displace it by `bend` [N, *size, 2]: [N, *size]."""
    grid = functional.affine_grid(torch.tensor(maps), [len(mask), 1, *size], align_corners=False)
    if bend is not None:
        grid = grid + torch.tensor(bend)
    warped = functional.grid_sample(torch.tensor(mask)[:, None], grid, align_corners=False, padding_mode="zeros")
    return warped[:, 0].numpy()


def enlarge(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bicubic enlargement: [N, C, h, w] -> [N, C, *size]."""
    return functional.interpolate(torch.tensor(images), size, mode="bicubic", align_corners=False).numpy()


def bends(rng: np.random.Generator, n: int, amount: float, size: int, cells: int = 3) -> np.ndarray:
    """Smooth random displacements of about `amount` (1 = half a picture): [n, size, size, 2]."""
    field = amount * rng.standard_normal((n, 2, cells, cells))
    return enlarge(field, (size, size)).transpose(0, 2, 3, 1)


def clouds(rng: np.random.Generator, n: int, size: int, cells: int, channels: int = 3) -> np.ndarray:
    """Smooth noise in about [-1, 1] with `cells` random values along a side: [n, channels, size, size]."""
    return enlarge(rng.uniform(-1, 1, (n, channels, cells, cells)), (size, size))


def stroke(mask: np.ndarray, weight: np.ndarray, sharpness: float = 9.0) -> np.ndarray:
    """Sharpen a soft mask [N, H, W]: ink where it exceeds 0.5 - `weight` [N] (a thicker pen)."""
    level = 0.5 - weight[:, None, None]
    ink, none, full = (1 / (1 + np.exp(-sharpness * (m - level))) for m in (mask, 0.0, 1.0))
    return np.clip((ink - none) / (full - none), 0, 1)


def edges(mask: np.ndarray) -> np.ndarray:
    """Outline of a mask [N, H, W]: length of the gradient, at most 1."""
    down, right = np.gradient(mask, axis=(1, 2))
    return np.minimum(1.0, 1.8 * np.hypot(down, right))


def lines(rng: np.random.Generator, n: int, size: int, width: Range) -> np.ndarray:
    """Masks of one straight line each, `width` in pixels: [n, size, size]."""
    axis = np.linspace(-1, 1, size)
    angle, offset = uniform(rng, n, (0, np.pi)), uniform(rng, n, (-0.9, 0.9))
    cos, sin, offset, half = (
        v[:, None, None] for v in (np.cos(angle), np.sin(angle), offset, uniform(rng, n, width) / size)
    )
    distance = np.abs(cos * axis + sin * axis[:, None] - offset)  # [n, size, size]
    return np.clip((half - distance) * size / 2 + 0.5, 0, 1)


def contrasting(rng: np.random.Generator, paper: np.ndarray, contrast: float, candidates: int = 32) -> np.ndarray:
    """Colours [N, 3] at least `contrast` brighter or darker than `paper` [N, 3], if a draw allows it."""
    colours = rng.uniform(0, 1, (len(paper), candidates, 3))
    gap = np.abs(brightness(colours) - brightness(paper)[:, None])
    fits = np.where(gap >= contrast, np.arange(candidates)[::-1] + 1.0, gap)  # earliest fit, else largest gap
    return np.take_along_axis(colours, fits.argmax(axis=1)[:, None, None], axis=1)[:, 0]


def brightness(colour: np.ndarray) -> np.ndarray:
    """Perceived brightness of RGB in [0, 1] (last axis)."""
    return colour @ np.array([0.299, 0.587, 0.114])


def flat(colour: np.ndarray, size: int) -> np.ndarray:
    """Pictures of one colour [N, 3] each: [N, 3, size, size]."""
    return np.broadcast_to(colour[:, :, None, None], (*colour.shape, size, size))


def put(picture: np.ndarray, mask: np.ndarray, colour: np.ndarray, opacity: np.ndarray | float = 1.0) -> np.ndarray:
    """Draw ink of `colour` [N, 3] on `picture` [N, 3, H, W] where `mask` [N, H, W] covers it."""
    cover = (np.reshape(opacity, (-1, 1, 1)) * mask)[:, None]
    return picture + cover * (colour[:, :, None, None] - picture)


def pixels(picture: np.ndarray) -> np.ndarray:
    """Clip and round [0, 1] to uint8."""
    return np.floor(np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8)
