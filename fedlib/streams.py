"""Named random streams: every draw has its own stream and does not depend on other draws or on their order.

A stream is a seed followed by words and numbers that name the draw. The streams of a federation and of a run:

    seed, "partition"                                           samples of the clients
    seed, "public"                                              public images
    seed, "cohorts"                                             participating clients, all rounds
    seed, "dropout"                                             participants that drop out, all rounds
    seed, "stragglers"                                          participants that train less, all rounds
    seed, "architectures"                                       architectures of the clients
    seed, "weights", [architecture, ...,] j                     initial weights, draw j = 0, 1, ...
    seed, "train" or "tune", round, "batches", client, phase, epoch    order of a client's samples
    seed, "train" or "tune", round, "draws", client, number     random numbers of a loss (`draws` of `train`)
    seed, "train" or "tune", round, "dropout", number           dropout in local training `number` of the round
    seed, "init"; seed, "round" or "tuning", round              draws of PyTorch outside local training
    seed, "server", round, what, ...                            draws of the server in a round
    seed, method, what                                          draws of a method before the first round
"""

import hashlib
import json

import numpy as np

Stream = tuple[int, *tuple[int | str, ...]]  # the seed comes first


def entropy(stream: tuple[int | str, ...]) -> int:
    """256-bit hash of the names and numbers of a stream."""
    return int.from_bytes(hashlib.sha256(json.dumps(stream).encode()).digest(), "little")


def generator(*stream: int | str) -> np.random.Generator:
    """NumPy generator at the start of a stream."""
    return np.random.default_rng(entropy(stream))


def torch_seed(*stream: int | str) -> int:
    """63-bit seed for PyTorch's generator."""
    return entropy(stream) >> 193
