"""Estimated cost of a run on this machine: training samples times seconds per sample."""

import time
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F

from fedlib.models import MODELS, Architecture, architectures, build
from fedlib.runs.setting import Setting
from fedlib.studies.tasks import Images, Run, Task, images
from fedlib.studies.timing import threads

PROBE_HOURS = 0.05  # estimate for a measurement
OVERHEAD = 1.2  # factor for evaluation and server
# Time of a round relative to FedAvg's with the same epochs, from rows or on `digits`; default: 1.
PASSES = dict(fccl=2.7, fedalt=1.4, fedamp=1.2, fedap=1.5, feddyn=1.2, fedkemf=3.3, fedmd=3.9, fedsimsup=1.6)
PASSES |= dict(pfedbayes=1.3, pfedhr=6.0, pfedmb=1.7, pfedme=4.1)  # pFedHR: 9 with M1 alone, 4 with M1 to M4
STEPS, BATCH = 4, 32
ENOUGH = 0.2  # seconds of all timed steps
SIZES = {  # images, shape, classes
    "cifar10": (60_000, (3, 32, 32), 10),
    "cifar100": (60_000, (3, 32, 32), 100),
    "cinic10": (270_000, (3, 32, 32), 10),
    "domainnet": (28_000, (3, 64, 64), 20),
    "digit5": (110_000, (3, 32, 32), 10),
    "emnist_byclass": (814_255, (1, 28, 28), 62),
    "femnist": (805_263, (1, 28, 28), 62),
    "mnist": (70_000, (1, 28, 28), 10),
    "svhn": (99_289, (3, 32, 32), 10),
    "tinyimagenet": (110_000, (3, 64, 64), 200),
}


def hours(task: Task) -> float:
    """Estimated hours of a run on one core."""
    if not isinstance(task, Run):
        return PROBE_HOURS
    n, shape, n_classes = _size(task.images)
    run = Setting(**{"tune_epochs": task.algorithm.tune_epochs, **task.setting})  # with the defaults of `fl.run`
    epochs = run.rounds * run.join_ratio * run.local_epochs
    seconds = np.mean([seconds_per_sample(network, shape, n_classes) for network in architectures(task.model)])
    tuned = run.tune_epochs * -(-run.rounds // run.tune_every)  # of all clients, also after the last round
    passes = PASSES.get(task.algorithm.name, 1.0) * epochs + tuned
    return float(OVERHEAD * 0.75 * n * passes * seconds / 3600)


def _size(source: Images) -> tuple[int, tuple[int, ...], int]:
    if source.name in SIZES:
        n, shape, n_classes = SIZES[source.name]
        options = dict(source.options)
        if "per_domain" in options:
            n = len(options["domains"]) * options["per_domain"]
        return min(source.few or source.train or n, n), source.shape or shape, n_classes
    data = images(source)
    return len(data), data.x.shape[1:], len(data.classes)


@lru_cache
@threads(1)
def seconds_per_sample(network: Architecture, shape: tuple[int, ...], n_classes: int) -> float:
    """Seconds of a training step per image on one core: the shortest of at most `STEPS` steps."""
    builder = MODELS["mobilenetv2"] if network.name == "mobilenetv2_pretrained" else network.build  # as fast
    model = build(network.name, builder, shape, n_classes, seed=0)
    x, y, taken = torch.randn(BATCH, *shape), torch.zeros(BATCH, dtype=torch.int64), []
    while len(taken) < STEPS and sum(taken) < ENOUGH:
        start = time.thread_time()  # without the time of other processes
        F.cross_entropy(model.net(x), y).backward()
        taken.append(time.thread_time() - start)
    return min(taken) / BATCH
