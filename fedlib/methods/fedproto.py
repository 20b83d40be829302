"""FedProto (Tan et al., AAAI 2022, Algorithm 1): private models with shared class prototypes."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import NonNegative
from fedlib.models import Model
from fedlib.stack import Params, copies, repeat
from fedlib.training import Cohort, class_features, train


class Prototypes(NamedTuple):
    """Global class prototypes."""

    z: Tensor  # [n_classes, p]: mean features; zeros for a class without samples so far
    known: Tensor  # [n_classes]: 1 for a class that has a prototype, else 0


class State(NamedTuple):
    """Private models, and the prototypes of the server."""

    v: Params  # [n_clients, ...]
    prototypes: Prototypes


def no_prototypes(model: Model) -> Prototypes:
    """Prototypes before the first round: zeros, and no class known."""
    weight, bias = model.head(model.weights)
    return Prototypes(torch.zeros_like(weight), torch.zeros_like(bias))


def sent_prototypes(prototypes: Prototypes, cohort: Cohort) -> Prototypes:
    """Send the prototypes to the clients, [...] -> [k, ...]; in round 0 there are none, and nothing is sent."""
    return cohort.broadcast(prototypes) if cohort.round else repeat(prototypes, cohort.size)


def mean_prototypes(z: Tensor, counts: Tensor, before: Prototypes) -> Prototypes:
    """Average the clients' class means by training samples; a class without samples keeps the prototype of `before`."""
    # class means z [k, n_classes, p], training samples per class [k, n_classes]
    n = counts.sum(0)
    present = n > 0
    mean = torch.einsum("kc,kcp->cp", counts, z) / n.clamp(min=1)[:, None]
    return Prototypes(torch.where(present[:, None], mean, before.z), torch.where(present, 1, before.known))


@algorithm(label="FedProto", colour="sky", marker="v", line="-.")
def fedproto(lam: NonNegative = 1.0) -> Algorithm:
    """Private models with shared class prototypes, the mean features of every class.

    A client minimises cross-entropy + lam R, where R is the mean squared error between the features of a sample and the
    prototype of its class. Features are the input of the classifier. R is 0 for a class without a prototype, and
    therefore in the first round.

    After training a client sends the mean features of each class, over its training samples and in evaluation mode,
    with the number of samples of each class; all classes go in one message. The server averages them, weighted with
    these numbers. Models are private, BatchNorm included. Every client is evaluated with its own model, classifier
    included.

    Args:
        lam: strength of the pull towards the prototypes, at least 0; FedSimSup has 1. `lam=0` is Local-Only.

    Source:
        Tan et al., "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI 2022.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedproto(), federation, rounds=1, progress=False)
        >>> result.state.prototypes.z.shape, result.rounds["bytes_down"].item()  # nothing is sent in the first round
        (torch.Size([10, 84]), 0)
    """

    def loss(w, batch, prototypes):  # ONE client
        z, logits = batch.model.penultimate(w, batch.x)
        errors = ((z - prototypes.z[batch.y]) ** 2).mean(1) * prototypes.known[batch.y]  # [batch]
        return F.cross_entropy(logits, batch.y) + lam * errors.mean()

    def init(model, federation):
        return State(copies(model.weights, federation.n_clients), no_prototypes(model))

    def round(state, cohort):
        v = train(cohort, loss, cohort.mine(state.v), sent_prototypes(state.prototypes, cohort))  # [k, ...]
        z, _ = class_features(cohort, v)  # class means: [k, n_classes, p]
        z, counts = cohort.receive((z, cohort.class_counts.to(z.dtype)))
        return State(cohort.keep(state.v, v), mean_prototypes(z, counts, state.prototypes))

    return Algorithm("fedproto", init, round, models=lambda state: state.v)
