"""Partitions of samples among clients: pure functions of labels, parameters and seed that return indices."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from fedlib.checks import check_count, check_number

Shares = list[np.ndarray]  # one int64 index array per client
Draw = TypeVar("Draw")
MAX_DRAWS = 1_000


class Partition(NamedTuple):
    """A rule that divides samples among clients: the argument `partition` of `federate`.

    Attributes:
        name: name for tables.
        params: parameters by name, for tables.
        assign: `assign(y, domain, n_clients, rng)` returns one int64 index array per client, without repetitions, from
            labels and domains, int64 [N] each, and a NumPy generator.

    Example:
        >>> def halves(y, domain, n_clients, rng):
        ...     return np.array_split(np.arange(len(y)), n_clients)
        >>> print(fl.Partition("halves", {"sorted": True}, halves))
        halves(sorted=True)
    """

    name: str
    params: Mapping[str, object]
    assign: Callable[[np.ndarray, np.ndarray, int, np.random.Generator], Shares]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in self.params.items())})"

    def __repr__(self) -> str:
        return str(self)


def check_shares(partition: Partition, shares: Shares, n_clients: int, n_samples: int) -> Shares:
    """Return `shares`; raise `ValueError` unless they are one array of positions per client, without repetitions."""
    arrays = [np.asarray(share) for share in shares] if isinstance(shares, Sequence | np.ndarray) else None
    if arrays is None or len(arrays) != n_clients:
        kind = f"a {type(shares).__name__}" if arrays is None else f"{len(arrays)} arrays"
        raise ValueError(f"{partition} returned {kind} for {n_clients} clients; it must return one array per client.")
    for i, array in enumerate(arrays):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(
                f"{partition} returned {array.dtype} {array.shape} for client {i}; it must return positions of "
                f"samples, whole numbers [n_i]."
            )
    every = np.concatenate(arrays)
    if len(every) and (every.min() < 0 or every.max() >= n_samples):
        raise ValueError(f"{partition} returned positions from {every.min()} to {every.max()} of {n_samples} samples.")
    if len(np.unique(every)) < len(every):
        raise ValueError(f"{partition} assigned a sample twice; every sample belongs to one client at most.")
    return shares


def iid() -> Partition:
    """Give every client an equal share of the shuffled samples.

    Returns:
        The partition.

    Example:
        >>> fl.federate(fl.load("digits", copies=1), fl.iid(), clients=3).sizes
        array([599, 599, 599])
    """

    def assign(y, domain, n_clients, rng):
        return np.array_split(rng.permutation(len(y)), n_clients)

    return Partition("iid", {}, assign)


def dirichlet(alpha: float, min_size: int = 40) -> Partition:
    """Label skew Dir(alpha): divide each class among the clients by shares from a Dirichlet distribution.

    A client that holds at least N / n_clients samples gets no share of further classes. The whole draw is repeated
    until every client has `min_size` samples.

    Args:
        alpha: concentration, above 0: few classes per client if small, equal shares of all classes if large.
        min_size: minimum number of samples of a client.

    Returns:
        The partition.

    Raises:
        ValueError: an argument is out of range. In `federate`: `min_size` cannot be met.

    Source:
        pFedSim, section 5; the cap reproduces its Table 4.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.1, min_size=10), clients=3)
        >>> (federation.counts() > 0).sum(1)  # classes per client
        array([7, 7, 6])
    """
    alpha = check_number("alpha", alpha, 0, open_low=True)
    min_size = check_count("min_size", min_size, 0)

    def draw(y, n_clients, rng):
        shares = [[] for _ in range(n_clients)]
        held = np.zeros(n_clients)
        for c in np.unique(y):
            p = rng.dirichlet(np.full(n_clients, alpha)) * (held < len(y) / n_clients)
            if p.sum() == 0:  # alpha is so small that only full clients were drawn
                return None
            samples = rng.permutation(np.flatnonzero(y == c))
            append_pieces(shares, samples, np.cumsum(p / p.sum())[:-1] * len(samples))
            held = np.array([sum(map(len, share)) for share in shares])
        return [np.concatenate(share) for share in shares] if held.min() >= min_size else None

    def assign(y, domain, n_clients, rng):
        if min_size * n_clients > len(y):
            raise ValueError(
                f"min_size={min_size} is not allowed; {n_clients} clients of {min_size} samples need "
                f"{min_size * n_clients} samples and the data set has {len(y)}."
            )
        return _repeat(lambda: draw(y, n_clients, rng), min_size, alpha, n_clients)

    return Partition("dirichlet", {"alpha": alpha, "min_size": min_size}, assign)


def shards(per_client: int = 2) -> Partition:
    """Label skew by shards: sort the samples by label, cut them into equal pieces, and give each client random ones.

    Args:
        per_client: pieces per client, at least 1.

    Returns:
        The partition.

    Raises:
        ValueError: `per_client` is out of range.

    Source:
        McMahan et al., AISTATS 2017.

    Example:
        >>> fl.federate(fl.load("digits", copies=1), fl.shards(per_client=2), clients=5).counts()[0]
        array([  0, 180,   0,   0,   1, 179,   0,   0,   0,   0])
    """
    per_client = check_count("per_client", per_client)

    def assign(y, domain, n_clients, rng):
        by_label = rng.permutation(len(y))
        by_label = by_label[np.argsort(y[by_label], kind="stable")]
        pieces = np.array_split(by_label, n_clients * per_client)
        order = rng.permutation(len(pieces)).reshape(n_clients, per_client)
        return [np.concatenate([pieces[i] for i in row]) for row in order]

    return Partition("shards", {"per_client": per_client}, assign)


def classes_per_client(n_classes: int) -> Partition:
    """Pathological label skew: give every client the same number of classes, and split each class evenly.

    The numbers of clients per class differ by at most one.

    Args:
        n_classes: classes per client.

    Returns:
        The partition.

    Raises:
        ValueError: `n_classes` is less than 1. In `federate`: the data set has fewer classes.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.classes_per_client(2), clients=5)
        >>> (federation.counts() > 0).sum(1)
        array([2, 2, 2, 2, 2])
    """
    n_classes = check_count("n_classes", n_classes)

    def assign(y, domain, n_clients, rng):
        classes = np.unique(y)
        check_count("n_classes", n_classes, 1, len(classes))
        # Each client gets the classes with the fewest owners so far, ties broken at random.
        owners = np.zeros(len(classes), dtype=int)
        labels = []
        for _ in range(n_clients):
            chosen = np.lexsort((rng.random(len(classes)), owners))[:n_classes]
            owners[chosen] += 1
            labels.append(classes[chosen])
        return _split_among_owners(y, labels, rng)

    return Partition("classes_per_client", {"n_classes": n_classes}, assign)


def uneven_classes(n_classes: int = 20, low: float = 0.3, high: float = 0.7) -> Partition:
    """Give every client random classes, and divide a class in proportion to draws from U(low, high).

    Client i gets the share u_ic / sum_j u_jc of class c, with a sum over the clients that have the class. Classes
    without clients are left out.

    Args:
        n_classes: classes per client.
        low: lower bound of the draws, above 0.
        high: upper bound of the draws, at least `low`.

    Returns:
        The partition.

    Raises:
        ValueError: an argument is out of range. In `federate`: the data set has fewer classes.

    Source:
        pFedMB, section V-C (CIFAR-100).

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.uneven_classes(5), clients=4)
        >>> (federation.counts() > 0).sum(1)
        array([5, 5, 5, 5])
    """
    n_classes = check_count("n_classes", n_classes)
    low = check_number("low", low, 0, open_low=True)
    high = check_number("high", high, low)

    def assign(y, domain, n_clients, rng):
        classes = np.unique(y)
        check_count("n_classes", n_classes, 1, len(classes))
        owned = np.stack([rng.permutation(len(classes)) < n_classes for _ in range(n_clients)])
        weights = rng.uniform(low, high, owned.shape) * owned  # [n_clients, classes]
        shares = [[] for _ in range(n_clients)]
        for c, w in zip(classes, weights.T, strict=True):
            samples = rng.permutation(np.flatnonzero(y == c))
            if w.any():
                append_pieces(shares, samples, np.round(w.cumsum()[:-1] / w.sum() * len(samples)))
        return [np.concatenate(share) for share in shares]

    return Partition("uneven_classes", {"n_classes": n_classes, "low": low, "high": high}, assign)


def label_groups(groups: Sequence[Sequence[int]]) -> Partition:
    """Give each client the labels of its group, and split a class evenly among the clients that have it.

    With G groups client i is in group i * G // n_clients.

    Args:
        groups: labels of each group: a list of lists. There must be at least as many clients as groups.

    Returns:
        The partition.

    Raises:
        ValueError: `groups` is empty or not a list of lists of labels. In `federate`: a label is not in the data set,
            or there are fewer clients than groups.

    Example:
        >>> halves = fl.label_groups([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
        >>> fl.federate(fl.load("digits", copies=1), halves, clients=2).counts()
        array([[178, 182, 177, 183, 181,   0,   0,   0,   0,   0],
               [  0,   0,   0,   0,   0, 182, 181, 179, 174, 180]])
    """
    _check_labels(groups)
    try:
        groups = [[int(c) for c in group] for group in groups]
    except (TypeError, ValueError):
        raise ValueError(f"groups={groups!r} is not allowed; it must be a list of lists of labels.") from None
    if not groups or not all(groups):
        raise ValueError(f"groups={groups!r} is not allowed; give at least one group and at least one label in each.")

    def assign(y, domain, n_clients, rng):
        unknown = {c for group in groups for c in group} - set(y.tolist())
        if unknown or len(groups) > n_clients:
            raise ValueError(
                f"groups={groups!r} is not allowed; labels must be among the data set's and there must be at most "
                f"one group per client ({n_clients})."
            )
        return _split_among_owners(y, [groups[i * len(groups) // n_clients] for i in range(n_clients)], rng)

    return Partition("label_groups", {"groups": groups}, assign)


def _check_labels(groups: object) -> None:
    """Raise `ValueError` if a label is not a whole number; what is not a list of lists is left to the caller."""
    lists = groups if isinstance(groups, Sequence) else ()
    for label in (label for group in lists if isinstance(group, Sequence) for label in group):
        if isinstance(label, float | np.floating) and not float(label).is_integer():
            raise ValueError(f"groups has the label {label!r}; labels are whole numbers, the positions of classes.")


def dirichlet_groups(alpha: float, groups: int = 10, min_size: int = 100) -> Partition:
    """Label skew between groups: divide each class among groups by Dir(alpha), and a group evenly among its clients.

    Client i is in group i * groups // n_clients. The whole draw is repeated until every client has `min_size` samples.

    Args:
        alpha: concentration, above 0: few classes per group if small.
        groups: number of groups; the number of clients must be a multiple of it.
        min_size: minimum number of samples of a client.

    Returns:
        The partition.

    Raises:
        ValueError: an argument is out of range. In `federate`: `min_size` cannot be met, or the number of clients is
            not a multiple of `groups`.

    Source:
        FedCS, appendix B.1.1, after Hsu et al., 2019.

    Example:
        >>> two_groups = fl.dirichlet_groups(0.1, groups=2, min_size=10)
        >>> fl.federate(fl.load("digits", copies=1), two_groups, clients=4).sizes
        array([461, 460, 438, 438])
    """
    alpha = check_number("alpha", alpha, 0, open_low=True)
    groups = check_count("groups", groups)
    min_size = check_count("min_size", min_size, 0)

    def assign(y, domain, n_clients, rng):
        if n_clients % groups:
            raise ValueError(f"clients={n_clients} is not allowed; dirichlet_groups() needs a multiple of {groups}.")
        each = n_clients // groups

        def draw():
            shares = [[] for _ in range(groups)]
            for c in np.unique(y):
                samples = rng.permutation(np.flatnonzero(y == c))
                append_pieces(shares, samples, rng.dirichlet(np.full(groups, alpha)).cumsum()[:-1] * len(samples))
            return shares if min(sum(map(len, share)) // each for share in shares) >= min_size else None

        shares = _repeat(draw, min_size, alpha, n_clients)
        mixed = [rng.permutation(np.concatenate(share)) for share in shares]
        return [piece for share in mixed for piece in np.array_split(share, each)]

    return Partition("dirichlet_groups", {"alpha": alpha, "groups": groups, "min_size": min_size}, assign)


def mixed_domains(mixed: float = 0.1) -> Partition:
    """Feature shift with mixed clients: clients with one domain each, then D clients with samples of all D domains.

    Every domain is cut to the size of the smallest one. The last D clients get equal shares of a fraction `mixed` of
    each domain; the other clients divide the rest: client i has domain i % D.

    Args:
        mixed: share of each domain for the last D clients, in (0, 1).

    Returns:
        The partition.

    Raises:
        ValueError: `mixed` is out of range. In `federate`: the number of clients is not 2 D, 3 D, ...

    Source:
        FedCS, appendix B.1.2.

    Example:
        >>> data = fl.load("digit_styles", per_style=100)  # 6 domains
        >>> fl.federate(data, fl.mixed_domains(), clients=12).sizes
        array([90, 90, 90, 90, 90, 90, 12, 12, 12, 12,  6,  6])
    """
    mixed = check_number("mixed", mixed, 0, 1, open_low=True, open_high=True)

    def assign(y, domain, n_clients, rng):
        ids, size = np.unique(domain, return_counts=True)
        n = len(ids)
        if n_clients % n or n_clients == n:
            raise ValueError(
                f"clients={n_clients} is not allowed; mixed_domains() needs a multiple of {n}, at least {2 * n}."
            )
        drawn = [rng.permutation(np.flatnonzero(domain == d))[: size.min()] for d in ids]
        aside = max(round(mixed * size.min()), n)
        single = [np.array_split(samples[aside:], n_clients // n - 1) for samples in drawn]  # by domain
        pooled = [np.array_split(samples[:aside], n) for samples in drawn]
        of_one = [pieces[i] for i in range(n_clients // n - 1) for pieces in single]
        return of_one + [np.concatenate([pieces[i] for pieces in pooled]) for i in range(n)]

    return Partition("mixed_domains", {"mixed": mixed}, assign)


def domains() -> Partition:
    """Feature shift: give every client samples of one domain, and split a domain evenly among its clients.

    Returns:
        The partition.

    Raises:
        ValueError: in `federate`: the number of clients is not a multiple of the number of domains.

    Example:
        >>> data = fl.load("digit_styles", per_style=100)
        >>> federation = fl.federate(data, fl.domains(), clients=6)
        >>> [data.domains[data.domain[indices[0]]] for indices in federation.train]
        ['pen', 'pencil', 'poster', 'painting', 'halftone', 'clutter']
    """

    def assign(y, domain, n_clients, rng):
        ids = np.unique(domain)
        if n_clients % len(ids):
            raise ValueError(
                f"clients={n_clients} is not allowed; domains() needs a multiple of the {len(ids)} domains."
            )
        by_domain = [rng.permutation(np.flatnonzero(domain == d)) for d in ids]
        return [share for samples in by_domain for share in np.array_split(samples, n_clients // len(ids))]

    return Partition("domains", {}, assign)


def append_pieces(shares: list[list[np.ndarray]], samples: np.ndarray, cuts: np.ndarray) -> None:
    """Cut `samples` at the positions `cuts` (rounded down) and append one piece to each share."""
    for share, piece in zip(shares, np.split(samples, cuts.astype(int)), strict=True):
        share.append(piece)


def _repeat(draw: Callable[[], Draw | None], min_size: int, alpha: float, n_clients: int) -> Draw:
    """Repeat a draw until it is not None, that is, until every client has `min_size` samples."""
    for _ in range(MAX_DRAWS):
        if (drawn := draw()) is not None:
            return drawn
    raise ValueError(
        f"min_size={min_size} with alpha={alpha} and {n_clients} clients was not met in {MAX_DRAWS} draws; "
        f"lower min_size, raise alpha or take fewer clients."
    )


def _split_among_owners(y: np.ndarray, labels: Sequence[Sequence[int]], rng: np.random.Generator) -> Shares:
    """Divide each class at random and evenly among the clients i with the class in `labels[i]`."""
    shares = [[] for _ in labels]
    for c in np.unique(y):
        owners = [i for i, classes in enumerate(labels) if c in classes]
        if owners:
            pieces = np.array_split(rng.permutation(np.flatnonzero(y == c)), len(owners))
            for i, piece in zip(owners, pieces, strict=True):
                shares[i].append(piece)
    return [np.concatenate(share) for share in shares]
