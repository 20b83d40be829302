"""FedGH: the method is in `fedgh.py`, what it is made of beside it."""
