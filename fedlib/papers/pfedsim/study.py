"""pFedSim (Tan et al., 2023): its tables and figures."""

from fedlib.papers.pfedsim import accuracy, facts, similarities
from fedlib.papers.pfedsim.sizes import PROFILES
from fedlib.studies.item import items_in

__all__ = ["ITEMS", "PROFILES"]
ITEMS = items_in(similarities, accuracy, facts)
