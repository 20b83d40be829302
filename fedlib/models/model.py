"""A model as the library sees it: an architecture, its initial weights and the names of its parts."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedlib.stack import Params

Builder = Callable[[tuple[int, int, int], int], nn.Module]  # (channels, height, width), n_classes -> module


class Model(NamedTuple):
    """Weights are kept outside of the module: `model(w, x)` runs the architecture on any weights `w`.

    `weights` holds trainable parameters and BatchNorm statistics alike, all floating point.
    The name sets say which entry is what: `trainable`, `statistics` (BatchNorm running mean and variance),
    `batchnorm` (affine and statistics), `classifier` (the last linear layer: weight and bias).
    """

    name: str
    net: nn.Module
    weights: Params
    trainable: tuple[str, ...]
    statistics: frozenset[str]
    batchnorm: frozenset[str]
    classifier: frozenset[str]

    def __call__(self, w: Params, x: Tensor) -> Tensor:
        """Logits [batch, n_classes] of images x [batch, C, H, W]; training mode updates the statistics in `w`."""
        return functional_call(self.net, w, (x,))

    def head(self, w: Params) -> tuple[Tensor, Tensor]:
        """Weight [..., n_classes, p] and bias [..., n_classes] of the classifier in `w`, a model or a stack."""
        phi = {name.rpartition(".")[2]: w[name] for name in self.classifier}
        return phi["weight"], phi["bias"]


def build(name: str, builder: Builder, shape: tuple[int, int, int], n_classes: int, seed: int) -> Model:
    """The model with initial weights drawn from `seed`; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = builder(shape, n_classes)
    norms = {name: m for name, m in net.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}
    for norm in norms.values():
        norm.num_batches_tracked = None  # only used with momentum=None; an integer that cannot be averaged
    weights = {name: t.detach().clone() for name, t in net.state_dict().items()}
    linear = [name for name, m in net.named_modules() if isinstance(m, nn.Linear)][-1]
    return Model(
        name=name,
        net=net,
        weights=weights,
        trainable=tuple(name for name, _ in net.named_parameters()),
        statistics=frozenset(name for name, _ in net.named_buffers()),
        batchnorm=frozenset(f"{layer}.{name}" for layer, m in norms.items() for name in m.state_dict()),
        classifier=frozenset(f"{linear}.{name}" for name in ("weight", "bias")),
    )
