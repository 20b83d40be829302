"""FedGen (Zhu et al., ICML 2021, Algorithm 1; baseline of pFedSim, section 5): features from a shared generator."""

import math
from typing import Annotated, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, one_for_all
from fedlib.checks import Count, NonNegative, Positive, Share, at_least
from fedlib.methods.fedkemf import divergence
from fedlib.stack import Params, client_mean, drop, tree_map
from fedlib.streams import generator
from fedlib.training import cross_entropy, train
from fedlib.training.adam import adam
from fedlib.training.batches import to_device

STATISTICS = ("norm.running_mean", "norm.running_var")  # of the generator's BatchNorm


class State(NamedTuple):
    """The global model, and the server's generator with the moments of its Adam."""

    w: Params  # [...]
    generator: Params  # [...]
    first: Params
    second: Params


def new_generator(rng: np.random.Generator, n_classes: int, noise: int, hidden: int, p: int) -> Params:
    """Initial weights of the network [one-hot y, noise] - Linear - BatchNorm - ReLU - Linear, float64."""
    # PyTorch's distribution; 4,212 parameters and 64 statistics for 10 classes, noise = hidden = 32 and p = 84
    a, b = 1 / math.sqrt(n_classes + noise), 1 / math.sqrt(hidden)
    arrays = {
        "hidden.weight": rng.uniform(-a, a, (hidden, n_classes + noise)),
        "hidden.bias": rng.uniform(-a, a, hidden),
        "norm.weight": np.ones(hidden),
        "norm.bias": np.zeros(hidden),
        "norm.running_mean": np.zeros(hidden),
        "norm.running_var": np.ones(hidden),
        "out.weight": rng.uniform(-b, b, (p, hidden)),
        "out.bias": rng.uniform(-b, b, p),
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def generate(g: Params, y: Tensor, noise: Tensor, training: bool = False) -> Tensor:
    """Features [batch, p] for labels y [batch] and noise [batch, noise]."""
    # In training BatchNorm normalises by the batch and updates its running statistics in `g`.
    n_classes = g["hidden.weight"].shape[1] - noise.shape[1]
    one_hot = (y[:, None] == torch.arange(n_classes, device=y.device)).to(noise.dtype)
    x = F.linear(torch.cat([one_hot, noise], 1), g["hidden.weight"], g["hidden.bias"])
    x = F.batch_norm(x, *(g[name] for name in STATISTICS), g["norm.weight"], g["norm.bias"], training)
    return F.linear(F.relu(x), g["out.weight"], g["out.bias"])


def generator_loss(g: Params, phi: tuple[Tensor, Tensor], share: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """Mean over the batch of sum_i a_iy CE(phi_i(G(y, noise)), y), for the classifiers phi_i of the clients."""
    # shares a_iy [k, n_classes], labels y [batch], noise [batch, noise]
    weight, bias = phi  # [k, n_classes, p], [k, n_classes]
    logits = torch.einsum("bp,kcp->kbc", generate(g, y, noise, training=True), weight) + bias[:, None]
    errors = F.cross_entropy(logits.flatten(0, 1), y.repeat(len(weight)), reduction="none")
    return (share[:, y] * errors.view(-1, len(y))).sum(0).mean()


@algorithm(label="FedGen", colour="sky", marker="^")
def fedgen(
    alpha: NonNegative = 10.0,
    beta: NonNegative = 10.0,
    decay: Share = 0.98,
    labels: Annotated[int, at_least(2)] = 32,
    noise: Count = 32,
    hidden: Count = 32,
    generator_steps: Count = 5,
    generator_lr: Positive = 3e-4,
) -> Algorithm:
    """FedAvg with a generator of features, distilled from the classifiers of all clients.

    A client minimises CE(w(x), y) + alpha CE(phi(G(y', z')), y') + beta KL(softmax phi(G(y, z)) || softmax w(x)). Here
    w(x) are the model's logits, phi is its classifier, and the generator G maps a label and noise to features. The y'
    are `labels` labels drawn uniformly from the client's own classes, as in pFedSim's code (in FedGen's paper from all
    classes); z and z' are Gaussian noise, and the first argument of KL gets no gradient. In the first round there is no
    generator yet, and the loss is CE(w(x), y).

    The server averages the models as in FedAvg. It then takes `generator_steps` steps of Adam on `generator_loss`,
    each on `labels` labels drawn uniformly from the classes of the clients in the round. Their shares a_iy need the
    clients' label counts, which are uploaded. Adam's moments last for the whole run. There is no diversity term
    (pFedSim's reading A18).

    BatchNorm of the model is averaged. BatchNorm of the generator uses batch statistics on the server and, on the
    clients, running statistics, which are sent with it. Every client is evaluated with the global model. `alpha=beta=0`
    is FedAvg.

    Args:
        alpha: weight of the generated labels, at least 0; pFedSim has 10.
        beta: weight of the divergence, at least 0; pFedSim has 10.
        decay: alpha, beta and `generator_lr` are multiplied by decay^t in round t = 0, 1, ...; in (0, 1].
        labels: labels in a generated batch, at least 2 (for BatchNorm).
        noise: size of the noise vector, at least 1.
        hidden: width of the generator's hidden layer, at least 1.
        generator_steps: steps of the generator in a round, at least 1.
        generator_lr: step size of the generator's Adam, above 0.

    Source:
        Zhu et al., "Data-Free Knowledge Distillation for Heterogeneous Federated Learning", ICML 2021, Algorithm 1;
        sizes and weights as in pFedSim (section 5.1, appendix A.5).

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedgen(), federation, rounds=2, progress=False)
        >>> first, second = result.rounds["bytes_down"]
        >>> n = sum(t.numel() for t in result.state.generator.values())  # 4,212 parameters and 64 statistics
        >>> n, second - first == 4 * 4 * n  # it is sent to 4 clients, 4 bytes each
        (4276, True)
    """

    def loss(w, batch, g, fading):  # ONE client
        y, logits = batch.draws["labels"], batch.model(w, batch.x)
        features = generate(g, torch.cat([y, batch.y]), batch.draws["noise"])
        guess, target = F.linear(features, *batch.model.head(w)).split([len(y), len(batch.y)])
        distilled = alpha * F.cross_entropy(guess, y) + beta * divergence(target, logits)
        return F.cross_entropy(logits, batch.y) + fading * distilled

    def draws_for(cohort):  # labels y' of each step, and noise for them and for the batch
        def draws(rng, client, steps):
            [classes] = cohort.federation.train_counts[client].nonzero()
            z = rng.standard_normal((steps, labels + cohort.local.batch_size, noise))
            return {"labels": rng.choice(classes, (steps, labels)), "noise": z}

        return draws

    def batches(cohort, phi):  # for each step of the generator: phi, shares, labels, noise
        rng, counts = generator(*cohort.server_stream, "generator"), cohort.receive(cohort.class_counts.to(phi[0]))
        share = counts / counts.sum(0).clamp(min=1)
        [classes] = cohort.federation.train_counts[cohort.ids].sum(0).nonzero()
        y, z = rng.choice(classes, (generator_steps, labels)), rng.standard_normal((generator_steps, labels, noise))
        y, z = (to_device(torch.from_numpy(drawn), share.device) for drawn in (y, z))
        return [(phi, share, *drawn) for drawn in zip(y, z.to(share), strict=True)]

    def init(model, federation):
        rng, p = generator(model.seed, "fedgen", "generator"), model.head(model.weights)[0].shape[1]
        g = tree_map(lambda t: t.to(model.zeros()), new_generator(rng, model.n_classes, noise, hidden, p))
        zero = tree_map(torch.zeros_like, drop(g, STATISTICS))
        return State(model.weights, g, zero, tree_map(torch.clone, zero))

    def round(state, cohort):
        t, start = cohort.round, cohort.broadcast(state.w)  # [k, ...]
        if t == 0:  # the generator is untrained
            w_i = train(cohort, cross_entropy, start)
        else:
            fading = torch.full_like(cohort.n_samples, decay**t, dtype=cohort.images.scale.dtype)
            g = cohort.broadcast(state.generator)
            w_i = train(cohort, loss, start, g, fading, draws=draws_for(cohort))  # line 9
        w_i = cohort.receive(w_i)
        data, lr = batches(cohort, cohort.model.head(w_i)), generator_lr * decay**t
        g = adam(generator_loss, state.generator, *state[2:], generator_steps * t, data, lr)  # line 14
        return state._replace(w=client_mean(w_i, cohort.n_samples), generator=g)  # line 13

    return Algorithm("fedgen", init, round, models=one_for_all)
