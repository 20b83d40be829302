"""A training step without its convolutions and matrix products, as five Triton kernels for all clients.

On a GPU the time of a step grows with the number of kernels, because each one waits for the previous one. A layer here,
a normalisation or a bias with any following ReLU and pooling, is one forward and one backward kernel. The batch,
cross-entropy and the weight update are one kernel each. A sum is computed by a single program, in a fixed order.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.func import vjp

from fedlib.engine.kernels import dense, in_front
from fedlib.models.pooling import MaxPool2
from fedlib.training.batches import Images

TILE = 4096  # largest number of pixels or logits that a program holds at once


class Layer(NamedTuple):
    """Operations of a layer: batch normalisation or bias, then optional ReLU and maxima over windows of side x side."""

    normal: bool
    relu: bool = False
    side: int = 1
    momentum: float = 0.0
    eps: float = 0.0


# -- kernels ------------------------------------------------------------------------------------------------------


@triton.jit
def _batch(
    INDEX, STEP, IMAGES, LABELS, SCALE, SHIFT, X, Y, AT, row, numbers, pixels, BLOCK: tl.constexpr,
):  # fmt: skip
    """Normalised images, labels and positions of a step; program: (image of a client, part of its values)."""
    i, p = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at, inside = tl.load(INDEX + tl.load(STEP) * row + i), p < numbers
    value = tl.load(IMAGES + at * numbers + p, mask=inside, other=0).to(X.dtype.element_ty)
    scale = tl.load(SCALE + p // pixels, mask=inside, other=0.0)
    shift = tl.load(SHIFT + p // pixels, mask=inside, other=0.0)
    tl.store(X + i * numbers + p, shift + value * scale, mask=inside)
    if tl.program_id(1) == 0:
        tl.store(Y + i, tl.load(LABELS + at))
        tl.store(AT + i, at)


@triton.jit
def _windows(first, n, H, V, xn, yn, SIDE: tl.constexpr, BM: tl.constexpr):
    """Windows of a channel, partial ones included: offsets and masks of the pixels [BM, SIDE**2] and outputs [BM]."""
    m, place = first + tl.arange(0, BM), tl.arange(0, SIDE * SIDE)
    high, wide = (H + SIDE - 1) // SIDE, (V + SIDE - 1) // SIDE
    b, i, j = (m // (high * wide)).to(tl.int64), m % (high * wide) // wide, m % wide
    h, v = i[:, None] * SIDE + place[None, :] // SIDE, j[:, None] * SIDE + place[None, :] % SIDE
    ok, whole = (b < n)[:, None] & (h < H) & (v < V), (b < n) & (i < H // SIDE) & (j < V // SIDE)
    return b[:, None] * xn + h * V + v, ok, b * yn + i * (V // SIDE) + j, whole


@triton.jit
def _forward(
    X, WEIGHT, BIAS, MEAN, VAR, Y, USED, n, C, H, V, windows, xk, xn, yk, yn, wk, bk, mk, vk, momentum, eps,
    NORMAL: tl.constexpr, RELU: tl.constexpr, SIDE: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """A `Layer`: Y = max over windows of ReLU of (X - mean) / deviation * weight + bias; program: (channel, client)."""
    c, k = tl.program_id(0), tl.program_id(1).to(tl.int64)
    x, factor, shift = X + k * xk + c * (H * V), 1.0, tl.load(BIAS + k * bk + c)
    if NORMAL:
        total, count = tl.zeros((BM, SIDE * SIDE), tl.float32), n * H * V
        for first in range(0, windows, BM):
            at, ok, _, _ = _windows(first, n, H, V, xn, yn, SIDE, BM)
            total += tl.load(x + at, mask=ok, other=0.0)
        mean = tl.sum(total) / count
        total = tl.zeros((BM, SIDE * SIDE), tl.float32)
        for first in range(0, windows, BM):
            at, ok, _, _ = _windows(first, n, H, V, xn, yn, SIDE, BM)
            away = tl.where(ok, tl.load(x + at, mask=ok, other=0.0) - mean, 0.0)
            total += away * away
        variance = tl.sum(total) / count
        one_by = 1.0 / tl.sqrt_rn(variance + eps)
        tl.store(USED + (k * C + c) * 2, mean)
        tl.store(USED + (k * C + c) * 2 + 1, one_by)
        running = tl.load(MEAN + k * mk + c)
        tl.store(MEAN + k * mk + c, running + momentum * (mean - running))
        running = tl.load(VAR + k * vk + c)
        tl.store(VAR + k * vk + c, running + momentum * (variance * (count / (count - 1)) - running))
        factor = one_by * tl.load(WEIGHT + k * wk + c)
        shift -= mean * factor
    for first in range(0, windows, BM):
        at, ok, to, whole = _windows(first, n, H, V, xn, yn, SIDE, BM)
        z = tl.load(x + at, mask=ok, other=0.0) * factor + shift
        y = tl.where(tl.max((z != z).to(tl.int32), axis=1) > 0, float("nan"), tl.max(z, axis=1))
        if RELU:
            y = tl.where(y < 0, 0.0, y)
        tl.store(Y + k * yk + c * ((H // SIDE) * (V // SIDE)) + to, y, mask=whole)


@triton.jit
def _arrived(x, ok, d, whole, mean, one_by, weight, bias, RELU: tl.constexpr, SIDE: tl.constexpr):
    """Normalised x and the gradient of weight * x + bias, [BM, SIDE**2]; it is 0 except at a window's first maximum."""
    unit = tl.where(ok, (tl.load(x, mask=ok, other=0.0) - mean) * one_by, 0.0)
    z, d = unit * weight + bias, tl.load(d, mask=whole, other=0.0)[:, None]
    if SIDE > 1:
        largest = tl.argmax(z, axis=1, tie_break_left=True)
        d = tl.where(largest[:, None] == tl.arange(0, SIDE * SIDE)[None, :], d, 0.0)
    if RELU:
        d = tl.where(z <= 0, 0.0, d)
    return unit, d


