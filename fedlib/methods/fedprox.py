"""FedProx (Li et al., MLSys 2020, Algorithm 2): FedAvg with a proximal pull to the broadcast weights."""

from fedlib.algorithm import Algorithm, Global, algorithm, init_global, one_for_all
from fedlib.checks import NonNegative
from fedlib.stack import client_mean, select, sq_distance
from fedlib.training import cross_entropy, train


@algorithm(label="FedProx", colour="blue", marker="s")
def fedprox(mu: NonNegative = 1.0) -> Algorithm:
    """FedAvg with a proximal term that keeps clients close to the global model.

    A client minimises cross-entropy + mu/2 ||w - w_global||^2, where w_global is the model that it received; the
    distance is over the parameters, without BatchNorm's running statistics. The server averages as in FedAvg, each
    client weighted with its number of training samples (in the paper and in pFedSim's code equally). BatchNorm is
    averaged like all other entries. Every client is evaluated with the global model.

    Args:
        mu: strength of the pull towards the global model, at least 0; 1 is the value of pFedSim and FedSimSup.
            `mu=0` is FedAvg.

    Source:
        Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> free = fl.run(fl.fedprox(mu=0), federation, rounds=1, progress=False)
        >>> free.score() == fl.run(fl.fedavg(), federation, rounds=1, progress=False).score()
        True
    """

    def loss(w, batch, w_global):  # ONE client
        return cross_entropy(w, batch) + mu / 2 * sq_distance(w, w_global)

    def round(state, cohort):
        start = cohort.broadcast(state.w)  # [k, ...]
        w_i = train(cohort, loss, start, select(start, cohort.model.trainable))
        return Global(client_mean(cohort.receive(w_i), cohort.n_samples))

    return Algorithm("fedprox", init_global, round, models=one_for_all)
