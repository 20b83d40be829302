"""Uses of a finished run: fairness, export, and warm start; early stopping."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from safetensors import safe_open
from trees import same_bits

import fedlib as fl
from fedlib.algorithm import Global, one_for_all

DATA = fl.load("digits", copies=1)
FEDERATION = fl.federate(DATA, fl.dirichlet(alpha=0.3), clients=13, test_fraction=0.4, seed=2)
SETTING = dict(rounds=1, batch_size=16, lr=0.05, seed=3, progress=False)


@pytest.fixture(scope="module")
def result():
    return fl.run("fedper", FEDERATION, **SETTING)


def test_fairness_is_that_of_the_clients_in_the_last_evaluation():
    result = fl.run("fedper", FEDERATION, **SETTING | {"rounds": 2})
    a = result.accuracy.query("round == 2")["accuracy"].tolist()
    row = fl.fairness(result).iloc[0]
    assert row["std"] == pytest.approx(pd.Series(a).std())
    assert row["worst_tenth"] == pytest.approx(np.mean(sorted(a)[:2]))  # 1.3 of 13 clients, rounded up
    assert row["worst"] == min(a)
    assert row["gini"] == pytest.approx(np.mean([abs(x - y) for x in a for y in a]) / (2 * np.mean(a)))


@pytest.mark.parametrize("scores", [[50] * 5, [0, 0, 0, 80], [0, 0], [0, np.nan, 0, 0, 80]])
def test_gini_of_equal_and_of_one_sided_clients_with_test_images(result, scores):
    table = {"round": 1, "client": range(len(scores)), "accuracy": scores, "when": "before"}
    table["n_test"] = np.where(np.isnan(scores), 0, 3)
    other = type(result)(**vars(result) | {"accuracy": pd.DataFrame(table)})
    assert fl.fairness(other)["gini"].item() == pytest.approx(0.75 if 80 in scores else 0)


def test_an_exported_model_is_accurate_on_the_same_images_without_fedlib(result, tmp_path):
    net = fl.export(result, 5, tmp_path / "client.safetensors")
    index = FEDERATION.test[5]
    x = (DATA.x[index] / 255 - DATA.mean[:, None, None]) / DATA.std[:, None, None]
    with torch.no_grad():
        found = net(torch.as_tensor(x, dtype=torch.float32)).argmax(1).numpy()
    expected = result.accuracy.query("round == 1 and client == 5")["accuracy"].item()
    assert 100 * (found == DATA.y[index]).mean() == pytest.approx(expected)
    with safe_open(tmp_path / "client.safetensors", "pt") as file:
        facts = [file.metadata()[name] for name in ("client", "algorithm", "model", "data")]
        assert facts == ["5", "fedper", "lenet5", "digits"]
        assert all(file.get_tensor(name).equal(result.weights(5)[name]) for name in file.keys())  # noqa: SIM118
    again = fl.run("fedper", FEDERATION, **SETTING), fl.run("fedper", FEDERATION, **SETTING)  # the second one is read
    assert not any(layer.training for one in again for layer in fl.export(one, 5).modules())
    net.fc1[0].weight.data.zero_()  # a copy: the result does not change
    assert result.weights(5)["fc1.0.weight"].any()


def test_a_run_begins_with_the_weights_of_a_file_and_fresh_names_stay_random(result, tmp_path):
    fl.export(result, 5, tmp_path / "client.safetensors")
    own = result.weights(5)
    for weights in (tmp_path / "client.safetensors", own):
        warm = fl.run("local_only", FEDERATION, model=fl.pretrained("lenet5", weights), **SETTING | {"lr": 1e-9})
        assert all(torch.allclose(warm.weights(0)[name], own[name], atol=1e-6) for name in warm.model.trainable)
        assert warm.config["model"] == "lenet5_pretrained"
    other = fl.run("local_only", FEDERATION, model=fl.pretrained("lenet5", result.weights(4)), **SETTING | {"lr": 1e-9})
    assert other.folder != warm.folder
    model = fl.pretrained("lenet5", result.weights(5), fresh="classifier")
    first, second = (fl.run("fedavg", FEDERATION, model=model, **SETTING | {"seed": s}).model.weights for s in (0, 1))
    assert first["fc1.0.weight"].equal(second["fc1.0.weight"])
    assert not first["classifier.weight"].equal(second["classifier.weight"])


def test_arrays_are_weights_and_another_file_is_refused(result, tmp_path):
    arrays = {name: t.numpy() for name, t in result.weights(5).items()}
    models = [fl.pretrained("lenet5", weights) for weights in (arrays, result.weights(5))]
    one, other = (fl.run("fedavg", FEDERATION, model=model, **SETTING).folder for model in models)
    assert one == other
    (tmp_path / "weights.pt").write_bytes(b"no tensors")
    refused(r"weights\.pt' is not a safetensors file", fl.pretrained, "lenet5", tmp_path / "weights.pt")


@pytest.mark.parametrize("change", [{"fc1.0.bias": torch.zeros(3)}, {"unknown": torch.zeros(1)}, {"fc1.0.bias": None}])
def test_weights_of_another_model_are_refused_before_any_work(result, change):
    weights = {name: t for name, t in (dict(result.weights(5)) | change).items() if t is not None}
    refused(next(iter(change)), fl.run, "fedavg", FEDERATION, model=fl.pretrained("lenet5", weights), **SETTING)


def test_a_client_with_several_networks_has_no_single_one_to_export():
    federation = fl.federate(DATA, fl.iid(), clients=2)
    result = fl.run(fl.fedsimsup(supervisor_epochs=1), federation, **SETTING)
    refused("a client of 'fedsimsup' has no single network to export", fl.export, result, 0)


TWELVE = dict(rounds=12, evaluate_every=1, batch_size=16, model="lenet5_plain", progress=False)
GUESS = [0, 1, 2, 1, 2, 0, 3, 0, 0, 0, 0, 0]  # in each round all clients predict this class
SHARE = [10, 20, 30, 40]  # % of the validation images in each class: 10 20 30 20 30 10 40 10 ...
LABELS = np.repeat([0, 1, 2, 3], SHARE)


def one_client(test_labels: np.ndarray) -> fl.Federation:
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
    made = one_client(LABELS)
    result = fl.run_early(guesses(), made, **TWELVE, patience=patience, store=tmp_path)
    assert result.validation["accuracy"].tolist() == [SHARE[c] for c in GUESS[: stopped or 12]]
    assert len(result.rounds) == (stopped or 12)
    assert result.models["classifier.bias"][0].argmax() == GUESS[(stopped or 12) - 1]
    whole = fl.run(guesses(), made, **TWELVE)
    assert len(whole.rounds) == 12
    assert fl.early_stopping(whole, patience) == fl.early_stopping(result, patience) == (best, stopped)


def test_the_rounds_that_are_evaluated_count_and_the_accuracy_by_which_the_method_is_judged(guesses, tmp_path):
    result = fl.run_early(guesses(), one_client(LABELS), patience=1, **TWELVE | {"evaluate_every": 3})
    assert fl.early_stopping(result, 1) == (3, 6)  # accuracies 30, 10
    made, setting = one_client(LABELS), TWELVE | dict(tune_epochs=1, lr=10.0, patience=2)
    assert len(fl.run_early(guesses(), made, **setting).rounds) == 5
    after = fl.run_early(guesses()._replace(tune_epochs=1), made, **setting, store=tmp_path)
    assert len(after.rounds) == 3  # tuned, all predict class 0


def test_test_labels_have_no_part_in_it_and_without_validation_images_nothing_can_stop(guesses):
    runs = [fl.run_early(guesses(), one_client(y), **TWELVE, patience=2) for y in (LABELS, 3 - LABELS)]
    assert not runs[0].accuracy.equals(runs[1].accuracy)
    assert [fl.early_stopping(run, 2) for run in runs] == [(3, 5)] * 2
    assert [len(run.rounds) for run in runs] == [5, 5]
    made = replace(one_client(LABELS), validation=(), validation_fraction=0.0)
    refused("patience=3 needs validation images; give federate", fl.run_early, guesses(), made, **TWELVE, patience=3)
    refused("early stopping needs validation images", fl.early_stopping, fl.run(guesses(), made, **TWELVE), patience=3)
    for ask in (fl.run_early, lambda *_, **__: fl.early_stopping(fl.run(guesses(), one_client(LABELS), **TWELVE), 0)):
        refused("patience=0 is not allowed", ask, guesses(), one_client(LABELS), **TWELVE, patience=0)


def test_a_run_that_was_stopped_goes_on_with_the_bits_of_an_uninterrupted_one(tiny, tmp_path):
    made = fl.federate(tiny, fl.iid(), clients=3, validation_fraction=0.2)
    setting = TWELVE | dict(rounds=6, lr=1e-6)
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


def test_early_stopping_counts_clients_not_images(result):
    of_rounds = {1: (90, 10), 2: (10, 80), 3: (10, 70)}  # means of clients 50, 45, 40; of images 18, 73, 64
    rows = [(t, i, (1, 9)[i], own[i], "before") for t, own in of_rounds.items() for i in (0, 1)]
    validation = pd.DataFrame(rows, columns=["round", "client", "n_test", "accuracy", "when"])
    assert fl.early_stopping(replace(result, validation=validation), 2) == (1, 3)
