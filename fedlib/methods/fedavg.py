"""FedAvg (McMahan et al., AISTATS 2017; Algorithm 1 in pFedSim)."""

from fedlib.algorithm import Algorithm, Global, algorithm, init_global, one_for_all
from fedlib.stack import Params, client_mean
from fedlib.training import Cohort, cross_entropy, train


def fedavg_round(w: Params, cohort: Cohort) -> Params:
    """Carry out a round of FedAvg: send w [...], train it on the clients, average the results by training samples."""
    w_i = train(cohort, cross_entropy, cohort.broadcast(w))  # [k, ...]
    return client_mean(cohort.receive(w_i), cohort.n_samples)


@algorithm(
    label="FedAvg",
    colour="black",
    marker="o",
    variants={"fedavg+ft": ("FedAvg+FT", "--"), "fedavg+bn": ("FedAvg+BN", ":")},
)
def fedavg() -> Algorithm:
    """Federated averaging: one global model, the mean of the clients' trained models.

    A client starts from the global model and minimises cross-entropy on its training samples. The server averages the
    trained models, each weighted with its client's number of training samples. BatchNorm is averaged like all other
    entries, affine parameters and running statistics alike. Every client is evaluated with the global model.

    With a single client this is local SGD.

    Source:
        McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017;
        Algorithm 1 in pFedSim.

    Example:
        >>> alone = fl.federate(fl.load("digits", copies=1), fl.iid(), clients=1, test_fraction=0.8)
        >>> averaged = fl.run(fl.fedavg(), alone, rounds=1, progress=False)
        >>> averaged.score() == fl.run(fl.local_only(), alone, rounds=1, progress=False).score()
        True
    """

    def round(state, cohort):
        return Global(fedavg_round(state.w, cohort))

    return Algorithm("fedavg", init_global, round, models=one_for_all)
