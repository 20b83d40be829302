"""Early stopping: the rounds of a run end once its accuracy on validation images no longer improves."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd
from tqdm import tqdm

from fedlib.algorithm import Algorithm
from fedlib.checkpoint import flatten
from fedlib.checks import check_count, check_flag, check_kind
from fedlib.federation import Federation
from fedlib.models import Models
from fedlib.runs.determinism import deterministic
from fedlib.runs.history import History
from fedlib.runs.plan import Plan
from fedlib.runs.prepare import prepare
from fedlib.runs.result import RunResult
from fedlib.runs.rounds import Report, round_loop
from fedlib.runs.run import carry_out
from fedlib.runs.session import Session
from fedlib.runs.setting import with_settings
from fedlib.runs.store import Checkpoint, RunFolder

MISSING = "{} needs validation images; give federate() a validation_fraction."


class EarlyStop(NamedTuple):
    """The rounds of the `best` evaluation and of the stop; `stopped` is None if the run has all its rounds."""

    best: int
    stopped: int | None


def early_stopping(result: RunResult, patience: int) -> EarlyStop:
    """Find the best round of a run and the round in which early stopping ends it, even if the run has more rounds.

    A run stops after `patience` consecutive evaluations whose accuracy on the validation images (mean over clients) is
    not above the best one so far. Test images are not used.

    Args:
        result: a run on a federation with validation images.
        patience: number of evaluations, at least 1.

    Returns:
        The round of the best evaluation up to the stop, and the round of the stop; None without a stop.

    Raises:
        ValueError: an argument is not allowed, or the federation has no validation images.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.iid(), clients=3, validation_fraction=0.2)
        >>> result = fl.run("fedavg", federation, "lenet5_plain", rounds=9, lr=1e-6, progress=False)
        >>> fl.early_stopping(result, patience=2)  # result.score(until=1) is the accuracy on test images
        EarlyStop(best=1, stopped=3)
    """
    check_kind("result", result, RunResult, "a RunResult, as fl.run returns it")
    check_count("patience", patience)
    if result.validation is None:
        raise ValueError(MISSING.format("early stopping"))
    stop = _stop(_scores(result.validation, result.when), patience)
    return stop if stop.stopped != result.config["rounds"] else stop._replace(stopped=None)


@with_settings
def run_early(
    algorithm: str | Algorithm,
    federation: Federation,
    model: Models = "lenet5",
    *,
    patience: int,
    progress: bool | Report = True,
    store: str | Path | None = None,
    **setting: Any,
) -> RunResult:
    """Run like `run`, with early stopping.

    A stopped run is stored like an interrupted one: `run` with the same arguments continues it, with the same bits as
    an uninterrupted run. If the run store already has more rounds, so has the result; `early_stopping` finds the same
    rounds in it.

    Args:
        algorithm: as for `run`.
        federation: as for `run`, with validation images.
        model: as for `run`.
        patience: as for `early_stopping`.
        progress: as for `run`.
        store: as for `run`.
        **setting: as for `run`.

    Returns:
        The run, with the models of its last round; if it was stopped, `rounds` has fewer rows than `config["rounds"]`.

    Raises:
        ValueError: an argument is not allowed, or the federation has no validation images.
        OSError: the run store cannot be used.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.iid(), clients=3, validation_fraction=0.2)
        >>> setting = dict(rounds=9, lr=1e-6, progress=False)
        >>> len(fl.run_early("fedavg", federation, "lenet5_plain", patience=2, **setting).rounds)
        3
    """
    patience = check_count("patience", patience)
    if not callable(progress):
        progress = check_flag("progress", progress)
    plan = prepare(algorithm, federation, model, **setting)
    if not federation.validation:
        raise ValueError(MISSING.format(f"patience={patience}"))
    with deterministic(plan.setting.device):
        with RunFolder(plan.config, store) as folder:
            done = _rounds(plan, folder, patience, progress, store)
            if done < plan.setting.rounds:
                with TemporaryDirectory() as copy:  # only a complete run has tables in its folder
                    shutil.copytree(folder.path, Path(copy) / folder.path.name)
                    shorter = plan._replace(setting=replace(plan.setting, rounds=done))
                    return replace(carry_out(shorter, None, False, copy), folder=folder.path)
        return carry_out(plan, None, False, store)


def _rounds(plan: Plan, folder: RunFolder, patience: int, progress: bool | Report, store: str | Path | None) -> int:
    """Carry out the rounds until the stop; return the round of the last checkpoint."""
    method, history, saved = plan.algorithm, History.of(plan.federation), folder.load()
    when = "after" if method.tune_epochs and plan.setting.tune_epochs else "before"
    scores: dict[int, float] = {}
    seen = done = 0
    latest: list[Any] = []

    def ended() -> bool:
        nonlocal seen
        since = {name: getattr(history, name)[seen:] for name in ("marks", "correct", "loss")}
        seen = len(history.marks)
        scores.update(_scores(replace(history, **since, metrics=[]).validation(), when) if since["marks"] else {})
        return _stop(scores, patience).stopped is not None

    def round(state, cohort):
        latest[:] = [method.round(state, cohort)]
        return latest[0]

    def report(t: int) -> None:
        bar.update(t - bar.n)
        if callable(progress):
            progress(t)
        if seen < len(history.marks) and t < plan.setting.rounds and ended():
            folder.save(Checkpoint(t, flatten(latest[0]) | history.tensors()))
            raise _Stop

    if saved is not None:
        history.load(saved.tensors)
        done = saved.round
    if done == plan.setting.rounds or ended():
        return done
    session = Session(plan._replace(algorithm=method._replace(round=round)), store=store)
    hidden = callable(progress) or not progress
    bar = tqdm(total=plan.setting.rounds, initial=done, desc=str(method), unit="round", disable=hidden)
    with bar, suppress(_Stop):
        round_loop(session, folder, saved, history, report)
    return folder.rounds_done()


class _Stop(Exception):
    """Raised to leave the round loop."""


def _scores(rows: pd.DataFrame, when: str) -> dict[int, float]:
    """Accuracy by round, mean over clients."""
    return rows[rows["when"] == when].groupby("round")["accuracy"].mean().to_dict()


def _stop(scores: Mapping[int, float], patience: int) -> EarlyStop:
    """The best round (the first of several), and the round that ends `patience` evaluations without improvement."""
    best, worse = 0, 0
    for t, score in scores.items():
        if not best or score > scores[best]:
            best, worse = t, 0
        else:
            worse += 1
        if worse == patience:
            return EarlyStop(best, t)
    return EarlyStop(best, None)
