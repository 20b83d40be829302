"""FedMD (Li and Wang, NeurIPS workshop 2019, Algorithm 1): distillation of the mean scores of public images."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, need_public
from fedlib.checks import Count, Whole
from fedlib.models import deal, initial
from fedlib.stack import PerArchitecture, repeat
from fedlib.streams import generator
from fedlib.training import client_logits, cross_entropy, train
from fedlib.training.batches import to_device


class State(NamedTuple):
    v: PerArchitecture
    met: Tensor  # [n_clients]: 1 for a client that has taken part, else 0


@algorithm(label="FedMD", colour="sky", marker="D", line="-.")
def fedmd(warm_up: Whole = 10, digest_epochs: Count = 1, shown: Count = 5000) -> Algorithm:
    """Distillation of the mean logits on public images into different networks.

    Before its first round a client minimises cross-entropy for `warm_up` epochs on the labelled public images, then for
    as many epochs on its training samples. (In the paper all clients do so before the first round, with the same
    result.) In a round each client sends its logits of `shown` random public images, in evaluation mode. The server
    sends back their unweighted mean, the scores.

    A client then trains in two phases: the digest (`digest_epochs`), on the mean absolute error between its logits and
    these scores, and the revisit (local epochs), on cross-entropy on its training samples. Models are private,
    BatchNorm included, and may have different architectures. Every client is evaluated with its own model.

    Args:
        warm_up: epochs on each of these two sets of images before a client's first round, at least 0.
        digest_epochs: epochs of the digest, at least 1.
        shown: public images per round, at least 1; all of them if there are fewer.

    Raises:
        ValueError: the federation has no public images.

    Source:
        Li and Wang, "FedMD: Heterogenous Federated Learning via Model Distillation", NeurIPS workshop 2019,
        Algorithm 1.

    Example:
        >>> data = fl.load("digits", copies=1)
        >>> federation = fl.federate(data, fl.dirichlet(alpha=0.5), clients=4, test_fraction=0.8, public=0.1)
        >>> result = fl.run(fl.fedmd(warm_up=0, shown=20), federation, "lenet5+m1", rounds=1, progress=False)
        >>> result.rounds["bytes_up"].item() == 4 * 20 * 10 * 4  # 4 clients, 20 images, 10 classes, 4 bytes
        True
    """

    def digest(w, batch, scores):  # ONE client
        return F.l1_loss(batch.model(w, batch.x), scores[batch.index])

    def init(model, federation):
        need_public("fedmd", federation)
        return State(initial(deal(model, federation.n_clients)), model.zeros(federation.n_clients))

    def warmed_up(state, peers):  # clients in their first round train ("transfer learning")
        new = peers.subset(np.flatnonzero(state.met[peers.clients].cpu().numpy() == 0))
        if new.size and warm_up:
            epochs = range(warm_up)
            v = train(new.on_public(), cross_entropy, new.mine(state.v), name="public warm up", epochs=epochs)
            new.keep(state.v, train(new, cross_entropy, v, name="warm up", epochs=epochs))
        return peers

    def consensus(state, cohort, chosen):  # mean scores of the chosen images: [P, n_classes], 0 for all others
        every, n = cohort.by_architecture(), len(cohort.public.y)
        scores = [torch.stack(client_logits(peers.on_public(chosen), peers.mine(state.v))) for peers in every]
        mean = torch.cat([peers.receive(z) for peers, z in zip(every, scores, strict=True)]).mean(0)
        cohort.broadcast(mean)
        index = to_device(torch.from_numpy(chosen), mean.device)
        return mean.new_zeros(n, mean.shape[1]).index_copy(0, index, mean)

    def round(state, cohort):
        ready, n = [warmed_up(state, peers) for peers in cohort.by_architecture()], len(cohort.public.y)
        chosen = np.sort(generator(*cohort.server_stream, "shown").permutation(n)[:shown])
        scores = consensus(state, cohort, chosen)  # "communicate", "aggregate", "distribute"
        for peers in ready:
            table, epochs = repeat(scores, peers.size), range(digest_epochs)
            v = train(peers.on_public(chosen), digest, peers.mine(state.v), table, name="digest", epochs=epochs)
            peers.keep(state.v, train(peers, cross_entropy, v))  # "revisit"
        return state._replace(met=state.met.index_fill(0, cohort.clients, 1))

    return Algorithm("fedmd", init, round, models=lambda state: state.v, mixed=True)
