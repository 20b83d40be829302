"""FedCS: further values in the row of a run, among them the distance of the recursions from their closed form."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestCentroid
from torch import Tensor
from torch.func import vmap

import fedlib as fl
from fedlib.federation import Federation
from fedlib.methods.fedcs import Alignment, linear_layer
from fedlib.methods.fedcs import alignment as ra
from fedlib.methods.fedcs.fedcs import LAYERS
from fedlib.stack import Shared
from fedlib.streams import generator
from fedlib.studies.tasks import Kept, Run
from fedlib.training import Evaluation, on_device

GROUPS, DOMAINS = 10, 5
COLUMNS = 9  # columns of P that are evaluated
RULES = {"safe": ("normalised", True), "printed": ("paper", True), "printed, not centred": ("paper", False)}


def residual(S: Tensor, W: Tensor) -> float:
    """|| S W S - I || / sqrt(d): 0 where S is the inverse square root of W."""
    return float((S @ W @ S - torch.eye(len(W), dtype=W.dtype)).norm() / len(W) ** 0.5)


def j_ratio(P: Tensor, within: Tensor, between: Tensor, r: int) -> float:
    """J of the first r columns of P, relative to its maximum."""
    best = ra.trace_ratio(ra.closed_form(within, between, r), within, between)
    return float(ra.trace_ratio(P[:, :r], within, between) / best)


D, N, BATCHES, BATCH = 20, 40, 15, 64  # dimensions, clients, batches of a client and their size
SPREAD = (41, 10, 2.9, 0.5)  # eigenvalues of the scatter between clients, whitened


def toy(seed: int, rounds: int) -> Kept:
    """Alignments of 40 Gaussian clients, ten per round; eigenvalues of their scatter: 0.1 to 10."""

    def normal(what: str, *shape: int) -> Tensor:
        return torch.from_numpy(generator(seed, "toy", what).standard_normal(shape))

    basis, vectors = ra.orthonormal(normal("basis", D, D)), ra.orthonormal(normal("vectors", D, len(SPREAD)))
    root = basis @ torch.diag(torch.logspace(-0.5, 0.5, D, dtype=torch.float64)) @ basis.T  # W^(1/2)
    spread = normal("spread", N, len(SPREAD))
    scale = (N * torch.tensor(SPREAD, dtype=torch.float64)).sqrt()
    u = ra.orthonormal(spread - spread.mean(0)) * scale @ vectors.T  # W^(-1/2) (mean of a client - mean of all), [N, D]
    means, within = u @ root, root @ root
    between, middle, Phi = means.T @ means / N, 2 * normal("middle", D) @ root, ra.orthonormal(normal("Phi", D, D))
    S = torch.eye(D, dtype=torch.float64)
    for _ in range(5000):
        S = ra.whitening_step(S, within, 0.05)
    found = {"digits": -float(np.log10(residual(S, within)))}
    for name, step in (("upper", ra.rotation_step), ("lower", lower_step)):
        cosines = (rotated(step, Phi, u)[:, : len(SPREAD)] * vectors).sum(0).abs()
        found |= {f"{name} {k + 1}": float(cosine) for k, cosine in enumerate(cosines)}
    for name, (steps, centred) in RULES.items():
        rng = generator(seed, "toy", "samples")
        state = {"Phi": Phi} | ({"S": torch.eye(D).double()} if steps == "paper" else {})
        for _ in range(rounds):
            cohort = torch.from_numpy(rng.permutation(N)[:10])
            noise = torch.from_numpy(rng.standard_normal((10, BATCHES, BATCH, D)))
            z = middle + means[cohort, None, None] + noise @ root
            passed = vmap(lambda own, sent=state, s=steps, c=centred: ra.ra_pass(own, sent, s, c))(z)
            state = server_step(state, {key: t.mean(0) for key, t in passed.items()}, 0.1)
        found[f"residual {name}"] = residual(state["S"], within)
        found[f"J ratio {name}"] = j_ratio(state["S"] @ state["Phi"], within, between, len(SPREAD))
    return found


def rotated(step: Callable[..., Tensor], Phi: Tensor, u: Tensor) -> Tensor:
    """Phi after 1,500 steps, each averaged over all clients, with columns of length 1."""
    for _ in range(1500):
        Phi = vmap(step, (None, 0, None))(Phi, u, 0.02).mean(0)
    return Phi / Phi.norm(dim=0)


def lower_step(Phi: Tensor, u: Tensor, rate: float) -> Tensor:
    """Equation 12 with the lower triangle."""
    y = u @ Phi
    return Phi + rate * (torch.outer(u, y) - Phi @ torch.outer(y, y).tril())


def server_step(state: dict[str, Tensor], mean: dict[str, Tensor], beta: float) -> dict[str, Tensor]:
    """The server's S, Phi and z_g from the means over the clients."""
    z_g = state["z_g"] + beta * (mean["z"] - state["z_g"]) if "z_g" in state else mean["z"]
    return {"S": mean["S"], "Phi": ra.orthonormal(mean["Phi"]), "z_g": z_g}


