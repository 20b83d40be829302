"""Models: sizes, names of their parts, outputs of their layers; models of the user; sweeps in several processes."""

import copy
import functools
import hashlib
import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from archives import pictures
from phases import phase
from refusals import refused
from test_fingerprint import in_a_cell
from test_run import same
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint
from torchvision.models import resnet18
from trees import close, distance, same_bits

import fedlib as fl
from fedlib.data import Dataset
from fedlib.engine.backends import BACKENDS
from fedlib.fingerprint import fingerprint
from fedlib.methods.fedsimsup.supervisors import SUPERVISORS
from fedlib.methods.pfedhr import decompose
from fedlib.models import MODELS, THIN, Model, build, features
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
def test_an_architecture_has_its_parameters_and_each_entry_one_role(name):
    for (shape, n_classes), parameters in PARAMETERS[name].items():
        model = build(name, (MODELS | SUPERVISORS)[name], shape, n_classes, seed=0)
        assert sum(model.weights[entry].numel() for entry in model.trainable) == parameters
        assert model(model.weights, torch.zeros(2, *shape)).shape == (2, n_classes)
        assert sorted([*model.trainable, *model.statistics]) == sorted(model.weights)
        assert model.statistics <= model.batchnorm
        bias, weight = (tuple(model.weights[entry].shape) for entry in sorted(model.classifier))
        assert bias == weight[:1] == (n_classes,)
        assert all(w.is_floating_point() for w in model.weights.values())
    assert not SUPERVISORS.keys() & MODELS.keys()


def test_lenet5_bn_normalises_before_every_relu():
    model = build("lenet5_bn", MODELS["lenet5_bn"], (3, 32, 32), 10, seed=0)
    kinds = [type(m).__name__ for m in model.net.modules() if not list(m.children())]
    before = [kinds[i - 1] for i, kind in enumerate(kinds) if kind == "ReLU"]
    assert before == 2 * ["BatchNorm2d"] + 2 * ["BatchNorm1d"]
    assert len(model.batchnorm) == 4 * 4


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
def test_images_that_a_model_cannot_take_are_refused_and_slightly_larger_ones_are_taken(name, shape, sentence):
    if name in ("m1", "m2", "m3", "m4"):
        _, _, n = shape
        assert MODELS[name]((1, n, n), 4)(torch.zeros(2, 1, n, n)).shape == (2, 4)
    sentence = re.escape(f"shape={shape} is not allowed; {name} {sentence}")
    refused(sentence, build, name, (MODELS | SUPERVISORS)[name], shape, 10, seed=0)


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


@pytest.mark.parametrize("name", THIN)
def test_the_thin_forms_of_m1_to_m4_have_the_same_layers(name):
    model, thin = (build(name, MODELS[n], (3, 32, 32), 10, seed=0) for n in (name, f"{name}_thin"))
    wide, narrow = (sum(own.weights[n].numel() for n in own.trainable) for own in (model, thin))
    assert wide / narrow == pytest.approx(THIN[name] ** 2, rel=0.15)
    assert thin.weights.keys() == model.weights.keys()
    for n, t in thin.weights.items():
        width = [-(-size // THIN[name]) for size in model.weights[n].shape[:1]]
        assert n in model.classifier or list(t.shape[:1]) == width


def mobilenetv2(name: str = "mobilenetv2", n_classes: int = 4, seed: int = 0) -> Model:
    return build(name, MODELS[name], (3, 32, 32), n_classes, seed)


def twelve(*shape: int) -> Dataset:
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


SETTING = dict(rounds=2, join_ratio=0.5, batch_size=8, lr=0.05)
RNG = np.random.default_rng(0)


def mine(shape, n_classes, width=8):
    channels, high, wide = shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * high * wide, width), nn.ReLU(), nn.Linear(width, n_classes))


class Mine(nn.Module):
    def __init__(self, shape, n_classes):
        super().__init__()
        self.layers = mine(shape, n_classes)

    def forward(self, x):
        return self.layers(x)


