"""Architectures by name. A builder takes (channels, height, width) and n_classes and returns a module."""

from fedlib.models.lenet5 import lenet5, lenet5_bn, lenet5_plain
from fedlib.models.mobilenetv2 import mobilenetv2, mobilenetv2_pretrained
from fedlib.models.model import Builder, Group, Model, build

MODELS: dict[str, Builder] = {
    "lenet5": lenet5,
    "lenet5_bn": lenet5_bn,
    "lenet5_plain": lenet5_plain,
    "mobilenetv2": mobilenetv2,
    "mobilenetv2_pretrained": mobilenetv2_pretrained,
}

__all__ = [
    "MODELS",
    "Builder",
    "Group",
    "Model",
    "build",
    "lenet5",
    "lenet5_bn",
    "lenet5_plain",
    "mobilenetv2",
    "mobilenetv2_pretrained",
]
