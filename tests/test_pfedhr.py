"""pFedHR and its baselines: properties beyond the whole runs of test_oracles_pfedhr."""

import importlib
from dataclasses import replace

import pytest
import torch
from test_baselines import close
from trees import same_bits

import fedlib as fl
from fedlib.engine.backends import BACKENDS
from fedlib.methods.pfedbayes.noise import mixed
from fedlib.runs.prepare import prepare
from fedlib.stack import select

PLAIN = "lenet5_plain"
MIXTURE = "lenet5_plain+lenet5"
SETTING = dict(rounds=2, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05, model=PLAIN)
EXACT = SETTING | {"dtype": "float64"}
QUICK = dict(server_epochs=1, server_batch=20, probes=24)


def run(method, federation, **setting) -> fl.RunResult:
    return fl.run(method, federation, **EXACT | setting, progress=False)


@pytest.mark.parametrize("method", ["pfedhr", "fedmd", "fedgh", "fedkemf", "fccl"])
def test_methods_that_need_public_images_say_so(method, federation):
    with pytest.raises(ValueError, match=f"{method} needs public images; use federate"):
        fl.run(method, replace(federation, public=None), **SETTING, progress=False)


def test_no_candidate_is_handled_and_counted(federation, monkeypatch):
    """No chain fits: everybody trains alone and keeps the model it has."""
    monkeypatch.setattr(
        importlib.import_module("fedlib.methods.pfedhr.reassemble"),
        "chains",
        lambda pieces, groups, _: [[] for _ in groups],
    )
    ours, local = (run(m, federation, join_ratio=1.0) for m in (fl.pfedhr(**QUICK), fl.local_only()))
    assert same_bits(ours.models, local.models)
    log = ours.state.log
    assert log["found"].tolist() == [0, 0]
    assert log["used"].tolist() == [2, 2]
    assert (log["match"] == -1).all()
    assert ours.rounds["bytes_down"].tolist() == [0, 0]


# pFedBayes


def test_the_numbers_are_those_of_splitmix64():
    """The first one of seed 0, as published; the others: `test_oracles_pfedhr`."""
    assert mixed(torch.tensor([1])).item() % (1 << 64) == 0xE220A8397B1DCDAF


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_narrow_posterior_without_a_prior_is_local_training(backend, federation):
    setting = dict(backend=backend, model="lenet5", rounds=1)
    ours, local = (run(m, federation, **setting) for m in (fl.pfedbayes(zeta=0, rho=-30), fl.local_only()))
    assert close(ours.models, local.models, 1e-6)
    initial = prepare("local_only", federation, **EXACT | setting).model.weights
    assert close(ours.state.w.mu, select(initial, ours.state.w.mu), 1e-12)  # nobody pulls it
