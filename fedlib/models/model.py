"""A model as the library sees it: an architecture, its initial weights and the names of its parts."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedlib.stack import Params
from fedlib.streams import Stream, torch_seed

Builder = Callable[[tuple[int, int, int], int], nn.Module]  # (channels, height, width), n_classes -> module


def is_statistic(name: str) -> bool:
    """Is it the name of a BatchNorm running mean or variance, which follow the data and are not trained?"""
    return name.endswith((".running_mean", ".running_var"))


class Model(NamedTuple):
    """Weights are kept outside of the module: `model(w, x)` runs the architecture on any weights `w`.

    `weights` holds trainable parameters and BatchNorm statistics alike, all floating point.
    The name sets say which entry is what: `trainable`, `statistics` (BatchNorm running mean and variance),
    `batchnorm` (affine and statistics), `classifier` (the last linear layer: weight and bias). `redraw(j)` are initial
    weights j = 1, 2, ... on the host, independent of `weights`, which are draw 0; `stream` begins with the run's seed.
    Images have `shape` (C, H, W). `others` are the architectures, by name, that clients of the same run may have
    instead (`mixture.deal`).
    """

    name: str
    net: nn.Module
    weights: Params
    trainable: tuple[str, ...]
    statistics: frozenset[str]
    batchnorm: frozenset[str]
    classifier: frozenset[str]
    redraw: Callable[[int], Params]
    shape: tuple[int, int, int]
    n_classes: int
    stream: Stream
    others: Mapping[str, Builder] = {}

    @property
    def seed(self) -> int:
        """That of the run."""
        return self.stream[0]

    @property
    def frozen(self) -> frozenset[str]:
        """The entries that are neither trained nor follow the data."""
        return frozenset(self.weights) - frozenset(self.trainable) - self.statistics

    def __call__(self, w: Params, x: Tensor) -> Tensor:
        """Logits [batch, n_classes] of images x [batch, C, H, W]; training mode updates the statistics in `w`."""
        return functional_call(self.net, w, (x,))

    def penultimate(self, w: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the classifier sees, features z [batch, p], and what it answers, the logits [batch, n_classes]."""
        return self.entering(next(iter(self.classifier)).rpartition(".")[0], w, x)

    def entering(self, layer: str, w: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the module called `layer` sees, [batch, ...], and the logits [batch, n_classes]."""
        seen = []
        hook = self.net.get_submodule(layer).register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
        try:
            logits = self(w, x)
        finally:
            hook.remove()
        return seen[0], logits

    def head(self, w: Params) -> tuple[Tensor, Tensor]:
        """Weight [..., n_classes, p] and bias [..., n_classes] of the classifier in `w`, a model or a stack."""
        phi = {name.rpartition(".")[2]: w[name] for name in self.classifier}
        return phi["weight"], phi["bias"]

    def independent(self, n: int) -> Params:
        """n independent draws of the initial weights, the first of them `weights`: [n, ...]."""
        draws = [self.redraw(j) for j in range(1, n)]
        return {name: torch.stack([t, *(own[name].to(t) for own in draws)]) for name, t in self.weights.items()}

    def sibling(self, name: str, builder: Builder) -> "Model":
        """Another architecture for the same images; its weights, drawn independently of these, lie where these do."""
        like = next(iter(self.weights.values()))
        other = build(name, builder, self.shape, self.n_classes, *self.stream, name)
        return other._replace(weights={key: t.to(like) for key, t in other.weights.items()})


class Group(NamedTuple):
    """Clients that have the same architecture."""

    model: Model
    clients: np.ndarray  # int64, ascending


def build(
    name: str, builder: Builder, shape: tuple[int, int, int], n_classes: int, seed: int, *names: int | str
) -> Model:
    """The model with initial weights drawn from (seed, *names); the global random state is left as it was."""

    def draw(j: int) -> tuple[nn.Module, dict[str, nn.Module]]:
        return _draw(builder, shape, n_classes, torch_seed(seed, "weights", *names, j))

    net, norms = draw(0)
    linear = [name for name, m in net.named_modules() if isinstance(m, nn.Linear)][-1]
    return Model(
        name=name,
        net=net,
        weights=_weights(net),
        trainable=tuple(name for name, _ in net.named_parameters()),
        statistics=frozenset(name for name, _ in net.named_buffers()),
        batchnorm=frozenset(f"{layer}.{name}" for layer, m in norms.items() for name in m.state_dict()),
        classifier=frozenset(f"{linear}.{name}" for name in ("weight", "bias")),
        redraw=lambda j: _weights(draw(j)[0]),
        shape=shape,
        n_classes=n_classes,
        stream=(seed, *names),
    )


def _draw(builder: Builder, shape: tuple[int, int, int], n_classes: int, seed: int) -> tuple[nn.Module, dict]:
    """A module with weights drawn from `seed`, and its BatchNorm layers by name."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = builder(shape, n_classes)
    norms = {name: m for name, m in net.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}
    for norm in norms.values():
        norm.num_batches_tracked = None  # only used with momentum=None; an integer that cannot be averaged
    return net, norms


def _weights(net: nn.Module) -> Params:
    return {name: t.detach().clone() for name, t in net.state_dict().items()}
