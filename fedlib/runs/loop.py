"""One run: the only round loop, from a plan to a `RunResult`, resumable at any moment."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from fedlib.algorithm import Algorithm, State, resolve
from fedlib.checks import check_choice, check_number
from fedlib.federation import Federation
from fedlib.files import write_text
from fedlib.models import MODELS, Model, build
from fedlib.runs.history import History
from fedlib.runs.result import RunResult
from fedlib.runs.setting import Setting, setting
from fedlib.runs.store import Checkpoint, RunFolder, flatten, unflatten
from fedlib.training.batches import Images, on_device
from fedlib.training.cohort import TRAIN, TUNE, Cohort
from fedlib.training.evaluate import evaluate
from fedlib.training.losses import cross_entropy

COHORTS = 1  # purpose of the random stream that samples cohorts
Report = Callable[[int], None]  # is told the number of rounds done


class Plan(NamedTuple):
    """A run that has been checked and can start. `config` is all of it, in words; it names the run's folder."""

    algorithm: Algorithm
    federation: Federation
    model: Model
    setting: Setting
    config: dict[str, Any]


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

    `arguments` are the fields of `fedlib.runs.setting.Setting`: rounds (required), join_ratio, local_epochs,
    batch_size, lr, seed, evaluate_every, tune_epochs, backend, device, dtype. A CPU run uses one thread: run
    several side by side with `fl.sweep`. `progress` shows a bar, or is a function that is told the number of rounds
    done; `store` is the run store (default: FEDLIB_RUNS, else the user's cache).

    An interrupted run continues from its last checkpoint and ends with the same bits. Raises `ValueError` for an
    argument that is not allowed, before any work starts.
    """
    check_number("checkpoint_seconds", checkpoint_seconds, 0)
    plan = prepare(algorithm, federation, model, **arguments)
    on_cpu = plan.setting.device == "cpu"
    with RunFolder(plan.config, store) as folder, _threads(1 if on_cpu else torch.get_num_threads()):
        return _finish(plan, folder, progress, checkpoint_seconds)


def prepare(algorithm: str | Algorithm, federation: Federation, model: str = "lenet5", **arguments: Any) -> Plan:
    """Check the arguments of `run` and settle what is left to defaults. Raises `ValueError`."""
    algorithm, own = resolve(algorithm), setting(**arguments)
    check_choice("model", model, MODELS)
    config = {
        "algorithm": algorithm.name,
        "hyper": dict(algorithm.hyper),
        "code": algorithm.code,
        "data": federation.data.name,
        "partition": str(federation.partition),
        "clients": federation.n_clients,
        "test_fraction": federation.test_fraction,
        "partition_seed": federation.seed,
        "federation": federation.fingerprint,
        "model": model,
        **asdict(own),
    }
    shape, n_classes = federation.data.x.shape[1:], len(federation.data.classes)
    built = build(model, MODELS[model], shape, n_classes, own.seed)
    device, dtype = torch.device(own.device), getattr(torch, own.dtype)
    weights = {name: t.to(device, dtype) for name, t in built.weights.items()}
    return Plan(algorithm, federation, built._replace(weights=weights), own, config)


def cohorts(n_clients: int, join_ratio: float, rounds: int, seed: int) -> list[np.ndarray]:
    """The clients of every round, drawn up front from their own stream: int64 [k] each, ascending."""
    k = max(math.floor(join_ratio * n_clients + 1e-9), 1)
    rng = np.random.default_rng((seed, COHORTS))
    return [np.sort(rng.choice(n_clients, k, replace=False)) for _ in range(rounds)]


def _finish(plan: Plan, folder: RunFolder, progress: bool | Report, patience: float) -> RunResult:
    """Resume from the store, run what is left, return the result."""
    n_test = torch.tensor([len(own) for own in plan.federation.test])
    state, history, done = plan.algorithm.init(plan.model, plan.federation), History(n_test), 0
    if (saved := folder.load()) is not None:
        state = unflatten(saved.tensors, state, torch.device(plan.setting.device))
        history, done = History.from_tensors(n_test, saved.tensors), saved.round
    with _reporter(progress, str(plan.algorithm), plan.setting.rounds, done) as report:
        if done < plan.setting.rounds:
            state = _rounds(plan, folder, state, history, done, report, patience)
        for name, table in {"accuracy.csv": history.accuracy, "rounds.csv": history.rounds}.items():
            if not (folder.path / name).exists():  # also when a kill came between the last checkpoint and here
                write_text(folder.path / name, table().to_csv(index=False))
        report(plan.setting.rounds)
    models = plan.algorithm.models(state)
    return RunResult(plan.config, history.accuracy(), history.rounds(), models, state, plan.model, folder.path)


def _rounds(
    plan: Plan, folder: RunFolder, state: State, history: History, done: int, report: Report, patience: float
) -> State:
    """The round loop."""
    own, n_clients = plan.setting, plan.federation.n_clients
    images = on_device(plan.federation.data, torch.device(own.device), getattr(torch, own.dtype))
    sampled = cohorts(n_clients, own.join_ratio, own.rounds, own.seed)
    last_saved = time.monotonic()
    for t in range(done, own.rounds):
        start = time.perf_counter()
        cohort = _cohort(plan, images, sampled[t], t, TRAIN)
        state = plan.algorithm.round(state, cohort)
        loss = torch.stack([phase.mean() for phase in cohort.losses]).mean().item()
        seconds = time.perf_counter() - start
        history.costs.append((seconds, cohort.bytes_down, cohort.bytes_up, loss))
        last = t + 1 == own.rounds
        if last or (t + 1) % own.evaluate_every == 0:
            _evaluate(plan, images, plan.algorithm.models(state), history, t)
        if last or time.monotonic() - last_saved >= patience:
            folder.save(Checkpoint(t + 1, flatten(state) | history.tensors()))
            last_saved = time.monotonic()
        report(t + 1)
    return state


def _evaluate(plan: Plan, images: Images, models: dict[str, torch.Tensor], history: History, t: int) -> None:
    """Every client's own model on its own test part; with `tune_epochs`, a tuned copy as well."""
    stacks, n_clients = [models], plan.federation.n_clients
    if plan.setting.tune_epochs:
        everyone = _cohort(plan, images, np.arange(n_clients), t, TUNE)
        start = {name: w.expand(n_clients, *w.shape[1:]) for name, w in models.items()}
        stacks.append(everyone.train(cross_entropy, start, epochs=range(plan.setting.tune_epochs)))
    for tuned, stack in enumerate(stacks):
        correct, loss = evaluate(plan.model, images, stack, plan.federation.test)
        history.marks.append((t + 1, tuned))
        history.correct.append(correct)
        history.loss.append(loss)


def _cohort(plan: Plan, images: Images, clients: np.ndarray, t: int, purpose: int) -> Cohort:
    own = plan.setting
    return Cohort(
        model=plan.model,
        images=images,
        federation=plan.federation,
        clients=torch.as_tensor(clients, device=images.y.device),
        round=t,
        rounds=own.rounds,
        local_epochs=own.local_epochs,
        batch_size=own.batch_size,
        lr=own.lr,
        seed=own.seed,
        backend=own.backend,
        purpose=purpose,
    )


@contextmanager
def _threads(n: int) -> Iterator[None]:
    """One thread on a CPU: the same bits whatever the machine, and no oversubscription in a sweep."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _reporter(progress: bool | Report, title: str, rounds: int, done: int) -> Iterator[Report]:
    """The caller's own function, or one that moves a bar with round and ETA."""
    if callable(progress):
        yield progress
        return
    with tqdm(total=rounds, initial=done, desc=title, unit="round", disable=not progress) as bar:
        yield lambda t: bar.update(t - bar.n)
