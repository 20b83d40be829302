"""FedSimSup (anonymous, submitted to ICLR 2025, equations 3-11): the logits of a personal model and a supervisor."""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import Whole, check_choice, check_count, check_kind
from fedlib.methods.fedsimsup.supervisors import SUPERVISORS
from fedlib.models import Assignment, Ensemble
from fedlib.stack import Params, PerArchitecture, copies, take, tree_map
from fedlib.streams import generator
from fedlib.training import cross_entropy, train

MIXED = "small_lenet+small_cnn+small_vit"


class Pair(NamedTuple):
    """The two networks of a client, or their weights."""

    theta: Any
    s: Any


class State(NamedTuple):
    theta: Params  # [n_clients, ...]: every client's personalised model, kept by the server
    s: PerArchitecture  # supervisors s_i, private
    members: tuple[Tensor, ...]  # int64: the clients with each kind of supervisor
    counts: Tensor  # [n_clients, n_classes]: training samples, m_i p_i; sent once


def label_similarity(counts: Tensor, others: Tensor) -> Tensor:
    """Cosine similarity s_ij [n, k] of the label counts [n, n_classes] of clients and those of `others` [k, n_classes].

    Example:
        >>> from fedlib.methods.fedsimsup import label_similarity
        >>> label_similarity(torch.tensor([[1.0, 0.0]]), torch.tensor([[5.0, 0.0], [0.0, 5.0], [4.0, 3.0]]))
        tensor([[1.0000, 0.0000, 0.8000]])
    """
    return (F.normalize(counts, dim=1) @ F.normalize(others, dim=1).T).clamp(max=1)


def self_weight(m_i: Tensor, m: Tensor) -> Tensor:
    """Weight of its own model for each client: alpha_i = K m_i / (sum_j m_j + K m_i) (eq. 9).

    Example:
        >>> from fedlib.methods.fedsimsup import self_weight
        >>> self_weight(torch.tensor([10.0, 30.0]), torch.tensor([5.0, 15.0]))  # 1/2 for the mean size, 10
        tensor([0.5000, 0.7500])
    """
    # training samples of the clients m_i [n] and of the K participants m [k] -> [n]
    return len(m) * m_i / (m.sum() + len(m) * m_i)


def pull(theta: Params, uploads: Params, similarity: Tensor, alpha: Tensor) -> Params:
    """Move models towards the uploads: alpha_i theta_i + (1 - alpha_i) sum_j s_ij / sum_k s_ik theta_j (eq. 8)."""
    # theta [n, ...], uploads [k, ...], similarity s_ij [n, k], alpha [n]; theta_i stays if all s_ij are 0 (reading A4)
    total = similarity.sum(1)
    keep = torch.where(total > 0, alpha, 1)
    weights = similarity * ((1 - keep) / torch.where(total > 0, total, 1))[:, None]  # [n, k]

    def mean(theta, uploads):
        return keep.view(-1, *[1] * (theta.dim() - 1)) * theta + torch.tensordot(weights, uploads, dims=1)

    return tree_map(mean, theta, uploads)


