"""fedlib: reproducible personalised federated learning, one notebook per paper.

load -> federate -> run -> table, figure, claim: see README.md.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from fedlib import federation as _federation
from fedlib import methods as _methods
from fedlib.algorithm import ALGORITHMS, Algorithm, algorithm
from fedlib.data import Dataset, datasets, load
from fedlib.federation import *  # noqa: F403 (federate and one function per partition)
from fedlib.methods import *  # noqa: F403 (one lower-case function per algorithm)
from fedlib.models import MODELS
from fedlib.models.pretrained import pretrained
from fedlib.runs.compression import compressed
from fedlib.runs.early import early_stopping, run_early
from fedlib.runs.export import export
from fedlib.runs.fairness import fairness
from fedlib.runs.privacy import epsilon, private
from fedlib.runs.result import RunResult
from fedlib.runs.run import run
from fedlib.runs.slurm import slurm_share
from fedlib.runs.sweep import Sweep, grid, sweep

if TYPE_CHECKING:
    from fedlib import report
    from fedlib.studies.compare import compare
    from fedlib.studies.study import Study, evidence, study

__version__ = "0.1.0"
_STUDY = "fedlib.studies.study"
_LATE = {"Study": _STUDY, "evidence": _STUDY, "study": _STUDY}  # imported at first use, like fl.report
_LATE |= {"compare": "fedlib.studies.compare"}


def __getattr__(name: str) -> Any:  # Any: type checkers do not see the methods
    if name == "report":
        return _import_module("fedlib.report")
    if name in _LATE:
        return getattr(_import_module(_LATE[name]), name)
    raise AttributeError(f"module 'fedlib' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def algorithms() -> tuple[str, ...]:
    """List the names of all algorithms.

    Returns:
        The names in alphabetical order, including methods that you registered with `@algorithm`.

    Example:
        >>> fl.algorithms()[:4]
        ('apfl', 'ditto', 'fccl', 'fedalt')
    """
    return tuple(sorted(ALGORITHMS))


def models() -> tuple[str, ...]:
    """List the architectures that `run(..., model=...)` knows by name.

    Returns:
        Their names in alphabetical order.

    Example:
        >>> fl.models()[:4]
        ('lenet4', 'lenet5', 'lenet5_bn', 'lenet5_plain')
    """
    return tuple(sorted(MODELS))


__all__ = ["Algorithm", "Dataset", "RunResult", "Study", "Sweep", "algorithm", "algorithms", "compare", "compressed"]
__all__ += ["datasets", "early_stopping", "epsilon", "evidence", "export", "fairness", "grid", "load", "models"]
__all__ += ["pretrained", "private", "report", "run", "run_early", "slurm_share", "study", "sweep"]
__all__ += _federation.__all__
__all__ += _methods.__all__
