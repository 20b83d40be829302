"""LeNet5 with BatchNorm (Table 5 and pFedSim's readings A7 and A17), LeNet5 without, and a wide LeNet4."""

from collections import OrderedDict
from itertools import pairwise

from torch import nn

from fedlib.models.pooling import MaxPool2


def lenet5(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """Two convolution blocks with BatchNorm and three linear layers; 62,050 parameters for 3x32x32 and 10 classes."""
    # pFedSim's table gives the second convolution 3 input channels and omits one pooling and the ReLUs of the hidden
    # linear layers; this network has the output shapes of the table.
    return layers("lenet5", shape, n_classes, nn.BatchNorm2d)


def lenet5_plain(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """LeNet5 without BatchNorm (pFedMB, section V-A; FedSimSup, section 4.1); 62,006 parameters for 3x32x32 and 10."""
    return layers("lenet5_plain", shape, n_classes)


def lenet5_bn(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """LeNet5 with BatchNorm before every ReLU, also in the linear layers: FedAvg+BN and FedBN in FedCS (Table 1)."""
    return layers("lenet5_bn", shape, n_classes, nn.BatchNorm2d, linear_norm=nn.BatchNorm1d)


def lenet4(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """LeNet of FedSimSup (section 4.1; its widths are a reading); 878,538 parameters for 3x32x32 and 10 classes."""
    return layers("lenet4", shape, n_classes, widths=(32, 64, 512))


def layers(
    name: str,
    shape: tuple[int, int, int],
    n_classes: int,
    norm: type[nn.Module] | None = None,
    widths: tuple[int, ...] = (6, 16, 120, 84),
    linear_norm: type[nn.Module] | None = None,
) -> nn.Module:
    """Two convolutions, each followed by `norm`, and hidden linear layers, each followed by `linear_norm`."""
    (channels, height, width), (first, second, *hidden) = shape, widths
    side = [((size - 4) // 2 - 4) // 2 for size in (height, width)]
    if min(side) < 1:
        raise ValueError(f"shape={shape} is not allowed; {name} needs images of at least 16x16 pixels.")

    def conv(c_in, c_out):
        return [nn.Conv2d(c_in, c_out, 5), *([norm(c_out)] if norm else []), nn.ReLU(), MaxPool2()]

    def linear(n_in, n_out):
        return nn.Sequential(nn.Linear(n_in, n_out), *([linear_norm(n_out)] if linear_norm else []), nn.ReLU())

    blocks: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Sequential(*conv(channels, first)),  # [batch, 6, 14, 14]
        conv2=nn.Sequential(*conv(first, second), nn.Flatten()),  # [batch, 400]
    )
    sizes = [second * side[0] * side[1], *hidden]
    for number, (n_in, n_out) in enumerate(pairwise(sizes), 1):
        blocks[f"fc{number}"] = linear(n_in, n_out)  # last block of the feature extractor omega: [batch, 84]
    blocks["classifier"] = nn.Linear(sizes[-1], n_classes)  # phi
    return nn.Sequential(blocks)
