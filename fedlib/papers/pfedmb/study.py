"""pFedMB (Mori et al., IJCNN 2023): its tables and figures."""

from fedlib.papers.pfedmb import accuracy, controls, costs, mixture_weights
from fedlib.papers.pfedmb.sizes import PROFILES
from fedlib.studies.item import Cell, cells_of, items_in

ITEMS = items_in(mixture_weights, accuracy, controls, costs)


def cells(profile: str) -> list[Cell]:
    """All numbers at one size."""
    return cells_of(ITEMS, PROFILES[profile])
