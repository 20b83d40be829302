"""MobileNetV2 (Sandler et al., CVPR 2018) for pFedSim (Tan et al., 2023, Table 9; pFedSim's reading A8)."""

import hashlib
from pathlib import Path

import torch
from torch import nn

from fedlib.data import data_root

URL = "https://download.pytorch.org/models/mobilenet_v2-7ebf99e0.pth"  # IMAGENET1K_V2, 14 MB
SHA256 = "7ebf99e0"  # first digits, as in the file name


def mobilenetv2(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """torchvision's `mobilenet_v2`, width 1, dropout 0.2: 2,223,872 + 1,281 n_classes parameters, from random weights.

    The paper's table gives the first convolution stride 1 and contradicts itself at the stage of 32 channels, so
    torchvision's network is used. Phi is the last linear layer, `classifier.1` [n_classes, 1280]; omega is `features`.
    Dropout is seeded by the run, but the loop and the stacked backend draw different numbers.
    """
    # The in-place ReLU6 are kept: each overwrites the output of a BatchNorm, which no gradient needs.
    from torchvision.models import mobilenet_v2  # imported late: torchvision takes a second to import

    channels, height, width = shape
    if channels != 3 or min(height, width) < 32:
        raise ValueError(f"shape={shape} is not allowed; mobilenetv2 needs 3 channels and at least 32x32 pixels.")
    return mobilenet_v2(num_classes=n_classes)


def mobilenetv2_pretrained(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """`mobilenetv2` with torchvision's ImageNet weights, from the data folder or torch's hub cache, and random phi."""
    net = mobilenetv2(shape, n_classes)
    name = URL.rpartition("/")[2]
    paths = [data_root() / name, Path(torch.hub.get_dir()) / "checkpoints" / name]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        where = " or ".join(map(str, paths))
        raise ValueError(f"mobilenetv2_pretrained needs the file {name}; download it from {URL} and put it at {where}.")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(SHA256):
        raise ValueError(
            f"{path} is not the expected file: its sha256 is {found}, not {SHA256}...; replace it from {URL}."
        )
    phi = {key: w for key, w in net.state_dict().items() if key.startswith("classifier.")}
    net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True) | phi)
    return net
