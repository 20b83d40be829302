"""FedAvg and FedPer in other libraries, on the same partition; each run has its own process with one thread."""

import copy
import importlib
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fedlib as fl
from fedlib.data import is_here
from fedlib.federation import Federation
from fedlib.tools.bench.cases import Rows, World, compared, flower_run, pictures, world_of

SETTING = dict(join_ratio=1.0, local_epochs=2, batch_size=32, lr=0.05)
METHODS = {"fedavg": "FedAvg", "fedper": "FedPer"}
Outcome = tuple[list[float], float]  # CPU seconds of the rounds, accuracy [%] over all test images


def proc_files(process: int, file: str) -> list[str]:
    """The contents of `/proc/<process>/<file>`, and of the same file of all child processes; Linux only."""
    try:
        text = Path(f"/proc/{process}/{file}").read_text()
        children = [(task / "children").read_text() for task in Path(f"/proc/{process}/task").iterdir()]
    except OSError:  # it has ended, or this is not Linux
        return []
    return [text] + [more for child in " ".join(children).split() for more in proc_files(int(child), file)]


def clock() -> float:
    """CPU seconds of this process and its child processes; other work on the machine hardly changes them."""
    ticks = [sum(map(int, text.rpartition(")")[2].split()[11:13])) for text in proc_files(os.getpid(), "stat")]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else time.process_time()


def partition() -> Federation:
    """10 clients with two classes and 320 training images (whole batches) each, from CIFAR-10 if it is available."""
    data = fl.load("cifar10") if is_here("cifar10") else pictures(6400)
    some = np.sort(np.random.default_rng(0).permutation(len(data))[:6400])
    return fl.federate(data.subset(some), fl.shards(2), clients=10, test_fraction=0.5)


def write(federation: Federation, folder: Path) -> None:
    """Write the partition for fedlib, FL-bench (`data/fedlib`) and PFLlib (`dataset/fedlib`)."""
    (folder / "federation.pkl").write_bytes(pickle.dumps((federation.data, federation.train, federation.test)))
    x, y = pixels(world_of(federation, "lenet5_plain"))
    lists = [{"train": a, "val": a[:0], "test": b} for a, b in zip(federation.train, federation.test, strict=True)]
    everyone = list(range(len(lists)))
    separation = {"train": everyone, "val": everyone, "test": everyone, "total": len(lists)}
    for name in ("data/fedlib", "dataset/fedlib/train", "dataset/fedlib/test", "system"):
        (folder / name).mkdir(parents=True)
    (folder / "data/fedlib/partition.pkl").write_bytes(pickle.dumps({"data_indices": lists, "separation": separation}))
    (folder / "data/fedlib/args.json").write_text(json.dumps({"split": "sample"}))
    for i, index in enumerate(lists):
        for part in ("train", "test"):
            own = {"x": x[index[part]].numpy(), "y": y[index[part]].numpy()}
            np.savez(folder / f"dataset/fedlib/{part}/{i}.npz", data=np.array(own, object))


@lru_cache
def world(folder: str) -> World:
    """The partition in a folder, and the initial network, once in every process."""
    data, train, test = pickle.loads((Path(folder) / "federation.pkl").read_bytes())
    return world_of(Federation(data, fl.iid(), train, test, 0.5, 0), "lenet5_plain")


def pixels(world: World) -> tuple[torch.Tensor, torch.Tensor]:
    """All images, normalised as fedlib does, and their labels."""
    _, images, _ = world
    return images.x.float() * images.scale + images.shift, images.y


