"""Runs: settings, the round loop, history and results, the run store, and sweeps."""

from fedlib.runs.determinism import deterministic
from fedlib.runs.plan import Plan, cohort_size, cohorts
from fedlib.runs.prepare import prepare
from fedlib.runs.session import Session

__all__ = ["Plan", "Session", "cohort_size", "cohorts", "deterministic", "prepare"]