@algorithm(
    label="FedSimSup",
    colour="red",
    marker="^",
    variants={
        "fedsimsup-l": ("FedSimSup-L", "--"),
        "fedsimsup-c": ("FedSimSup-C", ":"),
        "fedsimsup-t": ("FedSimSup-T", "-."),
        "fedsimsup-whole": ("FedSimSup, mixed", "---"),
    },
    printed={"Whole": "fedsimsup-whole", "Original": "fedsimsup"},
)
def fedsimsup(supervisor: str = "small_lenet", supervisor_epochs: Whole = 2, similarity: bool = True) -> Algorithm:
    """A personalised model and a small private supervisor, whose logits are added.

    A client minimises the cross-entropy of the summed logits of its model theta_i and its supervisor s_i (eq. 3): in
    the first `supervisor_epochs` local epochs over s_i with theta_i frozen (eq. 4), in the others over theta_i with s_i
    frozen (eq. 5). It sends theta_i only.

    The server keeps a theta_i for every client. For a participant it is the upload (eq. 7); all others are
    pulled towards the uploads of clients with similar label counts (eqs. 8 and 9). The counts are sent once, also by
    unseen clients. All
    theta_i have the same initial weights, supervisors are independent draws. BatchNorm belongs to its network and does
    not change while this network is frozen. A client is evaluated with the sum of both networks' logits.

    If all clients take part in every round, no model is pulled and this is local training.

    Args:
        supervisor: "small_lenet" (L, a sixth of LeNet5; for `lenet4` take "small_lenet4"), "small_cnn" (C), "small_vit"
            (T), or several, such as "small_lenet+small_cnn", of which each client draws one. "mixed" is all of L, C and
            T.
        supervisor_epochs: local epochs that train the supervisor, from 0 to the run's `local_epochs`; the paper has
            2 of 5.
        similarity: False: all s_ij are 1.

    Raises:
        ValueError: no supervisor has this name; in the first round, if `supervisor_epochs` is larger than the run's
            `local_epochs`.

    Source:
        Anonymous, "Personalized Federated Learning with Similarity Information Supervisor", submitted to ICLR 2025,
        equations 3 to 11, Algorithm 1.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedsimsup(supervisor_epochs=1), federation, rounds=1, local_epochs=2, progress=False)
        >>> theta, s = result.weights(client=0)
        >>> [sum(t.numel() for t in w.values()) for w in (theta, s)]  # s_i has about a sixth
        [62094, 10318]
    """
    check_kind("supervisor", supervisor, str, "the name of a supervisor")
    kinds = supervisor.replace("mixed", MIXED).split("+")
    for kind in kinds:
        check_choice("supervisor", kind, [*SUPERVISORS, "mixed"])

    def architectures(model, federation):  # one for every kind of supervisor in use
        drawn = generator(model.seed, "fedsimsup", "supervisors").integers(len(kinds), size=federation.n_clients)
        members = {kind: np.flatnonzero(drawn == j) for j, kind in enumerate(kinds)}
        pairs = {kind: Ensemble(Pair(model, model.sibling(kind, SUPERVISORS[kind]))) for kind in kinds}
        return [Assignment(pairs[kind], members[kind]) for kind in kinds if len(members[kind])]

    def init(model, federation):
        n, like, dealt = federation.n_clients, model.zeros(), architectures(model, federation)
        members = tuple(torch.as_tensor(clients, device=like.device) for _, clients in dealt)
        drawn = (pair.networks.s.independent(n) for pair, _ in dealt)
        s = PerArchitecture(tuple(take(s, clients) for s, clients in zip(drawn, members, strict=True)))
        return State(copies(model.weights, n), s, members, torch.as_tensor(federation.train_counts).to(like))

    def pulled(state, cohort):  # theta_i of all clients after the uploads; eqs. 7 to 9
        participants, uploads = cohort.mine(state.counts), cohort.mine(state.theta)  # [k, n_classes], [k, ...]
        s_ij = label_similarity(state.counts, participants)  # [n_clients, k]
        alpha = self_weight(state.counts.sum(1), participants.sum(1))
        theta = pull(state.theta, uploads, s_ij if similarity else torch.ones_like(s_ij), alpha)
        return cohort.keep(theta, uploads)

    def round(state, cohort):
        check_count("supervisor_epochs", supervisor_epochs, 0, cohort.local.epochs)
        first, second = range(supervisor_epochs), range(supervisor_epochs, cohort.local.epochs)
        if cohort.round == 0:
            cohort.receive(state.counts[: len(state.counts) - cohort.federation.unseen])
        for peers in cohort.by_architecture():  # clients with the same kind of supervisor
            pair = Pair(peers.send(peers.mine(state.theta)), peers.mine(state.s))  # [k, ...]
            s = train(peers, cross_entropy, pair, epochs=first, trainable=["s"]).s  # eq. 4
            theta = train(peers, cross_entropy, Pair(pair.theta, s), epochs=second, trainable=["theta"]).theta  # eq. 5
            peers.keep(state.s, s)
            peers.keep(state.theta, peers.receive(theta))
        return state._replace(theta=pulled(state, cohort))

    def models(state):
        pairs = zip(state.members, state.s.stacks, strict=True)
        return PerArchitecture(tuple(Pair(take(state.theta, clients), s) for clients, s in pairs))

    return Algorithm("fedsimsup", init, round, models, architectures=architectures)
