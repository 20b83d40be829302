"""Runs on an emulated GPU: `python fake_gpu.py LIBRARY STORE` prints as JSON what `test_fake_gpu` asserts.

PyTorch's fake tensors have shape, dtype and device but no numbers. Operations on the GPU are computed on them,
backward passes included; the host's part of a run is computed as always. So it shows which operation refuses tensors
of two devices, and where the host waits for the GPU. That needs PyTorch's CUDA build, the library made of `fake_gpu.c`,
loaded before it, and parts of PyTorch that may change.
"""

import ctypes
import json
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import test_gpu
import torch
from conftest import corners
from methods import FACTORIES
from phases import phase
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, grad, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

import fedlib as fl
from fedlib.engine import backends, fused, kernels, lockstep, program
from fedlib.engine.convolution import FORMS
from fedlib.engine.program import RESTS, Forms
from fedlib.engine.stacked import Stacked
from fedlib.models import MODELS, build
from fedlib.runs import run as running
from fedlib.runs import session, work
from fedlib.runs.prepare import prepare
from fedlib.tools.bench.cases import pictures
from fedlib.training.batches import to_device

SETTING = dict(rounds=2, local_epochs=2, batch_size=32, lr=0.05, tune_epochs=1, tune_every=2)
COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
ARCHITECTURES = [name for name in MODELS if not name.endswith(("_pretrained", "_thin"))]
REPLAYED = ("fedgh", "fedkemf")  # with groups of their own, and with public images
READS = {Tensor.cpu, Tensor.item, Tensor.tolist}

# What makes the host wait, and what does not: functions of a tensor [4] on the GPU.
WAITS = {
    "reads a number": lambda x: x.sum().item(),
    "reads an array": lambda x: x.to("cpu"),
    "asks for truth": lambda x: bool(x.any()),
    "makes a tensor there": lambda x: torch.tensor([1.0, 2.0], device=x.device),
    "sends an array": lambda x: torch.zeros(3).to(x.device),
    "sends it from pageable memory": lambda x: torch.zeros(3).to(x.device, non_blocking=True),
    "writes an array": lambda x: x.copy_(torch.zeros(4)),
    "chooses by a list": lambda x: x[[0, 1]],
    "chooses by an array": lambda x: x[np.array([0, 1])],
    "chooses by a tensor of the host": lambda x: x[torch.tensor([0, 1])],
    "chooses by a condition": lambda x: x[x > 0],
    "adds an array of the host": lambda x: x + torch.zeros(4),
}
GOES_ON = {
    "sends it from pinned memory": lambda x: to_device(torch.zeros(3), x.device),
    "fills": lambda x: torch.full((2,), 0.5, device=x.device).fill_(1.0),
    "computes with a number": lambda x: torch.where(x > 0, 2 * x[1:3].sum() + 1, x),
    "chooses by a tensor of the GPU": lambda x: x[to_device(torch.tensor([0, 1]), x.device)],
    "works on the host": lambda x: torch.arange(3).tolist(),
}


def on_gpu(value: Any) -> bool:
    """True for a tensor on the GPU, or the GPU's name."""
    if isinstance(value, Tensor):
        return value.is_cuda
    return isinstance(value, str | torch.device) and str(value).startswith("cuda")


def place(frames: Sequence[traceback.FrameSummary]) -> str:
    """The innermost line of the library."""
    own = [frame for frame in frames if "/fedlib/" in frame.filename]
    return f" at {own[-1].filename.rpartition('/fedlib/')[2]}:{own[-1].lineno}" if own else ""


