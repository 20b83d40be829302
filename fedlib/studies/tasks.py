"""Tasks of a study: runs of `fl.run` and other measurements, declared by name before any data is loaded."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import fedlib as fl
from fedlib.algorithm import Algorithm, resolve
from fedlib.data import Dataset, is_here
from fedlib.federation import Federation, Partition
from fedlib.fingerprint import Cache
from fedlib.models import Models, architectures
from fedlib.runs.prepare import fingerprint_of, library

Kept = Mapping[str, Any]  # values by name that JSON can store


class Images(NamedTuple):
    """A data set by name, or a part of one."""

    name: str  # as `fl.load` knows it
    options: tuple[tuple[str, object], ...] = ()  # further arguments of `fl.load`
    domains: tuple[str, ...] = ()  # only these domains; (): all
    few: int = 0  # number of images, drawn at random; 0: all
    train: int = 0  # number of training images, with the same share of the test images; 0: all
    stands_for: str = ""  # the paper's data set, if this is a substitute
    shape: tuple[int, ...] = ()  # to which images are padded and their channels repeated; (): unchanged


class Run(NamedTuple):
    """A run without its seed: arguments of `fl.run`, data and partition by name."""

    algorithm: Algorithm
    images: Images
    partition: Partition
    clients: int
    setting: Mapping[str, object]  # arguments of `fl.run` by name; `rounds` at least
    model: Models = "lenet5"
    federate: Mapping[str, object] = {}  # further arguments of `fl.federate`
    keep: Callable[[fl.RunResult], Kept] | None = None  # further values of a finished run that its row keeps
    timed: bool = False  # it needs a quiet machine, and runs only if its item is requested
    public: tuple[Images, float] | None = None  # the first share of their public part replaces the public images

    @property
    def name(self) -> str:
        """Name of the run: algorithm, data, and a hash of all arguments. It does not depend on the code."""
        words = [str(self.algorithm), self.images, str(self.partition), self.clients, sorted(self.setting.items())]
        words += [_model_name(self.model), sorted(self.federate.items())]
        words += [self.public] if self.public else []
        digest = hashlib.sha256(json.dumps(words, default=str).encode()).hexdigest()[:10]
        return f"{self.algorithm.name}-{self.images.name}-{digest}"

    @property
    def rounds(self) -> int:
        """Communication rounds."""
        return int(str(self.setting["rounds"]))

    def arguments(self, seed: int) -> dict[str, Any]:
        """The arguments of `fl.run`, with the federation of the loaded data."""
        setting = {**self.setting, "seed": seed}
        federation = _federation(self)
        return {"algorithm": self.algorithm, "federation": federation, "model": self.model, **setting}

    def code(self, backend: str = "loop") -> str:
        """The fingerprint of all code that can change its numbers, with this backend."""
        made_of = [code for made in (resolve(self.algorithm), *architectures(self.model)) for code in made.made_of]
        kept = [self.keep] if self.keep else []
        return _digest([*map(fingerprint_of, [*made_of, *kept]), library(backend)])


class Probe(NamedTuple):
    """A measurement other than a run: `measure(seed, *arguments)` gives values by name."""

    label: str  # first part of its name
    measure: Callable[..., Kept]
    arguments: tuple[object, ...] = ()
    images: Images = Images("")  # the data that it needs
    exact: bool = False  # nothing is drawn at random, so that one seed is enough
    sizes: str = ""  # the sizes, as text, of the profile that the arguments name

    @property
    def name(self) -> str:
        """Name of the measurement: label and a hash of the arguments."""
        digest = hashlib.sha256(json.dumps([self.label, self.arguments], default=str).encode()).hexdigest()[:10]
        return f"{self.label}-{digest}"

    def code(self, backend: str = "loop") -> str:
        """The fingerprint of all code that can change its numbers."""
        return _digest([fingerprint_of(self.measure), library(backend), *([self.sizes] if self.sizes else [])])


Task = Run | Probe


def here(task: Task) -> bool:
    """True if the data of a run, or of a measurement, need no download."""
    public = [task.public[0]] if isinstance(task, Run) and task.public else []
    return all(is_here(images.name, **dict(images.options)) for images in (task.images, *public) if images.name)


def images(images: Images) -> Dataset:
    """Load the data set, or some images of it."""
    return _load(images)


@lru_cache(maxsize=4)
def _load(images: Images) -> Dataset:
    data = fl.load(images.name, **dict(images.options))
    rng = np.random.default_rng(0)
    if images.domains:
        data = data.subset(np.isin(data.domain, [data.domains.index(name) for name in images.domains]))
    if images.train:
        train, test = (rng.permutation(np.flatnonzero((data.split == 1) == is_test)) for is_test in (False, True))
        share = min(1.0, images.train / len(train))
        data = data.subset(np.concatenate([part[: round(share * len(part))] for part in (train, test)]))
    data = data.subset(rng.permutation(len(data))[: images.few]) if images.few else data
    return _shaped(data, images.shape) if images.shape else data


def _shaped(data: Dataset, shape: tuple[int, ...]) -> Dataset:
    """The images with a black margin and repeated channels, as `shape` requires."""
    margins = [((new - old) // 2, (new - old + 1) // 2) for new, old in zip(shape[1:], data.x.shape[2:], strict=True)]
    x = np.pad(data.x, ((0, 0), (0, 0), *margins))
    return replace(data, x=np.ascontiguousarray(np.broadcast_to(x, (len(x), *shape))))


_FEDERATIONS: dict[str, Federation] = Cache()  # the last few, by all that makes them


def _federation(run: Run) -> Federation:
    key = repr((run.images, str(run.partition), run.clients, sorted(run.federate.items()), run.public))
    if key not in _FEDERATIONS:
        while len(_FEDERATIONS) >= 4:
            del _FEDERATIONS[next(iter(_FEDERATIONS))]
        made = fl.federate(_load(run.images), run.partition, run.clients, **dict(run.federate))
        if run.public:
            source, share = run.public
            other = fl.federate(_load(source), fl.iid(), run.clients, **dict(run.federate)).public
            if other is None:
                raise ValueError("a run with public images of its own needs a share of them: federate={'public': 0.1}.")
            made = made.with_public(other.subset(range(round(share * len(other)))))
        _FEDERATIONS[key] = made
    return _FEDERATIONS[key]


def profile_of(sizes: object, profiles: Mapping[str, object]) -> str:
    """The name of a profile, by its sizes."""
    return next(name for name, other in profiles.items() if other is sizes)


def _model_name(model: Models) -> str:
    return "+".join(architecture.name for architecture in architectures(model))


def _digest(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
