"""`fl.run`: from its arguments to a `RunResult`."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from fedlib.algorithm import Algorithm, architectures_of
from fedlib.checkpoint import unflatten
from fedlib.checks import check_flag
from fedlib.engine.loop import train_loop
from fedlib.federation import Federation
from fedlib.files import write_text
from fedlib.models import Models
from fedlib.runs.determinism import deterministic
from fedlib.runs.history import History
from fedlib.runs.plan import Plan
from fedlib.runs.prepare import prepare
from fedlib.runs.result import RunResult
from fedlib.runs.rounds import Report, round_loop
from fedlib.runs.session import Session, check_device
from fedlib.runs.setting import with_settings
from fedlib.runs.store import RunFolder
from fedlib.stack import for_each


@with_settings
def run(
    algorithm: str | Algorithm,
    federation: Federation,
    model: Models = "lenet5",
    *,
    progress: bool | Report = True,
    store: str | Path | None = None,
    debug: bool = False,
    **setting: Any,
) -> RunResult:
    """Run `algorithm` on `federation`, or read the result if the same run is in the run store.

    The same arguments give the same bits. An interrupted run continues from its last checkpoint and gives the same bits
    as an uninterrupted one. On a CPU a run uses one thread; `fl.sweep` runs several at the same time.

    Args:
        algorithm: a method, `fl.pfedsim(generalization=0.5)`, or the name of one, for the defaults of the
            paper (`fl.algorithms()` lists the names).
        federation: the clients and their data, as `fl.federate` makes them.
        model: the name of an architecture (`fl.models()` lists them), or your own function or class that takes a shape
            (channels, height, width) and a number of classes and returns a `torch.nn.Module`; see below. Several
            architectures, "m1+m2" or a list, are assigned evenly to the clients if the method allows it.
        rounds: communication rounds, at least 1.
        join_ratio: share of the clients in each round, in (0, 1]: max(floor(join_ratio * n_clients), 1) clients are
            sampled, the same ones for every method.
        local_epochs: epochs of each sampled client per round, at least 1.
        batch_size: images per mini-batch, at least 1. The last batch of an epoch is filled up with images of the
            epoch; so is every batch of a client with fewer images.
        lr: step size of the clients, above 0.
        momentum: momentum of SGD, in [0, 1); the velocity starts at zero in every local phase.
        optimizer: "sgd", or "adam" with betas 0.9 and 0.999; its moments start at zero in every local phase.
        lr_decay: factor in (0, 1] by which `lr` is multiplied every `lr_decay_every` rounds.
        lr_decay_every: number of rounds, at least 1.
        seed: seed of initial weights, sampled clients and mini-batches, at least 0.
        evaluate_every: rounds between evaluations, at least 1; the last round is always evaluated. None: about 20
            evaluations in all.
        tune_epochs: epochs of fine-tuning, at least 0. A copy of every client's model is fine-tuned on the client's
            training samples and evaluated as well. None: the default of the method, 0 for most.
        tune_every: rounds between evaluations after fine-tuning, at least 1; the last round always has one.
            None: `evaluate_every`.
        tune_part: "personal": only the personal entries of the model are fine-tuned. None: the default of the method,
            the whole model for most.
        statistics: BatchNorm statistics. "shared": they are treated like weights; "local": they are never sent, and
            each client trains and is evaluated with its own statistics, as in the published code of pFedSim.
        pixels: "unit": (pixel - mean) / std, with pixels, mean and std in [0, 1]; "raw": pixels from 0 to 255, but the
            same mean and std, as in the published code of pFedSim.
        dropout: probability, in [0, 1), that a sampled client drops out of a round. Only downloads that
            are sent before a client trains or sends reach it and are counted; it uploads nothing and keeps its old
            state, and the others carry out the round. A round without remaining clients changes nothing.
        stragglers: probability, in [0, 1], that a sampled client does only a part of its training in a round: the first
            steps of each local training, a share drawn uniformly for the round, at least one step. Its result counts
            like any other. FedProx's experiments (section 5.2) do so with whole epochs; their FedAvg leaves such
            clients out, as `dropout` does. Fine-tuning is always complete.
        client_metrics: True: evaluations also contain the weighted F1 and AUC [%] of every client.
        backend: "loop": one client after the other; "stacked": all clients of a round at once; "auto": stacked on a
            GPU, else loop. Both agree up to rounding, except that dropout layers of a model draw other masks.
        device: "cpu", "cuda", or "auto": a GPU if there is one.
        dtype: type of weights and images, "float32" or "float64".
        graphs: True: a GPU replays each training step as one CUDA graph. False: it launches the kernels one by one;
            this is slower, but necessary if a graph cannot be captured. The bits are the same, so the address of a run
            does not depend on it.
        checkpoint_seconds: seconds between checkpoints, at least 0 (a checkpoint after every round). The time is
            extended if checkpoints would take more than 5 % of the run.
        progress: show a bar; or a function that is called with the number of rounds done.
        store: folder of the run store. None: the environment variable FEDLIB_RUNS, else a folder in the user's cache.
        debug: True: train one client after the other on any device, so that an error names the round, client and step
            in which it was raised; a training loss that is not finite is an error, too. The run store is neither read
            nor written.

    Your own model must draw its initial weights with torch, train all of them, and have no buffers other than the
    running statistics of BatchNorm. Its output must be the output of its last `nn.Linear`: logits [batch, n_classes].
    A weight with several names, such as a tied one, counts once, under its first name; the last layer must not be tied.
    Its code, with all helpers that it calls, is part of the run's address.

    Returns:
        The evaluations, costs and final models of the run, and the folder in which they are stored.

    Raises:
        ValueError: an argument is not allowed; raised before any work starts, or in the first round if the method
            cannot use the model, the federation or a setting.
        OSError: the run store cannot be used.

    Example:
        >>> federation = fl.federate(fl.load("digits"), fl.dirichlet(alpha=0.5), clients=10)
        >>> result = fl.run("fedavg", federation, rounds=2, lr=0.05, progress=False)
        >>> result.accuracy.columns.tolist()
        ['round', 'client', 'n_test', 'accuracy', 'loss', 'when']
        >>> len(result.accuracy)  # ten clients after each of two rounds
        20
    """
    if not callable(progress):
        progress = check_flag("progress", progress)
    debug = check_flag("debug", debug)
    plan = prepare(algorithm, federation, model, **setting | ({"backend": "loop"} if debug else {}))
    with deterministic(plan.setting.device):
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
                state = round_loop(session, folder, saved, history, report)
            else:
                state = unflatten(saved.tensors, plan.algorithm.init(plan.model, plan.federation))
            tables = {"accuracy": history.accuracy(), "rounds": history.rounds()}
            if plan.federation.validation:
                tables["validation"] = history.validation()
            for name, table in tables.items():
                path = folder.path / f"{name}.csv"  # also missing in a run killed after its last checkpoint
                if folder.writable and not path.exists():
                    write_text(path, table.to_csv(index=False))
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


@contextmanager
def _reporter(progress: bool | Report, title: str, rounds: int, done: int) -> Iterator[Report]:
    """The function `progress`, or a function that moves a progress bar."""
    if callable(progress):
        yield progress
        return
    with tqdm(total=rounds, initial=done, desc=title, unit="round", disable=not progress) as bar:
        yield lambda t: bar.update(t - bar.n)
