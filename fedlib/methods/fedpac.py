"""FedPAC (Xu et al., ICLR 2023, Algorithm 1): features aligned to class prototypes, classifiers combined per client."""

from typing import Annotated, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import nnls
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, merged
from fedlib.checks import at_least, check_count
from fedlib.methods.fedproto import Prototypes, mean_prototypes, no_prototypes, sent_prototypes
from fedlib.stack import Params, client_mean, copies, drop, mix, put, select, take
from fedlib.training.batches import to_device
from fedlib.training.losses import cross_entropy

SMALLEST = 1e-3  # of a weight in the combination of classifiers


class State(NamedTuple):
    w: Params  # body [...]
    v: Params  # classifiers [n_clients, ...]
    z: Tensor  # `Prototypes`
    known: Tensor


def simplex_minimum(q: np.ndarray) -> np.ndarray:
    """argmin a'Qa over the simplex, Q [k, k] symmetric and positive semidefinite: float64 [k].

    Minimising a'Qa + (sum a - 1)^2 over a >= 0, nonnegative least squares, gives it up to scale: on a = t b with b on
    the simplex the best t leaves b'Qb / (1 + b'Qb), which grows with b'Qb.
    """
    values, vectors = np.linalg.eigh(q / max(q.trace(), np.finfo(float).tiny))
    root = np.sqrt(values.clip(0))[:, None] * vectors.T  # root' root = Q
    a, _ = nnls(np.vstack([root, np.ones(len(q))]), np.append(np.zeros(len(q)), 1.0))
    return a / a.sum()


def head_weights(h: Tensor, variance: Tensor) -> Tensor:
    """For each client the a on the simplex with least sum_j a_j^2 V_j + ||h_i - sum_j a_j h_j||^2: [k, k].

    h_ic = p_ic mu_ic [k, n_classes, p] and V [k]. Weights below 1e-3 become 0; where the solver fails a client keeps
    its own classifier. The problems are solved on the host: this waits for the device.
    """
    flat = h.flatten(1).double()
    flat = flat - flat.mean(0)
    known = torch.cat([flat @ flat.T, variance.double()[:, None]], 1).cpu().numpy()
    gram, v = known[:, :-1], known[:, -1].clip(0)
    weights = np.eye(len(v))
    for i in range(len(v)):
        try:
            a = simplex_minimum(gram[i, i] - gram[i] - gram[i][:, None] + gram + np.diag(v))
        except (RuntimeError, ValueError):  # no convergence; a run that has diverged
            continue
        a[a < SMALLEST] = 0
        weights[i] = a / a.sum()
    return to_device(torch.from_numpy(weights), h.device).to(h.dtype)


@algorithm
def fedpac(lam: Annotated[float, at_least(0)] = 1.0, head_epochs: Annotated[int, at_least(0)] = 1) -> Algorithm:
    """The first `head_epochs` local epochs train phi_i, the others the body with cross-entropy + lam R; it is averaged.

    R is the mean squared error of the features to the global prototype of their class. In round 0 there are none, and
    R is 0; later the client's own mean mu_ic takes the place of one that is still missing. Before it trains, a client
    takes the statistics of the model it received on its train part: class means mu_ic, shares p_ic, h_ic = p_ic mu_ic
    and V_i = (mean ||z||^2 - sum_c ||h_ic||^2) / m_i; after it has trained, the class means of its new model, which are
    its prototypes. The server averages prototypes by counts, and sends each participant sum_j a_ij phi_j
    (`head_weights`); this needs the host. BatchNorm belongs to the body and is averaged with it; its statistics follow
    the data in both phases. Evaluated: global body + own latest phi_i. Raises `ValueError` in the first round if
    head_epochs > local epochs.
    """

    def loss(w, batch, prototypes):  # ONE client
        z, logits = batch.model.penultimate(w, batch.x)
        return F.cross_entropy(logits, batch.y) + prototypes["lam"] * F.mse_loss(z, prototypes["z"][batch.y])

    def init(model, federation):
        phi = copies(select(model.weights, model.classifier), federation.n_clients)
        return State(drop(model.weights, phi), phi, *no_prototypes(model))

    def round(state, cohort):
        check_count("head_epochs", head_epochs, 0, cohort.local_epochs)
        head, body = range(head_epochs), range(head_epochs, cohort.local_epochs)
        before = Prototypes(state.z, state.known)
        start = cohort.broadcast(state.w) | take(state.v, cohort.clients)  # [k, ...]
        server = sent_prototypes(before, cohort)

        mu, square = cohort.class_features(start)  # [k, n_classes, p], [k]
        counts, n_samples = cohort.class_counts.to(mu.dtype), cohort.n_samples.to(mu.dtype)
        h = (counts / n_samples[:, None])[:, :, None] * mu
        variance = (square - (h**2).sum((1, 2))) / n_samples

        aims = torch.where(server["known"][:, :, None] > 0, server["z"], mu)
        prototypes = {"z": aims, "lam": torch.full_like(variance, lam if cohort.round else 0)}
        trained = cohort.train(cross_entropy, start, epochs=head, trainable=state.v)
        trained = cohort.train(loss, trained, prototypes, epochs=body, trainable=state.w)
        z, _ = cohort.class_features(trained)

        cohort.receive(trained | {"z": z, "counts": counts, "h": h, "V": variance})
        w = client_mean(select(trained, state.w), cohort.n_samples)
        phi = cohort.send(mix(head_weights(h, variance), select(trained, state.v)))  # [k, ...]
        return State(w, put(state.v, cohort.clients, phi), *mean_prototypes(z, counts, before))

    return Algorithm("fedpac", init, round, models=merged)
