"""Warm start: an architecture whose initial weights are given."""

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedlib.checks import check_kind
from fedlib.models import Architecture, Models, architectures


def pretrained(model: Models, weights: Mapping[str, Tensor] | str | os.PathLike[str], fresh: str = "") -> Architecture:
    """Build an architecture that begins with given weights: the argument `model=` of a run.

    The weights are part of the run's address. Every draw of initial weights returns them, so that methods with several
    independent initial models, such as pFedMB, get equal ones.

    Args:
        model: the architecture, by name or as a function `(shape, n_classes) -> nn.Module`.
        weights: tensors or arrays by name, as `RunResult.weights` and `nn.Module.state_dict` return them, or the path
            to a safetensors file, as `fl.export` writes it.
        fresh: prefix of the names of weights that stay random, such as "classifier" for new classes. Default: none.

    Returns:
        The architecture, with `_pretrained` after its name.

    Raises:
        ValueError: an argument is not allowed, or no such file exists; by `fl.run`: a weight is missing, unknown, or of
            another shape.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.iid(), clients=3)
        >>> first = fl.run("fedavg", federation, rounds=1, progress=False)
        >>> warm = fl.pretrained("lenet5", first.weights(client=0), fresh="classifier")
        >>> second = fl.run("fedper", federation, model=warm, rounds=1, progress=False)
        >>> second.model.weights["fc1.0.bias"].equal(first.weights(client=0)["fc1.0.bias"])
        True
    """

    def is_given(name: str) -> bool:
        return not (fresh and name.startswith(fresh)) and not name.endswith("num_batches_tracked")

    known = architectures(model)
    if len(known) != 1:
        raise ValueError(f"model={model!r} is not allowed; name one architecture for these weights.")
    [plain] = known
    check_kind("weights", weights, Mapping | str | os.PathLike, "tensors by name, or the path to a file")
    check_kind("fresh", fresh, str, "the beginning of names")
    if not isinstance(weights, Mapping):
        if not Path(weights).is_file():
            raise ValueError(f"weights={str(weights)!r} is not a file.")
        try:
            weights = load_file(Path(weights))
        except SafetensorError as error:
            raise ValueError(f"weights={str(weights)!r} is not a safetensors file: {error}.") from error
    kept = {name: torch.as_tensor(t).detach().cpu().clone() for name, t in weights.items() if is_given(name)}

    def build_pretrained(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
        net = plain.build(shape, n_classes)
        wanted = {name: tuple(t.shape) for name, t in net.state_dict().items() if is_given(name)}
        shapes = {name: tuple(t.shape) for name, t in kept.items()}
        if shapes != wanted:
            wrong = min(name for name in {*shapes, *wanted} if shapes.get(name) != wanted.get(name))
            raise ValueError(
                f"model={plain.name!r} cannot begin with these weights; {wrong!r} has the shape {shapes.get(wrong)}, "
                f"and the model needs {wanted.get(wrong)} (None: missing; `fresh` names weights that stay random)."
            )
        net.load_state_dict(kept, strict=False)
        return net

    return Architecture(f"{plain.name}_pretrained", build_pretrained, (*plain.made_of, build_pretrained))
