"""Implementations ("forms") of convolutions under `vmap`; the fastest one depends on the layer and on the device."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FORMS = ("grouped", "patches", "direct", "product")
GROUPED, PATCHES, *KERNELS = FORMS


@contextmanager
def convolutions(net: nn.Module, forms: str | Sequence[str]) -> Iterator[None]:
    """Context in which the convolutions of `net` have these forms; results are the same up to rounding."""
    # "grouped" is PyTorch's convolution, which becomes one grouped convolution under `vmap`. "patches" multiplies
    # unfolded images by the kernels, as one batched matrix product. "direct" and "product" are GPU kernels of
    # `fedlib.engine.kernels`. One form for each layer, in the order of `layers_of`, or one for all; a layer that cannot
    # have its form is "grouped".
    layers = layers_of(net)
    forms = [forms] * len(layers) if isinstance(forms, str) else forms
    changed = [pair for pair in zip(layers, forms, strict=True) if pair[1] in forms_of(pair[0])[1:]]
    for layer, form in changed:
        layer._conv_forward = partial(_patches, layer) if form == PATCHES else partial(_by_kernels, layer, form)
    try:
        yield
    finally:
        for layer, _ in changed:
            del layer._conv_forward


def layers_of(net: nn.Module) -> list[nn.Conv2d]:
    """The convolutions of a module."""
    return [layer for layer in net.modules() if isinstance(layer, nn.Conv2d)]


def forms_of(layer: nn.Conv2d, dtype: torch.dtype = torch.float32) -> list[str]:
    """The possible forms of a convolution for images of this type."""
    forms = [GROUPED]
    if layer.dilation == (1, 1) and layer.padding_mode == "zeros" and not isinstance(layer.padding, str):
        forms += [PATCHES] if layer.groups == 1 and layer.stride == (1, 1) else []
        forms += KERNELS if dtype == torch.float32 and find_spec("triton") else []
    return forms


def _by_kernels(layer: nn.Conv2d, way: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Output of `layer`, computed by kernels for float32: x [batch, C, H, W] -> [batch, out, H', W']."""
    if x.dtype != torch.float32:
        return F.conv2d(x, weight, bias, layer.stride, layer.padding, groups=layer.groups)
    from fedlib.engine.kernels import Geometry, KernelConvolution  # Triton comes with PyTorch for CUDA only

    return KernelConvolution.apply(x, weight, bias, Geometry(layer.stride, layer.padding, layer.groups), way)


def _patches(layer: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Output of `layer` as a matrix product: x [batch, C, H, W] -> [batch, out, H', W']."""
    top, side = layer.padding
    out = PatchConvolution.apply(F.pad(x, (side, side, top, top)) if top or side else x, weight)
    return out if bias is None else out + bias[:, None, None]


class PatchConvolution(torch.autograd.Function):
    """Convolution with stride 1 as a product of patches with a matrix, in the forward and the backward pass.

    Under `vmap` it needs no loop over clients. No operation adds in an undefined order, so the bits are reproducible.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        """x [batch, C, H, W], weight [out, C, high, wide] -> [batch, out, H', W']."""
        patches = _unfold(x, weight.shape[2:])  # [batch * H' * W', C * high * wide]
        size = [x.shape[0], *(n - m + 1 for n, m in zip(x.shape[2:], weight.shape[2:], strict=True))]
        return _channels_first(patches @ weight.flatten(1).T, size)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad: Tensor):
        """grad [batch, out, H', W']; the gradient of x is a convolution of grad with the flipped kernels."""
        x, weight = ctx.saved_tensors
        high, wide = weight.shape[2:]
        rows = grad.permute(0, 2, 3, 1).flatten(0, 2)  # [batch * H' * W', out]
        grad_weight = (rows.T @ _unfold(x, (high, wide))).unflatten(1, weight.shape[1:])
        if not ctx.needs_input_grad[0]:
            return None, grad_weight
        padded = F.pad(grad, (wide - 1, wide - 1, high - 1, high - 1))
        flipped = weight.flip(2, 3).transpose(0, 1)  # [C, out, high, wide]
        grad_x = _unfold(padded, (high, wide)) @ flipped.flatten(1).T
        return _channels_first(grad_x, [x.shape[0], *x.shape[2:]]), grad_weight


def _unfold(x: Tensor, kernel: tuple[int, int]) -> Tensor:
    """All patches of x [batch, C, H, W] as rows: [batch * H' * W', C * high * wide]."""
    patches = x.unfold(2, kernel[0], 1).unfold(3, kernel[1], 1)  # [batch, C, H', W', high, wide]
    return patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(0, 2)


def _channels_first(rows: Tensor, size: list[int]) -> Tensor:
    """Rows [batch * H * W, C] as images [batch, C, H, W]; `size` is (batch, H, W)."""
    # Images of one pixel, which are contiguous already, need the copy, too: on a GPU, BatchNorm chooses its kernel by
    # the strides, and the kernel for channels-last strides does not work under `vmap`.
    return rows.unflatten(0, size).permute(0, 3, 1, 2).clone(memory_format=torch.contiguous_format)
