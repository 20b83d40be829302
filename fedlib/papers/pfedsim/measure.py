"""pFedSim: measurements other than accuracy, and further values in the row of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

import fedlib as fl
from fedlib import similarity
from fedlib.algorithm import Algorithm
from fedlib.federation import Federation
from fedlib.models import MODELS, build, features
from fedlib.runs import Session, prepare
from fedlib.studies.tasks import Images, Kept, Run, images
from fedlib.studies.timing import in_turns, next_round, seconds
from fedlib.training import cross_entropy, evaluate, on_device, train

LAYERS = {0: "conv1.2", 1: "conv2.2", 2: "fc1.0", 3: "fc2.0", 4: "classifier"}  # before pooling and before ReLU
PAIRS = {"i-i'": (0, 1), "i-j": (0, 2), "j-k": (2, 3), "i-k": (0, 3)}
LABELS = (range(5), range(5), range(2, 7), range(5, 10))  # of i, i', j and k
DOMAINS = ("Clipart", "Infograph", "Painting", "Quickdraw", "Real", "Sketch")
Arguments = Mapping[str, object]  # of `fl.run` by name
VARIANTS = (("per_class", 1e-4), ("per_class", 1e-1), ("mean_cos", 1e-4))  # similarity and cap


def by_domain(result: fl.RunResult) -> Kept:
    """Accuracy pooled over the test images of each domain, and over all."""
    n = len(result.accuracy["client"].unique()) // len(DOMAINS)  # the clients of a domain are consecutive
    scores = {name: result.score(clients=list(range(d * n, (d + 1) * n))) for d, name in enumerate(DOMAINS)}
    return scores | {"Average": result.score()}


def learned(run: Run, result: fl.RunResult) -> Kept:
    """Agreement of the server's Phi with the data similarity over pairs sampled together, and both by main classes."""
    federation = run.arguments(0)["federation"]
    truth, phi = true_similarity(federation), result.state.similarity.numpy()
    i, j = np.nonzero(np.triu(phi, 1))
    if len(i) < 3 or np.ptp(phi[i, j]) == 0 or np.ptp(truth[i, j]) == 0:
        return {"pairs": len(i)}
    tau, r = similarity.agreement(phi[i, j], truth[i, j])
    main, classes = federation.counts().argmax(1), len(federation.data.classes)
    i, j = np.concatenate([i, j]), np.concatenate([j, i])
    found = {"tau": float(tau), "r": float(r), "pairs": len(i) // 2}
    for name, matrix in {"phi": phi, "truth": truth}.items():
        total, n = np.zeros((2, classes, classes))
        np.add.at(total, (main[i], main[j]), matrix[i, j])
        np.add.at(n, (main[i], main[j]), 1)
        mean = np.divide(total, n, out=np.full_like(total, -1), where=n > 0)  # -1: no such pair
        found[name] = mean.round(3).tolist()
    return found


def true_similarity(federation: Federation) -> np.ndarray:
    """Equation (1) for all pairs of clients: [n_clients, n_clients]."""
    y = [federation.data.y[own] for own in federation.train]
    return np.array([[similarity.data_similarity(a, b) for b in y] for a in y])


def alone(federation: Federation, epochs: int, setting: Arguments, seed: int) -> fl.RunResult:
    """Local-Only: one round of `epochs` epochs."""
    return fl.run("local_only", federation, rounds=1, local_epochs=epochs, **setting, seed=seed, progress=False)


def layers_alike(seed: int, source: Images, min_size: int, epochs: int, setting: Arguments, n_images: int) -> Kept:
    """Fig. 1: linear CKA of ten models trained alone, by layer: the matrices, and the means over pairs."""
    data = images(source)
    federation = fl.federate(data, fl.dirichlet(0.1, min_size), 10)
    ten = alone(federation, epochs, setting, seed)
    unseen = np.random.default_rng(0).permutation(np.concatenate(federation.test))[:n_images]
    x = on_device(data, torch.device("cpu")).batch(torch.from_numpy(unseen), ten.model).x
    answers = [features(ten.model, ten.weights(i), x, {str(k): name for k, name in LAYERS.items()}) for i in range(10)]
    matrices = {k: similarity.cka_matrix([answer[str(k)] for answer in answers]).numpy() for k in LAYERS}
    off = ~np.eye(10, dtype=bool)
    means = {f"layer={k}": float(matrix[off].mean()) for k, matrix in matrices.items()}
    return means | {f"matrix {k}": matrix.round(4).tolist() for k, matrix in matrices.items()}


def four_clients(seed: int, source: Images, epochs: int, setting: Arguments) -> Kept:
    """Fig. 2 and Table 2: five measures for four pairs of clients, and the cosines of their classifiers' rows."""
    data = images(source)
    federation = fl.federate(data, fl.label_groups([list(labels) for labels in LABELS]), 4, seed=seed)
    result, found = alone(federation, epochs, setting, seed), {}
    model, pixels = result.model, on_device(data, torch.device("cpu"))
    [phi] = [name for name in model.classifier if name.endswith("weight")]
    for pair, (i, j) in PAIRS.items():
        theta = [result.weights(c) for c in (i, j)]
        free = [{name: w[name] for name in model.trainable} for w in (*theta, model.weights)]
        both = {name: torch.stack([w[name] for w in theta]) for name in theta[0]}
        _, losses = evaluate(model, pixels, both, [federation.test[i]] * 2)  # both models on client i's test half
        cosines = similarity.row_cosines(theta[0][phi], theta[1][phi])
        found |= {
            f"DataSimilarity {pair}": similarity.data_similarity(*(data.y[federation.train[c]] for c in (i, j))),
            f"WDB {pair}": similarity.wdb(*map(similarity.bn_statistics, theta)),
            f"MDB {pair}": similarity.update_cosine(*free),
            f"LDB {pair}": similarity.ldb(*losses.tolist(), similarity.parameter_distance(*free[:2])),
            f"CS {pair}": float(cosines.mean()),
            f"rows {pair}": [round(float(value), 4) for value in cosines],
        }
    return found


def stages(
    seed: int, source: Images, alpha: float, clients: int, min_size: int, setting: Arguments, rounds: Sequence[int]
) -> Kept:
    """Kendall's tau and Pearson's r of classifier and data similarity after rounds of FedAvg and one local training."""
    federation = fl.federate(images(source), fl.dirichlet(alpha, min_size), clients)
    truth, found = true_similarity(federation)[np.triu_indices(clients, 1)], {}
    everyone = prepare(fl.fedavg(), federation, rounds=1, seed=seed, **{**setting, "join_ratio": 1.0, "device": "cpu"})
    session = Session(everyone)
    for t in rounds:
        w = session.model.weights
        if t:
            w = fl.run("fedavg", federation, rounds=t, evaluate_every=t, seed=seed, **setting, progress=False).weights(
                0
            )
        cohort = session.cohort(0)
        w_i = train(cohort, cross_entropy, cohort.broadcast(dict(w)))
        [phi] = [name for name in session.model.classifier if name.endswith("weight")]
        for kind, cap in VARIANTS:
            matrix = similarity.similarity_matrix(w_i[phi], kind, cap).numpy()
            tau, r = similarity.agreement(matrix[np.triu_indices(clients, 1)], truth)
            found |= {f"tau {t} {kind} {cap:g}": float(tau), f"r {t} {kind} {cap:g}": float(r)}
    return {name: value for name, value in found.items() if np.isfinite(value)}  # undefined if all pairs are at the cap


def client_sizes(seed: int, source: Images, alpha: float, clients: int, min_size: int) -> Kept:
    """Table 4 and Fig. 3: mean and standard deviation of the clients' sizes, and their images by class."""
    data = images(source)
    federation = fl.federate(data, fl.dirichlet(alpha, min_size), clients, seed=seed)
    n, facts = federation.sizes, {"samples": len(data), "classes": len(data.classes)}
    return facts | {"mean": float(n.mean()), "std": float(n.std()), "counts": federation.counts().tolist()}


def domain_sizes(seed: int, source: Images) -> Kept:
    """Table 8(a): images of each domain."""
    data = images(source)
    return {name: int((data.domain == d).sum()) for d, name in enumerate(data.domains)}


SINGLE = (fl.local_only, fl.fedavg, fl.fedprox, fl.feddyn, fl.fedgen, fl.fedbn)
PERSONAL = (fl.perfedavg, fl.fedper, fl.fedrep, fl.fedap, fl.pfedsim)
FACTORIES = {f.__name__: f for f in SINGLE + PERSONAL} | {"fedfomo": partial(fl.fedfomo, explore=0)}


def made(name: str) -> Algorithm:
    """A method with the paper's hyper-parameters."""
    return FACTORIES[name]()


def costs(
    seed: int, methods: Sequence[str], source: Images, clients: int, min_size: int, setting: Arguments, model: str
) -> Kept:
    """Table 7: time per sample of each method, and scalars that a client receives and sends in the last round."""
    # The methods take turns because the speed of a machine varies. Timed are whole rounds, server included, without the
    # first one, a warm-up, and the last one, in which every method sends all kinds of its messages.
    federation = fl.federate(images(source), fl.dirichlet(0.1, min_size), clients)
    plans = {name: prepare(made(name), federation, model, seed=seed, **setting) for name in methods}
    sessions = {name: Session(plan) for name, plan in plans.items()}
    rounds = {name: next_round(session) for name, session in sessions.items()}
    sampled, device = sessions[methods[0]].sampled, sessions[methods[0]].device  # the same for all methods
    taken = in_turns(rounds, len(sampled) - 2, partial(seconds, device=device))
    own = np.array([sum(len(federation.train[i]) for i in ids) for ids in sampled[1:-1]])
    held_out = {name: plan.algorithm.hyper.get("validation", 0) for name, plan in plans.items()}  # by FedFomo
    times = {name: np.array(taken[name]) / (1 - held_out[name]) / own for name in methods}
    found: dict[str, float] = {}
    for name in methods:
        last = rounds[name]()
        found |= {
            f"xi_p_1e-4s {name}": 1e4 * float(np.median(times[name])),
            f"relative_time {name}": float(np.median(times[name] / times[methods[0]])),
            f"scalars_down {name}": last.channel.bytes_down / 4 / last.size,
            f"scalars_up {name}": last.channel.bytes_up / 4 / last.size,
        }
    return found


def needs(seed: int, method: str) -> Kept:
    """Table 1: traffic of a method in models; whether its weights change if images outside the train parts do."""
    data = fl.load("digits", copies=1).subset(np.arange(240))
    federation = fl.federate(data, fl.iid(), 8, seed=seed)
    spare = np.setdiff1d(np.arange(len(data)), np.concatenate(federation.train))
    swapped = data.x.copy()
    swapped[spare] = swapped[np.random.default_rng(seed).permutation(spare)]
    others = replace(federation, data=replace(data, x=swapped))
    setting = dict(rounds=3, local_epochs=1, batch_size=15, lr=0.05, seed=seed, progress=False)
    one, other = (fl.run(made(method), each, **setting) for each in (federation, others))
    model = 4 * sum(w.numel() for w in one.model.weights.values()) * federation.n_clients  # bytes
    up, down = one.rounds["bytes_up"] / model, one.rounds["bytes_down"] / model
    same = all(torch.equal(w, other.models[name]) for name, w in one.models.items())
    return {
        "models up and down": float((up + down).iloc[-1]),
        "most models up": float(up.max()),
        "looks at data of others": int(not same),
    }


def networks(seed: int) -> Kept:
    """Tables 5 and 9: parameters of LeNet5 by layer, and of MobileNetV2 by block."""
    lenet = build("lenet5", MODELS["lenet5"], (3, 32, 32), 10, seed)
    mobile = build("mobilenetv2", MODELS["mobilenetv2"], (3, 64, 64), 200, seed)
    found: dict[str, int] = {}
    for table, model, depth in (("table5", lenet, 1), ("table9", mobile, 2)):
        for name in model.trainable:
            layer = f"{table} {'.'.join(name.split('.')[:depth])}"
            found[layer] = found.get(layer, 0) + model.weights[name].numel()
    return found
