"""A federation: one data set, dealt out to clients as index sets: train, test and, if wanted, validation parts."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedlib.checks import check_count, check_kind, check_number
from fedlib.data.dataset import TEST, Dataset
from fedlib.federation.partition import Partition, Shares
from fedlib.streams import generator


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients as index sets into `data`. `train[i]`, `validation[i]` and `test[i]` are disjoint int64 arrays.

    `validation` is empty, `()`, unless a share was asked for. `test_fraction` None: the official test part.
    The last `unseen` clients never take part in training. `public` images belong to nobody: the server has them, and
    everybody may see them.
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

    @property
    def n_clients(self) -> int:
        return len(self.train)

    @property
    def parts(self) -> tuple[tuple[np.ndarray, ...], ...]:
        """Train, test and, if there is one, validation: each with one index array per client."""
        return tuple(filter(None, (self.train, self.test, self.validation)))

    @property
    def sizes(self) -> np.ndarray:
        """Samples per client, all parts together: int64 [n_clients]."""
        return np.array([sum(map(len, own)) for own in zip(*self.parts, strict=True)])

    def counts(self) -> np.ndarray:
        """Samples per client and class, all parts together: int64 [n_clients, n_classes]."""
        return sum(map(self._counts, self.parts))

    @cached_property
    def train_counts(self) -> np.ndarray:
        """Train samples per client and class: int64 [n_clients, n_classes]."""
        return self._counts(self.train)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the data's content and of who owns what."""
        digest = hashlib.sha256(self.data.fingerprint.encode())
        for index in (own for part in self.parts for own in part):
            digest.update(len(index).to_bytes(8, "little") + index.astype("<i8").tobytes())
        if self.public is not None:
            digest.update(self.public.fingerprint.encode())
        return digest.hexdigest()[:16]

    def with_public(self, public: Dataset) -> "Federation":
        """The same clients, and `public` as the public images; as large as theirs, and of as many classes.

        Images of a `source` that somebody is tested or validates on are left out; both sets must number them alike.
        """
        shape, n_classes = self.data.x.shape[1:], len(self.data.classes)
        if public.x.shape[1:] != shape or len(public.classes) != n_classes:
            raise ValueError(
                f"{public.name} cannot be public for {self.data.name}: it has images of {public.x.shape[1:]} and "
                f"{len(public.classes)} classes instead of {shape} and {n_classes}."
            )
        if self.data.source is not None and public.source is not None:
            kept_apart = self.data.source[np.concatenate([*self.test, *self.validation])]
            public = public.subset(~np.isin(public.source, kept_apart))
        return replace(self, public=public)

    def _counts(self, part: tuple[np.ndarray, ...]) -> np.ndarray:
        n_classes = len(self.data.classes)
        return np.stack([np.bincount(self.data.y[index], minlength=n_classes) for index in part])

    def __str__(self) -> str:
        return f"{self.data.name} {self.partition}, {self.n_clients} clients"


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
    """Deal `data` out to `clients` and cut each client's share at random into train and test.

    All samples take part, whatever their official split (pFedSim, section 5). The first
    `1 - test_fraction` of each shuffled client trains, the rest tests. With `test_fraction=None` the partition deals
    out the official train part, and the official test part follows it: a client gets of each class (and domain) the
    share of test samples that it has of the train samples (pFedMB, section V-A; FedSimSup, section 4.1).
    The last `validation_fraction` of what would train is kept for validation. The last `unseen` clients are never
    sampled: they are evaluated, and fine-tuned for that where a run fine-tunes (FedCS, section 5). The share `public`
    of what would train is dealt to nobody: the same share of every class, in random order (pFedHR, section 4.1).

    Images with the same `source`, as the embedded digits have them, stay together, whoever owns them: what somebody is
    tested on is nowhere else, and what somebody validates on is neither trained on nor public. Sources are then cut off
    whole, in random order, so that every client comes near to the shares above.
    Raises `ValueError` for more clients than samples or a client with an empty part.
    """
    check_kind("data", data, Dataset, "a Dataset, as fl.load makes it")
    check_kind("partition", partition, Partition, "a Partition such as fl.iid()")
    check_count("clients", clients)
    if test_fraction is not None:
        check_number("test_fraction", test_fraction, 0, 1, open_low=True, open_high=True)
    check_number("validation_fraction", validation_fraction, 0, 1, open_high=True)
    check_count("seed", seed, 0)
    check_count("unseen", unseen, 0, clients - 1)
    check_number("public", public, 0, 1, open_high=True)
    dealt = np.arange(len(data)) if test_fraction is not None else np.flatnonzero(data.split != TEST)
    share = public * (1 - (test_fraction or 0))  # of all that could be dealt
    drawn = _stratified(data.y[dealt], share, generator(seed, "public")) if public else []
    shown, dealt = dealt[drawn], np.delete(dealt, drawn)
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
        dealt[rng.permutation(share)] for share in partition.assign(data.y[dealt], data.domain[dealt], clients, rng)
    ]
    if test_fraction is None:
        train, test = shares, _follow(data, shares, rng)
    else:
        train, test = _cut(data, shares, test_fraction / (1 - share), shown)
    parts = {"train": train, "test": test}
    if validation_fraction:
        parts["train"], parts["validation"] = _cut(data, train, validation_fraction, shown)
    for name, part in parts.items():
        if empty := [i for i, own in enumerate(part) if not len(own)]:
            raise ValueError(
                f"{partition} leaves client {empty[0]} without a sample to {wanted[name]}; take fewer clients than "
                f"{clients}, a larger data set or another test_fraction or validation_fraction."
            )
    parts = {name: tuple(part) for name, part in parts.items()}
    given = {"test_fraction": test_fraction, "seed": seed, "validation_fraction": validation_fraction, "unseen": unseen}
    return Federation(data, partition, **parts, **given, public=data.subset(shown) if public else None)


