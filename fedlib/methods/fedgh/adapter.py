"""FedGH's network: the last layer becomes an adapter to features of a common width, followed by a linear header."""

import copy

from torch import nn

from fedlib.models.model import Model, build


def adapted(model: Model, width: int) -> Model:
    """Replace the last linear layer by Linear(p, width), ReLU and Linear(width, n_classes); all other weights stay."""
    parent, _, leaf = next(iter(model.classifier)).rpartition(".")[0].rpartition(".")

    def builder(shape, n_classes):
        net = copy.deepcopy(model.net)
        inside = net.get_submodule(parent)
        ending = nn.Linear(getattr(inside, leaf).in_features, width), nn.ReLU(), nn.Linear(width, n_classes)
        setattr(inside, leaf, nn.Sequential(*ending))
        return net

    other = build(f"{model.name}-{width}", builder, model.shape, model.n_classes, *model.stream, "adapter")
    like = next(iter(model.weights.values()))
    return other._replace(weights={name: model.weights.get(name, t.to(like)) for name, t in other.weights.items()})
