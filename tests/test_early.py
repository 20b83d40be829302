"""Early stopping: the stopping round of a constructed curve, and the files of a stopped run."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from trees import same_bits

import fedlib as fl
from fedlib.algorithm import Global, one_for_all

SETTING = dict(rounds=12, evaluate_every=1, batch_size=16, model="lenet5_plain", progress=False)
GUESS = [0, 1, 2, 1, 2, 0, 3, 0, 0, 0, 0, 0]  # in each round all clients predict this class
SHARE = [10, 20, 30, 40]  # % of the validation images in each class: 10 20 30 20 30 10 40 10 ...
LABELS = np.repeat([0, 1, 2, 3], SHARE)


def federation(test_labels: np.ndarray) -> fl.Federation:
    """One client with 8 train, 100 validation and 100 test images."""
    y, zeros = np.concatenate([np.zeros(8, np.int64), LABELS, test_labels]), np.zeros(208, np.int64)
    x = np.random.default_rng(0).integers(0, 256, (208, 3, 32, 32), dtype=np.uint8)
    data = fl.Dataset("guess", x, y, tuple("abcd"), zeros.astype(np.uint8), zeros, ("guess",))
    parts = np.split(np.arange(208), [8, 108])
    return fl.Federation(data, fl.iid(), (parts[0],), (parts[2],), 0.5, 0, (parts[1],), 0.5)


@pytest.fixture
def guesses():
    """A method that predicts the class `GUESS` of the round."""

    @fl.algorithm
    def guesses() -> fl.Algorithm:
        def init(model, federation):
            return Global({name: torch.zeros_like(t) for name, t in model.weights.items()})

        def round(state, cohort):
            w = {name: torch.zeros_like(t) for name, t in state.w.items()}
            w["classifier.bias"][GUESS[cohort.round]] = 1
            return Global(w)

        return fl.Algorithm("guesses", init, round, one_for_all)

    return guesses


@pytest.mark.parametrize(
    ("patience", "best", "stopped"),
    [(1, 3, 4), (2, 3, 5), (3, 3, 6), (4, 7, 11), (5, 7, None), (9, 7, None)],  # with 5: the last round, as ever
)
def test_a_run_ends_where_a_curve_made_by_hand_says(guesses, patience, best, stopped, tmp_path):
    made = federation(LABELS)
    result = fl.run_early(guesses(), made, **SETTING, patience=patience, store=tmp_path)
    assert result.validation["accuracy"].tolist() == [SHARE[c] for c in GUESS[: stopped or 12]]
    assert len(result.rounds) == (stopped or 12)
    assert result.models["classifier.bias"][0].argmax() == GUESS[(stopped or 12) - 1]
    whole = fl.run(guesses(), made, **SETTING)
    assert len(whole.rounds) == 12
    assert fl.early_stopping(whole, patience) == fl.early_stopping(result, patience) == (best, stopped)


def test_a_run_that_is_evaluated_in_some_rounds_stops_in_one_of_them(guesses):
    result = fl.run_early(guesses(), federation(LABELS), patience=1, **SETTING | {"evaluate_every": 3})
    assert fl.early_stopping(result, 1) == (3, 6)  # accuracies 30, 10


def test_the_accuracy_before_or_after_tuning_counts_as_the_method_is_evaluated(guesses, tmp_path):
    made, setting = federation(LABELS), SETTING | dict(tune_epochs=1, lr=10.0, patience=2)
    assert len(fl.run_early(guesses(), made, **setting).rounds) == 5
    after = fl.run_early(guesses()._replace(tune_epochs=1), made, **setting, store=tmp_path)
    assert len(after.rounds) == 3  # tuned, all predict class 0


def test_test_labels_have_no_part_in_it(guesses):
    runs = [fl.run_early(guesses(), federation(y), **SETTING, patience=2) for y in (LABELS, 3 - LABELS)]
    assert not runs[0].accuracy.equals(runs[1].accuracy)
    assert [fl.early_stopping(run, 2) for run in runs] == [(3, 5)] * 2
    assert [len(run.rounds) for run in runs] == [5, 5]


def test_a_run_that_was_stopped_goes_on_with_the_bits_of_an_uninterrupted_one(tiny, tmp_path):
    made = fl.federate(tiny, fl.iid(), clients=3, validation_fraction=0.2)
    setting = SETTING | dict(rounds=6, lr=1e-6)
    whole = fl.run("scaffold", made, **setting, store=tmp_path / "whole")
    setting["store"] = tmp_path / "stopped"
    done = []
    first, again = (fl.run_early("scaffold", made, patience=2, **setting | {"progress": done.append}) for _ in range(2))
    assert done == [1, 2, 3]  # the second call reads
    assert same_bits(first.state, again.state)
    assert first.rounds.equals(again.rounds)
    assert not same_bits(first.state, whole.state)
    assert first.folder.name == whole.folder.name
    assert [path.suffix for path in first.folder.glob("*.csv")] == []  # only a complete run has tables
    complete = fl.run("scaffold", made, **setting)
    assert same_bits(complete.state, whole.state)
    assert complete.rounds.iloc[:3].equals(first.rounds)  # they were not done again
    pd.testing.assert_frame_equal(complete.accuracy, whole.accuracy)
    assert len(pd.read_csv(complete.folder / "validation.csv")) == 6 * 3
    assert len(fl.run_early("scaffold", made, **setting, patience=2).rounds) == 6  # not cut back


def test_without_validation_images_nothing_can_stop(guesses):
    made = replace(federation(LABELS), validation=(), validation_fraction=0.0)
    refused("patience=3 needs validation images; give federate", fl.run_early, guesses(), made, **SETTING, patience=3)
    refused("early stopping needs validation images", fl.early_stopping, fl.run(guesses(), made, **SETTING), patience=3)
    for ask in (fl.run_early, lambda *_, **__: fl.early_stopping(fl.run(guesses(), federation(LABELS), **SETTING), 0)):
        refused("patience=0 is not allowed", ask, guesses(), federation(LABELS), **SETTING, patience=0)
