"""Architectures by name. A builder takes (channels, height, width) and n_classes and returns a module.

`MODELS["mine"] = builder` adds a builder for `fl.run(..., model="mine")` and `fl.models()`.
"""

from collections.abc import Sequence
from functools import partial
from typing import cast

from fedlib.checks import check_choice
from fedlib.fingerprint import Registry
from fedlib.models.architecture import Architecture, Models, from_builder
from fedlib.models.ensemble import Ensemble
from fedlib.models.lenet5 import lenet4, lenet5, lenet5_bn, lenet5_plain
from fedlib.models.m1_to_m4 import m1, m2, m3, m4
from fedlib.models.mobilenetv2 import mobilenetv2, mobilenetv2_pretrained
from fedlib.models.model import Assignment, Builder, Model, build, deal, features, initial
from fedlib.models.resnet18 import resnet18, resnet18_gn

THIN = {"m1": 2, "m2": 2, "m3": 4, "m4": 8}  # divisors of the widths
_BUILDERS = (lenet4, lenet5, lenet5_bn, lenet5_plain, m1, m2, m3, m4, mobilenetv2, mobilenetv2_pretrained)
MODELS: dict[str, Builder] = Registry({f.__name__: f for f in (*_BUILDERS, resnet18, resnet18_gn)})
MODELS |= {f"{name}_thin": partial(MODELS[name], thin=thin) for name, thin in THIN.items()}


def architectures(model: Models | Architecture | Sequence[Architecture]) -> list[Architecture]:
    """List the architectures named by a run's argument `model`; `ValueError` for an unknown name."""
    if isinstance(model, Architecture):
        return [model]
    if isinstance(model, str):
        names = model.split("+")
        for name in names:
            check_choice("model", name, MODELS)
        return [Architecture(name, MODELS[name], (MODELS[name],)) for name in names]
    if isinstance(model, list | tuple) and model:
        return [architecture for entry in model for architecture in architectures(entry)]
    return [from_builder(cast(Builder, model))]


__all__ = ["MODELS", "Architecture", "Assignment", "Builder", "Ensemble", "Model", "Models", "architectures", "build"]
__all__ += ["deal", "features", "initial", "lenet4", "lenet5", "lenet5_bn", "lenet5_plain", "mobilenetv2"]
__all__ += ["mobilenetv2_pretrained", "resnet18", "resnet18_gn"]