CELL = """
    from torch import nn

    WIDTH = 8

    def mine(shape, n_classes):
        channels, height, width = shape
        hidden = nn.Linear(channels * height * width, WIDTH)
        return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(WIDTH, n_classes))
"""


def in_a_notebook(cell: str, source: str = CELL):
    return in_a_cell(source, cell, {"__name__": "__main__"})["mine"]


def test_a_function_a_class_and_a_new_name_are_models(federation, monkeypatch):
    monkeypatch.setitem(MODELS, "a_name", mine)
    models = (mine, [mine], "a_name", functools.partial(mine, width=8), in_a_notebook("<own>"), Mine)
    runs = [fl.run("fedper", federation, model, **SETTING, progress=False) for model in models]
    assert [run.config["model"] for run in runs] == ["mine", "mine", "a_name", "mine", "mine", "Mine"]
    assert [run.config["code"][-1] for run in runs] == [fingerprint(mine)] * 3 + list(map(fingerprint, models[3:]))
    for run in runs:
        assert same_bits(list(run.models.values()), list(runs[0].models.values()))
    assert fl.models() == tuple(sorted(MODELS))


def in_each_backend(method, federation, model) -> fl.RunResult:
    """The run in a loop; the stacked one has the same models."""
    setting = SETTING | dict(dtype="float64", progress=False)
    loop, stacked = (fl.run(method, federation, model, **setting, backend=b) for b in ("loop", "stacked"))
    assert loop.folder != stacked.folder
    assert close(loop.models, stacked.models)
    return loop


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_a_batch_of_one_image_is_refused_where_batchnorm_needs_two(backend, federation):
    setting = SETTING | {"batch_size": 1, "backend": backend, "progress": False}
    refused("'lenet5_bn' .* a client has a batch of one image", fl.run, "fedavg", federation, "lenet5_bn", **setting)
    fl.run("fedavg", federation, "m1", **setting)  # has no BatchNorm


class Maker:  # makes models, and has a state that no source defines
    def __call__(self, shape, n_classes):
        return mine(shape, n_classes)


def ends_in(*layers):
    return lambda shape, n_classes: nn.Sequential(*mine(shape, n_classes)[:-1], *copy.deepcopy(layers))


def changed(change):
    def builder(shape, n_classes):
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), *mine((2, 14, 14), n_classes))
        change(net)
        return net

    return builder


def tied(net):
    net.append(nn.Linear(4, 4))
    net.append(nn.Linear(4, 4))
    net[-1].weight = net[-2].weight


def drawn_by_numpy(net):
    nn.init.constant_(net[0].bias, np.random.default_rng().random())


def drawn_from_outside(shape, n_classes):
    return mine(shape, n_classes, width=RNG.integers(2, 3))


class Spare(Mine):  # with a linear layer that is not used
    def __init__(self, shape, n_classes):
        super().__init__(shape, n_classes)
        self.spare = nn.Linear(8, n_classes)


class Twice(Mine):  # gives its logits and something else in training
    def forward(self, x):
        return (self.layers(x), x) if self.training else self.layers(x)


class Remembers(Mine):
    """Moves images by the mean of those that it has seen in training."""

    mean = 0.0

    def forward(self, x):
        before, self.mean = self.mean, 0.9 * self.mean + 0.1 * x.mean() * self.training
        return self.layers(x - before)


class Again(Mine):  # saves memory: what a gradient needs is computed again
    def forward(self, x):
        return self.layers[-1](checkpoint(self.layers[:-1], x, use_reentrant=False))


class Untrained(Mine):  # without gradients
    forward = torch.no_grad()(Mine.forward)


def fails_in_two_lines(shape, n_classes):
    raise RuntimeError("no memory.\nAsk for less.")


def needs_large_images(shape, n_classes):
    raise ValueError("images must be larger.")


