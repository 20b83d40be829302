"""pFedSim (Tan et al., 2023, Algorithm 2): feature extractors averaged by the similarity of classifiers."""

import math
from typing import Annotated, Literal, NamedTuple

from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import Fraction, above, below
from fedlib.methods.fedavg import fedavg_round
from fedlib.similarity import similarity_matrix
from fedlib.stack import Params, Shared, drop, mix, own_copies, repeat, select
from fedlib.training import cross_entropy, train


class State(NamedTuple):
    """The clients' models: one global model in the generalization phase, then (omega_i, phi_i) of every client."""

    v: Shared | Params  # [n_clients, ...]
    similarity: Tensor  # Phi [n_clients, n_clients]


@algorithm(label="pFedSim", colour="red", marker="*")
def pfedsim(
    generalization: Fraction = 0.5,
    similarity: Literal["per_class", "log_of_mean", "mean_cos"] = "per_class",
    cap: Annotated[float, above(0), below(1)] = 1e-4,
) -> Algorithm:
    """FedAvg, then a personal average of feature extractors, weighted by the similarity of classifiers.

    A client always minimises cross-entropy over its whole model. For a share rho = `generalization` of the rounds
    this is FedAvg (generalization phase). After that client i keeps its classifier phi_i, and the server sends it the
    extractor omega_i' = sum_j Phi_ij omega_j / sum_j Phi_ij over all clients j (personalization phase, eq. 4).

    The similarity Phi_ij is -mean_c log(1 - cos(phi_ic, phi_jc)) over the classes c (eq. 3), where phi_ic is a row of
    the classifier's weights; negative cosines count as 0. It is computed for clients that were sampled together in
    this phase and is 0 before. Cosines are capped at 1 - `cap`, so that Phi_ii = -log cap is finite and the largest
    entry (reading A1).

    BatchNorm belongs to omega and is averaged in both phases. A client is evaluated with its model after its last local
    training. `generalization=1` is FedAvg.

    Args:
        generalization: rho, share of the rounds that are FedAvg, from 0 to 1; the paper has 0.5.
        similarity: "per_class" is eq. 3; "log_of_mean" takes the logarithm of the mean over the classes, as in the
            authors' code; "mean_cos" takes the mean cosine without a logarithm.
        cap: lower bound of 1 - cosine, in (0, 1).

    Source:
        Tan et al., "pFedSim: Similarity-Aware Model Aggregation Towards Personalized Federated Learning", 2023,
        Algorithm 2, equations 3 and 4.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.pfedsim(generalization=0), federation, rounds=1, progress=False)
        >>> result.state.similarity.shape, result.state.similarity.argmax(1)  # Phi; each client is most like itself
        (torch.Size([4, 4]), tensor([0, 1, 2, 3]))
    """

    def phi_similarity(models, model):  # eq. 3, without the bias: [k, ...] -> [k, k]
        rows = next(t for name, t in models.items() if name in model.classifier and name.endswith("weight"))
        return similarity_matrix(rows, similarity, cap)  # rows: [k, n_classes, p]

    def init(model, federation):
        [[largest]] = phi_similarity(repeat(model.weights, 1), model)  # the similarity of a client to itself
        return State(Shared(model.weights), largest.repeat(federation.n_clients).diag())

    def round(state, cohort):
        if cohort.round < math.floor(generalization * cohort.rounds + 1e-9):
            return state._replace(v=Shared(fedavg_round(state.v.tree, cohort)))

        v, similarity = own_copies(state.v, cohort.federation.n_clients), state.similarity  # [n_clients, ...]
        clients, phi = cohort.clients, cohort.model.classifier
        weights = similarity[clients]  # [k, n_clients]
        omega = mix(weights / weights.sum(1, keepdim=True), drop(v, phi))  # eq. 4, over all clients: [k, ...]
        w_i = train(cohort, cross_entropy, cohort.send(omega | cohort.mine(select(v, phi))))  # [k, ...]
        w_i = cohort.receive(w_i)
        similarity[clients[:, None], clients] = phi_similarity(w_i, cohort.model)  # eq. 3, in place, as `keep`
        return State(cohort.keep(v, w_i), similarity)

    return Algorithm("pfedsim", init, round, models=lambda state: state.v)
