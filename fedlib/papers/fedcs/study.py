"""FedCS (Yan and Long, 2024): its tables and figures."""

from fedlib.papers.fedcs import controls, feature_map, groups, scores
from fedlib.papers.fedcs.sizes import PROFILES
from fedlib.studies.item import Cell, cells_of, items_in, replaced

ITEMS = items_in(scores, feature_map, groups, controls)
CLIENTS = 50  # behind the standard deviation of a printed mean


def cells(profile: str) -> list[Cell]:
    """All numbers at one size; at the paper's, other sets of digits stand in for Digit-5 until it has been run."""
    cells = cells_of(ITEMS, PROFILES[profile])
    if profile != "paper":
        return cells
    return replaced(cells, cells_of(ITEMS, PROFILES["paper, other digits"]), lambda cell: cell.dataset == "digit5")
