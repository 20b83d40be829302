"""Networks under one name: two that answer together with the sum of their logits (FedSimSup, equation 3)."""

from torch import Tensor, nn

from fedlib.models.model import Model
from fedlib.stack import Params

THETA = "theta"


def prefixed(prefix: str, w: Params) -> Params:
    """The same entries under the names they have in a part of a network: `theta.fc1.0.weight`."""
    return {f"{prefix}.{name}": t for name, t in w.items()}


def unprefixed(prefix: str, w: Params) -> Params:
    """Of the entries of a whole network those of one part, under the names they have there."""
    return {name.removeprefix(f"{prefix}."): t for name, t in w.items() if name.startswith(f"{prefix}.")}


class Sum(nn.Module):
    """The logits of two networks, added: [batch, n_classes]."""

    def __init__(self, **nets: nn.Module):
        super().__init__()
        for name, net in nets.items():
            self.add_module(name, net)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.children()
        return first(x) + second(x)


def joined(name: str, net: nn.Module, parts: dict[str, Model]) -> Model:
    """`net` as a model, whose children are those of `parts` by name; names of entries are `<part>.*`.

    What is said of the parts is said of the whole; its classifier is that of the first part.
    """
    prefix, first = next(iter(parts.items()))

    def every(names):
        return [f"{prefix}.{name}" for prefix, model in parts.items() for name in names(model)]

    def whole(weights):
        return {name: t for prefix, model in parts.items() for name, t in prefixed(prefix, weights(model)).items()}

    return Model(
        name=name,
        net=net,
        weights=whole(lambda model: model.weights),
        trainable=tuple(every(lambda model: model.trainable)),
        statistics=frozenset(every(lambda model: model.statistics)),
        batchnorm=frozenset(every(lambda model: model.batchnorm)),
        classifier=frozenset(f"{prefix}.{name}" for name in first.classifier),
        redraw=lambda j: whole(lambda model: model.redraw(j)),
        shape=first.shape,
        n_classes=first.n_classes,
        stream=first.stream,
    )


def pair(theta: Model, supervisor: Model) -> Model:
    """q_theta(x) + q_s(x) as one model; its names are `theta.*` and, after the supervisor's architecture, `<name>.*`.

    What is said of `theta` and of `supervisor` is said of the pair; its classifier is that of `theta`.
    """
    parts = {THETA: theta, supervisor.name: supervisor}
    net = Sum(**{prefix: model.net for prefix, model in parts.items()})
    return joined(f"{theta.name}+{supervisor.name}", net, parts)
