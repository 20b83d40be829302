"""Several networks as one: they see the same images, and their logits are added (FedSimSup, equation 3)."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fedlib.models.model import Model
from fedlib.stack import Tree


@dataclass(frozen=True)
class Ensemble:
    """`networks` is a NamedTuple of models; their weights are the same NamedTuple of `Params`."""

    networks: Any

    @property
    def name(self) -> str:
        return "+".join(network.name for network in self.networks)

    @property
    def weights(self) -> Tree:
        return type(self.networks)(*(network.weights for network in self.networks))

    @property
    def net(self) -> nn.Module:
        return nn.ModuleList(network.net for network in self.networks)

    @property
    def batchnorm(self) -> frozenset[str]:
        return frozenset().union(*(network.batchnorm for network in self.networks))

    @property
    def frozen(self) -> frozenset[str]:
        return frozenset().union(*(network.frozen for network in self.networks))

    @property
    def first(self) -> Model:
        return self.networks[0]

    def __call__(self, w: Tree, x: Tensor) -> Tensor:
        """The sum of the logits [batch, n_classes] of images x [batch, C, H, W]."""
        first, *others = (network(own, x) for network, own in zip(self.networks, w, strict=True))
        return sum(others, first)
