"""Random streams by name: everything that is drawn has one of its own, whatever else is drawn, and in which order.

A stream is a seed, then words and numbers that say what is drawn. The streams of a federation and of a run:

    seed, "partition"                                           who owns which sample
    seed, "public"                                              which images are public
    seed, "cohorts"                                             which clients take part, all rounds
    seed, "architectures"                                       which client has which architecture
    seed, "weights", [architecture, ...,] j                     initial weights, draw j = 0, 1, ...
    seed, "train" or "tune", round, "batches", client, phase, epoch    the order of a client's samples
    seed, "train" or "tune", round, "draws", client, number     what a loss has asked for (`Cohort.train`)
    seed, "train" or "tune", round, "dropout", number           what a model drops, in local phase `number` of the round
    seed, "server", round, what, ...                            whatever the server draws in a round
    seed, method, what                                          what a method draws once
"""

import hashlib
import json

import numpy as np

Stream = tuple[int | str, ...]


def entropy(stream: Stream) -> int:
    """256 bits, others for every stream: the hash of its names and numbers."""
    return int.from_bytes(hashlib.sha256(json.dumps(stream).encode()).digest(), "little")


def generator(*stream: int | str) -> np.random.Generator:
    """NumPy's generator at the start of a stream."""
    return np.random.default_rng(entropy(stream))


def torch_seed(*stream: int | str) -> int:
    """A seed of 63 bits for PyTorch's own generator."""
    return entropy(stream) >> 193
