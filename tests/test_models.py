"""Models: the paper's sizes, the names of their parts, and what their layers answer."""

import pytest
import torch

from fedlib import bench
from fedlib.models import MODELS, build
from fedlib.models.features import features


@pytest.mark.parametrize(("shape", "n_classes", "parameters"), [((3, 32, 32), 10, 62_050), ((1, 28, 28), 62, 48_890)])
def test_lenet5_has_the_parameters_of_the_paper(shape, n_classes, parameters):
    model = build("lenet5", MODELS["lenet5"], shape, n_classes, seed=0)
    assert sum(model.weights[name].numel() for name in model.trainable) == parameters


def test_the_parts_of_a_model_are_named_once_each():
    model = build("lenet5", MODELS["lenet5"], (3, 32, 32), 10, seed=0)
    assert set(model.trainable) | model.statistics == set(model.weights)
    assert not set(model.trainable) & model.statistics
    assert model.statistics < model.batchnorm
    assert {name: tuple(model.weights[name].shape) for name in model.classifier} == {
        "classifier.weight": (10, 84),
        "classifier.bias": (10,),
    }
    assert all(w.is_floating_point() for w in model.weights.values())


def test_the_same_seed_gives_the_same_weights():
    first, again, other = (build("lenet5", MODELS["lenet5"], (3, 32, 32), 10, seed) for seed in (1, 1, 2))
    assert all(torch.equal(w, again.weights[name]) for name, w in first.weights.items())
    assert not torch.equal(first.weights["classifier.weight"], other.weights["classifier.weight"])


def test_images_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match="needs images of at least 16x16 pixels"):
        build("lenet5", MODELS["lenet5"], (3, 15, 32), 10, seed=0)


def test_features_are_what_the_layers_answer_on_the_way_to_the_logits():
    model = build("lenet5", MODELS["lenet5"], (3, 32, 32), 10, seed=0)
    x = torch.randn(5, 3, 32, 32)
    seen = features(model, model.weights, x, {"first": "conv1.2", "hidden": "fc2", "last": "classifier"})
    assert {name: tuple(t.shape) for name, t in seen.items()} == {
        "first": (5, 6, 28, 28),
        "hidden": (5, 84),
        "last": (5, 10),
    }
    assert torch.equal(seen["last"], model(model.weights, x))
    oracle = seen["hidden"] @ model.weights["classifier.weight"].T + model.weights["classifier.bias"]
    assert torch.allclose(seen["last"], oracle, atol=1e-6)
    with pytest.raises(ValueError, match=r"layers=\['conv9'\] are unknown"):
        features(model, model.weights, x, {"none": "conv9"})


def test_the_bench_prints_the_ratio_to_a_bare_loop(capsys):
    bench.main(["--clients", "1", "--steps", "2", "--turns", "1", "--backends", "loop"])
    assert "ratio " in capsys.readouterr().out
