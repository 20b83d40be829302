"""ResNet-18 (He et al., CVPR 2016) for small images, with BatchNorm or GroupNorm."""

from collections.abc import Callable
from functools import partial

from torch import nn

GROUPS = 32  # of GroupNorm (Wu and He, ECCV 2018); the widths 64 to 512 are multiples


def resnet18(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """torchvision's `resnet18`, 3x3 stem, no max-pooling, random weights; 11,173,962 parameters for 3x32x32 and 10."""
    # The in-place ReLUs and sums are kept: each overwrites the output of a normalisation, which no gradient needs.
    return network(shape, n_classes, nn.BatchNorm2d)


def resnet18_gn(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """`resnet18` with GroupNorm instead of BatchNorm: the same number of parameters, and no running statistics."""
    return network(shape, n_classes, partial(nn.GroupNorm, GROUPS))


def network(shape: tuple[int, int, int], n_classes: int, norm: Callable[[int], nn.Module]) -> nn.Module:
    """Stem, four stages of two blocks, mean over all pixels, and `fc`; `norm` takes a number of channels."""
    from torchvision import models  # imported late: torchvision takes a second to import

    net = models.resnet18(num_classes=n_classes, norm_layer=norm)
    net.conv1 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")  # as in torchvision
    net.add_module("maxpool", nn.Identity())
    return net
