"""Convolutions of many clients as Triton kernels: one launch for the whole stack, sums in a fixed order.

cuDNN launches a grouped convolution once per group, in time proportional to the number of clients. Here the client axis
is an axis of the grid. There are two ways to compute a tile: "direct" multiplies numbers in registers, which suits few
channels; "product" multiplies matrices of patches, which suits many. Images are read with the strides that they have.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 1056  # target number of programs for a gradient of weights: eight for each of 132 multiprocessors
PRECISION = "tf32x3"  # three TF32 products for a float32 product: faster and more exact than "ieee" on matrix units


class Geometry(NamedTuple):
    """Stride, padding and groups of a convolution; pairs are (high, wide)."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    groups: int


# -- kernels ------------------------------------------------------------------------------------------------------
#
# n images with IN channels of H x V pixels become OUT channels of P x Q pixels, in each of G groups of each client; the
# third axis of the grid is (client, group). A tile has BM pixels (over all images) times BO channels. BACK turns a
# convolution into the gradient of its input: the roles of IN and OUT, H x V and P x Q are exchanged.


@triton.jit
def _source(
    i, j, r, s, H, V, ok,
    UP: tl.constexpr, LEFT: tl.constexpr, DOWN: tl.constexpr, RIGHT: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Input pixel at entry (r, s) of the kernel for output pixel (i, j), and `ok` without pixels outside the image."""
    if BACK:
        h, v = i + UP - r, j + LEFT - s
        ok = ok & (h >= 0) & (v >= 0) & (h % DOWN == 0) & (v % RIGHT == 0)
        h, v = h // DOWN, v // RIGHT
        ok = ok & (h < H) & (v < V)
    else:
        h, v = i * DOWN + r - UP, j * RIGHT + s - LEFT
        if UP + LEFT > 0:  # else all pixels lie inside
            ok = ok & (h >= 0) & (v >= 0) & (h < H) & (v < V)
    return h * V + v, ok


@triton.jit
def _direct(
    X, W, BIAS, Y, n, IN, H, V, OUT, P, Q, G, xk, xn, xc, yk, yn, wk, wo, wc, bk,
    R: tl.constexpr, S: tl.constexpr, UP: tl.constexpr, LEFT: tl.constexpr, DOWN: tl.constexpr, RIGHT: tl.constexpr,
    BACK: tl.constexpr, BIASED: tl.constexpr, BM: tl.constexpr, BO: tl.constexpr,
):  # fmt: skip
    """Convolution in registers: Y[o, m] = sum over c, r, s of W[o, c, r, s] X[c, pixel of m at (r, s)]."""
    kg = tl.program_id(2).to(tl.int64)
    m, o = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BO + tl.arange(0, BO)
    b, q = (m // (P * Q)).to(tl.int64), m % (P * Q)
    i, j = q // Q, q % Q
    x = X + (kg // G) * xk + (kg % G) * IN * xc + b * xn
    w = W + (kg // G) * wk + (kg % G) * OUT * IN * R * S + o * wo
    total = tl.zeros((BO, BM), Y.dtype.element_ty)
    for c in range(IN):
        for r in tl.static_range(R):
            for s in tl.static_range(S):
                at, ok = _source(i, j, r, s, H, V, b < n, UP, LEFT, DOWN, RIGHT, BACK)
                pixels = tl.load(x + c * xc + at, mask=ok, other=0.0)
                total += tl.load(w + c * wc + r * S + s, mask=o < OUT, other=0.0)[:, None] * pixels[None, :]
    if BIASED:
        total += tl.load(BIAS + (kg // G) * bk + (kg % G) * OUT + o, mask=o < OUT, other=0.0)[:, None]
    y = Y + (kg // G) * yk + b[None, :] * yn + ((kg % G) * OUT + o[:, None]) * (P * Q) + q[None, :]
    tl.store(y, total, mask=(b < n)[None, :] & (o < OUT)[:, None])


@triton.jit
def _product(
    X, W, BIAS, Y, n, IN, H, V, OUT, P, Q, G, xk, xn, xc, yk, yn, wk, wo, wc, bk,
    R: tl.constexpr, S: tl.constexpr, UP: tl.constexpr, LEFT: tl.constexpr, DOWN: tl.constexpr, RIGHT: tl.constexpr,
    BACK: tl.constexpr, BIASED: tl.constexpr, BM: tl.constexpr, BO: tl.constexpr, BC: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Convolution as a product of matrices: Y[m, o] = sum over e = (c, r, s) of patches [m, e] and weights [e, o]."""
    kg = tl.program_id(2).to(tl.int64)
    m, o = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BO + tl.arange(0, BO)
    b, q = (m // (P * Q)).to(tl.int64), m % (P * Q)
    i, j = q // Q, q % Q
    x = X + (kg // G) * xk + (kg % G) * IN * xc + b * xn
    w = W + (kg // G) * wk + (kg % G) * OUT * IN * R * S + o * wo
    total = tl.zeros((BM, BO), Y.dtype.element_ty)
    for first in range(0, IN * R * S, BC):
        e = first + tl.arange(0, BC)
        c, r, s = e // (R * S), e % (R * S) // S, e % S
        ok = (b < n)[:, None] & (c < IN)[None, :]
        at, ok = _source(i[:, None], j[:, None], r[None, :], s[None, :], H, V, ok, UP, LEFT, DOWN, RIGHT, BACK)
        patches = tl.load(x[:, None] + c[None, :] * xc + at, mask=ok, other=0.0)
        weights = (w[None, :] + c[:, None] * wc) + e[:, None] % (R * S)
        weights = tl.load(weights, mask=(o < OUT)[None, :] & (c < IN)[:, None], other=0.0)
        total = tl.dot(patches, weights, total, input_precision=DOT)
    if BIASED:
        total += tl.load(BIAS + (kg // G) * bk + (kg % G) * OUT + o, mask=o < OUT, other=0.0)[None, :]
    y = Y + (kg // G) * yk + b[:, None] * yn + ((kg % G) * OUT + o[None, :]) * (P * Q) + q[:, None]
    tl.store(y, total, mask=(b < n)[:, None] & (o < OUT)[None, :])


@triton.jit
def _weights(
    X, D, T, n, IN, H, V, OUT, P, Q, G, xk, xn, xc, dk, dn, dc, tiles, chunk,
    R: tl.constexpr, S: tl.constexpr, UP: tl.constexpr, LEFT: tl.constexpr, DOWN: tl.constexpr, RIGHT: tl.constexpr,
    PRODUCT: tl.constexpr, BM: tl.constexpr, BO: tl.constexpr, BE: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Gradient of the weights: T[o, e] = sum over a chunk of pixels m of D[o, m] and patches [e, m], e = (c, r, s)."""
    kg, part = tl.program_id(2).to(tl.int64), tl.program_id(1).to(tl.int64)
    o = tl.program_id(0) // tiles * BO + tl.arange(0, BO)
    e = tl.program_id(0) % tiles * BE + tl.arange(0, BE)
    c, r, s = e // (R * S), e % (R * S) // S, e % S
    x = X + (kg // G) * xk + ((kg % G) * IN + c) * xc
    d = D + (kg // G) * dk + ((kg % G) * OUT + o) * dc
    total = tl.zeros((BO, BE) if PRODUCT else (BO, BE, BM), T.dtype.element_ty)
    for first in range(0, chunk, BM):
        m = part * chunk + first + tl.arange(0, BM)
        b, q = m // (P * Q), m % (P * Q)
        i, j, ok = (q // Q)[None, :], (q % Q)[None, :], (b < n)[None, :] & (c < IN)[:, None]
        at, ok = _source(i, j, r[:, None], s[:, None], H, V, ok, UP, LEFT, DOWN, RIGHT, False)
        patches = tl.load(x[:, None] + b[None, :] * xn + at, mask=ok, other=0.0)  # [BE, BM]
        ok = (b < n)[None, :] & (o < OUT)[:, None]
        arriving = tl.load(d[:, None] + b[None, :] * dn + q[None, :], mask=ok, other=0.0)  # [BO, BM]
        if PRODUCT:
            total = tl.dot(arriving, tl.trans(patches), total, input_precision=DOT)
        else:
            total += arriving[:, None, :] * patches[None, :, :]
    if not PRODUCT:
        total = tl.sum(total, axis=2)
    t = T + ((part * tl.num_programs(2) + kg) * OUT + o[:, None]) * (IN * R * S) + e[None, :]
    tl.store(t, total, mask=(o < OUT)[:, None] & (c < IN)[None, :])


# -- launches -----------------------------------------------------------------------------------------------------


def dense(t: Tensor, axes: int) -> Tensor:
    """The tensor itself if it is contiguous beyond its first `axes` axes, else a copy."""
    return t if t[(0,) * axes].is_contiguous() else t.contiguous()


def _tiles(channels: int, most: int, least: int = 1) -> int:
    """Channels of a tile: a power of two."""
    return max(least, min(most, triton.next_power_of_2(channels)))


def _convolved(x, w, bias, pixels, geometry: Geometry, way: str, back: bool) -> Tensor:
    """Convolution of images [k, n, C, H, V] to `pixels` (high, wide); with `back`, the gradient of its input."""
    (k, n, _, *size), (_, out, into, high, wide), g = x.shape, w.shape, geometry.groups
    entries, biased = high * wide, bias is not None
    channels, steps = (out // g, into), (into * entries, entries)  # output and input; strides of both in the weights
    if back:
        channels, steps = channels[::-1], steps[::-1]
    o, c = channels
    x, w, y = dense(x, 3), dense(w, 1), x.new_empty(n, k, g * o, *pixels).transpose(0, 1)
    bias = dense(bias, 1) if biased else w
    total = n * pixels[0] * pixels[1]
    sizes = n, c, *size, o, *pixels, g, *x.stride()[:3], *y.stride()[:2], w.stride(0), *steps, bias.stride(0)
    constants = high, wide, *geometry.padding, *geometry.stride, back, biased
    if way == "direct":
        block, tile = 256 if total * k > 60_000 else 128, _tiles(o, 16)
        _direct[triton.cdiv(total, block), triton.cdiv(o, tile), k * g](x, w, bias, y, *sizes, *constants, block, tile)
    else:
        tile = _tiles(o, 64, least=16)
        block = 128 if tile == 16 else 64
        _product[triton.cdiv(total, block), triton.cdiv(o, tile), k * g](
            x, w, bias, y, *sizes, *constants, block, tile, 32, PRECISION
        )
    return y


def _of_weights(d, x, kernel, geometry: Geometry, way: str) -> Tensor:
    """Gradient [k, out, in, high, wide] of the weights from the gradient d of the output [k, n, out, P, Q]."""
    x, d = dense(x, 3), dense(d, 3)
    (k, n, _, *size), pixels, g, (high, wide) = x.shape, d.shape[3:], geometry.groups, kernel
    c, o = x.shape[2] // g, d.shape[2] // g
    entries, total = c * high * wide, n * pixels[0] * pixels[1]
    product = way == "product"
    block, tile = (32, _tiles(o, 32, least=16)) if product else (128, _tiles(o, 8))
    entry = _tiles(entries, 128, least=16) if product else _tiles(entries, 8)
    tiles = triton.cdiv(entries, entry)
    jobs = triton.cdiv(o, tile) * tiles
    parts = max(1, min(triton.cdiv(total, 4 * block), triton.cdiv(PROGRAMS, jobs * k * g)))
    chunk = block * triton.cdiv(triton.cdiv(total, parts), block)
    parts = triton.cdiv(total, chunk)
    sums = x.new_empty(parts, k, g * o, c, high, wide)
    _weights[jobs, parts, k * g](
        x, d, sums, n, c, *size, o, *pixels, g, *x.stride()[:3], *d.stride()[:3], tiles, chunk,
        high, wide, *geometry.padding, *geometry.stride, product, block, tile, entry, PRECISION,
    )  # fmt: skip
    return sums.sum(0)


# -- under vmap and grad ------------------------------------------------------------------------------------------


def in_front(t: Tensor, at: int | None, k: int) -> Tensor:
    """Move or add the client axis in front."""
    return t.expand(k, *t.shape) if at is None else t.movedim(at, 0)


class KernelConvolution(torch.autograd.Function):
    """Convolution of ONE client [n, in, H, V] -> [n, out, P, Q]; under `vmap`, of all clients in one launch."""

    @staticmethod
    def forward(x, weight, bias, geometry, way):
        return F.conv2d(x, weight, bias, geometry.stride, geometry.padding, groups=geometry.groups)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, ctx.geometry, ctx.way = inputs
        ctx.biased = bias is not None
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        needed = ctx.needs_input_grad[0]
        of_x, of_weight = ConvolutionBackward.apply(grad, x, weight, ctx.geometry, ctx.way, needed)
        return of_x if needed else None, of_weight, grad.sum((0, 2, 3)) if ctx.biased else None, None, None

    @staticmethod
    def vmap(info, in_dims, x, weight, bias, geometry, way):
        x, weight = (in_front(t, at, info.batch_size) for t, at in zip((x, weight), in_dims, strict=False))
        bias = None if bias is None else in_front(bias, in_dims[2], info.batch_size)
        sides = zip(x.shape[3:], weight.shape[3:], geometry.padding, geometry.stride, strict=True)
        pixels = [(side + 2 * padding - kernel) // stride + 1 for side, kernel, padding, stride in sides]
        return _convolved(x, weight, bias, pixels, geometry, way, back=False).transpose(0, 1), 1


class ConvolutionBackward(torch.autograd.Function):
    """Gradients of the input (empty unless it is needed) and of the weights; it can be differentiated again."""

    @staticmethod
    def forward(grad, x, weight, geometry, way, needed):
        given = geometry.stride, geometry.padding, (1, 1), False, (0, 0), geometry.groups
        of_x, of_weight, _ = torch.ops.aten.convolution_backward(grad, x, weight, None, *given, [needed, True, False])
        return of_x if needed else grad.new_empty(0), of_weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        *_, ctx.geometry, ctx.way, ctx.needed = inputs
        ctx.save_for_backward(*inputs[:3])

    @staticmethod
    def backward(ctx, of_x, of_weight):
        grad, x, weight = ctx.saved_tensors
        rest = ctx.geometry, ctx.way
        again = KernelConvolution.apply(x, of_weight, None, *rest)
        to_x = ConvolutionBackward.apply(grad, x, of_weight, *rest, True)[0]
        if not ctx.needed:
            return again, to_x, None, None, None, None
        again = again + KernelConvolution.apply(of_x, weight, None, *rest)
        return again, to_x, ConvolutionBackward.apply(grad, of_x, weight, *rest, False)[1], None, None, None

    @staticmethod
    def vmap(info, in_dims, grad, x, weight, geometry, way, needed):
        grad, x, weight = (in_front(t, at, info.batch_size) for t, at in zip((grad, x, weight), in_dims, strict=False))
        of_x = grad.new_empty(1, info.batch_size)
        if needed:
            of_x = _convolved(grad, weight, None, x.shape[3:], geometry, way, back=True).transpose(0, 1)
        return (of_x, _of_weights(grad, x, weight.shape[3:], geometry, way)), (1, 0)
