"""Export of a client's model as a module and as a file that do not need fedlib."""

import copy
import os
from pathlib import Path

import numpy as np
from safetensors.torch import save_file
from torch import nn

from fedlib.checks import check_count, check_kind
from fedlib.files import write_file
from fedlib.runs.result import RunResult


def export(result: RunResult, client: int, path: str | os.PathLike[str] | None = None) -> nn.Module:
    """Extract the model of a client from a finished run, with the weights of its last evaluation before fine-tuning.

    Its input is normalised as in the run: (pixel / 255 - mean) / std, with `pixels="raw"` (pixel - mean) / std, with
    the mean and std of each channel over the whole data set (`Dataset.mean` and `Dataset.std`).

    Args:
        result: the run.
        client: number of the client, from 0.
        path: safetensors file for the weights, whose metadata name model, method, data and client. Default: no file.

    Returns:
        The module in evaluation mode, on the CPU. `fl.pretrained` reads the file.

    Raises:
        ValueError: no client has this number, or the clients of this method have several networks each.

    Example:
        >>> data = fl.load("digits", copies=1)
        >>> result = fl.run("fedper", fl.federate(data, fl.iid(), clients=3), rounds=1, progress=False)
        >>> net = fl.export(result, client=2)
        >>> x = (data.x[:5] / 255 - data.mean[:, None, None]) / data.std[:, None, None]
        >>> net(torch.as_tensor(x, dtype=torch.float32)).shape
        torch.Size([5, 10])
    """
    check_kind("result", result, RunResult, "a RunResult, as fl.run returns it")
    check_count("client", client, 0, result.accuracy["client"].nunique() - 1)
    check_kind("path", path, str | os.PathLike | None, "a path")
    weights = result.weights(client)
    [model] = [model for model, clients in result.architectures if np.isin(client, clients)]
    net = copy.deepcopy(model.net).cpu().eval()
    if not isinstance(weights, dict) or {*weights} != {*net.state_dict()}:
        raise ValueError(f"a client of {result.config['algorithm']!r} has no single network to export.")
    weights = {name: t.detach().cpu().contiguous().clone() for name, t in weights.items()}
    net.load_state_dict(weights, strict=False)  # PyTorch adds the counters that the BatchNorm of a run lacks
    if path is not None:
        facts = {name: str(result.config[name]) for name in ("model", "algorithm", "data", "partition", "seed")}
        facts |= {"client": str(client)}
        write_file(Path(path), lambda file: save_file(weights, file, facts))
    return net
