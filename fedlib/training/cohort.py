"""The cohort: the clients of one round, what they can do, and a meter on every byte they exchange."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from fedlib.federation import Federation
from fedlib.models import Group, Model
from fedlib.models.model import is_statistic
from fedlib.stack import Params, PerArchitecture, Tree, keys, n_bytes, put, repeat, select, take
from fedlib.streams import Stream, generator
from fedlib.training.batches import Images, client_batches, to_device
from fedlib.training.evaluate import Evaluation, class_features
from fedlib.training.phase import Loss, Phase, Trainer, roles

TRAIN, TUNE = "train", "tune"  # what a cohort is for
Draws = Callable[[np.random.Generator, int, int], dict[str, np.ndarray]]  # (rng, client, steps) -> {name: [steps, ...]}


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
    momentum: float
    seed: int
    trainer: Trainer
    optimizer: str = "sgd"
    groups: Sequence[Group] = ()  # who has which architecture
    group: int | None = None  # the number of their architecture, if all have the same
    rows: Tensor | None = None  # int64 [k]: and where they stand among those who have it
    public: Images | None = None
    purpose: str = TRAIN
    statistics: PerArchitecture | None = None  # of BatchNorm, where they never leave the clients
    meter: Meter = field(default_factory=Meter)

    @property
    def size(self) -> int:
        return len(self.ids)

    @property
    def class_counts(self) -> Tensor:
        """Train samples per client and class: int64 [k, n_classes]."""
        return to_device(torch.from_numpy(self.federation.train_counts[self.ids]), self.clients.device)

    def part(self, rows: Sequence[int], model: Model | None = None) -> "Cohort":
        """The clients at `rows` (positions in the cohort), for example those with the architecture `model`.

        A method with several architectures has one stack, and one part of the cohort, for each of them.
        """
        place = np.asarray(rows)
        on_device = to_device(torch.from_numpy(place), self.clients.device)
        own = {"ids": self.ids[place], "clients": self.clients[on_device], "n_samples": self.n_samples[on_device]}
        own["rows"] = None if self.rows is None else self.rows[on_device]
        return replace(self, model=model or self.model, **own)

    def parts(self) -> "list[Cohort]":
        """One part for every architecture that clients of the cohort have (`Algorithm.groups`)."""
        parts = []
        for number, group in enumerate(self.groups):
            part = self.part(np.flatnonzero(np.isin(self.ids, group.clients)), group.model)
            rows = torch.from_numpy(np.searchsorted(group.clients, part.ids))
            parts.append(replace(part, group=number, rows=to_device(rows, self.clients.device)))
        return [part for part in parts if part.size]

    def mine(self, v: Tree | PerArchitecture) -> Tree:
        """What these clients have of `v`: [n_clients, ...] -> [k, ...], a copy."""
        return take(v.stacks[self.group], self.rows) if isinstance(v, PerArchitecture) else take(v, self.clients)

    def keep(self, v: Tree | PerArchitecture, rows: Tree) -> Tree | PerArchitecture:
        """`v` with what these clients have replaced by `rows` [k, ...]; its buffers are used again."""
        if isinstance(v, PerArchitecture):
            put(v.stacks[self.group], self.rows, rows)
            return v
        return put(v, self.clients, rows)

    def on_public(self, chosen: np.ndarray | None = None) -> "Cohort":
        """The same clients with public images in the place of their train parts: all, or those `chosen`, for each."""
        data = self.federation.public
        train = (np.arange(len(data)) if chosen is None else chosen,) * self.federation.n_clients
        return replace(self, images=self.public, federation=replace(self.federation, data=data, train=train))

    def broadcast(self, w: Tree) -> Tree:
        """Send the same to every client of the cohort: [...] -> [k, ...]; counted as download."""
        self.meter.bytes_down += self.size * self._weight(w)
        return repeat(w, self.size)

    def send(self, stack: Tree) -> Tree:
        """Send each client its own row of `stack` [k, ...]; counted as download."""
        self.meter.bytes_down += self._weight(stack)
        return stack

    def receive(self, stack: Tree) -> Tree:
        """Receive each client's row of `stack` [k, ...]; counted as upload."""
        self.meter.bytes_up += self._weight(stack)
        return stack

    def train(
        self,
        loss: Loss,
        w: Tree,
        *context: Tree,
        name: str = "local",
        epochs: Iterable[int] | None = None,
        steps: int | None = None,
        trainable: Collection[str] | None = None,
        written: Collection[str] = (),
        lr: float | None = None,
        clip: float | None = None,
        samples: Sequence[np.ndarray] | None = None,
        batches_per_step: int = 1,
        repeats: int = 1,
        draws: Draws | None = None,
    ) -> Tree:
        """Each client runs the run's optimiser on its own training samples: [k, ...] -> [k, ...].

        `loss(w, batch, *context)` is the loss of ONE client; each `context` is a stack [k, ...] of which a client
        sees its row. Make the loss once, outside of `round`, and hand it what changes as context: a loss is compiled
        for the GPU, and seeds share a stack, only if it stays the same function. `epochs` are positions in the round's
        stream of permutations called `name` (default: all local epochs), so that phases over range(0, 4) and
        range(4, 5) see what range(0, 5) would; one that is not a part of the local epochs has a name of its own. A
        client takes no more than `steps` steps in all (default: no limit). `trainable` names what SGD moves in the tree
        `w`: entries or whole fields (default: everything); BatchNorm statistics follow every forward pass, and what
        `written` names is written by the loss, in place. `lr` is the step size (default: the run's), `clip` the largest
        norm of a gradient over all that is trainable. `samples` are the indices each client trains on (default: its
        train part).

        With `batches_per_step=n` a step takes n consecutive mini-batches of an epoch (what is left over is dropped, a
        client with fewer takes one step); the loss sees them joined, and `batch.split(n)`. With `repeats=n` every step
        is taken n times in a row. A loss must not draw random numbers: `draws(rng, client, steps)` draws them
        beforehand, {name: [steps, ...]}, on the host and from a stream of this round, client and phase; the loss finds
        those of its step in `batch.draws`.
        """
        epochs = list(range(self.local_epochs) if epochs is None else epochs)
        number = len(self.meter.losses)
        batches = self.batches(epochs, samples, batches_per_step, name)
        batches = tuple(own[:steps].repeat_interleave(repeats, 0) for own in batches)
        start = self._with_own_statistics(w)
        phase = Phase(
            model=self.model,
            images=self.images,
            loss=loss,
            w=start,
            batches=batches,
            context=context,
            roles=roles(start, trainable, written, self.model.frozen),
            lr=self.lr if lr is None else lr,
            stream=(*self.stream, "dropout", number),
            clip=clip,
            momentum=self.momentum,
            optimizer=self.optimizer,
            draws=self._drawn(draws, batches, number),
        )
        trained, losses = self.trainer(phase)
        self.meter.losses.append(losses)
        if self.statistics is not None:
            self._keep_statistics(trained)
        return trained

    def batches(
        self,
        epochs: Sequence[int],
        samples: Sequence[np.ndarray] | None = None,
        batches_per_step: int = 1,
        name: str = "local",
    ) -> tuple[Tensor, ...]:
        """What `train` goes through in these epochs of the round: k times int64 [steps_i, batch], on the host."""
        samples = [self.federation.train[i] for i in self.ids] if samples is None else samples
        return tuple(
            client_batches(own, epochs, self.batch_size, (*self.stream, "batches", i, name), batches_per_step)
            for i, own in zip(self.ids.tolist(), samples, strict=True)
        )

    def hold_out(self, share: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Each client's train indices without the last `share`, and that share: at least one sample each.

        They are in random order since the federation was made. Raises `ValueError` for a client with one sample.
        """
        own = [self.federation.train[i] for i in self.ids]
        for i, train in zip(self.ids, own, strict=True):
            if len(train) < 2:
                raise ValueError(f"client {i} has one training sample; it needs two to hold out a part of them.")
        sizes = [min(max(round(share * len(train)), 1), len(train) - 1) for train in own]
        cuts = list(zip(own, sizes, strict=True))
        return [train[:-n] for train, n in cuts], [train[-n:] for train, n in cuts]

    def mean_loss(self, models: Params, samples: Sequence[np.ndarray]) -> Tensor:
        """Mean cross-entropy, in evaluation mode, of row i of `models` on the indices `samples[i]`: float64 [k]."""
        return Evaluation(self.images, samples, stacked=self.images.y.is_cuda)(
            self.model, self._with_own_statistics(models)
        )[1]

    def class_features(self, models: Params) -> tuple[Tensor, Tensor]:
        """Of the features z [p] that the classifier of row i of `models` sees, in evaluation mode, on client i's train
        part: the mean for each class [k, n_classes, p], zeros for one it does not have, and the mean of ||z||^2 [k].
        """
        own = [self.federation.train[i] for i in self.ids]
        models = self._with_own_statistics(models)
        return class_features(self.model, self.images, models, own, stacked=self.images.y.is_cuda)

    def logits(self, models: Params) -> tuple[Tensor, ...]:
        """What row i of `models` answers, in evaluation mode, to client i's train part: k times [n_i, n_classes]."""
        own = Evaluation(self.images, [self.federation.train[i] for i in self.ids], stacked=self.images.y.is_cuda)
        return own.outputs(self.model, self._with_own_statistics(models)).split(own.sizes)

    def write_logits(self, table: Tensor, models: Params) -> None:
        """Write `logits` into the rows of `table` [len(data), n_classes] that belong to the clients' samples."""
        for i, z in zip(self.ids, self.logits(models), strict=True):
            table[to_device(torch.from_numpy(self.federation.train[i]), table.device)] = z.to(table.dtype)

    @property
    def stream(self) -> Stream:
        """The random streams of the clients in this round begin so."""
        return self.seed, self.purpose, self.round

    @property
    def server_stream(self) -> Stream:
        """Those of the server in this round."""
        return self.seed, "server", self.round

    def _with_own_statistics(self, w: Tree) -> Tree:
        """What each client has in its hands when it has received its row of `w` [k, ...]."""
        if self.statistics is None:
            return w
        return with_statistics(w, self.mine(self.statistics))

    def _keep_statistics(self, w: Tree) -> None:
        """Put those of the trained `w` [k, ...] where the clients keep theirs."""
        trained = {"/".join(way): t for way, t in zip(keys(w), tree_leaves(w), strict=True)}
        kept = select(self.statistics.stacks[self.group], trained)
        put(kept, self.rows, select(trained, kept))

    def _weight(self, w: Tree) -> int:
        """Bytes of what is sent of `w`."""
        if self.statistics is None:
            return n_bytes(w)
        return sum(n_bytes(t) for way, t in zip(keys(w), tree_leaves(w), strict=True) if not is_statistic(way[-1]))

    def _drawn(self, draws: Draws | None, batches: Sequence[Tensor], number: int) -> tuple[Params, ...]:
        """For phase `number` of the round, as tensors; floating point in the dtype of the images."""
        if draws is None:
            return ()
        drawn = []
        for i, steps in zip(self.ids.tolist(), batches, strict=True):
            arrays = draws(generator(*self.stream, "draws", i, number), i, len(steps))
            own = {name: torch.as_tensor(array) for name, array in arrays.items()}
            dtype = self.images.scale.dtype
            drawn.append({name: t.to(dtype) if t.is_floating_point() else t for name, t in own.items()})
        return tuple(drawn)


def with_statistics(w: Tree, statistics: Params) -> Tree:
    """`w` with these BatchNorm statistics, by the way to each of them."""
    leaves, structure = tree_flatten(w)
    chosen = [statistics.get("/".join(way), t) for way, t in zip(keys(w), leaves, strict=True)]
    return tree_unflatten(chosen, structure)