class Watch(FakeTensorMode):
    """Computes on fake tensors, and notes what makes the host wait for the GPU.

    That is to read from there, and every operation there on an array of the host, unless it is a copy from pinned
    memory that need not be waited for. Single numbers are no arrays: they travel with the operation.
    """

    seen: list[str] | None = None  # where something is looked for
    strict = False  # what would be noted is an error
    busy = False  # with an operation that is made of others

    def note(self, what: str) -> None:
        if self.strict:
            raise RuntimeError(what)
        if self.seen is not None:
            self.seen.append(what + place(traceback.extract_stack()))

    @contextmanager
    def looking(self) -> Iterator[list[str]]:
        """Context in which notes go into this list only."""
        before, self.seen = self.seen, []
        try:
            yield self.seen
        finally:
            self.seen = before

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.busy:
            return super().__torch_dispatch__(func, types, args, kwargs)
        self.busy = True
        try:
            out = super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            self.busy = False
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        arrays = [t for t in given if not t.is_cuda and (t.dim() or func in COPIES)]
        if arrays and any(map(on_gpu, tree_leaves((given, out)))):
            goes_on = func in COPIES and (kwargs.get("non_blocking") or any(value is True for value in args))
            if not (goes_on and all(hasattr(t, "pinned") for t in arrays)):
                self.note(f"copies ({func.__name__})")
        return out


WATCH = Watch(allow_non_fake_inputs=True)


class Gpu(TorchFunctionMode):
    """Sends what has to do with the GPU to fake tensors.

    What the host reads back are zeros; of a matrix, numbers that differ, for a server that searches in it.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.__name__ == "__get__":  # of an attribute
            return func(*args)
        values = tree_leaves((args, kwargs))
        if func is Tensor.pin_memory:
            pinned = args[0].clone()
            pinned.pinned = True
            return pinned
        if func is Tensor.to and any(isinstance(v, str | torch.device) and str(v) == "cpu" for v in values):
            func, args, kwargs = Tensor.cpu, args[:1], {}
        if func in READS and args[0].is_cuda:
            WATCH.note("waits")
            n, shape = args[0].numel(), args[0].shape
            read = torch.linspace(0, 1, n) if len(shape) > 1 else torch.zeros(n)
            return func(read.view(shape).to(args[0].dtype))
        with WATCH if any(map(on_gpu, values)) else nullcontext():
            return func(*args, **kwargs)


def pretend(library: str) -> list[Any]:
    """From here on there is a GPU, in so far as fake tensors need one. The replay of a graph does nothing.

    Returns a list that grows by every graph.
    """
    torch._C._ensureCUDADeviceGuardSet()
    ctypes.CDLL(library).pretend(64)
    torch._C._select_conv_backend = lambda *_, **__: torch._C._ConvBackend.Cudnn
    torch.autograd.grad_mode.set_multithreading_enabled(False).__enter__()
    stream = SimpleNamespace(wait_stream=lambda _: None)
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None, elapsed_time=lambda _: 1.0)
    graphs = []

    def graph():
        graphs.append(SimpleNamespace(replay=lambda: None))
        return graphs[-1]

    for name, value in {
        "is_available": lambda: False,
        "get_device_name": lambda _: "a GPU that is not there",
        "get_rng_state": lambda _: None,
        "set_rng_state": lambda *_: None,
        "Event": lambda **_: event,
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda _: nullcontext(),
        "CUDAGraph": graph,
        "graph": lambda *_, **__: nullcontext(),
        "graph_pool_handle": lambda: None,
        "set_sync_debug_mode": lambda mode: setattr(WATCH, "strict", mode == "error"),
    }.items():
        setattr(torch.cuda, name, value)
    return graphs


def outcome(work: Callable[..., Any], *given: Any) -> Any:
    """The result of `work`, or its error in one line."""
    try:
        return work(*given)
    except Exception as error:
        where = place(traceback.extract_tb(error.__traceback__))
        return f"{type(error).__name__}{where}: {str(error).partition(chr(10))[0]}"


def bare_step() -> None:
    """Operations of PyTorch in a trace: derivatives of two clients' networks, without the library."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
    net[1].num_batches_tracked = None
    w, statistics = (
        {name: torch.zeros(2, *t.shape, device="cuda") for name, t in entries}
        for entries in (net.named_parameters(), net.named_buffers())
    )

    def loss(w, statistics, x):
        return functional_call(net, {**w, **{name: t.clone() for name, t in statistics.items()}}, x).sum()

    vmap(grad(loss))(w, statistics, torch.zeros(2, 4, 1, 6, 6, device="cuda"))


def noted(deed: Callable[[Tensor], Any]) -> list[str]:
    with WATCH.looking() as seen:
        deed(torch.zeros(4, device="cuda"))
    return seen