def parts(net: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Feature extractor and classifier of a copy of the network."""
    base = copy.deepcopy(net)
    head, base.classifier = base.classifier, nn.Identity()
    return base, head


def accuracy(net: nn.Module, world: World) -> float:
    """Accuracy [%] of one model on the test images of all clients."""
    (x, y), index = pixels(world), np.concatenate(world[0].test)
    with torch.no_grad():
        return 100 * (net.eval()(x[index]).argmax(1) == y[index]).float().mean().item()


# -- one run of each library --------------------------------------------------------------------------------------


def ours(method: str, folder: str, checkout: Path, rounds: int) -> Outcome:
    """Run a method in fedlib."""
    setting, times = SETTING | dict(rounds=rounds, evaluate_every=rounds, device="cpu"), [clock()]
    progress: Any = lambda _: times.append(clock())  # noqa: E731
    with tempfile.TemporaryDirectory() as store:
        result = fl.run(method, world(folder)[0], "lenet5_plain", store=store, progress=progress, **setting)
    return np.diff(times[:rounds]).tolist(), result.score()  # without the last one, which has the evaluation


def fl_bench(method: str, folder: str, checkout: Path, rounds: int) -> Outcome:
    """Run a method in FL-bench: its server, with our partition, pixels and network."""
    sys.path.insert(0, str(checkout))
    base: Any = importlib.import_module("src.server.fedavg")
    made, seconds, theirs = world(folder), [], importlib.import_module(f"src.server.{method}")
    base.FLBENCH_ROOT = Path(folder)
    base.HydraConfig = SimpleNamespace(get=lambda: SimpleNamespace(runtime=SimpleNamespace(output_dir=folder)))

    class Server(getattr(theirs, f"{METHODS[method]}Server")):
        def init_model(self) -> None:
            net = base.DecoupledModel()
            net.base, net.classifier = parts(made[2])
            super().init_model(net)

        def get_dataset(self) -> Any:
            x, y = pixels(made)
            data = base.BaseDataset(torch.zeros(1), y, list(range(10)))  # it would scale the pixels
            data.data = x
            return data

        def train_one_round(self) -> None:
            start = clock()
            super().train_one_round()
            seconds.append(clock() - start)

    common = dict(join_ratio=1.0, global_epoch=rounds, local_epoch=SETTING["local_epochs"], verbose_gap=rounds + 1)
    common |= dict(batch_size=SETTING["batch_size"], client_side_evaluation=False, use_cuda=False, save_log=False)
    config = {"dataset": {"name": "fedlib"}, "common": common | {"test": {"client": {"interval": rounds}}}}
    arguments = base.DictConfig(config | {"optimizer": {"lr": SETTING["lr"]}})
    server = Server(importlib.import_module("src.utils.functional").parse_args(arguments, method, None))
    server.train()
    return seconds, server.test_results[rounds]["all_clients"]["before"]["test"].accuracy


def pfllib(method: str, folder: str, checkout: Path, rounds: int) -> Outcome:
    """Run a method in PFLlib, which reads the partition from files and carries out one round more than its setting."""
    sys.path.insert(0, str(checkout / "system"))
    os.chdir(Path(folder) / "system")
    net = world(folder)[2]
    if method == "fedper":
        net = importlib.import_module("flcore.trainmodel.models").BaseHeadSplit(*parts(net))
    theirs = importlib.import_module(f"flcore.servers.server{method.removeprefix('fed')}")
    theirs.time = SimpleNamespace(time=clock)
    given = dict(model=net, device="cpu", dataset="fedlib", num_classes=10, num_clients=10, algorithm=METHODS[method])
    given |= dict(join_ratio=1.0, local_learning_rate=SETTING["lr"], global_rounds=rounds, eval_gap=rounds)
    given |= {name: SETTING[name] for name in ("local_epochs", "batch_size")} | dict(time_threthold=1e9)
    given |= dict(save_folder_name="items", goal="bench", learning_rate_decay_gamma=1.0)
    zero = "random_join_ratio few_shot time_select top_cnt auto_break client_drop_rate train_slow_rate send_slow_rate "
    zero += "dlg_eval dlg_gap batch_num_per_client num_new_clients fine_tuning_epoch_new learning_rate_decay"
    server = getattr(theirs, METHODS[method])(SimpleNamespace(**dict.fromkeys(zero.split(), 0), **given), 0)
    server.train()
    return server.Budget[:rounds], 100 * server.rs_test_acc[-1]


def flower(method: str, folder: str, checkout: Path, rounds: int) -> Outcome:
    """Run FedAvg in Flower's simulation with one worker."""
    seconds, w = flower_run(rounds, partial(world, folder), SETTING, clock, num_cpus=1)
    net = world(folder)[2]
    net.load_state_dict(w)
    return seconds, accuracy(net, world(folder))


def blazefl(method: str, folder: str, checkout: Path, rounds: int) -> Outcome:
    """Run FedAvg in BlazeFL, one client after the other."""
    if (checkout / "src").is_dir():
        sys.path.insert(0, str(checkout / "src"))
    theirs: Any = importlib.import_module("blazefl.contrib")
    (federation, _, net), (x, y), seconds = world(folder), pixels(world(folder)), []

    def loader(type_: str, cid: int, batch_size: int, generator: torch.Generator) -> DataLoader:
        own = TensorDataset(x[federation.train[cid]], y[federation.train[cid]])
        return DataLoader(own, batch_size, shuffle=True, generator=generator)

    given = dict(model_selector=SimpleNamespace(select_model=lambda _: copy.deepcopy(net)), model_name="", seed=0)
    given |= dict(dataset=SimpleNamespace(get_dataloader=loader), num_clients=10, device="cpu")
    given |= dict(batch_size=SETTING["batch_size"])
    server = theirs.FedAvgBaseServerHandler(global_round=rounds, sample_ratio=1.0, **given)
    trainer = theirs.FedAvgBaseClientTrainer(epochs=SETTING["local_epochs"], lr=SETTING["lr"], **given)
    while not server.if_stop():
        start = clock()
        trainer.local_process(server.downlink_package(), server.sample_clients())
        for package in trainer.uplink_package():
            server.load(package)
        seconds.append(clock() - start)
    return seconds, accuracy(server.model, world(folder))


class Peer(NamedTuple):
    """A library: its run, the package or the folder of its checkout, and its methods."""

    run: Callable[[str, str, Path, int], Outcome]
    package: str
    folder: str
    methods: tuple[str, ...] = ("fedavg",)


PEERS = {
    "fedlib": Peer(ours, "fedlib", "", tuple(METHODS)),
    "FL-bench": Peer(fl_bench, "", "FL-bench", tuple(METHODS)),
    "PFLlib": Peer(pfllib, "", "PFLlib", tuple(METHODS)),
    "Flower": Peer(flower, "flwr", ""),
    "BlazeFL": Peer(blazefl, "blazefl", "blazefl"),
}


def main() -> None:
    """Run the peer that the command line names, and write its measurements."""
    peer, method, folder, checkout, rounds, result = sys.argv[1:]
    seconds, found = PEERS[peer].run(method, folder, Path(checkout), int(rounds))
    Path(result).write_text(json.dumps({"seconds": seconds, "accuracy": float(found)}))


# -- all of them in turns -----------------------------------------------------------------------------------------


def which(peer: Peer, checkouts: Path) -> str | None:
    """Commit of a checkout, or version of a package; None if there is neither."""
    checkout = checkouts / peer.folder
    if peer.folder and checkout.is_dir():
        command = ["git", "-C", str(checkout), "log", "-1", "--format=%h, %cs"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() if (checkout / ".git").exists() and not done.returncode else "unknown"
    if peer.package == "fedlib":
        return fl.__version__
    return version(peer.package) if peer.package and find_spec(peer.package) else None


def memory(process: int) -> float:
    """Memory [MiB] of a process and its child processes; shared memory counts in parts. Linux only."""
    found = [re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE) for text in proc_files(process, "smaps_rollup")]
    return sum(int(kib[1]) for kib in found if kib) / 2**10


def measured(peer: str, method: str, folder: str, checkouts: Path, rounds: int) -> dict[str, Any]:
    """Seconds, accuracy and peak memory of one run; `RuntimeError` with the last line of its error."""
    code, result = "from fedlib.tools.bench import peers; peers.main()", Path(folder) / "result.json"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "FLWR_TELEMETRY_ENABLED": "0"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    arguments = [peer, method, folder, str(checkouts.resolve() / PEERS[peer].folder), str(rounds), str(result)]
    peak = 0.0
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=said, stderr=said, env=environment)
        while process.poll() is None:
            peak = max(peak, memory(process.pid))
            time.sleep(0.3)
        said.seek(0)
        if process.returncode:
            raise RuntimeError(said.read().strip().rpartition("\n")[2])
    return json.loads(result.read_text()) | {"memory_mib": peak}


