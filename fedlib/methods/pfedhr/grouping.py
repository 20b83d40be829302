"""How far apart two blocks are, and which do the same (pFedHR, equations 3 and 4)."""

from collections.abc import Sequence

import kmedoids
import numpy as np
import torch
from torch import Tensor

from fedlib.similarity import cka_matrix
from fedlib.training.batches import to_device

EPSILON = 1e-8  # of CKA; below it a sum of two counts as this (reading A3)
ITERATIONS = 50


def block_distances(x: Tensor, answers: Sequence[Sequence[Tensor]]) -> np.ndarray:
    """1 / max(eps, CKA of the inputs + CKA of the outputs) for all pairs of blocks: float64 [n, n].

    `answers` holds for each network what its blocks, one after the other, answer to the images x [probes, C, H, W].
    A block's input is the answer of the one before it. Distances are 1/2 (the same up to rotation and scale) or more;
    features that do not vary over the probes are like none, far away.
    """
    seen, places = [x], []  # activations, and where in them a block has its input and its output
    for network in answers:
        before = 0
        for answer in network:
            places.append((before, len(seen)))
            before = len(seen)
            seen.append(answer)
    cka = cka_matrix(seen).nan_to_num(0.0)
    inputs, outputs = (to_device(torch.tensor(place), cka.device) for place in zip(*places, strict=True))
    alike = cka[inputs][:, inputs] + cka[outputs][:, outputs]
    return (1 / alike.clamp(min=EPSILON)).cpu().numpy()


def group(distances: np.ndarray, order: Sequence[float], n_groups: int) -> list[list[int]]:
    """k-medoids (eq. 4): min(n_groups, n) groups of positions, numbered by the mean `order` of their members.

    `order` [n] is how deep each block lies. Greedy seeding, then assignment and medoids by turns, where a medoid stays
    that is as good as any; nothing is drawn at random. A block is nearest to itself, so no group is empty.
    """
    own = distances - np.diag(np.diag(distances))
    n = min(n_groups, len(own))
    labels = kmedoids.alternating(own, n, max_iter=ITERATIONS, init="build").labels
    groups = [np.flatnonzero(labels == j).tolist() for j in range(n)]
    return sorted(groups, key=lambda members: (np.mean([order[i] for i in members]), members))
