"""Differential privacy of each client's images: DP-SGD in local training, and the epsilon spent."""

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from fedlib.algorithm import Algorithm, resolve
from fedlib.checks import NonNegative, Positive, above, below, check_annotation, check_kind
from fedlib.extras import Needs
from fedlib.federation import Federation
from fedlib.runs.plan import cohorts
from fedlib.runs.result import RunResult
from fedlib.stack import Tree, keys
from fedlib.streams import generator
from fedlib.training.channel import Channel
from fedlib.training.phase import TRAINED, WRITTEN, Loss, Phase, Trainer


def private(algorithm: str | Algorithm, clip: float = 1.0, noise: float = 1.0) -> Algorithm:
    """Replace the local training of a method by DP-SGD: clipped gradients of single images, plus Gaussian noise.

    In every step the gradient of each image is clipped to the norm `clip`; the sum of these gradients and of noise with
    standard deviation `noise * clip` is divided by the number of images in the batch. An image that is repeated to fill
    up a batch counts once. Fine-tuning before an evaluation stays with the client and has no noise.

    `epsilon` estimates and bounds what the uploads reveal. It counts the run's local epochs, so a method may not train
    longer in a round, on larger batches or more often on some images, and may upload trained weights only. A choice
    that a client makes from its images without uploading it, such as IFCA's cluster, is not covered. This is a
    simulation: the noise is drawn from the run's seed, and anyone who knows the seed can subtract it. A regulariser in
    the loss, such as FedProx's, is clipped with the gradient of every image.

    With `noise=0` and a large `clip`, this is the method itself, up to rounding, on batches without repeated images.

    Args:
        algorithm: the method, or its name. Its loss must be a mean over the images of a batch.
        clip: maximum norm of an image's gradient over all trained weights, above 0.
        noise: standard deviation of the noise, as a multiple of `clip`, at least 0.

    Returns:
        The method, with `+private` after its name.

    Raises:
        ValueError: an argument is not allowed, or the method is compressed; by `fl.run`: the model has BatchNorm, which
            mixes the images of a batch, or dropout, the method uploads something else, such as prototypes or label
            counts, it takes more or larger steps or repeats images, or its loss writes into a tensor, as that of
            SCAFFOLD.

    Source:
        Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.iid(), clients=3)
        >>> method = fl.private("fedavg", clip=0.5, noise=1.2)
        >>> fl.run(method, federation, model="lenet5_plain", rounds=1, progress=False).config["hyper"]
        {'dp_clip': 0.5, 'dp_noise': 1.2}
    """
    method = resolve(algorithm)
    if "upload_share" in method.hyper:
        raise ValueError("private(compressed(...)) is not allowed; use compressed(private(...)).")
    clip = check_annotation("clip", clip, Positive)
    noise = check_annotation("noise", noise, NonNegative)

    def init(model, federation):
        if model.batchnorm:
            raise ValueError(f"model={model.name!r} is not allowed with private(); its BatchNorm mixes images.")
        if any(isinstance(layer, torch.nn.modules.dropout._DropoutNd) for layer in model.net.modules()):
            raise ValueError(f"model={model.name!r} is not allowed with private(); it has dropout layers.")
        return method.init(model, federation)

    def round(state, cohort):
        channel = Weights(cohort.channel, method.name, frozenset(cohort.model.trainable))
        size, epochs = cohort.local.batch_size, cohort.local.epochs
        left = {i: Left(len(own), size, epochs) for i, own in zip(cohort.ids, cohort.samples, strict=True)}
        trainer = noisy(counted(cohort.trainer, method.name, left), clip, noise)
        return method.round(state, replace(cohort, trainer=trainer, channel=channel))

    hyper = method.hyper | {"dp_clip": clip, "dp_noise": noise}
    made_of = (private, *method.made_of)
    return method._replace(name=f"{method.name}+private", init=init, round=round, hyper=hyper, made_of=made_of)