def compare(checkouts: Path, turns: int, rounds: int, left_out: dict[str, str]) -> Rows:
    """Rows of all available libraries that run; `left_out` gets the others, each with the reason."""
    outcomes: dict[tuple[str, str], list[dict[str, Any]]] = {}
    found = {name: which(peer, checkouts) for name, peer in PEERS.items()}
    left_out |= {name: "it was not found" for name, there in found.items() if there is None}
    with tempfile.TemporaryDirectory() as folder:
        write(federation := partition(), Path(folder))

        def work(peer: str, method: str) -> float:
            try:
                tried = outcomes.setdefault((peer, method), [])
                if peer not in left_out:  # first a short run, to see whether it runs at all
                    tried.append(measured(peer, method, folder, checkouts, rounds if tried else 3))
                    return float(np.median(tried[-1]["seconds"][1:]))  # without the first round, in which workers start
            except RuntimeError as error:
                left_out[peer] = str(error)
            return float("nan")

        for method, label in METHODS.items():
            works = {name: partial(work, name, method) for name, peer in PEERS.items() if method in peer.methods}
            lines = compared(works, turns, lambda work: work(), case=label, clients=federation.n_clients)
            for line in (line for line in lines if line["variant"] not in left_out):
                peer, n = line["variant"], SETTING["local_epochs"] * sum(map(len, federation.train))
                line |= {"version": found[peer], "s_per_round": line["seconds"], "samples_per_s": n / line["seconds"]}
                for name in ("memory_mib", "accuracy"):
                    line[name] = float(np.mean([run[name] for run in outcomes[peer, method][1:]]))
                yield line
