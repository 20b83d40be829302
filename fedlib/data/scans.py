"""Embedded sets from scikit-learn's 1,797 real scans of handwritten digits (Alpaydin and Kaynak 1998).

The scans are split once, class by class, before images are drawn: in the official split no scan is in both train and
test. For other splits, `Dataset.source` marks the images that show, or may show, the same scan.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedlib.checks import check_count
from fedlib.data import ink
from fedlib.data.dataset import Dataset

SIZE = 32
DIGITS = tuple("0123456789")
SHEETS = 50
_CHUNK = 512


class Scans(NamedTuple):
    """The scans as smooth masks of ink, on 50 sheets with three or four scans of every digit."""

    mask: np.ndarray  # float64 [1797, 40, 40]
    digit: np.ndarray  # int64 [1797]
    sheet: np.ndarray  # int64 [1797]
    held_out: np.ndarray  # bool [1797]: scans of every fifth sheet, for test images only


@lru_cache(maxsize=1)
def scans() -> Scans:
    """Read and enlarge the scans, and assign each class to the sheets in a fixed random order."""
    table = _table()
    pixels, digit = table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    padded = np.pad(pixels / 16, ((0, 0), (1, 1), (1, 1)))  # [1797, 10, 10]
    mask = ink.enlarge(padded[:, None], (40, 40))[:, 0]
    order = np.random.default_rng(0).permutation(len(digit))
    sheet = np.empty_like(digit)
    for d in range(10):
        of_digit = order[digit[order] == d]
        sheet[of_digit] = np.arange(len(of_digit)) % SHEETS
    return Scans(mask, digit, sheet, sheet % 5 == 0)


def _table() -> np.ndarray:
    """Scikit-learn's table, 64 pixels from 0 to 16 and the digit: float64 [1797, 65]."""
    package = find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or []:
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits  # imported only without the file: the import takes a second

    pixels, digit = load_digits(return_X_y=True)
    return np.column_stack([pixels, digit])


@lru_cache(maxsize=4)
def digits(copies: int = 3, seed: int = 0) -> Dataset:
    """Make coloured digits in clutter, 10 classes, 3x32x32: the stand-in for CIFAR-10.

    Every image shows one scan, its `source`, in a random pose, pen and colour on textured paper, with lines and with
    fragments of other scans of its official split. In other splits the clutter of a train image may contain a
    fragment of a test scan. A fifth of the scans is held out for the official test split.

    Args:
        copies: images per scan; 3 make 5,391 images.
        seed: seed of all random draws.
    """
    rng, scan = _scans_of_digits(copies, seed)
    x = in_chunks(lambda chunk: cluttered(rng, chunk), scan)
    split = scans().held_out[scan].astype(np.uint8)
    return Dataset("digits", x, scans().digit[scan], DIGITS, split, 0 * scan, ("digits",), source=scan)


def digit_masks(copies: int = 3, seed: int = 0) -> np.ndarray:
    """Make the mask of the digit in each image of `digits(copies, seed)`, without clutter and crossing lines.

    Args:
        copies: images per scan, as in `digits`.
        seed: seed of all random draws, as in `digits`.

    Returns:
        Ink per pixel, uint8 [N, 32, 32]; 255 is full ink.

    Example:
        >>> from fedlib.data.scans import digit_masks
        >>> digit_masks(copies=1).shape
        (1797, 32, 32)
    """
    rng, scan = _scans_of_digits(copies, seed)
    return in_chunks(lambda chunk: digit_in_clutter(rng, chunk)[1], scan)


def _scans_of_digits(copies: int, seed: int) -> tuple[np.random.Generator, np.ndarray]:
    """Generator of `digits`, and the scan of each of its images: int64 [N]."""
    copies = check_count("copies", copies)
    rng = generator(1, seed)
    return rng, rng.permutation(np.repeat(np.arange(len(scans().digit)), copies))


