"""Algorithms: immutable values with explicit state, made by functions of their hyper-parameters."""

import functools
import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, get_type_hints

from fedlib.checkpoint import resumable
from fedlib.checks import check_annotation, check_choice, check_kind
from fedlib.federation import Federation
from fedlib.fingerprint import Registry
from fedlib.models import Assignment, Model, deal, initial
from fedlib.stack import Params, PerArchitecture, Shared, Tree, client_mean, copies, drop, for_each, repeat, select
from fedlib.training import Cohort, cross_entropy, train

PARTS = ("init", "round", "models", "tune", "trace", "architectures", "hyper")  # fields that define an algorithm
State = Any  # a NamedTuple of trees, defined by each method


class Algorithm(NamedTuple):
    """A federated learning method: a value whose functions take a state and return a new one.

    Attributes:
        name: name for tables.
        init: `init(model, federation) -> state`, called once before the first round. A state is a NamedTuple of trees.
        round: `round(state, cohort) -> state`, one communication round; it may reuse the buffers of `state`.
        models: `models(state)` returns the models to evaluate: a stack [n_clients, ...], `Shared` (one model for all
            clients) or `PerArchitecture`.
        tune_epochs: default number of epochs of fine-tuning before an evaluation.
        tune: `tune(state, everyone)` returns all clients' models [n_clients, ...] after fine-tuning for the local
            epochs of the cohort `everyone`. Default: all entries of `models` are trained; `tune_personal` trains only
            the personal entries. It must not change the state.
        trace: `trace(state)` returns tensors by name, which are recorded at every evaluation, before fine-tuning.
        architectures: `architectures(model, federation)` returns the architectures with their clients. Default: the
            run assigns them (`models.deal`). With several architectures, `models` has one stack for each.
        mixed: whether clients of a run may have different architectures.
        hyper: the hyper-parameters; filled in by `@algorithm`, part of a run's address.
        made_of: code that enters the address together with all code that it calls, or the fingerprint of such code;
            filled in by `@algorithm`.
        as_made: functions and hyper-parameters as `@algorithm` made them; a run adds replaced ones to `made_of`.
    """

    name: str
    init: Callable[[Model, Federation], State]
    round: Callable[[State, Cohort], State]
    models: Callable[[State], Tree | Shared | PerArchitecture]
    tune_epochs: int = 0
    tune: Callable[[State, Cohort], Params] | None = None
    trace: Callable[[State], Params] | None = None
    architectures: Callable[[Model, Federation], Sequence[Assignment]] | None = None
    mixed: bool = False
    hyper: Mapping[str, Any] = {}
    made_of: tuple[Any, ...] = ()
    as_made: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in self.hyper.items())})"

    def __repr__(self) -> str:
        return str(self)


class Look(NamedTuple):
    """Name and line style of a method in figures and tables."""

    label: str = ""  # name as the papers print it; default: the name of the method's function
    colour: str = ""  # name of a colour of `fedlib.report.style`; default: derived from the method's name
    marker: str = ""  # Matplotlib marker; default: derived from the method's name
    line: str = ""  # "-", "--", ":" or "-."; default: "-" if a colour is given, else derived from the method's name
    variants: Mapping[str, tuple[str, str]] = {}  # (label, line) by name: the method's, followed by "+..." or "-..."
    printed: Mapping[str, str] = {}  # name of the method or variant by each further name that papers print


ALGORITHMS: dict[str, Callable[..., Algorithm]] = Registry()
LOOKS: dict[str, Look] = {}


def algorithm(factory: Callable[..., Algorithm] | None = None, **look: Any) -> Callable[..., Any]:
    """Register a function of hyper-parameters that returns an `Algorithm`.

    The hyper-parameters and the fingerprint of the function's code, with all helpers that it calls, become part of the
    run's address, so that an edited method never reads an old result. Code that the function takes from a registry
    (another method, a model by its name) must be listed in `made_of`.

    Args:
        factory: the function. Its name is the name of the method, for `fl.run`, figures and the playground. The
            annotations of its parameters are their allowed values, as in `mu: Annotated[float, at_least(0)] = 1.0`.
        look: fields of `Look`, for figures and tables: `@fl.algorithm(label="FedProx", colour="blue", marker="s")`.

    Returns:
        The function; for a value that its annotation does not allow, it raises a one-sentence `ValueError`.

    Raises:
        ValueError: later, in `fl.run`: the source of the function cannot be read, because it was typed at a Python
            prompt; define it in a file or in a notebook.

    Example:
        >>> @fl.algorithm
        ... def half(server_lr: float = 0.5):
        ...     return fl.fedavg()._replace(name="half")
        >>> half(server_lr=0.25), "half" in fl.algorithms()
        (half(server_lr=0.25), True)
    """
    if factory is None:
        return functools.partial(algorithm, **look)
    own = not factory.__module__.startswith("fedlib.")  # of a user
    if own and ALGORITHMS.get(factory.__name__, factory).__module__.startswith("fedlib.methods"):
        raise ValueError(f"{factory.__name__} is the name of a method of the library; give yours another one.")
    signature, hints = inspect.signature(factory), get_type_hints(factory, include_extras=True)

    @functools.wraps(factory)
    def make(*args, **kwargs) -> Algorithm:
        for name in kwargs:
            check_choice(f"hyper-parameter of {factory.__name__}", name, signature.parameters)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            bound.arguments[name] = check_annotation(name, value, hints.get(name))
        made = factory(*bound.args, **bound.kwargs)
        check_kind(f"the return value of {factory.__name__}", made, Algorithm, "an Algorithm")
        hyper = {name: _in_words(value) for name, value in bound.arguments.items()}
        others = [value for name, value in bound.arguments.items() if hyper[name] is not value]
        code = [value for value in others if not isinstance(value, Algorithm)]
        made = made._replace(hyper=hyper, made_of=(make, *code, *made.made_of))
        made = made._replace(round=resumable(str(made), made.init, made.round, own))
        return made._replace(as_made=tuple(getattr(made, name) for name in PARTS))

    ALGORITHMS[factory.__name__], LOOKS[factory.__name__] = make, Look(**look)
    return make


