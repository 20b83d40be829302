"""Clients that drop out have no effect except their download; stragglers; BatchNorm statistics that stay at home."""

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import test_oracles_shared
import torch
from methods import FACTORIES
from oracle import Oracle, assert_models, assert_tested
from refusals import refused
from test_contract import without_progress
from test_influence import ASKS_ABSENT_CLIENTS, shuffled
from torch.utils._pytree import tree_leaves
from trees import distance, same_bits

import fedlib as fl
from fedlib.algorithm import Algorithm, Global, init_global, one_for_all
from fedlib.engine.backends import BACKENDS
from fedlib.engine.loop import train_loop
from fedlib.runs.plan import cohorts
from fedlib.runs.prepare import prepare
from fedlib.runs.session import Session
from fedlib.stack import keys
from fedlib.streams import generator
from fedlib.training import cross_entropy, train

SETTING = dict(rounds=6, join_ratio=0.5, local_epochs=2, batch_size=32, lr=0.05, evaluate_every=1, progress=False)
# Of three sampled clients so many answer in the six rounds; clients 0 and 3 are sampled, too, and never answer.
LOSSY, ANSWERS, HEARD = {"seed": 2428, "dropout": 0.5}, np.array([0, 1, 2, 0, 2, 3]), [1, 2, 4, 5]
HARSH = SETTING | LOSSY | {"stragglers": 0.6, "dtype": "float64", "tune_epochs": 0}


def answers(seed: int, dropout: float, rounds: int, k: int) -> np.ndarray:
    """Who of the k sampled clients answers in each round: bool [rounds, k]."""
    return generator(seed, "dropout").random((rounds, k)) >= dropout


def shares(seed: int, stragglers: float, rounds: int, k: int) -> np.ndarray:
    """The share of its steps that each of the sampled clients takes, from 0 (excluded) to 1: [rounds, k]."""
    late, left_out = generator(seed, "stragglers").random((rounds, 2, k)).swapaxes(0, 1)
    return np.where(late < stragglers, 1 - left_out, 1)


@pytest.fixture(scope="module")
def run(federation, tmp_path_factory):
    """A function that runs a method with `HARSH` and changes; a run that several tests want is run once."""
    store = tmp_path_factory.mktemp("unreliable")
    return lambda method, **changes: fl.run(method, federation, **HARSH | changes, store=store)


def test_the_backends_agree_and_a_round_that_nobody_answers_changes_nothing(method, run):
    loop, stacked = (run(method, backend=backend) for backend in BACKENDS)
    # With a single upload FedKEMF distils a network from itself: Adam makes steps of rounding errors.
    assert distance(loop.models, stacked.models) < (1e-3 if method.name == "fedkemf" else 1e-5)
    seen = {t: rows.drop(columns="round").reset_index(drop=True) for t, rows in loop.accuracy.groupby("round")}
    assert seen[4].equals(seen[3])
    assert not seen[5].equals(seen[4])
    assert (loop.rounds["train_loss"] == 0).tolist() == (ANSWERS == 0).tolist()
    columns = ["bytes_down", "bytes_up"]
    assert loop.rounds[columns].equals(stacked.rounds[columns])
    assert loop.rounds["bytes_up"][ANSWERS == 0].sum() == 0


def test_who_never_answers_has_no_influence_and_keeps_its_state(method, run, federation, tmp_path):
    """Other images for clients 0 and 3: all others, and their own models, stay what they are.

    FedSimSup's server moves everybody's model, whether sampled or not, by the label counts that all have sent.
    """
    if method.name in ASKS_ABSENT_CLIENTS:
        pytest.skip("it asks clients that are not sampled, once")
    other = shuffled(federation, np.concatenate([federation.train[i] for i in range(6) if i not in HEARD]))
    plain, changed = run(method), fl.run(method, other, **HARSH, store=tmp_path)
    assert plain.folder.name != changed.folder.name
    same = HEARD if method.name == "fedsimsup" else range(6)
    assert all(same_bits(plain.weights(i), changed.weights(i)) for i in same)
    third = fl.run(method, shuffled(federation, federation.train[HEARD[0]]), **HARSH, store=tmp_path)
    assert not same_bits(plain.weights(HEARD[0]), third.weights(HEARD[0]))


class Unreliable(Oracle):
    def __init__(self, *args, **setting):
        super().__init__(*args, dropout=0.3, stragglers=0.7, **setting)
        rounds, k = len(self.rounds), len(self.cohorts[0])
        there, share = (draw(self.seed, p, rounds, k) for draw, p in ((answers, 0.3), (shares, 0.7)))
        self.done = [dict(zip(ids, row, strict=True)) for ids, row in zip(self.cohorts, share, strict=True)]
        self.cohorts = [np.array(ids)[heard].tolist() for ids, heard in zip(self.cohorts, there, strict=True)]
        assert all(self.cohorts)
        assert sum(map(len, self.cohorts)) < rounds * k
        assert any(0 < part < 1 for own in self.done for part in own.values())

    def batches(self, i, t, *which, purpose="train", **how):
        whole = list(super().batches(i, t, *which, purpose=purpose, **how))
        return islice(whole, math.ceil((self.done[t][i] if purpose == "train" else 1) * len(whole)))