def step(architecture: str, form: str | Forms, graphs: bool = True) -> str:
    data = pictures(40)
    model = build(architecture, MODELS[architecture], data.x.shape[1:], len(data.classes), seed=0)
    Stacked(form, graphs)(phase(model, data, [np.arange(8)] * 3, device="cuda", dtype=torch.float32))
    return "a step"


def clients() -> fl.Federation:
    dealt = fl.federate(corners(120, seed=0), fl.dirichlet(alpha=0.5, min_size=12), clients=4, seed=1)
    return dealt.with_public(corners(40, seed=1))


def run(method: str, store: str, **changes: Any) -> list[str]:
    """Two rounds, an evaluation after each, fine-tuning at the end: what was noted inside of rounds."""
    algorithm, found = FACTORIES[method](), []
    model, setting = "lenet5+m1" if algorithm.mixed else "lenet5", SETTING | changes | {"device": "cuda"}
    plan = prepare(algorithm, clients(), model, **setting)

    def round(state, cohort):
        with WATCH.looking() as seen:
            state = algorithm.round(state, cohort)
        found.extend(f"{note} in round {cohort.round}" for note in seen)
        return state

    running.carry_out(plan._replace(algorithm=algorithm._replace(round=round)), None, False, store)
    return found


def together(method: str, store: str) -> dict[str, Any]:
    """Three seeds in lockstep: the notes of their training, and the number trained at a time."""
    notes, sizes, train, call = [], [], lockstep._train, lockstep._Run._call

    def watched(runs, *given):
        sizes.append(len(runs))
        with WATCH.looking() as seen:
            train(runs, *given)
        notes.extend(seen)

    def in_its_thread(run, function):
        with Gpu():
            call(run, function)

    lockstep._train, lockstep._Run._call = watched, in_its_thread
    setting = SETTING | {"batch_size": 8, "device": "cuda", "algorithm": method, "federation": clients()}
    try:
        work.run_task([setting | {"seed": seed} for seed in range(3)], store, [lambda _: None] * 3)
    finally:
        lockstep._train, lockstep._Run._call = train, call
    return {"notes": notes, "sizes": sizes}


def main(library: str, store: str) -> dict[str, Any]:
    graphs = outcome(pretend, library)
    if isinstance(graphs, str):
        return {"unusable": graphs}
    running.check_device = session.check_device = lambda _: None
    for name in ("fastest_forms", "fastest_rest"):  # they have to wait, once
        setattr(backends, name, WATCH.looking()(getattr(backends, name)))
    program.WARM_UP, backends.STEPS, backends.device_idle = 0, 1, lambda: None
    names = ["_direct", "_product", "_weights"], ["_batch", "_forward", "_backward", "_entropy", "_update"]
    for module, launched in zip((kernels, fused), names, strict=True):  # they write into memory that is not there
        for name in launched:
            setattr(module, name, defaultdict(lambda: lambda *_, **__: None))
    with Gpu():
        if (problem := outcome(bare_step)) is not None:
            return {"unusable": problem}
        found = {
            "waits": {name: outcome(noted, deed) for name, deed in WAITS.items()},
            "goes on": {name: outcome(noted, deed) for name, deed in GOES_ON.items()},
            "steps": {
                f"{name}, {form}": outcome(step, name, Forms(form, RESTS[(i + j) % len(RESTS)]))  # all pairs of two
                for (i, name), (j, form) in product(enumerate(ARCHITECTURES), enumerate(FORMS))
            },
        }
        graphs.clear()
        found["one by one"] = [outcome(step, "lenet5", "grouped", False), len(graphs)]
        found["as a graph"] = [outcome(step, "lenet5", "grouped", True), len(graphs)]
        found["measured"] = outcome(partial(run, batch_size=8), "fedavg", store)  # stacks that shrink
        backends.fastest_forms, backends.fastest_rest = lambda *_: "patches", lambda *_: "fused"
        found["runs"] = {method: outcome(run, method, store) for method in FACTORIES}
        found["together"] = {method: outcome(together, method, store) for method in ("fedavg", "fedrep")}
        replayed = test_gpu.test_a_round_is_replayed_and_never_waited_for
        found["replayed"] = {method: outcome(replayed, method, clients(), Path(store)) for method in REPLAYED}
        return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(*sys.argv[1:])))
