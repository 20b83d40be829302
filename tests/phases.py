"""A local phase made by hand, for tests that look inside a backend."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from fedlib.stack import repeat
from fedlib.streams import Stream
from fedlib.training.batches import client_batches, on_device
from fedlib.training.cohort import TRAIN
from fedlib.training.losses import cross_entropy
from fedlib.training.phase import Phase, roles


def phase(model, data, shares, *context, loss=cross_entropy, device="cpu", dtype=torch.float64, epochs=1, batch_size=8):
    """Clients with the images `shares` of `data` start from the weights of `model`, at a rate of 0.05."""
    weights = tree_map(lambda t: t.to(device, dtype), model.weights)
    return Phase(
        model=model,
        images=on_device(data, torch.device(device), dtype),
        loss=loss,
        w=repeat(weights, len(shares)),
        batches=tuple(client_batches(own, range(epochs), batch_size, (0, i)) for i, own in enumerate(shares)),
        context=context,
        roles=roles(weights),
        lr=0.05,
        stream=(0,),
    )


def batches_of(t: int, i: int, name: str = "local") -> Stream:
    """The stream of client i's mini-batches in round t of a run with seed 0."""
    return 0, TRAIN, t, "batches", int(i), name


class Operations(TorchDispatchMode):
    """Counts the operations that are more than another view of a tensor, or memory for one."""

    n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        free = ("empty", "new_empty", "detach", "_unsafe_view")
        self.n += not func.is_view and func.__name__.partition(".")[0] not in free
        return func(*args, **(kwargs or {}))
