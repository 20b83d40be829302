"""FedCS: printed numbers, claims, readings and the study that they need."""
