"""Several networks as one model: their logits are added (FedSimSup, equation 3)."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fedlib.models.model import Model
from fedlib.stack import Tree


@dataclass(frozen=True)
class Ensemble:
    """Several networks with the same input; their logits are added.

    Attributes:
        networks: a NamedTuple of models. Weights of the ensemble are the same NamedTuple of `Params`.

    Source:
        FedSimSup, equation (3).

    Example:
        >>> from typing import NamedTuple
        >>> from fedlib.models import MODELS, Model, build
        >>> from fedlib.models.ensemble import Ensemble
        >>> class Pair(NamedTuple):
        ...     shared: Model
        ...     private: Model
        >>> small, large = (build(name, MODELS[name], (3, 32, 32), 10, seed=0) for name in ("lenet5", "lenet4"))
        >>> both, x = Ensemble(Pair(small, large)), torch.zeros(2, 3, 32, 32)
        >>> both.name, both(both.weights, x).shape
        ('lenet5+lenet4', torch.Size([2, 10]))
    """

    networks: Any  # a NamedTuple of models, defined by each method

    @property
    def name(self) -> str:
        """Names of the networks joined by "+"."""
        return "+".join(network.name for network in self.networks)

    @property
    def weights(self) -> Tree:
        """Initial weights of the networks: a NamedTuple of `Params`."""
        return type(self.networks)(*(network.weights for network in self.networks))

    @property
    def net(self) -> nn.Module:
        """The modules of the networks as one, to set their mode."""
        return nn.ModuleList(network.net for network in self.networks)

    @property
    def batchnorm(self) -> frozenset[str]:
        """Names of the BatchNorm entries of any network."""
        return frozenset().union(*(network.batchnorm for network in self.networks))

    @property
    def frozen(self) -> frozenset[str]:
        """Names of the entries of any network that are neither trained nor BatchNorm statistics."""
        return frozenset().union(*(network.frozen for network in self.networks))

    @property
    def first(self) -> Model:
        """The first network."""
        return self.networks[0]

    def __call__(self, w: Tree, x: Tensor) -> Tensor:
        """Sum of the networks' logits, [batch, n_classes]."""
        logits: list[Tensor] = [network(weights, x) for network, weights in zip(self.networks, w, strict=True)]
        return sum(logits[1:], logits[0])
