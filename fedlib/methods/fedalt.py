"""FedAlt (Pillutla et al., ICML 2022, Algorithm 1): the personal part of the model first, then the shared one."""

import math
from collections.abc import Callable
from typing import Annotated, Literal

from fedlib.algorithm import Algorithm, Partial, algorithm, download, merged, tune_personal, upload
from fedlib.checks import at_least, at_most
from fedlib.methods.fedavg import fedavg_round
from fedlib.models import Model
from fedlib.stack import Params, copies, drop, select
from fedlib.training.cohort import Cohort
from fedlib.training.losses import cross_entropy

PARTS: dict[str, Callable[[Model], frozenset[str]]] = {  # names of the personal part v
    "output": lambda model: model.classifier,
    "input": lambda model: _beside(model, next(iter(model.weights))),
}


def _beside(model: Model, name: str) -> frozenset[str]:
    """All entries of the layer that has the entry `name`."""
    layer = name.rpartition(".")[0]
    return frozenset(other for other in model.weights if other.rpartition(".")[0] == layer)


def personalise(name: str, update: Callable[[Params, Partial, Cohort], Params], warm_up: float, part: str) -> Algorithm:
    """FedAvg for a fraction `warm_up` of the rounds, then the local `update` of a model with a personal part v_i.

    Every v_i starts as that part of the FedAvg model, also that of a client which is sampled later or never.
    """

    def init(model, federation):
        return Partial(model.weights, {})

    def parted(state, cohort):
        if state.v:
            return state
        names = PARTS[part](cohort.model)
        return Partial(drop(state.w, names), copies(select(state.w, names), cohort.federation.n_clients))

    def round(state, cohort):
        if cohort.round < math.floor(warm_up * cohort.rounds + 1e-9):
            return state._replace(w=fedavg_round(state.w, cohort))
        state = parted(state, cohort)
        return upload(state, cohort, update(download(state, cohort), state, cohort))  # [k, ...]

    def tune(state, everyone):
        return tune_personal(parted(state, everyone), everyone)

    return Algorithm(name, init, round, models=merged, tune=tune)


@algorithm
def fedalt(
    warm_up: Annotated[float, at_least(0), at_most(1)] = 0.5, part: Literal["output", "input"] = "output"
) -> Algorithm:
    """After a warm-up by FedAvg, the local epochs on v_i with u fixed, then as many on u with v_i fixed; u is averaged.

    v_i is the classifier (`part="output"`) or the first layer ("input"); BatchNorm belongs to u, its statistics follow
    the data in both phases. `warm_up=1` is FedAvg. Evaluated: u + v_i, tuned in v_i only; a client that never took
    part has the v of the FedAvg model.
    """

    def update(w, state, cohort):
        w = cohort.train(cross_entropy, w, name="personal", trainable=state.v)
        return cohort.train(cross_entropy, w, trainable=state.w)  # the batches of FedAvg

    return personalise("fedalt", update, warm_up, part)
