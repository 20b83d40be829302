"""Models of the user: a function, a class or a new name; in other processes; and their requirements."""

import copy
import functools
import re
import warnings

import numpy as np
import pytest
import torch
from refusals import refused
from test_fingerprint import in_a_cell
from torch import nn
from torch.utils.checkpoint import checkpoint
from trees import close, same_bits

import fedlib as fl
from fedlib.fingerprint import fingerprint
from fedlib.methods.pfedhr import decompose
from fedlib.models import MODELS, build

SETTING = dict(rounds=2, join_ratio=0.5, batch_size=8, lr=0.05)
RNG = np.random.default_rng(0)


def mine(shape, n_classes, width=8):
    """One hidden layer."""
    channels, high, wide = shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * high * wide, width), nn.ReLU(), nn.Linear(width, n_classes))


class Mine(nn.Module):
    """The same as a class."""

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
    """`mine` of a notebook's cell, whose source is in no file."""
    return in_a_cell(source, cell, {"__name__": "__main__"})["mine"]


def test_the_models_there_are(monkeypatch):
    monkeypatch.setitem(MODELS, "a_name", mine)
    assert fl.models() == tuple(sorted(MODELS))
    assert {"a_name", "lenet5", "resnet18", "resnet18_gn"} <= set(fl.models())


def test_a_function_a_class_and_a_new_name_are_models(federation, monkeypatch):
    monkeypatch.setitem(MODELS, "a_name", mine)
    models = (mine, [mine], "a_name", functools.partial(mine, width=8), in_a_notebook("<own>"), Mine)
    runs = [fl.run("fedper", federation, model, **SETTING, progress=False) for model in models]
    assert [run.config["model"] for run in runs] == ["mine", "mine", "a_name", "mine", "mine", "Mine"]
    assert [run.config["code"][-1] for run in runs] == [fingerprint(mine)] * 3 + list(map(fingerprint, models[3:]))
    for run in runs:
        assert same_bits(list(run.models.values()), list(runs[0].models.values()))


def in_each_backend(method, federation, model) -> fl.RunResult:
    """The run in a loop; the stacked one has the same models."""
    setting = SETTING | dict(dtype="float64", progress=False)
    loop, stacked = (fl.run(method, federation, model, **setting, backend=b) for b in ("loop", "stacked"))
    assert loop.folder != stacked.folder
    assert close(loop.models, stacked.models)
    return loop


def test_own_models_train_in_both_backends_and_beside_others(federation):
    loop = in_each_backend("local_only", federation, ["lenet5", mine])
    assert loop.config["model"] == "lenet5+mine"
    assert [group.model.name for group in loop.architectures] == ["lenet5", "mine"]


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_a_batch_of_one_image_is_refused_where_batchnorm_needs_two(backend, federation):
    with pytest.raises(ValueError, match=r"model='lenet5_bn' is not allowed where a client has a batch of one image"):
        fl.run("fedavg", federation, "lenet5_bn", **SETTING | {"batch_size": 1}, backend=backend)
    setting = SETTING | {"batch_size": 1}
    fl.run("fedavg", federation, "m1", **setting, backend=backend, progress=False)  # has no BatchNorm


class Maker:
    """Makes models, and has a state that no source defines."""

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


class Spare(Mine):
    """With a linear layer that is not used."""

    def __init__(self, shape, n_classes):
        super().__init__(shape, n_classes)
        self.spare = nn.Linear(8, n_classes)


class Twice(Mine):
    """Gives its logits and something else in training."""

    def forward(self, x):
        return (self.layers(x), x) if self.training else self.layers(x)


class Remembers(Mine):
    """Moves images by the mean of those that it has seen in training."""

    mean = 0.0

    def forward(self, x):
        before, self.mean = self.mean, 0.9 * self.mean + 0.1 * x.mean() * self.training
        return self.layers(x - before)


class Again(Mine):
    """Saves memory: what a gradient needs is computed again."""

    def forward(self, x):
        return self.layers[-1](checkpoint(self.layers[:-1], x, use_reentrant=False))


