"""Runs: resumed, repeated, refused. Nothing lost on a kill, nothing half-written."""

import errno
import inspect
import os
import re
from dataclasses import MISSING, fields
from email.utils import make_msgid
from typing import NamedTuple

import numpy as np
import pytest
import torch
from conftest import stopped
from methods import FACTORIES
from processes import start
from refusals import refused
from safetensors import SafetensorError
from sklearn.utils import shuffle
from torch import nn
from trees import distance, same_bits

import fedlib as fl
from fedlib import files
from fedlib.algorithm import Algorithm, Global, init_global, one_for_all
from fedlib.checkpoint import flatten
from fedlib.engine.backends import BACKENDS
from fedlib.methods.fedalt import State
from fedlib.runs import cluster, store
from fedlib.runs import run as running
from fedlib.runs.plan import cohorts
from fedlib.runs.prepare import prepare
from fedlib.runs.setting import Setting
from fedlib.runs.store import FORMAT
from fedlib.stack import Shared, client_mean
from fedlib.training import cross_entropy
from fedlib.training import train as train_locally

SETTING = dict(rounds=6, join_ratio=0.5, local_epochs=1, batch_size=8, lr=0.05, evaluate_every=2)


def same(a: fl.RunResult, b: fl.RunResult) -> bool:
    """Same models, same states and traces, same rounds and evaluations: to the bit."""
    states = same_bits(flatten(a.state), flatten(b.state)) and same_bits(a.trace, b.trace)
    rounds = a.rounds.drop(columns="seconds").equals(b.rounds.drop(columns="seconds"))
    return states and rounds and same_bits(a.models, b.models) and a.accuracy.equals(b.accuracy)


STOPPED = {name: (make(), 3, {}) for name, make in FACTORIES.items()}  # after round 3 of 4: in the second phase, if any
STOPPED |= {"fedcs": (fl.fedcs(every=3), 3, {})}  # aligned before and after the stop
STOPPED |= {f"pfedsim, {after}": (fl.pfedsim(), after, {}) for after in (1, 2)}
STOPPED |= {"pfedmb, one alpha": (fl.pfedmb(share_alpha=True), 3, {"tune_epochs": 1, "client_metrics": True})}
STOPPED |= {"fedper, own statistics": (fl.fedper(), 3, {"statistics": "local"})}
STOPPED |= {f"fedrep, {name}": (fl.fedrep(), 3, {"model": "m1", "backend": name}) for name in BACKENDS}  # draws dropout
LOSSY = {"seed": 2428, "dropout": 0.5, "stragglers": 0.6}  # nobody answers in the first and the last round
OF_LOSSY = ("fedavg", "fedap", "fedcs", "pfedhr", "pfedsim", "scaffold")
STOPPED |= {f"{name}, lossy": (FACTORIES[name](), 1, LOSSY) for name in OF_LOSSY}


@pytest.mark.parametrize("case", STOPPED)
def test_a_run_stopped_anywhere_resumes_to_the_same_bits(case, federation, tmp_path):
    method, after, changes = STOPPED[case]
    setting = SETTING | {"rounds": 4, "local_epochs": 2, "batch_size": 32} | changes
    whole = fl.run(method, federation, **setting, progress=False, store=tmp_path / "whole")
    stopped(after, method, federation, **setting, store=tmp_path / "parts")
    torch.rand(1)  # another process has another random state
    started = []
    resumed = fl.run(method, federation, **setting, progress=started.append, store=tmp_path / "parts")
    assert started[0] == after + 1  # it continued, it did not start again
    assert same(whole, resumed)
    assert resumed.rounds["round"].tolist() == [1, 2, 3, 4]
    assert same(fl.run(method, federation, **setting, progress=False, store=tmp_path / "parts"), whole)  # read


def train(tell, federation, store):
    """Twelve rounds: each of them is told, and the seconds of all at the end."""
    setting = SETTING | dict(rounds=12, batch_size=24, seed=3, evaluate_every=4, checkpoint_seconds=0)
    result = fl.run("pfedsim", federation, **setting, progress=tell, store=store)
    tell(result.rounds["seconds"].sum())
    return result


def test_a_killed_process_loses_nothing(federation, tmp_path):
    for stop_at in (3, 6):
        process, told = start(train, federation, tmp_path / "killed")
        assert any(t >= stop_at for t in told)
        process.kill()
        process.join()
        assert process.exitcode < 0
    process, told = start(train, federation, tmp_path / "killed")
    assert next(told) > 6  # it continued after the second kill
    *_, last, _ = told
    assert last == 12
    killed, whole = (train(print, federation, tmp_path / store) for store in ("killed", "whole"))  # the first is read
    assert same(killed, whole)
    assert killed.folder.name == whole.folder.name
    assert (killed.folder / "accuracy.csv").read_bytes() == (whole.folder / "accuracy.csv").read_bytes()
    assert not list(killed.folder.glob(".*.tmp"))


