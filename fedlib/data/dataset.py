"""The `Dataset` value: labelled uint8 images with their official split and their domains."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

TRAIN, TEST, VALIDATION = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images on the host; checked when made (`ValueError`); treat them as read-only.

    `name` is for people; `fingerprint` identifies the content. Labels are positions in `classes`, and
    every class has at least one sample. Images that were made from the same original have the same `source`;
    an original of which official test images were made is in no other part.
    """

    name: str
    x: np.ndarray  # uint8 [N, C, H, W]
    y: np.ndarray  # int64 [N]
    classes: tuple[str, ...]
    split: np.ndarray  # uint8 [N]: 0 train, 1 test, 2 validation (the official split)
    domain: np.ndarray  # int64 [N]: position in `domains` (zeros when there is one domain)
    domains: tuple[str, ...]
    source: np.ndarray | None = None  # int64 [N]: any numbers; None where every image is an original of its own

    def __post_init__(self) -> None:
        n = len(self.x)
        _check_array("x", self.x, np.uint8, f"({n}, C, H, W)", self.x.ndim == 4 and min(self.x.shape) > 0)
        per_image = {"y": np.int64, "split": np.uint8, "domain": np.int64}
        if self.source is not None:
            per_image["source"] = np.int64
        for field, dtype in per_image.items():
            values = getattr(self, field)
            _check_array(field, values, dtype, f"({n},), one per image", values.shape == (n,))
        _check_range("y", self.y, len(self.classes), "classes")
        _check_range("domain", self.domain, len(self.domains), "domains")
        _check_range("split", self.split, 3, "splits (0 train, 1 test, 2 validation)")
        empty = np.flatnonzero(np.bincount(self.y, minlength=len(self.classes)) == 0)
        if len(empty):
            first = f"class {empty[0]} ({self.classes[empty[0]]!r})"
            more = f" and {len(empty) - 1} more have" if len(empty) > 1 else " has"
            raise ValueError(f"an empty class: {first}{more} no sample; every class needs at least one.")
        if self.source is not None:
            torn = np.intersect1d(self.source[self.split == TEST], self.source[self.split != TEST])
            if len(torn):
                raise ValueError(f"source {torn[0]} is in the official test part and in another one; it may be in one.")

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        n, c, h, w = self.x.shape
        size = f"{n:,} images {c}x{h}x{w}, {len(self.classes)} classes, {len(self.domains)} domain(s)"
        return f"Dataset({self.name!r}: {size}, fingerprint {self.fingerprint})"

    def subset(self, indices: Sequence[int] | np.ndarray) -> "Dataset":
        """The images at `indices` (or where a mask is true), in that order; every class must remain."""
        i = np.asarray(indices)
        if i.size == 0 or i.ndim != 1 or i.dtype.kind not in "iub":
            raise ValueError(f"indices of shape {i.shape}, {i.dtype} are not allowed; they must be whole numbers.")
        if i.dtype.kind == "b":
            if len(i) != len(self):
                raise ValueError(f"the mask has {len(i)} entries; it needs {len(self)}, one per image.")
            i = np.flatnonzero(i)
        elif i.min() < 0 or i.max() >= len(self):
            raise ValueError(f"indices from {i.min()} to {i.max()} are not allowed; allowed: 0 to {len(self) - 1}.")
        source = None if self.source is None else self.source[i]
        return replace(self, x=self.x[i], y=self.y[i], split=self.split[i], domain=self.domain[i], source=source)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content (pixels, labels, split, domains, class names, sources if any), 16 hex digits."""
        digest = hashlib.sha256(repr((self.x.shape, self.classes, self.domains)).encode())
        for values in (self.x, self.y, self.split, self.domain, self.source):
            if values is not None:
                digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()[:16]

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Exact mean and standard deviation per channel: integer sums over 256-bin histograms."""
        values = range(256)
        blocks = range(0, len(self), 2048)  # small blocks: bincount widens its input to int64
        mean, std = [], []
        for c in range(self.x.shape[1]):
            counts = sum(np.bincount(self.x[i : i + 2048, c].ravel(), minlength=256) for i in blocks).tolist()
            n = sum(counts)
            total = sum(k * v for k, v in zip(counts, values, strict=True))
            squares = sum(k * v * v for k, v in zip(counts, values, strict=True))
            mean.append(total / (255 * n))
            std.append((n * squares - total**2) ** 0.5 / (255 * n) or 1.0)
        return np.array(mean, np.float32), np.array(std, np.float32)

    @property
    def mean(self) -> np.ndarray:
        """float32 [C]: mean over all images of the pixels scaled to [0, 1]."""
        return self._moments[0]

    @property
    def std(self) -> np.ndarray:
        """float32 [C]: standard deviation of the pixels scaled to [0, 1]; 1 for a constant channel."""
        return self._moments[1]


def _check_array(field: str, values: np.ndarray, dtype: type, shape: str, shape_fits: bool) -> None:
    if values.dtype != dtype or not shape_fits:
        wanted = f"{np.dtype(dtype)} of shape {shape}"
        raise ValueError(f"{field} is {values.dtype} of shape {values.shape}; it must be {wanted}.")


def _check_range(field: str, values: np.ndarray, count: int, what: str) -> None:
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= count:
        raise ValueError(f"{field} has values from {low} to {high}, but there are {count} {what}: 0 to {count - 1}.")