class Untrained(Mine):
    """Without gradients."""

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
    "a buffer in no state": (
        changed(lambda net: net.register_buffer("table", torch.ones(2), persistent=False)),
        "its 'table' is neither a trainable weight nor a statistic of BatchNorm",
    ),
    "a tied classifier": (changed(tied), "its '7.weight' is also a weight of another layer; the last nn.Linear must"),
    "a tuple": (ends_in(nn.Linear(8, 4), nn.LSTM(4, 4)), f"it returns an object of type tuple; {ENDS}"),
    "three axes": (
        ends_in(nn.Linear(8, 4), nn.Unflatten(1, (4, 1))),
        f"it returns a tensor of shape (2, 4, 1) for two images; {ENDS}",
    ),
    "a tuple in training": (Twice, "in training it returns an object of type tuple, not the logits [batch, 4]."),
    "a state of its own": (Remembers, "its logits change from call to call; it must keep no state but its weights"),
    "layers that run again": (Again, "runs layers again, as torch.utils.checkpoint does, but with other weights."),
    "no gradient": (Untrained, "its logits have no gradient, but a run trains all weights."),
    "a lazy layer without images": (
        changed(lambda net: setattr(net[0], "spare", nn.LazyLinear(3))),
        "its '0.spare.weight' has no shape; a lazy layer gets its shape in a forward pass.",
    ),
    "another device": (lambda *sizes: mine(*sizes).to("meta"), "its '1.weight' is on meta; make it on the CPU, a run"),
    "several processes": (
        changed(lambda net: net.__setitem__(1, nn.SyncBatchNorm(2))),
        "its SyncBatchNorm is for several processes; use BatchNorm2d.",
    ),
    "complex weights": (
        changed(lambda net: setattr(net, "phase", nn.Parameter(torch.ones(2, dtype=torch.complex64)))),
        "its 'phase' is complex; all weights must be real.",
    ),
    "a classifier that is made of others": (
        changed(lambda net: nn.utils.parametrizations.weight_norm(net[-1])),
        "the weight of its last nn.Linear is computed from other tensors; it must be a parameter.",
    ),
    "a mean over all batches": (
        changed(lambda net: setattr(net[1], "momentum", None)),
        "BatchNorm has no momentum; give a number, such as momentum=0.1.",
    ),
    "another seed": (changed(drawn_by_numpy), "its initial weights differ from call to call"),
    "other images": (changed(lambda net: net.insert(0, nn.Conv2d(3, 1, 1))), "fails for images of shape (1, 16, 16)"),
    "single precision": (
        changed(lambda net: net[0].register_forward_pre_hook(lambda layer, x: (x[0].float(),))),
        "fails for images of shape (1, 16, 16) and 4 classes (RuntimeError: ",
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


def test_a_model_that_is_made_once_is_refused_and_left_as_it_was(federation):
    layers = mine((1, 16, 16), 8)
    before = [t.clone() for t in layers.parameters()]
    sentence = "its weights are the same tensors at every call; it must make all layers anew."
    with pytest.raises(ValueError, match=re.escape(sentence)):
        fl.run("fedavg", federation, lambda shape, n_classes: nn.Sequential(layers, nn.Linear(8, n_classes)), **SETTING)
    assert same_bits(list(layers.parameters()), before)


def test_a_module_of_torch_jit_is_refused(federation):
    sentence = "it returns a module that torch.jit has compiled; it must return the module itself."
    with pytest.warns(FutureWarning, match="is deprecated"), pytest.raises(ValueError, match=re.escape(sentence)):
        fl.run("fedavg", federation, lambda *sizes: torch.jit.script(Mine(*sizes)), **SETTING)


class TwoNames(nn.Module):
    """The layers of `mine`, which are attributes and in a sequence as well."""

    def __init__(self, shape, n_classes):
        super().__init__()
        layers = mine(shape, n_classes)
        self.hidden, self.head, self.layers = layers[1], layers[3], layers

    def forward(self, x):
        return self.layers(x)


class Tied(nn.Module):
    """Two hidden layers with the same matrix, each with its own bias."""

    def __init__(self, shape, n_classes):
        super().__init__()
        self.layers, self.a, self.b = mine(shape, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, n_classes)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.head(self.b(self.a(self.layers(x)).relu()).relu())


class ByHand(Tied):
    """The same with one name for the matrix."""

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
    assert not any(name.startswith("layers") and several is TwoNames for name in two)
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
    assert [[type(layer).__name__ for layer in block.net] for block in blocks] == [
        ["Conv2d", "ReLU", "MaxPool2d"],
        ["Flatten", "Linear", "ReLU"],
        ["Linear"],
    ]


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


class Attending(nn.Module):
    """A Transformer whose tokens are the lines of an image."""

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


def test_layers_that_wait_for_the_first_image_are_built_before_the_run(federation):
    loop = in_each_backend("fedper", federation, lazy)
    assert loop.model.weights["4.weight"].shape == (8, 4 * 14 * 14)
    assert (loop.model.weights["1.running_mean"] == 0).all()  # of no image yet
    other = fl.run("fedper", federation, lazy, **SETTING, dtype="float64", seed=1, progress=False)
    assert not loop.model.weights["4.weight"].equal(other.model.weights["4.weight"])


def test_what_a_stack_cannot_speed_up_is_said_once_in_our_words(federation):
    with pytest.warns(UserWarning, match="uses aten::") as said:
        fl.run("fedavg", federation, Attending, **SETTING, backend="stacked", progress=False)
    [one] = map(str, (warning.message for warning in said))
    assert re.fullmatch(r"model='Attending' uses aten::\w+.* but backend='loop' may be faster\.", one)
    with warnings.catch_warnings(action="error"):
        fl.run("fedavg", federation, Attending, **SETTING, backend="loop", progress=False)
        fl.run("fedavg", federation, mine, **SETTING, backend="stacked", progress=False)
