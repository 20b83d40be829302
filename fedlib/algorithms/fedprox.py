"""FedProx (Li et al., MLSys 2020, Algorithm 2): FedAvg with a proximal pull to the broadcast weights."""

from fedlib.algorithm import Algorithm, Global, algorithm, broadcast, init_global
from fedlib.checks import check_number
from fedlib.stack import client_mean, select, sq_distance
from fedlib.training.losses import cross_entropy


@algorithm
def fedprox(mu: float = 1.0) -> Algorithm:
    """Local loss: cross-entropy + mu/2 ||w - w_global||^2 over the parameters. `mu=0` is FedAvg.

    BatchNorm is aggregated. Evaluated: the global model.
    """
    check_number("mu", mu, 0)

    def loss(w, batch, w_global):  # ONE client
        return cross_entropy(w, batch) + mu / 2 * sq_distance(w, w_global)

    def round(state, cohort):
        start = cohort.broadcast(state.w)  # [k, ...]
        w_i = cohort.train(loss, start, select(start, cohort.model.trainable))
        return Global(client_mean(cohort.gather(w_i), cohort.n_samples))

    return Algorithm("fedprox", init_global, round, models=broadcast)
