"""One method, one file. Importing this package registers all of them."""

from fedlib.algorithms.fccl import fccl
from fedlib.algorithms.fedalt import fedalt
from fedlib.algorithms.fedamp import fedamp
from fedlib.algorithms.fedap import fedap
from fedlib.algorithms.fedavg import fedavg
from fedlib.algorithms.fedbn import fedbn
from fedlib.algorithms.fedcs import fedcs
from fedlib.algorithms.feddyn import feddyn
from fedlib.algorithms.fedfomo import fedfomo
from fedlib.algorithms.fedgen import fedgen
from fedlib.algorithms.fedgh import fedgh
from fedlib.algorithms.fedkemf import fedkemf
from fedlib.algorithms.fedmd import fedmd
from fedlib.algorithms.fedpac import fedpac
from fedlib.algorithms.fedper import fedper
from fedlib.algorithms.fedproto import fedproto
from fedlib.algorithms.fedprox import fedprox
from fedlib.algorithms.fedrep import fedrep
from fedlib.algorithms.fedsim import fedsim
from fedlib.algorithms.fedsimsup import fedsimsup
from fedlib.algorithms.ifca import ifca
from fedlib.algorithms.local_only import local_only
from fedlib.algorithms.perfedavg import perfedavg
from fedlib.algorithms.pfedbayes import pfedbayes
from fedlib.algorithms.pfedhr import pfedhr
from fedlib.algorithms.pfedmb import pfedmb
from fedlib.algorithms.pfedme import pfedme
from fedlib.algorithms.pfedsim import pfedsim

__all__ = [
    "fccl",
    "fedalt",
    "fedamp",
    "fedap",
    "fedavg",
    "fedbn",
    "fedcs",
    "feddyn",
    "fedfomo",
    "fedgen",
    "fedgh",
    "fedkemf",
    "fedmd",
    "fedpac",
    "fedper",
    "fedproto",
    "fedprox",
    "fedrep",
    "fedsim",
    "fedsimsup",
    "ifca",
    "local_only",
    "perfedavg",
    "pfedbayes",
    "pfedhr",
    "pfedmb",
    "pfedme",
    "pfedsim",
]
