"""pFedMB: the method is in `pfedmb.py`, what it is made of beside it."""

from fedlib.methods.pfedmb.branches import merge, new_branches
from fedlib.methods.pfedmb.pfedmb import branch_mean

__all__ = ["branch_mean", "merge", "new_branches"]
