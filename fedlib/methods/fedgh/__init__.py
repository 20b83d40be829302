"""FedGH (`fedgh.py`) and its helpers."""
