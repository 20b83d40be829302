"""The cohort: the clients of one round, what they can do, and a meter on every byte they exchange."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedlib.federation import Federation
from fedlib.models import Model
from fedlib.stack import Params, n_bytes, repeat
from fedlib.training.batches import Images, client_batches
from fedlib.training.sgd import BACKENDS, Loss

TRAIN, TUNE = 2, 3  # purposes of random streams; 1 is the choice of cohorts


@dataclass
class Cohort:
    """What an algorithm's `round` sees: k clients, sampled for round `round` of `rounds`."""

    model: Model
    images: Images
    federation: Federation
    clients: Tensor  # int64 [k], ascending
    round: int
    rounds: int
    local_epochs: int
    batch_size: int
    lr: float
    seed: int
    backend: str
    purpose: int = TRAIN
    bytes_down: int = 0
    bytes_up: int = 0
    losses: list[Tensor] = field(default_factory=list)  # mean training loss [k] of each local phase

    @property
    def size(self) -> int:
        return len(self.clients)

    @property
    def n_samples(self) -> Tensor:
        """Training samples of each client: float32 [k]."""
        sizes = [len(self.federation.train[i]) for i in self.clients.tolist()]
        return torch.tensor(sizes, dtype=torch.float32, device=self.images.y.device)

    def broadcast(self, w: Params) -> Params:
        """Send the same to every client of the cohort: [...] -> [k, ...]; counted as download."""
        self.bytes_down += self.size * n_bytes(w)
        return repeat(w, self.size)

    def scatter(self, stack: Params) -> Params:
        """Send each client its own row of `stack` [k, ...]; counted as download."""
        self.bytes_down += n_bytes(stack)
        return stack

    def gather(self, stack: Params) -> Params:
        """Receive each client's row of `stack` [k, ...]; counted as upload."""
        self.bytes_up += n_bytes(stack)
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
        sees its row. `epochs` are positions in the round's stream of permutations (default: all local epochs),
        so that phases over range(0, 4) and range(4, 5) see what range(0, 5) would. `trainable` are the names that
        SGD moves (default: all parameters); BatchNorm statistics follow every forward pass.
        """
        epochs = range(self.local_epochs) if epochs is None else epochs
        chosen = self.model.trainable if trainable is None else trainable
        stream = (self.seed, self.purpose, self.round)
        batches = [
            client_batches(self.federation.train[i], epochs, self.batch_size, (*stream, i))
            for i in self.clients.tolist()
        ]
        trained, losses = BACKENDS[self.backend](
            self.model,
            self.images,
            loss,
            w,
            batches,
            context,
            [name for name in self.model.trainable if name in chosen],
            self.lr if lr is None else lr,
        )
        self.losses.append(losses)
        return trained
