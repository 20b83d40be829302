"""Embedded set of digits in six drawing styles, one domain each."""

from functools import lru_cache

import numpy as np

from fedlib.checks import check_count
from fedlib.data import ink
from fedlib.data.dataset import Dataset
from fedlib.data.scans import DIGITS, SIZE, cluttered, generator, in_chunks, posed, scans


def _pen(rng: np.random.Generator, scan: np.ndarray) -> np.ndarray:
    """Dark pen on light paper with a little shade."""
    n = len(scan)
    paper = ink.flat(ink.uniform(rng, n, (0.85, 1.0), 3), SIZE) + 0.05 * ink.clouds(rng, n, SIZE, 3, channels=1)
    return ink.put(paper, posed(rng, scan), ink.uniform(rng, n, (0.0, 0.3), 3), 0.95)


def _pencil(rng: np.random.Generator, scan: np.ndarray) -> np.ndarray:
    """Grey, grainy outline on white."""
    n = len(scan)
    outline = ink.edges(posed(rng, scan, pen=(0.1, 0.2))) * rng.uniform(0.5, 1.0, (n, SIZE, SIZE))
    return ink.put(ink.flat(np.ones((n, 3)), SIZE), outline, np.repeat(ink.uniform(rng, n, (0.0, 0.4), 1), 3, axis=1))


def _poster(rng: np.random.Generator, scan: np.ndarray) -> np.ndarray:
    """Flat, saturated colours with a hard shadow to the lower right."""
    n = len(scan)
    base = np.round(ink.uniform(rng, n, (0, 1), 3)) * 0.8 + 0.1
    digit = posed(rng, scan, rotate=20, pen=(0.1, 0.2))
    shadow = np.roll(digit, (2, 2), axis=(1, 2))
    return ink.put(ink.put(ink.flat(base, SIZE), shadow, 0.4 * base), digit, ink.contrasting(rng, base, 0.3))


def _painting(rng: np.random.Generator, scan: np.ndarray) -> np.ndarray:
    """Colours that vary within the digit and the canvas, as from a brush."""
    n = len(scan)
    base = ink.uniform(rng, n, (0.1, 0.9), 3)
    canvas = ink.flat(base, SIZE) + 0.25 * ink.clouds(rng, n, SIZE, 6)
    paint = ink.flat(ink.contrasting(rng, base, 0.4), SIZE) + 0.25 * ink.clouds(rng, n, SIZE, 6)
    return canvas + posed(rng, scan, pen=(0.05, 0.2), bend=0.08)[:, None] * (paint - canvas)


def _halftone(rng: np.random.Generator, scan: np.ndarray) -> np.ndarray:
    """Printed dots on coloured paper: large dots for ink, small dots elsewhere."""
    n = len(scan)
    axis = np.arange(SIZE) % 4 - 1.5
    dot = np.hypot(axis, axis[:, None])  # [32, 32] distance to the nearest centre of a dot
    radius = 0.4 + 1.6 * posed(rng, scan, scale=(0.85, 1.05), pen=(0.05, 0.15))
    base = ink.uniform(rng, n, (0.6, 1.0), 3)
    return ink.put(ink.flat(base, SIZE), np.clip(radius - dot + 0.5, 0, 1), ink.uniform(rng, n, (0.0, 0.35), 3))


STYLES = {
    "pen": _pen,
    "pencil": _pencil,
    "poster": _poster,
    "painting": _painting,
    "halftone": _halftone,
    "clutter": cluttered,
}


@lru_cache(maxsize=4)
def digit_styles(per_style: int = 1000, seed: int = 0) -> Dataset:
    """Make digits in six drawing styles, the domains; 10 classes, 3x32x32: the stand-in for DomainNet and Digit-5.

    A style draws every scan at most once. The same scans are held out for test in all styles. The `source` of an
    image is its scan; the fragments in clutter follow `digits`.

    Args:
        per_style: images per style; 1,000 make 6,000 images.
        seed: seed of all random draws.
    """
    per_style = check_count("per_style", per_style, low=100, high=len(scans().digit))
    rng = generator(3, seed)
    x, scan = [], []
    for draw in STYLES.values():
        chosen = rng.permutation(len(scans().digit))[:per_style]
        scan.append(chosen)
        x.append(in_chunks(lambda chunk, draw=draw: draw(rng, chunk), chosen))
    scan = np.concatenate(scan)
    domain = np.repeat(np.arange(len(STYLES)), per_style)
    split = scans().held_out[scan].astype(np.uint8)
    x, y = np.concatenate(x), scans().digit[scan]
    return Dataset("digit_styles", x, y, DIGITS, split, domain, tuple(STYLES), source=scan)
