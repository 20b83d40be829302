"""Ditto (Li et al., ICML 2021, Algorithm 1): FedAvg, and personal models that stay close to its global model."""

from typing import NamedTuple

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import NonNegative, Whole
from fedlib.methods.fedavg import fedavg_round
from fedlib.stack import Params, copies, repeat, select, sq_distance
from fedlib.training import cross_entropy, train


class State(NamedTuple):
    w: Params  # global: [...]
    v: Params  # personal: [n_clients, ...]


@algorithm(label="Ditto", colour="pink", marker="D", line="--")
def ditto(lam: NonNegative = 1.0, personal_epochs: Whole | None = None) -> Algorithm:
    """Personal models with a proximal pull towards the global model of FedAvg.

    A client trains twice on the same batches. From the global model w^t that it received it minimises cross-entropy,
    which gives w_i; from its own v_i it minimises cross-entropy + lam/2 ||v_i - w^t||^2, over the parameters, without
    BatchNorm's running statistics. The server averages w_i as in FedAvg, each client weighted with its number of
    training samples; v_i stays with the client and never reaches the global model.

    BatchNorm is averaged in w and personal in v_i. A client is evaluated with v_i; a client that never took part
    has the initial model.

    `lam=0` is Local-Only. The global model is that of FedAvg for every `lam`.

    Args:
        lam: strength of the pull towards the global model, at least 0. The paper's clients choose from 0.1, 1 and 2,
            and those with few samples take 1.
        personal_epochs: epochs of training v_i in a round, at least 0. None: the run's local epochs.

    Source:
        Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, Algorithm 1.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> free = fl.run(fl.ditto(lam=0), federation, rounds=1, progress=False)
        >>> free.score() == fl.run(fl.local_only(), federation, rounds=1, progress=False).score()
        True
    """

    def loss(v, batch, w):  # ONE client
        return cross_entropy(v, batch) + lam / 2 * sq_distance(v, w)

    def init(model, federation):
        return State(model.weights, copies(model.weights, federation.n_clients))

    def round(state, cohort):
        epochs = None if personal_epochs is None else range(personal_epochs)
        received = repeat(select(state.w, cohort.model.trainable), cohort.size)  # w^t: [k, ...]
        w = fedavg_round(state.w, cohort)
        v = train(cohort, loss, cohort.mine(state.v), received, epochs=epochs)  # [k, ...]
        return State(w, cohort.keep(state.v, v))

    return Algorithm("ditto", init, round, models=lambda state: state.v)
