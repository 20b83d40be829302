"""FedFomo (Zhang et al., ICLR 2021; baseline of pFedSim, section 5): clients mix the models that lower their loss."""

import math
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import Count, Fraction, above, below
from fedlib.stack import Params, copies, take, tree_map
from fedlib.streams import generator
from fedlib.training import Cohort, cross_entropy, mean_loss, train
from fedlib.training.batches import to_device


class State(NamedTuple):
    v: Params  # [n_clients, ...]: every client's model theta_i
    affinity: Tensor  # P [n_clients, n_clients]
    last: Tensor  # int64 [k]: the participants of the last round, none before the first


def usefulness(losses: Tensor, distances: Tensor) -> Tensor:
    """Usefulness v_j = (L_i(theta_i) - L_i(theta_j)) / (||theta_j - theta_i|| + 1e-5), loss decrease per distance."""
    # validation losses [k, 1 + m], the client's own model first; distances [k, m] -> [k, m]
    return (losses[:, :1] - losses[:, 1:]) / (distances + 1e-5)


def mixing_weights(useful: Tensor) -> Tensor:
    """Weights v_j^+ / sum_k v_k^+ [k, m] of useful models; rows sum to 1, or to 0 if no model is useful."""
    positive = useful.clamp(min=0)
    total = positive.sum(1, keepdim=True)
    return positive / torch.where(total > 0, total, 1)


def hold_out(cohort: Cohort, share: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Split each client's training samples into training and validation samples, at least one of each per client."""
    # The samples have been in random order since the federation was made; the last ones are held out.
    training, held_out = [], []
    for i, samples in zip(cohort.ids, cohort.samples, strict=True):
        if len(samples) < 2:
            raise ValueError(f"client {i} has one training sample; it needs at least two, one of them for validation.")
        n = min(max(round(share * len(samples)), 1), len(samples) - 1)
        training.append(samples[:-n])
        held_out.append(samples[-n:])
    return training, held_out


def column(sent: Params, j: int) -> Params:
    """Model j of each client, [k, 1 + m, ...] -> [k, ...]; model 0 is the client's own."""
    return tree_map(lambda t: t[:, j], sent)


def models_for(cohort: Cohort, state: State, neighbours: int, explore: float) -> Tensor:
    """Choose the models that each client receives: int64 [k, 1 + m], its own and those of m others."""
    # Candidates are the participants of the last round. They are chosen one by one: the largest remaining P_ij, ties
    # broken at random, or with probability `explore` a random one; the client itself only if no other candidate
    # remains.
    clients, shape, m = cohort.clients, (cohort.size, len(state.last)), min(neighbours, len(state.last))
    rng = generator(*cohort.server_stream, "neighbours")
    drawn = rng.random(shape).argsort(1), rng.random(shape), rng.random((m, cohort.size, 1)) < explore
    order, random, explores = (to_device(torch.from_numpy(array), clients.device) for array in drawn)
    candidates = state.last[order]  # [k, participants]
    itself, known = candidates == clients[:, None], state.affinity[clients[:, None], candidates]
    random, known = (t.masked_fill(itself, torch.finfo(t.dtype).min) for t in (random, known))
    chosen = [clients[:, None]]
    for exploring in explores:
        best = torch.where(exploring, random, known).argmax(1, keepdim=True)  # the first of several equal values
        chosen.append(candidates.gather(1, best))
        random, known = (t.scatter(1, best, -math.inf) for t in (random, known))
    return torch.cat(chosen, 1)


@algorithm(label="FedFomo", colour="yellow", marker="h")
def fedfomo(
    neighbours: Count = 5,
    validation: Annotated[float, above(0), below(1)] = 0.2,
    explore: Fraction = 0.3,
    explore_decay: Fraction = 0.05,
) -> Algorithm:
    """Personal models, mixed with other clients' models that lower the validation loss, then trained.

    The server sends client i its own model theta_i and the models theta_j of `neighbours` participants of the last
    round, those with the largest affinity P_ij (`models_for`). The client rates them by `usefulness` on validation
    samples, a share `validation` of its training samples, moves by theta_i += sum_j v_j^+ / sum_k v_k^+ (theta_j -
    theta_i) and then minimises cross-entropy on the other training samples. It sends back its model and v, and the
    server adds v_j to P_ij. P starts as the identity. The server averages nothing. This is the form of pFedSim's code;
    in the authors' code other models are rated against theta_i before its last training, and theta_i itself, as
    trained, is one of them.

    BatchNorm, affine parameters and running statistics alike, is mixed with the same weights; the distance is over the
    parameters. Every client is evaluated with its own theta_i.

    In the first round there are no neighbours, and the method is Local-Only on the samples that are not held out. If no
    more than `neighbours` clients took part in the last round, each of them gets its own model twice, the second time
    with weight 0. Images with the same `source`, as in the embedded digits, may be on both sides of the
    split into training and validation samples; copies of training images then favour the models that know them.

    Args:
        neighbours: number of other models that a client receives, at least 1; pFedSim has 5.
        validation: share of the training samples that is held out for validation, in (0, 1); pFedSim has 0.2.
        explore: in round t = 0, 1, ... a neighbour is random with probability explore - explore_decay t, as in the
            authors' code; from 0 to 1. `explore=0`, no random neighbours, is pFedSim's reading A22.
        explore_decay: decrease of that probability per round, from 0 to 1.

    Raises:
        ValueError: in a round with a client that has only one training sample.

    Source:
        Zhang et al., "Personalized Federated Learning with First Order Model Optimization", ICLR 2021; in pFedSim a
        baseline (section 5.1).

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedfomo(neighbours=2), federation, rounds=2, progress=False)
        >>> first, second = result.rounds["bytes_down"]
        >>> second == 3 * first  # the client's own model, later with two others
        True
    """

    def init(model, federation):
        identity = torch.eye(federation.n_clients).to(model.zeros())
        return State(copies(model.weights, federation.n_clients), identity, model.zeros(0).long())

    def start_from(sent, cohort, held_out):  # [k, 1 + m, ...] -> the mixed theta_i [k, ...], v [k, m]
        losses = [mean_loss(cohort, column(sent, j), held_out) for j in range(next(iter(sent.values())).shape[1])]
        others = {name: t[:, 1:] - t[:, :1] for name, t in sent.items()}  # theta_j - theta_i: [k, m, ...]
        distances = sum((others[name] ** 2).flatten(2).sum(2) for name in cohort.model.trainable).sqrt()
        useful = usefulness(torch.stack(losses, 1).to(distances.dtype), distances)
        weights = mixing_weights(useful)
        moved = tree_map(lambda t: torch.einsum("km,km...->k...", weights, t), others)
        return tree_map(torch.add, column(sent, 0), moved), useful

    def round(state, cohort):
        clients, (samples, held_out) = cohort.clients, hold_out(cohort, validation)
        chosen = models_for(cohort, state, neighbours, explore - explore_decay * cohort.round)  # [k, 1 + m]
        sent = cohort.send(take(state.v, chosen))  # [k, 1 + m, ...]
        start, useful = start_from(sent, cohort, held_out)
        v, useful = cohort.receive((train(cohort, cross_entropy, start, samples=samples), useful))
        state.affinity[clients[:, None], chosen[:, 1:]] += useful  # in place, as `keep`
        return State(cohort.keep(state.v, v), state.affinity, clients)

    return Algorithm("fedfomo", init, round, models=lambda state: state.v)
