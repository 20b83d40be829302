"""A session: one run on a device, for the round loop, the benchmark and the tests."""

import warnings
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch

from fedlib.algorithm import State, architectures_of
from fedlib.data import Dataset
from fedlib.engine.backends import BACKENDS
from fedlib.engine.stacked import unstacked
from fedlib.models import MODELS, deal
from fedlib.runs.plan import Plan, cohorts
from fedlib.runs.setting import Setting
from fedlib.runs.store import store_root
from fedlib.training.batches import Images, beside, on_device, to_device
from fedlib.training.channel import Channel
from fedlib.training.cohort import TRAIN, TUNE, Cohort, Local
from fedlib.training.phase import Trainer, drawing


class Session:
    """The data of a run on its device: images, initial model, architectures with their clients, and a trainer.

    `device` defaults to that of the plan. `like` is a session with the same data and setting, whose images and trainer
    are reused. Raises `ValueError` if the plan needs a GPU and there is none.
    """

    def __init__(
        self,
        plan: Plan,
        device: torch.device | None = None,
        *,
        trainer: Trainer | None = None,
        like: "Session | None" = None,
        store: str | Path | None = None,
    ):
        setting, federation = plan.setting, plan.federation
        if device is None:
            check_device(setting)
        self.plan, self.device = plan, torch.device(setting.device) if device is None else device
        self.images = (
            like.images if like else on_device(federation.data, self.device, setting.torch_dtype, setting.pixels)
        )
        self.trainer = trainer or (like and like.trainer)
        if self.trainer is None:
            self.trainer = BACKENDS[setting.backend](self.device, store_root(store), setting.graphs)
        self.model = plan.model._replace(weights={name: t.to(self.device) for name, t in plan.model.weights.items()})
        self.architectures = architectures_of(plan.algorithm, self.model, federation)
        for model, _ in deal(self.model, federation.n_clients) if setting.backend == "stacked" and not like else ():
            if model.name not in MODELS and (slow := unstacked(model)):
                warnings.warn(
                    f"model={model.name!r} uses {', '.join(slow)}, which PyTorch does for one client after the other: "
                    f"the results are right, but backend='loop' may be faster.",
                    stacklevel=2,
                )
        candidates = federation.n_clients - federation.unseen
        self.sampled = cohorts(candidates, setting.join_ratio, setting.rounds, setting.seed)
        self._beside: dict[str, Images] = like._beside if like else {}  # by fingerprint

    def init(self) -> State:
        """State before the first round."""
        with self.drawing("init"):
            return self.plan.algorithm.init(self.model, self.plan.federation)

    def drawing(self, *names: int | str) -> AbstractContextManager[None]:
        """Context in which PyTorch draws from a stream of the run."""
        return drawing((self.plan.setting.seed, *names), self.device)

    def cohort(self, t: int, ids: np.ndarray | None = None) -> Cohort:
        """Cohort of round `t` (from 0) for training: the sampled clients, or `ids`."""
        return self._cohort(t, self.sampled[t] if ids is None else ids, TRAIN, self.plan.setting.local_epochs)

    def everyone(self, t: int) -> Cohort:
        """Cohort of all clients after round `t`, for fine-tuning."""
        return self._cohort(t, np.arange(self.plan.federation.n_clients), TUNE, self.plan.setting.tune_epochs)

    def _cohort(self, t: int, ids: np.ndarray, purpose: str, local_epochs: int) -> Cohort:
        setting, federation = self.plan.setting, self.plan.federation
        clients, alike = to_device(torch.from_numpy(ids), self.device), len(self.architectures) == 1
        lr = setting.lr * setting.lr_decay ** (t // setting.lr_decay_every)
        return Cohort(
            model=self.model,
            images=self.images,
            federation=federation,
            ids=ids,
            clients=clients,
            architectures=self.architectures,
            round=t,
            rounds=setting.rounds,
            local=Local(local_epochs, setting.batch_size, lr, setting.momentum, setting.optimizer),
            seed=setting.seed,
            trainer=self.trainer,
            architecture=0 if alike else None,
            rows=clients if alike else None,
            public=federation.public and self.beside(federation.public),
            purpose=purpose,
            channel=Channel(statistics=setting.statistics == "shared"),
        )

    def beside(self, data: Dataset) -> Images:
        """Images of `data` on the device, normalised like `images`; copied once, so that programs can be reused."""
        if data.fingerprint not in self._beside:
            self._beside[data.fingerprint] = beside(self.images, data)
        return self._beside[data.fingerprint]


def check_device(setting: Setting) -> None:
    """Raise `ValueError` if the setting needs a GPU and there is none."""
    if setting.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' is not allowed; torch finds no GPU on this machine, use 'cpu' or 'auto'.")
