"""FedPAC (Xu et al., ICLR 2023, Algorithm 1): feature alignment, and classifiers combined per client."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, download, init_partial, merged
from fedlib.checks import NonNegative, Whole, check_count
from fedlib.extras import Late
from fedlib.methods.fedproto import Prototypes, mean_prototypes, no_prototypes, sent_prototypes
from fedlib.stack import Params, client_mean, mix, select
from fedlib.training import class_features, cross_entropy, train
from fedlib.training.batches import to_device

optimize = Late("scipy.optimize")
SMALLEST = 1e-3  # smaller weights of classifiers become 0


class State(NamedTuple):
    w: Params  # body [...]
    v: Params  # classifiers [n_clients, ...]
    prototypes: Prototypes


def simplex_minimum(q: np.ndarray) -> np.ndarray:
    """Minimise a'Qa over the simplex: a >= 0, sum a = 1, for Q [k, k] symmetric and positive semidefinite.

    It solves min a'Qa + (sum a - 1)^2 over a >= 0, which is nonnegative least squares, and divides a by its sum. The
    solutions agree: on the ray a = t b, with b on the simplex, the best t leaves b'Qb / (1 + b'Qb), and this grows with
    b'Qb.
    """
    values, vectors = np.linalg.eigh(q / max(q.trace(), np.finfo(float).tiny))
    root = np.sqrt(values.clip(0))[:, None] * vectors.T  # root' root = Q
    a, _ = optimize.nnls(np.vstack([root, np.ones(len(q))]), np.append(np.zeros(len(q)), 1.0))
    return a / a.sum()


def head_weights(h: Tensor, variance: Tensor) -> Tensor:
    """Weights of the classifiers on the simplex for client i: argmin_a sum_j a_j^2 V_j + ||h_i - sum_j a_j h_j||^2."""
    # h_ic = p_ic mu_ic [k, n_classes, p], variance V [k] -> a row for each client, [k, k]
    flat = h.flatten(1).double()
    flat = flat - flat.mean(0)
    known = torch.cat([flat @ flat.T, variance.double()[:, None]], 1).cpu().numpy()  # waits for the device
    gram, v = known[:, :-1], known[:, -1].clip(0)
    weights = np.eye(len(v))  # where the solver fails, a client keeps its own classifier
    for i in range(len(v)):
        try:
            a = simplex_minimum(gram[i, i] - gram[i] - gram[i][:, None] + gram + np.diag(v))
        except (RuntimeError, ValueError):  # no convergence; a run that has diverged
            continue
        a[a < SMALLEST] = 0
        weights[i] = a / a.sum()
    return to_device(torch.from_numpy(weights), h.device).to(h.dtype)


@algorithm(label="FedPAC", colour="orange", marker="d", line=":")
def fedpac(lam: NonNegative = 1.0, head_epochs: Whole = 1) -> Algorithm:
    """A shared body with features aligned to class prototypes, and a combination of classifiers for every client.

    A client receives the body and joins it with its classifier phi_i. In the first `head_epochs` local epochs it
    minimises cross-entropy over phi_i, in the others cross-entropy + lam R over the body, where R is the mean squared
    error between the features of a sample and the global prototype of its class. In the first round there are no
    prototypes, and R is 0. Later the client's own class mean mu_ic replaces a missing prototype.

    Before training, a client computes statistics of the received model over its m_i training samples: the class means
    mu_ic of the features z, the shares p_ic of the classes, h_ic = p_ic mu_ic, and V_i = (mean ||z||^2 - sum_c
    ||h_ic||^2) / m_i. After training it computes the class means of its new model, which are its prototypes. The server
    averages bodies by training samples and prototypes by samples of the class, and sends each participant the
    classifier sum_j a_ij phi_j (`head_weights`).

    BatchNorm belongs to the body and is averaged with it; its running statistics follow the data in both phases. A
    client is evaluated with the shared body and its latest classifier.

    Args:
        lam: strength of the pull towards the prototypes, at least 0; FedSimSup has 1.
        head_epochs: number of local epochs that train the classifier, from 0 to the run's `local_epochs`.

    Raises:
        ValueError: in the first round, if `head_epochs` is larger than the run's `local_epochs`.

    Source:
        Xu et al., "Personalized Federated Learning with Feature Alignment and Classifier Collaboration", ICLR 2023.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedpac(), federation, rounds=1, local_epochs=2, progress=False)
        >>> a, b = result.weights(client=0), result.weights(client=1)
        >>> [name for name in a if not a[name].equal(b[name])]
        ['classifier.weight', 'classifier.bias']
    """

    def loss(w, batch, prototypes, lam):  # ONE client
        z, logits = batch.model.penultimate(w, batch.x)
        return F.cross_entropy(logits, batch.y) + lam * F.mse_loss(z, prototypes[batch.y])

    def init(model, federation):
        return State(*init_partial(lambda model: model.classifier)(model, federation), no_prototypes(model))

    def statistics(cohort, start):  # mu, h and V of the received models
        mu, square = class_features(cohort, start)  # [k, n_classes, p], [k]
        counts, n_samples = cohort.class_counts.to(mu.dtype), cohort.n_samples.to(mu.dtype)
        h = (counts / n_samples[:, None])[:, :, None] * mu  # p_ic mu_ic
        return mu, h, (square - (h**2).sum((1, 2))) / n_samples

    def round(state, cohort):
        check_count("head_epochs", head_epochs, 0, cohort.local.epochs)
        head, body = range(head_epochs), range(head_epochs, cohort.local.epochs)
        start, sent = download(state, cohort), sent_prototypes(state.prototypes, cohort)
        mu, h, V = statistics(cohort, start)

        z, lams = torch.where(sent.known[:, :, None] > 0, sent.z, mu), torch.full_like(V, lam if cohort.round else 0)
        w = train(cohort, cross_entropy, start, epochs=head, trainable=state.v)  # the classifier
        w = train(cohort, loss, w, z, lams, epochs=body, trainable=state.w)  # the body
        z, _ = class_features(cohort, w)  # the clients' prototypes

        w, z, counts, h, V = cohort.receive((w, z, cohort.class_counts.to(z.dtype), h, V))
        phi = cohort.send(mix(head_weights(h, V), select(w, state.v)))  # combined classifiers: [k, ...]
        mean, known = client_mean(select(w, state.w), cohort.n_samples), mean_prototypes(z, counts, state.prototypes)
        return State(mean, cohort.keep(state.v, phi), known)

    return Algorithm("fedpac", init, round, models=merged)
