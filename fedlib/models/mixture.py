"""Clients with different architectures: a run's `model="m1+m2+m3+m4"`."""

from collections.abc import Sequence

import numpy as np

from fedlib.models.model import Assignment, Model
from fedlib.stack import PerArchitecture, copies
from fedlib.streams import generator


def deal(model: Model, n_clients: int) -> list[Assignment]:
    """Assign architectures to random clients by the seed of the run; their numbers of clients differ by at most one.

    Args:
        model: the first architecture; `model.others` holds the others.
        n_clients: number of clients.

    Returns:
        The architectures, each with its clients in ascending order. Architectures without clients are left out.

    Example:
        >>> from fedlib.models import MODELS, build
        >>> from fedlib.models.mixture import deal
        >>> model = build("lenet5", MODELS["lenet5"], shape=(3, 32, 32), n_classes=10, seed=0)
        >>> two = model._replace(others={"lenet4": MODELS["lenet4"]})
        >>> [(each.model.name, len(each.clients)) for each in deal(two, n_clients=5)]
        [('lenet5', 3), ('lenet4', 2)]
    """
    if not model.others:
        return [Assignment(model, np.arange(n_clients))]
    architectures = [model, *(model.sibling(name, builder) for name, builder in model.others.items())]
    order = generator(model.seed, "architectures").permutation(n_clients)
    n = len(architectures)
    return [Assignment(each, np.sort(order[j::n])) for j, each in enumerate(architectures[:n_clients])]


def initial(architectures: Sequence[Assignment]) -> PerArchitecture:
    """Give every client the initial weights of its architecture.

    Args:
        architectures: the architectures with their clients; see `deal`.

    Returns:
        One stack per architecture, [k, ...]; its k rows are equal.

    Example:
        >>> from fedlib.models import MODELS, build
        >>> from fedlib.models.mixture import deal, initial
        >>> model = build("lenet5", MODELS["lenet5"], shape=(3, 32, 32), n_classes=10, seed=0)
        >>> [stack] = initial(deal(model, n_clients=5)).stacks
        >>> stack["classifier.bias"].shape
        torch.Size([5, 10])
    """
    return PerArchitecture(tuple(copies(model.weights, len(clients)) for model, clients in architectures))
