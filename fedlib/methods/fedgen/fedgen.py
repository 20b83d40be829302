"""FedGen (Zhu et al., ICML 2021, Algorithm 1; baseline of pFedSim, section 5): features from a shared generator."""

from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, one_for_all
from fedlib.checks import above, at_least, at_most
from fedlib.methods.fedgen.generator import STATISTICS, generate, new_generator
from fedlib.stack import Params, client_mean, drop
from fedlib.streams import generator
from fedlib.training.adam import adam
from fedlib.training.batches import to_device
from fedlib.training.losses import cross_entropy


class State(NamedTuple):
    w: Params  # [...]
    generator: Params  # [...]; made in the first round, as are the moments of its Adam
    first: Params
    second: Params


def zeros_like(w: Params) -> Params:
    return {name: torch.zeros_like(t) for name, t in w.items()}


def generator_loss(g: Params, phi: tuple[Tensor, Tensor], share: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """Mean over the batch of sum_i a_iy CE(phi_i(G(y, noise)), y): phi of k clients, share a [k, n_classes]."""
    weight, bias = phi  # [k, n_classes, p], [k, n_classes]
    logits = torch.einsum("bp,kcp->kbc", generate(g, y, noise, training=True), weight) + bias[:, None]
    errors = F.cross_entropy(logits.flatten(0, 1), y.repeat(len(weight)), reduction="none")
    return (share[:, y] * errors.view(-1, len(y))).sum(0).mean()


@algorithm
def fedgen(
    alpha: Annotated[float, at_least(0)] = 10.0,
    beta: Annotated[float, at_least(0)] = 10.0,
    decay: Annotated[float, above(0), at_most(1)] = 0.98,
    labels: Annotated[int, at_least(2)] = 32,
    noise: Annotated[int, at_least(1)] = 32,
    hidden: Annotated[int, at_least(1)] = 32,
    generator_steps: Annotated[int, at_least(1)] = 5,
    generator_lr: Annotated[float, above(0)] = 3e-4,
) -> Algorithm:
    """Local loss: CE(w(x), y) + alpha CE(phi(G(y', z')), y') + beta KL(softmax phi(G(y, z)) || softmax w(x)).

    y' are `labels` labels drawn uniformly from the client's own classes, z and z' Gaussian of size `noise`; the first
    argument of KL is held fixed. In round t alpha, beta and `generator_lr` are multiplied by decay^t; in round 0 there
    is no generator yet. The server averages as FedAvg does, then takes `generator_steps` steps of Adam, each on
    `labels` labels that are uniform over the cohort's classes, down `generator_loss`: a_iy is client i's share of class
    y in the cohort, so the clients upload their label counts. Adam's moments last for the whole run. There is no
    diversity term (reading A18). BatchNorm is aggregated; the generator's uses the batch on the server and running
    statistics, which are sent with it, on the clients. `alpha=beta=0` is FedAvg. Evaluated: the global model.
    """

    def loss(w, batch, g, faded):  # ONE client
        own, logits = batch.draws["labels"], batch.model(w, batch.x)
        features = generate(g, torch.cat([own, batch.y]), batch.draws["noise"])
        guess, target = F.linear(features, *batch.model.head(w)).split([len(own), len(batch.y)])
        divergence = F.kl_div(logits.log_softmax(1), target.detach().softmax(1), reduction="batchmean")
        generated = alpha * F.cross_entropy(guess, own) + beta * divergence
        return F.cross_entropy(logits, batch.y) + faded["factor"] * generated

    def server(state, cohort, phi):  # the generator learns from the clients' classifiers
        rng = generator(*cohort.server_stream, "generator")
        counts = cohort.federation.train_counts[cohort.ids]  # [k, n_classes]
        before = state.generator or new_generator(rng, counts.shape[1], noise, hidden, p=phi[0].shape[2])
        g = {name: to_device(t, phi[0].device).to(phi[0].dtype) for name, t in before.items()}
        first, second = (moment or zeros_like(drop(g, STATISTICS)) for moment in (state.first, state.second))

        def sent(array):
            return to_device(torch.from_numpy(array), cohort.clients.device)

        uploaded = cohort.receive({"counts": sent(counts).to(phi[0])})["counts"]
        share = uploaded / uploaded.sum(0).clamp(min=1)
        [classes] = counts.sum(0).nonzero()
        y = sent(rng.choice(classes, (generator_steps, labels)))
        z = sent(rng.standard_normal((generator_steps, labels, noise))).to(phi[0])
        batches = ((phi, share, *batch) for batch in zip(y, z, strict=True))
        lr, taken = generator_lr * decay**cohort.round, generator_steps * cohort.round
        return State(state.w, adam(generator_loss, g, first, second, taken, batches, lr), first, second)

    def round(state, cohort):
        def draws(rng, client, steps):
            [classes] = cohort.federation.train_counts[client].nonzero()
            z = rng.standard_normal((steps, labels + cohort.batch_size, noise))
            return {"labels": rng.choice(classes, (steps, labels)), "noise": z}

        w = cohort.broadcast(state.w)
        if state.generator:
            factor = torch.full_like(cohort.n_samples, decay**cohort.round, dtype=cohort.images.scale.dtype)
            w_i = cohort.train(loss, w, cohort.broadcast(state.generator), {"factor": factor}, draws=draws)  # [k, ...]
        else:
            w_i = cohort.train(cross_entropy, w)
        w_i = cohort.receive(w_i)
        return server(state._replace(w=client_mean(w_i, cohort.n_samples)), cohort, cohort.model.head(w_i))

    def init(model, federation):
        return State(model.weights, {}, {}, {})

    return Algorithm("fedgen", init, round, models=one_for_all)