ENDS = "it must return what its last nn.Linear gives: the logits [batch, 4]."
REFUSED = {
    "a module": (mine((1, 16, 16), 4), "model is of type Sequential; it must be a name, a function (shape, n_classes)"),
    "nothing": ([], "model is of type list; it must be a name, a function (shape, n_classes)"),
    "another kind in a list": (["lenet5", 3], "model is of type int; it must be a name"),
    "an unknown name in a list": ([mine, "lenet"], "model='lenet' is unknown (did you mean 'lenet5'?)"),
    "several": ([mine, "lenet5"], "model='mine+lenet5' is not allowed; fedavg needs one architecture"),
    "no module": (lambda shape, n_classes: [3], "is not allowed; it returns a list, not a torch.nn.Module."),
    "no classifier": (lambda shape, n_classes: nn.Flatten(), "is not allowed; it has no nn.Linear as its classifier."),
    "too many classes": (ends_in(nn.Linear(8, 5)), ENDS),
    "probabilities": (ends_in(nn.Linear(8, 4), nn.Softmax(1)), ENDS),
    "another last layer": (Spare, f"it returns other numbers than its layer 'spare'; {ENDS}"),
    "another order": (ends_in(nn.Linear(8, 4), nn.Flatten(0), nn.Unflatten(0, (4, 2))), ENDS),
    "frozen": (changed(lambda net: net[0].requires_grad_(False)), "'0.weight' does not require a gradient"),
    "a buffer": (changed(lambda net: net.register_buffer("table", torch.ones(2))), "its 'table' is neither a"),
    "a buffer in no state": (changed(lambda net: net.register_buffer("table", torch.ones(2), False)), "its 'table' is"),
    "a tied classifier": (changed(tied), "its '7.weight' is also a weight of another layer; the last nn.Linear must"),
    "a tuple": (ends_in(nn.Linear(8, 4), nn.LSTM(4, 4)), f"it returns an object of type tuple; {ENDS}"),
    "three axes": (ends_in(nn.Linear(8, 4), nn.Unflatten(1, (4, 1))), f"of shape (2, 4, 1) for two images; {ENDS}"),
    "a tuple in training": (Twice, "in training it returns an object of type tuple, not the logits [batch, 4]."),
    "a state of its own": (Remembers, "its logits change from call to call; it must keep no state but its weights"),
    "layers that run again": (Again, "runs layers again, as torch.utils.checkpoint does, but with other weights."),
    "no gradient": (Untrained, "its logits have no gradient, but a run trains all weights."),
    "a lazy layer": (changed(lambda net: setattr(net[0], "spare", nn.LazyLinear(3))), "'0.spare.weight' has no shape;"),
    "another device": (lambda *sizes: mine(*sizes).to("meta"), "its '1.weight' is on meta; make it on the CPU, a run"),
    "several processes": (changed(lambda net: net.__setitem__(1, nn.SyncBatchNorm(2))), "SyncBatchNorm is for several"),
    "complex weights": (changed(lambda net: setattr(net, "z", nn.Parameter(1j * torch.ones(2)))), "'z' is complex;"),
    "a made classifier": (changed(lambda net: weight_norm(net[-1])), "weight of its last nn.Linear is computed from"),
    "a mean of batches": (changed(lambda net: setattr(net[1], "momentum", None)), "BatchNorm has no momentum; give"),
    "another seed": (changed(drawn_by_numpy), "its initial weights differ from call to call"),
    "other images": (changed(lambda net: net.insert(0, nn.Conv2d(3, 1, 1))), "fails for images (1, 16, 16)"),
    "single precision": (
        changed(lambda net: net[0].register_forward_pre_hook(lambda layer, x: (x[0].float(),))),
        "fails for images (1, 16, 16) and 4 classes (RuntimeError: ",
    ),
    "other arguments": (lambda shape: mine(shape, 4), "and 4 classes (TypeError: "),
    "an error": (fails_in_two_lines, "and 4 classes (RuntimeError: no memory)."),
    "its own refusal": (needs_large_images, "images must be larger."),
    "a state": (Maker(), "no source defines the content of a Maker"),
    "a global state": (drawn_from_outside, "drawn_from_outside cannot be fingerprinted: RNG is or holds a Generator"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_is_refused_in_one_sentence(case, federation, run_store):
    model, sentence = REFUSED[case]
    refused(re.escape(sentence), fl.run, "fedavg", federation, model, **SETTING, dtype="float64")
    assert not run_store.exists()


def test_a_model_that_is_made_once_or_compiled_by_torch_jit_is_refused_and_left_as_it_was(federation):
    layers = mine((1, 16, 16), 8)
    before = [t.clone() for t in layers.parameters()]
    sentence = "its weights are the same tensors at every call; it must make all layers anew."
    with pytest.raises(ValueError, match=re.escape(sentence)):
        fl.run("fedavg", federation, lambda shape, n_classes: nn.Sequential(layers, nn.Linear(8, n_classes)), **SETTING)
    assert same_bits(list(layers.parameters()), before)
    sentence = "it returns a module that torch.jit has compiled; it must return the module itself."
    with pytest.warns(FutureWarning, match="is deprecated"), pytest.raises(ValueError, match=re.escape(sentence)):
        fl.run("fedavg", federation, lambda *sizes: torch.jit.script(Mine(*sizes)), **SETTING)


class TwoNames(Mine):  # whose layers are in a sequence and attributes as well
    def __init__(self, shape, n_classes):
        super().__init__(shape, n_classes)
        self.hidden, self.head = self.layers[1], self.layers[3]


class Tied(nn.Module):  # two hidden layers with the same matrix, each with its own bias
    def __init__(self, shape, n_classes):
        super().__init__()
        self.layers, self.a, self.b = mine(shape, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, n_classes)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.head(self.b(self.a(self.layers(x)).relu()).relu())


class ByHand(Tied):  # the same with one name for the matrix
    def __init__(self, shape, n_classes):
        super().__init__(shape, n_classes)
        del self.b.weight

    def forward(self, x):
        return self.head(nn.functional.linear(self.a(self.layers(x)).relu(), self.a.weight, self.b.bias).relu())


@pytest.mark.parametrize("backend", ["loop", "stacked"])
@pytest.mark.parametrize(("several", "one"), [(TwoNames, mine), (Tied, ByHand)])
def test_a_weight_with_two_names_is_one_weight(several, one, backend, federation):
    setting = SETTING | dict(backend=backend, statistics="local", progress=False)
    two, alone = (fl.run("fedrep", federation, model, **setting).models for model in (several, one))
    assert not any(name.startswith(("hidden", "head")) and several is TwoNames for name in two)
    assert same_bits(list(two.values()), list(alone.values()))


def a_layer_twice(shape, n_classes):
    layer = nn.Linear(8, 8)
    return nn.Sequential(*mine(shape, 8), layer, nn.ReLU(), layer, nn.Linear(8, n_classes))


def one_layer(shape, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], n_classes))


