"""pFedHR and its baselines: properties beyond the whole runs of test_oracles_pfedhr."""

import importlib
from dataclasses import replace

import pytest
import torch
from refusals import refused
from trees import same_bits

import fedlib as fl
from fedlib.methods.pfedbayes import mixed

PLAIN = "lenet5_plain"
SETTING = dict(rounds=2, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05, model=PLAIN)
EXACT = SETTING | {"dtype": "float64"}
QUICK = dict(server_epochs=1, server_batch=20, probes=24)


def run(method, federation, **setting) -> fl.RunResult:
    return fl.run(method, federation, **EXACT | setting, progress=False)


@pytest.mark.parametrize("method", ["pfedhr", "fedmd", "fedgh", "fedkemf", "fccl"])
def test_methods_that_need_public_images_say_so(method, federation):
    refused(f"{method} needs public images; use federate", fl.run, method, replace(federation, public=None), **SETTING)


def test_no_candidate_is_handled_and_counted(federation, monkeypatch):
    module = importlib.import_module("fedlib.methods.pfedhr.reassemble")
    monkeypatch.setattr(module, "chains", lambda pieces, groups, _: [[] for _ in groups])
    ours, local = (run(m, federation, join_ratio=1.0) for m in (fl.pfedhr(**QUICK), fl.local_only()))
    assert same_bits(ours.models, local.models)
    log = ours.state.log
    assert (log["found"].tolist(), log["used"].tolist()) == ([0, 0], [2, 2])
    assert (log["match"] == -1).all()
    assert ours.rounds["bytes_down"].tolist() == [0, 0]


def test_the_numbers_of_pfedbayes_are_those_of_splitmix64():
    """The first one of seed 0, as published; the others: `test_oracles_pfedhr`."""
    assert mixed(torch.tensor([1])).item() % (1 << 64) == 0xE220A8397B1DCDAF
