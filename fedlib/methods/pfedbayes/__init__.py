"""pFedBayes: the method is in `pfedbayes.py`, what it is made of beside it."""
