"""`python -m fedlib.bench`: how fast this machine trains LeNet5, the library against a bare PyTorch loop.

Both take the same SGD steps on the same batches with the same number of threads, in turn, in one process; the
ratio of each pair of turns is what counts, its median is what to quote.
"""

import argparse
import platform
import statistics
from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np
import torch
import torch.nn.functional as F

from fedlib.data import load
from fedlib.models import MODELS, Model, build
from fedlib.stack import repeat
from fedlib.training.batches import Images, client_batches, on_device
from fedlib.training.losses import cross_entropy
from fedlib.training.sgd import BACKENDS

LR, BATCH = 0.01, 32


def bare(model: Model, images: Images, batches: list[torch.Tensor], mean: torch.Tensor, std: torch.Tensor) -> None:
    """What anybody would write: a module, an optimiser, a loop."""
    for steps in batches:
        model.net.load_state_dict(model.weights, strict=False)
        model.net.train()
        sgd = torch.optim.SGD(model.net.parameters(), LR)
        for index in steps:
            x = (images.x[index].float() / 255 - mean) / std
            loss = F.cross_entropy(model.net(x), images.y[index])
            sgd.zero_grad()
            loss.backward()
            sgd.step()


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Time of one call: the thread's own on a CPU, where neighbours would disturb a wall clock; wall time on a GPU."""
    if device.type == "cpu" and torch.get_num_threads() == 1:
        start = process_time()
        work()
        return process_time() - start
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = perf_counter()
    work()
    wait()
    return perf_counter() - start


def main(arguments: list[str] | None = None) -> None:
    """Print one line per backend: samples per second, and the ratio to the bare loop (median, min, max)."""
    parser = argparse.ArgumentParser(prog="python -m fedlib.bench", description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="SGD steps per client and turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=["loop"])
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    data = load("digits")
    model = build("lenet5", MODELS["lenet5"], data.x.shape[1:], len(data.classes), seed=0)
    model = model._replace(weights={name: w.to(device) for name, w in model.weights.items()})
    model.net.to(device)
    images = on_device(data, device)
    mean, std = (torch.tensor(v, device=device)[:, None, None] for v in (data.mean, data.std))
    shares = np.array_split(np.arange(given.clients * given.steps * BATCH) % len(data), given.clients)
    batches = [client_batches(own, [0], BATCH, (i,)).to(device) for i, own in enumerate(shares)]
    start = repeat(model.weights, given.clients)
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine()
    print(f"LeNet5, {given.clients} clients x {given.steps} steps of {BATCH}; {name}, {given.threads} thread(s)")

    samples = given.clients * given.steps * BATCH
    for backend in given.backends:
        train = BACKENDS[backend]
        works = (
            lambda: bare(model, images, batches, mean, std),
            lambda train=train: train(model, images, cross_entropy, start, batches, (), model.trainable, LR),
        )
        turns = [[seconds(work, device) for work in works] for _ in range(given.turns + 1)][1:]  # first: warm-up
        ratios = sorted(plain / ours for plain, ours in turns)
        speeds = [samples / statistics.median(column) for column in zip(*turns, strict=True)]
        print(f"bare loop {speeds[0]:,.0f} samples/s; {backend} backend {speeds[1]:,.0f} samples/s")
        fastest = min(plain for plain, _ in turns) / min(ours for _, ours in turns)
        print(
            f"ratio {statistics.median(ratios):.2f} (median of {given.turns} turns, {ratios[0]:.2f} to "
            f"{ratios[-1]:.2f}); of the fastest turns {fastest:.2f}"
        )


if __name__ == "__main__":
    main()
