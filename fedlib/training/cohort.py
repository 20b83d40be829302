"""The cohort: the clients of a round, their data and trainer, and the channel to the server."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from fedlib.federation import Federation
from fedlib.models import Assignment, Model
from fedlib.stack import Params, PerArchitecture, Tree, places, put, repeat, select, take
from fedlib.streams import Stream
from fedlib.training.batches import Images, to_device
from fedlib.training.channel import Channel
from fedlib.training.phase import Trainer

Stacks = TypeVar("Stacks")  # a stack, or `PerArchitecture`
TRAIN, TUNE = "train", "tune"  # purposes of a cohort


class Local(NamedTuple):
    """Default local training of a client in a round."""

    epochs: int
    batch_size: int
    lr: float
    momentum: float = 0.0
    optimizer: str = "sgd"


@dataclass(frozen=True)
class Cohort:
    """The argument of an algorithm's `round`: k clients, sampled for round `round` of `rounds`."""

    model: Model
    images: Images
    federation: Federation
    ids: np.ndarray  # int64 [k], ascending, on the host
    clients: Tensor  # `ids` on the device
    architectures: Sequence[Assignment]  # all architectures of the run, each with its clients
    round: int
    rounds: int
    local: Local
    seed: int
    trainer: Trainer
    architecture: int | None = None  # position in `architectures`, if all clients have the same one
    rows: Tensor | None = None  # int64 [k]: rows of the clients in the stack of this architecture
    public: Images | None = None
    purpose: str = TRAIN
    statistics: PerArchitecture | None = None  # BatchNorm statistics of all clients, in a run that never sends them
    channel: Channel = field(default_factory=Channel)
    losses: list[Tensor] = field(default_factory=list)  # mean training losses [k] of every local training so far

    @property
    def size(self) -> int:
        """Number of clients, k."""
        return len(self.ids)

    @property
    def samples(self) -> list[np.ndarray]:
        """Indices of each client's training samples: k times int64 [n_i]."""
        return [self.federation.train[i] for i in self.ids]

    @property
    def n_samples(self) -> Tensor:
        """Number of training samples of each client: float32 [k]."""
        return self._on_device(np.array([len(index) for index in self.samples], dtype=np.float32))

    @property
    def class_counts(self) -> Tensor:
        """Number of training samples of each client and class: int64 [k, n_classes]."""
        return self._on_device(self.federation.train_counts[self.ids])

    def broadcast(self, tree: Tree) -> Tree:
        """Send the same tree to every client: [...] -> [k, ...]; counted as download."""
        return repeat(self.channel.down(tree, times=self.size), self.size)

    def send(self, stack: Tree) -> Tree:
        """Send each client its row of `stack` [k, ...]; counted as download."""
        return self.channel.down(stack)

    def receive(self, stack: Tree) -> Tree:
        """Receive each client's row of `stack` [k, ...]; counted as upload."""
        return self.channel.up(stack)

    def mine(self, v: Tree | PerArchitecture) -> Tree:
        """Copy the rows of these clients: [n_clients, ...] -> [k, ...]."""
        return take(v.stacks[self.architecture], self.rows) if isinstance(v, PerArchitecture) else take(v, self.clients)

    def keep(self, v: Stacks, rows: Tree) -> Stacks:
        """Replace the rows of these clients in `v`, in place, by `rows` [k, ...]; return `v`."""
        if isinstance(v, PerArchitecture):
            put(v.stacks[self.architecture], self.rows, rows)
            return v
        return put(v, self.clients, rows)

    def subset(self, positions: Sequence[int] | np.ndarray, model: Model | None = None) -> "Cohort":
        """Cohort of the clients at these positions; `model` replaces the architecture."""
        index = np.asarray(positions)
        on_device = self._on_device(index)
        rows = None if self.rows is None else self.rows[on_device]
        return replace(self, model=model or self.model, ids=self.ids[index], clients=self.clients[on_device], rows=rows)

    def by_architecture(self) -> "list[Cohort]":
        """Split the cohort into one cohort per architecture."""
        cohorts = []
        for number, (model, clients) in enumerate(self.architectures):
            cohort = self.subset(np.flatnonzero(np.isin(self.ids, clients)), model)
            rows = self._on_device(np.searchsorted(clients, cohort.ids))
            cohorts.append(replace(cohort, architecture=number, rows=rows))
        return [cohort for cohort in cohorts if cohort.size]

    def on_public(self, chosen: np.ndarray | None = None) -> "Cohort":
        """Cohort of the same clients that trains on public images: all of them, or the indices `chosen`."""
        data = self.federation.public
        train = (np.arange(len(data)) if chosen is None else chosen,) * self.federation.n_clients
        return replace(self, images=self.public, federation=replace(self.federation, data=data, train=train))

    def with_statistics(self, w: Tree) -> Tree:
        """Put each client's BatchNorm statistics into its row of `w` [k, ...], if the clients keep statistics."""
        return w if self.statistics is None else with_statistics(w, self.mine(self.statistics))

    def keep_statistics(self, w: Tree) -> None:
        """Store the BatchNorm statistics of the trained `w` [k, ...], if the clients keep statistics."""
        if self.statistics is not None:
            statistics, leaves = self.statistics.stacks[self.architecture], tree_leaves(w)
            trained = {name: leaves[i] for name, i in places(w, statistics).items()}
            put(select(statistics, trained), self.rows, trained)

    @property
    def stream(self) -> Stream:
        """Prefix of all random streams of clients in this round."""
        return self.seed, self.purpose, self.round

    @property
    def server_stream(self) -> Stream:
        """Prefix of all random streams of the server in this round."""
        return self.seed, "server", self.round

    def _on_device(self, values: np.ndarray) -> Tensor:
        return to_device(torch.from_numpy(values), self.clients.device)


def with_statistics(w: Tree, statistics: Params) -> Tree:
    """Replace the BatchNorm statistics in `w` (weights of a network, or a tree of such) by `statistics`."""
    # if several networks have a statistic of the same name, in the first of them
    leaves, structure = tree_flatten(w)
    for name, i in places(w, statistics).items():
        leaves[i] = statistics[name]
    return tree_unflatten(leaves, structure)
