"""A second implementation of pFedHR's server for its oracle: cut, group, search, stitch, train without labels."""

import copy
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch.nn.functional as F
from oracle import drawing
from scipy.ndimage import map_coordinates
from torch import Tensor, nn


class Piece(NamedTuple):
    """A block: position in the pool, depth, operation type (0: convolution, 1: linear), input and output."""

    b: int
    h: int
    op: int
    head: bool
    net: nn.Sequential
    x: Tensor
    y: Tensor


def cut(pool, x):
    """Blocks of all networks: a convolution, or a flattening and a linear layer, with all that follows; no dropout."""
    pieces = []
    for b, net in enumerate(pool):
        blocks, z = [], x
        for layer in net.eval().modules():
            if list(layer.children()) or isinstance(layer, nn.Dropout | nn.Dropout2d):
                continue
            flattened = blocks and isinstance(blocks[-1][-1], nn.Flatten)
            if isinstance(layer, nn.Conv2d | nn.Flatten) or (isinstance(layer, nn.Linear) and not flattened):
                blocks.append([])
            blocks[-1].append(layer)
        for h, layers in enumerate(blocks, 1):
            block, before = nn.Sequential(*layers), z
            z = block(z).detach()
            pieces.append(Piece(b, h, int(z.dim() == 2), h == len(blocks), block, before, z))
    return pieces


def cka(a, b):
    a, b = (t.flatten(1).numpy() for t in (a, b))
    centre = np.eye(len(a)) - 1 / len(a)
    a, b = centre @ a @ a.T @ centre, centre @ b @ b.T @ centre
    return (a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum())


def medoids(d, k):
    """k groups of points: greedy seeds, then alternately nearest medoids and better medoids; ties keep the old one."""
    d, chosen = d - np.diag(d.diagonal()), []
    for _ in range(k):
        nearest = d[:, chosen].min(1, initial=np.inf)
        costs = [np.inf if j in chosen else np.minimum(nearest, d[:, j]).sum() for j in range(len(d))]
        chosen.append(int(np.argmin(costs)))
    while True:
        groups, before = [np.flatnonzero(d[:, chosen].argmin(1) == j) for j in range(k)], list(chosen)
        for j, own in enumerate(groups):
            totals = d[np.ix_(own, own)].sum(0)
            if totals.min() < d[own, chosen[j]].sum():
                chosen[j] = int(own[totals.argmin()])
        if chosen == before:
            return [own.tolist() for own in groups]


def search(pieces, groups, end_in_head):
    """Algorithm 1: for every seed, the next block, if any, from each group in turn."""
    found, size = [], 1 + max(p.b for p in pieces)
    for k, own in enumerate(groups):
        for seed in sorted(own, key=lambda i: (pieces[i].h, pieces[i].b)):
            chain, used = [seed], {k}
            for k2, others in enumerate(groups):
                last = pieces[chain[-1]]
                fit = [i for i in others if pieces[i].h > last.h and pieces[i].op >= last.op and not last.head]
                heads_first = end_in_head and k2 == len(groups) - 1
                rank = {i: (pieces[i].head != heads_first, pieces[i].h, (pieces[i].b - last.b - 1) % size) for i in fit}
                if fit:
                    chain.append(min(fit, key=rank.get))
                    used.add(k2)
            complete = {pieces[i].op for i in chain} == {0, 1} and len(used) == len(groups)
            if complete and not pieces[seed].head and chain not in [other for _, other in found]:
                found.append((k, chain))
    return found


def thinned(found, most):
    """As many candidates, from the groups in turn: first the first candidate of each, then the second, ..."""
    turns = [[k for k, _ in found[:i]].count(k) for i, (k, _) in enumerate(found)]
    kept = sorted(range(len(found)), key=lambda i: (turns[i], i))[:most]
    return [found[i][1] for i in sorted(kept)]


