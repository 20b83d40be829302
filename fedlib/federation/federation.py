"""Federations: a data set divided among clients, as index arrays of train, test and validation images."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedlib.checks import check_count, check_kind, check_number
from fedlib.data.dataset import TEST, Dataset, read_only
from fedlib.federation.partition import Partition, Shares, append_pieces, check_shares
from fedlib.streams import generator


@dataclass(frozen=True, eq=False)
class Federation:
    """A data set divided among clients, as read-only index arrays into `data`; `federate` makes it.

    Attributes:
        data: the images of all clients.
        partition: rule of the division.
        train: indices of each client's training images: one int64 array per client.
        test: indices of each client's test images, likewise.
        test_fraction: share of each client's images used for testing; None: the official test split.
        seed: seed of all random draws.
        validation: indices of each client's validation images, likewise; `()` if validation_fraction is 0.
        validation_fraction: share of the images not used for testing that is used for validation.
        unseen: number of clients that never take part in training: the last ones.
        public: images of no client, available to the server and every client; None without public images.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.shards(2), clients=5)
        >>> print(federation)
        digits shards(per_client=2), 5 clients
        >>> federation.n_clients, federation.sizes
        (5, array([360, 359, 360, 359, 359]))
        >>> len(federation.train[0]), len(federation.test[0])
        (180, 180)
    """

    data: Dataset
    partition: Partition
    train: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...]
    test_fraction: float | None
    seed: int
    validation: tuple[np.ndarray, ...] = ()
    validation_fraction: float = 0.0
    unseen: int = 0
    public: Dataset | None = None

    def __post_init__(self) -> None:
        for part in ("train", "test", "validation"):
            object.__setattr__(self, part, tuple(map(read_only, getattr(self, part))))

    def __setstate__(self, state: dict[str, Any]) -> None:  # copies are read-only, too
        self.__dict__.update(state)
        self.__post_init__()

    @property
    def n_clients(self) -> int:
        """Number of clients, unseen ones included."""
        return len(self.train)

    @property
    def parts(self) -> tuple[tuple[np.ndarray, ...], ...]:
        """The index arrays `train`, `test` and, if it is not empty, `validation`."""
        return tuple(filter(None, (self.train, self.test, self.validation)))

    @property
    def sizes(self) -> np.ndarray:
        """Images per client, train, test and validation together: int64 [n_clients]."""
        return np.array([sum(map(len, client)) for client in zip(*self.parts, strict=True)])

    def counts(self) -> np.ndarray:
        """Count images per client and class, train, test and validation together.

        Returns:
            int64 [n_clients, n_classes].
        """
        return np.sum([self._counts(part) for part in self.parts], axis=0)

    @cached_property
    def train_counts(self) -> np.ndarray:
        """Train images per client and class: int64 [n_clients, n_classes]."""
        return self._counts(self.train)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the images and their division among the clients: 16 hex digits."""
        digest = hashlib.sha256(self.data.fingerprint.encode())
        for index in (index for part in self.parts for index in part):
            digest.update(len(index).to_bytes(8, "little") + index.astype("<i8").tobytes())
        if self.public is not None:
            digest.update(self.public.fingerprint.encode())
        return digest.hexdigest()[:16]

    def with_public(self, public: Dataset) -> "Federation":
        """Replace the public images.

        Public images with the `source` of a test or validation image of a client are left out; both data sets must use
        the same numbers for their sources.

        Args:
            public: images of the same shape, with the same number of classes.

        Returns:
            A federation with these public images.

        Raises:
            ValueError: the shapes or the numbers of classes differ.

        Example:
            >>> federation = fl.federate(fl.load("digits", copies=1), fl.iid(), clients=3)
            >>> public = fl.load("digit_styles", per_style=100)
            >>> federation.with_public(public).public.name
            'digit_styles'
        """
        shape, n_classes = self.data.x.shape[1:], len(self.data.classes)
        if public.x.shape[1:] != shape or len(public.classes) != n_classes:
            raise ValueError(
                f"{public.name} cannot be public for {self.data.name}: it has images of {public.x.shape[1:]} and "
                f"{len(public.classes)} classes instead of {shape} and {n_classes}."
            )
        if self.data.source is not None and public.source is not None:
            sources = self.data.source[np.concatenate([*self.test, *self.validation])]
            public = public.subset(~np.isin(public.source, sources))
        return replace(self, public=public)

    def _counts(self, part: tuple[np.ndarray, ...]) -> np.ndarray:
        n_classes = len(self.data.classes)
        return np.stack([np.bincount(self.data.y[index], minlength=n_classes) for index in part])

    def __str__(self) -> str:
        return f"{self.data.name} {self.partition}, {self.n_clients} clients"

    def __repr__(self) -> str:
        return str(self)


