"""Candidate search (pFedHR, Algorithm 1, readings A6, A7, A10, A11): chains of blocks, a pure function of groups.

Rules: R1 the depth of a block in its network is larger than that of the block before it; R2 no convolution follows a
linear layer; R3 every operation type occurs; R4 every group contributes a block.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fedlib.methods.pfedhr.blocks import TYPES

Chain = tuple[int, ...]  # positions of blocks
SMALLEST = 2  # number of groups: with one, a chain could have two blocks at most


class Piece(NamedTuple):
    """The properties of a block that the search uses."""

    b: int  # position of its network in the pool
    h: int  # depth in this network, from 1
    op: int  # type of its operation, CONV or FC
    head: bool  # True if its outputs are logits


def chains(pieces: Sequence[Piece], groups: Sequence[Sequence[int]], end_in_head: bool = False) -> list[list[Chain]]:
    """Search candidates: for each group the chains of blocks that start in it and obey the rules R1 to R4.

    Every block except heads is a seed of at most one candidate. From the seed on, all groups are visited in order, also
    the group of the seed. Each contributes the shallowest block that R1 and R2 allow, if there is one; of equally
    shallow blocks, the one whose network comes next in the pool. A head ends a candidate and is taken only if no other
    block fits or, with `end_in_head`, if it fits and is in the last group. No candidate occurs twice.

    Example:
        >>> from fedlib.methods.pfedhr import CONV, FC, Piece, chains
        >>> pieces = [Piece(0, 1, CONV, False), Piece(0, 2, FC, True), Piece(1, 1, CONV, False), Piece(1, 2, FC, True)]
        >>> chains(pieces, groups=[[0, 2], [1, 3]])  # a convolution, then the head of the other network
        [[(0, 3), (2, 1)], []]
    """
    n_networks = 1 + max(piece.b for piece in pieces)
    candidates, known = [], set()
    for first, seeds in enumerate(groups):
        candidates.append([])
        for seed in sorted(seeds, key=lambda i: (pieces[i].h, pieces[i].b)):
            if pieces[seed].head:
                continue
            chain, used = [seed], {first}
            for k, group in enumerate(groups):
                last = pieces[chain[-1]]
                if last.head:
                    break
                deeper = [i for i in group if pieces[i].h > last.h and pieces[i].op >= last.op]  # R1, R2
                if end_in_head and k + 1 == len(groups):
                    deeper = [i for i in deeper if pieces[i].head] or deeper
                if deeper:
                    next_network = {i: (pieces[i].b - last.b - 1) % n_networks for i in deeper}
                    chain.append(min(deeper, key=lambda i: (pieces[i].head, pieces[i].h, next_network[i])))
                    used.add(k)
            complete = len({pieces[i].op for i in chain}) == len(TYPES) and len(used) == len(groups)  # R3, R4
            if complete and tuple(chain) not in known:
                known.add(tuple(chain))
                candidates[-1].append(tuple(chain))
    return candidates


def thinned(candidates: Sequence[Sequence[Chain]], most: int) -> list[Chain]:
    """Select at most `most` candidates from the groups in turn, in the order of `chains`."""
    ranked = sorted((turn, k) for k, group in enumerate(candidates) for turn in range(len(group)))[:most]
    return [candidates[k][turn] for k, turn in sorted((k, turn) for turn, k in ranked)]
