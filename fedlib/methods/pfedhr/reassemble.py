"""The server's reassembly (pFedHR, Algorithm 1): from a pool of networks to stitched candidates."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fedlib.methods.pfedhr.blocks import decompose, outputs
from fedlib.methods.pfedhr.grouping import block_distances, group
from fedlib.methods.pfedhr.search import SMALLEST, Chain, Piece, chains, thinned
from fedlib.methods.pfedhr.stitch import Link, assemble
from fedlib.models import Model
from fedlib.stack import Params
from fedlib.streams import Stream


class Network(NamedTuple):
    """An architecture with the weights of one client, or their mean over clients."""

    model: Model
    w: Params  # [...]


Pool = Sequence[Network]


class Reassembly(NamedTuple):
    """The blocks of a pool of networks, their groups and the stitched candidates."""

    pieces: list[Piece]  # all n blocks of the pool
    distances: np.ndarray  # between them, float64 [n, n]
    found: int  # number of candidates with `n_groups` groups; if it is 0, there are fewer `groups`
    groups: list[list[int]]  # positions of the blocks of each group
    chains: list[Chain]  # blocks of each selected candidate, by position
    candidates: list[Model]  # these candidates, stitched


def reassemble(
    pool: Pool,
    x: Tensor,
    n_groups: int,
    most: int,
    depth: int,
    stream: Stream,
    relu: bool = True,
    end_in_head: bool = False,
) -> Reassembly:
    """Cut the networks of a pool into blocks, group the blocks by function, and stitch at most `most` candidates."""
    # If `n_groups` groups give no candidate, one group fewer is tried, and so on down to two.
    taken = {model.name: decompose(model) for model, _ in pool}
    links = [Link(b, block) for b, (model, _) in enumerate(pool) for block in taken[model.name]]
    pieces = [Piece(b, block.h, block.op, block.head) for b, block in links]
    distances = block_distances(x, [outputs(taken[model.name], w, x) for model, w in pool])

    first, selected = None, []
    for k in range(n_groups, SMALLEST - 1, -1):
        groups = group(distances, [piece.h for piece in pieces], k)
        by_seed = chains(pieces, groups, end_in_head)
        selected = thinned(by_seed, most)
        first = sum(map(len, by_seed)) if first is None else first
        if selected:
            break

    weights = [w for _, w in pool]
    like = pool[0].model
    candidates = [
        assemble([links[i] for i in chain], weights, like, depth, (*stream, "candidate", m), relu)
        for m, chain in enumerate(selected)
    ]
    return Reassembly(pieces, distances, first, groups, selected, candidates)
