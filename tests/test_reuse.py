"""Uses of a finished run: fairness, export, and warm start."""

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from safetensors import safe_open

import fedlib as fl

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


@pytest.mark.parametrize(("scores", "gini"), [([50.0] * 5, 0), ([0.0, 0, 0, 80], 0.75), ([0.0, 0.0], 0)])
def test_gini_of_equal_and_of_one_sided_clients(result, scores, gini):
    table = {"round": 1, "client": range(len(scores)), "n_test": 3, "accuracy": scores, "when": "before"}
    other = type(result)(**vars(result) | {"accuracy": pd.DataFrame(table)})
    assert fl.fairness(other)["gini"].item() == pytest.approx(gini)


def test_an_exported_model_is_accurate_on_the_same_images_without_fedlib(result, tmp_path):
    net = fl.export(result, 5, tmp_path / "client.safetensors")
    index = FEDERATION.test[5]
    x = (DATA.x[index] / 255 - DATA.mean[:, None, None]) / DATA.std[:, None, None]
    with torch.no_grad():
        found = net(torch.as_tensor(x, dtype=torch.float32)).argmax(1).numpy()
    expected = result.accuracy.query("round == 1 and client == 5")["accuracy"].item()
    assert 100 * (found == DATA.y[index]).mean() == pytest.approx(expected)
    with safe_open(tmp_path / "client.safetensors", "pt") as file:
        assert file.metadata()["client"] == "5"
        assert all(file.get_tensor(name).equal(result.weights(5)[name]) for name in file.keys())  # noqa: SIM118
    net.fc1[0].weight.data.zero_()  # a copy: the result does not change
    assert result.weights(5)["fc1.0.weight"].any()


def test_a_run_begins_with_the_weights_of_a_file(result, tmp_path):
    fl.export(result, 5, tmp_path / "client.safetensors")
    own = result.weights(5)
    for weights in (tmp_path / "client.safetensors", own):
        warm = fl.run("local_only", FEDERATION, model=fl.pretrained("lenet5", weights), **SETTING | {"lr": 1e-9})
        assert all(torch.allclose(warm.weights(0)[name], own[name], atol=1e-6) for name in warm.model.trainable)
        assert warm.config["model"] == "lenet5_pretrained"
    other = fl.run("local_only", FEDERATION, model=fl.pretrained("lenet5", result.weights(4)), **SETTING | {"lr": 1e-9})
    assert other.folder != warm.folder


def test_fresh_names_stay_random(result):
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
