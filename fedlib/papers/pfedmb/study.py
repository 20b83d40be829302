"""pFedMB (Mori et al., IJCNN 2023): its tables and figures."""

from fedlib.papers.pfedmb import accuracy, controls, costs, mixture_weights
from fedlib.papers.pfedmb.sizes import PROFILES
from fedlib.studies.item import items_in

__all__ = ["ITEMS", "PROFILES"]
ITEMS = items_in(mixture_weights, accuracy, controls, costs)
