"""The setting of a run: all arguments except algorithm, federation and model, checked on creation."""

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal, TypeVar

import torch

from fedlib.checks import Count, Share, above, at_least, at_most, below, check_annotation, check_choice

WITHOUT_EFFECT = ("graphs", "checkpoint_seconds")  # on the bits of a run
EVALUATIONS = 20  # default number per run
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The arguments of `fl.run` that set up a run: checked on creation, with the defaults that depend on others."""

    rounds: Count
    join_ratio: Share = 1.0
    local_epochs: Count = 1
    batch_size: Count = 32
    lr: Annotated[float, above(0)] = 0.01
    momentum: Annotated[float, at_least(0), below(1)] = 0.0
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr_decay: Share = 1.0
    lr_decay_every: Count = 1
    seed: Annotated[int, at_least(0)] = 0
    evaluate_every: Count | None = None
    tune_epochs: Annotated[int, at_least(0)] | None = None
    tune_every: Count | None = None
    tune_part: Literal["personal"] | None = None
    statistics: Literal["shared", "local"] = "shared"
    pixels: Literal["unit", "raw"] = "unit"
    dropout: Annotated[float, at_least(0), below(1)] = 0.0
    stragglers: Annotated[float, at_least(0), at_most(1)] = 0.0
    client_metrics: bool | None = None
    backend: Literal["auto", "loop", "stacked"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "float64"] = "float32"
    graphs: bool = True
    checkpoint_seconds: Annotated[float, at_least(0)] = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            self._settle(field.name, check_annotation(field.name, getattr(self, field.name), field.type))
        if self.optimizer == "adam" and self.momentum:
            raise ValueError(f"momentum={self.momentum!r} is not allowed with optimizer='adam'; Adam has its own.")
        if self.evaluate_every is None:
            self._settle("evaluate_every", max(1, self.rounds // EVALUATIONS))
        if self.tune_every is None:
            self._settle("tune_every", self.evaluate_every)
        self._settle("tune_epochs", self.tune_epochs or 0)  # `prepare` fills in the default of the method
        self._settle("client_metrics", self.client_metrics or None)
        if self.device == "auto":
            self._settle("device", "cuda" if torch.cuda.is_available() else "cpu")
        if self.backend == "auto":
            self._settle("backend", "stacked" if self.device == "cuda" else "loop")

    def described(self) -> dict[str, Any]:
        """Entries of a run's address: without settings that change no bit, and without values that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None and name not in WITHOUT_EFFECT}

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    def _settle(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def setting(**arguments: Any) -> Setting:
    """A `Setting`; an unknown or missing argument raises `ValueError` instead of `TypeError`."""
    _check_names(arguments, [field.name for field in fields(Setting)])
    return Setting(**arguments)


def with_settings(function: F) -> F:
    """Decorate a function with `**setting`: its signature lists the fields of `Setting`; errors are as in `setting`."""
    listed = list(inspect.signature(Setting).parameters.values())
    [*named, _] = inspect.signature(function).parameters.values()
    first = [one for one in named if one.kind is one.POSITIONAL_OR_KEYWORD]
    signature = inspect.signature(function).replace(parameters=[*first, *listed, *named[len(first) :]])
    known = list(signature.parameters)

    @functools.wraps(function)
    def call(*args: Any, **arguments: Any) -> Any:
        _check_names(arguments, known)
        return function(*args, **arguments)

    call.__signature__ = signature
    return call  # type: ignore[return-value]


def _check_names(arguments: Collection[str], known: Collection[str]) -> None:
    for name in arguments:
        check_choice("argument", name, known)
    if "rounds" not in arguments:
        raise ValueError("rounds is missing; it must be a whole number, at least 1.")
