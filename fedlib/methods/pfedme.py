"""pFedMe (Dinh et al., NeurIPS 2020, Algorithm 1): personal models theta_i close to the global model w."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib.algorithm import Algorithm, Partial, algorithm
from fedlib.checks import Count, Positive, check_number
from fedlib.stack import Params, copies, repeat, select, sq_distance, uniform_mean
from fedlib.training import cross_entropy, train


class Client(NamedTuple):
    """The two sets of weights of a client during training."""

    theta: Params  # personal, BatchNorm statistics included
    w: Params  # copy of the global model: trainable entries


def pull(w: Params, theta: Params, rate: float | Tensor) -> Params:
    """Move the entries of w towards theta: w - rate (w - theta)."""
    return {name: t - rate * (t - theta[name]) for name, t in w.items()}


@algorithm(label="pFedMe", colour="brown", marker="<", line="-.")
def pfedme(lam: Positive = 15.0, personal_lr: Positive = 0.01, steps: Count = 5, beta: Positive = 1.0) -> Algorithm:
    """Personal models with a proximal pull to the global model, which moves towards them.

    A client starts with theta_i = w_i = w. On each batch it takes `steps` steps with theta_i on cross-entropy + lam/2
    ||theta_i - w_i||^2, and then one step w_i -= lr lam (w_i - theta_i). theta_i carries over from batch to batch. It
    is updated by the run's optimiser, momentum included, at the rate `personal_lr`, and w_i without momentum at the
    run's lr. The server sets w to (1 - beta) w + beta mean_i w_i, with the unweighted mean.

    BatchNorm's affine parameters belong to theta and w; its running statistics follow theta_i and are averaged. A
    client is evaluated with theta_i of its last round, or with the initial weights before its first one (in the paper
    every client trains a theta_i in every round); fine-tuning trains a new theta_i from w.

    As lam grows, theta_i approaches w_i.

    Args:
        lam: strength of the pull between theta_i and w_i, above 0; 15 is one of the paper's values.
        personal_lr: step size of theta_i, above 0; `personal_lr * lam` must be
            well below 2, or the steps diverge.
        steps: steps of theta_i on each batch, at least 1; 5 in the paper.
        beta: step of the server towards the mean, above 0; with 1 the global model is the mean.

    Raises:
        ValueError: in the first round, if lr lam is larger than 1.

    Source:
        Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, Algorithm 1.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.pfedme(steps=1), federation, rounds=1, progress=False)
        >>> result.weights(client=0)["fc1.0.weight"].equal(result.state.w["fc1.0.weight"])  # theta_0 is not w
        False
    """

    def loss(client, batch, rate):  # ONE client
        theta, w = client
        for name, t in pull(w, theta, batch.draws["new"] * rate).items():  # step for the last batch, if this one is new
            w[name].copy_(t.detach())  # in place, like BatchNorm statistics, without the optimiser
        return cross_entropy(theta, batch) + lam / 2 * sq_distance(theta, w)

    def draws(rng, client, n_steps):
        return {"new": (np.arange(n_steps) % steps == 0).astype(float)}

    def local_update(start, cohort):  # [k, ...] -> theta_i (line 7), w_i (line 8)
        rate, clients = cohort.local.lr * lam, Client(start, select(start, cohort.model.trainable))
        check_number("lr * lam", rate, 0, 1)
        rates = torch.full_like(cohort.n_samples, rate, dtype=cohort.images.scale.dtype)
        theta, w = train(cohort, loss, clients, rates, written=["w"], lr=personal_lr, repeats=steps, draws=draws)
        return theta, theta | pull(w, theta, rate)

    def init(model, federation):
        return Partial(model.weights, copies(model.weights, federation.n_clients))

    def round(state, cohort):
        theta, w_i = local_update(cohort.broadcast(state.w), cohort)
        mean = uniform_mean(cohort.receive(w_i))
        return Partial(pull(state.w, mean, beta), cohort.keep(state.v, theta))

    def tune(state, everyone):
        return local_update(repeat(state.w, everyone.size), everyone)[0]

    return Algorithm("pfedme", init, round, models=lambda state: state.v, tune=tune)
