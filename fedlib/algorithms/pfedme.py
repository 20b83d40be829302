"""pFedMe (Dinh et al., NeurIPS 2020, Algorithm 1): personal models theta_i on a leash to the global model w."""

import numpy as np

from fedlib.algorithm import Algorithm, Partial, algorithm
from fedlib.checks import check_count, check_number
from fedlib.stack import Params, drop, own, put, sq_distance, uniform_mean
from fedlib.training.losses import cross_entropy

LEASH = "leash of "  # a client's weights are theta_i, under the model's own names, and w_i, under these


def pull(w: Params, theta: Params, rate: float) -> Params:
    """w - rate (w - theta)."""
    return {name: t - rate * (t - theta[name]) for name, t in w.items()}


@algorithm
def pfedme(lam: float = 15.0, personal_lr: float = 0.01, steps: int = 5, beta: float = 1.0) -> Algorithm:
    """`steps` steps of theta_i -= personal_lr (grad l(theta_i) + lam (theta_i - w_i)) on a batch, then w_i follows.

    w_i -= lr lam (w_i - theta_i) with the run's lr; theta_i = w_i = w at the start of a round and theta_i is carried
    over from batch to batch. w <- (1 - beta) w + beta mean_i w_i, every client counting alike. BatchNorm's affine part
    is part of theta and w, its statistics follow theta_i and are averaged. Evaluated: theta_i of the client's last
    round; tuned: theta_i after as many epochs started from w. Raises `ValueError` in the first round if lr lam > 1.
    """
    check_number("lam", lam, 0, open_low=True)
    check_number("personal_lr", personal_lr, 0, open_low=True)
    check_count("steps", steps)
    check_number("beta", beta, 0, open_low=True)

    def loss(
        weights, batch, rate
    ):  # ONE client; at the first of the steps on a batch w_i follows those on the last one
        theta = {name: t for name, t in weights.items() if not name.startswith(LEASH)}
        w = {name.removeprefix(LEASH): t for name, t in weights.items() if name.startswith(LEASH)}
        rate = batch.draws["first"] * rate["rate"]
        followed = {name: t.detach() for name, t in pull(w, theta, rate).items()}
        follow = sq_distance(w, {name: theta[name].detach() for name in w}) * rate / (2 * personal_lr)
        return cross_entropy(theta, batch) + lam / 2 * sq_distance(theta, followed) + follow

    def first(rng, client, n_steps):
        return {"first": (np.arange(n_steps) % steps == 0).astype(float)}

    def local_update(theta, cohort):  # [k, ...] -> theta_i, w_i
        check_number("lr * lam", cohort.lr * lam, 0, 1)
        w = {LEASH + name: theta[name] for name in cohort.model.trainable}
        rate = {"rate": next(iter(theta.values())).new_full((cohort.size,), cohort.lr * lam)}
        moved = cohort.train(
            loss, theta | w, rate, trainable=[*cohort.model.trainable, *w], lr=personal_lr, repeats=steps, draws=first
        )
        theta, w = drop(moved, w), {name.removeprefix(LEASH): moved[name] for name in w}
        return theta, theta | pull(w, theta, cohort.lr * lam)

    def init(model, federation):
        return Partial(model.weights, own(model.weights, federation.n_clients))

    def round(state, cohort):
        theta, w_i = local_update(cohort.broadcast(state.w), cohort)
        mean = uniform_mean(cohort.gather(w_i))
        return Partial(pull(state.w, mean, beta), put(state.v, cohort.clients, theta))

    def tune(state, everyone):
        start = {name: t.expand(everyone.size, *t.shape) for name, t in state.w.items()}
        return local_update(start, everyone)[0]

    return Algorithm("pfedme", init, round, models=lambda state: state.v, tune=tune)
