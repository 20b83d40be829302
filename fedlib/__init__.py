"""fedlib: reproducible personalised federated learning, one notebook per paper.

load -> federate -> run -> table, figure, claim. See README.md for the picture.
"""

from fedlib import methods as _methods
from fedlib import report
from fedlib.algorithm import ALGORITHMS, Algorithm, algorithm
from fedlib.data import Dataset, datasets, load
from fedlib.federation import (
    Federation,
    Partition,
    classes_per_client,
    dirichlet,
    dirichlet_groups,
    domains,
    federate,
    iid,
    label_groups,
    mixed_domains,
    shards,
    uneven_classes,
)
from fedlib.methods import *  # noqa: F403 (one lower-case function per algorithm)
from fedlib.runs.result import RunResult
from fedlib.runs.rounds import run
from fedlib.runs.sweep import Sweep, grid, sweep

__version__ = "0.1.0"


def algorithms() -> tuple[str, ...]:
    """The names of all algorithms, in alphabetical order."""
    return tuple(sorted(ALGORITHMS))


__all__ = [
    "Algorithm",
    "Dataset",
    "Federation",
    "Partition",
    "RunResult",
    "Sweep",
    "algorithm",
    "algorithms",
    "classes_per_client",
    "datasets",
    "dirichlet",
    "dirichlet_groups",
    "domains",
    "federate",
    "grid",
    "iid",
    "label_groups",
    "load",
    "mixed_domains",
    "report",
    "run",
    "shards",
    "sweep",
    "uneven_classes",
    *_methods.__all__,
]
