"""How alike two clients are: by their labels, classifiers, updates, losses, BatchNorm statistics or features.

Pure functions. Arguments may be tensors or NumPy arrays; results are tensors (float64 unless said otherwise).
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from fedlib.checks import check_choice, check_number

Array = Tensor | np.ndarray
EPSILON = 1e-8  # pFedSim, below equation (3)
KINDS = ("per_class", "log_of_mean", "mean_cos")


def data_similarity(labels_i: Array, labels_j: Array) -> float:
    """Share of the pooled samples of two clients whose class both clients own (pFedSim, equation (1)).

    The union is that of multisets: every sample counts. 1 = the same classes, 0 = none shared.
    """
    labels_i, labels_j = np.asarray(labels_i).ravel(), np.asarray(labels_j).ravel()
    if not labels_i.size or not labels_j.size:
        raise ValueError(
            f"data_similarity needs labels of both clients; got {labels_i.size} and {labels_j.size} of them."
        )
    shared = np.isin(labels_i, labels_j).sum() + np.isin(labels_j, labels_i).sum()
    return float(shared / (labels_i.size + labels_j.size))


def _gram(x: Array) -> Tensor:
    """Gram matrix of centred features with Frobenius norm 1: [N, ...] -> [N, N], in the dtype of `x`."""
    x = torch.as_tensor(x).flatten(1)  # [N, features]
    x = x if x.is_floating_point() else x.double()
    x = x - x.mean(0)
    gram = x @ x.T
    return gram / gram.norm()


def cka_matrix(activations: Sequence[Array]) -> Tensor:
    """Linear CKA of all pairs: n activations `[N, ...]` of the same N inputs -> `[n, n]`, entries in [0, 1].

    Features are flattened and centred per column; widths may differ, as the N x N Gram form is used
    (Kornblith et al., ICML 2019). NaN where features do not vary over the inputs.
    """
    sizes = [len(x) for x in activations]
    if len(set(sizes)) != 1 or sizes[0] < 2:
        raise ValueError(f"CKA needs at least 2 inputs, the same for all activations; got {sizes} inputs.")
    grams = [_gram(x) for x in activations]
    matrix = torch.ones(len(grams), len(grams), dtype=torch.float64, device=grams[0].device)
    for i, a in enumerate(grams):
        for j, b in enumerate(grams[: i + 1]):
            matrix[i, j] = matrix[j, i] = (a * b).sum().clamp(0, 1)
    return matrix


def linear_cka(x: Array, y: Array) -> float:
    """Linear CKA of two activations `[N, ...]`; 1 for features equal up to rotation and scale."""
    return float(cka_matrix([x, y])[0, 1])


def _stacked_cosines(weights: Array) -> Tensor:
    """Cosines of equal rows for all pairs of clients: [k, classes, p] -> [k, k, classes]."""
    weights = torch.as_tensor(weights).double()
    if weights.ndim != 3:
        raise ValueError(f"weights has shape {tuple(weights.shape)}; it must be [clients, classes, features].")
    norms = weights.norm(dim=-1)
    dots = torch.einsum("icp,jcp->ijc", weights, weights)
    dots = (dots + dots.transpose(0, 1)) / 2  # exactly symmetric
    return dots / (norms[:, None] * norms[None] + EPSILON)


def row_cosines(phi_i: Array, phi_j: Array) -> Tensor:
    """Cosine of each class's two rows (pFedSim, Fig. 2): twice `[classes, p]` -> `[classes]`."""
    return _stacked_cosines(torch.stack([torch.as_tensor(phi_i), torch.as_tensor(phi_j)]))[0, 1]


def classifier_similarity(weights: Array) -> Tensor:
    """CS: signed mean over classes of row cosines (pFedSim, equation (2)): `[k, classes, p]` -> `[k, k]`."""
    return _stacked_cosines(weights).mean(-1)


def similarity_matrix(weights: Array, kind: str = "per_class", cap: float = 1e-4) -> Tensor:
    """Aggregation weights of pFedSim (equation (3)) from stacked classifiers: `[k, classes, p]` -> `[k, k]`.

    `kind="per_class"`: minus log(1 - cosine), averaged over classes, negative cosines set to 0;
    `"log_of_mean"`: the mean cosine inside the logarithm; `"mean_cos"`: the mean cosine, no logarithm.
    Negative means become 0. `cap` is the least 1 - cosine; the diagonal is -log(cap), for `"mean_cos"` 1.
    """
    check_choice("kind", kind, KINDS)
    check_number("cap", cap, 0, 1, open_low=True, open_high=True)
    cosines = _stacked_cosines(weights)
    mean = cosines.mean(-1).clamp(min=0)
    if kind == "mean_cos":
        matrix, diagonal = mean.clamp(max=1), 1.0
    else:
        distance = 1 - (cosines.clamp(min=0) if kind == "per_class" else mean[..., None])
        matrix, diagonal = -distance.clamp(min=cap).log().mean(-1), -math.log(cap)
    return matrix.fill_diagonal_(diagonal)


