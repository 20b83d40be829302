"""pFedBayes (`pfedbayes.py`) and its helpers."""
