"""FedCS (Yan and Long, ICME 2024, Algorithms 1 and 2): one model whose features tell which client they come from."""

from typing import Annotated, Any, Literal, NamedTuple

import torch

from fedlib.algorithm import Algorithm, algorithm, resolve, tuned
from fedlib.checks import above, at_least, at_most
from fedlib.methods.fedcs.aligned import Alignment, linear_layer, plugged_in
from fedlib.methods.fedcs.alignment import orthonormal, ra_pass
from fedlib.stack import Params, PerArchitecture, Shared, client_mean
from fedlib.streams import generator
from fedlib.training.batches import to_device
from fedlib.training.evaluate import logits

LAYERS = ("fc1", "fc2", "fc3")


class State(NamedTuple):
    base: Any  # of the method that is aligned
    ra: Params  # P, Phi [d, d], and after the first alignment S [d, d], z_g [d]


@algorithm
def fedcs(
    at: Literal["fc1", "fc2", "fc3"] = "fc1",
    base: str | Algorithm = "fedavg",
    every: Annotated[int, at_least(1)] = 5,
    steps: Literal["normalised", "paper", "whitening"] = "normalised",
    beta: Annotated[float, above(0), at_most(1)] = 0.1,
    side: Literal["input", "output"] = "input",
    centred: bool = True,
    shifted: bool = False,
    rank: Annotated[int, at_least(1)] | None = None,
) -> Algorithm:
    """The method `base` with a map c = P'z at the linear layer `at` (its `side`); P heads for LDA, it is not trained.

    Local training is that of `base`, P fixed. In rounds 0, `every`, 2 `every`, ... a client then goes once over its
    batches with its freshly trained weights and takes the steps C6 and C7; the server averages S and Phi with weights
    n_i, makes Phi orthonormal, moves z_g by `beta` and sets P = S Phi (C11). S is on its way to W^(-1/2), W being the
    covariance within clients, but lags behind while the features move: in a run S^2 is not the inverse of W, nor P the
    solution of LDA. `steps`: the safe rates C9 ("normalised"), the printed 0.001 without safeguards ("paper", C10), or
    C9 with Phi left as it was drawn ("whitening", a control that does without the client means). Other readings:
    `centred=False` leaves z_g out of C7, `shifted=True` has c = P'(z - z_g), `rank` sets the columns of P behind the
    first so many to 0. Evaluated, for every client, seen or not: the models of `base` and the one P, folded into the
    layer. Raises `ValueError` for a base whose clients do not train the run's model.
    """
    method, number = resolve(base), LAYERS.index(at) + 1
    if method.groups is not None:
        raise ValueError(f"base={method.name!r} is not allowed; its clients do not train the run's model.")

    def leading(P):  # [d, d], columns beyond the rank set to 0
        return P if rank is None else P * (torch.arange(P.shape[1], device=P.device) < rank)

    def placed(ra, w, stacked=False):
        return Alignment(linear_layer(w, number, stacked), side, ra["P"], ra.get("z_g") if shifted else None)

    def init(model, federation):
        W = model.weights[f"{linear_layer(model.weights, number)}.weight"]
        d = W.shape[1 if side == "input" else 0]
        drawn = generator(model.seed, "fedcs", "rotation").standard_normal((d, d))
        Phi = orthonormal(torch.from_numpy(drawn).to(W))  # not the identity: units that never fire would stay ahead
        S = {"S": torch.eye(d).to(W)} if steps == "paper" else {}
        return State(method.init(model, federation), {"P": leading(Phi), "Phi": Phi} | S)

    def align(w, place, cohort, ra):  # the clients' freshly trained weights w [k, ...]
        rows = []
        for k, index in enumerate(cohort.batches([0])):
            own, samples = {name: t[k] for name, t in w.items()}, to_device(index.flatten(), cohort.clients.device)
            z = logits(cohort.model, own, cohort.images, samples, lambda w, x: place.latents(cohort.model, w, x))
            rows.append(ra_pass(z.unflatten(0, index.shape), ra, steps, centred))
        sent = cohort.receive({name: torch.stack([row[name] for row in rows]) for name in rows[0]})
        mean = client_mean(sent, cohort.n_samples)  # C11
        S, Phi, z = mean["S"], orthonormal(mean["Phi"]), mean["z"]
        z_g = ra["z_g"] + beta * (z - ra["z_g"]) if "z_g" in ra else z
        return {"P": leading(S @ Phi), "Phi": Phi, "S": S, "z_g": z_g}

    def round(state, cohort):
        ra, aligning = state.ra, cohort.round % every == 0
        cohort.broadcast(
            {name: t for name, t in ra.items() if (name != "P") == aligning or (name == "z_g" and shifted)}
        )
        place = placed(ra, cohort.model.weights)
        theirs, trained = plugged_in(cohort, place)
        base_state = method.round(state.base, theirs)
        return State(base_state, align(trained, place, cohort, ra) if aligning else ra)

    def folded(ra, models):
        if isinstance(models, Shared):
            return Shared(placed(ra, models.tree).fold(models.tree))
        v = models.stacks[0] if isinstance(models, PerArchitecture) else models
        return placed(ra, v, stacked=True).fold(v)

    def models(state):
        return folded(state.ra, method.models(state.base))

    def tune(state, everyone):
        aligned, _ = plugged_in(everyone, placed(state.ra, everyone.model.weights))
        return folded(state.ra, tuned(method, state.base, aligned))

    trace = method.trace and (lambda state: method.trace(state.base))
    return Algorithm("fedcs", init, round, models, method.tune_epochs, tune, trace, made_of=method.made_of)
