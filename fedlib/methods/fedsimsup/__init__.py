"""FedSimSup (`fedsimsup.py`) and its helpers."""

from fedlib.methods.fedsimsup.fedsimsup import Pair, label_similarity, pull, self_weight
from fedlib.methods.fedsimsup.supervisors import SUPERVISORS

__all__ = ["SUPERVISORS", "Pair", "label_similarity", "pull", "self_weight"]
