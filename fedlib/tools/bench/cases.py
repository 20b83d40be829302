"""The cases of the benchmark: local training, rounds, sweeps, and Flower's simulation."""

import copy
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedlib as fl
from fedlib.data import Dataset
from fedlib.engine.backends import fastest_forms, step_seconds
from fedlib.engine.convolution import FORMS, KERNELS
from fedlib.engine.loop import train_loop
from fedlib.engine.program import RESTS
from fedlib.engine.stacked import Stacked
from fedlib.federation import Federation
from fedlib.models import MODELS, build
from fedlib.models.pooling import MaxPool2
from fedlib.runs.determinism import deterministic
from fedlib.runs.prepare import prepare
from fedlib.runs.run import carry_out
from fedlib.runs.session import Session
from fedlib.runs.work import cores
from fedlib.stack import repeat
from fedlib.studies.timing import Work, in_turns, next_round, peak_memory, seconds, threads, wall_seconds
from fedlib.training.batches import Images, client_batches, on_device
from fedlib.training.losses import cross_entropy
from fedlib.training.phase import Phase, roles

SETTING = dict(join_ratio=0.5, local_epochs=2, batch_size=32, lr=0.01)  # for sweeps and for Flower's rounds
Rows = Iterator[dict[str, Any]]


def compared(works: Mapping[str, Work], turns: int, clock: Callable[[Work], float], **facts: Any) -> Rows:
    """Time functions in turns: a row for each, with its speed relative to the first (`ratio`: median over turns)."""
    taken, first = in_turns(works, turns, clock), next(iter(works))
    for name, own in taken.items():
        ratios = [reference / mine for mine, reference in zip(own, taken[first], strict=True)]
        ratio = {"ratio": median(ratios), "least": min(ratios), "most": max(ratios), "to": first}
        yield {"variant": name, **facts, "seconds": median(own), **ratio}


def new_runs(federation: Federation, rounds: int) -> Callable[[int], list[dict[str, Any]]]:
    """A function that gives n runs of FedAvg with seeds of their own, so that nothing is read from the store."""
    seeds, setting = itertools.count(), SETTING | dict(rounds=rounds, evaluate_every=rounds)
    return lambda n: [dict(algorithm="fedavg", federation=federation, seed=next(seeds), **setting) for _ in range(n)]


def pictures(n: int) -> Dataset:
    """Random images with the shape of those of CIFAR-10."""
    x = np.random.default_rng(0).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
    zeros = np.zeros(n, np.int64)
    return Dataset("noise", x, np.arange(n) % 10, tuple("0123456789"), zeros.astype(np.uint8), zeros, ("noise",))


def cohort_phase(k: int, steps: int, device: torch.device) -> Phase:
    """The training of k clients with LeNet5, `steps` steps of 32 images each."""
    data = pictures(2048)
    model = build("lenet5", MODELS["lenet5"], data.x.shape[1:], 10, seed=0)
    w = repeat({name: t.to(device) for name, t in model.weights.items()}, k)
    shares = [np.random.default_rng(i).permutation(2048)[: 32 * steps] for i in range(k)]
    batches = tuple(client_batches(share, [0], 32, (i,)) for i, share in enumerate(shares))
    return Phase(model, on_device(data, device), cross_entropy, w, batches, (), roles(w), 0.01, (0,))


def bare_loop(phase: Phase) -> nn.Module:
    """Train in plain PyTorch, with a module, an optimiser and a loop; returns the module of the last client."""
    images, device = phase.images, phase.images.y.device
    net = in_plain_pytorch(phase.model.net).to(device)
    for steps in phase.batches:
        net.load_state_dict({name: t[0] for name, t in phase.w.items()}, strict=False)
        sgd_steps(net, phase.lr, images, steps.to(device))
    return net


def sgd_steps(net: nn.Module, lr: float, images: Images, batches: Iterable[Tensor]) -> None:
    """Train a module by SGD, a step for each batch of image numbers."""
    net.train()
    sgd = torch.optim.SGD(net.parameters(), lr)
    for index in batches:
        x = images.x[index].float() * images.scale + images.shift
        sgd.zero_grad()
        F.cross_entropy(net(x), images.y[index]).backward()
        sgd.step()


def in_plain_pytorch(net: nn.Module) -> nn.Module:
    """A copy of a module with PyTorch's pooling instead of fedlib's."""
    net = copy.deepcopy(net)
    for path, layer in list(net.named_modules()):
        if isinstance(layer, MaxPool2):
            net.set_submodule(path, nn.MaxPool2d(2))
    return net


