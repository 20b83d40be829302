"""Similarity of clients by labels, classifiers, updates, losses, BatchNorm statistics or features.

Pure functions. Arguments may be tensors or NumPy arrays; results are tensors, float64 by default.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fedlib.checks import check_choice, check_number
from fedlib.extras import Late

stats = Late("scipy.stats")
Array = Tensor | np.ndarray
EPSILON = 1e-8  # pFedSim, below equation (3)
KINDS = ("per_class", "log_of_mean", "mean_cos")


def data_similarity(labels_i: Array, labels_j: Array) -> float:
    """Compute the share of the pooled samples of two clients that belong to common classes.

    Args:
        labels_i: labels of one client, [N_i].
        labels_j: labels of the other client, [N_j].

    Returns:
        The share: 1 for clients with the same classes, 0 for clients without a common class.

    Raises:
        ValueError: a client has no labels.

    Source:
        pFedSim, equation (1); the union is that of multisets.

    Example:
        >>> from fedlib.similarity import data_similarity
        >>> data_similarity(np.array([0, 0, 1]), np.array([1]))
        0.5
    """
    labels_i, labels_j = np.asarray(labels_i).ravel(), np.asarray(labels_j).ravel()
    if not labels_i.size or not labels_j.size:
        raise ValueError(f"data_similarity needs labels of both clients; got {labels_i.size} and {labels_j.size}.")
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
    """Compute linear CKA, centred kernel alignment, of all pairs of activations.

    Features are flattened and centred per column. Their widths may differ, because N x N Gram matrices are compared.

    Args:
        activations: n activations [N, ...] of the same N inputs, N >= 2.

    Returns:
        Symmetric matrix [n, n] with entries in [0, 1], float64; NaN for features that do not vary over the inputs.
        Gram matrices have the type of their activations: convert small types, in which a mean is rounded, to float64.

    Raises:
        ValueError: there are fewer than 2 inputs, or the activations have different numbers of inputs.

    Source:
        Kornblith et al., ICML 2019.

    Example:
        >>> from fedlib.similarity import cka_matrix
        >>> x = torch.tensor([[0.0], [1.0], [2.0]])
        >>> y = torch.tensor([[1.0], [-2.0], [1.0]])  # uncorrelated with x
        >>> cka_matrix([x, -2 * x, y]).round(decimals=4).abs()
        tensor([[1., 1., 0.],
                [1., 1., 0.],
                [0., 0., 1.]], dtype=torch.float64)
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
    """Compute linear CKA of two activations; see `cka_matrix`.

    Args:
        x: activations [N, ...] of N inputs.
        y: activations [N, ...] of the same inputs.

    Returns:
        CKA in [0, 1]; 1 for features that are equal up to rotation and scale.

    Raises:
        ValueError: there are fewer than 2 inputs, or the activations have different numbers of inputs.

    Source:
        Kornblith et al., ICML 2019.

    Example:
        >>> from fedlib.similarity import linear_cka
        >>> x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 5.0]])
        >>> round(linear_cka(x, 3 * x.flip(1)), 4)
        1.0
    """
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
    """Compute, for every class, the cosine of its rows in two classifiers.

    Args:
        phi_i: weight of one classifier, [classes, features].
        phi_j: weight of the other one, of the same shape.

    Returns:
        Cosines [classes].

    Raises:
        ValueError: a weight does not have 2 dimensions.

    Source:
        pFedSim, Fig. 2.

    Example:
        >>> from fedlib.similarity import row_cosines
        >>> row_cosines(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[3.0, 0.0], [1.0, 0.0]]))
        tensor([1.0000, 0.0000], dtype=torch.float64)
    """
    return _stacked_cosines(torch.stack([torch.as_tensor(phi_i), torch.as_tensor(phi_j)]))[0, 1]


def classifier_similarity(weights: Array) -> Tensor:
    """Compute CS, the mean over classes of the row cosines, for all pairs of classifiers.

    Args:
        weights: weights of k classifiers, [k, classes, features].

    Returns:
        Symmetric matrix [k, k] with entries in [-1, 1].

    Raises:
        ValueError: `weights` does not have 3 dimensions.

    Source:
        pFedSim, equation (2).

    Example:
        >>> from fedlib.similarity import classifier_similarity
        >>> phi = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> classifier_similarity(torch.stack([phi, -phi])).round(decimals=4)
        tensor([[ 1., -1.],
                [-1.,  1.]], dtype=torch.float64)
    """
    return _stacked_cosines(weights).mean(-1)


