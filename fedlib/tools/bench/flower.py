"""FedAvg as users of Flower write it, to be compared with `fl.run`; in a process of its own, since it starts Ray."""

import time
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedlib.federation import Federation
from fedlib.models import MODELS, build
from fedlib.tools.bench.cases import SETTING, in_plain_pytorch, shared_out
from fedlib.training.batches import Images, on_device


@lru_cache
def world() -> tuple[Federation, Images, nn.Module]:
    """Who owns what, the images, and the network, once in every process."""
    torch.set_num_threads(1)
    federation = shared_out()
    model = build("lenet5", MODELS["lenet5"], federation.data.x.shape[1:], len(federation.data.classes), seed=0)
    return federation, on_device(federation.data, torch.device("cpu")), in_plain_pytorch(model.net)


def trained(client: int, w: dict[str, Tensor]) -> tuple[dict[str, Tensor], int]:
    """A client's weights after its local epochs, and on how many samples it has trained."""
    federation, images, net = world()
    net.load_state_dict(w, strict=False)
    net.train()
    sgd, own = torch.optim.SGD(net.parameters(), SETTING["lr"]), torch.from_numpy(federation.train[client])
    for _ in range(SETTING["local_epochs"]):
        for index in own[torch.randperm(len(own))].split(SETTING["batch_size"]):
            x = images.x[index].float() * images.scale + images.shift
            sgd.zero_grad()
            F.cross_entropy(net(x), images.y[index]).backward()
            sgd.step()
    return net.state_dict(), len(own)


def seconds_of_rounds(rounds: int) -> list[float]:
    """Run FedAvg with Flower's simulation; the first round includes the start of its workers."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server, times, finished = ClientApp(), ServerApp(), [], {}

    @client.train()
    def train(message: Any, context: Any) -> Any:
        w, n = trained(int(context.node_config["partition-id"]), message.content["arrays"].to_torch_state_dict())
        content = RecordDict({"arrays": ArrayRecord(w), "metrics": MetricRecord({"num-examples": n})})
        return Message(content=content, reply_to=message)

    @server.main()
    def main(grid: Any, context: Any) -> None:
        def clock(done: int, arrays: Any) -> None:
            times.append(time.perf_counter())

        share, n = SETTING["join_ratio"], world()[0].n_clients
        strategy = FedAvg(share, 0.0, min_train_nodes=round(share * n), min_available_nodes=n)
        found = strategy.start(grid, ArrayRecord(world()[2].state_dict()), num_rounds=rounds, evaluate_fn=clock)
        finished.update(found.train_metrics_clientapp)

    here = {"address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False}
    backend = {"init_args": here, "client_resources": {"num_cpus": 1}}
    run_simulation(server, client, world()[0].n_clients, backend_config=backend)
    if len(finished) < rounds:
        raise RuntimeError("clients of Flower's simulation have failed; what they say stands above.")
    return [b - a for a, b in pairwise(times)]
