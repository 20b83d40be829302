"""What the layers of a model answer: outputs of named modules on the way."""

import torch
from torch import Tensor

from fedlib.models.model import Model
from fedlib.stack import Params


@torch.no_grad()
def features(model: Model, w: Params, x: Tensor, layers: dict[str, str]) -> dict[str, Tensor]:
    """Outputs of modules in evaluation mode: {label: [len(x), ...]} for `layers` {label: module name}.

    `x` are normalised images [N, C, H, W]; module names are those of `model.net.named_modules()`.
    """
    modules, answers, hooks = dict(model.net.named_modules()), {}, []
    if unknown := [name for name in layers.values() if name not in modules]:
        raise ValueError(f"layers={unknown} are unknown; allowed: {', '.join(filter(None, modules))}.")
    for label, name in layers.items():

        def keep(module, inputs, output, label=label):
            answers[label] = output

        hooks.append(modules[name].register_forward_hook(keep))
    model.net.eval()
    try:
        model(w, x)
    finally:
        for hook in hooks:
            hook.remove()
    return answers
