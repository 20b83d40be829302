"""Models: the paper's sizes, the names of their parts, and the outputs of their layers."""

import hashlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from archives import pictures
from phases import phase
from refusals import refused
from torchvision.models import resnet18
from trees import distance

import fedlib as fl
from fedlib.data import Dataset
from fedlib.engine.backends import BACKENDS
from fedlib.methods.fedsimsup.supervisors import SUPERVISORS
from fedlib.models import MODELS, Model, build, features
from fedlib.models.pooling import MaxPool2
from fedlib.stack import Params

LEAST = (16, 32, 26, 8)  # pixels, of M1 to M4


CIFAR10, CIFAR100, FEMNIST = ((3, 32, 32), 10), ((3, 32, 32), 100), ((1, 28, 28), 62)
PARAMETERS = {  # of each architecture, as papers and torchvision have them
    "lenet5": {CIFAR10: 62_050, FEMNIST: 48_890},
    "lenet5_bn": {CIFAR10: 62_006 + 2 * (6 + 16 + 120 + 84)},
    "lenet4": {CIFAR10: 878_538},
    "mobilenetv2": {((3, 32, 32), 4): 2_223_872 + 1_280 * 4 + 4, ((3, 32, 32), 200): 2_480_072},
    "resnet18": {CIFAR10: 11_173_962},
    "resnet18_gn": {CIFAR10: 11_173_962},
    "m1": {CIFAR10: 97_384},
    "m2": {CIFAR10: 245_224},
    "m3": {CIFAR10: 2_510_178},
    "m4": {CIFAR10: 5_980_938},
    "small_lenet": {CIFAR10: 10_318, CIFAR100: 11_778, FEMNIST: 8_074},
    "small_lenet4": {CIFAR10: 146_301, CIFAR100: 153_756, FEMNIST: 100_844},
    "small_cnn": {CIFAR10: 1_562, CIFAR100: 3_092, FEMNIST: 2_302},
    "small_vit": {CIFAR10: 142_026, CIFAR100: 147_876, FEMNIST: 142_398},
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_an_architecture_has_its_parameters(name):
    for (shape, n_classes), parameters in PARAMETERS[name].items():
        model = build(name, (MODELS | SUPERVISORS)[name], shape, n_classes, seed=0)
        assert sum(model.weights[entry].numel() for entry in model.trainable) == parameters
        assert model(model.weights, torch.zeros(2, *shape)).shape == (2, n_classes)
    assert not SUPERVISORS.keys() & MODELS.keys()


def test_lenet5_bn_normalises_before_every_relu():
    model = build("lenet5_bn", MODELS["lenet5_bn"], (3, 32, 32), 10, seed=0)
    kinds = [type(m).__name__ for m in model.net.modules() if not list(m.children())]
    before = [kinds[i - 1] for i, kind in enumerate(kinds) if kind == "ReLU"]
    assert before == 2 * ["BatchNorm2d"] + 2 * ["BatchNorm1d"]
    assert len(model.batchnorm) == 4 * 4


@pytest.mark.parametrize(
    ("name", "phi", "n"),
    [("lenet5", "classifier", 84), ("mobilenetv2", "classifier.1", 1280), ("small_vit", "classifier", 64)],
)
def test_the_parts_of_a_model_are_named_once_each(name, phi, n):
    model = build(name, (MODELS | SUPERVISORS)[name], (3, 32, 32), 10, seed=0)
    assert set(model.trainable) | model.statistics == set(model.weights)
    assert not set(model.trainable) & model.statistics
    assert model.statistics <= model.batchnorm
    shapes = {entry: tuple(model.weights[entry].shape) for entry in model.classifier}
    assert shapes == {f"{phi}.weight": (10, n), f"{phi}.bias": (10,)}
    assert all(w.is_floating_point() for w in model.weights.values())


@pytest.mark.parametrize(("name", "entry"), [("lenet5", "classifier.weight"), ("mobilenetv2", "features.0.0.weight")])
def test_the_same_seed_gives_the_same_weights_and_leaves_the_global_random_state_alone(name, entry):
    before = torch.get_rng_state()
    first, again, other = (build(name, MODELS[name], (3, 32, 32), 10, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(w, again.weights[key]) for key, w in first.weights.items())
    assert not torch.equal(first.weights[entry], other.weights[entry])


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("lenet5", (3, 15, 32), "needs images of at least 16x16 pixels"),
        ("small_lenet", (3, 15, 32), "needs images of at least 16x16 pixels"),
        ("small_cnn", (3, 7, 32), "needs images of at least 8x8 pixels"),
        ("small_vit", (3, 30, 32), "needs a height and a width divisible by 4"),
        *((f"m{i}", (1, n - 1, n), f"needs images of at least {n}x{n} pixels") for i, n in enumerate(LEAST, 1)),
        *(("mobilenetv2", shape, "needs 3 channels") for shape in ((1, 32, 32), (3, 31, 32), (3, 32, 31))),
    ],
)
def test_images_that_a_model_cannot_take_are_refused(name, shape, sentence):
    with pytest.raises(ValueError, match=re.escape(f"shape={shape} is not allowed; {name} {sentence}")):
        build(name, (MODELS | SUPERVISORS)[name], shape, 10, seed=0)


