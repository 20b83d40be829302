"""FedSimSup (anonymous, submitted to ICLR 2025, equations 3-11): the logits of a personal model and a supervisor."""

from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import at_least, check_choice, check_count, check_kind
from fedlib.methods.fedsimsup.supervisors import SUPERVISORS
from fedlib.models import Group
from fedlib.models.ensemble import Ensemble
from fedlib.stack import Params, PerArchitecture, copies, put, take
from fedlib.streams import generator
from fedlib.training.losses import cross_entropy

MIXED = "small_lenet+small_cnn+small_vit"


class Pair(NamedTuple):
    """A client's two networks, or their weights."""

    theta: Any
    s: Any


class State(NamedTuple):
    theta: Params  # [n_clients, ...]: every client's personalised model, kept by the server
    s: PerArchitecture  # supervisors s_i, private
    members: tuple[Tensor, ...]  # int64: the clients with each kind of supervisor
    counts: Tensor  # [n_clients, n_classes]: train samples, m_i p_i; sent once


def label_similarity(counts: Tensor, others: Tensor) -> Tensor:
    """s_ij: cosines of label counts, or shares, [n, n_classes] and [k, n_classes] -> [n, k], in [0, 1]."""
    return (F.normalize(counts, dim=1) @ F.normalize(others, dim=1).T).clamp(max=1)


def self_weight(m_i: Tensor, m: Tensor) -> Tensor:
    """alpha_i = K m_i / (sum_j m_j + K m_i), eq. 9: of clients with m_i samples [n] beside participants with m [k]."""
    return len(m) * m_i / (m.sum() + len(m) * m_i)


def pull(theta: Params, uploads: Params, similarity: Tensor, alpha: Tensor) -> Params:
    """alpha_i theta_i + (1 - alpha_i) sum_j s_ij / sum_k s_ik theta_j, eq. 8: theta [n, ...], uploads [k, ...].

    `similarity` is [n, k], `alpha` [n]. A client like none of the participants keeps its theta_i (reading A4).
    """
    total = similarity.sum(1)
    keep = torch.where(total > 0, alpha, 1)
    weights = similarity * ((1 - keep) / torch.where(total > 0, total, 1))[:, None]  # [n, k]
    return {
        name: keep.view(-1, *[1] * (t.dim() - 1)) * t + torch.tensordot(weights, uploads[name], dims=1)
        for name, t in theta.items()
    }


@algorithm
def fedsimsup(
    supervisor: str = "small_lenet", supervisor_epochs: Annotated[int, at_least(0)] = 2, similarity: bool = True
) -> Algorithm:
    """First s_i, theta_i frozen, for `supervisor_epochs` of the local epochs (eq. 4), then theta_i, s_i frozen (eq. 5).

    Both on the cross-entropy of the summed logits (eq. 3), whose largest is the answer. Participants keep what they
    send, theta_i (eq. 7); all others are pulled towards it (eq. 8, 9). `supervisor` is "small_lenet" (L, of a sixth of
    LeNet5; of `lenet4` it is "small_lenet4"), "small_cnn" (C) or "small_vit" (T), or several of them, as in
    "small_lenet+small_cnn", of which each client draws one; "mixed": L, C, T. With `similarity=False` all s_ij are 1.
    theta_i start alike, s_i are independent draws. BatchNorm belongs to its network and does not move while that is
    frozen. Evaluated: every client's pair of theta_i and s_i. If all clients take part in every round, nobody is
    pulled: it is local training. Raises `ValueError` in the first round if supervisor_epochs > local epochs.
    """
    check_kind("supervisor", supervisor, str, "the name of a supervisor")
    kinds = supervisor.replace("mixed", MIXED).split("+")
    for kind in kinds:
        check_choice("supervisor", kind, [*SUPERVISORS, "mixed"])

    def groups(model, federation):  # by kind of supervisor
        drawn = generator(model.seed, "fedsimsup", "supervisors").integers(len(kinds), size=federation.n_clients)
        members = {kind: np.flatnonzero(drawn == j) for j, kind in enumerate(kinds)}
        kept = [kind for kind in kinds if len(members[kind])]
        return [Group(Ensemble(Pair(model, supervisor_of(model, kind))), members[kind]) for kind in kept]

    def supervisor_of(model, kind):
        return model.sibling(kind, SUPERVISORS[kind])

    def init(model, federation):
        n, like = federation.n_clients, next(iter(model.weights.values()))
        dealt = groups(model, federation)
        members = tuple(torch.as_tensor(group.clients, device=like.device) for group in dealt)
        drawn = (group.model.networks.s.independent(n) for group in dealt)
        s = PerArchitecture(tuple(take(s, own) for s, own in zip(drawn, members, strict=True)))
        counts = torch.as_tensor(federation.train_counts, dtype=like.dtype, device=like.device)
        return State(copies(model.weights, n), s, members, counts)

    def round(state, cohort):
        check_count("supervisor_epochs", supervisor_epochs, 0, cohort.local_epochs)
        first, second = range(supervisor_epochs), range(supervisor_epochs, cohort.local_epochs)
        if cohort.round == 0:
            cohort.receive({"counts": state.counts[: len(state.counts) - cohort.federation.unseen]})
        for part in cohort.parts():  # clients with the same kind of supervisor
            pair = Pair(part.send(part.mine(state.theta)), part.mine(state.s))  # [k, ...]
            s = part.train(cross_entropy, pair, epochs=first, trainable=["s"]).s  # (4)
            theta = part.train(cross_entropy, pair._replace(s=s), epochs=second, trainable=["theta"]).theta  # (5)
            part.keep(state.s, s)
            part.keep(state.theta, part.receive(theta))  # (7)

        participants = state.counts[cohort.clients]  # [k, n_classes]
        s_ij = label_similarity(state.counts, participants)  # [n_clients, k]
        alpha = self_weight(state.counts.sum(1), participants.sum(1))
        uploads = take(state.theta, cohort.clients)
        pulled = pull(state.theta, uploads, s_ij if similarity else torch.ones_like(s_ij), alpha)
        return state._replace(theta=put(pulled, cohort.clients, uploads))

    def models(state):
        pairs = zip(state.members, state.s.stacks, strict=True)
        return PerArchitecture(tuple(Pair(take(state.theta, own), s) for own, s in pairs))

    return Algorithm("fedsimsup", init, round, models, groups=groups)
