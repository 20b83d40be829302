"""FedGen (`fedgen.py`) and its helpers."""
