"""FCCL (Huang et al., CVPR 2022, Algorithm 1): public logits correlate class by class, and nothing is forgotten."""

from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, need_public
from fedlib.checks import at_least
from fedlib.methods.fedkemf import divergence
from fedlib.models.mixture import deal, initial
from fedlib.stack import PerArchitecture
from fedlib.training.losses import cross_entropy


class State(NamedTuple):
    v: PerArchitecture
    met: Tensor  # [n_clients]: 1 for a client that has taken part, else 0
    intra: Tensor  # [samples, n_classes]: what its client's model answered to each train sample after the warm-up


def standardised(z: Tensor) -> Tensor:
    """Logits [batch, n_classes] with mean 0 and standard deviation 1 over the batch, class by class."""
    return (z - z.mean(0)) / (z.std(0) + 1e-6)


def correlation_loss(own: Tensor, mean: Tensor, weight: float) -> Tensor:
    """sum_u (1 - M_uu)^2 + weight sum_(u != v) (1 + M_uv)^2 with M the correlation of logits [batch, n_classes]."""
    matrix = standardised(own).T @ standardised(mean) / len(own)  # [n_classes, n_classes]
    same = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    return (same * (1 - matrix) ** 2 + weight * (1 - same) * (1 + matrix) ** 2).sum()


@algorithm
def fccl(
    warm_up: Annotated[int, at_least(0)] = 10,
    weight: Annotated[float, at_least(0)] = 0.0051,
    public_epochs: Annotated[int, at_least(1)] = 1,
    public_batch: Annotated[int, at_least(2)] = 256,
) -> Algorithm:
    """First `public_epochs` on the unlabelled public images (`correlation_loss` with the clients' mean logits), then
    the local epochs on cross-entropy + KL(inter || own) + KL(intra || own).

    The mean is that of the models at the start of the round, all clients alike, in evaluation mode: one message a
    round, not one a batch. Inter is the client's model as it was at the end of its last round, intra as it was after
    its warm-up: `warm_up` epochs on its train part before its first round. Both are frozen. Models are private,
    BatchNorm included. Evaluated: own model.
    """

    def collaborative(w, batch, mean):  # ONE client
        return correlation_loss(batch.model(w, batch.x), mean["logits"][batch.index], weight)

    def private(w, batch, before):  # ONE client
        own = batch.model(w, batch.x)
        inter, intra = (divergence(before[name][batch.index], own) for name in ("inter", "intra"))
        return F.cross_entropy(own, batch.y) + inter + intra

    def init(model, federation):
        need_public("fccl", federation)
        like = next(iter(model.weights.values()))
        intra = like.new_zeros(len(federation.data), model.n_classes)
        return State(initial(deal(model, federation.n_clients)), like.new_zeros(federation.n_clients), intra)

    def prepare(state, part):  # the warm-up of clients that are here for the first time
        new = part.part(np.flatnonzero(state.met[part.clients].cpu().numpy() == 0))
        if new.size:
            w = new.train(cross_entropy, new.mine(state.v), name="warm up", epochs=range(warm_up))
            new.keep(state.v, w)
            new.write_logits(state.intra, w)

    def round(state, cohort):
        parts, sent, inter = cohort.parts(), [], torch.zeros_like(state.intra)
        for part in parts:
            prepare(state, part)
            v = part.mine(state.v)
            part.write_logits(inter, v)
            sent.append(part.receive({"logits": torch.stack(part.on_public().logits(v))})["logits"])
        mean = cohort.broadcast({"logits": torch.cat(sent).mean(0)})["logits"]  # [k, P, n_classes]
        for part in parts:
            everybody = replace(part.on_public(), batch_size=min(public_batch, mean.shape[1]))
            answers, epochs = {"logits": mean[: part.size]}, range(public_epochs)
            w = everybody.train(collaborative, part.mine(state.v), answers, name="public", epochs=epochs)
            before = {name: t.expand(part.size, -1, -1) for name, t in (("inter", inter), ("intra", state.intra))}
            part.keep(state.v, part.train(private, w, before))
        return state._replace(met=state.met.index_fill(0, cohort.clients, 1))

    return Algorithm("fccl", init, round, models=lambda state: state.v, mixed=True)