def _stratified(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Positions of a random share of each class, at least one, in random order."""
    own = (rng.permutation(np.flatnonzero(y == c)) for c in np.unique(y))
    return rng.permutation(np.concatenate([c[: max(round(share * len(c)), 1)] for c in own]))


def _cut(data: Dataset, shares: Shares, fraction: float, public: np.ndarray) -> tuple[Shares, Shares]:
    """Each share without its last `fraction`, and that; of data with sources, whole ones that are not `public`."""
    sizes = [len(share) for share in shares]
    wanted = np.array([round(size * fraction) for size in sizes])
    if data.source is None:
        off = [np.arange(size) >= size - n for size, n in zip(sizes, wanted, strict=True)]
    else:
        off = np.split(_whole(data.source, shares, wanted, public), np.cumsum(sizes)[:-1])
    own = list(zip(shares, off, strict=True))
    return [share[~cut] for share, cut in own], [share[cut] for share, cut in own]


def _whole(source: np.ndarray, shares: Shares, wanted: np.ndarray, public: np.ndarray) -> np.ndarray:
    """Which images to cut off, about the last `wanted` of each share, but whole sources: bool, all shares in a row.

    Sources come in the order in which their first images (by index) stand, seen from the ends of the shares. One is cut
    off if that makes `missing`, what its owners still want, a shorter vector.
    """
    dealt, missing = np.concatenate(shares), wanted.copy()
    owner = np.repeat(np.arange(len(shares)), [len(share) for share in shares])
    place = np.concatenate([np.arange(len(share), 0, -1) / (len(share) + 1) for share in shares])  # near 0 at the end
    order = np.lexsort((dealt, source[dealt]))
    groups = np.split(order, np.flatnonzero(np.diff(source[dealt[order]])) + 1)  # the images of each source
    off, shown = np.zeros(len(dealt), bool), np.isin(source[dealt], source[public])
    for images in sorted(groups, key=lambda images: place[images[0]]):
        held = np.bincount(owner[images], minlength=len(shares))
        if held @ (2 * missing - held) > 0 and not shown[images[0]]:
            missing -= held
            off[images] = True
    return off


def _follow(data: Dataset, shares: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """The official test samples, dealt out class by class and domain by domain as `shares` were.

    A class of a domain in which nobody has a train sample is left out.
    """
    kinds = data.domain * len(data.classes) + data.y
    n_kinds = len(data.domains) * len(data.classes)
    held = np.stack([np.bincount(kinds[share], minlength=n_kinds) for share in shares])  # [n_clients, n_kinds]
    followed = [[] for _ in shares]
    for kind in np.flatnonzero(held.sum(0)):
        own = rng.permutation(np.flatnonzero((kinds == kind) & (data.split == TEST)))
        cuts = np.round(held[:, kind].cumsum()[:-1] / held[:, kind].sum() * len(own)).astype(int)
        for share, piece in zip(followed, np.split(own, cuts), strict=True):
            share.append(piece)
    return [rng.permutation(np.concatenate(share)) for share in followed]
