"""LeNet5 with BatchNorm as pFedSim uses it (Tan et al., 2023, Table 5; readings A7 and A17)."""

from collections import OrderedDict

from torch import nn


def lenet5(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """Two convolution blocks and three linear layers; 62,050 parameters for 3x32x32 and 10 classes.

    The paper's table gives the second convolution 3 input channels and leaves out a pooling and the ReLUs of the
    hidden linear layers; with them as here its output shapes come out right.
    """
    channels, height, width = shape
    side = [((size - 4) // 2 - 4) // 2 for size in (height, width)]
    if min(side) < 1:
        raise ValueError(f"shape={shape} is not allowed; lenet5 needs images of at least 16x16 pixels.")

    def conv(c_in, c_out):
        return [nn.Conv2d(c_in, c_out, 5), nn.BatchNorm2d(c_out), nn.ReLU(), nn.MaxPool2d(2)]

    layers = OrderedDict(
        conv1=nn.Sequential(*conv(channels, 6)),  # [batch, 6, 14, 14]
        conv2=nn.Sequential(*conv(6, 16), nn.Flatten()),  # [batch, 400]
        fc1=nn.Sequential(nn.Linear(16 * side[0] * side[1], 120), nn.ReLU()),
        fc2=nn.Sequential(nn.Linear(120, 84), nn.ReLU()),  # the extractor omega ends here: [batch, 84]
        classifier=nn.Linear(84, n_classes),  # phi
    )
    return nn.Sequential(layers)
