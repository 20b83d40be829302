"""FedAlt (Pillutla et al., ICML 2022, Algorithm 1): the personal part of the model first, then the shared one."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from fedlib.algorithm import Algorithm, algorithm, download, merged, tune_personal, upload
from fedlib.checks import Fraction
from fedlib.methods.fedavg import fedavg_round
from fedlib.models import Model
from fedlib.stack import Params, Shared, drop, own_copies, select
from fedlib.training import Cohort, cross_entropy, train

PARTS: dict[str, Callable[[Model], frozenset[str]]] = {  # entries of the personal part v
    "output": lambda model: model.classifier,
    "input": lambda model: _beside(model, next(iter(model.weights))),
}


def _beside(model: Model, name: str) -> frozenset[str]:
    """All entries of the layer that contains the entry `name`."""
    layer = name.rpartition(".")[0]
    return frozenset(other for other in model.weights if other.rpartition(".")[0] == layer)


class State(NamedTuple):
    """The two parts of the model. During the warm-up v is the same for all clients."""

    w: Params  # u, shared: [...]
    v: Shared | Params  # personal: [n_clients, ...]


def personalise(name: str, update: Callable[[Params, State, Cohort], Params], warm_up: float, part: str) -> Algorithm:
    """Make a method that is FedAvg for the share `warm_up` of the rounds and then trains a personal part."""
    # Every v_i starts as that part of the FedAvg model, also for a client that is sampled later or never. After the
    # warm-up `update(w, state, cohort)` trains the models w [k, ...]; fine-tuning changes v_i only.

    def split(w, names):
        return State(drop(w, names), Shared(select(w, names)))

    def init(model, federation):
        return split(model.weights, PARTS[part](model))

    def personal(state, federation):  # every client has its own v_i
        return state._replace(v=own_copies(state.v, federation.n_clients))

    def round(state, cohort):
        if cohort.round < math.floor(warm_up * cohort.rounds + 1e-9):
            return split(fedavg_round(state.w | state.v.tree, cohort), state.v.tree)
        state = personal(state, cohort.federation)
        return upload(state, cohort, update(download(state, cohort), state, cohort))  # [k, ...]

    def models(state):
        return Shared(state.w | state.v.tree) if isinstance(state.v, Shared) else merged(state)

    def tune(state, everyone):
        return tune_personal(personal(state, everyone.federation), everyone)

    return Algorithm(name, init, round, models, tune=tune)


@algorithm(label="PerFL (FedAlt)", colour="sky", marker="s", line="--", printed={"PerFL": "fedalt"})
def fedalt(warm_up: Fraction = 0.5, part: Literal["output", "input"] = "output") -> Algorithm:
    """A shared and a personal part of the model, trained in alternation.

    After a warm-up by FedAvg a client minimises cross-entropy twice: for the local epochs over its personal part v_i
    with the shared part u frozen, then for as many epochs over u with v_i frozen. The server averages u, each client
    weighted with its number of training samples; v_i stays with the client. BatchNorm belongs to u, and its running
    statistics follow the data in both phases.

    A client is evaluated with u and v_i; fine-tuning, if the run has any, changes v_i only. A client that never took
    part has the v of the FedAvg model.

    Args:
        warm_up: share of the rounds that are FedAvg, from 0 to 1; 0.5 is FedCS's reading A25. `warm_up=1` is FedAvg.
        part: the personal part: "output", the classifier, or "input", the first layer.

    Source:
        Pillutla et al., "Federated Learning with Partial Model Personalization", ICML 2022.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedalt(warm_up=0), federation, rounds=1, progress=False)
        >>> a, b = result.weights(client=0), result.weights(client=1)
        >>> [name for name in a if not a[name].equal(b[name])]
        ['classifier.weight', 'classifier.bias']
    """

    def update(w, state, cohort):
        w = train(cohort, cross_entropy, w, name="personal", trainable=state.v)  # u is frozen
        return train(cohort, cross_entropy, w, trainable=state.w)  # v_i is frozen; the batches of FedAvg

    return personalise("fedalt", update, warm_up, part)
