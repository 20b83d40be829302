"""FedCS: the method is in `fedcs.py`, what it is made of beside it."""