def one_relu(shape, n_classes):
    relu = nn.ReLU()
    first = nn.Conv2d(1, 2, 5), relu, nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*first, nn.Linear(72, 8), relu, nn.Linear(8, n_classes))


def test_a_relu_that_is_in_a_network_twice_is_in_two_blocks_of_pfedhr():
    blocks = decompose(build("own", one_relu, (1, 16, 16), 4, seed=0))
    layers = [" ".join(type(layer).__name__ for layer in block.net) for block in blocks]
    assert layers == ["Conv2d ReLU MaxPool2d", "Flatten Linear ReLU", "Linear"]


def looks_at_a_number(shape, n_classes):
    """With a step that depends on the value of a number."""
    net = mine(shape, n_classes)
    net.register_forward_pre_hook(lambda _, inputs: (inputs[0] if inputs[0].mean().item() < 9 else -inputs[0],))
    return net


def test_what_cannot_be_stacked_is_refused_in_one_sentence_and_runs_in_the_loop(federation):
    sentence = r"model='looks_at_a_number' cannot be trained with backend='stacked' \(RuntimeError: vmap: "
    found = refused(sentence, fl.run, "fedavg", federation, looks_at_a_number, **SETTING, backend="stacked")
    assert found.endswith("); use backend='loop'.")
    fl.run("fedavg", federation, looks_at_a_number, **SETTING, backend="loop", progress=False)


