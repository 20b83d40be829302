"""Clients with different architectures: a run's `model="m1+m2+m3+m4"`."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from torch import nn

from fedlib.models.model import Group, Model
from fedlib.models.pair import joined
from fedlib.stack import Params, own
from fedlib.streams import generator


def named(model: Model) -> Model:
    """The same model with its name before all names of entries, so that architectures have none in common."""
    return joined(model.name, nn.Sequential(OrderedDict({model.name: model.net})), {model.name: model})


def deal(model: Model, n_clients: int) -> list[Group]:
    """Who has which architecture: as many clients for each, up to one, drawn from the run's seed alone.

    Without `others` everybody has `model` itself.
    """
    if not model.others:
        return [Group(model, np.arange(n_clients))]
    others = [model.sibling(name, builder) for name, builder in model.others.items()]
    order = generator(model.seed, "architectures").permutation(n_clients)
    architectures = [named(own) for own in (model, *others)]
    groups = [Group(own, np.sort(order[j :: len(architectures)])) for j, own in enumerate(architectures)]
    return [group for group in groups if len(group.clients)]


def stacks(groups: Sequence[Group]) -> Params:
    """Initial models: for every architecture one stack with a row for each of its clients, who start alike."""
    return {name: t for group in groups for name, t in own(group.model.weights, len(group.clients)).items()}
