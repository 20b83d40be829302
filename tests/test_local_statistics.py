"""The published protocol: BatchNorm statistics that stay with the clients, pixels from 0 to 255."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from methods import FACTORIES
from oracle import Oracle, assert_models, assert_tested
from test_contract import without_progress
from torch.utils._pytree import tree_leaves
from trees import distance, same_bits

import fedlib as fl
from fedlib.engine.backends import BACKENDS
from fedlib.runs.plan import cohorts
from fedlib.runs.prepare import prepare
from fedlib.stack import keys

SETTING = dict(rounds=3, join_ratio=0.5, local_epochs=2, batch_size=12, lr=0.05, progress=False)
LOCAL = SETTING | {"statistics": "local"}


def test_fedavg_with_statistics_at_home_and_raw_pixels_against_plain_pytorch(monkeypatch):
    """SiloBN (Andreux et al., 2020)."""
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
    plain, local = (fl.run(FACTORIES[name](), federation, model, **how) for how in (SETTING, LOCAL))
    assert plain.folder != local.folder
    assert plain.accuracy.equals(local.accuracy)
    assert same_bits(plain.models, local.models)


def test_what_cannot_be_is_refused(federation):
    with pytest.raises(ValueError, match="not allowed with statistics='local'; use one architecture"):
        fl.run("local_only", federation, **LOCAL, model="lenet5+lenet5_plain")
