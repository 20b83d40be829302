"""Fine-tuning of the personal part alone."""

from dataclasses import replace

import pytest
import torch
from refusals import refused
from test_baselines import cohort_of
from trees import same_bits

import fedlib as fl
from fedlib.algorithm import tune_personal
from fedlib.stack import for_each
from fedlib.training.cohort import TUNE

SETTING = dict(rounds=4, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05, progress=False)
FC3 = {"classifier.weight", "classifier.bias"}


@pytest.mark.parametrize(("method", "names"), [("fedrep", FC3), ("fedalt", FC3), ("fedsim", FC3), ("fedbn", None)])
def test_only_the_personal_part_is_tuned(method, names, federation):
    everyone = replace(cohort_of(federation, 0, join_ratio=1.0, model="lenet5_bn"), purpose=TUNE)
    made = getattr(fl, method)()
    state = made.init(everyone.model, federation)
    models = for_each(made.models(state), 6)
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


def test_methods_without_a_personal_part_refuse(federation, run_store):
    for method, reason in {"fedavg": "has no personal part", "pfedmb": "defines its own tuning"}.items():
        sentence = f"tune_part='personal' is not allowed; {method} {reason}"
        refused(sentence, fl.run, method, federation, **SETTING, tune_epochs=1, tune_part="personal")
    assert not run_store.exists()


def test_fine_tuning_that_a_run_adds_does_not_change_what_a_method_is_judged_by(federation):
    assert fl.run("fedavg", federation, **SETTING, tune_epochs=1).when == "before"
    assert fl.run("perfedavg", federation, **SETTING).when == "after"
