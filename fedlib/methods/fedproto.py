"""FedProto (Tan et al., AAAI 2022, Algorithm 1): private models that agree on the mean features of each class."""

from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import at_least
from fedlib.stack import Params, copies, put, repeat, take
from fedlib.training.cohort import Cohort


class Prototypes(NamedTuple):
    """What the server knows of every class."""

    z: Tensor  # [n_classes, p]: mean features, zeros for a class that nobody has had yet
    known: Tensor  # [n_classes]: 1 for a class that has a prototype, else 0


class State(NamedTuple):
    v: Params  # [n_clients, ...]
    z: Tensor  # `Prototypes`
    known: Tensor


def no_prototypes(model) -> Prototypes:
    weight, bias = model.head(model.weights)
    return Prototypes(torch.zeros_like(weight), torch.zeros_like(bias))


def sent_prototypes(before: Prototypes, cohort: Cohort) -> Params:
    """The prototypes for every client of the cohort: z [k, n_classes, p], known [k, n_classes]; none in round 0."""
    sent = before._asdict()
    return cohort.broadcast(sent) if cohort.round else repeat(sent, cohort.size)


def mean_prototypes(z: Tensor, counts: Tensor, before: Prototypes) -> Prototypes:
    """Means over the cohort with weights n_ic: z [k, n_classes, p], counts [k, n_classes].

    A class that nobody in the cohort has keeps its prototype.
    """
    n = counts.sum(0)
    seen = n > 0
    mean = torch.einsum("kc,kcp->cp", counts, z) / n.clamp(min=1)[:, None]
    return Prototypes(torch.where(seen[:, None], mean, before.z), torch.where(seen, 1, before.known))


@algorithm
def fedproto(lam: Annotated[float, at_least(0)] = 1.0) -> Algorithm:
    """Local loss: cross-entropy + lam R, R the mean squared error of the features to the prototype of their class.

    R is 0 for a class without a prototype, and so in the first round. Features are what the classifier sees. After
    training a client sends, for all classes at once, the means of those of its train part, in evaluation mode, and
    its counts; the server averages by counts. Models are private, BatchNorm included. `lam=0` is Local-Only.
    Evaluated: own model with its own classifier.
    """

    def loss(w, batch, server):  # ONE client
        z, logits = batch.model.penultimate(w, batch.x)
        errors = ((z - server["z"][batch.y]) ** 2).mean(1) * server["known"][batch.y]  # [batch]
        return F.cross_entropy(logits, batch.y) + lam * errors.mean()

    def init(model, federation):
        return State(copies(model.weights, federation.n_clients), *no_prototypes(model))

    def round(state, cohort):
        before = Prototypes(state.z, state.known)
        v = cohort.train(loss, take(state.v, cohort.clients), sent_prototypes(before, cohort))  # [k, ...]
        z, _ = cohort.class_features(v)  # [k, n_classes, p]
        sent = cohort.receive({"z": z, "counts": cohort.class_counts.to(z.dtype)})
        return State(put(state.v, cohort.clients, v), *mean_prototypes(sent["z"], sent["counts"], before))

    return Algorithm("fedproto", init, round, models=lambda state: state.v)
