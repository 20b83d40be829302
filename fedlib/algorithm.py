"""What an algorithm is: a frozen value with explicit state, made by a function of its hyper-parameters."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

from fedlib.checks import check_annotation, check_choice
from fedlib.federation import Federation
from fedlib.fingerprint import Registry
from fedlib.models import Group, Model
from fedlib.models.mixture import deal, initial
from fedlib.stack import (
    Params,
    PerArchitecture,
    Shared,
    Tree,
    client_mean,
    copies,
    drop,
    for_each,
    put,
    repeat,
    select,
    take,
)
from fedlib.training.cohort import Cohort
from fedlib.training.losses import cross_entropy

State = Any  # a NamedTuple of tensors and Params


class Algorithm(NamedTuple):
    """A federated learning method.

    init(model, federation) -> State   once, before the first round
    round(state, cohort) -> State      one communication round; may reuse the buffers of `state`
    models(state) -> stack             the models that are evaluated: [n_clients, ...]; `Shared`, one for everybody;
                                       or `PerArchitecture`
    tune_epochs                        a method that is evaluated after local fine-tuning says for how long
    tune(state, everyone) -> Params    its own way to tune all clients, [n_clients, ...], `local_epochs` of the cohort
                                       `everyone` long (default: SGD on all of `models`, see `tuned`; for only what is
                                       personal there is `tune_personal`); must not change the state
    trace(state) -> Params             what is written down at every evaluation (before tuning), by name
    groups(model, federation) -> [Group]    who has which architecture, where that is not as the run deals them out
                                       (`mixture.deal`). With several of them `models` has the entries of all, with a
                                       row for every client or for every client that has it; a client is evaluated,
                                       and by default tuned, with those of its own
    mixed                              clients of a run may have different architectures
    """

    name: str
    init: Callable[[Model, Federation], State]
    round: Callable[[State, Cohort], State]
    models: Callable[[State], Tree | Shared | PerArchitecture]
    tune_epochs: int = 0
    tune: Callable[[State, Cohort], Params] | None = None
    trace: Callable[[State], Params] | None = None
    groups: Callable[[Model, Federation], Sequence[Group]] | None = None
    mixed: bool = False
    hyper: Mapping[str, Any] = {}  # filled in by @algorithm, part of a run's address
    made_of: tuple[Any, ...] = ()  # code that is part of the address with all it reaches, or its fingerprint; likewise

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in self.hyper.items())})"


ALGORITHMS: dict[str, Callable[..., Algorithm]] = Registry()


def algorithm(factory: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """Register a function of hyper-parameters that returns an `Algorithm`.

    The annotations of its parameters are their ranges (`checks.check_annotation`); a value out of range is refused.

    The bound hyper-parameters and the fingerprint of the function's code, with all helpers that it reaches, become part
    of the run's address, so that an edited method is never answered with an old result. What is taken from a registry
    (another method, a model by its name) is passed on in `made_of`.
    """
    signature, hints = inspect.signature(factory), get_type_hints(factory, include_extras=True)

    @functools.wraps(factory)
    def make(*args, **kwargs) -> Algorithm:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            check_annotation(name, value, hints.get(name))
        made = factory(*args, **kwargs)
        hyper = {name: str(value) if isinstance(value, Algorithm) else value for name, value in bound.arguments.items()}
        return made._replace(hyper=hyper, made_of=(make, *made.made_of))

    ALGORITHMS[factory.__name__] = make
    return make


def resolve(method: str | Algorithm) -> Algorithm:
    """An algorithm from its name (with the paper's hyper-parameters) or as it is."""
    if isinstance(method, Algorithm):
        if not method.made_of:
            raise ValueError(
                f"algorithm={method.name!r} cannot be run; put @fl.algorithm on the function that makes it, so that "
                f"its hyper-parameters become part of the run's address."
            )
        return method
    check_choice("algorithm", method, ALGORITHMS)
    return ALGORITHMS[method]()


def groups_of(algorithm: Algorithm, model: Model, federation: Federation) -> Sequence[Group]:
    """Who has which architecture: as the run deals them out, unless the algorithm says otherwise."""
    if algorithm.groups is None:
        return deal(model, federation.n_clients)
    return algorithm.groups(model, federation)


def tuned(algorithm: Algorithm, state: State, everyone: Cohort) -> Params:
    """Copies of all clients' models [n_clients, ...] after local fine-tuning; nobody keeps them."""
    if algorithm.tune is not None:
        return algorithm.tune(state, everyone)
    models, parts = algorithm.models(state), everyone.parts()
    if not isinstance(models, PerArchitecture):
        [part] = parts
        return part.train(cross_entropy, for_each(models, everyone.size))
    return PerArchitecture(tuple(p.train(cross_entropy, v) for p, v in zip(parts, models.stacks, strict=True)))


def need_public(name: str, federation: Federation) -> None:
    """`ValueError` for a method that needs public images and a federation without any."""
    if federation.public is None:
        raise ValueError(f"{name} needs public images; give some to federate(..., public=0.1) or with_public(...).")


class Global(NamedTuple):
    """State of a method with one model for everybody."""

    w: Params  # [...]


def init_global(model: Model, federation: Federation) -> Global:
    """Everybody starts from the same initial weights."""
    return Global(model.weights)


def one_for_all(state: Global) -> Shared:
    """The global model, for everybody."""
    return Shared(state.w)


class Personal(NamedTuple):
    """State of a method whose clients have models of their own."""

    v: PerArchitecture


def init_personal(model: Model, federation: Federation) -> Personal:
    """Clients with the same architecture start alike."""
    return Personal(initial(deal(model, federation.n_clients)))


class Partial(NamedTuple):
    """State of a method that shares some entries of the model and leaves the others with the clients."""

    w: Params  # shared: [...]
    v: Params  # personal: [n_clients, ...]


def init_partial(personal: Callable[[Model], frozenset[str]]) -> Callable[[Model, Federation], Partial]:
    """Split the initial weights: `personal(model)` are the names that stay with the clients."""

    def init(model: Model, federation: Federation) -> Partial:
        names = personal(model)
        return Partial(drop(model.weights, names), copies(select(model.weights, names), federation.n_clients))

    return init


def merged(state: Partial) -> Params | Shared:
    """Shared and personal entries of every client: [n_clients, ...]; or `Shared` if nothing is personal."""
    if not state.v:
        return Shared(state.w)
    return repeat(state.w, len(next(iter(state.v.values())))) | state.v


def download(state: Partial, cohort: Cohort) -> Params:
    """The shared entries, sent, joined with each client's personal ones, at home already: [k, ...]."""
    return cohort.broadcast(state.w) | take(state.v, cohort.clients)


def tune_personal(state: Partial, everyone: Cohort) -> Params:
    """Copies of all clients' models [n_clients, ...] after fine-tuning of their personal entries only.

    A client that has never been sampled starts from the personal entries that the state has for it, the initial ones.
    """
    start = repeat(state.w, everyone.size) | take(state.v, everyone.clients)
    return everyone.train(cross_entropy, start, trainable=state.v)


def upload(state: Partial, cohort: Cohort, trained: Params) -> Partial:
    """The server averages the shared entries of `trained` [k, ...]; the personal ones stay with their clients."""
    w = client_mean(cohort.receive(select(trained, state.w)), cohort.n_samples)
    return Partial(w, put(state.v, cohort.clients, select(trained, state.v)))
