"""pFedHR (`pfedhr.py`) and its helpers."""

from fedlib.methods.pfedhr.blocks import CONV, FC, block_names, decompose
from fedlib.methods.pfedhr.grouping import block_distances, group
from fedlib.methods.pfedhr.public import alike, nt_xent, public_training
from fedlib.methods.pfedhr.reassemble import Network, reassemble
from fedlib.methods.pfedhr.record import replay
from fedlib.methods.pfedhr.search import Piece, chains
from fedlib.methods.pfedhr.stitch import Link, assemble, stitch

__all__ = ["CONV", "FC", "Link", "Network", "Piece", "alike", "assemble", "block_distances", "block_names", "chains"]
__all__ += ["decompose", "group", "nt_xent", "public_training", "reassemble", "replay", "stitch"]