def group_of(name: str, n: int) -> np.ndarray:
    """The group of each of n clients; with feature shift its position among the clients of its domain."""
    return np.arange(n) // (DOMAINS if name == "digit5" else n // GROUPS)


def kept_of(task: Run, name: str, alignments: int, result: fl.RunResult) -> Kept:
    """Final metrics of every client, group means at every evaluation, and the quality of the S and P of FedCS."""
    group, found = group_of(name, task.clients), metrics_of(result)
    for when, rows in result.accuracy.groupby("when"):
        means = rows.assign(group=group[rows["client"]]).groupby(["round", "group"])
        found[f"rounds {when}"] = sorted(int(t) for t in rows["round"].unique())
        for metric in ("f1", "accuracy"):
            found[f"groups {metric} {when}"] = [_rounded(own) for own in means[metric].mean().unstack().to_numpy()]
    if result.config["algorithm"] == "fedcs" and cast("Any", result.config["hyper"])["base"] == "fedavg":
        kind = np.arange(task.clients) % DOMAINS if name == "digit5" else group  # with feature shift: domains
        found |= diagnose(result, task.arguments(0)["federation"], kind, alignments)
    return found


def metrics_of(result: fl.RunResult) -> dict[str, object]:
    """Final metrics of every client."""
    rows = result.accuracy[result.accuracy["round"] == result.accuracy["round"].max()]
    return {f"{name} {when}": _rounded(own[name]) for when, own in rows.groupby("when") for name in ("f1", "auc")}


def _rounded(values: Iterable[float]) -> list[float | None]:
    return [round(float(value), 3) if np.isfinite(value) else None for value in values]


