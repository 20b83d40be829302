"""Local-Only: every client trains its own model on its own data (pFedSim, section 5, baseline)."""

from fedlib.algorithm import Algorithm, algorithm, init_personal
from fedlib.training.losses import cross_entropy


@algorithm
def local_only() -> Algorithm:
    """Nothing is shared but the initial weights. A client trains in the rounds in which it is sampled.

    BatchNorm is local like everything else. Clients may have different architectures. Evaluated: each client's own
    model.
    """

    def round(state, cohort):
        v = state.v
        for part in cohort.parts():
            v = part.keep(v, part.train(cross_entropy, part.mine(v)))  # [k, ...]
        return state._replace(v=v)

    return Algorithm("local_only", init_personal, round, models=lambda state: state.v, mixed=True)