TRAINERS = {"bare loop": lambda: bare_loop, "loop": lambda: train_loop}
TRAINERS |= {f"stacked, {form}": partial(Stacked, form) for form in FORMS}


def train_once(variant: str, k: int, steps: int, device: str) -> None:
    """Train one cohort with one variant, in a separate process."""
    TRAINERS[variant]()(cohort_phase(k, steps, torch.device(device)))


def training(device: torch.device, turns: int, steps: int) -> Rows:
    """Samples per second of the backends, relative to a bare PyTorch loop, by size of the cohort."""
    for k in (10, 50):
        phase = cohort_phase(k, steps, device)
        left_out = {f"stacked, {form}" for form in KERNELS} if device.type == "cpu" else set()
        if device.type == "cpu" and k > 10:
            left_out.add("stacked, patches")  # five times slower than the others
        trainers = {name: make() for name, make in TRAINERS.items() if name not in left_out}
        works = {name: partial(train, phase) for name, train in trainers.items()}
        for line in compared(works, turns, partial(seconds, device=device), case="training", cohort=k):
            memory = peak_memory(train_once, line["variant"], k, steps, device.type)
            yield line | {"samples_per_s": k * steps * 32 / line["seconds"], "memory_mib": memory}


def steps(device: torch.device, turns: int) -> Rows:
    """Seconds of 1,000 steps on a GPU by form: of all convolutions, or the best of each, and of the rest of a step."""
    if device.type != "cuda":
        return
    with deterministic(device.type):  # as in a run
        for k in (10, 50):
            phase = cohort_phase(k, 1, device)
            layers = dict(zip(FORMS, FORMS, strict=True)) | {"best": fastest_forms(phase, k, graphs=True)}
            works = {
                f"{name}, {rest}": partial(step_seconds, phase, k, form, True, rest)
                for (name, form), rest in itertools.product(layers.items(), RESTS)
            }
            yield from compared(works, turns, lambda work: 1000 * work(), case="1000 steps", cohort=k)


def a_round(method: fl.Algorithm, n_clients: int, cohort: int) -> Work:
    """A function that runs a round at each call: 5 local epochs of 30 images per client; clients may share images."""
    data = pictures(6000)
    shares = np.random.default_rng(0).integers(0, len(data), (n_clients, 60))
    crowd = Federation(data, fl.iid(), tuple(shares[:, :30]), tuple(shares[:, 30:]), 0.5, 0)
    return next_round(Session(prepare(method, crowd, rounds=1000, join_ratio=cohort / n_clients, local_epochs=5)))


METHODS = {"FedAvg": fl.fedavg, "pFedSim": lambda: fl.pfedsim(generalization=0)}


def two_rounds(name: str, n_clients: int, cohort: int) -> None:
    """Run two rounds, in a separate process: the first round of pFedSim's second phase makes all personal models."""
    work = a_round(METHODS[name](), n_clients, cohort)
    work()
    work()


def rounds(device: torch.device, turns: int) -> Rows:
    """Seconds per round by number of clients and size of the cohort, for FedAvg and pFedSim."""
    sizes = [(100, 10), (1000, 10), (3597, 10), (10_000, 10), (1000, 50)]  # 3,597: FEMNIST's clients
    for name, method in METHODS.items():
        works = {f"{name}, {n} clients, cohort {k}": a_round(method(), n, k) for n, k in sizes}
        lines = compared(works, turns, partial(seconds, device=device), case="round")
        for (n, k), line in zip(sizes, lines, strict=True):
            line |= {"clients": n, "cohort": k, "s_per_round": line["seconds"]}
            yield line | {"memory_mib": peak_memory(two_rounds, name, n, k)}


def sweeps(device: torch.device, turns: int) -> Rows:
    """Four runs: one after the other with all cores, and as a sweep (on a CPU one per core, on a GPU in one stack)."""
    runs = new_runs(fl.federate(pictures(6000), fl.iid(), clients=20), 4)
    with tempfile.TemporaryDirectory() as store:

        def one_by_one() -> None:
            with threads(cores()):
                for plan in [prepare(**cell) for cell in runs(4)]:
                    carry_out(plan, None, False, store)

        def sweep() -> None:
            fl.sweep(runs(4), progress=False, store=store)

        works = {f"one by one, {cores()} threads": one_by_one, f"sweep, {cores()} workers": sweep}
        if device.type == "cuda":
            one = partial(fl.run, progress=False, store=store)
            works = {"one by one": lambda: [one(**cell) for cell in runs(4)], "one stack": sweep}
        yield from compared(works, turns, partial(wall_seconds, device=device), case="four runs", clients=20, cohort=10)


