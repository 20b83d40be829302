"""Kernels for GPUs against PyTorch in float64; without a GPU Triton's interpreter carries them out."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from phases import Operations, phase
from processes import python
from torch import nn
from torch.func import functional_call, grad, vjp, vmap

from fedlib.engine import backends
from fedlib.engine.begun import begin
from fedlib.engine.convolution import FORMS, convolutions, forms_of, layers_of
from fedlib.engine.loop import train_loop
from fedlib.engine.program import CaptureError, Forms, Program
from fedlib.engine.stacked import Stacked
from fedlib.fingerprint import fingerprint
from fedlib.models import MODELS, build
from fedlib.models.pooling import MaxPool2
from fedlib.tools.bench.cases import cohort_phase

pytestmark = pytest.mark.slow
kernels = pytest.importorskip("fedlib.engine.kernels")  # Triton comes with PyTorch for CUDA
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WAYS = FORMS[2:]
CASES = {  # clients, images, groups, channels in and out of a group, pixels, kernel, stride, padding
    "LeNet": (3, 4, 1, 3, 6, (9, 8), (5, 5), (1, 1), (0, 0)),
    "padded": (2, 3, 1, 5, 17, (7, 6), (3, 3), (1, 1), (1, 1)),
    "stride": (2, 3, 1, 2, 3, (7, 9), (3, 3), (2, 2), (1, 1)),
    "pointwise": (2, 2, 1, 3, 4, (5, 6), (1, 1), (1, 1), (0, 0)),
    "pointwise, stride": (2, 2, 1, 3, 4, (7, 6), (1, 1), (2, 2), (0, 0)),
    "depthwise": (2, 2, 4, 1, 1, (7, 6), (3, 3), (2, 2), (1, 1)),
    "groups, sides": (2, 2, 2, 3, 2, (7, 6), (3, 5), (1, 2), (0, 2)),
    "ResNet's first": (1, 2, 1, 2, 3, (9, 9), (7, 7), (2, 2), (3, 3)),
}


def answers(convolution, x, w, bias, pull):
    out, pullback = vjp(convolution, x, w) if bias is None else vjp(convolution, x, w, bias)
    return out, *pullback(pull(out))


def numbers(*shape):
    """Random numbers, the same for the same shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)


def wave(t):
    """Numbers in the shape of t, different for each pixel."""
    return torch.arange(t.numel(), dtype=torch.float64).sin().view(t.shape).to(t)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_the_kernels_compute_the_convolution_of_each_client_and_its_gradients(case, way):
    k, n, groups, c, o, pixels, kernel, stride, padding = CASES[case]
    x, w = numbers(k, n, groups * c, *pixels), numbers(2 * k, groups * o, c, *kernel)[::2]  # as parts of a longer row
    given = x, w, numbers(k, groups * o) if case != "depthwise" else None
    geometry = kernels.Geometry(stride, padding, groups)
    found = vmap(
        lambda *t: answers(lambda x, w, b=None: kernels.KernelConvolution.apply(x, w, b, geometry, way), *t, wave),
        in_dims=tuple(None if t is None else 0 for t in given),
    )(*given)
    for i in range(k):
        each = [t if t is None else t[i].double() for t in given]
        expected = answers(lambda x, w, b=None: F.conv2d(x, w, b, stride, padding, groups=groups), *each, wave)
        for ours, theirs in zip(found, expected, strict=True):
            assert (ours[i] - theirs).abs().max() < 2e-6 * theirs.abs().max()


@pytest.mark.parametrize("way", WAYS)
def test_the_bits_do_not_depend_on_where_the_client_axis_is_and_are_the_same_again(way):
    x, w = numbers(3, 4, 2, 6, 5), numbers(3, 3, 2, 3, 3)
    geometry = kernels.Geometry((1, 1), (1, 1), 1)

    def each(x, w):
        return answers(lambda x, w: kernels.KernelConvolution.apply(x, w, None, geometry, way), x, w, None, wave)

    first, again = (vmap(each)(x, w) for _ in range(2))
    beside = vmap(each, in_dims=(1, 0))(x.movedim(0, 1).contiguous(), w)  # [images, clients, ...]
    turned = vmap(each)(x.mT.contiguous().mT, w)  # rows and columns of an image exchanged in memory
    for a, *others in zip(first, again, beside, turned, strict=True):
        assert all(torch.equal(a, b) for b in others)
    alone = vmap(each)(x[1:2], w[1:2])
    assert all(torch.allclose(a[1], b[0], rtol=1e-5, atol=1e-5) for a, b in zip(first, alone, strict=True))


