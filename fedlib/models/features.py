"""Features: the outputs of named layers of a model."""

import torch
from torch import Tensor

from fedlib.models.model import Model
from fedlib.stack import Params


@torch.no_grad()
def features(model: Model, w: Params, x: Tensor, layers: dict[str, str]) -> dict[str, Tensor]:
    """Compute the outputs of some layers in evaluation mode.

    Args:
        model: the architecture.
        w: weights by name, [...].
        x: normalised images, [N, C, H, W].
        layers: names of modules in `model.net.named_modules()`, by label.

    Returns:
        Outputs, [N, ...], by label.

    Raises:
        ValueError: a module does not exist.

    Example:
        >>> import torch
        >>> from fedlib.models import MODELS, build
        >>> from fedlib.models.features import features
        >>> model = build("lenet5", MODELS["lenet5"], shape=(3, 32, 32), n_classes=10, seed=0)
        >>> outputs = features(model, model.weights, torch.zeros(4, 3, 32, 32), {"first": "conv1", "last": "fc2"})
        >>> outputs["first"].shape, outputs["last"].shape
        (torch.Size([4, 6, 14, 14]), torch.Size([4, 84]))
    """
    modules, outputs, hooks = dict(model.net.named_modules()), {}, []
    if unknown := [name for name in layers.values() if name not in modules]:
        raise ValueError(f"layers={unknown} are unknown; allowed: {', '.join(filter(None, modules))}.")
    for label, name in layers.items():

        def keep(module, inputs, output, label=label):
            outputs[label] = output

        hooks.append(modules[name].register_forward_hook(keep))
    model.net.eval()
    try:
        model(w, x)
    finally:
        for hook in hooks:
            hook.remove()
    return outputs
