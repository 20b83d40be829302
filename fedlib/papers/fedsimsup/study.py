"""FedSimSup (anonymous, submitted to ICLR 2025): its tables and figures."""

from fedlib.papers.fedsimsup import accuracy, controls, networks, similarities
from fedlib.papers.fedsimsup.sizes import PROFILES
from fedlib.studies.item import items_in

__all__ = ["ITEMS", "PROFILES"]
ITEMS = items_in(similarities, networks, accuracy, controls)