def test_a_sum_in_parts_is_the_sum(monkeypatch):
    x, d = numbers(1, 9, 1, 12, 12), numbers(1, 9, 2, 10, 10)
    geometry, parts = kernels.Geometry((1, 1), (0, 0), 1), []
    for programs in (1, 1000):
        monkeypatch.setattr(kernels, "PROGRAMS", programs)
        parts.append(kernels._of_weights(d, x, (3, 3), geometry, "direct"))
    expected = torch.einsum("nopq,ncpqrs->ocrs", d[0].double(), x[0].double().unfold(2, 3, 1).unfold(3, 3, 1))
    for found in parts:
        assert (found[0] - expected).abs().max() < 1e-4
    assert not torch.equal(*parts)


@pytest.mark.parametrize("way", WAYS)
def test_a_gradient_can_be_differentiated_again(way):
    """As in a loss that contains a gradient: the Hessian times a vector."""
    x, w, v = numbers(2, 3, 2, 5, 5), numbers(2, 3, 2, 3, 3), numbers(2, 3, 2, 3, 3)
    geometry = kernels.Geometry((1, 1), (1, 1), 1)

    def twice(convolution):
        def loss(w, x):
            return convolution(torch.sigmoid(convolution(x, w)), w.transpose(0, 1)).pow(3).sum()

        return lambda w, x, v: grad(lambda w: (grad(loss)(w, x) * v).sum())(w)

    found = vmap(twice(lambda x, w: kernels.KernelConvolution.apply(x, w, None, geometry, way)))(w, x, v)
    expected = vmap(twice(lambda x, w: F.conv2d(x, w, padding=1)))(w.double(), x.double(), v.double())
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize("name", ["mobilenetv2", "resnet18"])
def test_every_convolution_of_an_architecture_has_a_kernel(name):
    layers = layers_of(MODELS[name]((3, 32, 32), 10))
    assert len(layers) > 5
    assert all(set(WAYS) <= set(forms_of(layer)) for layer in layers)
    assert not any(set(WAYS) & set(forms_of(layer, torch.float64)) for layer in layers)


def test_layers_take_their_forms_one_by_one_and_give_them_back():
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv2d(3, 4, 3, dilation=2), nn.Conv2d(4, 2, 3, padding=1))
    x = numbers(2, 2, 2, 9, 9)
    w = {name: numbers(2, *t.shape) for name, t in net.named_parameters()}
    with convolutions(net, ["direct", "product", "patches"]):
        assert ["_conv_forward" in vars(layer) for layer in net] == [True, False, True]  # none for dilation
        found = vmap(lambda w, x: functional_call(net, w, (x,)))(w, x)
    assert not any("_conv_forward" in vars(layer) for layer in net)
    expected = vmap(lambda w, x: functional_call(net, w, (x,)))(w, x)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert not torch.equal(found, expected)
    with convolutions(net, "direct"):
        double = functional_call(net, {name: t[0].double() for name, t in w.items()}, (x[0].double(),))
    assert double.dtype == torch.float64  # not for kernels


def test_a_fingerprint_knows_the_source_of_a_kernel_and_of_the_kernels_that_it_calls(monkeypatch):
    import triton

    @triton.jit
    def other(i, j, r, s, H, V, ok, UP, LEFT, DOWN, RIGHT, BACK):
        return i * V + j, ok

    before = fingerprint(kernels.KernelConvolution)
    assert fingerprint(kernels._direct) != fingerprint(kernels._product)
    monkeypatch.setattr(kernels, "_source", other)
    assert fingerprint(kernels.KernelConvolution) != before


fused = pytest.importorskip("fedlib.engine.fused")  # Triton comes with PyTorch for CUDA
LAYERS = {  # clients, images, channels, pixels, layer
    "BatchNorm, ReLU, pooling": (3, 2, 3, (5, 7), fused.Layer(True, True, 2, 0.3, 0.01)),
    "BatchNorm, pooling": (2, 3, 1, (4, 4), fused.Layer(True, False, 2, 0.1, 1e-5)),
    "BatchNorm of signals": (2, 3, 2, (13,), fused.Layer(True, False, 1, 0.3, 0.01)),
    "BatchNorm of vectors, ReLU": (3, 5, 4, (), fused.Layer(True, True, 1, 0.3, 0.01)),
    "bias, ReLU, pooling": (2, 3, 2, (5, 4), fused.Layer(False, True, 2)),
    "bias, ReLU": (3, 5, 4, (), fused.Layer(False, True)),
    "bias": (2, 1, 3, (), fused.Layer(False)),
}


