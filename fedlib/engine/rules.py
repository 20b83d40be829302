"""Rules for layers under `vmap` over clients: the same results in fewer operations.

Without them `vmap` splits BatchNorm, pooling and cross-entropy into small operations, and copies images to move the
client axis to the batch. The time on a GPU grows with the number of operations. Here the client axis is next to the
channels, as in the output of grouped convolutions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten
USUAL = {"weight": None, "ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}  # defaults of cross-entropy
KERNELS = (F.cross_entropy, F.batch_norm)  # functions with a GPU kernel


class Rules(TorchFunctionMode):
    """Context in which functions follow their rules under a `vmap` over clients.

    Cross-entropy has a rule only for the client's `labels`: other labels may mark samples to ignore. `fused`: use the
    GPU kernels of `fedlib.engine.fused`.
    """

    def __init__(self, labels: Tensor, fused: bool = False):
        super().__init__()
        self.labels, self.fused = labels, fused

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        usual = all(kwargs.get(name, value) == value for name, value in USUAL.items())
        fused = self.fused and func in KERNELS and args[0].dtype == torch.float32
        if func is F.cross_entropy and usual and args[1] is self.labels and args[0].dim() == 2:
            if fused:
                from fedlib.engine.fused import CrossEntropy  # Triton comes with PyTorch for CUDA only

                return CrossEntropy.apply(*args[:2])[0]
            return -args[0].log_softmax(1).gather(1, args[1][:, None]).mean()
        if func is F.max_pool2d and args[0].dim() == 4:
            return _pooled(*args, **kwargs)
        if func is F.batch_norm:
            return _normalised(*args, **kwargs, fused=fused)
        return func(*args, **kwargs)


def _pooled(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, **_):
    """`F.max_pool2d` by its rule."""
    sizes = kernel_size, stride or kernel_size, padding, dilation
    pairs = (2 * [size] if isinstance(size, int) else list(size) for size in sizes)
    return Pool.apply(x, (*pairs, ceil_mode))[0]


def _normalised(
    x, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5, fused=False
):
    """`F.batch_norm` by its rule."""
    if not training or any(t is None for t in (running_mean, running_var, weight, bias)):
        return F.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)
    if fused:
        from fedlib.engine.fused import Layer, LayerKernel

        return LayerKernel.apply(x, weight, bias, running_mean, running_var, Layer(True, momentum=momentum, eps=eps))[0]
    return Norm.apply(x, weight, bias, running_mean, running_var, momentum, eps)[0]


def _beside(t: Tensor, at: int) -> Tensor:
    """Images [batch, C, ...] of k clients with the client axis `at`, as [batch, k * C, ...]."""
    return t.movedim(at, 1).flatten(1, 2)


def _apart(t: Tensor, k: int) -> Tensor:
    """Images [batch, k * C, ...] as [batch, k, C, ...]."""
    return t.unflatten(1, (k, -1))


class Norm(torch.autograd.Function):
    """BatchNorm of a training step: normalised x, and the batch's mean and 1 / standard deviation."""

    @staticmethod
    def forward(x, weight, bias, running_mean, running_var, momentum, eps):
        return aten.native_batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, *_ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, *output[1:])

    @staticmethod
    def backward(ctx, *grad_outputs):
        return *NormBackward.apply(grad_outputs[0], *ctx.saved_tensors), None, None, None, None

    @staticmethod
    def vmap(info, in_dims, x, weight, bias, running_mean, running_var, momentum, eps):
        k = info.batch_size
        vectors = [t.movedim(at, 0).flatten() for t, at in zip((weight, bias), in_dims[1:3], strict=True)]
        written = [t.movedim(at, 0).view(-1) for t, at in zip((running_mean, running_var), in_dims[3:5], strict=True)]
        out, mean, scale = Norm.apply(_beside(x, in_dims[0]), *vectors, *written, momentum, eps)
        return (_apart(out, k), mean.unflatten(0, (k, -1)), scale.unflatten(0, (k, -1))), (1, 0, 0)


class NormBackward(torch.autograd.Function):
    """Gradients of x, weight and bias."""

    @staticmethod
    def forward(grad, x, weight, mean, scale):
        wanted = [True, True, True]
        return aten.native_batch_norm_backward(grad.contiguous(), x, weight, None, None, mean, scale, True, 0.0, wanted)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, grad, x, weight, mean, scale):
        k = info.batch_size
        images = [_beside(t, at) for t, at in zip((grad, x), in_dims[:2], strict=True)]
        vectors = [t.movedim(at, 0).flatten() for t, at in zip((weight, mean, scale), in_dims[2:], strict=True)]
        of_x, of_weight, of_bias = NormBackward.apply(*images, *vectors)
        return (_apart(of_x, k), of_weight.unflatten(0, (k, -1)), of_bias.unflatten(0, (k, -1))), (1, 0, 0)


class Pool(torch.autograd.Function):
    """Maxima over windows and their positions; `window`: size, stride, padding, dilation, and ceil mode."""

    @staticmethod
    def forward(x, window):
        return aten.max_pool2d_with_indices(x, *window)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.window = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, output[1])

    @staticmethod
    def backward(ctx, *grad_outputs):
        return PoolBackward.apply(grad_outputs[0], *ctx.saved_tensors, ctx.window), None

    @staticmethod
    def vmap(info, in_dims, x, window):
        out, places = Pool.apply(_beside(x, in_dims[0]), window)
        return (_apart(out, info.batch_size), _apart(places, info.batch_size)), (1, 1)


class PoolBackward(torch.autograd.Function):
    """Gradient of x."""

    @staticmethod
    def forward(grad, x, places, window):
        return aten.max_pool2d_with_indices_backward(grad, x, *window, places)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, grad, x, places, window):
        images = [_beside(t, at) for t, at in zip((grad, x, places), in_dims[:3], strict=True)]
        return _apart(PoolBackward.apply(*images, window), info.batch_size), 1
