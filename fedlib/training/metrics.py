"""What a client's predictions are worth besides accuracy: weighted F1 and weighted one-vs-rest AUC (FedCS, section 5).

Both average over the classes that the client has, with weights n_c / N. They equal scikit-learn's `f1_score` and
`roc_auc_score` with average="weighted" where those are defined, at a small part of the time.
"""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

METRICS = ("f1", "auc")


def weighted_f1(y: np.ndarray, guess: np.ndarray) -> float:
    """sum_c n_c/N 2 TP_c / (2 TP_c + FP_c + FN_c), in [0, 1], for labels and predictions int [N]."""
    n_classes = max(y.max(), guess.max()) + 1
    n, guessed, right = (np.bincount(v, minlength=n_classes) for v in (y, guess, y[y == guess]))
    return float((n * 2 * right / (n + guessed).clip(min=1)).sum() / len(y))


def weighted_auc(y: np.ndarray, q: np.ndarray, smoothing: float = 1.0) -> float:
    """sum_c n_c/N (U_c + s/2) / (n_c (N - n_c) + s), in [0, 1], for labels int [N] and probabilities q [N, n_classes].

    U_c counts the pairs of a sample of class c and another one in which the former has the larger q_c, ties by half.
    The Laplace smoothing s adds a pair that is right by half, so that a client with only one class gets 0.5.
    """
    member = y[:, None] == np.arange(q.shape[1])
    n = member.sum(0)
    U = (rankdata(q, axis=0) * member).sum(0) - n * (n + 1) / 2
    pairs = n * (len(y) - n) + smoothing
    return float((n * (U + smoothing / 2) / np.where(pairs > 0, pairs, 1)).sum() / len(y))


def client_metrics(logits: Tensor, y: Tensor, sizes: Sequence[int]) -> Tensor:
    """`METRICS` of every client, float64 [n_clients, 2]; the logits [N, n_classes] come client by client."""
    parts = zip(logits.double().softmax(1).cpu().split(sizes), y.cpu().split(sizes), strict=True)
    own = ((labels.numpy(), q.numpy()) for q, labels in parts)
    return torch.tensor([[weighted_f1(y, q.argmax(1)), weighted_auc(y, q)] for y, q in own], dtype=torch.float64)
