"""pFedHR and its baselines: what whole runs against their equations (test_oracles_pfedhr) leave open."""

import importlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_baselines import close, cohort_of
from torch import nn
from trees import same_bits

import fedlib as fl
from fedlib.engine.backends import BACKENDS
from fedlib.methods.pfedbayes.noise import mixed, normal
from fedlib.methods.pfedhr.public import public_training
from fedlib.methods.pfedhr.reassemble import Network, reassemble
from fedlib.models import MODELS, build
from fedlib.runs.prepare import prepare
from fedlib.stack import select
from fedlib.training.batches import on_device
from fedlib.training.evaluation import evaluate

PLAIN = "lenet5_plain"
MIXTURE = "lenet5_plain+lenet5"
SETTING = dict(rounds=2, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05, model=PLAIN)
EXACT = SETTING | {"dtype": "float64"}
QUICK = dict(server_epochs=1, server_batch=20, probes=24)


def run(method, federation, **setting) -> fl.RunResult:
    return fl.run(method, federation, **EXACT | setting, progress=False)


@pytest.mark.parametrize("method", ["pfedhr", "fedmd", "fedgh", "fedkemf", "fccl"])
def test_methods_that_need_public_images_say_so(method, federation):
    with pytest.raises(ValueError, match=f"{method} needs public images; give some to federate"):
        fl.run(method, replace(federation, public=None), **SETTING, progress=False)


def test_a_candidate_is_better_than_a_fresh_network_of_its_size():
    """Trained on the same public images for as long as pFedHR does; mean over two draws of ten digits."""
    digits, own = fl.load("digit_styles", per_style=800), SimpleNamespace(**fl.pfedhr().hyper)
    images, mean = on_device(digits.subset(digits.domain == 0), torch.device("cpu")), []
    for seed in range(2):
        order = torch.from_numpy(np.random.default_rng(seed).permutation(800))
        parts = [images._replace(x=images.x[part], y=images.y[part]) for part in order.split([200, 200, 210, 190])]
        public, tested, *clients = parts

        def trained(images, model, w, epochs, seed=seed):
            arguments = own.labelled, epochs, own.server_batch, own.server_lr, own.temperature
            return public_training(images, *arguments, (seed,))(model, w, 0)

        def accuracy(model, w, tested=tested):
            correct, _ = evaluate(model, tested, {name: t[None] for name, t in w.items()}, [np.arange(200)])
            return correct.item() / 2

        models = [build(name, MODELS[name], (3, 32, 32), 10, seed) for name in ("m1_thin", "m2_thin")]
        pool = [Network(m, trained(part, m, m.weights, 5)) for m, part in zip(models, clients, strict=True)]
        x = public.batch(torch.arange(200), models[0]).x
        made = reassemble(pool, x, 3, 2, own.stitch_depth, (seed,), own.stitch_relu, own.end_in_head)
        found = [accuracy(m, trained(public, m, m.weights, own.server_epochs)) for m in made.candidates]
        for layer in (layer for m in made.candidates for layer in m.net.modules() if isinstance(layer, nn.Dropout)):
            layer.p = 0.0
        fresh = [accuracy(m, trained(public, m, m.redraw(1), own.server_epochs)) for m in made.candidates]
        mean.append((np.mean(found), np.mean(fresh)))
    found, fresh = np.mean(mean, 0)
    assert found > fresh, mean


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


def test_the_log_holds_every_round_and_survives_an_interruption(federation, tmp_path):
    class Stop(Exception):
        pass

    def stop(t):
        if t == 2:
            raise Stop

    method, setting = fl.pfedhr(**QUICK), EXACT | {"rounds": 4, "model": MIXTURE}
    whole = fl.run(method, federation, **setting, progress=False, store=tmp_path / "whole")
    with pytest.raises(Stop):
        fl.run(method, federation, **setting, progress=stop, store=tmp_path / "parts", checkpoint_seconds=0)
    resumed = fl.run(method, federation, **setting, progress=False, store=tmp_path / "parts")
    assert same_bits(whole.state.log, resumed.state.log)
    assert same_bits(whole.models, resumed.models)
    assert {len(t) for t in whole.state.log.values()} == {4}
    cohorts = [cohort_of(federation, t, method=method, **setting).ids.tolist() for t in range(4)]
    assert whole.state.log["clients"].tolist() == cohorts


# pFedBayes


def test_the_numbers_are_those_of_splitmix64():
    """Its reference in Java, here with Python's integers: the n-th number of seed 0 is mix(n * golden)."""

    def reference(counter):
        mask = (1 << 64) - 1
        z = counter * 0x9E3779B97F4A7C15 & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31

    counters = [0, 1, 2, 3, 12345, 2**62 - 1]
    assert [n % (1 << 64) for n in mixed(torch.tensor(counters)).tolist()] == [reference(n) for n in counters]
    assert reference(1) == 0xE220A8397B1DCDAF  # the first number of seed 0, as published


def test_normal_numbers_are_normal_and_independent_of_each_other():
    like = torch.zeros(200_000, dtype=torch.float64)
    a, again, b = (normal(torch.tensor(seed), like) for seed in (1, 1, 2))
    assert torch.equal(a, again)
    assert abs(a.mean()) < 0.01
    assert a.std().item() == pytest.approx(1, abs=0.01)
    assert (a.abs() < 1.96).double().mean().item() == pytest.approx(0.95, abs=0.003)
    pairs = torch.corrcoef(torch.stack([a[1:], a[:-1], b[1:]]))
    assert (pairs - torch.eye(3)).abs().max() < 0.01


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_narrow_posterior_without_a_prior_is_local_training(backend, federation):
    setting = dict(backend=backend, model="lenet5", rounds=1)
    ours, local = (run(m, federation, **setting) for m in (fl.pfedbayes(zeta=0, rho=-30), fl.local_only()))
    assert close(ours.models, local.models, 1e-6)
    initial = prepare("local_only", federation, **EXACT | setting).model.weights
    assert close(ours.state.w.mu, select(initial, ours.state.w.mu), 1e-12)  # nobody pulls it
