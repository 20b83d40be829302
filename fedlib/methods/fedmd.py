"""FedMD (Li and Wang, NeurIPS workshop 2019, Algorithm 1): different networks agree on the scores of public images."""

from typing import Annotated, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, need_public
from fedlib.checks import at_least
from fedlib.models.mixture import deal, initial
from fedlib.stack import PerArchitecture
from fedlib.streams import generator
from fedlib.training.batches import to_device
from fedlib.training.losses import cross_entropy


class State(NamedTuple):
    v: PerArchitecture
    met: Tensor  # [n_clients]: 1 for a client that has taken part, else 0


@algorithm
def fedmd(
    warm_up: Annotated[int, at_least(0)] = 10,
    digest_epochs: Annotated[int, at_least(1)] = 1,
    shown: Annotated[int, at_least(1)] = 5000,
) -> Algorithm:
    """Clients send logits of `shown` random public images; each learns their mean, then its own train part again.

    The mean counts all clients of the round alike. Digest: `digest_epochs` on the mean absolute difference to it;
    revisit: the local epochs on cross-entropy. Before its first round a client warms up for `warm_up` epochs on the
    labelled public images, then as many on its train part (the paper: all clients before the first round, which is the
    same for everybody who takes part). Logits are those of evaluation mode. Models are private, BatchNorm included.
    Evaluated: own model.
    """

    def digest(w, batch, mean):  # ONE client
        return F.l1_loss(batch.model(w, batch.x), mean["logits"][batch.index])

    def init(model, federation):
        need_public("fedmd", federation)
        groups, like = deal(model, federation.n_clients), next(iter(model.weights.values()))
        return State(initial(groups), like.new_zeros(federation.n_clients))

    def prepare(state, part):  # the warm-up of clients that are here for the first time
        new = part.part(np.flatnonzero(state.met[part.clients].cpu().numpy() == 0))
        if new.size and warm_up:
            epochs = range(warm_up)
            w = new.on_public().train(cross_entropy, new.mine(state.v), name="public warm up", epochs=epochs)
            new.keep(state.v, new.train(cross_entropy, w, name="warm up", epochs=epochs))

    def round(state, cohort):
        parts, n = cohort.parts(), len(cohort.public.y)
        for part in parts:
            prepare(state, part)
        chosen = np.sort(generator(*cohort.server_stream, "shown").permutation(n)[:shown])
        sent = [torch.stack(part.on_public(chosen).logits(part.mine(state.v))) for part in parts]
        mean = torch.cat([part.receive({"logits": z})["logits"] for part, z in zip(parts, sent, strict=True)]).mean(0)
        table = mean.new_zeros(n, mean.shape[1])
        table[to_device(torch.from_numpy(chosen), mean.device)] = cohort.broadcast({"logits": mean})["logits"][0]
        for part in parts:
            answers, everybody = {"logits": table.expand(part.size, -1, -1)}, part.on_public(chosen)
            w = everybody.train(digest, part.mine(state.v), answers, name="digest", epochs=range(digest_epochs))
            part.keep(state.v, part.train(cross_entropy, w))
        return state._replace(met=state.met.index_fill(0, cohort.clients, 1))

    return Algorithm("fedmd", init, round, models=lambda state: state.v, mixed=True)
