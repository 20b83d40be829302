"""FedGen: the method is in `fedgen.py`, what it is made of beside it."""
