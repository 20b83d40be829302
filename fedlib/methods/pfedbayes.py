"""pFedBayes (Zhang et al., ICML 2022, Algorithm 1): Gaussian weights, with a pull between personal and global ones."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import NonNegative, check_number
from fedlib.stack import Params, copies, drop, select, tree_map, uniform_mean
from fedlib.training import cross_entropy, train

GOLDEN, FIRST, SECOND = (n - (1 << 64) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class Gaussian(NamedTuple):
    """Independent normal weights, by name: N(mu, softplus(rho)^2)."""

    mu: Params
    rho: Params


class Client(NamedTuple):
    """The distributions that a client trains, and its BatchNorm."""

    q: Gaussian  # personal
    w: Gaussian  # copy of the global distribution
    batchnorm: Params  # personal


def flat(gaussian: Gaussian) -> tuple[Tensor, Tensor]:
    """Concatenate mu and sigma of all weights, [n] each."""
    mu, rho = (torch.cat([t.flatten() for t in entries.values()]) for entries in gaussian)
    return mu, F.softplus(rho)


def fixed(gaussian: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Detach mu and sigma."""
    mu, sigma = gaussian
    return mu.detach(), sigma.detach()


def divergence(q: tuple[Tensor, Tensor], w: tuple[Tensor, Tensor]) -> Tensor:
    """Sum of KL(N(mu_q, sigma_q^2) || N(mu_w, sigma_w^2)) over all weights, in nats."""
    (mu_q, sigma_q), (mu_w, sigma_w) = q, w
    return (sigma_w.log() - sigma_q.log() + (sigma_q**2 + (mu_q - mu_w) ** 2) / (2 * sigma_w**2) - 0.5).sum()


def mixed(counter: Tensor) -> Tensor:
    """Turn int64 numbers into 64 random bits each by splitmix64 (Steele et al., OOPSLA 2014)."""
    z = counter * GOLDEN
    z = (z ^ _right(z, 30)) * FIRST
    z = (z ^ _right(z, 27)) * SECOND
    return z ^ _right(z, 31)


def _right(z: Tensor, n: int) -> Tensor:
    """Shift z to the right by n bits and fill with zeros; PyTorch's own shift keeps the sign."""
    return (z >> n) & ((1 << (64 - n)) - 1)


def normal(seed: Tensor, like: Tensor) -> Tensor:
    """Draw normal numbers of the size and type of `like` [n] by the Box-Muller method, alike in every backend."""
    bits = mixed(mixed(seed) + torch.arange(like.numel(), device=like.device))
    high, low = (half.to(like.dtype) for half in (_right(bits, 32), bits & 0xFFFFFFFF))
    radius, angle = (high + 0.5) * 2.0**-32, low * 2.0**-32
    return (-2 * radius.log()).sqrt() * (2 * math.pi * angle).cos()


class State(NamedTuple):
    """The global and the personal distributions, and the personal BatchNorm."""

    w: Gaussian  # [...]
    q: Gaussian  # [n_clients, ...]
    batchnorm: Params  # [n_clients, ...]


@algorithm(label="pFedBayes", colour="green", marker=">", line="--")
def pfedbayes(zeta: NonNegative = 10.0, rho: float = -2.5, noise: NonNegative = 1.0) -> Algorithm:
    """Bayesian networks with Gaussian weights, with a pull between the personal and the global distributions.

    A weight has the distribution N(mu, softplus(rho)^2). A client has a personal distribution q_i and a copy w_i of the
    global one. q_i minimises cross-entropy of a model drawn from it + zeta / n_i KL(q_i || w_i), where n_i counts the
    client's training samples. w_i minimises zeta / n_i KL(q_i || w_i) at the same time (in the paper, afterwards). Each
    treats the other distribution as fixed.

    The server takes the unweighted mean of mu and rho of the w_i; q_i stays with its client. BatchNorm has no
    distribution and stays with its client. Every client is evaluated with the mean of its q_i. `zeta=0` is local
    training without a server.

    Args:
        zeta: strength of the pull between q_i and w_i, at least 0; 10 is one of the paper's values.
        rho: initial rho of all weights, any number; -2.5 is a standard deviation of 0.079.
        noise: standard deviation of the normal numbers that draw the trained model, at least 0; 1 in the paper. Its
            public code, which is not the authors', has 0.001, so that this model is nearly the mean of q_i.

    Source:
        Zhang et al., "Personalized Federated Learning via Variational Bayesian Inference", ICML 2022.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.pfedbayes(), federation, rounds=1, progress=False)
        >>> mean, evaluated = result.state.q.mu["fc1.0.weight"], result.weights(client=0)["fc1.0.weight"]
        >>> mean[0].equal(evaluated), mean[0].equal(mean[1])  # the mean of q_0, which is not that of q_1
        (True, False)
    """
    check_number("rho", rho)

    def loss(client, batch, share):  # ONE client
        q, w = flat(client.q), flat(client.w)
        sample = q[0] + q[1] * (noise * normal(batch.draws["seed"], q[0]))  # a draw from q_i
        values = sample.split([t.numel() for t in client.q.mu.values()])
        sampled = {name: v.view_as(t) for v, (name, t) in zip(values, client.q.mu.items(), strict=True)}
        distance = divergence(q, fixed(w)) + divergence(fixed(q), w)
        return cross_entropy(sampled | client.batchnorm, batch) + zeta * share * distance

    def draws(rng, client, steps):
        return {"seed": rng.integers(1 << 62, size=steps)}

    def init(model, federation):
        mu = select(model.weights, [name for name in model.trainable if name not in model.batchnorm])
        w, n = Gaussian(mu, tree_map(lambda t: torch.full_like(t, rho), mu)), federation.n_clients
        return State(w, copies(w, n), copies(drop(model.weights, mu), n))

    def local_update(state, cohort):  # [k, ...]
        start = Client(cohort.mine(state.q), cohort.broadcast(state.w), cohort.mine(state.batchnorm))
        return train(cohort, loss, start, 1 / cohort.n_samples.to(cohort.images.scale.dtype), draws=draws)

    def round(state, cohort):
        q_i, w_i, norms = local_update(state, cohort)
        w = uniform_mean(cohort.receive(w_i))
        return State(w, cohort.keep(state.q, q_i), cohort.keep(state.batchnorm, norms))

    def models(state):
        return state.q.mu | state.batchnorm

    def tune(state, everyone):
        q, _, norms = local_update(state, everyone)
        return q.mu | norms

    return Algorithm("pfedbayes", init, round, models, tune=tune)