def test_a_finished_run_is_read_not_repeated_and_its_tables_written_if_a_kill_prevented_it(federation, monkeypatch):
    first = fl.run("fedavg", federation, **SETTING, progress=False)
    monkeypatch.setattr(running, "Session", lambda *_: pytest.fail("it trained again"))
    again = fl.run("fedavg", federation, **SETTING, progress=False)
    assert same(first, again)
    assert again.summary().equals(first.summary())
    written = {name: (first.folder / name).read_text() for name in ("accuracy.csv", "rounds.csv")}
    (first.folder / "accuracy.csv").unlink()
    (first.folder / "rounds.csv").unlink()
    fl.run("fedavg", federation, **SETTING, progress=False)
    assert {name: (first.folder / name).read_text() for name in written} == written


def test_every_argument_is_part_of_the_address_and_what_is_not_asked_for_is_not(federation):
    def config(**changes):
        return prepare("fedavg", federation, **SETTING | changes).config

    changes = dict(lr=0.06, seed=1, rounds=7, join_ratio=0.6, tune_epochs=1, dropout=0.1, stragglers=0.1)
    changes |= dict(optimizer="adam", statistics="local", client_metrics=True)
    assert len({store.address(config(**{name: value})) for name, value in changes.items()}) == len(changes)
    later = dict(optimizer="sgd", dropout=0, stragglers=0.0, client_metrics=False, tune_part=None)
    assert config(**later) == config()
    assert not later.keys() & config().keys()


def test_a_sweep_checks_every_cell_before_it_starts_one_and_an_absent_gpu_is_refused(
    federation, run_store, monkeypatch
):
    cells = [dict(algorithm="fedavg", federation=federation, **SETTING | {"lr": lr}) for lr in (0.1, -1)]
    refused("lr=-1 is not allowed", fl.sweep, cells, jobs=1, progress=False)
    refused(r"argument of cells\[1\]='modle'.*mean 'model'", fl.sweep, [cells[0], cells[0] | {"modle": "lenet5"}])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    cells[1] = cells[0] | {"device": "cuda"}
    absent = "device='cuda' is not allowed; torch finds no GPU on this machine"
    refused(absent, fl.sweep, cells, jobs=1, progress=False)
    refused(absent, fl.run, **cells[1], progress=False)
    assert not run_store.exists()


def test_cohorts_have_the_size_of_the_paper():
    plan = cohorts(100, 0.1, 200, seed=5)
    assert all(len(set(c.tolist())) == 10 for c in plan)
    assert len(cohorts(10, 0.01, 1, 0)[0]) == 1  # max(floor(rn), 1)
    assert len(cohorts(10, 0.7, 1, 0)[0]) == 7  # 0.7 * 10 is below 7 in floating point


def test_unseen_clients_never_train_and_are_evaluated_and_tuned(tiny):
    federation = fl.federate(tiny, fl.iid(), clients=6, unseen=2)
    result = fl.run("fedper", federation, **SETTING | {"join_ratio": 1.0}, tune_epochs=1, tune_every=3, progress=False)
    moved = (result.models["classifier.weight"] != result.model.weights["classifier.weight"]).flatten(1).any(1)
    assert moved.tolist() == [True] * 4 + [False] * 2
    assert set(result.accuracy["client"]) == set(range(6))
    rounds = result.accuracy.groupby("when")["round"].unique()
    assert (rounds["before"].tolist(), rounds["after"].tolist()) == ([2, 4, 6], [3, 6])
    assert (Setting(rounds=47).evaluate_every, Setting(rounds=47).tune_every) == (2, 2)  # about twenty times
    assert Setting(rounds=47, evaluate_every=5).tune_every == 5
    refused("unseen=6 is not allowed; .*, from 0 to 5", fl.federate, tiny, fl.iid(), clients=6, unseen=6)


@pytest.mark.parametrize("model", ["lenet5", lambda shape, n: nn.Sequential(nn.Flatten(), nn.Linear(256, n))])
def test_the_global_random_state_is_left_alone(model, federation):
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    expected = torch.rand(1), np.random.rand()  # noqa: NPY002
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    fl.run("fedavg", federation, model, **SETTING, progress=False)
    assert (torch.rand(1), np.random.rand()) == expected  # noqa: NPY002


