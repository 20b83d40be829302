"""Carrying out the local training that a method asks for: one client after the other, or all as one stack."""
