"""The round loop: from a plan to a `RunResult`; it can be interrupted and resumed at any moment."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from tqdm import tqdm

from fedlib.algorithm import Algorithm, State, architectures_of, tuned
from fedlib.checks import above, at_least, at_most, below, check_flag
from fedlib.federation import Federation
from fedlib.files import write_text
from fedlib.models import Models
from fedlib.runs.history import History, mark
from fedlib.runs.plan import Plan, prepare
from fedlib.runs.result import RunResult
from fedlib.runs.session import Session, check_device, rules
from fedlib.runs.setting import Count, Setting, Share, in_words
from fedlib.runs.store import Checkpoint, RunFolder, flatten, unflatten
from fedlib.stack import for_each
from fedlib.training.evaluation import MixedEvaluation
from fedlib.training.local_statistics import WithStatistics
from fedlib.training.loop import train_loop

SHARE = 0.05  # largest share of a run's time for checkpoints, except with checkpoint_seconds=0
Report = Callable[[int], None]  # called with the number of rounds done


@in_words
def run(
    algorithm: str | Algorithm,
    federation: Federation,
    model: Models = "lenet5",
    *,
    rounds: Count,
    join_ratio: Share = 1.0,
    local_epochs: Count = 1,
    batch_size: Count = 32,
    lr: Annotated[float, above(0)] = 0.01,
    momentum: Annotated[float, at_least(0), below(1)] = 0.0,
    optimizer: Literal["sgd", "adam"] = "sgd",
    lr_decay: Share = 1.0,
    lr_decay_every: Count = 1,
    seed: Annotated[int, at_least(0)] = 0,
    evaluate_every: Count | None = None,
    tune_epochs: Annotated[int, at_least(0)] | None = None,
    tune_every: Count | None = None,
    tune_part: Literal["personal"] | None = None,
    statistics: Literal["shared", "local"] = "shared",
    pixels: Literal["unit", "raw"] = "unit",
    dropout: Annotated[float, at_least(0), below(1)] = 0.0,
    stragglers: Annotated[float, at_least(0), at_most(1)] = 0.0,
    client_metrics: bool | None = None,
    backend: Literal["auto", "loop", "stacked"] = "auto",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    dtype: Literal["float32", "float64"] = "float32",
    graphs: bool = True,
    checkpoint_seconds: Annotated[float, at_least(0)] = 30.0,
    progress: bool | Report = True,
    store: str | Path | None = None,
    debug: bool = False,
) -> RunResult:
    """Run `algorithm` on `federation`, or read the result if the same run is in the run store.

    The same arguments give the same bits. An interrupted run continues from its last checkpoint and gives the same bits
    as an uninterrupted one. On a CPU a run uses one thread; `fl.sweep` runs several at the same time.

    Args:
        algorithm: a method, `fl.pfedsim(generalization=0.5)`, or its name, with the defaults of the paper
            (`fl.algorithms()` lists them).
        federation: the clients and their data, as `fl.federate` makes them.
        model: the name of an architecture (`fl.models()` lists them), or your own function or class that takes a shape
            (channels, height, width) and a number of classes and returns a `torch.nn.Module`; see below. Several
            architectures, "m1+m2" or a list, are assigned evenly to the clients if the method allows it.
        rounds: communication rounds, at least 1.
        join_ratio: share of the clients in each round, in (0, 1]: max(floor(join_ratio * n_clients), 1) clients are
            sampled, the same for every method.
        local_epochs: epochs of each sampled client per round, at least 1.
        batch_size: images per mini-batch, at least 1.
        lr: step size of the clients, above 0.
        momentum: of SGD, in [0, 1). It starts at zero in every local phase.
        optimizer: "sgd", or "adam" with moments 0.9 and 0.999, which start at zero in every local phase.
        lr_decay: factor in (0, 1] by which `lr` is multiplied every `lr_decay_every` rounds.
        lr_decay_every: rounds, at least 1.
        seed: of initial weights, sampled clients and mini-batches, at least 0.
        evaluate_every: rounds between evaluations, at least 1; the last round is always evaluated. None: about 20
            evaluations in all.
        tune_epochs: epochs of fine-tuning, at least 0. A copy of every client's model is fine-tuned on the client's
            train samples and evaluated as well. None: the default of the method, 0 for most.
        tune_every: rounds between evaluations after fine-tuning, at least 1; the last round has one. None: as
            `evaluate_every`.
        tune_part: "personal": only the personal entries of the model are fine-tuned. None: the default of the method,
            the whole model for most.
        statistics: of BatchNorm. "shared": they are treated like weights; "local": they are never sent, and each
            client trains and is evaluated with its own, as in published code of pFedSim.
        pixels: "unit": (pixel - mean) / std, with pixels, mean and std in [0, 1]; "raw": pixels from 0 to 255, but the
            same mean and std, as in published code of pFedSim.
        dropout: probability, in [0, 1), that a sampled client does not answer in a round. It receives what the server
            sends before clients train or send, which counts as downloaded; it uploads nothing and keeps its old state,
            and the others carry out the round. A round in which nobody answers changes nothing.
        stragglers: probability, from 0 to 1, that a sampled client does only a part of its training in a round: of each
            local training it takes the first steps, a number drawn uniformly from 1 to all of them, and its result
            counts like any other. The experiments of FedProx (section 5.2) do so with whole epochs; their FedAvg leaves
            such clients out, as `dropout` does. Fine-tuning is always complete.
        client_metrics: True: evaluations also contain the weighted F1 and AUC [%] of every client.
        backend: "loop": one client after the other; "stacked": all clients of a round at once; "auto": stacked on a
            GPU, else loop. They agree up to rounding.
        device: "cpu", "cuda", or "auto": a GPU if there is one.
        dtype: of weights and images, "float32" or "float64".
        graphs: True: a GPU replays each training step as one CUDA graph. False: it starts the kernels one by one, which
            is slower; needed if a graph cannot be captured. The bits are the same, so the address of a run does not
            depend on it.
        checkpoint_seconds: seconds between checkpoints, at least 0 (after every round). The time is extended if
            checkpoints would take more than 5 % of the run.
        progress: show a bar; or a function that is called with the number of rounds done.
        store: folder of the run store. None: the environment variable FEDLIB_RUNS, else a folder in the user's cache.
        debug: True: train one client after the other on any device, so that an error names the round, client and step
            in which it was raised; a training loss that is not finite is an error, too. The run store is neither read
            nor written.

    Your own model must draw its initial weights with torch, train all of them, and have no buffers other than the
    running statistics of BatchNorm. Its output must be the output of its last `nn.Linear`: logits [batch, n_classes].
    A weight with several names, such as a tied one, counts once, under its first name; the last layer has its own.
    Its code, with all helpers that it calls, is part of the run's address.

    Returns:
        The evaluations, costs and final models of the run, and where they are stored.

    Raises:
        ValueError: an argument is not allowed; raised before any work starts.
        OSError: the run store cannot be used.

    Example:
        >>> import fedlib as fl
        >>> federation = fl.federate(fl.load("digits"), fl.dirichlet(alpha=0.5), clients=10)
        >>> result = fl.run("fedavg", federation, rounds=2, lr=0.05, progress=False)
        >>> result.accuracy.columns.tolist()
        ['round', 'client', 'n_test', 'accuracy', 'loss', 'when']
        >>> len(result.accuracy)  # ten clients after each of two rounds
        20
    """
    given = locals()
    if not callable(progress):
        progress = check_flag("progress", progress)
    debug = check_flag("debug", debug)
    setting = {field.name: given[field.name] for field in fields(Setting)} | ({"backend": "loop"} if debug else {})
    plan = prepare(algorithm, federation, model, **setting)
    with rules(plan.setting.device):
        if not debug:
            return carry_out(plan, None, progress, store)
        with TemporaryDirectory() as folder:
            session = Session(plan, trainer=partial(train_loop, check=True))
            return carry_out(plan, session, progress, folder)


def carry_out(plan: Plan, session: Session | None, progress: bool | Report, store: str | Path | None) -> RunResult:
    """Run a plan, in `session` or in a new one, or read its result from the store; see `run`."""
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
                state = _rounds(session, folder, saved, history, report)
            else:
                state = unflatten(saved.tensors, plan.algorithm.init(plan.model, plan.federation))
            tables = {"accuracy": history.accuracy(), "rounds": history.rounds()}
            if plan.federation.validation:
                tables["validation"] = history.validation()
            for name, table in tables.items():
                if (
                    folder.writable and not (folder.path / f"{name}.csv").exists()
                ):  # also if killed after the last checkpoint
                    write_text(folder.path / f"{name}.csv", table.to_csv(index=False))
            report(plan.setting.rounds)
    result = RunResult(
        config=plan.config,
        **tables,
        trace=history.traced(),
        models=for_each(plan.algorithm.models(state), plan.federation.n_clients),
        state=state,
        model=plan.model,
        architectures=architectures_of(plan.algorithm, plan.model, plan.federation),
        folder=folder.path,
        when="after" if plan.algorithm.tune_epochs and plan.setting.tune_epochs else "before",
    )
    if result.diverged is not None:
        about = f"the loss is not finite from round {result.diverged} on (lr={plan.setting.lr})"
        warnings.warn(f"{plan.algorithm}: {about}", stacklevel=2)
    return result


def _rounds(
    session: Session,
    folder: RunFolder,
    saved: Checkpoint | None,
    history: History,
    report: Report,
) -> State:
    """The round loop; returns the final state, on the host."""
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
    """The state that a round returns; `TypeError` if it has not the fields of the state before."""
    found, wanted = (one.base if isinstance(one, WithStatistics) else one for one in (new, state))
    if getattr(found, "_fields", type(found)) != getattr(wanted, "_fields", type(wanted)):
        kind = "None" if found is None else f"a {type(found).__name__}"
        raise TypeError(f"{where} returned {kind}; it must return a {type(wanted).__name__}, as its `init` does.")
    return new


@contextmanager
def _reporter(progress: bool | Report, title: str, rounds: int, done: int) -> Iterator[Report]:
    """`progress` itself if it is a function, else a function that moves a bar."""
    if callable(progress):
        yield progress
        return
    with tqdm(total=rounds, initial=done, desc=title, unit="round", disable=not progress) as bar:
        yield lambda t: bar.update(t - bar.n)