def test_m1_to_m4_take_the_smallest_images_that_they_say():
    for i, n in enumerate(LEAST, 1):
        assert MODELS[f"m{i}"]((1, n, n), 4)(torch.zeros(2, 1, n, n)).shape == (2, 4)


def test_features_are_what_the_layers_answer_on_the_way_to_the_logits():
    model = build("lenet5", MODELS["lenet5"], (3, 32, 32), 10, seed=0)
    x = torch.randn(5, 3, 32, 32)
    seen = features(model, model.weights, x, {"first": "conv1.2", "hidden": "fc2", "last": "classifier"})
    shapes = {name: tuple(t.shape) for name, t in seen.items()}
    assert shapes == {"first": (5, 6, 28, 28), "hidden": (5, 84), "last": (5, 10)}
    assert torch.equal(seen["last"], model(model.weights, x))
    oracle = seen["hidden"] @ model.weights["classifier.weight"].T + model.weights["classifier.bias"]
    assert torch.allclose(seen["last"], oracle, atol=1e-6)
    z, logits = model.entering("classifier", model.weights, x)
    assert torch.equal(z, seen["hidden"])
    assert torch.equal(logits, seen["last"])
    refused(r"layers=\['conv9'\] are unknown", features, model, model.weights, x, {"none": "conv9"})


def mobilenetv2(name: str = "mobilenetv2", n_classes: int = 4, seed: int = 0) -> Model:
    return build(name, MODELS[name], (3, 32, 32), n_classes, seed)


def twelve(*shape: int) -> Dataset:
    """Twelve images of four classes."""
    y, one = np.arange(12) % 4, np.zeros(12, np.int64)
    return Dataset("tiny", pictures(12, *shape), y, tuple("abcd"), one.astype(np.uint8), one, ("tiny",))


def one_step(model: Model, backend: str) -> tuple[Params, torch.Tensor]:
    """Two clients take one step from the same weights, six images each, in float64."""
    work = phase(model, twelve(3, 32, 32), np.arange(12).reshape(2, 6), batch_size=6)
    return BACKENDS[backend](torch.device("cpu"), None, True)(work)


