"""FedKEMF (Yu et al., 2022): a small knowledge network travels; clients and it learn from each other."""

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from fedlib.algorithm import Algorithm, algorithm, need_public
from fedlib.checks import check_choice, check_count, check_number
from fedlib.models import MODELS, build
from fedlib.models.mixture import deal, stacks
from fedlib.models.pair import THETA, pair, prefixed, unprefixed
from fedlib.stack import Params, client_mean
from fedlib.training.batches import Batch
from fedlib.training.server import fine_tuned, server_batches


class State(NamedTuple):
    v: Params  # for every architecture a stack with a row for each of its clients
    w: Params  # the knowledge network [...]


def divergence(answers: Tensor, own: Tensor) -> Tensor:
    """Mean of KL(softmax answers || softmax own) over logits [batch, n_classes]; `answers` are held fixed."""
    return F.kl_div(own.log_softmax(1), answers.detach().softmax(1), reduction="batchmean")


def mutual_loss(w: Params, batch: Batch) -> Tensor:
    """ONE client: both networks of a pair on the labels, and each on what the other one answers."""
    parts = batch.model.net.named_children()
    own, known = (functional_call(net, unprefixed(name, w), (batch.x,)) for name, net in parts)
    errors = F.cross_entropy(own, batch.y) + F.cross_entropy(known, batch.y)
    return errors + divergence(known, own) + divergence(own, known)


@algorithm
def fedkemf(
    knowledge: str = "m1", server_epochs: int = 3, server_lr: float = 1e-3, server_batch: int = 64
) -> Algorithm:
    """Own network and a copy of the knowledge network, an architecture by name, learn together: cross-entropy of each
    + KL(the other || it), the other held fixed.

    Only the knowledge network is sent. The server averages the copies with weights n_samples and trains the mean for
    `server_epochs` on the unlabelled public images, with Adam, on KL(mean of the copies' probabilities || its own).
    Own models are private, BatchNorm included; the knowledge network's is aggregated. Evaluated: own model.
    """
    check_choice("knowledge", knowledge, MODELS)
    check_number("server_lr", server_lr, 0, open_low=True)
    check_count("server_epochs", server_epochs, 0)
    check_count("server_batch", server_batch)

    def init(model, federation):
        need_public("fedkemf", federation)
        return State(stacks(deal(model, federation.n_clients)), model.sibling(knowledge, MODELS[knowledge]).weights)

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
        model, copies, order = known(cohort.model, state.w), [], []
        for part in cohort.parts():
            both = replace(part, model=pair(part.model, model))
            start = prefixed(THETA, part.own(state.v)) | prefixed(knowledge, part.broadcast(state.w))  # [k, ...]
            w = both.train(mutual_loss, start)
            part.keep(state.v, unprefixed(THETA, w))
            copies.append(part.gather(unprefixed(knowledge, w)))
            order.append(part.n_samples)
        copies = {name: torch.cat([own[name] for own in copies]) for name in state.w}
        mean = client_mean(copies, torch.cat(order))
        return State(state.v, distilled(cohort, model, mean, copies))

    made_of = (MODELS[knowledge],)
    return Algorithm("fedkemf", init, round, models=lambda state: state.v, mixed=True, made_of=made_of)