def stitched(chain, x, depth, relu):
    """The candidate: copies of blocks, new layers between those that are no neighbours, a new head if it has none."""
    layers, before, y = [], None, x
    for piece in chain:
        native = piece.h == 1 if before is None else (before.b, before.h + 1) == (piece.b, piece.h)
        if not native:
            size, n = tuple(y.shape[2:]), y.shape[1]
            if piece.op == 0:
                to, width = tuple(piece.x.shape[2:]), piece.x.shape[1]
                if to != size:
                    layers.append(nn.AdaptiveAvgPool2d(to) if to < size else nn.Upsample(to, mode="bilinear"))
            else:
                width = piece.x[0].numel()
                if y.dim() == 4:
                    layers += [nn.AdaptiveAvgPool2d(min(4, size[0])), nn.Flatten()]
                    n *= min(4, size[0]) ** 2
            for _ in range(depth):
                layers.append(nn.Conv2d(n, width, 1) if piece.op == 0 else nn.Linear(n, width))
                layers += [nn.ReLU()] * relu
                n = width
        layers.append(copy.deepcopy(piece.net))
        before, y = piece, piece.y
    if not before.head:
        layers.append(nn.Linear(y.shape[1], 4))
    return nn.Sequential(*layers).double()


def view(x, rng):
    """SimCLR's view of each image x [n, C, H, W] in [0, 1]: mirrored, cropped, other brightness, contrast, colours."""
    n, channels, height, width = x.shape
    jittered = rng.random(n) < 0.8
    area, ratio = rng.uniform(0.8, 1, n), np.exp(rng.uniform(-np.log(4 / 3), np.log(4 / 3), n))
    wide, high = np.minimum(np.sqrt(area * ratio), 1), np.minimum(np.sqrt(area / ratio), 1)
    left, top = rng.uniform(wide - 1, 1 - wide), rng.uniform(high - 1, 1 - high)  # of the middle, from -1 to 1
    mirrored = rng.random(n) < 0.5
    brightness, contrast, saturation = 1 + jittered * rng.uniform(-0.4, 0.4, (3, n))
    angle = 2 * np.pi * jittered * rng.uniform(-0.1, 0.1, n)
    grey = rng.random(n) < 0.2 if channels == 3 else np.zeros(n)
    yiq = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
    seen = np.empty_like(x)
    for i, image in enumerate(x):
        u, v = ((2 * np.arange(side) + 1) / side - 1 for side in (width, height))
        columns = ((left[i] + wide[i] * u * (-1 if mirrored[i] else 1) + 1) * width - 1) / 2
        rows = ((top[i] + high[i] * v + 1) * height - 1) / 2
        places = np.meshgrid(rows, columns, indexing="ij")
        image = np.stack([map_coordinates(channel, places, order=1, mode="nearest") for channel in image])
        image = np.minimum(image * brightness[i], 1)
        image = image.mean() + contrast[i] * (image - image.mean())
        if channels == 3:
            light, *colour = np.tensordot(yiq, image, 1)
            z = (colour[0] + 1j * colour[1]) * (0 if grey[i] else saturation[i]) * np.exp(-1j * angle[i])
            image = np.tensordot(np.linalg.inv(yiq), np.stack([light, z.real, z.imag]), 1)
        seen[i] = image.clip(0, 1)
    return seen


def nt_xent(z, temperature):
    """NT-Xent: cross-entropy of finding z_(i + n) as the partner of z_i among all others."""
    n, total = len(z) // 2, 0.0
    for i in range(2 * n):
        likeness = (F.cosine_similarity(z[i], z) / temperature).exp()
        total = total - (likeness[(i + n) % (2 * n)] / (likeness.sum() - likeness[i])).log()
    return total / (2 * n)


class Reassembled(NamedTuple):
    """Candidates found with as many groups as asked for; groups used; blocks (b, h) of those kept, and the networks."""

    found: int
    groups: int
    chains: list
    candidates: list[nn.Module]


def reassemble(pool, x, own: SimpleNamespace, *stream) -> Reassembled:
    """Section 3.1.2 with the hyper-parameters `own`: with one group less, and so on, while there is no candidate."""
    pieces, found = cut(pool, x), {}
    d = np.array([[1 / max(1e-8, cka(p.x, q.x) + cka(p.y, q.y)) for q in pieces] for p in pieces])
    for k in range(own.groups, 1, -1):
        groups = sorted(medoids(d, k), key=lambda group: (np.mean([pieces[i].h for i in group]), group))
        found[k] = search(pieces, groups, own.end_in_head)
        if found[k]:
            break
    chains, candidates = thinned(found[k], own.most), []
    for m, chain in enumerate(chains):
        with drawing(*stream, m, 0):
            candidates.append(stitched([pieces[i] for i in chain], x, own.stitch_depth, own.stitch_relu))
    places = [[(pieces[i].b, pieces[i].h) for i in chain] for chain in chains]
    return Reassembled(len(found[own.groups]), k, places, candidates)
