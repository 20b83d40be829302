"""A federation: one data set, dealt out to clients as index sets, each cut into a train and a test part."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedlib.checks import check_count, check_number
from fedlib.data.dataset import Dataset
from fedlib.federation.partition import Partition


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients as index sets into `data`. `train[i]` and `test[i]` are disjoint int64 arrays."""

    data: Dataset
    partition: Partition
    train: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...]
    test_fraction: float
    seed: int

    @property
    def n_clients(self) -> int:
        return len(self.train)

    @property
    def sizes(self) -> np.ndarray:
        """Samples per client, train and test together: int64 [n_clients]."""
        return np.array([len(a) + len(b) for a, b in zip(self.train, self.test, strict=True)])

    def counts(self) -> np.ndarray:
        """Samples per client and class, train and test together: int64 [n_clients, n_classes]."""
        n_classes = len(self.data.classes)
        own = (np.concatenate(pair) for pair in zip(self.train, self.test, strict=True))
        return np.stack([np.bincount(self.data.y[index], minlength=n_classes) for index in own])

    @cached_property
    def train_counts(self) -> np.ndarray:
        """Train samples per client and class: int64 [n_clients, n_classes]."""
        n_classes = len(self.data.classes)
        return np.stack([np.bincount(self.data.y[index], minlength=n_classes) for index in self.train])

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the data's content and of who owns what."""
        digest = hashlib.sha256(self.data.fingerprint.encode())
        for index in (*self.train, *self.test):
            digest.update(len(index).to_bytes(8, "little") + index.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.data.name} {self.partition}, {self.n_clients} clients"


def federate(
    data: Dataset, partition: Partition, clients: int, test_fraction: float = 0.5, seed: int = 0
) -> Federation:
    """Deal `data` out to `clients` and cut each client's share at random into train and test.

    All samples take part, whatever their official split (pFedSim, section 5). The first
    `1 - test_fraction` of each shuffled client trains, the rest tests.
    Raises `ValueError` for more clients than samples or a client without a train or test sample.
    """
    n = len(data.y)
    check_count("clients", clients)
    check_number("test_fraction", test_fraction, 0, 1, open_low=True, open_high=True)
    check_count("seed", seed, 0)
    if 2 * clients > n:
        raise ValueError(
            f"clients={clients} is not allowed; {data.name} has {n} samples and every client needs one to train "
            f"on and one to test on."
        )
    rng = np.random.default_rng(seed)
    shares = [rng.permutation(share) for share in partition.assign(data.y, data.domain, clients, rng)]
    cuts = [len(share) - round(len(share) * test_fraction) for share in shares]
    train = tuple(share[:cut] for share, cut in zip(shares, cuts, strict=True))
    test = tuple(share[cut:] for share, cut in zip(shares, cuts, strict=True))
    empty = [i for i in range(clients) if not (len(train[i]) and len(test[i]))]
    if empty:
        raise ValueError(
            f"{partition} leaves client {empty[0]} without a train or a test sample; take fewer clients than "
            f"{clients}, a larger data set or a test_fraction other than {test_fraction}."
        )
    return Federation(data, partition, train, test, test_fraction, seed)
