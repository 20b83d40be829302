"""pFedBayes (Zhang et al., ICML 2022, Algorithm 1): Gaussian weights, personal ones close to the global ones."""

from collections.abc import Sequence
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, Partial, algorithm
from fedlib.checks import at_least, check_number
from fedlib.methods.pfedbayes.noise import normal
from fedlib.stack import Params, copies, drop, put, select, take, uniform_mean
from fedlib.training.losses import cross_entropy

Gaussian = tuple[Tensor, Tensor]  # mu and sigma of independent weights, [n] each
RHO, GLOBAL = "rho of ", "global "  # entries: mu under the model's own names, rho under these, both also of w_i


def flat(weights: Params, names: Sequence[str], prefix: str = "") -> Tensor:
    """The entries of these names, after a prefix, one after the other: [n]."""
    return torch.cat([weights[prefix + name].flatten() for name in names])


def fixed(gaussian: Gaussian) -> Gaussian:
    mu, sigma = gaussian
    return mu.detach(), sigma.detach()


def divergence(q: Gaussian, w: Gaussian) -> Tensor:
    """KL(N(mu_q, sigma_q^2) || N(mu_w, sigma_w^2)), summed over all weights."""
    (mu_q, sigma_q), (mu_w, sigma_w) = q, w
    return (sigma_w.log() - sigma_q.log() + (sigma_q**2 + (mu_q - mu_w) ** 2) / (2 * sigma_w**2) - 0.5).sum()


@algorithm
def pfedbayes(zeta: Annotated[float, at_least(0)] = 10.0, rho: float = -2.5) -> Algorithm:
    """Weights N(mu, softplus(rho)^2). Loss of the personal q_i: cross-entropy of a sample + zeta / n_i KL(q_i || w_i).

    The client's copy w_i of the global distribution moves at the same time down zeta / n_i KL(q_i || w_i), the other
    side of each KL being held fixed (the paper: one after the other). The server averages mu and rho of the w_i, every
    client counting alike; q_i stays with its client. BatchNorm has no distribution and is personal. rho starts at
    `rho` everywhere. Evaluated: q_i at its mean. `zeta=0` leaves the clients to themselves.
    """
    check_number("rho", rho)

    def bayesian(model):
        return [name for name in model.trainable if name not in model.batchnorm]

    def loss(weights, batch, share):  # ONE client
        names = bayesian(batch.model)
        q = flat(weights, names), F.softplus(flat(weights, names, RHO))  # mu and sigma, [n] each
        w = flat(weights, names, GLOBAL), F.softplus(flat(weights, names, GLOBAL + RHO))
        sample = (q[0] + q[1] * normal(batch.draws["seed"], q[0])).split([weights[name].numel() for name in names])
        sampled = {name: t.view_as(weights[name]) for name, t in zip(names, sample, strict=True)}
        distance = divergence(q, fixed(w)) + divergence(fixed(q), w)
        return cross_entropy(select(weights | sampled, batch.model.weights), batch) + zeta * share["share"] * distance

    def draws(rng, client, steps):
        return {"seed": rng.integers(1 << 62, size=steps)}

    def distribution(model):
        names = bayesian(model)
        mu = select(model.weights, names)
        return mu | {RHO + name: torch.full_like(t, rho) for name, t in mu.items()}

    def init(model, federation):
        w = distribution(model)
        return Partial(w, copies(model.weights | w, federation.n_clients))

    def local_update(state, cohort):  # [k, ...] -> q_i, w_i
        w = {GLOBAL + name: t for name, t in cohort.broadcast(state.w).items()}
        start, share = (
            take(state.v, cohort.clients) | w,
            {"share": 1 / cohort.n_samples.to(next(iter(w.values())).dtype)},
        )
        names = [*cohort.model.trainable, *(name for name in start if name not in cohort.model.weights)]
        moved = cohort.train(loss, start, share, trainable=names, draws=draws)
        return drop(moved, w), {name.removeprefix(GLOBAL): t for name, t in select(moved, w).items()}

    def round(state, cohort):
        v, w_i = local_update(state, cohort)
        return Partial(uniform_mean(cohort.receive(w_i)), put(state.v, cohort.clients, v))

    def models(state):
        return {name: t for name, t in state.v.items() if not name.startswith(RHO)}

    def tune(state, everyone):
        return models(Partial(state.w, local_update(state, everyone)[0]))

    return Algorithm("pfedbayes", init, round, models, tune=tune)