def diagnose(result: fl.RunResult, federation: Federation, group: np.ndarray, alignments: int) -> Kept:
    """Quality of the S and P of FedCS for its training clients, also after further `alignments`; {} if it has diverged.

    Separability is the share [%] of test images nearest to the centroid of their own group, in nine principal
    components of z and nine columns of c = P'z; the plane has test images of five groups in two dimensions.
    """
    state, parts = result.state.ra, [latents(result, federation, part) for part in ("train", "test")]
    (z, owner), (z_test, test_owner) = parts
    if not all(t.isfinite().all() for t in (z, z_test, *state.values())):
        return {}
    scatter, kind, test_kind = ra.scatters(z, owner), group[owner.numpy()], group[test_owner.numpy()]
    pca = PCA(COLUMNS, svd_solver="covariance_eigh").fit(z.numpy())
    components = torch.from_numpy(np.asarray(pca.components_).T).double()
    plane = {"z": pca.transform(z_test.numpy())}

    def separability(train: np.ndarray, test: np.ndarray) -> float:
        return 100 * float(NearestCentroid().fit(train, kind).score(test, test_kind))

    def judged(S: Tensor, P: Tensor, when: str = "") -> dict[str, object]:
        plane[f"c{when}"] = (z_test @ P).numpy()
        columns = [(space @ P[:, :COLUMNS]).numpy() for space in (z, z_test)]
        values = residual(S, scatter[0]), j_ratio(P, *scatter, COLUMNS), separability(*columns)
        return dict(zip((f"residual{when}", f"J ratio{when}", f"separability of c{when}"), values, strict=True))

    found: dict[str, object] = {"d": z.shape[1], "J ratio of components": j_ratio(components, *scatter, COLUMNS)}
    found["separability of z"] = separability(pca.transform(z.numpy()), pca.transform(z_test.numpy()))
    found |= judged(state["S"].double(), state["P"].double())
    if alignments:
        path, every = aligned_on(result, z, owner, alignments), max(alignments // 20, 1)
        found |= judged(path[-1]["S"].double(), (path[-1]["S"] @ path[-1]["Phi"]).double(), ", later")
        found["lag"] = [[n, residual(path[n]["S"].double(), scatter[0])] for n in range(0, len(path), every)]
    return found | {"plane": {space: in_the_plane(points[:, :2], test_kind) for space, points in plane.items()}}


def in_the_plane(points: np.ndarray, group: np.ndarray, groups: int = 5, shown: int = 40) -> Kept:
    """Mean, covariance and some points [N, 2] of the first groups, in standard deviations of all points."""
    points = (points - points.mean(0)) / np.maximum(points.std(0), 1e-9)
    own = [points[group == g] for g in np.unique(group)[:groups]]
    some = [each[np.linspace(0, len(each) - 1, min(shown, len(each))).astype(int)] for each in own]
    return {
        "mean": [each.mean(0).round(3).tolist() for each in own],
        "covariance": [np.cov(each.T, ddof=0).round(3).tolist() for each in own],
        "points": [each.round(2).tolist() for each in some],
    }


def latents(result: fl.RunResult, federation: Federation, part: str) -> tuple[Tensor, Tensor]:
    """Features of the training clients' images before the map, [N, d], and the client of each image, [N]."""
    w, hyper = result.state.base.w, cast("Any", result.config["hyper"])
    own = getattr(federation, part)[: federation.n_clients - federation.unseen]
    place = Alignment(linear_layer(w, LAYERS.index(hyper["at"]) + 1), hyper["side"], result.state.ra["P"])
    evaluation = Evaluation(on_device(federation.data, torch.device("cpu")), own)
    z = evaluation.outputs(result.model, Shared(w), lambda w, x: place.latents(result.model, w, x))
    return z.double(), torch.from_numpy(np.repeat(np.arange(len(own)), [len(rows) for rows in own]))


def aligned_on(result: fl.RunResult, z: Tensor, owner: Tensor, alignments: int) -> list[dict[str, Tensor]]:
    """S, Phi and z_g at the end of the run, and after each further alignment with its network frozen."""
    config: Any = result.config
    own, size, hyper = [z[owner == i].float() for i in owner.unique()], config["batch_size"], config["hyper"]
    rng, k = generator(config["seed"], "fedcs", "later"), max(int(config["join_ratio"] * len(own)), 1)
    path = [{key: t for key, t in result.state.ra.items() if key != "P"}]
    for _ in range(alignments):
        cohort, passed = rng.choice(len(own), k, replace=False), []
        for i in cohort:
            n = max(len(own[i]) // size, 1)
            batches = own[i][np.resize(rng.permutation(len(own[i])), (n, size))]
            passed.append(ra.ra_pass(batches, path[-1], hyper["steps"], hyper["centred"]))
        shares = torch.tensor([len(own[i]) for i in cohort], dtype=torch.float32)
        shares /= shares.sum()
        mean = {key: torch.stack([each[key] for each in passed], -1) @ shares for key in passed[0]}
        path.append(server_step(path[-1], mean, hyper["beta"]))
    return path
