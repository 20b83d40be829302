"""FedSimSup: measurements besides runs: similarities, upload shares, movement, parameters and bytes."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import fedlib as fl
from fedlib.federation import Federation
from fedlib.methods.fedsimsup import SUPERVISORS, Pair, label_similarity, pull, self_weight
from fedlib.models import MODELS, build
from fedlib.papers.fedsimsup.sizes import NETWORKS, PROFILES, SHAPES, Column, first, made, run
from fedlib.runs import Session, cohorts, deterministic, prepare
from fedlib.stack import n_bytes, put, take
from fedlib.studies.tasks import Kept, images
from fedlib.training import mean_loss

SIMILAR = 0.5  # above this cosine two clients are similar
CAUSES = ["received loss", "gain", "gain on test"]  # of the movement of a supervisor


def federation_of(profile: str, column: Column, seed: int) -> Federation:
    """The clients of a column."""
    sizes = PROFILES[profile]
    source, n = images(sizes.data[column.dataset]), sizes.clients[column.n]
    return fl.federate(source, column.partition, n, test_fraction=None, seed=seed)


def similarities(seed: int, profile: str, name: str, n: int, kind: str, value: float) -> Kept:
    """Cosines s_ij of all pairs of clients: distinct ones (3 decimals), zeros [%], median; and the first clients."""
    train_counts = federation_of(profile, Column(name, n, kind, value), seed).train_counts
    counts = torch.from_numpy(train_counts).double()
    s = label_similarity(counts, counts).numpy()[np.triu_indices(len(counts), 1)].round(3)
    equal = all(len({*own[own > 0].tolist()}) == 1 for own in counts)
    top = float((counts.amax(1) / counts.sum(1)).mean())
    values = {"distinct": len(np.unique(s)), "equal shares": int(equal), "zero": 100 * float((s == 0).mean())}
    return values | {"median": float(np.median(s)), "share of top class": top, "counts": train_counts[:20].tolist()}


def upload_shares(counts: Tensor, sampled: Sequence[np.ndarray], similarity: Tensor) -> Tensor:
    """Share of client j's uploads in theta_i, [n, n], by the server's steps alone (equations 7 to 9)."""
    # `counts` are training samples by class, [n, n_classes]; `sampled` the participants of each round. The rest of a
    # row, up to 1, is the share of the initial weights.
    share, everyone = {"of": torch.zeros_like(similarity)}, torch.eye(len(similarity), dtype=similarity.dtype)
    for ids in map(torch.as_tensor, sampled):
        uploads, alpha = {"of": everyone[ids]}, self_weight(counts.sum(1), counts[ids].sum(1))
        share = put(pull(share, uploads, similarity[:, ids], alpha), ids, uploads)
    return share["of"]


def shares_by_class(train_counts: np.ndarray, sampled: Sequence[np.ndarray]) -> Kept:
    """Similarities (s) and upload shares (authors) of clients by main class; percentages of similar other clients."""
    counts, main = torch.from_numpy(train_counts).double(), train_counts.argmax(1)
    order, s = main.argsort(kind="stable"), label_similarity(counts, counts)
    shares = {"s_ij": upload_shares(counts, sampled, s), "equal": upload_shares(counts, sampled, torch.ones_like(s))}
    ordered = {name: m[order][:, order].numpy().round(3).tolist() for name, m in {"s": s, **shares}.items()}
    found = {"main": main[order].tolist(), "s": ordered.pop("s"), "authors": ordered}
    others = (~torch.eye(len(s), dtype=torch.bool)).double()
    of_others = {"chance": others} | {name: share * others for name, share in shares.items()}
    percent = {name: 100 * float((w * (s > SIMILAR)).sum() / w.sum()) for name, w in of_others.items() if w.sum() > 0}
    return found | percent


def shares_in_theta(seed: int, profile: str, name: str, n: int, kind: str, value: float) -> Kept:
    """Similarities and upload shares after the rounds of Fig. 3."""
    sizes, federation = PROFILES[profile], federation_of(profile, Column(name, n, kind, value), 0)
    sampled = cohorts(federation.n_clients, sizes.join_ratio, sizes.similarity_rounds, seed)
    return shares_by_class(federation.train_counts, sampled)


def supervisor_moves(seed: int, profile: str) -> Kept:
    """Rank correlations with the distance that s_i moves, from the second participation of a client on."""
    # `gain`: loss of (theta_i as it left the client + s_i) minus that of (theta_i as received + s_i). Clients whose
    # theta_i has not changed since are left out. "within clients": with ranks among a client's own rounds.
    sizes = PROFILES[profile]
    plan = prepare(**run(sizes, first(sizes), made(sizes, "fedsimsup"), sizes.moves_rounds).arguments(seed))
    session, algorithm, federation = Session(plan), plan.algorithm, plan.federation
    [group] = session.architectures
    records: list[tuple[float, ...]] = []
    with deterministic(plan.setting.device):
        state = session.init()
        last = {name: w.clone() for name, w in state.theta.items()}  # every theta_i when its client last took part
        for t in range(sizes.moves_rounds):
            cohort = session.cohort(t)
            part = cohort.subset(range(cohort.size), group.model)
            mine = [[own[i] for i in cohort.ids] for own in federation.parts]
            s = take(state.s.stacks[0], cohort.clients)
            pairs = [Pair(take(theta, cohort.clients), s) for theta in (last, state.theta)]
            old, new = ([mean_loss(part, pair, own) for own in mine] for pair in pairs)
            state = algorithm.round(state, cohort)
            put(last, cohort.clients, take(state.theta, cohort.clients))
            after = take(state.s.stacks[0], cohort.clients)
            moved = sum(((after[name] - w) ** 2).flatten(1).sum(1) for name, w in s.items()).sqrt()
            gains = [(before - now).tolist() for before, now in zip(old, new, strict=True)]  # train part, test part
            records += zip(cohort.ids.tolist(), new[0].tolist(), *gains, moved.tolist(), strict=True)
    table = comparable(records, federation.train_counts.sum(1))
    points = table[["received loss", "gain", "moved"]].astype(float)
    return {**correlations(table), "points": points[np.isfinite(points).all(axis=1)].round(4).to_numpy().tolist()}


def comparable(records: Sequence[tuple[float, ...]], samples: np.ndarray) -> pd.DataFrame:
    """The records with a gain, of records (client, received loss, gain, gain on test, moved) in the order of rounds."""
    table = pd.DataFrame(records, columns=["client", *CAUSES, "moved"]).astype({"client": int})
    table["samples"] = samples[table["client"].to_numpy()]
    return table[table.duplicated("client") & (table["gain"] != 0)]


def correlations(table: pd.DataFrame) -> Kept:
    """Rank correlations of `comparable` records with the distance that the supervisor moved."""
    ranks, own = table.rank(), table.groupby("client")[[*CAUSES, "moved"]].rank()
    often = table.groupby("client")["moved"].transform("size") > 1
    centred = (own - own.groupby(table["client"]).transform("mean"))[often]
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant has no correlation
        values = {name: ranks[name].corr(ranks["moved"]) for name in (*CAUSES, "samples")}
        values |= {f"{name} within clients": centred[name].corr(centred["moved"]) for name in CAUSES[:2]}
    better = {"better on train": table["gain"] > 0, "better on test": table["gain on test"] > 0}
    values |= {name: 100 * of.mean() for name, of in better.items()} | {"records": len(table)}
    return {name: float(value) for name, value in values.items() if np.isfinite(value)}


def parameters(seed: int, profile: str) -> Kept:
    """Parameters of theta and of L, C and T, for images of the paper's three data sets."""
    model = PROFILES[profile].model
    names = {"l": NETWORKS[model], "c": "small_cnn", "t": "small_vit"}
    makers = {"theta": MODELS[model]} | {kind: SUPERVISORS[name] for kind, name in names.items()}
    return {
        f"{name} {kind}": sum(w.numel() for w in build(kind, maker, *shape, seed).weights.values())
        for name, shape in SHAPES.items()
        for kind, maker in makers.items()
    }


def messages(seed: int) -> Kept:
    """Bytes that six of twelve clients with L, C and T send, on embedded digits."""
    data = fl.load("digits")
    few = data.subset(np.random.default_rng(0).permutation(len(data))[:480])
    federation = fl.federate(few, fl.dirichlet(0.3, min_size=8), 12, test_fraction=0.25)
    setting = dict(rounds=2, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05, seed=seed, progress=False)
    result = fl.run(fl.fedsimsup("mixed", 1), federation, "lenet5_plain", **setting)
    theta, sent = n_bytes(take(result.state.theta, torch.arange(6))), result.rounds["bytes_up"]
    found = {"theta": theta, "counts": n_bytes({"counts": result.state.counts}), "kinds": len(result.architectures)}
    return found | {f"beyond theta, round {t}": int(n) - theta for t, n in enumerate(sent, 1)}