def similarity_matrix(weights: Array, kind: str = "per_class", cap: float = 1e-4) -> Tensor:
    """Compute the aggregation weights of pFedSim for all pairs of classifiers.

    Args:
        weights: weights of k classifiers, [k, classes, features].
        kind: "per_class": -log(1 - cosine), averaged over classes, with negative cosines set to 0; "log_of_mean": the
            mean cosine inside the logarithm; "mean_cos": only the mean cosine. Negative means are set to 0.
        cap: lower bound of 1 - cosine, in (0, 1).

    Returns:
        Symmetric matrix [k, k]; its diagonal is -log(cap), or 1 for "mean_cos".

    Raises:
        ValueError: `weights` does not have 3 dimensions, or `kind` or `cap` is not allowed.

    Source:
        pFedSim, equation (3).

    Example:
        >>> from fedlib.similarity import similarity_matrix
        >>> phi = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> similarity_matrix(torch.stack([phi, -phi]), cap=0.01).round(decimals=2).abs()
        tensor([[4.6100, 0.0000],
                [0.0000, 4.6100]], dtype=torch.float64)
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
    """Parameters as one vector, in the order of `like`, which must have the same names."""
    if params.keys() != like.keys():
        raise ValueError(f"the models differ in these parameters: {', '.join(sorted(params.keys() ^ like.keys()))}.")
    _check_shapes(params, like)
    return torch.cat([torch.as_tensor(params[name]).double().flatten() for name in like])


def _check_shapes(params: Mapping[str, Array], like: Mapping[str, Array]) -> None:
    """Raise `ValueError` unless the parameters have the shapes of `like`."""
    for name, other in like.items():
        if np.shape(params[name]) != np.shape(other):
            shapes = f"{tuple(np.shape(params[name]))} and {tuple(np.shape(other))}"
            raise ValueError(f"the models differ in the shape of {name}: {shapes}.")


def update_cosine(theta_i: Mapping[str, Array], theta_j: Mapping[str, Array], theta_0: Mapping[str, Array]) -> float:
    """Compute MDB, the cosine of two clients' updates from their common start.

    Args:
        theta_i: trainable parameters of one client by name.
        theta_j: parameters of the other client.
        theta_0: parameters of the common start.

    Returns:
        Cosine in [-1, 1].

    Raises:
        ValueError: the parameters have different names.

    Example:
        >>> from fedlib.similarity import update_cosine
        >>> start, theta = {"w": torch.zeros(2)}, {"w": torch.tensor([1.0, 1.0])}
        >>> round(update_cosine(theta, {"w": torch.tensor([2.0, 0.0])}, start), 4)
        0.7071
    """
    start = _flat(theta_0, theta_0)
    return float(torch.cosine_similarity(_flat(theta_i, theta_0) - start, _flat(theta_j, theta_0) - start, dim=0))


def parameter_distance(theta_i: Mapping[str, Array], theta_j: Mapping[str, Array]) -> float:
    """Compute the Euclidean distance of two models.

    Args:
        theta_i: parameters of one model by name.
        theta_j: parameters of the other model.

    Returns:
        The distance over all parameters.

    Raises:
        ValueError: the parameters have different names.

    Example:
        >>> from fedlib.similarity import parameter_distance
        >>> parameter_distance({"w": torch.tensor([3.0, 0.0])}, {"w": torch.tensor([0.0, 4.0])})
        5.0
    """
    return float((_flat(theta_i, theta_i) - _flat(theta_j, theta_i)).norm())


def ldb(loss_i_on_i: float, loss_j_on_i: float, distance: float) -> float:
    """Compute LDB: the decrease of client i's loss from model i to model j, divided by the distance of the models.

    Args:
        loss_i_on_i: loss of model i on the data of client i.
        loss_j_on_i: loss of model j on the same data.
        distance: `parameter_distance(theta_i, theta_j)`, positive.

    Returns:
        The loss difference per unit of distance; positive if model j is better.

    Raises:
        ValueError: `distance` is not positive.

    Source:
        FedFomo, Zhang et al., ICLR 2021.

    Example:
        >>> from fedlib.similarity import ldb
        >>> ldb(loss_i_on_i=2.0, loss_j_on_i=1.0, distance=4.0)
        0.25
    """
    check_number("distance", distance, 0, open_low=True)
    return (loss_i_on_i - loss_j_on_i) / distance


def bn_statistics(buffers: Mapping[str, Array]) -> dict[str, tuple[Tensor, Tensor]]:
    """Extract the running mean and standard deviation of every BatchNorm layer.

    Args:
        buffers: tensors by name, such as a state dict; only `*.running_mean` and `*.running_var`, [..., C], are read.

    Returns:
        Mean and standard deviation, [..., C] each, by the name of the layer.

    Example:
        >>> from fedlib.similarity import bn_statistics
        >>> bn_statistics({"bn.running_mean": torch.zeros(2), "bn.running_var": torch.full((2,), 4.0)})
        {'bn': (tensor([0., 0.]), tensor([2., 2.]))}
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
    """Compute the distance between the BatchNorm statistics of all pairs of clients.

    The distance is a sum over layers of 2-Wasserstein distances of Gaussians with independent channels.

    Args:
        statistics: mean and standard deviation, [k, C] each, by the name of the layer; see `bn_statistics`.

    Returns:
        Symmetric matrix [k, k].

    Raises:
        ValueError: there is no layer.

    Source:
        FedAP, Lu et al., 2022.

    Example:
        >>> from fedlib.similarity import bn_distances
        >>> mean, std = torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0], [5.0]])
        >>> bn_distances({"bn": (mean, std)})
        tensor([[0., 5.],
                [5., 0.]], dtype=torch.float64)
    """
    if not statistics:
        raise ValueError("bn_distances needs the statistics of at least one BatchNorm layer; got none.")
    exact = "donot_use_mm_for_euclid_dist"
    pairs = [torch.cat([torch.as_tensor(s).double() for s in layer], -1) for layer in statistics.values()]
    return torch.stack([torch.cdist(layer, layer, compute_mode=exact) for layer in pairs]).sum(0)


