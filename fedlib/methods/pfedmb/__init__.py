"""pFedMB (`pfedmb.py`) and its helpers."""

from fedlib.methods.pfedmb.branches import merge, new_branches
from fedlib.methods.pfedmb.pfedmb import branch_mean

__all__ = ["branch_mean", "merge", "new_branches"]