class Weights(Channel):
    """A channel for uploads of the trained weights `names` only; `inner` counts the bytes."""

    def __init__(self, inner: Channel, method: str, names: frozenset[str]):
        super().__init__(inner.statistics)
        self.inner, self.method, self.names = inner, method, names

    def down(self, tree: Tree, times: int = 1) -> Tree:
        """Send to the clients."""
        return self.inner.down(tree, times)

    def up(self, tree: Tree) -> Tree:
        """Receive from the clients; `ValueError` for anything but weights."""
        if others := sorted({"/".join(path[-1:]) for path in keys(tree)} - self.names):
            what = f"{others[0]!r}" if others[0] else "a tensor without a name"
            raise ValueError(f"{self.method} is not allowed in private(); it uploads {what}, which no noise protects.")
        return self.inner.up(tree)


def steps_of(n: int, batch_size: int, epochs: int) -> int:
    """Steps of a client with n images in a round."""
    return epochs * -(-n // batch_size)


def uses_of(n: int, batch_size: int, epochs: int) -> int:
    """Largest number of a client's steps in a round with the same image; images fill up the last batch of an epoch."""
    return epochs * (2 if n % batch_size and n > batch_size else 1)


class Left:
    """The steps that a client with n images may still take in a round, in all and with each image."""

    def __init__(self, n: int, size: int, epochs: int):
        self.size, self.steps, self.uses = size, steps_of(n, size, epochs), uses_of(n, size, epochs)
        self.used: Counter[int] = Counter()

    def exceeded(self, steps: torch.Tensor) -> bool:
        """Count steps [n_steps, batch]; True if they are too many, too large, or too many with the same image."""
        self.steps -= len(steps)
        self.used.update(image for step in steps.tolist() for image in set(step))
        longest = max(self.used.values(), default=0)
        return self.steps < 0 or longest > self.uses or (len(steps) > 0 and steps.shape[1] > self.size)


def counted(trainer: Trainer, method: str, left: dict[int, Left]) -> Trainer:
    """The trainer; `ValueError` beyond what a client has `left`, and for written tensors."""

    def train(phase: Phase) -> tuple[Tree, torch.Tensor]:
        for client, steps in zip(phase.clients, phase.batches, strict=True):
            if left[client].exceeded(steps):
                what = "more or larger steps than the local epochs of the run have, or repeats images"
                raise ValueError(f"{method} is not allowed in private(); it takes {what}.")
        if WRITTEN in phase.roles:
            raise ValueError(f"{method} is not allowed in private(); its loss writes into a tensor.")
        return trainer(phase)

    return train


def noisy(trainer: Trainer, clip: float, noise: float) -> Trainer:
    """The trainer with the loss `clipped` and its noise."""

    def train(phase: Phase) -> tuple[Tree, torch.Tensor]:
        leaves = [t[0] for t, role in zip(tree_leaves(phase.w), phase.roles, strict=True) if role == TRAINED]
        draws = []
        for row, (client, steps) in enumerate(zip(phase.clients, phase.batches, strict=True)):
            rng = generator(*phase.stream, "noise", client)
            arrays = [rng.standard_normal((len(steps), *t.shape)) for t in leaves]
            own = {f"noise{i}": torch.as_tensor(array, dtype=leaves[i].dtype) for i, array in enumerate(arrays)}
            draws.append(own | (phase.draws[row] if phase.draws else {}))
        return trainer(phase._replace(loss=clipped(phase.loss, phase.roles, clip, noise), draws=tuple(draws)))

    return train


@lru_cache  # the same function for the same loss: a GPU compiles it once
def clipped(loss: Loss, roles: tuple[str, ...], clip: float, noise: float) -> Loss:
    """The mean loss of ONE client with the gradient of Algorithm 1: clipped for each image, summed, with noise."""

    def private_loss(w, batch, *context):
        leaves, structure = tree_flatten(w)
        places = [i for i, role in enumerate(roles) if role == TRAINED]
        known = [t.detach() for t in leaves]

        def of_one(trained, x, y, index):
            whole = [trained[places.index(i)] if i in places else t for i, t in enumerate(known)]
            one = batch._replace(x=x[None], y=y[None], index=index[None])
            return loss(tree_unflatten(whole, structure), one, *context)

        each = torch.func.vmap(torch.func.grad_and_value(of_one), in_dims=(None, 0, 0, 0))
        gradients, losses = each([known[i] for i in places], batch.x, batch.y, batch.index)  # [batch, ...]
        norms = sum(g.flatten(1).square().sum(1) for g in gradients).sqrt()  # [batch]
        repeats = (batch.index[:, None] == batch.index).sum(1)  # [batch]
        factor = (clip / norms.clamp(min=clip)) / repeats
        value = losses.mean().detach()
        for n, (i, g) in enumerate(zip(places, gradients, strict=True)):
            total = torch.tensordot(factor, g, 1) + noise * clip * batch.draws[f"noise{n}"]
            value = value + ((leaves[i] - known[i]) * (total / len(batch.y)).detach()).sum()  # 0, with this gradient
        return value

    return private_loss


def epsilon(result: RunResult, federation: Federation, delta: float = 1e-5) -> pd.DataFrame:
    """Compute the differential privacy of each client's images after a run with `private`.

    Opacus's accountant (Renyi differential privacy of the subsampled Gaussian mechanism) composes all steps of a client
    in the rounds for which it was sampled. `epsilon` assumes that every step draws its images independently; the run
    shuffles the images of an epoch instead, as is common, and may reveal several times more (Chua et al., ICML 2024).
    `bound` holds for shuffled batches, too: it counts the steps that use an image, without any gain from sampling. Two
    data sets are neighbours if one image is replaced by a blank one without gradient; their sizes are no secret.

    Args:
        result: the run.
        federation: its federation.
        delta: probability with which the bound may fail, in (0, 1); usually below one over the number of images.

    Returns:
        One row per client: client, n_train, rounds (in which it took part), steps, epsilon, bound (both are 0 if it
        never took part, infinite without noise).

    Raises:
        ValueError: the run is not one of a `private` method on this federation, or delta is not allowed.
        ModuleNotFoundError: opacus is not installed.

    Source:
        Mironov et al., "Renyi Differential Privacy of the Sampled Gaussian Mechanism", 2019, as implemented in Opacus;
        Chua et al., "How Private are DP-SGD Implementations?", ICML 2024.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.iid(), clients=3)
        >>> run = fl.run(fl.private("fedavg"), federation, model="lenet5_plain", rounds=1, progress=False)
        >>> fl.epsilon(run, federation).columns.tolist()
        ['client', 'n_train', 'rounds', 'steps', 'epsilon', 'bound']
    """
    with Needs("privacy", "fl.epsilon"):
        from opacus.accountants import RDPAccountant

    check_kind("result", result, RunResult, "a RunResult, as fl.run returns it")
    check_kind("federation", federation, Federation, "a Federation, as fl.federate makes it")
    check_annotation("delta", delta, Annotated[float, above(0), below(1)])
    config: dict[str, Any] = dict(result.config)
    if config["federation"] != federation.fingerprint or "dp_noise" not in config["hyper"]:
        raise ValueError("epsilon needs a run of private(...) and the federation of this run.")
    taking_part = federation.n_clients - federation.unseen
    sampled = cohorts(taking_part, config["join_ratio"], config["rounds"], config["seed"])
    drawn = np.concatenate(sampled[: len(result.rounds)])  # fewer than planned after an early end
    noise, size, lines = config["hyper"]["dp_noise"], config["batch_size"], []
    for client, rounds in enumerate(np.bincount(drawn, minlength=taking_part).tolist()):
        n = len(federation.train[client])
        steps = rounds * steps_of(n, size, config["local_epochs"])
        spent = [0.0 if not steps else np.inf] * 2
        if steps and noise:
            uses = rounds * uses_of(n, size, config["local_epochs"])
            for i, composed in enumerate([(noise, min(1.0, size / n), steps), (noise, 1.0, uses)]):
                accountant = RDPAccountant()
                accountant.history = [composed]
                spent[i] = accountant.get_epsilon(delta)
        lines.append((client, n, rounds, steps, *spent))
    return pd.DataFrame(lines, columns=["client", "n_train", "rounds", "steps", "epsilon", "bound"])