def test_what_a_round_draws_comes_from_the_seed_of_the_run(federation, tmp_path):
    """Alone, stopped and resumed, and in a stack with runs that draw in between."""

    @fl.algorithm
    def noisy(sigma: float = 0.1) -> Algorithm:
        """FedAvg whose server adds noise, drawn by PyTorch, to the model that it sends."""

        def round(state, cohort):
            sent = {name: t + sigma * torch.randn_like(t) for name, t in state.w.items()}
            w = cohort.receive(train_locally(cohort, cross_entropy, cohort.broadcast(sent)))
            return Global(client_mean(w, cohort.n_samples))

        return Algorithm("noisy", init_global, round, models=one_for_all)

    cells = fl.grid(algorithm=noisy(), federation=federation, seed=[0, 1, 2], backend="stacked", **SETTING)
    torch.manual_seed(3)
    alone = [fl.run(**cell, progress=False, store=tmp_path / "alone") for cell in cells]
    torch.manual_seed(4)
    before = torch.get_rng_state()
    swept = fl.sweep(cells, jobs=1, progress=False, store=tmp_path / "swept").results
    stopped(3, **cells[0], store=tmp_path / "parts")
    resumed = fl.run(**cells[0], progress=False, store=tmp_path / "parts")
    assert torch.equal(torch.get_rng_state(), before)
    assert same(resumed, alone[0])
    for one, other in zip(alone, swept, strict=True):
        assert distance(one.models, other.models) < 1e-4
    assert not same(alone[0], alone[1])


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (None, "None; it must return a Global, as its `init` does."),
        ({"w": 1}, "a dict; it must return a Global, as its `init` does."),
        (torch.ones(1), "a Tensor; it must return a Global, as its `init` does."),
        (State(1, 2), "a State; it must return a Global, as its `init` does."),
        (Global({}), "weights without classifier.bias; it must return all entries."),
    ],
)
def test_a_round_that_returns_no_state_or_not_all_weights_is_one_sentence(returned, sentence, federation):
    @fl.algorithm
    def mine():
        def round(state, cohort):
            return state if cohort.round == 0 else returned

        return Algorithm("mine", init_global, round, models=one_for_all)

    with pytest.raises(TypeError) as refusal:
        fl.run(mine(), federation, **SETTING, progress=False)
    assert str(refusal.value) == f"round 2 of mine() returned {sentence}"


class Past(NamedTuple):
    w: dict
    past: object


COUNTS = []  # a value outside the state


@pytest.mark.parametrize(
    ("first", "later", "sentence"),
    [
        ((), lambda past: (*past, torch.ones(2)), "returned past/0 in its state; `init` must return a state with all"),
        ({"a": torch.ones(1)}, lambda past: past | {"b": torch.ones(2)}, "returned past/b in its state; `init`"),
        (None, lambda past: torch.ones(2), "past in the state of this algorithm is None; a state consists of tensors"),
        (torch.ones(1), lambda past: 0.5, "past in the state of this algorithm is 0.5; a state consists of tensors"),
        (torch.ones(1), lambda past: COUNTS.append(1) or past, "changes a value outside its state"),
        (torch.ones(1), lambda past: past * shuffle([1.0, 2.0])[0], "draws random numbers without a seed"),  # NumPy's
        (torch.ones(1), lambda past: past * len(make_msgid()), "draws random numbers without a seed"),  # Python's
        ({}, lambda past: past | {"b": torch.ones(2)}, ""),
        (Shared({"a": torch.ones(1)}), lambda past: {"a": torch.ones(6, 1)}, ""),
        (torch.ones(1), lambda past: past * float(np.random.default_rng(3).random() + torch.rand(())), ""),
    ],
)
def test_a_round_that_a_resumed_run_could_not_repeat_is_refused(first, later, sentence, federation, tmp_path):
    @fl.algorithm
    def mine():
        def round(state, cohort):
            return Past(state.w, later(state.past))

        return Algorithm("mine", lambda model, _: Past(model.weights, first), round, lambda state: Shared(state.w))

    if sentence:
        with pytest.raises((TypeError, ValueError), match=re.escape(sentence)) as refusal:
            fl.run(mine(), federation, **SETTING, progress=False)
        assert refusal.value.__notes__ == ["in round 1 of mine()"]
    else:
        stopped(1, mine(), federation, **SETTING)
        resumed, whole = (fl.run(mine(), federation, **SETTING, store=s, progress=False) for s in (None, tmp_path))
        assert same(resumed, whole)


