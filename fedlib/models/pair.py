"""Two networks that answer together: the sum of their logits (FedSimSup, equation 3)."""

from torch import Tensor, nn

from fedlib.models.model import Model
from fedlib.stack import Params

THETA = "theta"


def prefixed(prefix: str, w: Params) -> Params:
    """The same entries under the names they have in a pair: `theta.fc1.0.weight`."""
    return {f"{prefix}.{name}": t for name, t in w.items()}


class Sum(nn.Module):
    """The logits of two networks, added: [batch, n_classes]."""

    def __init__(self, **nets: nn.Module):
        super().__init__()
        for name, net in nets.items():
            self.add_module(name, net)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.children()
        return first(x) + second(x)


def pair(theta: Model, supervisor: Model) -> Model:
    """q_theta(x) + q_s(x) as one model; its names are `theta.*` and, after the supervisor's architecture, `<name>.*`.

    What is said of `theta` and of `supervisor` is said of the pair; its classifier is that of `theta`.
    """
    parts = {THETA: theta, supervisor.name: supervisor}

    def both(names):
        return [f"{prefix}.{name}" for prefix, model in parts.items() for name in names(model)]

    return Model(
        name=f"{theta.name}+{supervisor.name}",
        net=Sum(**{prefix: model.net for prefix, model in parts.items()}),
        weights=prefixed(THETA, theta.weights) | prefixed(supervisor.name, supervisor.weights),
        trainable=tuple(both(lambda model: model.trainable)),
        statistics=frozenset(both(lambda model: model.statistics)),
        batchnorm=frozenset(both(lambda model: model.batchnorm)),
        classifier=frozenset(f"{THETA}.{name}" for name in theta.classifier),
        redraw=lambda j: prefixed(THETA, theta.redraw(j)) | prefixed(supervisor.name, supervisor.redraw(j)),
        shape=theta.shape,
        n_classes=theta.n_classes,
        seed=theta.seed,
    )