ORACLES = [("fedavg",), ("fedprox",), ("fedrep",), ("ditto",), ("scaffold", 0.3), ("apfl", 0.3, True)]
ORACLES += [("fedbabu", "all")]


@pytest.mark.parametrize("which", ORACLES, ids=lambda which: which[0])
def test_the_oracles_of_methods_hold_for_those_who_answer_and_what_they_have_done(which, monkeypatch):
    """`scaffold` divides by the steps that a client has taken, `fedavg` by the samples of those who answer."""
    monkeypatch.setattr(test_oracles_shared, "Oracle", Unreliable)
    name, *arguments = which
    getattr(test_oracles_shared, f"test_{name}")(*arguments)


@pytest.mark.parametrize("statistics", ["shared", "local"])
@pytest.mark.parametrize("name", ["fedavg", "ditto", "fedbabu", "scaffold", "feddyn", "pfedme", "fedper", "ifca"])
def test_all_who_are_sampled_download_and_those_who_answer_upload(name, statistics, run, federation):
    """Also in a round that nobody answers; these methods send every client as much in every round."""
    lossy = run(FACTORIES[name](), statistics=statistics).rounds
    reliable = run(FACTORIES[name](), statistics=statistics, dropout=0.0).rounds
    assert lossy["bytes_down"].tolist() == reliable["bytes_down"].tolist()
    assert lossy["bytes_up"].tolist() == (reliable["bytes_up"] * ANSWERS // 3).tolist()
    plan = prepare("fedavg", federation, rounds=1)
    if name == "fedavg":
        sent = [t for name, t in plan.model.weights.items() if statistics == "shared" or "running" not in name]
        assert set(lossy["bytes_down"]) == {3 * 8 * sum(t.numel() for t in sent)}


def test_who_must_send_before_it_receives_anything_has_received_nothing(run):
    """FedMD's clients upload scores, then their mean comes back."""
    lossy = run(fl.fedmd(warm_up=0)).rounds
    assert lossy["bytes_down"].tolist() == lossy["bytes_up"].tolist() == (ANSWERS * 40 * 4 * 8).tolist()


def test_what_the_server_sends_is_found_out_without_a_trace(federation):
    """A state that is changed before anybody trains is changed once a round, and only in rounds with an answer."""
    done = []

    def round(state, cohort):
        state.w["classifier.bias"].add_(1)
        assert not cohort.losses
        train(cohort, cross_entropy, cohort.broadcast(state.w))
        done.append((cohort.round, cohort.size))
        return state

    counting = Algorithm("counting", init_global, round, one_for_all, made_of=(init_global,))
    plan = prepare(counting, federation, **without_progress(SETTING | LOSSY))
    session, state = Session(plan), Global({name: t.clone() for name, t in plan.model.weights.items()})
    for t in range(6):
        state = plan.algorithm.round(state, session.cohort(t))
    assert done == list(enumerate(ANSWERS[ANSWERS > 0].tolist()))  # the method counts these rounds only
    assert torch.allclose(state.w["classifier.bias"] - plan.model.weights["classifier.bias"], torch.tensor(4.0))


def test_the_steps_of_a_straggler_draw_what_they_draw_without_it(federation):
    """FedGen's loss draws random numbers for each step."""

    def phases(stragglers):  # of two rounds
        seen = []

        def trainer(phase):
            seen.append(phase)
            return train_loop(phase)

        setting = without_progress(SETTING) | {"stragglers": stragglers, "batch_size": 4}
        session = Session(prepare("fedgen", federation, **setting), trainer=trainer)
        state = session.plan.algorithm.round(session.init(), session.cohort(0))
        session.plan.algorithm.round(state, session.cohort(1))
        return seen

    (_, cut), (_, whole), share = phases(0.4), phases(0.0), shares(0, 0.4, 6, 3)[1]
    assert min(share) < 1
    for part, a, b in zip(share, cut.draws, whole.draws, strict=True):
        assert all(torch.equal(t, b[what][: math.ceil(part * len(b[what]))]) for what, t in a.items())


def test_the_code_that_makes_a_run_unreliable_is_in_its_address_only(federation):
    settings = ({}, {"dropout": 0.2}, {"stragglers": 0.2})
    plain, *lossy = (prepare("fedavg", federation, rounds=2, **own).config for own in settings)
    assert all(len(own["code"]) == len(plain["code"]) + 1 for own in lossy)
    assert all(own["library"] == plain["library"] for own in lossy)


def test_a_sweep_has_the_same_dropouts(federation, tmp_path):
    """Two seeds in one stack, also while one of them has a round that nobody answers."""
    setting = without_progress(HARSH) | {"backend": "stacked"}
    del setting["seed"]
    cells = fl.grid(algorithm="fedper", federation=federation, seed=[3, LOSSY["seed"]], **setting)
    for swept in fl.sweep(cells, jobs=1, progress=False).results:
        alone = fl.run("fedper", federation, **setting, seed=swept.config["seed"], progress=False, store=tmp_path)
        assert alone.folder.name == swept.folder.name
        assert distance(alone.models, swept.models) < 1e-9
        assert alone.rounds["bytes_up"].equals(swept.rounds["bytes_up"])


def test_clients_with_several_architectures_drop_out_too(federation):
    mixed = HARSH | {"dtype": "float32"}
    for name in ("local_only", "fedmd", "pfedhr"):
        result = fl.run(FACTORIES[name](), federation, "lenet5+lenet5_plain", **mixed)
        assert (result.rounds["bytes_up"] > 0).tolist() == ((ANSWERS > 0) & (name != "local_only")).tolist()


USUAL = dict(rounds=3, join_ratio=0.5, local_epochs=2, batch_size=12, lr=0.05, progress=False)
LOCAL = USUAL | {"statistics": "local"}


def test_fedavg_with_statistics_at_home_and_raw_pixels_against_plain_pytorch(monkeypatch):
    oracle = Oracle(statistics="local", pixels="raw", lr=1e-3, tune_epochs=1, tune_every=3)
    images = oracle.images
    whole = oracle.federation.data.x / 255
    shift = torch.tensor(whole.mean(axis=(0, 2, 3)) / whole.std(axis=(0, 2, 3)))[:, None, None]
    monkeypatch.setattr(oracle, "images", lambda *which: (255 * (images(*which)[0] + shift) - shift, images(*which)[1]))
    w, kept = oracle.weights, {i: {k: t for k, t in oracle.weights.items() if "running" in k} for i in range(7)}
    for t in oracle.rounds:
        w = oracle.averaged(w, t, kept)
    result, models = oracle.run(fl.fedavg()), {i: w | own for i, own in kept.items()}
    assert_models(result, models, tolerance=1e-5)
    assert_tested(replace(result, when="before"), oracle, lambda i: oracle.net(models[i]), tolerance=1e-5)
    assert_tested(replace(result, when="after"), oracle, oracle.tuned(models).get, tolerance=1e-5)


@pytest.mark.parametrize("name", sorted(FACTORIES))
def test_a_client_has_its_own_statistics_whatever_the_method(name, federation):
    """In float64, loop and stack alike; a client that never took part has the initial ones."""
    method, setting = FACTORIES[name](), LOCAL | {"rounds": 2, "batch_size": 24, "dtype": "float64", "tune_epochs": 1}
    loop, stacked = (fl.run(method, federation, **setting, backend=backend) for backend in BACKENDS)
    assert distance(loop.models, stacked.models) < 1e-5
    plan = prepare(method, federation, **without_progress(setting))
    initial = plan.algorithm.init(plan.model, federation).statistics
    trained = set(np.concatenate(cohorts(6, 0.5, 2, seed=0)).tolist())
    served = dict(zip(keys(loop.models), tree_leaves(loop.models), strict=True))
    [stack], [initial] = loop.state.statistics.stacks, initial.stacks
    for key, kept in stack.items():
        assert torch.equal(served.get(tuple(key.split("/")), kept), kept)
        moved = {i for i in range(6) if not torch.equal(kept[i], initial[key][i])}
        assert moved == trained, key


SENT = {  # no network with BatchNorm
    "lenet5": ("local_only", "fedproto", "fedkemf", "fedmd"),
    "lenet5_plain": ("fedavg", "pfedsim", "fedfomo"),
}


@pytest.mark.parametrize(("model", "name"), [(model, name) for model, names in SENT.items() for name in names])
def test_nothing_changes_where_no_network_with_batchnorm_is_sent(model, name, federation):
    plain, local = (fl.run(FACTORIES[name](), federation, model, **how) for how in (USUAL, LOCAL))
    assert plain.folder != local.folder
    assert plain.accuracy.equals(local.accuracy)
    assert same_bits(plain.models, local.models)


def test_what_cannot_be_is_refused(federation):
    sentence = "not allowed with statistics='local'; use one architecture"
    refused(sentence, fl.run, "local_only", federation, **LOCAL, model="lenet5+lenet5_plain")
