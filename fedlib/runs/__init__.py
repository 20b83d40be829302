"""Runs: the round loop, settings, history and results, the run store, and sweeps."""

from fedlib.runs.plan import Plan, cohort_size, cohorts, prepare
from fedlib.runs.session import Session, rules

__all__ = ["Plan", "Session", "cohort_size", "cohorts", "prepare", "rules"]
