"""FedKEMF (Yu et al., 2022): mutual learning between clients and a small shared network."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, need_public
from fedlib.checks import Count, Positive, Whole, check_choice
from fedlib.models import MODELS, Ensemble, build, deal, initial
from fedlib.stack import Params, PerArchitecture, cat, client_mean
from fedlib.training import Batch, client_logits, train
from fedlib.training.server import fine_tuned, server_batches


class State(NamedTuple):
    v: PerArchitecture
    w: Params  # the knowledge network [...]


def divergence(teacher: Tensor, logits: Tensor) -> Tensor:
    """Mean over a batch of KL(softmax teacher || softmax logits) in nats; the teacher gets no gradient."""
    # teacher and logits: [batch, n_classes]
    return F.kl_div(logits.log_softmax(1), teacher.detach().softmax(1), reduction="batchmean")


class Pair(NamedTuple):
    """The two networks of a client, or their weights."""

    private: Any
    knowledge: Any


def mutual_loss(w: Pair, batch: Batch) -> Tensor:
    """Loss of ONE client's two networks: cross-entropy, and the divergence of each from the other."""
    private, knowledge = (network(weights, batch.x) for network, weights in zip(batch.model.networks, w, strict=True))
    errors = F.cross_entropy(private, batch.y) + F.cross_entropy(knowledge, batch.y)
    return errors + divergence(knowledge, private) + divergence(private, knowledge)


@algorithm(label="FedKEMF", colour="orange", marker="P", line="--")
def fedkemf(
    knowledge: str = "m1", server_epochs: Whole = 3, server_lr: Positive = 1e-3, server_batch: Count = 64
) -> Algorithm:
    """A small shared knowledge network, in mutual learning with every client's private network.

    A client trains its private network and a copy of the knowledge network at once: each minimises cross-entropy +
    KL(other || itself), in which the other network's probabilities are constants. Only the knowledge network is sent.

    The server averages the copies, each weighted with its client's number of training samples. It then trains the
    average (in the authors' code its last knowledge network) with Adam on the unlabelled public images, to minimise
    KL(mean probabilities of the copies || its probabilities). Private networks stay with their clients, BatchNorm
    included, and may have different architectures; BatchNorm of the knowledge network is averaged. Every client is
    evaluated with its private network.

    Args:
        knowledge: architecture of the knowledge network, by name.
        server_epochs: epochs on the public images in a round; with 0 the server only averages.
        server_lr: step size of the server's Adam, above 0.
        server_batch: public images in a batch, at least 1.

    Raises:
        ValueError: no architecture has the name `knowledge`, or the federation has no public images.

    Source:
        Yu et al., "Resource-aware Federated Learning using Knowledge Extraction and Multi-model Fusion", 2022.

    Example:
        >>> data = fl.load("digits", copies=1)
        >>> federation = fl.federate(data, fl.dirichlet(alpha=0.5), clients=4, test_fraction=0.8, public=0.1)
        >>> result = fl.run(fl.fedkemf(knowledge="m1", server_epochs=1), federation, rounds=1, progress=False)
        >>> n = sum(t.numel() for t in result.state.w.values())  # of the knowledge network
        >>> result.rounds["bytes_up"].item() == 4 * 4 * n  # 4 clients, 4 bytes each
        True
    """
    check_choice("knowledge", knowledge, MODELS)

    def init(model, federation):
        need_public("fedkemf", federation)
        return State(initial(deal(model, federation.n_clients)), model.sibling(knowledge, MODELS[knowledge]).weights)

    def network(model, w):  # the knowledge network with the weights w
        stream = *model.stream, knowledge
        return build(knowledge, MODELS[knowledge], model.shape, model.n_classes, *stream)._replace(weights=w)

    def distilled(cohort, model, w, copies):  # w, trained on the mean probabilities of the copies [k, ...]
        public, stream = cohort.public, cohort.server_stream
        everybody = replace(cohort, model=model).on_public()
        mean = torch.stack(client_logits(everybody, copies)).softmax(2).mean(0)  # [P, n_classes]

        def loss(w, index):
            return F.kl_div(model(w, public.batch(index, model).x).log_softmax(1), mean[index], reduction="batchmean")

        batches = server_batches(public, server_epochs, server_batch, stream)
        return fine_tuned(model, w, loss, ((index,) for index in batches), server_lr, stream)

    def round(state, cohort):
        model, sent = network(cohort.model, state.w), []
        for peers in cohort.by_architecture():
            pairs = replace(peers, model=Ensemble(Pair(peers.model, model)))
            v, w = train(pairs, mutual_loss, Pair(peers.mine(state.v), peers.broadcast(state.w)))  # [k, ...] each
            peers.keep(state.v, v)
            sent.append((peers.receive(w), peers.n_samples))
        copies, n_samples = cat(sent)
        return state._replace(w=distilled(cohort, model, client_mean(copies, n_samples), copies))

    made_of = (MODELS[knowledge],)
    return Algorithm("fedkemf", init, round, models=lambda state: state.v, mixed=True, made_of=made_of)
