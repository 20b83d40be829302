"""FedFomo (Zhang et al., ICLR 2021; baseline of pFedSim, section 5): clients mix the models that help them."""

import math
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import above, at_least, at_most, below
from fedlib.stack import Params, copies, put, take
from fedlib.streams import generator
from fedlib.training.batches import to_device
from fedlib.training.cohort import Cohort
from fedlib.training.losses import cross_entropy


class State(NamedTuple):
    v: Params  # [n_clients, ...]: every client's model theta_i
    affinity: Tensor  # P [n_clients, n_clients]
    last: Tensor  # int64 [k]: the participants of the last round, none before the first


def usefulness(losses: Tensor, distances: Tensor) -> Tensor:
    """v_j = (L_i(theta_i) - L_i(theta_j)) / (||theta_j - theta_i|| + 1e-5): [k, 1 + m], [k, m] -> [k, m].

    `losses` are those of client i on its validation part, in the first column with its own model.
    """
    return (losses[:, :1] - losses[:, 1:]) / (distances + 1e-5)


def mixing_weights(useful: Tensor) -> Tensor:
    """v_j^+ / sum_k v_k^+: [k, m] -> [k, m]; zeros for a client to whom nobody is useful."""
    positive = useful.clamp(min=0)
    total = positive.sum(1, keepdim=True)
    return positive / torch.where(total > 0, total, 1)


def models_for(cohort: Cohort, state: State, neighbours: int, explore: float) -> Tensor:
    """Whose models each client gets: int64 [k, 1 + m], its own one, then m slots that are filled one after the other.

    A slot goes to the largest P_ij that is left, at random among equal ones, or, with probability `explore`, to anybody
    who is left; to the client itself only where nobody else is.
    """
    clients, shape, m = cohort.clients, (cohort.size, len(state.last)), min(neighbours, len(state.last))
    rng = generator(*cohort.server_stream, "neighbours")
    drawn = rng.random(shape).argsort(1), rng.random(shape), rng.random((m, cohort.size, 1)) < explore
    order, lots, explores = (to_device(torch.from_numpy(array), clients.device) for array in drawn)
    candidates = state.last[order]  # [k, participants]
    itself, known = candidates == clients[:, None], state.affinity[clients[:, None], candidates]
    lots, known = (t.masked_fill(itself, torch.finfo(t.dtype).min) for t in (lots, known))
    chosen = [clients[:, None]]
    for exploring in explores:
        best = torch.where(exploring, lots, known).argmax(1, keepdim=True)  # the first of equal ones
        chosen.append(candidates.gather(1, best))
        lots, known = (t.scatter(1, best, -math.inf) for t in (lots, known))
    return torch.cat(chosen, 1)


@algorithm
def fedfomo(
    neighbours: Annotated[int, at_least(1)] = 5,
    validation: Annotated[float, above(0), below(1)] = 0.2,
    explore: Annotated[float, at_least(0), at_most(1)] = 0.3,
    explore_decay: Annotated[float, at_least(0), at_most(1)] = 0.05,
) -> Algorithm:
    """A client gets its own model and those of `neighbours` participants of last round, mixes them, then trains.

    The neighbours are those with the largest P_ij (`models_for`); in round t = 0, 1, ... each is a random one instead
    with probability explore - explore_decay t, as in the authors' code (`explore=0`: never, pFedSim's reading A22).
    theta_i += sum_j v_j^+ / sum_k v_k^+ (theta_j - theta_i) and P_ij += v_j, v_j by `usefulness` on the share
    `validation` of its train part, on which it does not train; P starts as the identity. There is no server average.
    BatchNorm, affine and statistics alike, is mixed with the same weights; the distance is over the parameters. If no
    more than `neighbours` clients took part in the last round, one of them gets its own model twice, the second time
    with weight 0. In the first round nobody has neighbours: it is Local-Only on the rest of the train part. Evaluated:
    own theta_i. Raises `ValueError` in a round with a client of one training sample.
    """

    def init(model, federation):
        n, like = federation.n_clients, next(iter(model.weights.values()))
        nobody = torch.empty(0, dtype=torch.int64, device=like.device)
        return State(copies(model.weights, n), torch.eye(n, dtype=like.dtype, device=like.device), nobody)

    def round(state, cohort):
        clients, (train, held_out) = cohort.clients, cohort.hold_out(validation)
        chosen = models_for(cohort, state, neighbours, explore - explore_decay * cohort.round)  # [k, 1 + m]
        sent = cohort.send(take(state.v, chosen))  # [k, 1 + m, ...]

        losses = [
            cohort.mean_loss({name: t[:, j] for name, t in sent.items()}, held_out) for j in range(chosen.shape[1])
        ]
        others = {name: t[:, 1:] - t[:, :1] for name, t in sent.items()}  # theta_j - theta_i: [k, m, ...]
        distances = sum((others[name] ** 2).flatten(2).sum(2) for name in cohort.model.trainable).sqrt()
        useful = usefulness(torch.stack(losses, 1).to(distances.dtype), distances)
        weights = mixing_weights(useful)
        start = {name: t[:, 0] + torch.einsum("km,km...->k...", weights, others[name]) for name, t in sent.items()}

        v = cohort.receive(cohort.train(cross_entropy, start, samples=train))  # [k, ...]
        state.affinity[clients[:, None], chosen[:, 1:]] += cohort.receive({"v": useful})["v"]  # in place, as `put`
        return State(put(state.v, clients, v), state.affinity, clients)

    return Algorithm("fedfomo", init, round, models=lambda state: state.v)