def test_the_parameters_of_a_run_are_the_fields_of_its_setting_and_handed_on(federation, monkeypatch):
    parameters = {name: (own.default, own.annotation) for name, own in inspect.signature(fl.run).parameters.items()}
    none = {MISSING: inspect.Parameter.empty}
    settings = {own.name: (none.get(own.default, own.default), own.type) for own in fields(Setting)}
    around = ["algorithm", "federation", "model"], ["progress", "store", "debug"]
    assert list(parameters) == [*around[0], *settings, *around[1]]
    assert settings.items() <= parameters.items()
    assert all(re.search(rf"^ +{name}: ", fl.run.__doc__, re.MULTILINE) for name in parameters)
    other = {own.name: f"other {own.name}" for own in fields(Setting)}
    monkeypatch.setattr(running, "prepare", lambda *_, **arguments: pytest.fail(str(arguments == other)))
    with pytest.raises(pytest.fail.Exception, match="True"):
        fl.run("fedavg", federation, **other)


def test_an_algorithm_without_its_hyper_parameters_and_settings_that_lack_or_exclude_another_are_refused(federation):
    bare = fl.fedavg()._replace(made_of=())
    refused(r"put @fl.algorithm on the function", fl.run, bare, federation, **SETTING)
    refused("rounds is missing", fl.run, "fedavg", federation)
    refused("argument='local_epoch' is unknown .did you mean 'local_ep", fl.run, "fedavg", federation, local_epoch=3)
    adam = SETTING | {"optimizer": "adam", "momentum": 0.9}
    refused("momentum=0.9 is not allowed with optimizer='adam'; Adam has its own", fl.run, "fedavg", federation, **adam)


def test_the_run_store_may_be_in_the_home_folder_and_the_name_of_a_method_is_no_path(federation, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("FEDLIB_RUNS", "~/runs")
    assert fl.run("fedavg", federation, **SETTING, progress=False).folder.parent == tmp_path / "runs"
    store = tmp_path / "own" / "runs"
    method = fl.fedavg()._replace(name="../w/o BN" + 300 * "!")
    folder = fl.run(method, federation, **SETTING, store=store, progress=False).folder
    assert (folder.parent, [*store.parent.iterdir()]) == (store, [store])


@pytest.mark.parametrize("where", [8, 200, 0.3, 0.6, 0.99, None])  # in the header, a share of the file, or its end
def test_a_bit_that_has_flipped_or_is_missing_in_a_run_file_is_found(where, federation):
    file = fl.run("fedper", federation, **SETTING, progress=False).folder / "run.safetensors"
    content = bytearray(file.read_bytes())
    if where is None:
        del content[100:]
    else:
        content[int(where * len(content)) if where < 1 else where] ^= 1
    file.write_bytes(content)
    refused(rf"{file.name}' is damaged \(.*\); delete it to run again\.", fl.run, "fedper", federation, **SETTING)


def test_a_finished_run_of_another_user_is_read_and_an_unfinished_one_left_alone(federation, run_store, monkeypatch):
    first = fl.run("fedavg", federation, **SETTING, progress=False)
    assert {path.stat().st_mode & 0o777 for path in first.folder.iterdir()} == {files.MODE}
    (first.folder / "rounds.csv").unlink()
    stopped(3, "fedper", federation, **SETTING)

    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(store, "FileLock", denied)
    before = sorted(path for path in run_store.rglob("*"))
    assert same(fl.run("fedavg", federation, **SETTING, progress=False), first)
    with pytest.raises(OSError, match=r"The run store .* cannot be used \(Permission denied\)"):
        fl.run("fedper", federation, **SETTING, progress=False)
    assert sorted(path for path in run_store.rglob("*")) == before


def test_a_run_folder_of_another_version_is_refused(federation, monkeypatch):
    monkeypatch.setattr("fedlib.runs.store.FORMAT", "0")
    fl.run("fedavg", federation, **SETTING, progress=False)
    monkeypatch.setattr("fedlib.runs.store.FORMAT", FORMAT)
    refused(rf"another version of fedlib \(format 0, this one writes {FORMAT}", fl.run, "fedavg", federation, **SETTING)


def test_a_full_disk_is_one_sentence_and_leaves_the_last_checkpoint(federation, monkeypatch, run_store):
    real, written = os.fsync, []

    def full(handle):
        written.append(handle)
        if len(written) > 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"could not be written: .*No space left on device"):
        fl.run("fedavg", federation, **SETTING, progress=False, checkpoint_seconds=0)
    assert not list(run_store.rglob("*.tmp"))
    monkeypatch.setattr(files.os, "fsync", real)
    seen = []
    resumed = fl.run("fedavg", federation, **SETTING, progress=seen.append)
    assert seen[0] > 1
    assert same(resumed, fl.run("fedavg", federation, **SETTING, progress=False, store=run_store / "other"))


