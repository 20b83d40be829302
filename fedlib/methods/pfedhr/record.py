"""Log of the server's reassemblies, round by round, as tensors in the state of a run."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.methods.pfedhr.blocks import decompose
from fedlib.methods.pfedhr.reassemble import Pool, Reassembly
from fedlib.methods.pfedhr.stitch import added
from fedlib.models import Model
from fedlib.stack import Params
from fedlib.training.batches import to_device

NOTHING = -1  # in place of a missing client, network, block, group or candidate
FILLED = {"distance": math.inf, "similarity": -math.inf}  # padding other than NOTHING


def record(
    tried: Reassembly,
    pool: Pool,
    architectures: Sequence[Model],
    most: int,
    clients: Tensor,
    similarity: Tensor,
    match: Sequence[int],
    right: Tensor,
) -> Params:
    """Tensors of one round, with the same shapes for the same number of clients.

    clients [k]; network [k], the architecture of each network in the pool, by number; group [k, blocks] of each block;
    distance [k, blocks, k, blocks] of each pair of blocks, else infinite; found [], the number of candidates with the
    wanted number of groups; used [], the final number of groups; chain [most, blocks, 2], the blocks (network in the
    pool, h) of the candidates; added [most], the parameter counts of their stitches; size [most], of all their layers;
    similarity [k, most]; match [k], the candidate of each client; right [k], the accuracy of a teacher on its client's
    training images, else -1. `blocks` is the number of blocks of the deepest architecture.
    """
    k, blocks = len(clients), max(len(decompose(model)) for model in architectures)
    network, group, distance = _nothing(k), _nothing(k, blocks), np.full((k, blocks, k, blocks), np.inf, np.float32)
    names = [model.name for model in architectures]
    network[: len(pool)] = [names.index(model.name) for model, _ in pool]
    b, h = np.array([(piece.b, piece.h - 1) for piece in tried.pieces]).T
    distance[b[:, None], h[:, None], b, h] = tried.distances
    for j, members in enumerate(tried.groups):
        group[b[members], h[members]] = j
    chain, (added_, size) = _nothing(most, blocks, 2), _nothing(2, most)
    for m, (positions, candidate) in enumerate(zip(tried.chains, tried.candidates, strict=True)):
        chain[m, : len(positions)] = [(tried.pieces[i].b, tried.pieces[i].h) for i in positions]
        added_[m], size[m] = added(candidate), sum(candidate.weights[name].numel() for name in candidate.trainable)
    row = {"network": network, "group": group, "distance": distance, "chain": chain, "added": added_, "size": size}
    row |= {"found": np.array(tried.found), "used": np.array(len(tried.groups)), "match": np.array(match)}
    row = {name: to_device(torch.from_numpy(t), clients.device) for name, t in row.items()}
    row |= {"clients": clients, "right": right}
    return row | {"similarity": F.pad(similarity, (0, most - similarity.shape[1]), value=-torch.inf)}


def _nothing(*shape: int) -> np.ndarray:
    return np.full(shape, NOTHING)


def appended(log: Params, row: Params) -> Params:
    """Append a round [...] to a log [rounds, ...]; shorter rows are padded if the number of clients differs."""
    longer = {}
    for name, t in row.items():
        parts = (log[name], t[None]) if log else (t[None],)
        shape = [max(sizes) for sizes in zip(*(values.shape[1:] for values in parts), strict=True)]
        longer[name] = torch.cat([_filled(values, shape, FILLED.get(name, NOTHING)) for values in parts])
    return longer


def _filled(values: Tensor, shape: Sequence[int], value: float) -> Tensor:
    """`values` [rounds, ...], padded to [rounds, *shape]."""
    missing = [most - n for n, most in zip(values.shape[1:], shape, strict=True)]
    return F.pad(values, [end for n in reversed(missing) for end in (0, n)], value=value)


class Round(NamedTuple):
    """One round of a log. A link is (network in the pool, h), as in `record`."""

    clients: list[int]
    networks: list[int]  # the architecture of each network in the pool, by number
    group: dict[tuple[int, int], int]  # of every link
    distance: np.ndarray  # float32 [n, n], of the links in `group`, in that order
    found: int
    candidates: list[list[tuple[int, int]]]
    similarity: np.ndarray  # float [k, candidates]
    match: list[int]  # NOTHING if there was no candidate
    right: list[float]  # accuracy of the teacher on the client's training images; -1 without one


def replay(log: Params, t: int) -> Round:
    """Read round `t`, from 0, from the log of a run."""
    row = {name: values[t].cpu().numpy() for name, values in log.items()}
    clients = [i for i in row["clients"].tolist() if i != NOTHING]
    k = len(clients)
    links = [(b, h + 1) for b, h in np.argwhere(row["group"] != NOTHING).tolist()]
    b, h = np.array([(b, h - 1) for b, h in links]).T
    chains = [[tuple(link) for link in chain.tolist() if link[0] != NOTHING] for chain in row["chain"]]
    candidates = [chain for chain in chains if chain]
    return Round(
        clients=clients,
        networks=[n for n in row["network"].tolist() if n != NOTHING],
        group=dict(zip(links, row["group"][b, h].tolist(), strict=True)),
        distance=row["distance"][b[:, None], h[:, None], b, h],
        found=int(row["found"]),
        candidates=candidates,
        similarity=row["similarity"][:k, : len(candidates)],
        match=row["match"][:k].tolist(),
        right=row["right"][:k].tolist(),
    )
