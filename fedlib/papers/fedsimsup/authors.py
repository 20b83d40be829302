"""Who is in whose model: the server's steps of FedSimSup (equations 7 to 9), followed without any training."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedlib.methods.fedsimsup import label_similarity, pull, self_weight
from fedlib.stack import put
from fedlib.studies.tasks import Kept

SIMILAR = 0.5  # from this cosine on two clients are called similar


def authors(counts: Tensor, sampled: Sequence[np.ndarray], similarity: Tensor) -> Tensor:
    """Say which clients' uploads make up every client's theta, if an upload is its client's own work.

    Args:
        counts: train samples of each class, [n, n_classes].
        sampled: the participants of each round.
        similarity: s_ij, [n, n].

    Returns:
        The share of client j's uploads in theta_i, [n, n]. What a row lacks to 1 are initial weights.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from fedlib.papers.fedsimsup.authors import authors
        >>> counts = torch.tensor([[8.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
        >>> authors(counts, [np.array([0])], torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
        tensor([[1.0000, 0.0000, 0.0000],
                [0.5000, 0.0000, 0.0000],
                [0.0000, 0.0000, 0.0000]])
    """
    share, everyone = {"of": torch.zeros_like(similarity)}, torch.eye(len(similarity), dtype=similarity.dtype)
    for ids in map(torch.as_tensor, sampled):
        uploads, alpha = {"of": everyone[ids]}, self_weight(counts.sum(1), counts[ids].sum(1))
        share = put(pull(share, uploads, similarity[:, ids], alpha), ids, uploads)
    return share["of"]


def who_is_in_whom(train_counts: np.ndarray, sampled: Sequence[np.ndarray]) -> Kept:
    """Similarities and authors of all clients, in the order of their main class.

    Args:
        train_counts: train samples of each class, [n, n_classes].
        sampled: the participants of each round.

    Returns:
        main: the main class of every client; s: s_ij; authors: shares by the weights used, "s_ij" and "equal"; and, in
        percent, how much of what others contribute comes from similar clients, with these weights and by chance.
    """
    counts, main = torch.from_numpy(train_counts).double(), train_counts.argmax(1)
    order = main.argsort(kind="stable")
    s = label_similarity(counts, counts)
    others = ~torch.eye(len(s), dtype=torch.bool)
    found: dict[str, object] = {"main": main[order].tolist(), "s": _rounded(s, order), "authors": {}}
    shares = {"chance": others.double()}
    for weights, used in (("s_ij", s), ("equal", torch.ones_like(s))):
        share = authors(counts, sampled, used)
        found["authors"] |= {weights: _rounded(share, order)}  # type: ignore[operator]
        shares[weights] = share * others
    alike = s > SIMILAR
    return found | {name: 100 * float((w * alike).sum() / w.sum()) for name, w in shares.items() if w.sum() > 0}


def _rounded(matrix: Tensor, order: np.ndarray) -> list[list[float]]:
    return matrix[order][:, order].numpy().round(3).tolist()
