"""The `Dataset` value: labelled uint8 images with their official split and their domains."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

TRAIN, TEST, VALIDATION = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images in memory, with their official split and their domains.

    The arrays are read-only: a run is stored under the fingerprint of its data.

    Attributes:
        name: name for tables; `fingerprint` identifies the content.
        x: images, uint8 [N, C, H, W].
        y: labels, int64 [N]: positions in `classes`.
        classes: names of the classes. Every class has at least one image.
        split: official split, uint8 [N]: 0 train, 1 test, 2 validation.
        domain: domain of each image, int64 [N]: positions in `domains`; zeros if there is only one.
        domains: names of the domains.
        source: original of each image, int64 [N]: equal numbers mark images made from the same original. None if
            every image is an original. The originals of official test images occur in no other split.

    Raises:
        ValueError: an array has another type or shape, a label or domain has no name, a class has no image, or an
            original is in the official test split and in another one.

    Example:
        >>> n = 4
        >>> x, y = np.zeros((n, 1, 8, 8), np.uint8), np.array([0, 1, 0, 1])
        >>> split, domain = np.array([0, 0, 1, 1], np.uint8), np.zeros(n, np.int64)
        >>> data = fl.Dataset("mine", x, y, ("cat", "dog"), split, domain, ("photos",))
        >>> len(data), data.subset(data.split == 0).y
        (4, array([0, 1]))
    """

    name: str
    x: np.ndarray  # uint8 [N, C, H, W]
    y: np.ndarray  # int64 [N]
    classes: tuple[str, ...]
    split: np.ndarray  # uint8 [N]
    domain: np.ndarray  # int64 [N]
    domains: tuple[str, ...]
    source: np.ndarray | None = None  # int64 [N]

    def __post_init__(self) -> None:
        n = len(self.x)
        _check_array("x", self.x, np.uint8, f"({n}, C, H, W)", np.ndim(self.x) == 4 and min(np.shape(self.x)) > 0)
        per_image = {"y": np.int64, "split": np.uint8, "domain": np.int64}
        if self.source is not None:
            per_image["source"] = np.int64
        for field, dtype in per_image.items():
            values = getattr(self, field)
            _check_array(field, values, dtype, f"({n},), one per image", np.shape(values) == (n,))
        _check_range("y", self.y, len(self.classes), "classes")
        _check_range("domain", self.domain, len(self.domains), "domains")
        _check_range("split", self.split, 3, "splits (0 train, 1 test, 2 validation)")
        empty = np.flatnonzero(np.bincount(self.y, minlength=len(self.classes)) == 0)
        if len(empty):
            first = f"class {empty[0]} ({self.classes[empty[0]]!r})"
            more = f" and {len(empty) - 1} more have" if len(empty) > 1 else " has"
            raise ValueError(f"an empty class: {first}{more} no sample; every class needs at least one.")
        if self.source is not None:
            leaked = np.intersect1d(self.source[self.split == TEST], self.source[self.split != TEST])
            if len(leaked):
                raise ValueError(f"source {leaked[0]} is in the official test split and another one; keep it in one.")
        for field in ("x", "source", *per_image):
            object.__setattr__(self, field, read_only(getattr(self, field)))

    def __setstate__(self, state: dict[str, Any]) -> None:  # copies are read-only, too
        self.__dict__.update({name: read_only(v) if isinstance(v, np.ndarray) else v for name, v in state.items()})

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        n, c, h, w = self.x.shape
        size = f"{n:,} images {c}x{h}x{w}, {len(self.classes)} classes, {len(self.domains)} domain(s)"
        return f"Dataset({self.name!r}: {size}, fingerprint {self.fingerprint})"

    def subset(self, indices: Sequence[int] | np.ndarray) -> "Dataset":
        """Select images.

        Args:
            indices: positions of the images, in the order wanted, or a mask, bool [N].

        Returns:
            A data set of these images, with the same classes and domains.

        Raises:
            ValueError: a position does not exist, a mask has the wrong length, or a class has no image left.
        """
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
        """First 16 hex digits of the SHA-256 of the content: all arrays and the names of classes and domains."""
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
            counts = np.sum([np.bincount(self.x[i : i + 2048, c].ravel(), minlength=256) for i in blocks], 0).tolist()
            n = sum(counts)
            total = sum(k * v for k, v in zip(counts, values, strict=True))
            squares = sum(k * v * v for k, v in zip(counts, values, strict=True))
            mean.append(total / (255 * n))
            std.append((n * squares - total**2) ** 0.5 / (255 * n) or 1.0)
        return np.array(mean, np.float32), np.array(std, np.float32)

    @property
    def mean(self) -> np.ndarray:
        """Mean over all pixels, scaled to [0, 1], per channel: float32 [C]."""
        return self._moments[0]

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of all pixels, scaled to [0, 1], per channel: float32 [C]; 1 for a constant channel."""
        return self._moments[1]


def read_only(values: np.ndarray | None) -> np.ndarray | None:
    """Read-only view of an array."""
    if values is None:
        return None
    view = values.view()
    view.flags.writeable = False
    return view


def _check_array(field: str, values: np.ndarray, dtype: type, shape: str, shape_fits: bool) -> None:
    if not isinstance(values, np.ndarray) or values.dtype != dtype or not shape_fits:
        is_array = isinstance(values, np.ndarray)
        actual = f"{values.dtype} of shape {values.shape}" if is_array else f"a {type(values).__name__}"
        raise ValueError(f"{field} is {actual}; it must be an array, {np.dtype(dtype)} of shape {shape}.")


def _check_range(field: str, values: np.ndarray, count: int, what: str) -> None:
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= count:
        raise ValueError(f"{field} has values from {low} to {high}, but there are {count} {what}: 0 to {count - 1}.")
