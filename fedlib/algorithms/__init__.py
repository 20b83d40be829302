"""One method, one file. Importing this package registers all of them."""

from fedlib.algorithms.fedap import fedap
from fedlib.algorithms.fedavg import fedavg
from fedlib.algorithms.fedbn import fedbn
from fedlib.algorithms.feddyn import feddyn
from fedlib.algorithms.fedfomo import fedfomo
from fedlib.algorithms.fedgen import fedgen
from fedlib.algorithms.fedper import fedper
from fedlib.algorithms.fedprox import fedprox
from fedlib.algorithms.fedrep import fedrep
from fedlib.algorithms.local_only import local_only
from fedlib.algorithms.perfedavg import perfedavg
from fedlib.algorithms.pfedsim import pfedsim

__all__ = [
    "fedap",
    "fedavg",
    "fedbn",
    "feddyn",
    "fedfomo",
    "fedgen",
    "fedper",
    "fedprox",
    "fedrep",
    "local_only",
    "perfedavg",
    "pfedsim",
]