def defined(x, weight, bias, mean, var, layer):
    if layer.normal:
        x = F.batch_norm(x, mean, var, weight, bias, True, layer.momentum, layer.eps)
    else:
        x = x + bias.view(-1, *(1 for _ in x.shape[2:]))
    x = F.relu(x) if layer.relu else x
    return F.max_pool2d(x, layer.side) if layer.side > 1 else x


def layer_of(case):
    """Images and biases in tenths, so that some of a window are equal, and some sums zero; vectors in longer rows."""
    k, n, c, pixels, layer = LAYERS[case]
    weight, bias, mean, var, _ = numbers(k, 5, c).round(decimals=1).unbind(1)
    return [numbers(k, n, c, *pixels).round(decimals=1), weight, bias, mean, var.abs()], layer


def of_layer(function, x, weight, bias, mean, var, layer):
    """Output, gradients of what is trained, a second derivative, and the running statistics."""

    def pulled(x, weight, bias):
        out, pullback = vjp(lambda *t: function(*t, mean.clone(), var.clone(), layer), x, weight, bias)
        return out, *pullback(wave(out))

    def twice(x, weight, bias):
        return sum((t * wave(t)).sum() for t in pulled(x, weight, bias))

    second = grad(twice, argnums=(0, 1, 2))(x, weight, bias)
    return *pulled(x, weight, bias), *second, function(x, weight, bias, mean, var, layer), mean, var


def by_kernel(*given):
    return fused.LayerKernel.apply(*given)[0]


TILES = [(case, 4096) for case in LAYERS] + [(case, 32) for case in LAYERS if LAYERS[case][3]]  # vectors fit into 32


@pytest.mark.parametrize(("case", "tile"), TILES)
def test_a_layer_of_each_client_its_gradients_and_the_derivatives_of_these(case, tile, monkeypatch):
    monkeypatch.setattr(fused, "TILE", tile)
    tensors, layer = layer_of(case)
    double = [t.double() for t in tensors]
    found = vmap(lambda *t: of_layer(by_kernel, *t, layer))(*(t.clone() for t in tensors))
    for i in range(len(double[0])):
        expected = of_layer(defined, *(t[i].clone() for t in double), layer)
        for place, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            assert (ours[i] - theirs).abs().max() <= 2e-5 * theirs.abs().max() + 1e-6, place


