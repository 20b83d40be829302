"""Preparation of a run: from the arguments of `run` to a checked plan, and the fingerprint of the code."""

from typing import Any, TypeVar

import torch

from fedlib.algorithm import Algorithm, Partial, resolve, tune_personal
from fedlib.checks import check_kind
from fedlib.engine.backends import BACKENDS
from fedlib.federation import Federation
from fedlib.fingerprint import fingerprint
from fedlib.models import Architecture, Model, Models, architectures, build
from fedlib.models.architecture import check_builder
from fedlib.runs.determinism import deterministic, untouched
from fedlib.runs.history import History
from fedlib.runs.local_statistics import keeping_statistics
from fedlib.runs.plan import Plan
from fedlib.runs.rounds import round_loop
from fedlib.runs.session import Session
from fedlib.runs.setting import Setting, setting
from fedlib.runs.unreliable import unreliable

EARLIER = {"optimizer": "sgd", "dropout": 0, "stragglers": 0}  # values of runs that are older than these settings
Made = TypeVar("Made", Algorithm, Architecture)


@untouched()
def prepare(algorithm: str | Algorithm, federation: Federation, model: Models = "lenet5", **arguments: Any) -> Plan:
    """Check the arguments of `run` and fill in the defaults; `ValueError` for a value that is not allowed."""
    algorithm = resolve(algorithm)
    check_kind("federation", federation, Federation, "a Federation, as fl.federate makes it")
    if arguments.get("tune_epochs") is None:
        arguments["tune_epochs"] = algorithm.tune_epochs
    checked, networks = setting(**arguments), architectures(model)
    names = [network.name for network in networks]
    model = "+".join(names)
    if len(names) > 1 and not algorithm.mixed:
        raise ValueError(f"model={model!r} is not allowed; {algorithm.name} needs one architecture for all clients.")
    if len(names) > 1 and checked.statistics == "local":
        raise ValueError(f"model={model!r} is not allowed with statistics='local'; use one architecture.")
    if len(set(names)) < len(names):
        raise ValueError(f"model={model!r} is not allowed; an architecture may be named only once.")
    shape, n_classes = federation.data.x.shape[1:], len(federation.data.classes)
    for network in networks:
        if not _is_of_library(network.build):
            check_builder(network.name, network.build, shape, n_classes, checked.torch_dtype)
    built = _built(networks, shape, n_classes, checked)
    if built.batchnorm and min(checked.batch_size, *map(len, federation.train)) == 1:
        _check_single_images(built)
    algorithm = _as_set(algorithm, built, federation, checked)
    config = {
        "algorithm": algorithm.name,
        "hyper": dict(algorithm.hyper),
        "code": [fingerprint_of(code) for made in (algorithm, *networks) for code in made.made_of],
        "library": library(checked.backend),
        "data": federation.data.name,
        "partition": str(federation.partition),
        "clients": federation.n_clients,
        "test_fraction": federation.test_fraction,
        "validation_fraction": federation.validation_fraction,
        "unseen": federation.unseen,
        "partition_seed": federation.seed,
        "federation": federation.fingerprint,
        "model": model,
        **checked.described(),
    }
    for name, value in EARLIER.items():
        if config[name] == value:
            del config[name]  # the configuration of an older run lacks this entry
    if federation.public is not None:
        config["public"] = f"{len(federation.public)} images of {federation.public.name}"
    return Plan(algorithm, federation, built, checked, config)


def portable(made: Made) -> Made:
    """Replace code from outside the library by its fingerprint, because another process may lack its source."""
    return made._replace(made_of=tuple(code if _is_of_library(code) else fingerprint_of(code) for code in made.made_of))


def fingerprint_of(code: Any) -> str:
    """Fingerprint of `code`, which may be a fingerprint already."""
    return code if isinstance(code, str) else fingerprint(code)


def _is_of_library(code: Any) -> bool:
    return getattr(getattr(code, "func", code), "__module__", "").startswith("fedlib.")  # func: of a partial


def library(backend: str) -> str:
    """Fingerprint of the code that every run uses: initial weights, images, rounds, training and evaluation."""
    return fingerprint(_built, _as_set, Session, deterministic, round_loop, History, BACKENDS[backend])


def _built(networks: list[Architecture], shape: tuple[int, int, int], n_classes: int, checked: Setting) -> Model:
    """The first architecture with its initial weights, and the builders of the others."""
    first, *others = networks
    built = build(first.name, first.build, shape, n_classes, checked.seed)
    weights = {name: t.to(checked.torch_dtype) for name, t in built.weights.items()}
    return built._replace(weights=weights, others={other.name: other.build for other in others})


def _check_single_images(model: Model) -> None:
    """Raise `ValueError` if the model cannot be trained on a batch of one image."""
    model.net.train()
    try:
        with torch.random.fork_rng([]), torch.no_grad():
            model({name: t.clone() for name, t in model.weights.items()}, model.zeros(1, *model.shape))
    except ValueError as error:
        raise ValueError(
            f"model={model.name!r} is not allowed where a client has a batch of one image; its BatchNorm needs at "
            f"least two: use a larger batch_size, fewer clients, or a model without BatchNorm."
        ) from error


def _as_set(algorithm: Algorithm, model: Model, federation: Federation, checked: Setting) -> Algorithm:
    """The algorithm with the changes that the setting demands."""
    if checked.tune_part is not None:
        algorithm = _tuning_personal(algorithm, model, federation)
    if checked.statistics == "local":
        algorithm = keeping_statistics(algorithm)
    if checked.dropout or checked.stragglers:
        algorithm = unreliable(algorithm, checked.dropout, checked.stragglers)
    return algorithm


def _tuning_personal(algorithm: Algorithm, model: Model, federation: Federation) -> Algorithm:
    """The algorithm with `tune_personal` as its tuning; `ValueError` if this is not possible."""
    if algorithm.tune not in (None, tune_personal):
        raise ValueError(f"tune_part='personal' is not allowed; {algorithm.name} defines its own tuning.")
    if not isinstance(algorithm.init(model, federation), Partial):
        raise ValueError(f"tune_part='personal' is not allowed; {algorithm.name} has no personal part.")
    return algorithm._replace(tune=tune_personal, made_of=(*algorithm.made_of, tune_personal))
