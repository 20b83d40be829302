"""pFedSim (Tan et al., 2023, Algorithm 2): similar classifiers decide whose feature extractors are averaged."""

import math
from typing import Annotated, Literal, NamedTuple

from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import above, at_least, at_most, below
from fedlib.methods.fedavg import fedavg_round
from fedlib.similarity import similarity_matrix
from fedlib.stack import Params, Shared, copies, drop, mix, put, repeat, select, take
from fedlib.training.losses import cross_entropy


class State(NamedTuple):
    w: Params  # [...]: the global model of the generalization phase
    v: Params  # [n_clients, ...]: every client's model (omega_i, phi_i); empty until the personalization phase
    similarity: Tensor  # Phi [n_clients, n_clients]


@algorithm
def pfedsim(
    generalization: Annotated[float, at_least(0), at_most(1)] = 0.5,
    similarity: Literal["per_class", "log_of_mean", "mean_cos"] = "per_class",
    cap: Annotated[float, above(0), below(1)] = 1e-4,
) -> Algorithm:
    """FedAvg for a fraction rho = `generalization` of the rounds, then similarity-aware aggregation.

    In the personalization phase client i keeps its classifier phi_i and starts from
    omega_i' = sum_j Phi_ij omega_j / sum_j Phi_ij (eq. 4), Phi_ij = -mean_c log(1 - cos(phi_ic, phi_jc)) (eq. 3)
    for clients that were sampled together, with cosines capped at 1 - `cap` (reading A1: Phi_ii = -log cap is
    then the largest entry). `similarity` may be "per_class" (eq. 3), "log_of_mean" or "mean_cos".
    BatchNorm belongs to omega and is aggregated in both phases. Evaluated: every client's model after its last
    local training. `generalization=1` is FedAvg.
    """

    def phi_similarity(models, model):  # eq. 3, without the bias: [k, ...] -> [k, k]
        rows = next(t for name, t in models.items() if name in model.classifier and name.endswith("weight"))
        return similarity_matrix(rows, similarity, cap)  # rows: [k, n_classes, p]

    def init(model, federation):
        [[alone]] = phi_similarity(repeat(model.weights, 1), model)  # the similarity of a client to itself
        return State(model.weights, {}, alone.repeat(federation.n_clients).diag())

    def round(state, cohort):
        if cohort.round < math.floor(generalization * cohort.rounds + 1e-9):
            return state._replace(w=fedavg_round(state.w, cohort))

        n_clients, clients, phi = len(state.similarity), cohort.clients, cohort.model.classifier
        v = state.v or copies(state.w, n_clients)  # [n_clients, ...]
        weights = state.similarity[clients]  # [k, n_clients]
        omega = mix(weights / weights.sum(1, keepdim=True), drop(v, phi))  # eq. 4, over all clients: [k, ...]
        start = cohort.send(omega | take(select(v, phi), clients))
        trained = cohort.receive(cohort.train(cross_entropy, start))  # [k, ...]

        state.similarity[clients[:, None], clients] = phi_similarity(trained, cohort.model)  # in place, as `put`
        return State(state.w, put(v, clients, trained), state.similarity)

    def models(state):
        return state.v or Shared(state.w)

    return Algorithm("pfedsim", init, round, models)
