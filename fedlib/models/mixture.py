"""Clients with different architectures: a run's `model="m1+m2+m3+m4"`."""

from collections.abc import Sequence

import numpy as np

from fedlib.models.model import Group, Model
from fedlib.stack import PerArchitecture, copies
from fedlib.streams import generator


def deal(model: Model, n_clients: int) -> list[Group]:
    """Who has which architecture: as many clients for each, up to one, drawn from the run's seed alone.

    Without `others` everybody has `model` itself.
    """
    if not model.others:
        return [Group(model, np.arange(n_clients))]
    architectures = [model, *(model.sibling(name, builder) for name, builder in model.others.items())]
    order = generator(model.seed, "architectures").permutation(n_clients)
    groups = [
        Group(architecture, np.sort(order[j :: len(architectures)])) for j, architecture in enumerate(architectures)
    ]
    return [group for group in groups if len(group.clients)]


def initial(groups: Sequence[Group]) -> PerArchitecture:
    """The first models of all clients; those with the same architecture start alike."""
    return PerArchitecture(tuple(copies(group.model.weights, len(group.clients)) for group in groups))
