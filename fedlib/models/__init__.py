"""Architectures by name. A builder takes (channels, height, width) and n_classes and returns a module."""

from functools import partial

from fedlib.fingerprint import Registry
from fedlib.models.lenet5 import lenet4, lenet5, lenet5_bn, lenet5_plain
from fedlib.models.m1_to_m4 import m1, m2, m3, m4
from fedlib.models.mobilenetv2 import mobilenetv2, mobilenetv2_pretrained
from fedlib.models.model import Builder, Group, Model, build

M1_TO_M4 = {"m1": m1, "m2": m2, "m3": m3, "m4": m4}
THIN = {"m1": 2, "m2": 2, "m3": 4, "m4": 8}  # more where there is more: a step of M4 takes twice that of M1
MODELS: dict[str, Builder] = Registry(
    lenet4=lenet4,
    lenet5=lenet5,
    lenet5_bn=lenet5_bn,
    lenet5_plain=lenet5_plain,
    **M1_TO_M4,
    **{f"{name}_thin": partial(M1_TO_M4[name], thin=thin) for name, thin in THIN.items()},
    mobilenetv2=mobilenetv2,
    mobilenetv2_pretrained=mobilenetv2_pretrained,
)

__all__ = [
    "MODELS",
    "Builder",
    "Group",
    "Model",
    "build",
    "lenet4",
    "lenet5",
    "lenet5_bn",
    "lenet5_plain",
    "mobilenetv2",
    "mobilenetv2_pretrained",
]
