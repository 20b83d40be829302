"""One run: the only round loop, from a plan to a `RunResult`, resumable at any moment."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fedlib.algorithm import Algorithm, State, groups_of, tuned
from fedlib.checks import check_flag, check_number
from fedlib.federation import Federation
from fedlib.files import write_text
from fedlib.runs.history import History, mark
from fedlib.runs.plan import Plan, prepare
from fedlib.runs.result import RunResult
from fedlib.runs.session import Session, check_device, rules
from fedlib.runs.store import Checkpoint, RunFolder, flatten, unflatten
from fedlib.stack import for_each
from fedlib.training.evaluate import GroupEvaluation

SHARE = 0.05  # of a run's time that checkpoints may take, unless one is asked for after every round
Report = Callable[[int], None]  # is told the number of rounds done


def run(
    algorithm: str | Algorithm,
    federation: Federation,
    model: str = "lenet5",
    *,
    progress: bool | Report = True,
    store: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    **arguments: Any,
) -> RunResult:
    """Run `algorithm` on `federation`, or read the result if this very run is in the store.

    `model` is an architecture, or several of them, "m1+m2", dealt out evenly to the clients where a method allows it.
    `arguments` are the fields of `fedlib.runs.setting.Setting`: rounds (required), join_ratio, local_epochs,
    batch_size, lr, momentum, optimizer, lr_decay, lr_decay_every, seed, evaluate_every, tune_epochs, tune_every,
    tune_part, client_metrics, backend, device, dtype, graphs (False where a GPU cannot capture a CUDA graph: slower,
    the same numbers). A CPU run uses one thread: run several side by side with `fl.sweep`. `progress` shows a bar, or
    is a function that is told the number of rounds done; `store` is the run store (default: FEDLIB_RUNS, else the
    user's cache). A checkpoint is written every `checkpoint_seconds`, less often where that would take more than 5 %
    of the time; 0: after every round.

    An interrupted run continues from its last checkpoint and ends with the same bits. Raises `ValueError` for an
    argument that is not allowed, before any work starts.
    """
    check_number("checkpoint_seconds", checkpoint_seconds, 0)
    if not callable(progress):
        check_flag("progress", progress)
    plan = prepare(algorithm, federation, model, **arguments)
    with rules(plan.setting.device):
        return carry_out(plan, None, progress, store, checkpoint_seconds)


def carry_out(
    plan: Plan,
    session: Session | None,
    progress: bool | Report,
    store: str | Path | None,
    checkpoint_seconds: float = 30.0,
) -> RunResult:
    """Run a plan, in its session if there is one already, or read its result from the store; see `run`."""
    folder = RunFolder(plan.config, store)
    if not folder.file.exists():
        check_device(plan.setting)
    with folder:
        saved = folder.load()
        history, done = History.of(plan.federation), 0
        if saved is not None:
            history.load(saved.tensors)
            done = saved.round
        with _reporter(progress, str(plan.algorithm), plan.setting.rounds, done) as report:
            if done < plan.setting.rounds:
                session = session or Session(plan, store=store)
                state = _rounds(session, folder, saved, history, report, checkpoint_seconds)
            else:
                state = unflatten(saved.tensors, plan.algorithm.init(plan.model, plan.federation))
            tables = {"accuracy": history.accuracy(), "rounds": history.rounds()}
            if plan.federation.validation:
                tables["validation"] = history.validation()
            for name, table in tables.items():
                if not (folder.path / f"{name}.csv").exists():  # also after a kill behind the last checkpoint
                    write_text(folder.path / f"{name}.csv", table.to_csv(index=False))
            report(plan.setting.rounds)
    result = RunResult(
        config=plan.config,
        **tables,
        trace=history.traced(),
        models=for_each(plan.algorithm.models(state), plan.federation.n_clients),
        state=state,
        model=plan.model,
        groups=groups_of(plan.algorithm, plan.model, plan.federation),
        folder=folder.path,
        when="after" if plan.algorithm.tune_epochs and plan.setting.tune_epochs else "before",
    )
    if result.diverged is not None:
        about = f"the training loss is not finite from round {result.diverged} on (lr={plan.setting.lr})"
        warnings.warn(f"{plan.algorithm}: {about}", stacklevel=2)
    return result


def _rounds(
    session: Session,
    folder: RunFolder,
    saved: Checkpoint | None,
    history: History,
    report: Report,
    checkpoint_seconds: float,
) -> State:
    """The round loop; returns the final state, on the host."""
    plan, device = session.plan, session.device
    setting, stacked = plan.setting, plan.setting.backend == "stacked"
    tests = [
        GroupEvaluation(session.images, part, session.groups, stacked, bool(setting.client_metrics))
        for part in plan.federation.parts[1:]
    ]
    state = session.init()
    if saved is not None:
        state = unflatten(saved.tensors, state, device)
    patience, last_saved = checkpoint_seconds, time.monotonic()

    for t in range(saved.round if saved is not None else 0, setting.rounds):
        start, cohort = mark(device), session.cohort(t)
        state = plan.algorithm.round(state, cohort)
        history.add_round(start, mark(device), cohort.meter)
        last = t + 1 == setting.rounds
        if last or (t + 1) % setting.evaluate_every == 0:
            models = plan.algorithm.models(state)
            history.add_evaluation(t + 1, False, [test(models) for test in tests])
            if plan.algorithm.trace is not None:
                history.add_trace(plan.algorithm.trace(state))
        if setting.tune_epochs and (last or (t + 1) % setting.tune_every == 0):
            models = tuned(plan.algorithm, state, session.everyone(t))
            history.add_evaluation(t + 1, True, [test(models) for test in tests])
        if last or time.monotonic() - last_saved >= patience:
            begin = time.monotonic()
            folder.save(Checkpoint(t + 1, flatten(state) | history.tensors()))
            last_saved = time.monotonic()
            patience = checkpoint_seconds and max(checkpoint_seconds, (last_saved - begin) / SHARE)
        report(t + 1)
    return unflatten(flatten(state), state)


@contextmanager
def _reporter(progress: bool | Report, title: str, rounds: int, done: int) -> Iterator[Report]:
    """The caller's own function, or one that moves a bar with round and ETA."""
    if callable(progress):
        yield progress
        return
    with tqdm(total=rounds, initial=done, desc=title, unit="round", disable=not progress) as bar:
        yield lambda t: bar.update(t - bar.n)