def test_a_step_of_mobilenetv2_is_the_same_by_loop_by_stack_and_without_operations_in_place():
    model = mobilenetv2()
    assert model.net.classifier[0].p == 0.2
    model.net.classifier[0].p = 0.0
    (loop, loop_loss), (stacked, stacked_loss) = (one_step(model, backend) for backend in ("loop", "stacked"))
    for name, start in model.weights.items():
        assert not torch.equal(loop[name][0], start.double())
        torch.testing.assert_close(stacked[name], loop[name], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(stacked_loss, loop_loss, rtol=1e-6, atol=0)  # reported in float32
    for module in model.net.modules():
        if isinstance(module, torch.nn.ReLU6):
            module.inplace = False
    assert all(torch.equal(w, stacked[name]) for name, w in one_step(model, "stacked")[0].items())


@pytest.mark.parametrize("name", ["resnet18", "resnet18_gn"])
def test_resnet18_is_that_of_torchvision_with_a_stem_for_small_images(name):
    model, theirs = build(name, MODELS[name], (3, 32, 32), 10, seed=0), resnet18(num_classes=10)
    own = {entry: tuple(model.weights[entry].shape) for entry in model.trainable}
    expected = {entry: tuple(w.shape) for entry, w in theirs.named_parameters()}
    assert own == expected | {"conv1.weight": (64, 3, 3, 3)}
    assert model.classifier == {"fc.weight", "fc.bias"}
    stem = model.weights["conv1.weight"].std().item()  # sqrt(2 / fan out)
    assert stem == pytest.approx((2 / (64 * 3 * 3)) ** 0.5, rel=0.05)
    stages = features(model, model.weights, torch.randn(2, 3, 32, 32), {n: n for n in ("conv1", "layer1", "layer4")})
    assert [tuple(t.shape) for t in stages.values()] == [(2, 64, 32, 32), (2, 64, 32, 32), (2, 512, 4, 4)]


def test_resnet18_has_statistics_and_with_groupnorm_it_has_none():
    normed, grouped = (build(name, MODELS[name], (1, 8, 8), 4, seed=0) for name in ("resnet18", "resnet18_gn"))
    assert (len(normed.statistics), len(normed.batchnorm)) == (2 * 20, 4 * 20)
    assert set(normed.weights) == set(normed.trainable) | normed.statistics
    assert (grouped.statistics, grouped.batchnorm) == (frozenset(), frozenset())
    assert set(grouped.weights) == set(grouped.trainable) == set(normed.trainable)
    norms = [m for m in grouped.net.modules() if isinstance(m, torch.nn.GroupNorm)]
    assert [m.num_groups for m in norms] == [32] * 20
    x, w = torch.randn(3, 1, 8, 8), grouped.weights  # what it answers to an image does not depend on the others
    torch.testing.assert_close(grouped(w, x)[:1], grouped(w, x[:1]))


def test_a_run_of_resnet18_is_the_same_by_loop_and_by_stack():
    federation = fl.federate(twelve(2, 8, 10), fl.iid(), clients=2)
    setting = dict(rounds=1, batch_size=4, dtype="float64", statistics="local", progress=False)
    loop, stacked = (fl.run("fedper", federation, "resnet18", **setting, backend=b) for b in BACKENDS)
    assert distance(stacked.models, loop.models) < 1e-9
    own = [entry for entry, t in loop.models.items() if not torch.equal(t[0], t[1])]
    assert set(own) == loop.model.statistics | loop.model.classifier


@pytest.fixture
def weights_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the pretrained weights belong; nothing is there, nor in torch's cache."""
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "mobilenet_v2-7ebf99e0.pth"


def test_pretrained_weights_that_are_not_there_are_asked_for_in_one_sentence(weights_file, tmp_path):
    sentence = refused(r"from https://download\.pytorch\.org/models/mobile", mobilenetv2, "mobilenetv2_pretrained")
    cached = tmp_path / "torch" / "hub" / "checkpoints" / weights_file.name
    assert sentence.endswith(f"put it at {weights_file} or {cached}.")
    weights_file.write_bytes(b"other")
    refused(r"7ebf99e0\.pth is not the expected file: its sha256 is d9298a10", mobilenetv2, "mobilenetv2_pretrained")


@pytest.mark.parametrize("place", ["data", "torch/hub/checkpoints"])
def test_pretrained_weights_are_all_but_phi(place, weights_file, tmp_path, monkeypatch):
    file = tmp_path / place / weights_file.name
    file.parent.mkdir(parents=True, exist_ok=True)
    imagenet = MODELS["mobilenetv2"]((3, 32, 32), 1000).state_dict()
    torch.save(imagenet, file)
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(inspect.getmodule(MODELS["mobilenetv2"]), "SHA256", found[:8])
    first, other = (mobilenetv2("mobilenetv2_pretrained", seed=seed) for seed in (1, 2))
    assert all(torch.equal(w, imagenet[name]) for name, w in first.weights.items() if name not in first.classifier)
    assert first.weights["classifier.1.weight"].shape == (4, 1280)
    assert not torch.equal(first.weights["classifier.1.weight"], other.weights["classifier.1.weight"])


@pytest.mark.parametrize("shape", [(3, 2, 6, 8), (2, 5, 7), (1, 3, 9, 4)])
def test_the_maximum_over_windows_is_that_of_pytorch(shape):
    x = torch.randint(-2, 3, shape).double() * torch.rand(shape, dtype=torch.float64).round()
    x[..., 1, 1] = torch.nan
    x[..., 2, 0] = torch.inf
    expected = torch.nn.functional.max_pool2d(x, 2)
    with torch.no_grad():
        assert torch.equal(MaxPool2()(x).nan_to_num(9), expected.nan_to_num(9))
    assert torch.equal(MaxPool2()(x).nan_to_num(9), expected.nan_to_num(9))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(3, 2, 4, 6), (2, 3, 5, 7), (1, 1, 2, 254), (1, 2, 3, 256), (1, 1, 2, 600)])
