"""M1 to M4, four architectures with the sizes of the authors' code (section 4.2 and pFedHR's readings A24 and A25).

Blocks `conv1`, `conv2`, ..., then `fc` blocks with the classifier at the end. `thin` divides the widths of all hidden
layers.
"""

from collections import OrderedDict

from torch import nn

from fedlib.models.pooling import MaxPool2

Shape = tuple[int, int, int]
Layers = list[nn.Module]


def conv(c_in: int, c_out: int, kernel: int = 5, norm: bool = False, pool: bool = False, drop: float = 0.0) -> Layers:
    """Layers of a convolution block: stride 1, 3x3 kernels with padding, 5x5 kernels without."""
    layers: Layers = [nn.Conv2d(c_in, c_out, kernel, padding=1 if kernel == 3 else 0)]
    layers += [nn.BatchNorm2d(c_out)] if norm else []
    layers += [nn.ReLU()]
    layers += [MaxPool2()] if pool else []
    return layers + ([nn.Dropout2d(drop)] if drop else [])


def fc(n_in: int, n_out: int, drop: float = 0.0, before: float = 0.0) -> Layers:
    """Layers of a hidden linear block, with dropout after it or before it."""
    layers: Layers = [nn.Dropout(before)] if before else []
    return [*layers, nn.Linear(n_in, n_out), nn.ReLU(), *([nn.Dropout(drop)] if drop else [])]


def need(name: str, shape: Shape, least: int) -> None:
    """Raise `ValueError` for images with fewer than `least` pixels per side."""
    if min(shape[1:]) < least:
        raise ValueError(f"shape={shape} is not allowed; {name} needs images of at least {least}x{least} pixels.")


def network(convolutions: list[Layers], linear: list[Layers]) -> nn.Module:
    """Sequence of the convolution blocks, then the linear blocks."""
    linear = [[nn.Flatten(), *linear[0]], *linear[1:]]
    blocks = [nn.Sequential(*layers) for layers in (*convolutions, *linear)]
    names = [f"conv{i + 1}" if i < len(convolutions) else f"fc{i + 1}" for i in range(len(blocks))]
    return nn.Sequential(OrderedDict(zip(names, blocks, strict=True)))


def side(size: int, *, fives: int = 0, halves: int = 0) -> int:
    """Side of the image after `fives` unpadded 5x5 convolutions, then `halves` poolings by two."""
    return (size - 4 * fives) >> halves


def m1(shape: Shape, n_classes: int, thin: int = 1) -> nn.Module:
    """Two convolutions, two linear layers: 97,384 parameters for 3x32x32 and 10 classes."""
    need("m1", shape, 16)
    a, b, c = (-(-width // thin) for width in (10, 64, 50))
    pixels = [side(side(size, fives=1, halves=1), fives=1, halves=1) for size in shape[1:]]
    convolutions = [conv(shape[0], a, pool=True), conv(a, b, pool=True)]
    linear = [fc(b * pixels[0] * pixels[1], c, drop=0.5), [nn.Linear(c, n_classes)]]
    return network(convolutions, linear)


def m2(shape: Shape, n_classes: int, thin: int = 1) -> nn.Module:
    """Three convolutions, three linear layers: 245,224 parameters for 3x32x32 and 10 classes."""
    need("m2", shape, 32)
    a, b, c, d = (-(-width // thin) for width in (10, 64, 128, 50))
    pixels = [side(side(side(size, fives=1, halves=1), fives=1, halves=1), fives=1) for size in shape[1:]]
    convolutions = [conv(shape[0], a, pool=True), conv(a, b, pool=True), conv(b, c)]
    linear = [fc(c * pixels[0] * pixels[1], c), fc(c, d, drop=0.5), [nn.Linear(d, n_classes)]]
    return network(convolutions, linear)


def m3(shape: Shape, n_classes: int, thin: int = 1) -> nn.Module:
    """Five convolutions, four linear layers: 2,510,178 parameters for 3x32x32 and 10 classes."""
    need("m3", shape, 26)
    a, b, c, d, e, f, g, h = (-(-width // thin) for width in (6, 16, 32, 64, 128, 1024, 128, 64))
    pixels = [side(side(size, fives=4, halves=1), fives=1) for size in shape[1:]]
    convolutions = [conv(shape[0], a), conv(a, b), conv(b, c), conv(c, d, pool=True), conv(d, e)]
    linear = [fc(e * pixels[0] * pixels[1], f, drop=0.25), fc(f, g), fc(g, h), [nn.Linear(h, n_classes)]]
    return network(convolutions, linear)


def m4(shape: Shape, n_classes: int, thin: int = 1) -> nn.Module:
    """Six convolutions, three with BatchNorm, four linear layers: 5,980,938 parameters for 3x32x32 and 10 classes."""
    need("m4", shape, 8)
    a, b, c, d, e, f, g = (-(-width // thin) for width in (32, 64, 128, 256, 1024, 512, 256))
    pixels = [side(size, halves=3) for size in shape[1:]]
    convolutions = [
        conv(shape[0], a, kernel=3, norm=True),
        conv(a, b, kernel=3, pool=True),
        conv(b, c, kernel=3, norm=True),
        conv(c, c, kernel=3, pool=True, drop=0.05),
        conv(c, d, kernel=3, norm=True),
        conv(d, d, kernel=3, pool=True),
    ]
    linear = [fc(d * pixels[0] * pixels[1], e, before=0.1), fc(e, f), fc(f, g), [nn.Linear(g, n_classes)]]
    return network(convolutions, linear)
