"""`vmap` with `Rules` gives the same results for a layer as without."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from phases import Operations, phase
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from fedlib.engine.begun import begin
from fedlib.engine.program import Program
from fedlib.engine.rules import Norm, Pool, Rules
from fedlib.models import MODELS, build

K, BATCH = 3, 5


def together(net, x, y, with_rules, ending=F.cross_entropy):
    """Loss, gradients of the weights and of the images, and statistics of K clients, each with its own weights."""
    torch.manual_seed(1)
    w = {name: torch.rand(K, *t.shape).double() + 0.5 for name, t in net.named_parameters()}
    statistics = {name: torch.rand(K, *t.shape).double() + 0.5 for name, t in net.named_buffers()}

    def loss(wx, statistics, y):
        written = {name: t.clone() for name, t in statistics.items()}
        w, x = wx
        if with_rules:
            with Rules(labels=y):
                return ending(functional_call(net, {**w, **written}, x), y), written
        return ending(functional_call(net, {**w, **written}, x), y), written

    (of_w, of_x), (value, written) = vmap(grad_and_value(loss, has_aux=True))((w, x), statistics, y)
    return {"loss": value, "x": of_x} | of_w | written


def same(net, shape, ending=F.cross_entropy, labels=None):
    torch.manual_seed(0)
    for layer in net.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.num_batches_tracked = None
    x = torch.randn(K, BATCH, *shape).double().round(decimals=1)  # equal pixels
    y = torch.randint(0, 4, (K, BATCH)) if labels is None else labels
    plain, ruled = (together(net.double(), x, y, ruled, ending) for ruled in (False, True))
    assert plain.keys() == ruled.keys()
    for name, t in plain.items():
        assert torch.allclose(t, ruled[name], rtol=1e-9, atol=1e-12), name
    return ruled


@pytest.fixture
def asked(monkeypatch):
    """Number of uses of each rule."""
    counts = Counter(norm=0, pool=0)
    for name, function in {"norm": Norm, "pool": Pool}.items():
        spy = partial(lambda name, real, *given: counts.update([name]) or real(*given), name, function.vmap)
        monkeypatch.setattr(function, "vmap", staticmethod(spy))
    return counts


@pytest.mark.parametrize(
    "options",
    [{"kernel_size": 2}, {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)},
     {"kernel_size": 2, "stride": 3, "dilation": 2}, {"kernel_size": 2, "ceil_mode": True}],
    ids=["usual", "overlapping", "dilated", "rounded up"],
)  # fmt: skip
def test_pooling(options, asked):
    layers = nn.Conv2d(2, 4, 3), nn.MaxPool2d(**options), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    same(nn.Sequential(*layers), (2, 9, 11))
    assert asked["pool"] == 1


@pytest.mark.parametrize(("layer", "shape"), [(nn.BatchNorm2d(3), (3, 4, 5)), (nn.BatchNorm1d(3), (3,))])
def test_batchnorm_writes_the_same_statistics(layer, shape, asked):
    layer.momentum, layer.eps = 0.3, 0.01
    n = int(np.prod(shape))
    found = same(nn.Sequential(layer, nn.Flatten(), nn.Linear(n, 4)), shape)
    assert asked["norm"] == 1
    assert not torch.equal(found["0.running_var"][0], found["0.running_var"][1])


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm2d(3, affine=False), nn.BatchNorm2d(3, track_running_stats=False), nn.BatchNorm2d(3).eval(),
     nn.GroupNorm(3, 3), nn.MaxPool2d(2, return_indices=True)],
    ids=["without weights", "without statistics", "evaluated", "of groups", "with places"],
)  # fmt: skip
def test_what_has_no_rule_is_left_as_it_is(layer, asked):
    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            out = self.layer(x)
            return (out[0] if isinstance(layer, nn.MaxPool2d) else out).mean((2, 3))

    same(First(), (3, 4, 6), labels=torch.tensor([[0, 1, 2, 2, 1], [1, 1, 1, 0, 0], [2, 0, 0, 2, 1]]))
    assert asked == {"norm": 0, "pool": 0}


@pytest.mark.parametrize(
    "ending",
    [F.cross_entropy, partial(F.cross_entropy, label_smoothing=0.2), partial(F.cross_entropy, reduction="sum"),
     partial(F.cross_entropy, weight=torch.tensor([1.0, 2.0, 3.0, 4.0]).double()),
     lambda logits, y: F.cross_entropy(logits, torch.where(y == 1, -100, y))],
    ids=["usual", "smooth", "sum", "weighted", "some left out"],
)  # fmt: skip
def test_cross_entropy(ending):
    labels = torch.tensor([[0, 1, 2, 3, 1], [3, 3, 1, 0, 0], [2, 2, 2, 2, 1]])
    same(nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), (3, 2, 2), ending, labels)


def test_a_step_of_lenet5_has_at_most_90_operations(tiny):
    model = build("lenet5", MODELS["lenet5"], tiny.x.shape[1:], 4, seed=0)
    task = begin(phase(model, tiny, [np.arange(16)] * 10, dtype=torch.float32))
    program = Program(task, 10, 2, "grouped", False)
    model.net.train()
    program._load(task)
    with Operations() as counted:
        program._advance(10, "grouped")
    assert 50 < counted.n <= 90