def flower_federation() -> Federation:
    """20 clients with 150 training images each."""
    return fl.federate(pictures(6000), fl.iid(), clients=20, test_fraction=0.5)


def flower(device: torch.device, turns: int, rounds: int = 6) -> Rows:
    """Seconds per round of FedAvg in Flower's simulation, with a worker on each core, and in fedlib."""
    # The first round is not counted. In fedlib a run uses one core, a sweep all of them. Without Flower nothing is
    # measured: `pip install "flwr[simulation]"`.
    if device.type != "cpu" or find_spec("flwr") is None or find_spec("ray") is None:
        return
    runs = new_runs(flower_federation(), rounds)

    def theirs() -> float:
        code = f"from fedlib.tools.bench.cases import flower_run; print(flower_run({rounds})[0])"  # it starts Ray
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Flower's simulation has failed:\n{done.stderr}")
        return float(np.mean(json.loads(done.stdout.splitlines()[-1])[1:]))

    with tempfile.TemporaryDirectory() as store:

        def ours() -> float:
            [run] = runs(1)
            return float(carry_out(prepare(**run), None, False, store).rounds["seconds"].iloc[1:].mean())

        def side_by_side() -> float:
            results = fl.sweep(runs(cores()), progress=False, store=store).results
            return float(np.mean([result.rounds["seconds"].iloc[1:].mean() for result in results])) / cores()

        works = {f"Flower's simulation, {cores()} workers": theirs, "fl.run, one core": ours}
        works[f"fl.sweep of {cores()} runs, per run"] = side_by_side
        for line in compared(works, turns, lambda work: work(), case="FedAvg round", clients=20, cohort=10):
            yield line | {"s_per_round": line["seconds"]}


World = tuple[Federation, Images, nn.Module]


def world_of(federation: Federation, model: str) -> World:
    """A federation, its images on the CPU, and a network with the initial weights of seed 0."""
    torch.set_num_threads(1)
    made = build(model, MODELS[model], federation.data.x.shape[1:], len(federation.data.classes), seed=0)
    return federation, on_device(federation.data, torch.device("cpu")), in_plain_pytorch(made.net)


@lru_cache
def flower_world() -> World:
    """The world of Flower's simulation, once in every process."""
    return world_of(flower_federation(), "lenet5")


def flower_trained(
    client: int, w: dict[str, Tensor], world: Callable[[], World] = flower_world, setting: dict[str, Any] = SETTING
) -> tuple[dict[str, Tensor], int]:
    """A client's weights after its local epochs, as in a usual Flower client, and its number of samples."""
    federation, images, net = world()
    net.load_state_dict(w, strict=False)
    own = torch.from_numpy(federation.train[client])
    for _ in range(setting["local_epochs"]):
        batches = own[torch.randperm(len(own))].split(setting["batch_size"])
        sgd_steps(net, setting["lr"], images, batches)
    return net.state_dict(), len(own)


def flower_run(
    rounds: int,
    world: Callable[[], World] = flower_world,
    setting: dict[str, Any] = SETTING,
    clock: Callable[[], float] = time.perf_counter,
    **init: Any,
) -> tuple[list[float], dict[str, Tensor]]:
    """Run FedAvg with Flower's simulation: the seconds of the rounds, and the final weights. `init` is for Ray."""
    # The seconds of the first round include the start of the workers.
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server, times, finished, final = ClientApp(), ServerApp(), [], {}, {}

    @client.train()
    def train(message: Any, context: Any) -> Any:
        w = message.content["arrays"].to_torch_state_dict()
        w, n = flower_trained(int(context.node_config["partition-id"]), w, world, setting)
        content = RecordDict({"arrays": ArrayRecord(w), "metrics": MetricRecord({"num-examples": n})})
        return Message(content=content, reply_to=message)

    @server.main()
    def main(grid: Any, context: Any) -> None:
        def at(done: int, arrays: Any) -> None:
            times.append(clock())

        share, n = setting["join_ratio"], world()[0].n_clients
        strategy = FedAvg(share, 0.0, min_train_nodes=round(share * n), min_available_nodes=n)
        found = strategy.start(grid, ArrayRecord(world()[2].state_dict()), num_rounds=rounds, evaluate_fn=at)
        finished.update(found.train_metrics_clientapp)
        final.update(found.arrays.to_torch_state_dict())

    here = {"address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False, **init}
    backend = {"init_args": here, "client_resources": {"num_cpus": 1}}
    run_simulation(server, client, world()[0].n_clients, backend_config=backend)
    if len(finished) < rounds:
        raise RuntimeError("clients of Flower's simulation have failed; their messages are above.")
    return [b - a for a, b in itertools.pairwise(times)], final
