"""What the server tried, round by round, as tensors that lie in the state of a run."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib.reassembly.reassemble import Reassembly
from fedlib.reassembly.stitch import added
from fedlib.stack import Params
from fedlib.training.batches import to_device

NOTHING = -1  # where there is no network, block, group or candidate


def record(
    tried: Reassembly, networks: Sequence[int], blocks: int, most: int, length: int, clients: Tensor, answer: Params
) -> Params:
    """One round: its tensors have the same shapes in every round.

    clients [k]; network [k], the architecture of each network in the pool, by number; group [k, blocks] of each block;
    distance [k, blocks, k, blocks], else infinite; found [] candidates with as many groups as asked for; used []
    groups in the end; chain [most, length, 2], the blocks (network in the pool, h) of the candidates that were kept;
    added and size [most], the parameters of their stitches and all they have; and `answer`: similarity [k, most],
    match [k].
    """
    k, shape = len(clients), (len(clients), blocks)
    network, group = np.full(k, NOTHING), np.full(shape, NOTHING)
    distance, chain = np.full((*shape, *shape), np.inf, np.float32), np.full((most, length, 2), NOTHING)
    sizes = np.full((2, most), NOTHING)
    network[: len(networks)] = networks
    place = [(piece.b, piece.h - 1) for piece in tried.pieces]
    for j, members in enumerate(tried.groups):
        for i in members:
            group[place[i]] = j
    b, h = np.array(place).T
    distance[b[:, None], h[:, None], b, h] = tried.distances
    for m, (own, candidate) in enumerate(zip(tried.chains, tried.candidates, strict=True)):
        chain[m, : len(own)] = [(tried.pieces[i].b, tried.pieces[i].h) for i in own]
        sizes[:, m] = added(candidate), sum(candidate.weights[name].numel() for name in candidate.trainable)
    row = {
        "network": network,
        "group": group,
        "distance": distance,
        "chain": chain,
        "added": sizes[0],
        "size": sizes[1],
    }
    row |= {"found": np.array(tried.found), "used": np.array(len(tried.groups))}
    there = {name: to_device(torch.from_numpy(t), clients.device) for name, t in row.items()}
    return {"clients": clients} | there | answer


def appended(log: Params, row: Params) -> Params:
    """`log` [rounds, ...] with one more round."""
    return {name: torch.cat([log[name], t[None]]) if log else t[None].clone() for name, t in row.items()}


class Round(NamedTuple):
    """What was tried in one round, read from a log. A link is (network in the pool, h), as in `record`."""

    clients: list[int]
    networks: list[int]  # the architecture of each network in the pool, by number
    group: dict[tuple[int, int], int]  # of every link
    distance: np.ndarray  # float32 [n, n], of the links in `group`, in that order
    found: int
    candidates: list[list[tuple[int, int]]]
    similarity: np.ndarray  # float [k, candidates]
    match: list[int]  # NOTHING if there was no candidate


def replay(log: Params, t: int) -> Round:
    """Round t of a log, the first is 0."""
    row = {name: values[t].cpu().numpy() for name, values in log.items()}
    links = [(b, h + 1) for b, h in np.argwhere(row["group"] != NOTHING).tolist()]
    b, h = np.array([(b, h - 1) for b, h in links]).T
    chains = [[tuple(link) for link in chain.tolist() if link[0] != NOTHING] for chain in row["chain"]]
    candidates = [chain for chain in chains if chain]
    return Round(
        clients=row["clients"].tolist(),
        networks=[n for n in row["network"].tolist() if n != NOTHING],
        group=dict(zip(links, row["group"][b, h].tolist(), strict=True)),
        distance=row["distance"][b[:, None], h[:, None], b, h],
        found=int(row["found"]),
        candidates=candidates,
        similarity=row["similarity"][:, : len(candidates)],
        match=row["match"].tolist(),
    )