def federate(
    data: Dataset,
    partition: Partition,
    clients: int,
    test_fraction: float | None = 0.5,
    seed: int = 0,
    validation_fraction: float = 0.0,
    unseen: int = 0,
    public: float = 0.0,
) -> Federation:
    """Divide a data set among clients and split each client's images at random into train and test parts.

    Images with the same `source`, as in the embedded digits, are never separated, not even across clients: no train,
    validation or public image has the source of a test image, and no train or public image that of a validation image.
    The fractions below are then approximate.

    Args:
        data: the images of all official splits.
        partition: rule of the division, such as `dirichlet(0.1)`.
        clients: number of clients.
        test_fraction: share of each client's images for testing, in (0, 1). None: the partition divides all
            images but the official test split, of which a client gets the same share, per class and domain.
        seed: seed of all random draws.
        validation_fraction: share of the images not used for testing that is used for validation, in [0, 1).
        unseen: number of clients that are evaluated (after fine-tuning if the run fine-tunes) but never sampled: the
            last ones.
        public: share of the images not used for testing, in [0, 1), the same in every class, that becomes public and
            belongs to no client.

    Returns:
        The federation.

    Raises:
        ValueError: an argument is out of range, there are more clients than images, or a client would have no train,
            test or validation image.

    Source:
        pFedSim, section 5 (all images, shuffled); pFedMB, section V-A, and FedSimSup, section 4.1 (official test
        split); FedCS, section 5 (`unseen`); pFedHR, section 4.1 (`public`).

    Example:
        >>> data = fl.load("digits", copies=1)
        >>> federation = fl.federate(data, fl.dirichlet(alpha=0.1, min_size=10), clients=3, test_fraction=0.25)
        >>> federation.counts()
        array([[ 58,  23,   0,   0,   0,   6,   1, 178, 163,  25],
               [119,   0, 176,   2,   0,   0, 180,   1,  11, 155],
               [  1, 159,   1, 181, 181, 176,   0,   0,   0,   0]])
    """
    check_kind("data", data, Dataset, "a Dataset, as fl.load makes it")
    check_kind("partition", partition, Partition, "a Partition such as fl.iid()")
    clients = check_count("clients", clients)
    if test_fraction is not None:
        test_fraction = check_number("test_fraction", test_fraction, 0, 1, open_low=True, open_high=True)
    elif not (data.split == TEST).any():
        raise ValueError(
            f"test_fraction=None is not allowed; {data.name!r} has no official test split, so give a share of each "
            f"client's images, such as test_fraction=0.25."
        )
    validation_fraction = check_number("validation_fraction", validation_fraction, 0, 1, open_high=True)
    seed = check_count("seed", seed, 0)
    unseen = check_count("unseen", unseen, 0, clients - 1)
    public = check_number("public", public, 0, 1, open_high=True)
    dealt = np.arange(len(data)) if test_fraction is not None else np.flatnonzero(data.split != TEST)
    share = public * (1 - (test_fraction or 0))  # of the images in `dealt`
    drawn = _stratified(data.y[dealt], share, generator(seed, "public")) if public else []
    public_images, dealt = dealt[drawn], np.delete(dealt, drawn)
    wanted = {"train": "train on", "test": "test on", "validation": "validate on"}
    if not validation_fraction:
        del wanted["validation"]
    if len(wanted) * clients > len(data) or clients > len(dealt):
        raise ValueError(
            f"clients={clients} is not allowed; {data.name} has {len(data)} samples and every client needs one to "
            f"{' and one to '.join(wanted.values())}."
        )
    rng = generator(seed, "partition")
    shares = [
        dealt[rng.permutation(share)]
        for share in check_shares(
            partition, partition.assign(data.y[dealt], data.domain[dealt], clients, rng), clients, len(dealt)
        )
    ]
    if test_fraction is None:
        train, test = shares, _official_test(data, shares, rng)
    else:
        train, test = _cut(data, shares, test_fraction / (1 - share), public_images)
    parts = {"train": train, "test": test}
    if validation_fraction:
        parts["train"], parts["validation"] = _cut(data, train, validation_fraction, public_images)
    for name, part in parts.items():
        if empty := [i for i, index in enumerate(part) if not len(index)]:
            raise ValueError(
                f"{partition} leaves client {empty[0]} without a sample to {wanted[name]}; take fewer clients than "
                f"{clients}, a larger data set or another test_fraction or validation_fraction."
            )
    parts = {name: tuple(part) for name, part in parts.items()}
    given = {"test_fraction": test_fraction, "seed": seed, "validation_fraction": validation_fraction, "unseen": unseen}
    return Federation(data, partition, **parts, **given, public=data.subset(public_images) if public else None)


