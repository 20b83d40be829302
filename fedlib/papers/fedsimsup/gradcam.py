"""FedSimSup: predictions and Grad-CAM of the two networks of every client, kept in the row of a run (Fig. 4)."""

import base64
from copy import deepcopy

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedlib as fl
from fedlib.data import Dataset
from fedlib.methods.fedsimsup import Pair
from fedlib.models import Model
from fedlib.studies.tasks import Kept, Run
from fedlib.training import Images, on_device

ANSWERS = ("both", "theta", "s")  # predictions of the sum and of each network alone
SCOPES = ("cat", "all")  # Fig. 4: images of one class, and all
MASKED = ("kept, theta", "kept", "kept, another image")  # accuracy with a region masked
MEASURES = ("images", "correlation", "with another image", "overlap", "area theta", "area s", *MASKED)


def both_networks(run: Run, cam_class: str, result: fl.RunResult) -> Kept:
    """Predictions of the sum and of each network on all test images, and Grad-CAM where the sum is right."""
    federation, two = run.arguments(0)["federation"], result.architectures[0].model
    pixels = on_device(federation.data, torch.device("cpu"))
    clients = enumerate(zip(federation.test, federation.train_counts, strict=True))
    table = pd.concat([on_client(result.weights(i), two, pixels, *own).assign(client=i) for i, own in clients])
    right, chosen = table[table["both"]], federation.data.classes.index(cam_class)
    found = {"diverged": result.diverged, "shown": examples(right, chosen, federation.data)}
    found |= {f"alone: {who}": 100 * float(table[who].mean()) for who in (*ANSWERS, "main")}
    found |= {f"{of}: {who}": 100 * float(table[f"{of} {who}"].mean()) for of in ("own", "main") for who in ANSWERS}
    for scope, rows in zip(SCOPES, (right[right["class"] == chosen], right), strict=True):
        means = {f"{scope}: {name}": float(rows[name].mean()) for name in MEASURES[1:]}
        found |= {f"{scope}: images": len(rows)} | {name: value for name, value in means.items() if np.isfinite(value)}
    return found


def examples(right: pd.DataFrame, chosen: int, data: Dataset) -> list[Kept]:
    """Three images of the chosen class with maps of both networks, of the client that has most of them."""
    seen = right[[all(own.max() > 0 for own in maps) for maps in right["maps"]]]
    rows = next(rows for rows in (seen[seen["class"] == chosen], seen, right) if len(rows) or rows is right)
    rows = rows[rows["client"] == rows["client"].mode()[0]].head(3) if len(rows) else rows
    return [
        {
            "client": int(row["client"]),
            "class": data.classes[row["class"]],
            "shape": list(data.x.shape[1:]),
            "image": base64.b64encode(data.x[row["image"]].tobytes()).decode(),
            "maps": dict(zip(("theta", "s", "other"), (own.round(2).tolist() for own in row["maps"]), strict=True)),
        }
        for _, row in rows.iterrows()
    ]


def on_client(weights: Pair, two: Model, pixels: Images, test: np.ndarray, counts: np.ndarray) -> pd.DataFrame:
    """Predictions and maps of a client's networks, a row per test image; `counts` are its training samples by class."""
    nets = [deepcopy(network.net).eval() for network in two.networks]
    for net, own in zip(nets, weights, strict=True):
        net.load_state_dict(own)
    batch = pixels.batch(torch.from_numpy(test), two)
    with torch.no_grad():
        logits = [net(batch.x) for net in nets]
    maps = torch.stack([grad_cam(net, batch.x, batch.y) for net in nets])  # [2, n, h, w]
    other = torch.arange(len(test)).roll(1)  # another image of the same client
    large = F.interpolate(maps, batch.x.shape[2:], mode="bilinear") > 0.5  # [2, n, H, W]: over the whole image
    share = large.float().mean((2, 3))
    overlap = (large[0] & large[1]).sum((1, 2)) / (large[0] | large[1]).sum((1, 2))
    answers = {who: q.argmax(1) for who, q in zip(ANSWERS, (sum(logits), *logits), strict=True)}
    columns = {who: q == batch.y for who, q in answers.items()}
    columns |= {f"own {who}": torch.from_numpy(counts)[q] > 0 for who, q in answers.items()}
    columns |= {f"main {who}": q == counts.argmax() for who, q in {**answers, "": batch.y}.items()}
    columns |= {"class": batch.y, "overlap": overlap, "area theta": share[0], "area s": share[1]}
    columns |= {"correlation": pearson(*maps), "with another image": pearson(maps[0], maps[1, other])}
    for name, hidden in zip(MASKED, (large[0], large[1], large[1, other]), strict=True):
        with torch.no_grad():
            q = sum(net(batch.x.masked_fill(hidden[:, None], 0)) for net in nets)
        columns[name] = (q.argmax(1) == batch.y).float()
    table = pd.DataFrame({name.strip(): column.numpy() for name, column in columns.items()})
    three = torch.stack([maps[0], maps[1], maps[1, other]], 1).numpy()  # [n, 3, h, w]
    return table.assign(image=test, maps=list(three))


def grad_cam(net: nn.Sequential, x: Tensor, y: Tensor) -> Tensor:
    """Grad-CAM of the classes y [n] in the last convolution, after its ReLU: [n, h, w], the largest value 1."""
    a = net.conv2[:2](net.conv1(x)).detach().requires_grad_()
    q = net[2:](net.conv2[2:](a))
    (slope,) = torch.autograd.grad(q.gather(1, y[:, None]).sum(), a)
    maps = (slope.mean((2, 3), keepdim=True) * a.detach()).sum(1).relu()
    return maps / maps.amax((1, 2), keepdim=True).clamp(min=1e-12)


def pearson(a: Tensor, b: Tensor) -> Tensor:
    """Correlation of two maps, image by image, [n, h, w] twice -> [n]; NaN for a map without contrast."""
    a, b = (t.flatten(1) - t.flatten(1).mean(1, keepdim=True) for t in (a, b))
    return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))
