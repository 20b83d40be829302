"""Client metrics besides accuracy: weighted F1 and weighted one-vs-rest AUC (FedCS, section 5).

Averages over the classes of a client have weights n_c / N. F1, and AUC with smoothing=0, equal scikit-learn's
`f1_score` and `roc_auc_score` with average="weighted" where these are defined, and are much faster.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedlib.extras import Late

stats = Late("scipy.stats")
METRICS = ("f1", "auc")


def weighted_f1(y: np.ndarray, prediction: np.ndarray) -> float:
    """F1 sum_c n_c/N 2 TP_c / (2 TP_c + FP_c + FN_c), in [0, 1], for labels and predictions int [N]."""
    n_classes = max(y.max(), prediction.max()) + 1
    n, predicted, right = (np.bincount(v, minlength=n_classes) for v in (y, prediction, y[y == prediction]))
    return float((n * 2 * right / (n + predicted).clip(min=1)).sum() / len(y))


def weighted_auc(y: np.ndarray, q: np.ndarray, smoothing: float = 1.0) -> float:
    """AUC sum_c n_c/N (U_c + s/2) / (n_c (N - n_c) + s), in [0, 1]; labels [N], probabilities q [N, n_classes]."""
    # U_c counts pairs of a sample of class c and one of another class in which the former has the larger q_c; ties
    # count 1/2. The Laplace smoothing s adds s pairs that count 1/2, so that a client with one class gets 0.5.
    member = y[:, None] == np.arange(q.shape[1])
    n = member.sum(0)
    U = (stats.rankdata(q, axis=0) * member).sum(0) - n * (n + 1) / 2
    pairs = n * (len(y) - n) + smoothing
    return float((n * (U + smoothing / 2) / np.where(pairs > 0, pairs, 1)).sum() / len(y))


def client_metrics(logits: Tensor, y: Tensor, sizes: Sequence[int]) -> Tensor:
    """`METRICS` of every client, float64 [n_clients, 2]; the logits [N, n_classes] are sorted by client."""
    q, y, ends = logits.double().softmax(1).cpu().numpy(), y.cpu().numpy(), np.cumsum(sizes)[:-1]
    clients = zip(np.split(y, ends), np.split(q, ends), strict=True)
    return torch.tensor([[weighted_f1(y, q.argmax(1)), weighted_auc(y, q)] for y, q in clients], dtype=torch.float64)
