"""FedKEMF (Yu et al., 2022): a small knowledge network travels; clients and it learn from each other."""

from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, need_public
from fedlib.checks import above, at_least, check_choice
from fedlib.models import MODELS, build
from fedlib.models.ensemble import Ensemble
from fedlib.models.mixture import deal, initial
from fedlib.stack import Params, PerArchitecture, cat, client_mean
from fedlib.training.batches import Batch
from fedlib.training.server import fine_tuned, server_batches


class State(NamedTuple):
    v: PerArchitecture
    w: Params  # the knowledge network [...]


def divergence(answers: Tensor, own: Tensor) -> Tensor:
    """Mean of KL(softmax answers || softmax own) over logits [batch, n_classes]; `answers` are held fixed."""
    return F.kl_div(own.log_softmax(1), answers.detach().softmax(1), reduction="batchmean")


class Pair(NamedTuple):
    """A client's two networks, or their weights."""

    private: Any
    knowledge: Any


def mutual_loss(w: Pair, batch: Batch) -> Tensor:
    """ONE client: both networks on the labels, and each on what the other one answers."""
    private, knowledge = (network(own, batch.x) for network, own in zip(batch.model.networks, w, strict=True))
    errors = F.cross_entropy(private, batch.y) + F.cross_entropy(knowledge, batch.y)
    return errors + divergence(knowledge, private) + divergence(private, knowledge)


@algorithm
def fedkemf(
    knowledge: str = "m1",
    server_epochs: Annotated[int, at_least(0)] = 3,
    server_lr: Annotated[float, above(0)] = 1e-3,
    server_batch: Annotated[int, at_least(1)] = 64,
) -> Algorithm:
    """Own network and a copy of the knowledge network, an architecture by name, learn together: cross-entropy of each
    + KL(the other || it), the other held fixed.

    Only the knowledge network is sent. The server averages the copies with weights n_samples and trains the mean for
    `server_epochs` on the unlabelled public images, with Adam, on KL(mean of the copies' probabilities || its own).
    Own models are private, BatchNorm included; the knowledge network's is aggregated. Evaluated: own model.
    """
    check_choice("knowledge", knowledge, MODELS)

    def init(model, federation):
        need_public("fedkemf", federation)
        return State(initial(deal(model, federation.n_clients)), model.sibling(knowledge, MODELS[knowledge]).weights)

    def known(model, w):  # the knowledge network with the weights w
        return build(knowledge, MODELS[knowledge], model.shape, model.n_classes, *model.stream, knowledge)._replace(
            weights=w
        )

    def distilled(cohort, model, w, copies):
        public, stream = cohort.public, cohort.server_stream
        everybody = replace(cohort, model=model).on_public()
        mean = torch.stack(everybody.logits(copies)).softmax(2).mean(0)  # [P, n_classes]

        def loss(w, index):
            x, *_ = public.batch(index, model)
            return F.kl_div(model(w, x).log_softmax(1), mean[index], reduction="batchmean")

        batches = server_batches(public, server_epochs, server_batch, stream)
        return fine_tuned(model, w, loss, ((index,) for index in batches), server_lr, stream)

    def round(state, cohort):
        model, v, copies, order = known(cohort.model, state.w), state.v, [], []
        for part in cohort.parts():
            both = replace(part, model=Ensemble(Pair(part.model, model)))
            trained = both.train(mutual_loss, Pair(part.mine(v), part.broadcast(state.w)))  # [k, ...]
            v = part.keep(v, trained.private)
            copies.append(part.receive(trained.knowledge))
            order.append(part.n_samples)
        copies = cat(copies)
        mean = client_mean(copies, torch.cat(order))
        return State(v, distilled(cohort, model, mean, copies))

    made_of = (MODELS[knowledge],)
    return Algorithm("fedkemf", init, round, models=lambda state: state.v, mixed=True, made_of=made_of)
