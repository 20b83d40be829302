"""Embedded set of 62 printed characters by "writers", from matplotlib's fonts."""

import string
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fedlib.checks import check_count
from fedlib.data import ink
from fedlib.data.dataset import Dataset
from fedlib.data.scans import generator, in_chunks
from fedlib.extras import Late, Needs

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
FONTS = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSansMono-Oblique",
    "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "STIXGeneral", "STIXGeneralBol",
    "STIXGeneralItalic", "cmb10", "cmr10", "cmss10", "cmti10", "cmtt10",
)  # fmt: skip
SIZE = 28
ndimage = Late("scipy.ndimage")
_CANVAS = 56


@lru_cache(maxsize=1)
def glyphs() -> np.ndarray:
    """Masks on a common baseline, blurred for pens of any width: float64 [16 fonts, 62 characters, 56, 56]."""
    with Needs("notebooks", "The data set 'characters'"):
        import matplotlib  # imported late: only this set needs it

    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    sharp = np.array([[_glyph(folder / f"{font}.ttf", c) for c in CHARACTERS] for font in FONTS]) / 255
    return ndimage.gaussian_filter(sharp, 1.2, axes=(2, 3))


def _glyph(font: Path, character: str) -> np.ndarray:
    image = Image.new("L", (_CANVAS, _CANVAS))
    face = _face(font)
    left, _, right, _ = face.getbbox(character, anchor="ls")
    ImageDraw.Draw(image).text(((_CANVAS - left - right) / 2, 42), character, 255, face, anchor="ls")
    return np.asarray(image)


@lru_cache(maxsize=len(FONTS))
def _face(font: Path) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(font), 40, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=4)
def characters(writers: int = 100, seed: int = 0, copies: int = 1) -> Dataset:
    """Make the 62 characters 0-9, A-Z, a-z by many writers, 1x28x28: the stand-in for EMNIST and FEMNIST.

    Each writer is a domain: a font with a fixed slant, pen, size, proportions and bend; each image varies pose and bend
    a little. A fifth of each writer's characters, different for each writer, forms the test split, so that both splits
    contain every character. No image has a `source`: in a split other than the official one, a writer can have the same
    character for training and for testing, as in FEMNIST.

    Args:
        writers: number of writers; 100 make 6,200 images.
        seed: seed of all random draws.
        copies: images of each character per writer.
    """
    writers = check_count("writers", writers, low=5)
    copies = check_count("copies", copies)
    rng = generator(4, seed)
    habit = {
        "font": rng.permutation(np.arange(writers) % len(FONTS)),
        "slant": ink.uniform(rng, writers, (-0.35, 0.45)),
        "scale": ink.uniform(rng, writers, (0.95, 1.2), 1) * ink.uniform(rng, writers, (0.88, 1.15), 2),
        "angle": ink.uniform(rng, writers, (-8, 8)),
        "pen": ink.uniform(rng, writers, (0.0, 0.28)),
        "bend": ink.bends(rng, writers, 0.06, SIZE),
    }
    writer, character, _ = (a.ravel() for a in np.indices((writers, len(CHARACTERS), copies)))
    order = rng.permutation(len(writer))
    writer, character = writer[order], character[order]
    split = ((writer + character) % 5 == 0).astype(np.uint8)
    x = in_chunks(lambda w, c: _write(rng, {k: v[w] for k, v in habit.items()}, c), writer, character)
    domains = tuple(f"writer {w}" for w in range(writers))
    return Dataset("characters", x, character, tuple(CHARACTERS), split, writer, domains)


def _write(rng: np.random.Generator, habit: dict[str, np.ndarray], character: np.ndarray) -> np.ndarray:
    """Pictures [n, 1, 28, 28], light on dark, of `character` [n] with the habits [n, ...] of their writers."""
    n = len(character)
    maps = ink.affine(
        angle=habit["angle"] + ink.uniform(rng, n, (-8, 8)),
        scale=habit["scale"] * ink.uniform(rng, n, (0.9, 1.1), 2),
        slant=habit["slant"] + ink.uniform(rng, n, (-0.1, 0.1)),
        shift=ink.uniform(rng, n, (-0.08, 0.08), 2),
    )
    bend = habit["bend"] + ink.bends(rng, n, 0.05, SIZE)
    mask = ink.warp(glyphs()[habit["font"], character], maps, (SIZE, SIZE), bend)
    return ink.stroke(mask, habit["pen"])[:, None]