def _stratified(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Positions of a random share of each class, at least one image, in random order."""
    by_class = (rng.permutation(np.flatnonzero(y == c)) for c in np.unique(y))
    return rng.permutation(np.concatenate([index[: max(round(share * len(index)), 1)] for index in by_class]))


def _cut(data: Dataset, shares: Shares, fraction: float, public: np.ndarray) -> tuple[Shares, Shares]:
    """Split each share into a first part and the last `fraction`, without separating images of the same source."""
    sizes = [len(share) for share in shares]
    wanted = np.array([round(size * fraction) for size in sizes])
    if data.source is None:
        off = [np.arange(size) >= size - n for size, n in zip(sizes, wanted, strict=True)]
    else:
        off = np.split(_whole(data.source, shares, wanted, public), np.cumsum(sizes)[:-1])
    pairs = list(zip(shares, off, strict=True))
    return [share[~cut] for share, cut in pairs], [share[cut] for share, cut in pairs]


def _whole(source: np.ndarray, shares: Shares, wanted: np.ndarray, public: np.ndarray) -> np.ndarray:
    """Mask of about the last `wanted` images of each share, in whole sources: bool, concatenated over the shares."""
    # Sources are tried in the order of their first images (by index), from the ends of the shares. A source without a
    # public image is cut off if that shortens the vector `missing`: the number of images still to cut off each share.
    dealt, missing = np.concatenate(shares), wanted.copy()
    owner = np.repeat(np.arange(len(shares)), [len(share) for share in shares])
    from_end = np.concatenate([np.arange(len(share), 0, -1) / (len(share) + 1) for share in shares])
    order = np.lexsort((dealt, source[dealt]))
    by_source = np.split(order, np.flatnonzero(np.diff(source[dealt[order]])) + 1)  # images
    off, is_public = np.zeros(len(dealt), bool), np.isin(source[dealt], source[public])
    for images in sorted(by_source, key=lambda images: from_end[images[0]]):
        held = np.bincount(owner[images], minlength=len(shares))
        if held @ (2 * missing - held) > 0 and not is_public[images[0]]:
            missing -= held
            off[images] = True
    return off


def _official_test(data: Dataset, shares: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """Official test samples, divided per class and domain in the proportions of `shares`, where these are not empty."""
    kinds = data.domain * len(data.classes) + data.y
    n_kinds = len(data.domains) * len(data.classes)
    held = np.stack([np.bincount(kinds[share], minlength=n_kinds) for share in shares])  # [n_clients, n_kinds]
    test = [[] for _ in shares]
    for kind in np.flatnonzero(held.sum(0)):
        samples = rng.permutation(np.flatnonzero((kinds == kind) & (data.split == TEST)))
        append_pieces(test, samples, np.round(held[:, kind].cumsum()[:-1] / held[:, kind].sum() * len(samples)))
    return [rng.permutation(np.concatenate(share)) for share in test]
