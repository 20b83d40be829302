"""FedCS (`fedcs.py`) and its helpers."""

from fedlib.methods.fedcs.ra_module import Alignment, linear_layer

__all__ = ["Alignment", "linear_layer"]