def _in_words(value: Any) -> Any:
    """Hyper-parameter for JSON; functions and arrays, whose content enters the fingerprint, by name."""
    if isinstance(value, Algorithm):
        return str(value)
    try:
        json.dumps(value)
    except TypeError:
        return getattr(value, "__qualname__", type(value).__name__)
    return value


def resolve(method: str | Algorithm) -> Algorithm:
    """Algorithm by name, with the paper's hyper-parameters; of an `Algorithm`, replaced parts enter `made_of`."""
    if isinstance(method, Algorithm):
        if not method.made_of:
            raise ValueError(
                f"algorithm={method.name!r} cannot be run; put @fl.algorithm on the function that makes it, so that "
                f"its hyper-parameters become part of the run's address."
            )
        parts = [getattr(method, name) for name in PARTS]
        replaced = [part for part, before in zip_longest(parts, method.as_made) if part is not before]
        return method._replace(made_of=(*method.made_of, *replaced), as_made=tuple(parts))
    check_kind("algorithm", method, str, "a method, such as fl.fedavg() with its parentheses, or its name")
    check_choice("algorithm", method, ALGORITHMS)
    return ALGORITHMS[method]()


def architectures_of(algorithm: Algorithm, model: Model, federation: Federation) -> Sequence[Assignment]:
    """Architectures with their clients, assigned by the algorithm or, by default, by the run."""
    if algorithm.architectures is None:
        return deal(model, federation.n_clients)
    return algorithm.architectures(model, federation)


def tuned(algorithm: Algorithm, state: State, everyone: Cohort) -> Tree | PerArchitecture:
    """Copies of all clients' models [n_clients, ...] after local fine-tuning; the state is not changed."""
    if algorithm.tune is not None:
        return algorithm.tune(state, everyone)
    models = for_each(algorithm.models(state), everyone.size)
    cohorts, several = everyone.by_architecture(), isinstance(models, PerArchitecture)
    stacks = zip(cohorts, models.stacks if several else (models,), strict=True)
    trained = tuple(train(cohort, cross_entropy, v) for cohort, v in stacks)
    return PerArchitecture(trained) if several else trained[0]


def need_public(name: str, federation: Federation) -> None:
    """Raise `ValueError` for a federation without public images."""
    if federation.public is None:
        raise ValueError(f"{name} needs public images; use federate(..., public=0.1) or with_public(...).")


class Global(NamedTuple):
    """State of a method with one model for all clients."""

    w: Params  # [...]


def init_global(model: Model, federation: Federation) -> Global:
    """The initial weights as the global model."""
    return Global(model.weights)


def one_for_all(state: Global) -> Shared:
    """The global model as the model of every client."""
    return Shared(state.w)


class Personal(NamedTuple):
    """State of a method with one model per client."""

    v: PerArchitecture


def init_personal(model: Model, federation: Federation) -> Personal:
    """Initial weights of each client's architecture."""
    return Personal(initial(deal(model, federation.n_clients)))


class Partial(NamedTuple):
    """State of a method that shares some entries of the model and keeps the others personal."""

    w: Params  # shared: [...]
    v: Params  # personal: [n_clients, ...]


def init_partial(personal: Callable[[Model], Collection[str]]) -> Callable[[Model, Federation], Partial]:
    """Split the initial weights; `personal(model)` returns the names of the personal entries."""

    def init(model: Model, federation: Federation) -> Partial:
        names = personal(model)
        return Partial(drop(model.weights, names), copies(select(model.weights, names), federation.n_clients))

    return init


def merged(state: Partial) -> Params | Shared:
    """Shared and personal entries of every client, [n_clients, ...]; `Shared` if no entry is personal."""
    if not state.v:
        return Shared(state.w)
    return repeat(state.w, len(next(iter(state.v.values())))) | state.v


def download(state: Partial, cohort: Cohort) -> Params:
    """The clients receive the shared entries and add their personal ones: [k, ...]."""
    return cohort.broadcast(state.w) | cohort.mine(state.v)


def upload(state: Partial, cohort: Cohort, trained: Params) -> Partial:
    """The server averages the shared entries of `trained` [k, ...]; the clients keep the personal ones."""
    w = client_mean(cohort.receive(select(trained, state.w)), cohort.n_samples)
    return Partial(w, cohort.keep(state.v, select(trained, state.v)))


def tune_personal(state: Partial, everyone: Cohort) -> Params:
    """Copies of all clients' models [n_clients, ...] after fine-tuning of their personal entries only."""
    start = repeat(state.w, everyone.size) | everyone.mine(state.v)
    return train(everyone, cross_entropy, start, trainable=state.v)