def _flat(params: Mapping[str, Array], like: Mapping[str, Array]) -> Tensor:
    """All parameters as one vector, in the order of `like`, which must have the same names."""
    if params.keys() != like.keys():
        raise ValueError(f"models differ in these parameters: {', '.join(sorted(params.keys() ^ like.keys()))}.")
    return torch.cat([torch.as_tensor(params[name]).double().flatten() for name in like])


def update_cosine(theta_i: Mapping[str, Array], theta_j: Mapping[str, Array], theta_0: Mapping[str, Array]) -> float:
    """MDB: cosine of two clients' updates from their common start; pass trainable parameters only."""
    start = _flat(theta_0, theta_0)
    return float(torch.cosine_similarity(_flat(theta_i, theta_0) - start, _flat(theta_j, theta_0) - start, dim=0))


def parameter_distance(theta_i: Mapping[str, Array], theta_j: Mapping[str, Array]) -> float:
    """Euclidean distance of two models over all the parameters given."""
    return float((_flat(theta_i, theta_i) - _flat(theta_j, theta_i)).norm())


def ldb(loss_i_on_i: float, loss_j_on_i: float, distance: float) -> float:
    """LDB: how much lower model j's loss is than model i's on client i's data, per unit of model distance.

    The weight of FedFomo (Zhang et al., ICLR 2021); `distance` > 0 is `parameter_distance(theta_i, theta_j)`.
    """
    check_number("distance", distance, 0, open_low=True)
    return (loss_i_on_i - loss_j_on_i) / distance


def bn_statistics(buffers: Mapping[str, Array]) -> dict[str, tuple[Tensor, Tensor]]:
    """Running mean and standard deviation of every BatchNorm layer: layer name -> two tensors `[..., C]`.

    `buffers` may be a whole state dict; only `*.running_mean` and `*.running_var` are read.
    """
    layers = [name.removesuffix("running_mean") for name in buffers if name.endswith("running_mean")]
    return {
        layer.removesuffix("."): (
            torch.as_tensor(buffers[layer + "running_mean"]),
            torch.as_tensor(buffers[layer + "running_var"]).sqrt(),
        )
        for layer in layers
    }


def bn_distances(statistics: Mapping[str, tuple[Array, Array]]) -> Tensor:
    """Wasserstein distances between all clients: layer -> (mean `[k, C]`, std `[k, C]`) gives `[k, k]`.

    Per layer the 2-Wasserstein distance of Gaussians with independent channels, summed over layers (FedAP).
    """
    if not statistics:
        raise ValueError("bn_distances needs the statistics of at least one BatchNorm layer; got none.")
    exact = "donot_use_mm_for_euclid_dist"
    pairs = [torch.cat([torch.as_tensor(s).double() for s in layer], -1) for layer in statistics.values()]
    return torch.stack([torch.cdist(layer, layer, compute_mode=exact) for layer in pairs]).sum(0)


def bn_distance(bn_i: Mapping[str, tuple[Array, Array]], bn_j: Mapping[str, tuple[Array, Array]]) -> float:
    """Wasserstein distance of two clients' BatchNorm statistics: layer -> (mean `[C]`, std `[C]`), twice."""
    if bn_i.keys() != bn_j.keys():
        raise ValueError(f"clients differ in these BatchNorm layers: {', '.join(sorted(bn_i.keys() ^ bn_j.keys()))}.")
    pairs = {name: zip(bn_i[name], bn_j[name], strict=True) for name in bn_i}
    stacked = {
        name: tuple(torch.stack([torch.as_tensor(a), torch.as_tensor(b)]) for a, b in pair)
        for name, pair in pairs.items()
    }
    return float(bn_distances(stacked)[0, 1])


def wdb(bn_i: Mapping[str, tuple[Array, Array]], bn_j: Mapping[str, tuple[Array, Array]]) -> float:
    """WDB: 1 / `bn_distance`; infinite for equal statistics."""
    distance = bn_distance(bn_i, bn_j)
    return 1 / distance if distance > 0 else math.inf


def agreement(values: Sequence[float], reference: Sequence[float]) -> tuple[float, float]:
    """Kendall's tau (b) and Pearson's r of two lists of 2 or more numbers; NaN where one list is constant."""
    values, reference = np.asarray(values, float), np.asarray(reference, float)
    if values.ndim != 1 or values.shape != reference.shape or len(values) < 2:
        raise ValueError(
            f"agreement needs two lists of one length >= 2; got shapes {values.shape} and {reference.shape}."
        )
    if np.ptp(values) == 0 or np.ptp(reference) == 0:
        return math.nan, math.nan
    tau, r = stats.kendalltau(values, reference), stats.pearsonr(values, reference)
    return float(tau.statistic), float(r.statistic)
