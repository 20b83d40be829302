"""pFedSim (Tan et al., 2023): its tables and figures."""

from fedlib.papers.pfedsim import accuracy, facts, similarities
from fedlib.papers.pfedsim.sizes import PROFILES
from fedlib.studies.item import Cell, cells_of, items_in

ITEMS = items_in(similarities, accuracy, facts)


def cells(profile: str) -> list[Cell]:
    """All numbers at one size."""
    return cells_of(ITEMS, PROFILES[profile])
