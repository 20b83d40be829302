"""Kernels for GPUs against PyTorch's convolution in float64; without a GPU Triton's interpreter carries them out."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vjp, vmap

from fedlib.engine.convolution import FORMS, convolutions, forms_of, layers_of
from fedlib.fingerprint import fingerprint
from fedlib.models import MODELS

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
    """Output, and gradients of all that enter; `pull` is the gradient of the output."""
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
