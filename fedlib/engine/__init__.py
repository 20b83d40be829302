"""Execution of local training: one client after the other, or all clients as one stack."""
