"""pFedMB: traffic, and the cost of a prediction (sections IV-A and VI)."""

import timeit
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.module import register_module_forward_hook

import fedlib as fl
from fedlib.methods.pfedmb import SHARED, merge, new_branches
from fedlib.models import MODELS, Model, build
from fedlib.papers.pfedmb.sizes import COSTED, SPLIT
from fedlib.report.panels import line_panels
from fedlib.report.style import GREY, RED
from fedlib.stack import Params
from fedlib.studies.item import Cell, enough, item
from fedlib.studies.tasks import Kept, Probe, Run

LINES = {  # of the figure: panel, name, colour
    "floats_up": ("scalars sent, relative to FedAvg", "pFedMB", RED),
    "time": ("inference time, relative to the plain network", "merged", RED),
    "time_unmerged": ("inference time, relative to the plain network", "separate", GREY),
}


@item("Sections IV-A and VI: scalars sent and inference time, by the number of branches.", rows="metric")
def cost(sizes):
    """Above: scalars sent, relative to FedAvg. Below: inference time with merged and with separate branches."""
    setting = {"rounds": 1, "local_epochs": 1, "batch_size": sizes.batch_size}
    floats = {way: lambda row, way=way: row.facts[f"bytes_{way}"] / 4 / 10 for way in ("up", "down")}  # of a client
    for words, algorithm in {"": fl.fedavg(), **{f"branches={b}": fl.pfedmb(b) for b in COSTED}}.items():
        task = Run(algorithm, sizes.costed, fl.iid(), 10, setting, "lenet5_plain", SPLIT)
        for way, read in floats.items():
            yield Cell(algorithm.name, "cifar10", words, (task,), read, f"floats_{way}")
    for b in COSTED:
        task = Probe("inference", inference, (b,))
        for metric in ("parameters", "merged", "plain", "calls", "calls_plain", "error", "time", "time_unmerged"):
            yield Cell("pfedmb", "cifar10", f"branches={b}", (task,), metric, metric)


@torch.no_grad()
def inference(seed: int, branches: int) -> Kept:
    """Inference with merged and with separate branches (eq. 2); times are relative to the plain network."""
    model = build("lenet5_plain", MODELS["lenet5_plain"], (3, 32, 32), 10, seed)
    x = torch.randn(64, *model.shape, generator=torch.Generator().manual_seed(seed))
    z = torch.randn(branches, generator=torch.Generator().manual_seed(seed + 1))
    w, alpha = new_branches(model, branches), z.softmax(0)
    merged = merge(w, {SHARED: alpha})
    plain = _seconds(lambda: model(model.weights, x))
    return {
        "parameters": sum(t.numel() for t in w.values()),
        "merged": sum(t.numel() for t in merged.values()),
        "plain": sum(t.numel() for t in model.weights.values()),
        "calls": _calls(model, merged, x),
        "calls_plain": _calls(model, model.weights, x),
        "error": float((model(merged, x) - branch_sum(model, w, alpha, x)).abs().max()),
        "time": _seconds(lambda: model(merged, x)) / plain,
        "time_unmerged": _seconds(lambda: branch_sum(model, w, alpha, x)) / plain,
    }


def branch_sum(model: Model, w: Params, alpha: Tensor, x: Tensor) -> Tensor:
    """The right side of eq. 2: every layer runs B times, and the outputs are mixed. w: [B, ...], alpha: [B]."""
    for name, layer in model.net.named_modules():
        if f"{name}.weight" in w:
            each = zip(alpha, w[f"{name}.weight"], w[f"{name}.bias"], strict=True)
            x = sum(a * functional_call(layer, {"weight": W, "bias": c}, (x,)) for a, W, c in each)
        elif not list(layer.children()):
            x = layer(x)
    return x


def _calls(model: Model, w: Params, x: Tensor) -> int:
    """Calls of a convolution or linear layer in a prediction."""
    linear: list[bool] = []
    hook = register_module_forward_hook(lambda layer, *_: linear.append(isinstance(layer, nn.Conv2d | nn.Linear)))
    model(w, x)
    hook.remove()
    return sum(linear)


def _seconds(call: Callable[[], object]) -> float:
    """The median time of a call."""
    return float(np.median(timeit.repeat(call, number=1, repeat=15)))


@cost.shows
def _(study):
    frame = study.numbers("cost").assign(branches=lambda f: f["branches"].astype(object).fillna("1").astype(int))
    up = frame["metric"] == "floats_up"  # relative to FedAvg, as times are relative to the plain network
    frame.loc[up, "value"] /= frame.loc[up & (frame["method"] == "fedavg"), "value"].mean()
    frame = frame[frame["metric"].isin(LINES)].dropna(subset="value")
    table = frame.pivot_table(index="branches", columns="metric", values="value")
    table = enough(table.reindex(columns=[*LINES]).dropna())
    sent, merged, unmerged = table.iloc[-1]
    yield (
        f"With {table.index[-1]} branches a client sends {sent:.2f} times as many scalars as in FedAvg. Relative to "
        f"the plain network, inference takes {merged:.1f} times as long with merged branches (red) and {unmerged:.1f} "
        f"times as long with separate ones (grey)."
    )
    look = {"named": lambda metric: LINES[metric][1], "look": lambda metric: {"color": LINES[metric][2], "marker": "o"}}
    frame = frame.assign(panel=[LINES[metric][0] for metric in frame["metric"]])
    text = {"title": str, "line": "metric", "xlabel": "branches (1: FedAvg)", "ylabel": "ratio", "height": 1.9}
    figure = line_panels(frame, "branches", ("panel",), **text, **look)
    for ax in figure.axes:
        ax.set(ylim=(0, None), xticks=sorted({*frame["branches"]}))
    yield figure
