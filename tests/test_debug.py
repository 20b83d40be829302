"""The location that an error message names."""

import pytest
import torch

import fedlib as fl
from fedlib.algorithm import Algorithm, Global, init_global, one_for_all
from fedlib.stack import client_mean
from fedlib.training import cross_entropy, train

without_progress = dict(rounds=3, join_ratio=0.5, batch_size=8, lr=0.05, seed=3)
SETTING = without_progress | {"progress": False}


def notes(error: pytest.ExceptionInfo) -> str:
    return "\n".join(error.value.__notes__)


def method(loss, broken_round: int = 99) -> Algorithm:
    def round(state, cohort):
        if cohort.round == broken_round:
            raise KeyError("nothing here")
        w_i = cohort.receive(train(cohort, loss, cohort.broadcast(state.w), name="mine"))
        return Global(client_mean(w_i, cohort.n_samples))

    return Algorithm("broken", init_global, round, one_for_all, made_of=(method, loss))


def at(client_sample: int):
    """A loss that cannot be computed for one image."""

    def loss(w, batch):
        if (batch.index == client_sample).any():
            raise RuntimeError("this image is upside down")
        return cross_entropy(w, batch)

    return loss


def test_an_error_in_a_loss_says_round_client_step_and_samples(federation):
    sampled = fl.runs.Session(fl.runs.prepare("fedavg", federation, **without_progress)).sampled
    client = int(sampled[1][-1])
    sample = int(federation.train[client][2])
    first = next(t for t, ids in enumerate(sampled) if client in ids)
    with pytest.raises(RuntimeError, match="upside down") as error:
        fl.run(method(at(sample)), federation, **SETTING, debug=True)
    assert f"in round {first + 1}, train, 'mine': client {client}, step " in notes(error)
    assert str(sample) in notes(error).split("samples ")[1].splitlines()[0].split(", ")
    assert f"in round {first + 1} of broken()" in notes(error)


def test_debugging_looks_at_single_clients_where_the_stack_is_asked_for(federation):
    seen = []

    def loss(w, batch):
        seen.append(batch.y.tolist())  # cannot be read inside of a stack
        return cross_entropy(w, batch)

    fl.run(method(loss), federation, **SETTING, backend="stacked", debug=True)
    assert {len(y) for y in seen} == {8}


def test_an_error_of_the_server_says_in_which_round(federation):
    with pytest.raises(KeyError, match="nothing here") as error:
        fl.run(method(cross_entropy, broken_round=1), federation, **SETTING)
    assert notes(error) == "in round 2 of broken()"


def test_debugging_stops_where_the_loss_is_not_finite(federation):
    def loss(w, batch):
        return cross_entropy(w, batch) * torch.inf

    with pytest.warns(UserWarning, match="not finite from round 1 on"):
        fl.run(method(loss), federation, **SETTING)  # now it is in the store, which does not matter
    with pytest.raises(FloatingPointError, match="the training loss is inf") as error:
        fl.run(method(loss), federation, **SETTING, debug=True)
    assert "in round 1, train, 'mine': client" in notes(error)


def test_debugging_changes_no_number(federation, tmp_path):
    plain, debugged = (fl.run("fedper", federation, **SETTING, store=tmp_path / str(d), debug=d) for d in (False, True))
    assert plain.accuracy.equals(debugged.accuracy)
    assert plain.folder.name == debugged.folder.name
