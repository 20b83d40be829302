"""FedCS (Yan and Long, 2024): its tables and figures."""

from fedlib.papers.fedcs import controls, feature_map, groups, scores
from fedlib.papers.fedcs.sizes import PROFILES
from fedlib.studies.item import items_in

ITEMS = items_in(scores, feature_map, groups, controls)
CLIENTS = 50  # behind the standard deviation of a printed mean
SUBSTITUTES = PROFILES["paper, other digits"], lambda cell: cell.dataset == "digit5"  # until Digit-5 has been run