def test_the_gradient_of_a_maximum_goes_to_the_first_of_equal_ones(shape, layout):
    torch.manual_seed(0)
    x = torch.randint(0, 3, shape).float().contiguous(memory_format=layout).requires_grad_()  # most windows have a tie
    expected = torch.nn.functional.max_pool2d(x, 2)
    out, towards = MaxPool2()(x), torch.randn_like(expected)
    assert torch.equal(out, expected)
    [found], [known] = (torch.autograd.grad(y, x, towards) for y in (out, expected))
    assert torch.equal(found, known)


def test_clients_side_by_side_have_the_gradient_of_each_one():
    torch.manual_seed(0)
    x = torch.randint(0, 3, (4, 2, 3, 6, 8)).double()

    def loss(x):
        return (MaxPool2()(x) ** 2).sum()

    together = torch.func.vmap(torch.func.grad(loss))(x)
    assert torch.equal(together, torch.stack([torch.func.grad(loss)(one) for one in x]))


def test_a_model_is_a_function_of_its_weights():
    model = build("lenet5", MODELS["lenet5"], (1, 16, 16), 3, seed=0)
    x, own = torch.randn(4, 1, 16, 16), {name: t.clone() for name, t in model.net.state_dict().items()}
    w = {name: t + 0.1 for name, t in model.weights.items()}
    copy = {name: t.clone() for name, t in w.items()}
    model.net.train()
    assert torch.equal(model(w, x), torch.func.functional_call(model.net, copy, x))
    changed = {name for name, t in w.items() if not torch.equal(t, model.weights[name] + 0.1)}
    assert changed == model.statistics  # written by the forward pass
    assert all(torch.equal(w[name], copy[name]) for name in changed)
    few = {name: w[name] for name in model.classifier}
    with pytest.raises(RuntimeError):
        model(w, x[:, :, :2])  # too small for a convolution
    assert all(torch.equal(t, own[name]) for name, t in model.net.state_dict().items())
    assert [name for name, _ in model.net.named_parameters()] == list(model.trainable)
    assert torch.equal(model(few, x), torch.func.functional_call(model.net, few, x))
    assert torch.equal(model(w | {"other": x}, x), torch.func.functional_call(model.net, w, x))
