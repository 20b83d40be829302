"""pFedMe (Dinh et al., NeurIPS 2020, Algorithm 1): personal models theta_i on a leash to the global model w."""

from typing import Annotated

import numpy as np

from fedlib.algorithm import Algorithm, Partial, algorithm
from fedlib.checks import above, at_least, check_number
from fedlib.stack import Params, copies, put, sq_distance, uniform_mean
from fedlib.training.losses import cross_entropy

LEASH = "leash of "  # a client's weights are theta_i, under the model's own names, and w_i, under these


def parted(weights: Params) -> tuple[Params, Params]:
    """theta_i and w_i, both under the model's own names."""
    w = {name.removeprefix(LEASH): t for name, t in weights.items() if name.startswith(LEASH)}
    return {name: t for name, t in weights.items() if not name.startswith(LEASH)}, w


def pull(w: Params, theta: Params, rate: float) -> Params:
    """w - rate (w - theta)."""
    return {name: t - rate * (t - theta[name]) for name, t in w.items()}


@algorithm
def pfedme(
    lam: Annotated[float, above(0)] = 15.0,
    personal_lr: Annotated[float, above(0)] = 0.01,
    steps: Annotated[int, at_least(1)] = 5,
    beta: Annotated[float, above(0)] = 1.0,
) -> Algorithm:
    """`steps` steps down l(theta_i) + lam/2 ||theta_i - w_i||^2 on a batch, then w_i -= lr lam (w_i - theta_i).

    theta_i moves by the run's optimiser at the rate `personal_lr`, momentum included, w_i by plain steps at the run's
    lr; theta_i = w_i = w at the start of a round and theta_i is carried over from batch to batch. w <- (1 - beta) w +
    beta mean_i w_i, every client counting alike. BatchNorm's affine part is part of theta and w, its statistics follow
    theta_i and are averaged. Evaluated: theta_i of the client's last round; tuned: theta_i after as many epochs started
    from w. Raises `ValueError` in the first round if lr lam > 1.
    """

    def loss(weights, batch, rate):  # ONE client
        theta, w = parted(weights)
        followed = pull(w, theta, batch.draws["first"] * rate["rate"])  # on a new batch: the steps on the last one
        for name, t in followed.items():
            w[name].copy_(t.detach())  # in place, as BatchNorm moves its statistics: no step of the optimiser
        return cross_entropy(theta, batch) + lam / 2 * sq_distance(theta, w)

    def first(rng, client, n_steps):
        return {"first": (np.arange(n_steps) % steps == 0).astype(float)}

    def local_update(start, cohort):  # [k, ...] -> theta_i, w_i
        rate, model = cohort.lr * lam, cohort.model
        check_number("lr * lam", rate, 0, 1)
        w = {LEASH + name: start[name] for name in model.trainable}
        rates = {"rate": next(iter(start.values())).new_full((cohort.size,), rate)}
        theta, w = parted(cohort.train(loss, start | w, rates, written=w, lr=personal_lr, repeats=steps, draws=first))
        return theta, theta | pull(w, theta, rate)

    def init(model, federation):
        return Partial(model.weights, copies(model.weights, federation.n_clients))

    def round(state, cohort):
        theta, w_i = local_update(cohort.broadcast(state.w), cohort)
        mean = uniform_mean(cohort.receive(w_i))
        return Partial(pull(state.w, mean, beta), put(state.v, cohort.clients, theta))

    def tune(state, everyone):
        start = {name: t.expand(everyone.size, *t.shape) for name, t in state.w.items()}
        return local_update(start, everyone)[0]

    return Algorithm("pfedme", init, round, models=lambda state: state.v, tune=tune)
