"""FCCL (Huang et al., CVPR 2022, Algorithm 1): correlation of public logits without forgetting."""

from typing import Annotated, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, need_public
from fedlib.checks import Count, NonNegative, Whole, at_least
from fedlib.methods.fedkemf import divergence
from fedlib.models import deal, initial
from fedlib.stack import PerArchitecture, repeat
from fedlib.training import client_logits, cross_entropy, train
from fedlib.training.evaluation import write_logits


class State(NamedTuple):
    v: PerArchitecture
    met: Tensor  # [n_clients]: 1 for a client that has taken part, else 0
    intra: Tensor  # [samples, n_classes]: for each training sample the logits of its client's model after warm-up


def standardised(z: Tensor) -> Tensor:
    """Logits with mean 0 and standard deviation 1 over the batch, class by class."""
    return (z - z.mean(0)) / (z.std(0) + 1e-6)


def correlation_loss(logits: Tensor, mean: Tensor, weight: float) -> Tensor:
    """Cross-correlation loss: sum_u (1 - M_uu)^2 + weight sum_(u != v) (1 + M_uv)^2, with M over the batch."""
    # logits of the model, and the mean logits of all clients: [batch, n_classes]
    matrix = standardised(logits).T @ standardised(mean) / len(logits)  # [n_classes, n_classes]
    same = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    return (same * (1 - matrix) ** 2 + weight * (1 - same) * (1 + matrix) ** 2).sum()


@algorithm(label="FCCL", colour="yellow", marker="X", line="--")
def fccl(
    warm_up: Whole = 10,
    weight: NonNegative = 0.0051,
    public_epochs: Count = 1,
    public_batch: Annotated[int, at_least(2)] = 256,
) -> Algorithm:
    """Cross-correlation of the logits of different networks on public images, and distillation against forgetting.

    Before its first round a client trains for `warm_up` epochs on its training samples. In a round it first minimises
    `correlation_loss` on the unlabelled public images, between its logits and the mean logits of all clients. Then it
    minimises, for the local epochs, cross-entropy + KL(inter || z) + KL(intra || z) on its training samples, where z
    are the model's logits, inter the logits of the client's model at the end of its last round, and intra those of its
    model after the warm-up; both teachers are frozen.

    Only logits of the public images are sent. The server takes their unweighted mean. The logits are those of the
    models at the start of the round, in evaluation mode: one message per round, where the paper has one per batch.
    Models are private, BatchNorm included, and may have different architectures. Every client is evaluated with its own
    model.

    Args:
        warm_up: epochs on the training samples before a client's first round, at least 0.
        weight: weight of pairs of different classes in `correlation_loss`, at least 0; the paper has 0.0051.
        public_epochs: epochs on the public images in a round, at least 1.
        public_batch: public images in a batch, at least 2.

    Raises:
        ValueError: the federation has no public images.

    Source:
        Huang et al., "Learn from Others and Be Yourself in Heterogeneous Federated Learning", CVPR 2022.

    Example:
        >>> data = fl.load("digits", copies=1)
        >>> federation = fl.federate(data, fl.dirichlet(alpha=0.5), clients=4, test_fraction=0.8, public=0.1)
        >>> result = fl.run(fl.fccl(warm_up=0), federation, "lenet5+m1", rounds=1, progress=False)
        >>> logits = 4 * len(federation.public) * 10  # of 4 clients, for 10 classes
        >>> result.rounds["bytes_up"].item() == 4 * logits
        True
    """

    def collaborative(w, batch, mean):  # ONE client, on public images
        return correlation_loss(batch.model(w, batch.x), mean[batch.index], weight)

    def private(w, batch, inter, intra):  # ONE client, on its training samples
        z = batch.model(w, batch.x)
        new, old = (divergence(teacher[batch.index], z) for teacher in (inter, intra))
        return F.cross_entropy(z, batch.y) + new + old

    def init(model, federation):
        need_public("fccl", federation)
        intra = model.zeros(len(federation.data), model.n_classes)
        return State(initial(deal(model, federation.n_clients)), model.zeros(federation.n_clients), intra)

    def warmed_up(state, peers):  # clients in their first round train
        new = peers.subset(np.flatnonzero(state.met[peers.clients].cpu().numpy() == 0))
        if new.size:
            v = train(new, cross_entropy, new.mine(state.v), name="warm up", epochs=range(warm_up))
            new.keep(state.v, v)
            write_logits(state.intra, new, v)
        return peers

    def round(state, cohort):
        ready, inter = [warmed_up(state, peers) for peers in cohort.by_architecture()], torch.zeros_like(state.intra)
        sent = []
        for peers in ready:
            write_logits(inter, peers, peers.mine(state.v))
            sent.append(peers.receive(torch.stack(client_logits(peers.on_public(), peers.mine(state.v)))))
        mean = cohort.broadcast(torch.cat(sent).mean(0))  # [k, P, n_classes]
        public = {"name": "public", "epochs": range(public_epochs), "batch_size": min(public_batch, mean.shape[1])}
        for peers in ready:
            v = train(peers.on_public(), collaborative, peers.mine(state.v), mean[: peers.size], **public)
            v = train(peers, private, v, repeat(inter, peers.size), repeat(state.intra, peers.size))
            peers.keep(state.v, v)
        return state._replace(met=state.met.index_fill(0, cohort.clients, 1))

    return Algorithm("fccl", init, round, models=lambda state: state.v, mixed=True)
