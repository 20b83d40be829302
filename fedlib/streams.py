"""Named random streams: every draw has its own stream, so it does not depend on other draws or on their order.

A stream is a seed followed by words and numbers that name the draw. The streams of a federation and of a run:

    seed, "partition"                                           which client has which sample
    seed, "public"                                              which images are public
    seed, "cohorts"                                             which clients take part, all rounds
    seed, "dropout"                                             who of them does not answer, all rounds
    seed, "stragglers"                                          who of them trains how much, all rounds
    seed, "architectures"                                       which client has which architecture
    seed, "weights", [architecture, ...,] j                     initial weights, draw j = 0, 1, ...
    seed, "train" or "tune", round, "batches", client, phase, epoch    the order of a client's samples
    seed, "train" or "tune", round, "draws", client, number     random numbers of a loss (`draws` of `train`)
    seed, "train" or "tune", round, "dropout", number           dropout in local training `number` of the round
    seed, "init"; seed, "round" or "tuning", round              what PyTorch draws beside local training
    seed, "server", round, what, ...                            draws of the server in a round
    seed, method, what                                          draws of a method before the first round
"""

import hashlib
import json

import numpy as np

Stream = tuple[int, *tuple[int | str, ...]]  # the seed comes first


def entropy(stream: tuple[int | str, ...]) -> int:
    """256 bits that are different for every stream: the hash of its names and numbers."""
    return int.from_bytes(hashlib.sha256(json.dumps(stream).encode()).digest(), "little")


def generator(*stream: int | str) -> np.random.Generator:
    """NumPy's generator at the start of a stream."""
    return np.random.default_rng(entropy(stream))


def torch_seed(*stream: int | str) -> int:
    """A seed of 63 bits for PyTorch's own generator."""
    return entropy(stream) >> 193
