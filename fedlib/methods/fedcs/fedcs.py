"""FedCS (Yan and Long, ICME 2024, Algorithms 1 and 2): one model whose features identify the client."""

from typing import Literal, NamedTuple

import torch

from fedlib.algorithm import Algorithm, State, algorithm, resolve, tuned
from fedlib.checks import Count, Share
from fedlib.methods.fedcs.alignment import orthonormal, ra_pass
from fedlib.methods.fedcs.ra_module import Alignment, has_place, linear_layer, plugged_in
from fedlib.stack import Params, PerArchitecture, Shared, client_mean, row, select, stack
from fedlib.streams import generator
from fedlib.training import logits
from fedlib.training.batches import to_device
from fedlib.training.local import batches

LAYERS = ("fc1", "fc2", "fc3")


class Aligning(NamedTuple):
    """State of the base method, and the map."""

    base: State  # of the base method
    ra: Params  # P, Phi, S [d, d], z_g [d]


@algorithm(
    label="FedCS",
    colour="red",
    marker="d",
    variants={"fedcs-fc1": ("FedCS-FC1", "-"), "fedcs-fc2": ("FedCS-FC2", "--"), "fedcs-fc3": ("FedCS-FC3", ":")},
)
def fedcs(
    at: Literal["fc1", "fc2", "fc3"] = "fc1",
    base: str | Algorithm = "fedavg",
    every: Count = 5,
    steps: Literal["normalised", "paper", "whitening"] = "normalised",
    beta: Share = 0.1,
    side: Literal["input", "output"] = "input",
    centred: bool = True,
    shifted: bool = False,
    rank: Count | None = None,
) -> Algorithm:
    """A base method with a linear map c = P'z in its models, so that features identify the client.

    Clients train as in the method `base`, with the fixed map inserted at one linear layer. P is not trained by a loss;
    it moves towards linear discriminant analysis (LDA) with the client as the class: features of one client close
    together, those of different clients far apart. In rounds 0, `every`, 2 `every`, ... a client passes once over its
    batches with its newly trained weights and takes a `whitening_step` for S and a `rotation_step` for Phi.

    The server averages S and Phi, each client weighted with its number n_i of training samples, makes Phi orthonormal,
    moves the global mean z_g by `beta` towards the clients' mean and sets P = S Phi. S tends to W^(-1/2), where W is
    the covariance within clients, but lags behind while the features change: in a run S^2 is not the inverse of W, and
    P is not the solution of LDA.

    BatchNorm is treated as in `base`. Every client, also an unseen one, is evaluated with its model of `base`, into
    which the common P is folded.

    Args:
        at: the linear layer with the map, "fc1", "fc2" or "fc3".
        base: the method that trains the models, or its name; the paper has FedAvg.
        every: rounds from one update of P to the next, at least 1; the paper has 5.
        steps: step sizes of S and Phi. "normalised": safe ones (`whitening_rate`, `rotation_rate`); "paper": the
            printed 0.001 without safeguards; "whitening": the safe one for S and 0 for Phi, a control that does not use
            the clients' means.
        beta: step of z_g towards the clients' mean in an update, in (0, 1].
        side: whether the map is at the "input" or the "output" of the layer.
        centred: False leaves z_g out of u = S (z_l - z_g) (12).
        shifted: True inserts c = P'(z - z_g).
        rank: number of columns of P, at least 1; further columns are 0. None: all columns.

    Raises:
        ValueError: the clients of `base` do not train the run's model, or the model has no such layer for the map.

    Source:
        Yan and Long, "Client-supervised Federated Learning: Towards One-model-for-all Personalization", ICME 2024,
        Algorithms 1 and 2.

    Example:
        >>> data = fl.load("digits", copies=1)
        >>> federation = fl.federate(data, fl.dirichlet(alpha=0.5), clients=4, test_fraction=0.8, unseen=1)
        >>> result = fl.run(fl.fedcs(at="fc3"), federation, rounds=1, progress=False)
        >>> seen, unseen = result.weights(client=0), result.weights(client=3)
        >>> result.state.ra["P"].shape, all(seen[name].equal(unseen[name]) for name in seen)
        (torch.Size([84, 84]), True)
    """
    method, number = resolve(base), LAYERS.index(at) + 1
    if method.architectures is not None:
        raise ValueError(f"base={method.name!r} is not allowed; its clients do not train the run's model.")

    def leading(P):  # [d, d], columns beyond the rank set to 0
        return P if rank is None else P * (torch.arange(P.shape[1], device=P.device) < rank)

    def map_of(ra, w, stacked=False):
        return Alignment(linear_layer(w, number, stacked), side, ra["P"], ra["z_g"] if shifted else None)

    def message(ra, t):  # download in round t, for training and alignment, or for training only
        if t % every:
            return select(ra, ["P", "z_g"] if shifted else ["P"])
        first = ["Phi", "S"] if steps == "paper" else ["Phi"]  # a safe S begins with a client's first batch
        return select(ra, ["Phi", "S", "z_g"] if t else first)

    def init(model, federation):
        layer = linear_layer(model.weights, number)
        if not has_place(model, layer):
            raise ValueError(
                f"at={at!r} is not allowed; the layer {layer!r} of model={model.name!r} must be a linear layer that "
                f"has one input vector per image and untied weights."
            )
        if shifted and f"{layer}.bias" not in model.weights:
            raise ValueError(f"shifted=True is not allowed; the layer {layer!r} of model={model.name!r} has no bias.")
        W = model.weights[f"{layer}.weight"]
        d = W.shape[1 if side == "input" else 0]
        drawn = generator(model.seed, "fedcs", "rotation").standard_normal((d, d))
        Phi = orthonormal(torch.from_numpy(drawn).to(W))  # the identity would favour units that never fire
        ra = {"P": leading(Phi), "Phi": Phi, "S": torch.eye(d).to(W), "z_g": W.new_zeros(d)}
        return Aligning(method.init(model, federation), ra)

    def pass_of(cohort, alignment, w, index, sent):  # ONE client, with its newly trained weights
        samples = to_device(index.flatten(), cohort.clients.device)
        z = logits(cohort.model, w, cohort.images, samples, lambda w, x: alignment.latents(cohort.model, w, x))
        return ra_pass(z.unflatten(0, index.shape), sent, steps, centred)

    def align(cohort, alignment, w, ra):  # w [k, ...]
        t, index = cohort.round, batches(cohort, [0])
        passed = [pass_of(cohort, alignment, row(w, i), index[i], message(ra, t)) for i in range(cohort.size)]
        S, Phi, z = client_mean(cohort.receive(stack(passed)), cohort.n_samples).values()
        Phi, z_g = orthonormal(Phi), ra["z_g"] + beta * (z - ra["z_g"]) if t else z
        return {"P": leading(S @ Phi), "Phi": Phi, "S": S, "z_g": z_g}

    def round(state, cohort):
        alignment = map_of(state.ra, cohort.model.weights)
        cohort.broadcast(message(state.ra, cohort.round))
        aligned, trained = plugged_in(cohort, alignment)
        base = method.round(state.base, aligned)
        return Aligning(base, state.ra if cohort.round % every else align(cohort, alignment, trained, state.ra))

    def folded(ra, models):
        if isinstance(models, Shared):
            return Shared(map_of(ra, models.tree).fold(models.tree))
        v = models.stacks[0] if isinstance(models, PerArchitecture) else models
        return map_of(ra, v, stacked=True).fold(v)

    def models(state):
        return folded(state.ra, method.models(state.base))

    def tune(state, everyone):
        aligned, _ = plugged_in(everyone, map_of(state.ra, everyone.model.weights))
        return folded(state.ra, tuned(method, state.base, aligned))

    trace = method.trace and (lambda state: method.trace(state.base))
    return Algorithm("fedcs", init, round, models, method.tune_epochs, tune, trace, made_of=method.made_of)
