"""A plan: a checked run that can start, and its cohorts."""

import math
from typing import Any, NamedTuple

import numpy as np

from fedlib.algorithm import Algorithm
from fedlib.federation import Federation
from fedlib.models import Model
from fedlib.runs.setting import Setting
from fedlib.streams import generator


class Plan(NamedTuple):
    """A checked run. `config` identifies it and names its folder in the run store; `model` is on the host."""

    algorithm: Algorithm
    federation: Federation
    model: Model
    setting: Setting
    config: dict[str, Any]


def cohort_size(n_clients: int, join_ratio: float) -> int:
    """Clients per round, max(floor(join_ratio * n_clients), 1); 1e-9 absorbs the rounding error of the product."""
    return max(math.floor(join_ratio * n_clients + 1e-9), 1)


def cohorts(n_clients: int, join_ratio: float, rounds: int, seed: int) -> list[np.ndarray]:
    """Clients of every round, drawn before the first one: int64 [k] each, ascending."""
    k, rng = cohort_size(n_clients, join_ratio), generator(seed, "cohorts")
    return [np.sort(rng.choice(n_clients, k, replace=False)) for _ in range(rounds)]
