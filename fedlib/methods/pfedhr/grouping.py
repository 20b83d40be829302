"""Distances between blocks, and groups of functionally similar blocks (pFedHR, equations 3 and 4)."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedlib.extras import Late
from fedlib.similarity import cka_matrix
from fedlib.training.batches import to_device

kmedoids = Late("kmedoids")  # it imports scikit-learn
EPSILON = 1e-8  # lower bound of the sum of two CKA (reading A3)
ITERATIONS = 50


def block_distances(x: Tensor, answers: Sequence[Sequence[Tensor]]) -> np.ndarray:
    """Distances 1 / max(eps, CKA of inputs + CKA of outputs) of all pairs of blocks (eq. 3), float64 [n, n].

    They are at least 1/2, for equality up to rotation and scale. Blocks whose features do not vary over the images are
    far from all others. The input of a block is the output of the previous block of its network.
    """
    # images x [probes, C, H, W]; answers: the outputs [probes, ...] of the blocks of each network
    activations, pairs = [x], []  # pairs: positions of each block's input and output
    for network in answers:
        before = 0
        for answer in network:
            pairs.append((before, len(activations)))
            before = len(activations)
            activations.append(answer)
    cka = cka_matrix(activations).nan_to_num(0.0)
    inputs, outputs = (to_device(torch.tensor(positions), cka.device) for positions in zip(*pairs, strict=True))
    similarity = cka[inputs][:, inputs] + cka[outputs][:, outputs]
    return (1 / similarity.clamp(min=EPSILON)).cpu().numpy()


def group(distances: np.ndarray, order: Sequence[float], n_groups: int) -> list[list[int]]:
    """Group blocks by k-medoids (eq. 4); groups are in the order of the mean depth of their blocks.

    Medoids are seeded greedily; then blocks are assigned and medoids chosen in alternation, without randomness. A
    medoid is kept if no other block is better. A block is nearest to itself, so no group is empty.

    Example:
        >>> from fedlib.methods.pfedhr import group
        >>> distances = np.array([[0.5, 9.0, 0.6], [9.0, 0.5, 9.0], [0.6, 9.0, 0.5]])
        >>> group(distances, order=[2, 1, 2], n_groups=2)
        [[1], [0, 2]]
    """
    # distances [n, n], depths `order` [n] -> positions of the blocks of each group
    apart = distances - np.diag(np.diag(distances))  # 0 from a block to itself
    n = min(n_groups, len(apart))
    labels = kmedoids.alternating(apart, n, max_iter=ITERATIONS, init="build").labels
    groups = [np.flatnonzero(labels == j).tolist() for j in range(n)]
    return sorted(groups, key=lambda members: (np.mean([order[i] for i in members]), members))