@pytest.mark.parametrize("case", ["BatchNorm, ReLU, pooling", "bias, ReLU"])
def test_the_bits_of_a_layer_do_not_depend_on_its_place_in_memory_or_on_other_clients(case):
    (x, weight, bias, mean, var), layer = layer_of(case)

    def each(x, weight, bias, mean, var):
        out, pullback = vjp(lambda *t: by_kernel(*t, mean, var, layer), x, weight, bias)
        return out, *pullback(wave(out)), mean, var

    def statistics():
        return mean.clone(), var.clone()

    first, again = (vmap(each)(x, weight, bias, *statistics()) for _ in range(2))
    beside = vmap(each, in_dims=(1, 0, 0, 0, 0))(x.movedim(0, 1).contiguous(), weight, bias, *statistics())
    alone = vmap(each)(*(t[1:2] for t in (x, weight, bias, *statistics())))
    for a, b, c, d in zip(first, again, beside, alone, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
        assert torch.equal(a[1], d[0])


def test_a_layer_keeps_what_is_not_a_number():
    x = numbers(1, 2, 1, 2, 4)
    x[0, 1, 0, 1, 1] = torch.nan
    zero = torch.zeros(1, 1, device=DEVICE)
    out, _ = fused.LayerKernel.launch(x, zero, zero, zero, zero, fused.Layer(False, True, 2))
    assert out.isnan().flatten().tolist() == [False, False, True, False]


@pytest.mark.parametrize("tile", [16, 4096])
def test_cross_entropy_its_gradient_and_the_derivative_of_that(tile, monkeypatch):
    monkeypatch.setattr(fused, "TILE", tile)
    logits, y = 30 * numbers(3, 5, 7), torch.tensor([[0, 1, 2, 6, 4], [6, 6, 6, 0, 5], [3, 3, 2, 1, 0]], device=DEVICE)

    def all_of(function):
        def twice(z, y):
            return (grad(lambda z: function(z, y) ** 2)(z) * wave(z)).sum()

        return lambda z, y: (function(z, y), grad(function)(z, y), grad(twice)(z, y))

    found = vmap(all_of(lambda z, y: fused.CrossEntropy.apply(z, y)[0]))(logits, y)
    expected = vmap(all_of(F.cross_entropy))(logits.double(), y)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


def test_a_batch_is_the_one_of_the_step():
    own = cohort_phase(1, 1, torch.device(DEVICE))
    images = own.images._replace(scale=numbers(3, 1, 1), shift=10 * numbers(3, 1, 1))
    index = torch.randint(0, len(images.x), (4, 3, 5), device=DEVICE)  # steps, clients, images
    x, y, at = fused.batch(images, index, torch.tensor([2], device=DEVICE), 2)
    expected = images.batch(index[2, :2], own.model)
    torch.testing.assert_close(x, expected.x, rtol=1e-6, atol=1e-5)
    assert torch.equal(y, expected.y)
    assert torch.equal(at, index[2, :2])


def network(shape, n_classes):
    """Every kind of layer to which others are joined; no bias has a gradient that is noise, as before BatchNorm."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(shape[0], 2, 5, 2, bias=False), nn.BatchNorm2d(2), nn.ReLU(), MaxPool2()),  # [2, 3, 3]
        nn.Sequential(nn.Conv2d(2, 3, 2), nn.ReLU(), nn.Flatten()),
        nn.Sequential(nn.Linear(12, 3, bias=False), nn.BatchNorm1d(3), nn.Linear(3, 4), nn.ReLU()),
        nn.Linear(4, n_classes),
    )


def near_classes(w, batch):
    """Cross-entropy, and a term with the features before the classifier, which a hook reads."""
    z, logits = batch.model.penultimate(w, batch.x)
    return F.cross_entropy(logits, batch.y) + 0.1 * z.square().mean()


@pytest.mark.parametrize("changes", [{}, {"momentum": 0.9, "clip": 0.5}, {"optimizer": "adam"}], ids=str)
def test_clients_with_unequal_numbers_of_steps_are_trained_as_by_the_loop(changes, tiny):
    model, shares = build("own", network, tiny.x.shape[1:], 4, seed=0), [np.arange(5), np.arange(16)]
    loss = near_classes if changes else None
    own = phase(model, tiny, shares, dtype=torch.float32, device=DEVICE, **({"loss": loss} if loss else {}))
    own = own._replace(**changes)
    (expected, losses), (w, ours) = (train(own) for train in (train_loop, Stacked(Forms("grouped", "fused"))))
    torch.testing.assert_close(ours, losses, rtol=1e-4, atol=1e-5)
    for name, t in expected.items():
        torch.testing.assert_close(w[name], t, rtol=1e-4, atol=1e-4 if changes.get("optimizer") else 1e-5, msg=name)


def test_nothing_is_written_for_a_finished_client_but_its_velocity():
    rows, (k, p, n) = numbers(6, 3, 7), (3, 5, 2)
    w, gradient, velocity = (t[:, :p].contiguous() for t in rows[:3])
    noted, new = (t[:, :n].contiguous() for t in rows[3:5])
    lr, total, value = rows[5, :, :3].abs().T.contiguous()
    gradient[1], new[1], value[1] = torch.nan, torch.inf, torch.nan
    before = [t.clone() for t in (w, velocity, noted, total)]
    step, steps = torch.tensor([2], device=DEVICE), torch.tensor([3, 2, 5], device=DEVICE)
    fused.update(w, gradient, velocity, lr, noted, new, total, value, step, steps, 0.5)
    for i in range(k):
        moved = before[1][i] * 0.5 + gradient[i]
        torch.testing.assert_close(velocity[i], moved, equal_nan=True)
        torch.testing.assert_close(w[i], before[0][i] if i == 1 else before[0][i] - lr[i] * moved)
        assert torch.equal(noted[i], (before[2] if i == 1 else new)[i])
        torch.testing.assert_close(total[i], before[3][i] if i == 1 else before[3][i] + value[i])


def test_layers_are_joined_only_where_nobody_looks_between_them_and_given_back():
    net, seen, launched, real = network((1, 16, 16), 4), [], [], fused.LayerKernel.apply
    for norm in (net[0][1], net[2][1]):
        norm.register_buffer("num_batches_tracked", None)
    x, w = numbers(2, 3, 1, 16, 16), {name: t.detach().expand(2, *t.shape) for name, t in net.state_dict().items()}

    def outputs():
        copies = {name: t.clone() for name, t in w.items()}
        return vmap(lambda w, x: (functional_call(net, w, (x,)), seen.pop()))(copies, x)

    hook = net[0][2].register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    expected = outputs()
    with pytest.MonkeyPatch.context() as patch, fused.joined(net):
        patch.setattr(fused.LayerKernel, "apply", lambda *t: launched.append(t[-1][:3]) or real(*t))
        found = outputs()
    hook.remove()
    assert not any("forward" in vars(layer) for layer in net.modules())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    joined = [(True, False, 1), (False, True, 1), (True, False, 1), (False, True, 1), (False, False, 1)]
    assert launched == joined  # the first one has a ReLU behind it, which is looked at


@pytest.mark.parametrize(
    "norm",
    [nn.BatchNorm1d(3, affine=False), nn.BatchNorm1d(3, track_running_stats=False), nn.BatchNorm1d(3).eval(),
     nn.BatchNorm1d(3, momentum=None), nn.GroupNorm(3, 3)],
    ids=["without weights", "without statistics", "evaluated", "with a mean of all", "of groups"],
)  # fmt: skip
def test_what_is_not_the_usual_batchnorm_is_left_as_it_is(norm):
    assert fused._begins(nn.BatchNorm1d(3), numbers(2, 3), False)
    assert not fused._begins(norm, numbers(2, 3), False)


def test_a_step_of_lenet5_has_at_most_40_kernels(monkeypatch):
    own, launched = begin(cohort_phase(10, 2, torch.device("cpu"))), []
    program = Program(own, 10, 2, (forms := Forms("direct", "fused")), False)
    own.phase.model.net.train()
    monkeypatch.setattr(type(fused._update), "run", lambda self, *_, **__: launched.append(self.fn.__name__))
    with Operations() as counted:
        program._advance(10, forms)
    assert {"_batch", "_direct", "_forward", "_entropy", "_backward", "_weights", "_update"} == set(launched)
    assert 20 < counted.n + len(launched) <= 40


@pytest.mark.parametrize(
    ("slow", "chosen"),
    [({"plain": 2.0, "fused": 1.0}, "fused"), ({"plain": 1.0, "fused": 2.0}, "plain"),
     ({"plain": 1.0, "fused": ValueError("no compiler")}, "plain")],
    ids=["faster", "slower", "failing"],
)  # fmt: skip
def test_the_faster_form_of_the_rest_is_chosen(slow, chosen, tiny, monkeypatch):
    own = phase(build("own", network, tiny.x.shape[1:], 4, seed=0), tiny, [np.arange(9)], dtype=torch.float32)
    steps = []

    def prepared(program, phase, size):
        steps.append((size, program.form))
        if isinstance(slow[program.form[1]], Exception):
            raise slow[program.form[1]]
        return program.form[1]

    monkeypatch.setattr(Program, "_prepared", prepared)
    monkeypatch.setattr(backends, "_wall", lambda step, _: slow[step])
    assert backends.fastest_rest(own, 2, ["grouped", "direct"], True) == chosen
    assert steps == [(2, (["grouped", "direct"], rest)) for rest in ("plain", "fused")]
    exact = own._replace(images=own.images._replace(scale=own.images.scale.double()))
    assert backends.fastest_rest(exact, 2, [], True) == "plain"  # the kernels are for float32
    slow["plain"] = slow["fused"] = CaptureError("kept memory")
    with pytest.raises(CaptureError):
        backends.fastest_rest(own, 2, ["grouped", "direct"], True)


def test_every_kernel_of_a_step_can_be_compiled_for_an_h100():
    here = Path(__file__).parent
    done = python(here / "compile_kernels.py", PYTHONPATH=here.parent, TRITON_INTERPRET=0)
    assert len(set(json.loads(done.stdout))) == 8