def bn_distance(bn_i: Mapping[str, tuple[Array, Array]], bn_j: Mapping[str, tuple[Array, Array]]) -> float:
    """Compute the distance between the BatchNorm statistics of two clients; see `bn_distances`.

    Args:
        bn_i: mean and standard deviation, [C] each, by the name of the layer.
        bn_j: mean and standard deviation of the other client.

    Returns:
        The distance.

    Raises:
        ValueError: the layers have different names, or there are none.

    Example:
        >>> from fedlib.similarity import bn_distance
        >>> zero, one = torch.zeros(1), torch.ones(1)
        >>> bn_distance({"bn": (3 * one, one)}, {"bn": (zero, 5 * one)})
        5.0
    """
    if bn_i.keys() != bn_j.keys():
        raise ValueError(f"clients differ in these BatchNorm layers: {', '.join(sorted(bn_i.keys() ^ bn_j.keys()))}.")

    def both(name: str, moment: int) -> Tensor:  # [2, C]
        return torch.stack([torch.as_tensor(bn[name][moment]) for bn in (bn_i, bn_j)])

    return float(bn_distances({name: (both(name, 0), both(name, 1)) for name in bn_i})[0, 1])


def wdb(bn_i: Mapping[str, tuple[Array, Array]], bn_j: Mapping[str, tuple[Array, Array]]) -> float:
    """Compute WDB, 1 / `bn_distance`.

    Args:
        bn_i: mean and standard deviation, [C] each, by the name of the layer.
        bn_j: mean and standard deviation of the other client.

    Returns:
        The inverse distance; infinite for equal statistics.

    Raises:
        ValueError: the layers have different names, or there are none.

    Example:
        >>> from fedlib.similarity import wdb
        >>> zero, one = torch.zeros(1), torch.ones(1)
        >>> wdb({"bn": (3 * one, one)}, {"bn": (zero, 5 * one)})
        0.2
    """
    distance = bn_distance(bn_i, bn_j)
    return 1 / distance if distance > 0 else math.inf


def agreement(values: Sequence[float], reference: Sequence[float]) -> tuple[float, float]:
    """Compute Kendall's tau-b and Pearson's r of two lists of numbers.

    Args:
        values: at least 2 numbers.
        reference: as many numbers as `values`.

    Returns:
        Tau and r, in [-1, 1] each; NaN if a list is constant.

    Raises:
        ValueError: the lists have different lengths or fewer than 2 numbers.

    Example:
        >>> from fedlib.similarity import agreement
        >>> tau, r = agreement([1, 2, 3], [10, 20, 60])
        >>> round(tau, 2), round(r, 2)
        (1.0, 0.94)
    """
    x, y = np.asarray(values, float), np.asarray(reference, float)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2:
        raise ValueError(f"agreement needs two lists of equal length >= 2; got shapes {x.shape} and {y.shape}.")
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan, math.nan
    tau, r = stats.kendalltau(x, y), stats.pearsonr(x, y)
    return float(tau.statistic), float(r.statistic)
