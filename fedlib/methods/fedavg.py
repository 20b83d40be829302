"""FedAvg (McMahan et al., AISTATS 2017; Algorithm 1 in pFedSim)."""

from fedlib.algorithm import Algorithm, Global, algorithm, init_global, one_for_all
from fedlib.stack import Params, client_mean
from fedlib.training.cohort import Cohort
from fedlib.training.losses import cross_entropy


def fedavg_round(w: Params, cohort: Cohort) -> Params:
    """Broadcast, train, average with weights n_samples: [...] -> [...]."""
    w_i = cohort.train(cross_entropy, cohort.broadcast(w))  # [k, ...]
    return client_mean(cohort.receive(w_i), cohort.n_samples)


@algorithm
def fedavg() -> Algorithm:
    """One model for everybody. BatchNorm, affine and statistics alike, is aggregated. Evaluated: the global model.

    With a single client this is local SGD.
    """

    def round(state, cohort):
        return Global(fedavg_round(state.w, cohort))

    return Algorithm("fedavg", init_global, round, models=one_for_all)
