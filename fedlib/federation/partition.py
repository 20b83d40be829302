"""Partitions: who owns which sample. Pure functions of (labels, parameters, seed) that return index arrays."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedlib.checks import check_count, check_number

Shares = list[np.ndarray]  # one int64 index array per client
MAX_DRAWS = 1_000


class Partition(NamedTuple):
    """A way to deal samples out to clients.

    `assign(y, domain, n_clients, rng)` returns one index array per client; no index is dealt twice.
    `y` and `domain` are int64 arrays of shape [N].
    """

    name: str
    params: Mapping[str, object]
    assign: Callable[[np.ndarray, np.ndarray, int, np.random.Generator], Shares]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in self.params.items())})"


def iid() -> Partition:
    """Every client gets an equal share of the shuffled samples."""

    def assign(y, domain, n_clients, rng):
        return np.array_split(rng.permutation(len(y)), n_clients)

    return Partition("iid", {}, assign)


def dirichlet(alpha: float, min_size: int = 40) -> Partition:
    """Label skew Dir(alpha): each class is cut into client shares drawn from a Dirichlet distribution.

    Clients that already hold at least N / n_clients samples get no share of the next class, and the whole draw
    is repeated until every client has `min_size` samples (pFedSim, section 5; this cap reproduces its Table 4).
    `alpha -> infinity` is iid by class; small `alpha` leaves each client a few classes.
    """
    check_number("alpha", alpha, 0, open_low=True)
    check_count("min_size", min_size, 0)

    def draw(y, n_clients, rng):
        shares = [[] for _ in range(n_clients)]
        held = np.zeros(n_clients)
        for c in np.unique(y):
            p = rng.dirichlet(np.full(n_clients, alpha)) * (held < len(y) / n_clients)
            if p.sum() == 0:  # alpha so small that only full clients were drawn
                return None
            own = rng.permutation(np.flatnonzero(y == c))
            cuts = (np.cumsum(p / p.sum())[:-1] * len(own)).astype(int)
            for share, piece in zip(shares, np.split(own, cuts), strict=True):
                share.append(piece)
            held = np.array([sum(map(len, share)) for share in shares])
        return [np.concatenate(share) for share in shares] if held.min() >= min_size else None

    def assign(y, domain, n_clients, rng):
        if min_size * n_clients > len(y):
            raise ValueError(
                f"min_size={min_size} is not allowed; {n_clients} clients of {min_size} samples need "
                f"{min_size * n_clients} samples and the data set has {len(y)}."
            )
        for _ in range(MAX_DRAWS):
            if (shares := draw(y, n_clients, rng)) is not None:
                return shares
        raise ValueError(
            f"min_size={min_size} with alpha={alpha} and {n_clients} clients was not met in {MAX_DRAWS} draws; "
            f"lower min_size, raise alpha or take fewer clients."
        )

    return Partition("dirichlet", {"alpha": alpha, "min_size": min_size}, assign)


def shards(per_client: int = 2) -> Partition:
    """Label skew by shards (McMahan et al., AISTATS 2017): sort by label, cut, deal `per_client` pieces to each."""
    check_count("per_client", per_client)

    def assign(y, domain, n_clients, rng):
        by_label = rng.permutation(len(y))
        by_label = by_label[np.argsort(y[by_label], kind="stable")]
        pieces = np.array_split(by_label, n_clients * per_client)
        order = rng.permutation(len(pieces)).reshape(n_clients, per_client)
        return [np.concatenate([pieces[i] for i in row]) for row in order]

    return Partition("shards", {"per_client": per_client}, assign)


def classes_per_client(n_classes: int) -> Partition:
    """Pathological skew: every client owns exactly `n_classes` classes, each class split evenly among its owners."""
    check_count("n_classes", n_classes)

    def assign(y, domain, n_clients, rng):
        classes = np.unique(y)
        check_count("n_classes", n_classes, 1, len(classes))
        # Deal n_clients * n_classes slots so that owners per class differ by one at most: fill client by client
        # with the classes that have had the fewest owners so far, ties broken at random.
        owners = np.zeros(len(classes), dtype=int)
        groups = []
        for _ in range(n_clients):
            chosen = np.lexsort((rng.random(len(classes)), owners))[:n_classes]
            owners[chosen] += 1
            groups.append(classes[chosen])
        return _split_among_owners(y, groups, rng)

    return Partition("classes_per_client", {"n_classes": n_classes}, assign)


def uneven_classes(n_classes: int = 20, low: float = 0.3, high: float = 0.7) -> Partition:
    """Every client owns `n_classes` classes at random; a class is cut in proportion to draws from U(low, high).

    Client i gets u_ic / sum_j u_jc of class c, the sum over its owners (pFedMB, section V-C, CIFAR-100). Classes that
    nobody owns are left out.
    """
    check_count("n_classes", n_classes)
    check_number("low", low, 0, open_low=True)
    check_number("high", high, low)

    def assign(y, domain, n_clients, rng):
        classes = np.unique(y)
        check_count("n_classes", n_classes, 1, len(classes))
        owned = np.stack([rng.permutation(len(classes)) < n_classes for _ in range(n_clients)])
        weights = rng.uniform(low, high, owned.shape) * owned  # [n_clients, classes]
        shares = [[] for _ in range(n_clients)]
        for c, w in zip(classes, weights.T, strict=True):
            own = rng.permutation(np.flatnonzero(y == c))
            if w.any():
                cuts = np.round(w.cumsum()[:-1] / w.sum() * len(own)).astype(int)
                for share, piece in zip(shares, np.split(own, cuts), strict=True):
                    share.append(piece)
        return [np.concatenate(share) for share in shares]

    return Partition("uneven_classes", {"n_classes": n_classes, "low": low, "high": high}, assign)


def label_groups(groups: Sequence[Sequence[int]]) -> Partition:
    """Each client owns the labels of its group; each class is split evenly among its owners.

    With more clients than groups, neighbouring clients form equal groups: client i is in group i * G // n_clients.
    """
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


def dirichlet_groups(alpha: float, groups: int = 10, min_size: int = 100) -> Partition:
    """Groups with different label distributions: each class is cut by Dir(alpha) over groups, a group evenly at random.

    Client i is in group i * groups // n_clients. The whole draw is repeated until every client has `min_size` samples
    (FedCS, appendix B.1.1, after Hsu et al., 2019).
    """
    check_number("alpha", alpha, 0, open_low=True)
    check_count("groups", groups)
    check_count("min_size", min_size, 0)

    def assign(y, domain, n_clients, rng):
        if n_clients % groups:
            raise ValueError(f"clients={n_clients} is not allowed; dirichlet_groups() needs a multiple of {groups}.")
        each = n_clients // groups
        for _ in range(MAX_DRAWS):
            shares = [[] for _ in range(groups)]
            for c in np.unique(y):
                own = rng.permutation(np.flatnonzero(y == c))
                cuts = (rng.dirichlet(np.full(groups, alpha)).cumsum()[:-1] * len(own)).astype(int)
                for share, piece in zip(shares, np.split(own, cuts), strict=True):
                    share.append(piece)
            if min(sum(map(len, share)) // each for share in shares) >= min_size:
                mixed = [rng.permutation(np.concatenate(share)) for share in shares]
                return [own for share in mixed for own in np.array_split(share, each)]
        raise ValueError(
            f"min_size={min_size} with alpha={alpha} and {n_clients} clients was not met in {MAX_DRAWS} draws; "
            f"lower min_size, raise alpha or take fewer clients."
        )

    return Partition("dirichlet_groups", {"alpha": alpha, "groups": groups, "min_size": min_size}, assign)


def mixed_domains(mixed: float = 0.1) -> Partition:
    """Feature skew with newcomers: clients of one domain each, and at the end as many clients as domains that mix all.

    Every domain gives the same number of samples, that of the smallest, and sets the share `mixed` of them aside, which
    is dealt out evenly to the last clients; the rest is cut into equal clients (FedCS, appendix B.1.2). With D domains
    client i lives in domain i % D, but for the last D.
    """
    check_number("mixed", mixed, 0, 1, open_low=True, open_high=True)

    def assign(y, domain, n_clients, rng):
        ids, size = np.unique(domain, return_counts=True)
        n = len(ids)
        if n_clients % n or n_clients == n:
            raise ValueError(
                f"clients={n_clients} is not allowed; mixed_domains() needs twice the {n} domains or another multiple."
            )
        drawn = [rng.permutation(np.flatnonzero(domain == d))[: size.min()] for d in ids]
        aside = max(round(mixed * size.min()), n)
        own = [np.array_split(samples[aside:], n_clients // n - 1) for samples in drawn]
        pools = [np.array_split(samples[:aside], n) for samples in drawn]
        of_one = [pieces[g] for g in range(n_clients // n - 1) for pieces in own]
        return of_one + [np.concatenate([pieces[g] for pieces in pools]) for g in range(n)]

    return Partition("mixed_domains", {"mixed": mixed}, assign)


def domains() -> Partition:
    """Feature skew: every client lives in one domain; each domain's samples are cut at random into equal clients."""

    def assign(y, domain, n_clients, rng):
        ids = np.unique(domain)
        if n_clients % len(ids):
            raise ValueError(
                f"clients={n_clients} is not allowed; domains() needs a multiple of the {len(ids)} domains."
            )
        own = [rng.permutation(np.flatnonzero(domain == d)) for d in ids]
        return [share for samples in own for share in np.array_split(samples, n_clients // len(ids))]

    return Partition("domains", {}, assign)


def _split_among_owners(y: np.ndarray, groups: Sequence[Sequence[int]], rng: np.random.Generator) -> Shares:
    """Cut each class at random into equal disjoint parts for the clients whose group names it."""
    shares = [[] for _ in groups]
    for c in np.unique(y):
        owners = [i for i, group in enumerate(groups) if c in group]
        if owners:
            pieces = np.array_split(rng.permutation(np.flatnonzero(y == c)), len(owners))
            for i, piece in zip(owners, pieces, strict=True):
                shares[i].append(piece)
    return [np.concatenate(share) for share in shares]
