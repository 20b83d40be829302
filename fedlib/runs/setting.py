"""The setting of a run: every number besides algorithm, federation and model, checked when it is made."""

from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from fedlib.checks import check_choice, check_count, check_flag, check_number
from fedlib.training.backends import BACKENDS
from fedlib.training.batches import BRIGHTEST
from fedlib.training.phase import OPTIMIZERS

EVALUATIONS = 20  # per run, unless `evaluate_every` says otherwise


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The numbers of a run; `ValueError` in one sentence for one that is not allowed.

    rounds           communication rounds T
    join_ratio       each round samples max(floor(join_ratio * n_clients), 1) clients, the same for every method
    local_epochs, batch_size, lr, momentum    SGD of each sampled client; the momentum starts anew in every phase
    optimizer        "sgd", or "adam" (moments 0.9 and 0.999, which start anew in every phase; no momentum then)
    lr_decay, lr_decay_every    every so many rounds lr is multiplied by lr_decay
    seed             initial weights, cohorts and mini-batches; same seed, same bits
    evaluate_every   rounds between evaluations (default: about 20 in all); the last round is always evaluated
    tune_epochs      also evaluate copies of all models after so many epochs on the clients' train parts (default:
                     as the method says, for most of them 0)
    tune_every       rounds between these (default: as evaluate_every); likewise in the last round
    tune_part        "personal": only what a client keeps to itself is tuned (default: as the method says, for most of
                     them the whole model)
    statistics       of BatchNorm: "shared", a part of the model like its weights; or "local": they never leave their
                     client, who has its own in whatever it trains or is tested with (as published code of pFedSim)
    pixels           "unit": from 0 to 1, less their mean, over their standard deviation; or "raw": from 0 to 255, less
                     the same mean, over the same standard deviation (likewise)
    client_metrics   True: an evaluation also has every client's weighted F1 and AUC (`training.metrics`)
    backend          "loop", "stacked" or "auto" (stacked on a GPU, else loop)
    device           "cpu", "cuda" or "auto"
    dtype            "float32" or "float64"
    graphs           True: a GPU replays each training step as one CUDA graph; False: it starts every kernel of a step
                     by itself, which is slower, for where a graph cannot be captured. The kernels, their order and
                     what they are given are the same, so the bits are, and it is no part of a run's address
    """

    rounds: int
    join_ratio: float = 1.0
    local_epochs: int = 1
    batch_size: int = 32
    lr: float = 0.01
    momentum: float = 0.0
    optimizer: str = "sgd"
    lr_decay: float = 1.0
    lr_decay_every: int = 1
    seed: int = 0
    evaluate_every: int | None = None
    tune_epochs: int = 0
    tune_every: int | None = None
    tune_part: str | None = None
    statistics: str = "shared"
    pixels: str = "unit"
    client_metrics: bool | None = None
    backend: str = "auto"
    device: str = "auto"
    dtype: str = "float32"
    graphs: bool = True

    def __post_init__(self) -> None:
        for name in ("rounds", "local_epochs", "batch_size", "lr_decay_every"):
            check_count(name, getattr(self, name))
        check_number("join_ratio", self.join_ratio, 0, 1, open_low=True)
        check_number("lr", self.lr, 0, open_low=True)
        check_number("momentum", self.momentum, 0, 1, open_high=True)
        check_number("lr_decay", self.lr_decay, 0, 1, open_low=True)
        check_count("seed", self.seed, 0)
        check_count("tune_epochs", self.tune_epochs, 0)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        if self.optimizer == "adam" and self.momentum:
            raise ValueError(f"momentum={self.momentum!r} is not allowed with optimizer='adam'; Adam has its own.")
        check_choice("device", self.device, ("auto", "cpu", "cuda"))
        check_choice("backend", self.backend, ("auto", *BACKENDS))
        check_choice("dtype", self.dtype, ("float32", "float64"))
        check_choice("statistics", self.statistics, ("shared", "local"))
        check_choice("pixels", self.pixels, BRIGHTEST)
        check_flag("graphs", self.graphs)
        if self.evaluate_every is None:
            self._settle("evaluate_every", max(1, self.rounds // EVALUATIONS))
        check_count("evaluate_every", self.evaluate_every)
        if self.tune_every is None:
            self._settle("tune_every", self.evaluate_every)
        check_count("tune_every", self.tune_every)
        if self.tune_part is not None:
            check_choice("tune_part", self.tune_part, ("personal",))
        if self.client_metrics is not None:
            check_flag("client_metrics", self.client_metrics)
        self._settle("client_metrics", self.client_metrics or None)
        if self.device == "auto":
            self._settle("device", "cuda" if torch.cuda.is_available() else "cpu")
        if self.backend == "auto":
            self._settle("backend", "stacked" if self.device == "cuda" else "loop")

    def described(self) -> dict[str, Any]:
        """What is set, by name, as it stands in a run's address: without what changes no bit, and without what is None,
        which was not asked for.
        """
        return {name: value for name, value in asdict(self).items() if value is not None and name != "graphs"}

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    def _settle(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def setting(**arguments: Any) -> Setting:
    """`Setting`, with a sentence instead of a `TypeError` for an unknown or a missing argument."""
    for name in arguments:
        check_choice("argument", name, [field.name for field in fields(Setting)])
    if "rounds" not in arguments:
        raise ValueError("rounds is missing; it must be a whole number, at least 1.")
    return Setting(**arguments)
