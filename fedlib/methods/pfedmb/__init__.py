"""pFedMB: the method is in `pfedmb.py`, what it is made of beside it."""
