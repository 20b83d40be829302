"""The cohort: the clients of one round, what they can do, and a meter on every byte they exchange."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedlib.federation import Federation
from fedlib.models import Model
from fedlib.stack import Params, n_bytes, repeat
from fedlib.training.batches import Images, client_batches, to_device
from fedlib.training.phase import Loss, Phase, Trainer

TRAIN, TUNE = 2, 3  # purposes of random streams; 1 is the choice of cohorts


@dataclass
class Meter:
    """What a round has cost so far: bytes exchanged, and the mean training losses [k] of each local phase."""

    bytes_down: int = 0
    bytes_up: int = 0
    losses: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Cohort:
    """What an algorithm's `round` sees: k clients, sampled for round `round` of `rounds`."""

    model: Model
    images: Images
    federation: Federation
    ids: np.ndarray  # int64 [k], ascending, on the host
    clients: Tensor  # the same on the device
    n_samples: Tensor  # float32 [k]: training samples of each client
    round: int
    rounds: int
    local_epochs: int
    batch_size: int
    lr: float
    seed: int
    trainer: Trainer
    purpose: int = TRAIN
    meter: Meter = field(default_factory=Meter)

    @property
    def size(self) -> int:
        return len(self.ids)

    def part(self, rows: Sequence[int], model: Model | None = None) -> "Cohort":
        """The clients at `rows` (positions in the cohort), for example those with the architecture `model`.

        A method with several architectures has one stack, and one part of the cohort, for each of them.
        """
        place = torch.as_tensor(rows)
        on_device = to_device(place, self.clients.device)
        own = {"ids": self.ids[place], "clients": self.clients[on_device], "n_samples": self.n_samples[on_device]}
        return replace(self, model=model or self.model, **own)

    def broadcast(self, w: Params) -> Params:
        """Send the same to every client of the cohort: [...] -> [k, ...]; counted as download."""
        self.meter.bytes_down += self.size * n_bytes(w)
        return repeat(w, self.size)

    def scatter(self, stack: Params) -> Params:
        """Send each client its own row of `stack` [k, ...]; counted as download."""
        self.meter.bytes_down += n_bytes(stack)
        return stack

    def gather(self, stack: Params) -> Params:
        """Receive each client's row of `stack` [k, ...]; counted as upload."""
        self.meter.bytes_up += n_bytes(stack)
        return stack

    def train(
        self,
        loss: Loss,
        w: Params,
        *context: Params,
        epochs: Iterable[int] | None = None,
        trainable: Collection[str] | None = None,
        lr: float | None = None,
    ) -> Params:
        """Each client runs SGD on its own training samples: [k, ...] -> [k, ...].

        `loss(w, batch, *context)` is the loss of ONE client; each `context` is a stack [k, ...] of which a client
        sees its row. Make the loss once, outside of `round`, and hand it what changes as context: a loss is compiled
        for the GPU, and seeds share a stack, only if it stays the same function. `epochs` are positions in the round's
        stream of permutations (default: all local epochs), so that phases over range(0, 4) and range(4, 5) see what
        range(0, 5) would. `trainable` are the names that SGD moves (default: all parameters); BatchNorm statistics
        follow every forward pass.
        """
        epochs = list(range(self.local_epochs) if epochs is None else epochs)
        chosen = self.model.trainable if trainable is None else trainable
        stream = (self.seed, self.purpose, self.round)
        batches = tuple(
            client_batches(self.federation.train[i], epochs, self.batch_size, (*stream, i)) for i in self.ids.tolist()
        )
        phase = Phase(
            model=self.model,
            images=self.images,
            loss=loss,
            w=w,
            batches=batches,
            context=context,
            trainable=tuple(name for name in self.model.trainable if name in chosen),
            lr=self.lr if lr is None else lr,
            seed=(*stream, len(self.meter.losses)),
        )
        trained, losses = self.trainer(phase)
        self.meter.losses.append(losses)
        return trained
