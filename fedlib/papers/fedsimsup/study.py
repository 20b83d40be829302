"""FedSimSup (anonymous, submitted to ICLR 2025): its tables and figures."""

from fedlib.papers.fedsimsup import accuracy, controls, networks, similarities
from fedlib.papers.fedsimsup.sizes import PROFILES
from fedlib.studies.item import Cell, cells_of, items_in

ITEMS = items_in(similarities, networks, accuracy, controls)


def cells(profile: str) -> list[Cell]:
    """All numbers at one size."""
    return cells_of(ITEMS, PROFILES[profile])
