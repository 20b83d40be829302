"""Runs: settings, the round loop, history and results, the run store, and sweeps."""

from fedlib.runs.determinism import deterministic
from fedlib.runs.prepare import prepare
from fedlib.runs.session import Plan, Session, cohort_size, cohorts

__all__ = ["Plan", "Session", "cohort_size", "cohorts", "deterministic", "prepare"]
