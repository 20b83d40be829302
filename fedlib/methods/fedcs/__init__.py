"""FedCS: the method is in `fedcs.py`, what it is made of beside it."""

from fedlib.methods.fedcs.aligned import Alignment, linear_layer

__all__ = ["Alignment", "linear_layer"]