@triton.jit
def _backward(
    X, WEIGHT, BIAS, USED, D, TO_X, TO_WEIGHT, TO_BIAS, n, C, H, V, windows, xk, xn, dk, dn, tk, tn, wk, bk,
    NORMAL: tl.constexpr, RELU: tl.constexpr, SIDE: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Gradients of a `Layer` from the gradient D of its output; program: (channel, client)."""
    c, k = tl.program_id(0), tl.program_id(1).to(tl.int64)
    x, d, to_x = X + k * xk + c * (H * V), D + k * dk + c * ((H // SIDE) * (V // SIDE)), TO_X + k * tk + c * (H * V)
    mean, one_by, weight, bias, count = 0.0, 1.0, 1.0, tl.load(BIAS + k * bk + c), n * H * V
    if NORMAL:
        mean, one_by = tl.load(USED + (k * C + c) * 2), tl.load(USED + (k * C + c) * 2 + 1)
        weight = tl.load(WEIGHT + k * wk + c)
    total, along = tl.zeros((BM, SIDE * SIDE), tl.float32), tl.zeros((BM, SIDE * SIDE), tl.float32)
    for first in range(0, windows, BM):
        at, ok, to, whole = _windows(first, n, H, V, xn, dn, SIDE, BM)
        unit, arrived = _arrived(x + at, ok, d + to, whole, mean, one_by, weight, bias, RELU, SIDE)
        total += arrived
        along += arrived * unit
    to_weight, to_bias = tl.sum(along), tl.sum(total)
    tl.store(TO_WEIGHT + k * C + c, to_weight)
    tl.store(TO_BIAS + k * C + c, to_bias)
    for first in range(0, windows, BM):
        at, ok, to, whole = _windows(first, n, H, V, xn, dn, SIDE, BM)
        unit, arrived = _arrived(x + at, ok, d + to, whole, mean, one_by, weight, bias, RELU, SIDE)
        if NORMAL:
            arrived = weight * one_by * (arrived - (to_bias + unit * to_weight) / count)
        at, ok, _, _ = _windows(first, n, H, V, tn, dn, SIDE, BM)
        tl.store(to_x + at, arrived, mask=ok)


@triton.jit
def _entropy(LOGITS, LABELS, LOSS, SLOPE, n, classes, lk, ln, yk, BN: tl.constexpr, BC: tl.constexpr):
    """Mean cross-entropy of each client and its gradient with respect to the logits; program: client."""
    k, c, total = tl.program_id(0).to(tl.int64), tl.arange(0, BC)[None, :], tl.zeros((BN, BC), tl.float32)
    for first in range(0, n, BN):
        b = first + tl.arange(0, BN)
        inside = (b < n)[:, None] & (c < classes)
        z = tl.load(LOGITS + k * lk + b[:, None] * ln + c, mask=inside, other=float("-inf"))
        z = tl.where((b < n)[:, None], z, 0.0)
        z -= tl.max(z, axis=1)[:, None]
        power = tl.exp(z)
        mass = tl.sum(power, axis=1)[:, None]
        hit = c == tl.load(LABELS + k * yk + b, mask=b < n, other=-1)[:, None]
        total += tl.where(hit, tl.log(mass) - z, 0.0)
        slope = (power / mass - tl.where(hit, 1.0, 0.0)) / n
        tl.store(SLOPE + (k * n + b[:, None]) * classes + c, slope, mask=inside)
    tl.store(LOSS + k, tl.sum(total) / n)


@triton.jit
def _update(
    W, D, VELOCITY, LR, NOTED, NEW, TOTAL, VALUE, STEP, STEPS, P, N, momentum, MOVING: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """W -= lr * gradient, NOTED = NEW and TOTAL += VALUE for unfinished clients; program: (part, client)."""
    k, p = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    on = tl.where(tl.load(STEP) < tl.load(STEPS + k), 1, 0)  # finished clients keep their weights
    d = tl.load(D + k * P + p, mask=p < P, other=0.0)
    if MOVING:
        d += momentum * tl.load(VELOCITY + k * P + p, mask=p < P, other=0.0)
        tl.store(VELOCITY + k * P + p, d, mask=p < P)
    w = tl.load(W + k * P + p, mask=p < P, other=0.0) - tl.load(LR + k) * d
    tl.store(W + k * P + p, w, mask=p < P * on)
    tl.store(NOTED + k * N + p, tl.load(NEW + k * N + p, mask=p < N, other=0.0), mask=p < N * on)
    if tl.program_id(0) == 0:
        tl.store(TOTAL + k, tl.load(TOTAL + k) + tl.load(VALUE + k), mask=on > 0)


# -- launches -----------------------------------------------------------------------------------------------------


def batch(images: Images, index: Tensor, step: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Images [size, batch, C, H, W], labels and positions [size, batch] at `step` of index [steps, clients, batch]."""
    n, (numbers, pixels) = index.shape[2], (images.x[0].numel(), images.x[0, 0].numel())
    x = images.scale.new_empty(size, n, *images.x.shape[1:])
    y, at = (index.new_empty(size, n) for _ in range(2))
    block = min(1024, triton.next_power_of_2(numbers))
    tensors = index, step, images.x, images.y, images.scale, images.shift, x, y, at
    _batch[size * n, triton.cdiv(numbers, block)](*tensors, index.stride(0), numbers, pixels, block)
    return x, y, at


def update(w, gradient, velocity, lr, noted, new, total, value, step, steps, momentum: float) -> None:
    """Update w [k, P], noted [k, N] and total [k] of the clients with `step` < steps [k]; all rows are contiguous."""
    (k, p), n, block = w.shape, noted.shape[1], 1024
    tensors = w, gradient, w if velocity is None else velocity, lr, noted, new, total, value, step, steps
    _update[triton.cdiv(max(p, n), block), k](*tensors, p, n, momentum, velocity is not None, block)


def _sizes(x: Tensor, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """(n, C, H, V, windows) of x [k, n, C, ...], constants of the kernels, and warps per program."""
    (n, c, *sides), places = x.shape[1:], layer.side**2
    h, v = sides if layer.side > 1 else (1, x[0, 0, 0].numel())
    windows = n * -(-h // layer.side) * -(-v // layer.side)
    tile = min(TILE // places, triton.next_power_of_2(windows))
    warps = max(1, min(16, tile * places // 256))
    return (n, c, h, v, windows), (layer.normal, layer.relu, layer.side, tile), warps


def _beside(x: Tensor, *sides: int) -> Tensor:
    """An empty tensor [k, n, C, *sides], in memory [n, k, C, ...] like the output of a grouped convolution."""
    return x.new_empty(x.shape[1], len(x), x.shape[2], *sides).transpose(0, 1)


# -- under vmap and grad ------------------------------------------------------------------------------------------


def of_one_client(function: type) -> type:
    """Give an autograd function `forward` and `vmap` by its `launch` for tensors [k, ...] of all clients."""

    def forward(*given):
        return tuple(t[0] for t in function.launch(*(t[None] if isinstance(t, Tensor) else t for t in given)))

    def vmap(info, in_dims, *given):
        pairs = zip(given, in_dims, strict=True)
        out = function.launch(*(in_front(t, at, info.batch_size) if isinstance(t, Tensor) else t for t, at in pairs))
        return out, (0,) * len(out)

    function.forward, function.vmap = staticmethod(forward), staticmethod(vmap)
    return function


@of_one_client
class LayerKernel(torch.autograd.Function):
    """A `Layer` of x [n, C, ...], and mean and 1 / deviation [C, 2]; the running mean and variance are updated."""

    @staticmethod
    def launch(x, weight, bias, mean, var, layer):
        x, vectors = dense(x, 2), (dense(weight, 1), dense(bias, 1), mean, var)  # mean and var are written in place
        sizes, constants, warps = _sizes(x, layer)
        y, used = _beside(x, *(size // layer.side for size in x.shape[3:])), x.new_empty(len(x), x.shape[2], 2)
        strides = *x.stride()[:2], *y.stride()[:2], *(t.stride(0) for t in vectors)
        numbers = *sizes, *strides, layer.momentum, layer.eps
        _forward[x.shape[2], len(x)](x, *vectors, y, used, *numbers, *constants, num_warps=warps)
        return y, used

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.layer = inputs[-1]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:3], output[1])

    @staticmethod
    def backward(ctx, *grads):
        to_x, to_weight, to_bias = LayerBackward.apply(grads[0], *ctx.saved_tensors, ctx.layer)
        return to_x, to_weight if ctx.layer.normal else None, to_bias, None, None, None


@of_one_client
class LayerBackward(torch.autograd.Function):
    """Gradients of x, weight and bias; second derivatives are PyTorch's."""

    @staticmethod
    def launch(grad, x, weight, bias, used, layer):
        grad, x, vectors = dense(grad, 2), dense(x, 2), (dense(weight, 1), dense(bias, 1))
        sizes, constants, warps = _sizes(x, layer)
        to_x, (to_weight, to_bias) = _beside(x, *x.shape[3:]), (x.new_empty(len(x), x.shape[2]) for _ in range(2))
        strides = *x.stride()[:2], *grad.stride()[:2], *to_x.stride()[:2], *(t.stride(0) for t in vectors)
        tensors = x, *vectors, dense(used, 1), grad, to_x, to_weight, to_bias
        _backward[x.shape[2], len(x)](*tensors, *sizes, *strides, *constants, num_warps=warps)
        return to_x, to_weight, to_bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.layer = inputs[-1]
        ctx.save_for_backward(*inputs[:4])

    @staticmethod
    def backward(ctx, *grads):
        def gradients(grad, *given):
            return vjp(partial(_plain, ctx.layer), *given)[1](grad)

        return *vjp(gradients, *ctx.saved_tensors)[1](grads), None, None


def _plain(layer: Layer, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A `Layer` in PyTorch's operations."""
    axes, ones = (0, *range(2, x.dim())), (1,) * (x.dim() - 2)
    if layer.normal:
        variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
        x = (x - mean) * (variance + layer.eps).rsqrt() * weight.view(-1, *ones)
    x = x + bias.view(-1, *ones)
    x = x.relu() if layer.relu else x
    return torch.max_pool2d(x, layer.side) if layer.side > 1 else x


@of_one_client
class CrossEntropy(torch.autograd.Function):
    """Mean cross-entropy of logits [n, classes], and its gradient with respect to them."""

    @staticmethod
    def launch(logits, y):
        logits, y = dense(logits, 2), dense(y, 1)
        (k, n, classes), wide = logits.shape, triton.next_power_of_2(logits.shape[2])
        loss, slope = logits.new_empty(k), logits.new_empty(k, n, classes)
        tile = min(triton.next_power_of_2(n), max(1, TILE // wide)), wide
        _entropy[k,](logits, y, loss, slope, n, classes, *logits.stride()[:2], y.stride(0), *tile)
        return loss, slope

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx, *grads):
        (of_loss, of_slope), (logits, slope) = grads, ctx.saved_tensors
        if of_slope is None:
            return of_loss * slope, None
        p = logits.softmax(1)  # the gradient is differentiated again
        bent = p * (of_slope - (p * of_slope).sum(1, keepdim=True)) / len(logits)
        return bent if of_loss is None else of_loss * slope + bent, None


# -- layers of a network ------------------------------------------------------------------------------------------


@contextmanager
def joined(net: nn.Module) -> Iterator[None]:
    """Context in which every `nn.Sequential` of `net` computes BatchNorm or bias, ReLU and pooling in one kernel."""
    chains = [chain for chain in net.modules() if type(chain) is nn.Sequential]
    for chain in chains:
        chain.forward = partial(_chained, chain)
    try:
        yield
    finally:
        for chain in chains:
            del chain.forward


def _chained(chain: nn.Sequential, x: Tensor) -> Tensor:
    """Output of a sequence of layers."""
    rest = list(chain)
    while rest:
        head, *rest = rest
        relu = bool(rest) and _free(rest[0], nn.ReLU)
        pool = len(rest) > relu and x.dim() == 4 and _free(rest[relu], MaxPool2)
        if x.dtype == torch.float32 and _begins(head, x, relu):
            x, rest = _of_head(head, x, relu, 1 + pool), rest[relu + pool :]
        else:
            x = head(x)
    return x


def _free(layer: nn.Module, *types: type) -> bool:
    """True for a layer of one of these types without forward hooks."""
    return type(layer) in types and not layer._forward_hooks and not layer._forward_pre_hooks


def _begins(head: nn.Module, x: Tensor, relu: bool) -> bool:
    """True for a layer whose kernel can include ReLU and pooling."""
    if _free(head, nn.BatchNorm1d, nn.BatchNorm2d):
        return head.training and head.affine and head.track_running_stats and head.momentum is not None
    convolves = relu and _free(head, nn.Conv2d)
    return (convolves or (x.dim() == 2 and _free(head, nn.Linear))) and head.bias is not None


def _of_head(head: nn.Module, x: Tensor, relu: bool, side: int) -> Tensor:
    """Output of a layer, then ReLU if `relu`, then maxima over windows of side x side."""
    if isinstance(head, nn.Linear | nn.Conv2d):
        bias = head.bias
        x = F.linear(x, head.weight) if isinstance(head, nn.Linear) else head._conv_forward(x, head.weight, None)
        return LayerKernel.apply(x, bias, bias, bias, bias, Layer(False, relu, side))[0]
    vectors = head.weight, head.bias, head.running_mean, head.running_var
    return LayerKernel.apply(x, *vectors, Layer(True, relu, side, head.momentum, head.eps))[0]
