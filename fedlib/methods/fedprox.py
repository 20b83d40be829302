"""FedProx (Li et al., MLSys 2020, Algorithm 2): FedAvg with a proximal pull to the broadcast weights."""

from typing import Annotated

from fedlib.algorithm import Algorithm, Global, algorithm, init_global, one_for_all
from fedlib.checks import at_least
from fedlib.stack import client_mean, select, sq_distance
from fedlib.training.losses import cross_entropy


@algorithm
def fedprox(mu: Annotated[float, at_least(0)] = 1.0) -> Algorithm:
    """Local loss: cross-entropy + mu/2 ||w - w_global||^2 over the parameters. `mu=0` is FedAvg.

    BatchNorm is aggregated. Evaluated: the global model.
    """

    def loss(w, batch, w_global):  # ONE client
        return cross_entropy(w, batch) + mu / 2 * sq_distance(w, w_global)

    def round(state, cohort):
        start = cohort.broadcast(state.w)  # [k, ...]
        w_i = cohort.train(loss, start, select(start, cohort.model.trainable))
        return Global(client_mean(cohort.receive(w_i), cohort.n_samples))

    return Algorithm("fedprox", init_global, round, models=one_for_all)
