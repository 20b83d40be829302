"""FedAlt and FedSim, and fine-tuning of the personal part alone."""

from dataclasses import replace

import pytest
import torch
from test_baselines import close, cohort_of
from test_pfedmb import watched

import fedlib as fl
from fedlib.algorithm import Partial, tune_personal
from fedlib.stack import client_mean, select
from fedlib.training.cohort import TUNE

SETTING = dict(rounds=4, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05, progress=False)
FC3 = {"classifier.weight", "classifier.bias"}


def same_bits(a, b):
    return a.keys() == b.keys() and all(torch.equal(t, b[name]) for name, t in a.items())


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (fl.fedalt(warm_up=1), fl.fedavg()),
        (fl.fedsim(warm_up=1), fl.fedavg()),
        (fl.fedsim(warm_up=0), fl.fedper()),
    ],
    ids=["FedAlt that only warms up is FedAvg", "so is FedSim", "FedSim without a warm-up is FedPer"],
)
def test_identity_to_the_bit(a, b, federation):
    assert same_bits(*(fl.run(method, federation, **SETTING).models for method in (a, b)))


@pytest.mark.parametrize(("part", "names"), [("output", FC3), ("input", {"conv1.0.weight", "conv1.0.bias"})])
def test_fedalt_trains_the_personal_part_then_the_shared_one(part, names, federation):
    cohort, seen = watched(cohort_of(federation, 3, model="lenet5_plain"))
    method = fl.fedalt(warm_up=0.5, part=part)
    start = method.init(cohort.model, federation)
    after = method.round(start, cohort)
    (first, adapted), (second, trained) = seen
    assert set(first.trainable) == names
    assert set(second.trainable) == set(cohort.model.trainable) - names
    moved = {name for name in cohort.model.trainable if not torch.equal(adapted[name], first.w[name])}
    assert moved == names
    assert all(torch.equal(trained[name], adapted[name]) for name in names)
    epochs = [steps.shape[0] for own in (first, second) for steps in own.batches]
    assert epochs[:3] == epochs[3:]
    assert not torch.equal(first.batches[0], second.batches[0])
    assert close(after.w, client_mean(select(trained, after.w), cohort.n_samples))
    for name, t in after.v.items():
        assert torch.equal(t[cohort.clients], trained[name])
        others = [i for i in range(6) if i not in cohort.ids]
        assert all(torch.equal(t[i], start.w[name]) for i in others)


def test_newcomers_have_the_head_of_the_fedavg_model(tiny):
    newcomers = fl.federate(tiny, fl.iid(), clients=6, unseen=2)
    average = fl.run("fedavg", newcomers, **SETTING | {"rounds": 2}).state.w
    state = fl.run("fedalt", newcomers, **SETTING | {"join_ratio": 1.0}).state
    warm = fl.run(fl.fedalt(warm_up=1), newcomers, **SETTING | {"rounds": 2, "join_ratio": 1.0}).state.w
    assert not same_bits(select(average, FC3), select(warm, FC3))
    for name in FC3:
        assert torch.equal(state.v[name][4:], warm[name].expand(2, *warm[name].shape))
        assert not torch.equal(state.v[name][0], warm[name])


@pytest.mark.parametrize(("method", "names"), [("fedrep", FC3), ("fedalt", FC3), ("fedsim", FC3), ("fedbn", None)])
def test_only_the_personal_part_is_tuned(method, names, federation):
    everyone = replace(cohort_of(federation, 0, join_ratio=1.0, model="lenet5_bn"), purpose=TUNE)
    made = getattr(fl, method)()
    state = made.init(everyone.model, federation)
    models = {name: t.expand(6, *t.shape[1:]) for name, t in made.models(state).items()}
    tuned = tune_personal(state, everyone) if made.tune is None else made.tune(state, everyone)
    moved = {name for name, t in tuned.items() if not torch.equal(t, models[name])}
    if names is None:  # BatchNorm, statistics included
        assert moved == everyone.model.batchnorm
    else:  # statistics follow every pass
        assert moved == names | everyone.model.statistics


def test_a_run_can_be_told_to_tune_the_personal_part_alone(federation):
    whole, part = (fl.run("fedbn", federation, **SETTING, tune_epochs=1, tune_part=p) for p in (None, "personal"))
    assert whole.folder != part.folder
    assert same_bits(whole.models, part.models)
    frames = [run.accuracy.set_index(["when", "round", "client"])["loss"] for run in (whole, part)]
    assert frames[0]["before"].equals(frames[1]["before"])
    assert (frames[0]["after"] != frames[1]["after"]).all()


def test_newcomers_start_from_the_initial_personal_part(tiny):
    newcomers = fl.federate(tiny, fl.iid(), clients=6, unseen=2)
    result = fl.run("fedbn", newcomers, **SETTING | {"join_ratio": 1.0}, model="lenet5_bn")
    assert isinstance(result.state, Partial)
    for name, t in result.state.v.items():
        assert torch.equal(t[4:], result.model.weights[name].expand(2, *t.shape[1:])), name
        assert not torch.equal(t[0], result.model.weights[name]), name


@pytest.mark.parametrize(
    ("method", "sentence"),
    [("fedavg", "fedavg has no part that is personal"), ("pfedmb", "pfedmb says itself what is tuned")],
)
def test_methods_without_a_personal_part_refuse(method, sentence, federation, run_store):
    with pytest.raises(ValueError, match=f"tune_part='personal' is not allowed; {sentence}"):
        fl.run(method, federation, **SETTING, tune_epochs=1, tune_part="personal")
    with pytest.raises(ValueError, match="tune_part='head' is unknown; allowed: personal"):
        fl.run("fedbn", federation, **SETTING, tune_epochs=1, tune_part="head")
    assert not run_store.exists()
