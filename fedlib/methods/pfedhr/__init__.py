"""pFedHR: the method is in `pfedhr.py`, what it is made of beside it."""
