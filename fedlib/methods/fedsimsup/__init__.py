"""FedSimSup: the method is in `fedsimsup.py`, what it is made of beside it."""