def test_a_disk_that_fills_up_while_tensors_are_written_is_the_same_sentence(federation, monkeypatch, run_store):
    def full(tensors, path, meta):
        path.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match=r"run\.safetensors' could not be written: .*No space left on device"):
        fl.run("fedavg", federation, **SETTING, progress=False)
    assert sorted(path.name for path in run_store.glob("*/*")) == ["config.json", "lock"]


def test_a_disk_that_fills_up_while_a_cluster_sends_a_run_leaves_no_finished_run(federation, monkeypatch, tmp_path):
    cell = dict(algorithm="fedavg", federation=federation, **SETTING)
    done = fl.run(**cell, store=tmp_path / "worker", progress=False).folder
    sent, written = cluster._files(done), []

    def write(path, content):
        if len(written) == len(sent) - 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(files.write_bytes(path, content))

    monkeypatch.setattr(cluster, "write_bytes", write)
    with pytest.raises(OSError, match="No space"):
        cluster._keep(cell, done.name, sent, tmp_path / "driver")
    assert {path.name for path in written} == {*sent} - {"run.safetensors"}


def test_a_store_that_cannot_be_written_is_one_sentence(federation, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match=r"The run store .* cannot be used"):
        fl.run("fedavg", federation, **SETTING, progress=False, store=tmp_path / "file")


def test_a_second_process_waits_for_the_first(federation, tmp_path):
    _, first = start(train, federation, tmp_path)
    assert next(first) == 1
    _, second = start(train, federation, tmp_path)
    *_, seconds = first
    assert [*second] == [12, seconds]  # it was trained once


SHORT = dict(rounds=3, join_ratio=0.5, batch_size=8, lr=0.05, seed=3)
QUIET = SHORT | {"progress": False}


def notes(error: pytest.ExceptionInfo) -> str:
    return "\n".join(error.value.__notes__)


def breaking(loss, broken_round: int = 99) -> Algorithm:
    def round(state, cohort):
        if cohort.round == broken_round:
            raise KeyError("nothing here")
        w_i = cohort.receive(train_locally(cohort, loss, cohort.broadcast(state.w), name="mine"))
        return Global(client_mean(w_i, cohort.n_samples))

    return Algorithm("broken", init_global, round, one_for_all, made_of=(breaking, loss))


def test_an_error_in_a_loss_says_round_client_step_and_samples_and_one_of_the_server_its_round(federation):
    sampled = fl.runs.Session(fl.runs.prepare("fedavg", federation, **SHORT)).sampled
    client = int(sampled[1][-1])
    sample = int(federation.train[client][2])
    first = next(t for t, ids in enumerate(sampled) if client in ids)

    def loss(w, batch):
        if (batch.index == sample).any():
            raise RuntimeError("this image is upside down")
        return cross_entropy(w, batch)

    with pytest.raises(RuntimeError, match="upside down") as error:
        fl.run(breaking(loss), federation, **QUIET, debug=True)
    assert f"in round {first + 1}, train, 'mine': client {client}, step " in notes(error)
    assert str(sample) in notes(error).split("samples ")[1].splitlines()[0].split(", ")
    assert f"in round {first + 1} of broken()" in notes(error)
    with pytest.raises(KeyError, match="nothing here") as error:
        fl.run(breaking(cross_entropy, broken_round=1), federation, **QUIET)
    assert notes(error) == "in round 2 of broken()"


def test_debugging_looks_at_single_clients_where_the_stack_is_asked_for(federation):
    seen = []

    def loss(w, batch):
        seen.append(batch.y.tolist())  # cannot be read inside of a stack
        return cross_entropy(w, batch)

    fl.run(breaking(loss), federation, **QUIET, backend="stacked", debug=True)
    assert {len(y) for y in seen} == {8}


def test_debugging_stops_where_the_loss_is_not_finite(federation):
    def loss(w, batch):
        return cross_entropy(w, batch) * torch.inf

    with pytest.warns(UserWarning, match=r"broken\(\): the loss is not finite from round 1 on \(lr=0\.05"):
        fl.run(breaking(loss), federation, **QUIET)  # now it is in the store, which does not matter
    with pytest.raises(FloatingPointError, match="the training loss is inf") as error:
        fl.run(breaking(loss), federation, **QUIET, debug=True)
    assert "in round 1, train, 'mine': client" in notes(error)


def test_debugging_changes_no_number(federation, tmp_path):
    plain, debugged = (fl.run("fedper", federation, **QUIET, store=tmp_path / str(d), debug=d) for d in (False, True))
    assert plain.accuracy.equals(debugged.accuracy)
    assert plain.folder.name == debugged.folder.name