def without_bias(shape, n_classes):
    return nn.Sequential(*mine(shape, n_classes)[:-1], nn.Linear(8, n_classes, bias=False))


def lazy(shape, n_classes):
    """The sizes of its layers are known once it sees an image."""
    first = nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*first, nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(n_classes))


class Attending(nn.Module):  # a Transformer whose tokens are the lines of an image
    def __init__(self, shape, n_classes):
        super().__init__()
        self.tokens = nn.Linear(shape[2], 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, n_classes)

    def forward(self, x):
        return self.head(self.layer(self.tokens(x[:, 0])).mean(1))


OF_HEADS = [  # methods that treat the classifier apart
    *("fedbabu", "fedgen", "fedpac", "fedper", "fedproto", "fedrep", "fedsim", "ifca", "pfedmb", "pfedsim"),
    fl.fedgh(public=False),
    fl.fedcs(at="fc2", every=1),
    fl.fedcs(at="fc2", every=1, side="output"),
]


@pytest.mark.parametrize("method", OF_HEADS, ids=str)
def test_a_classifier_needs_no_bias(method, federation):
    loop = in_each_backend(method, federation, without_bias)
    assert loop.accuracy["loss"].between(0.01, 5).all()
    if loop.config["algorithm"] != "fedgh":  # puts its own classifier in the place of the model's
        assert not any(name.startswith("3.bias") for name in loop.weights(0))


@pytest.mark.parametrize(
    ("method", "model", "sentence"),
    [
        (fl.fedcs(at="fc3"), Tied, "at='fc3' is not allowed; the layer 'a' of model='Tied' must be a linear layer"),
        (fl.fedcs(at="fc1"), Attending, "the layer 'tokens' of model='Attending' must be a linear layer that has one"),
        (fl.fedcs(at="fc2", shifted=True), without_bias, "shifted=True is not allowed; the layer '3' of model="),
        (fl.pfedhr(), a_layer_twice, "cannot be cut into blocks; some of its layers share weights"),
        (fl.fedrep(), one_layer, "model='one_layer' has no weight for this training; the method trains the layers"),
    ],
    ids=["tied", "many vectors", "no bias", "tied blocks", "one layer"],
)
def test_a_method_refuses_layers_that_it_cannot_use(method, model, sentence, federation):
    refused(re.escape(sentence), fl.run, method, federation, model, **SETTING, progress=False)


def test_own_models_train_in_both_backends_beside_others_and_wait_for_the_first_image_if_they_are_lazy(federation):
    loop = in_each_backend("fedper", federation, lazy)
    assert loop.model.weights["4.weight"].shape == (8, 4 * 14 * 14)
    assert (loop.model.weights["1.running_mean"] == 0).all()  # of no image yet
    other = fl.run("fedper", federation, lazy, **SETTING, dtype="float64", seed=1, progress=False)
    assert not loop.model.weights["4.weight"].equal(other.model.weights["4.weight"])
    loop = in_each_backend("local_only", federation, ["lenet5", mine])
    assert loop.config["model"] == "lenet5+mine"
    assert [group.model.name for group in loop.architectures] == ["lenet5", "mine"]


