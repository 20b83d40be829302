"""FedBABU (Oh et al., ICLR 2022, Algorithm 1): FedAvg with a fixed random head until the evaluation."""

from typing import Literal

from fedlib.algorithm import Algorithm, Global, algorithm, init_global, one_for_all
from fedlib.stack import client_mean, drop, repeat, select
from fedlib.training import cross_entropy, train


@algorithm(label="FedBABU", colour="pink", marker="<", line=":")
def fedbabu(tuned: Literal["all", "head", "body"] = "all") -> Algorithm:
    """A shared body under a fixed random head; each client fine-tunes a copy of the model for its evaluation.

    A client minimises cross-entropy over the body of the model with the head (the last linear layer) frozen at its
    initial values, which are the same for all clients and are never sent. The server averages the bodies, each client
    weighted with its number of training samples. BatchNorm belongs to the body and is averaged.

    A client is evaluated with a copy of the global model after `tune_epochs` epochs of fine-tuning on its training
    samples (`when="after"`); `when="before"` is the global model itself. Fine-tuning changes no state.

    Without fine-tuning this is FedAvg with a frozen head, or FedRep with as many body epochs as local epochs.

    Args:
        tuned: part of the model that is fine-tuned: "all", the "head" or the "body"; the paper compares them.

    Source:
        Oh et al., "FedBABU: Towards Enhanced Representation for Federated Image Classification", ICLR 2022,
        Algorithm 1.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedbabu(), federation, rounds=1, progress=False)
        >>> [name for name, w in result.weights(client=0).items() if w.equal(result.model.weights[name])]
        ['classifier.weight', 'classifier.bias']
    """

    def split(w, model):
        return drop(w, model.classifier), select(w, model.classifier)

    def round(state, cohort):
        body, head = split(state.w, cohort.model)
        start = cohort.broadcast(body) | repeat(head, cohort.size)  # [k, ...]
        trained = train(cohort, cross_entropy, start, trainable=body)
        mean = client_mean(cohort.receive(select(trained, body)), cohort.n_samples)
        return Global(mean | head)

    def tune(state, everyone):
        body, head = split(state.w, everyone.model)
        part = {"all": state.w, "head": head, "body": body}[tuned]
        return train(everyone, cross_entropy, repeat(state.w, everyone.size), trainable=part)

    return Algorithm("fedbabu", init_global, round, models=one_for_all, tune_epochs=5, tune=tune)
