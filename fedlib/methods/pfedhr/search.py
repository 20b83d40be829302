"""Candidate search (pFedHR, Algorithm 1, readings A6, A7, A10, A11): chains of blocks, a pure function of groups.

Rules: R1 a block lies deeper in its own network than the one before it in its; R2 no convolution follows a linear
layer; R3 every operation type occurs; R4 every group is drawn from.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fedlib.methods.pfedhr.blocks import TYPES

Chain = tuple[int, ...]  # positions of blocks
SMALLEST = 2  # number of groups: with one, a chain could have two blocks at most


class Piece(NamedTuple):
    """A block as the search sees it: place `b` of its network in the pool, depth `h` there, operation type, head."""

    b: int
    h: int
    op: int
    head: bool


def chains(pieces: Sequence[Piece], groups: Sequence[Sequence[int]], end_in_head: bool = False) -> list[list[Chain]]:
    """For every group the candidates that start in it, in the order in which they are found; no chain comes twice.

    A seed gives one candidate at most: the groups are visited in their order, also its own once more, and each gives
    the shallowest block that R1 and R2 allow, if there is one; ties go to the network that comes next in the pool. A
    head closes a candidate, starts none, and is taken only where nothing else fits; with `end_in_head` the last group
    gives a head wherever one fits.
    """
    n_networks = 1 + max(piece.b for piece in pieces)
    found, known = [], set()
    for own, group in enumerate(groups):
        found.append([])
        for seed in sorted(group, key=lambda i: (pieces[i].h, pieces[i].b)):
            if pieces[seed].head:
                continue
            chain, used = [seed], {own}
            for k, others in enumerate(groups):
                last = pieces[chain[-1]]
                if last.head:
                    break
                deeper = [i for i in others if pieces[i].h > last.h and pieces[i].op >= last.op]  # R1, R2
                if end_in_head and k + 1 == len(groups):
                    deeper = [i for i in deeper if pieces[i].head] or deeper
                if deeper:
                    chain.append(min(deeper, key=lambda i: _preference(pieces[i], last, n_networks)))
                    used.add(k)
            complete = len({pieces[i].op for i in chain}) == len(TYPES) and len(used) == len(groups)  # R3, R4
            if complete and tuple(chain) not in known:
                known.add(tuple(chain))
                found[-1].append(tuple(chain))
    return found


def _preference(piece: Piece, last: Piece, n_networks: int) -> tuple:
    return piece.head, piece.h, (piece.b - last.b - 1) % n_networks


def thinned(found: Sequence[Sequence[Chain]], most: int) -> list[Chain]:
    """At most `most` of the candidates, taken from the groups by turns; they stay in the order of `chains`."""
    ranked = sorted((turn, k) for k, own in enumerate(found) for turn in range(len(own)))[:most]
    return [found[k][turn] for k, turn in sorted((k, turn) for turn, k in ranked)]
