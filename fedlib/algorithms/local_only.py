"""Local-Only: every client trains its own model on its own data (pFedSim, section 5, baseline)."""

from typing import NamedTuple

from fedlib.algorithm import Algorithm, algorithm
from fedlib.stack import Params, own, put, take
from fedlib.training.losses import cross_entropy


class State(NamedTuple):
    v: Params  # [n_clients, ...]


@algorithm
def local_only() -> Algorithm:
    """Nothing is shared but the initial weights. A client trains in the rounds in which it is sampled.

    BatchNorm is local like everything else. Evaluated: each client's own model.
    """

    def init(model, federation):
        return State(own(model.weights, federation.n_clients))

    def round(state, cohort):
        v = cohort.train(cross_entropy, take(state.v, cohort.clients))  # [k, ...]
        return State(put(state.v, cohort.clients, v))

    return Algorithm("local_only", init, round, models=lambda state: state.v)