def test_what_a_stack_cannot_speed_up_is_said_once_in_our_words(federation):
    with pytest.warns(UserWarning, match="uses aten::") as said:
        fl.run("fedavg", federation, Attending, **SETTING, backend="stacked", progress=False)
    [one] = map(str, (warning.message for warning in said))
    assert re.fullmatch(r"model='Attending' uses aten::\w+.* but backend='loop' may be faster\.", one)
    with warnings.catch_warnings(action="error"):
        fl.run("fedavg", federation, Attending, **SETTING, backend="loop", progress=False)
        fl.run("fedavg", federation, mine, **SETTING, backend="stacked", progress=False)


def test_two_workers_one_worker_and_no_worker_give_the_same_bits(federation, tmp_path):
    cells = fl.grid(algorithm=[fl.fedavg(), fl.pfedsim()], federation=federation, seed=[0, 1], **SETTING)
    one, two = (fl.sweep(cells, jobs=n, store=tmp_path / str(n), progress=False) for n in (1, 2))
    here = [fl.run(**cell, store=tmp_path / "here", progress=False) for cell in cells]
    for a, b, c in zip(one.results, two.results, here, strict=True):
        assert same(a, b)
        assert same(b, c)
    assert two.cells["algorithm"].tolist() == ["fedavg", "fedavg", "pfedsim", "pfedsim"]
    assert two.cells["seed"].tolist() == [0, 1, 0, 1]
    named = fl.sweep([dict(cells[2], algorithm="pfedsim")], jobs=1, store=tmp_path / "1", progress=False)
    assert named.cells.equals(two.cells.iloc[[2]][named.cells.columns].reset_index(drop=True))
    assert len(two.summary()) == 4


def test_workers_write_into_the_store_of_their_sweep(federation, tmp_path, monkeypatch):
    for seed, name in enumerate("ab"):  # the second sweep has the same processes
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        cells = fl.grid(algorithm=["fedavg", "local_only"], federation=federation, **SETTING | {"seed": seed})
        fl.sweep(cells, jobs=2, store="runs", progress=False)
    assert [len([*(tmp_path / name / "runs").glob("*-*/run.safetensors")]) for name in "ab"] == [2, 2]


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_failing_cell_of_a_sweep_costs_no_other_and_is_named(jobs, federation, tmp_path):
    @fl.algorithm
    def fails(at: int = 9):
        def round(state, cohort):
            if cohort.round == at:
                raise ZeroDivisionError("as told")
            return state

        return fl.fedavg()._replace(name="fails", round=round)

    cells = fl.grid(algorithm=["fedavg", fails(at=1), fails(at=0), fails()], federation=federation, **SETTING)
    with pytest.raises(ZeroDivisionError, match="as told") as error:
        fl.sweep(cells, jobs=jobs, progress=False, store=tmp_path)
    notes = error.value.__notes__
    assert notes[0] == "in round 2 of fails(at=1)"
    assert notes[-1] == "in the sweep's cell fails(at=1), seed 0; 2 of 4 cells failed, the others are finished"
    assert any("in round" in note and "Traceback" in note for note in notes) == (jobs == 2)
    assert sorted(path.parent.name.partition("-")[0] for path in tmp_path.glob("*/rounds.csv")) == ["fails", "fedavg"]


def test_own_models_reach_the_processes_of_a_sweep(federation, tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "a_name", in_a_notebook("<own>"))
    models = [in_a_notebook("<own>"), Mine, "a_name", ["lenet5_plain", "a_name"]]
    cells = fl.grid(algorithm="local_only", federation=federation, model=models, **SETTING)
    cells += fl.grid(algorithm=fl.fedkemf(knowledge="a_name"), federation=federation, **SETTING)
    swept = fl.sweep(cells, jobs=2, progress=False, store=tmp_path / "workers")
    assert swept.cells["model"].tolist() == ["mine", "Mine", "a_name", "lenet5_plain+a_name", "lenet5"]
    for cell, result in zip(cells, swept.results, strict=True):
        here = fl.run(**cell, progress=False, store=tmp_path / "here")
        assert here.folder.name == result.folder.name
        assert same_bits(here.models, result.models)
