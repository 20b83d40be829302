"""The round loop, which can be interrupted and resumed at any time."""

import time
from collections.abc import Callable

from fedlib.algorithm import State, tuned
from fedlib.checkpoint import flatten, unflatten
from fedlib.runs.history import History, mark
from fedlib.runs.local_statistics import WithStatistics
from fedlib.runs.session import Session
from fedlib.runs.store import Checkpoint, RunFolder
from fedlib.training.evaluation import MixedEvaluation

SHARE = 0.05  # largest share of a run's time for checkpoints, except with checkpoint_seconds=0
Report = Callable[[int], None]  # called with the number of rounds done


def round_loop(
    session: Session, folder: RunFolder, saved: Checkpoint | None, history: History, report: Report
) -> State:
    """Run the remaining rounds; return the final state, on the host."""
    plan, device = session.plan, session.device
    setting, stacked = plan.setting, plan.setting.backend == "stacked"
    tests = [
        MixedEvaluation(session.images, part, session.architectures, stacked, bool(setting.client_metrics))
        for part in plan.federation.parts[1:]
    ]
    state = session.init()
    if saved is not None:
        state = unflatten(saved.tensors, state, device)
    patience, last_saved = setting.checkpoint_seconds, time.monotonic()

    for t in range(saved.round if saved is not None else 0, setting.rounds):
        start, cohort = mark(device), session.cohort(t)
        try:
            with session.drawing("round", t):
                state = checked(plan.algorithm.round(state, cohort), state, f"round {t + 1} of {plan.algorithm}")
        except Exception as error:
            error.add_note(f"in round {t + 1} of {plan.algorithm}")
            raise
        history.add_round(start, mark(device), cohort)
        last = t + 1 == setting.rounds
        if last or (t + 1) % setting.evaluate_every == 0:
            models = plan.algorithm.models(state)
            history.add_evaluation(t + 1, False, [test(models) for test in tests])
            if plan.algorithm.trace is not None:
                history.add_trace(plan.algorithm.trace(state))
        if setting.tune_epochs and (last or (t + 1) % setting.tune_every == 0):
            with session.drawing("tuning", t):
                models = tuned(plan.algorithm, state, session.everyone(t))
            history.add_evaluation(t + 1, True, [test(models) for test in tests])
        if last or time.monotonic() - last_saved >= patience:
            begin = time.monotonic()
            folder.save(Checkpoint(t + 1, flatten(state) | history.tensors()))
            last_saved = time.monotonic()
            patience = patience and max(setting.checkpoint_seconds, (last_saved - begin) / SHARE)
        report(t + 1)
    return unflatten(flatten(state), state)


def checked(new: State, state: State, where: str) -> State:
    """The state that a round returns; `TypeError` if its fields differ from those of the previous state."""
    returned, expected = (one.base if isinstance(one, WithStatistics) else one for one in (new, state))
    if getattr(returned, "_fields", type(returned)) != getattr(expected, "_fields", type(expected)):
        kind = "None" if returned is None else f"a {type(returned).__name__}"
        raise TypeError(f"{where} returned {kind}; it must return a {type(expected).__name__}, as its `init` does.")
    check_entries(where, returned, expected)
    return new


def check_entries(where: str, returned: State, expected: State) -> None:
    """Raise `TypeError` if a field that is a dict in both states lacks a name."""
    pairs = zip(expected, returned, strict=True) if isinstance(expected, tuple) else ()
    for then, now in ((then, now) for then, now in pairs if isinstance(then, dict) and isinstance(now, dict)):
        if lost := then.keys() - now.keys():
            raise TypeError(f"{where} returned weights without {min(lost)}; it must return all entries.")
