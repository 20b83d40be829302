"""A session: one run on a device. The loop, the benchmark and the tests all work with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch

from fedlib.algorithm import State, groups_of
from fedlib.data import Dataset
from fedlib.runs.plan import Plan, cohorts
from fedlib.runs.setting import Setting
from fedlib.runs.store import store_root
from fedlib.training.backends import BACKENDS
from fedlib.training.batches import Images, beside, on_device, to_device
from fedlib.training.cohort import TRAIN, TUNE, Cohort
from fedlib.training.phase import Trainer


class Session:
    """What a run has on its device: images, the initial model, who has which architecture, and a trainer.

    `device` is that of the plan unless another one is named. `like` is a session for the same data and setting whose
    images and trainer serve this one, too. Raises `ValueError` without the GPU that the plan asks for.
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
        self.images = like.images if like else self._images()
        self.trainer = trainer or (like.trainer if like else self._trainer(store))
        self.model = plan.model._replace(weights={name: t.to(self.device) for name, t in plan.model.weights.items()})
        self.groups = groups_of(plan.algorithm, self.model, federation)
        self.n_samples = torch.tensor([float(len(own)) for own in federation.train], device=self.device)  # [n_clients]
        self.sampled = cohorts(
            federation.n_clients - federation.unseen, setting.join_ratio, setting.rounds, setting.seed
        )
        self._beside: dict[str, Images] = like._beside if like else {}  # by fingerprint

    def init(self) -> State:
        """The state before the first round."""
        return self.plan.algorithm.init(self.model, self.plan.federation)

    def cohort(self, t: int, ids: np.ndarray | None = None) -> Cohort:
        """The clients of round `t` (from 0), for training: those sampled for it, or `ids`."""
        return self._cohort(t, self.sampled[t] if ids is None else ids, TRAIN, self.plan.setting.local_epochs)

    def everyone(self, t: int) -> Cohort:
        """All clients after round `t`, for fine-tuning."""
        return self._cohort(t, np.arange(self.plan.federation.n_clients), TUNE, self.plan.setting.tune_epochs)

    def _cohort(self, t: int, ids: np.ndarray, purpose: str, local_epochs: int) -> Cohort:
        setting, federation = self.plan.setting, self.plan.federation
        clients = to_device(torch.from_numpy(ids), self.device)
        return Cohort(
            model=self.model,
            images=self.images,
            federation=federation,
            ids=ids,
            clients=clients,
            n_samples=self.n_samples[clients],
            round=t,
            rounds=setting.rounds,
            local_epochs=local_epochs,
            batch_size=setting.batch_size,
            lr=setting.lr * setting.lr_decay ** (t // setting.lr_decay_every),
            momentum=setting.momentum,
            optimizer=setting.optimizer,
            seed=setting.seed,
            trainer=self.trainer,
            groups=self.groups,
            group=0 if len(self.groups) == 1 else None,
            rows=clients if len(self.groups) == 1 else None,
            public=federation.public and self.beside(federation.public),
            purpose=purpose,
        )

    def beside(self, data: Dataset) -> Images:
        """`data` on the device, normalised as `images` are: put there once, so that programs on it are used again."""
        if data.fingerprint not in self._beside:
            self._beside[data.fingerprint] = beside(self.images, data)
        return self._beside[data.fingerprint]

    def _images(self) -> Images:
        setting = self.plan.setting
        return on_device(self.plan.federation.data, self.device, setting.torch_dtype, setting.pixels)

    def _trainer(self, store: str | Path | None) -> Trainer:
        return BACKENDS[self.plan.setting.backend](self.device, store_root(store), self.plan.setting.graphs)


def check_device(setting: Setting) -> None:
    """`ValueError` for a device that is not here."""
    if setting.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' is not allowed; torch finds no GPU on this machine, use 'cpu' or 'auto'.")


PINNED = (  # place in torch.backends, name, value: what decides the bits of a float32 product or convolution on a GPU
    ("cudnn", "enabled", True),
    ("cudnn", "benchmark", False),
    ("cudnn", "deterministic", True),
    ("cudnn.conv", "fp32_precision", "ieee"),  # no TF32
    ("cuda.matmul", "fp32_precision", "ieee"),
)


@contextmanager
def rules(device: str) -> Iterator[None]:
    """Inside, the same seed gives the same bits.

    On a CPU: one thread, whatever the machine has (run several side by side with `fl.sweep`). On a GPU: full
    float32 products and convolutions, and those of cuDNN's kernels that always add up in the same order.
    """
    pinned = [(attrgetter(place)(torch.backends), name, value) for place, name, value in PINNED]
    threads, before = torch.get_num_threads(), [getattr(where, name) for where, name, _ in pinned]
    torch.set_num_threads(1 if device == "cpu" else threads)
    try:
        for where, name, value in pinned:
            setattr(where, name, value)
        yield
    finally:
        for (where, name, _), value in zip(pinned, before, strict=True):
            setattr(where, name, value)
        torch.set_num_threads(threads)
