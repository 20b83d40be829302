"""A plan: a run that has been checked and can start."""

import math
from typing import Any, NamedTuple

import numpy as np

from fedlib.algorithm import Algorithm, Partial, resolve, tune_personal
from fedlib.checks import check_choice, check_kind
from fedlib.federation import Federation
from fedlib.fingerprint import fingerprint
from fedlib.models import MODELS, Model, build
from fedlib.runs.setting import Setting, setting
from fedlib.streams import generator
from fedlib.training.backends import BACKENDS
from fedlib.training.local_statistics import keeping_statistics


class Plan(NamedTuple):
    """`config` is all of the run, in words; it names the run's folder. `model` is on the host."""

    algorithm: Algorithm
    federation: Federation
    model: Model
    setting: Setting
    config: dict[str, Any]


def prepare(algorithm: str | Algorithm, federation: Federation, model: str = "lenet5", **arguments: Any) -> Plan:
    """Check the arguments of `run` and settle what is left to defaults. Raises `ValueError`."""
    algorithm = resolve(algorithm)
    check_kind("federation", federation, Federation, "a Federation, as fl.federate makes it")
    check_kind("model", model, str, "the name of a model")
    own = setting(**{"tune_epochs": algorithm.tune_epochs} | arguments)
    names = model.split("+")
    for name in names:
        check_choice("model", name, MODELS)
    if len(names) > 1 and not algorithm.mixed:
        raise ValueError(f"model={model!r} is not allowed; {algorithm.name} needs one architecture for all clients.")
    if len(names) > 1 and own.statistics == "local":
        raise ValueError(f"model={model!r} is not allowed with statistics='local'; it needs one for all clients.")
    if len(set(names)) < len(names):
        raise ValueError(f"model={model!r} is not allowed; it may name an architecture once.")
    shape, n_classes = federation.data.x.shape[1:], len(federation.data.classes)
    built = build(names[0], MODELS[names[0]], shape, n_classes, own.seed)
    weights = {name: t.to(own.torch_dtype) for name, t in built.weights.items()}
    built = built._replace(weights=weights, others={name: MODELS[name] for name in names[1:]})
    if own.tune_part is not None:
        algorithm = _tuning_personal(algorithm, built, federation)
    if own.statistics == "local":
        algorithm = keeping_statistics(algorithm)
    config = {
        "algorithm": algorithm.name,
        "hyper": dict(algorithm.hyper),
        "code": [fingerprint_of(code) for code in (*algorithm.made_of, *(MODELS[name] for name in names))],
        "library": _library(own.backend),
        "data": federation.data.name,
        "partition": str(federation.partition),
        "clients": federation.n_clients,
        "test_fraction": federation.test_fraction,
        "validation_fraction": federation.validation_fraction,
        "unseen": federation.unseen,
        "partition_seed": federation.seed,
        "federation": federation.fingerprint,
        "model": model,
        **own.described(),
    }
    if own.optimizer == "sgd":
        del config["optimizer"]  # it was the only one once: its runs keep their addresses
    if federation.public is not None:
        config["public"] = f"{len(federation.public)} images of {federation.public.name}"
    return Plan(algorithm, federation, built, own, config)


def portable(algorithm: Algorithm) -> Algorithm:
    """For other processes, which have only the library's source: in the place of other code stands its fingerprint."""
    own = [code if _is_of_library(code) else fingerprint_of(code) for code in algorithm.made_of]
    return algorithm._replace(made_of=tuple(own))


def fingerprint_of(code: Any) -> str:
    """The fingerprint of code, or the one that has been taken of it."""
    return code if isinstance(code, str) else fingerprint(code)


def _is_of_library(code: Any) -> bool:
    return getattr(code, "__module__", "").startswith("fedlib.")


def _library(backend: str) -> str:
    """The fingerprint of what all runs have in common: initial weights, images, rounds, local training, evaluation."""
    from fedlib.runs import rounds, session  # which import this module

    return fingerprint(build, session.Session, session.rules, rounds._rounds, BACKENDS[backend])


def _tuning_personal(algorithm: Algorithm, model: Model, federation: Federation) -> Algorithm:
    """The algorithm with `tune_personal` for its tuning; `ValueError` unless that can tune for it."""
    if algorithm.tune not in (None, tune_personal):
        raise ValueError(f"tune_part='personal' is not allowed; {algorithm.name} says itself what is tuned.")
    if not isinstance(algorithm.init(model, federation), Partial):
        raise ValueError(f"tune_part='personal' is not allowed; {algorithm.name} has no part that is personal.")
    return algorithm._replace(tune=tune_personal, made_of=(*algorithm.made_of, tune_personal))


def cohort_size(n_clients: int, join_ratio: float) -> int:
    """max(floor(join_ratio * n_clients), 1), whatever floating point makes of the product."""
    return max(math.floor(join_ratio * n_clients + 1e-9), 1)


def cohorts(n_clients: int, join_ratio: float, rounds: int, seed: int) -> list[np.ndarray]:
    """The clients of every round, drawn up front from their own stream: int64 [k] each, ascending."""
    k, rng = cohort_size(n_clients, join_ratio), generator(seed, "cohorts")
    return [np.sort(rng.choice(n_clients, k, replace=False)) for _ in range(rounds)]