@lru_cache(maxsize=4)
def digit_pairs(per_class: int = 60, seed: int = 0) -> Dataset:
    """Make two-digit numbers "00" to "99", 100 classes, 3x32x32: the stand-in for CIFAR-100.

    The two scans of an image come from one sheet, its `source`.

    Args:
        per_class: images of every number; 60 make 6,000 images. A fifth of them, at least one, are test images of
            held-out scans.
        seed: seed of all random draws.
    """
    per_class = check_count("per_class", per_class, low=2)
    rng = generator(2, seed)
    number = rng.permutation(np.repeat(np.arange(100), per_class))
    nth = np.empty_like(number)  # 0, 1, ... within a number
    nth[np.argsort(number, kind="stable")] = np.tile(np.arange(per_class), 100)
    held_out = nth < max(1, per_class // 5)
    turn = number + nth  # sheets take turns
    to_train = np.flatnonzero(np.arange(SHEETS) % 5)
    sheet = np.where(held_out, 5 * turn % SHEETS, to_train[turn % len(to_train)])
    tens, units = (_scan_of(rng, digit, sheet) for digit in (number // 10, number % 10))
    x = in_chunks(lambda left, right: _pair(rng, left, right), tens, units)
    classes = tuple(f"{n:02d}" for n in range(100))
    split = held_out.astype(np.uint8)
    return Dataset("digit_pairs", x, number, classes, split, 0 * number, ("digit_pairs",), source=sheet)


def _pair(rng: np.random.Generator, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Two scans side by side in one colour on cloudy paper: pictures [n, 3, 32, 32]."""
    n = len(left)
    base = ink.uniform(rng, n, (0.05, 0.95), 3)
    picture = ink.flat(base, SIZE) + ink.uniform(rng, n, (0.03, 0.15), 1, 1, 1) * ink.clouds(rng, n, SIZE, 5)
    colour = ink.contrasting(rng, base, 0.4)
    middle = ink.uniform(rng, n, (-0.08, 0.08), 2)
    for scan, side in ((left, -0.45), (right, 0.45)):
        centre = middle + np.array([side, 0.0])
        digit = posed(rng, scan, rotate=8, scale=(0.8, 1.0), shift=0.04, centre=centre, width=0.6, bend=0.02)
        picture = ink.put(picture, digit, colour)
    return picture


def _scan_of(rng: np.random.Generator, digit: np.ndarray, sheet: np.ndarray) -> np.ndarray:
    """A random scan of each `digit` [n] from its `sheet` [n]."""
    chosen = np.empty_like(digit)
    for d, s in np.ndindex(10, SHEETS):
        wanted = (digit == d) & (sheet == s)
        chosen[wanted] = rng.choice(np.flatnonzero((scans().digit == d) & (scans().sheet == s)), wanted.sum())
    return chosen


def cluttered(rng: np.random.Generator, scan: np.ndarray) -> np.ndarray:
    """Picture [n, 3, 32, 32] of each `scan` [n] in clutter of the same split (train or test)."""
    return digit_in_clutter(rng, scan)[0]


def digit_in_clutter(rng: np.random.Generator, scan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`cluttered`, and the mask of the digit without clutter [n, 32, 32]."""
    n = len(scan)
    base = ink.uniform(rng, n, (0.05, 0.95), 3)
    paper = ink.clouds(rng, n, SIZE, 4) + ink.clouds(rng, n, SIZE, 9, channels=1)
    picture = ink.flat(base, SIZE) + ink.uniform(rng, n, (0.05, 0.22), 1, 1, 1) * paper
    for _ in range(2):
        angle = ink.uniform(rng, n, (0, 2 * np.pi))
        centre = ink.uniform(rng, n, (0.8, 1.1), 1) * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        fragment = posed(rng, _others(rng, scan), rotate=90, scale=(0.5, 0.8), centre=centre, bend=None)
        picture = ink.put(picture, fragment, ink.uniform(rng, n, (0, 1), 3), ink.uniform(rng, n, (0.2, 0.7)))
    lined = rng.random(n) < 0.4
    picture = ink.put(picture, ink.lines(rng, n, SIZE, (1, 2)), ink.uniform(rng, n, (0, 1), 3), 0.7 * lined)
    digit = posed(rng, scan, rotate=18, scale=(0.72, 1.0), shift=0.15)
    colour = ink.contrasting(rng, base, 0.33)
    picture = ink.put(picture, digit, colour, ink.uniform(rng, n, (0.8, 1.0)))
    crossed = rng.random(n) < 0.2
    picture = ink.put(picture, ink.lines(rng, n, SIZE, (0.8, 1.4)), ink.uniform(rng, n, (0, 1), 3), 0.6 * crossed)
    return picture, digit


def posed(
    rng: np.random.Generator,
    scan: np.ndarray,
    rotate: float = 12,
    scale: ink.Range = (0.75, 0.95),
    shift: float = 0.1,
    centre: np.ndarray | float = 0.0,
    width: float = 1.0,
    pen: ink.Range = (-0.05, 0.15),
    bend: float | None = 0.04,
) -> np.ndarray:
    """Masks of scans, rotated by up to `rotate` degrees, slanted, scaled, shifted and bent: [n, 32, 32]."""
    n = len(scan)
    maps = ink.affine(
        angle=ink.uniform(rng, n, (-rotate, rotate)),
        scale=ink.uniform(rng, n, scale, 1) * ink.uniform(rng, n, (0.85, 1.15), 2) * (1.1 * width, 1.1),
        slant=ink.uniform(rng, n, (-0.25, 0.25)),
        shift=centre + ink.uniform(rng, n, (-shift, shift), 2),
    )
    bent = None if bend is None else ink.bends(rng, n, bend, SIZE)
    mask = ink.warp(scans().mask[scan], maps, (SIZE, SIZE), bent)
    return ink.stroke(mask, ink.uniform(rng, n, pen))


def _others(rng: np.random.Generator, scan: np.ndarray) -> np.ndarray:
    """A random scan of the same split for each `scan`."""
    held_out = scans().held_out
    test, train = np.flatnonzero(held_out), np.flatnonzero(~held_out)
    draw = rng.random(len(scan))
    return np.where(held_out[scan], test[(draw * len(test)).astype(int)], train[(draw * len(train)).astype(int)])


def generator(set_number: int, seed: int) -> np.random.Generator:
    """Generator of one embedded set: sets with the same seed do not share draws."""
    seed = check_count("seed", seed, low=0)
    return np.random.default_rng([set_number, seed])


def in_chunks(draw: Callable[..., np.ndarray], *columns: np.ndarray) -> np.ndarray:
    """Pixels of `draw(*columns)`, computed in chunks to limit memory: uint8 [N, ...]."""
    starts = range(0, len(columns[0]), _CHUNK)
    return np.concatenate([ink.pixels(draw(*(c[i : i + _CHUNK] for c in columns))) for i in starts])


# -- drawing styles -------------------------------------------------------------------------------------------------


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
    image is its scan; the fragments in clutter are as in `digits`.

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
