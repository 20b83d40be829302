"""pFedHR: further values in the row of a run: other accuracies, the search for candidates, teachers."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

import fedlib as fl
from fedlib.methods.pfedhr import CONV, FC, Piece, block_names, chains, decompose, group, replay
from fedlib.methods.pfedhr.blocks import Block
from fedlib.methods.pfedhr.record import Round
from fedlib.runs import cohorts
from fedlib.runs.determinism import deterministic
from fedlib.studies.tasks import Kept, Run
from fedlib.training import on_device
from fedlib.training.evaluation import MixedEvaluation

LAST = 3  # evaluations averaged for an accuracy
GROUPS = range(2, 9)  # numbers of groups to try on the distances of every round
Chain = Sequence[tuple[int, int]]  # network in the pool, depth of a block
Networks = Sequence[Sequence[Block]]  # the blocks of each architecture


def details(task: Run, global_images: int, result: fl.RunResult) -> Kept:
    """Accuracies [%] of active clients and on all classes; for pFedHR also the search and the teachers."""
    with deterministic("cpu"):
        federation = task.arguments(int(str(result.config["seed"])))["federation"]
        found = {"active": of_active(result, federation.n_clients, float(str(task.setting["join_ratio"])))}
        if len(result.model.others):
            found["all classes"] = on_all_classes(result, federation, global_images)
        if task.algorithm.name == "pfedhr":
            history = [replay(result.state.log, t) for t in range(len(result.rounds))]
            networks = [decompose(own.model) for own in result.architectures]
            found |= searched(result, history, networks, int(task.algorithm.hyper["groups"]))
            found |= teachers(result, federation, history, networks) | lessons(result, history, networks)
        if task.algorithm.name == "taught":
            test = np.concatenate(federation.test)
            right = result.state.answers[test].argmax(1).numpy() == federation.data.y[test]
            found["teacher on test images"] = 100 * float(right.mean())
        return found


def of_active(result: fl.RunResult, n_clients: int, join_ratio: float) -> float:
    """Accuracy [%] of the clients that have just trained, mean over them and over the last evaluations."""
    drawn = cohorts(n_clients, join_ratio, len(result.rounds), int(str(result.config["seed"])))
    frame = result.accuracy[result.accuracy["when"] == result.when].set_index(["round", "client"])["accuracy"]
    rounds = frame.index.get_level_values("round").unique()[-LAST:]
    return float(np.mean([frame.loc[t].loc[drawn[t - 1]].mean() for t in rounds]))


def on_all_classes(result: fl.RunResult, federation: fl.Federation, n_images: int) -> float:
    """Accuracy [%] of all clients' last models on the same images, drawn from the test parts of all clients."""
    test = np.random.default_rng(0).permutation(np.concatenate(federation.test))[:n_images]
    images = on_device(federation.data, torch.device("cpu"))
    hits, _ = MixedEvaluation(images, [test] * federation.n_clients, result.architectures)(result.models)
    return 100 * hits.double().mean().item() / len(test)


def searched(result: fl.RunResult, history: Sequence[Round], networks: Networks, n_groups: int) -> Kept:
    """Number and composition of the candidates, also by number of groups; `matched` has the teachers.

    M: candidates found in a round, with the number of groups of the run; kept: those that are used; fewer groups [%]:
    rounds with fewer groups than that; unmatched [%]: clients without a teacher; two or more [%]: rounds with at least
    two candidates; kinds: different architectures among the candidates of a round; repeated [%]: rounds with two equal
    candidates; legal [%]: candidates that obey R1 to R4; sources: clients whose blocks a teacher has; changed [%]:
    clients whose first and last teacher have different blocks.
    """
    log = result.state.log
    by_groups = np.array([[count(seen, networks, k) for k in GROUPS] for seen in history])
    all_chains = [(seen, chain) for seen in history for chain in seen.candidates]
    found = {
        "M": np.mean([seen.found for seen in history]),
        "kept": np.mean([len(seen.candidates) for seen in history]),
        "fewer groups": 100 * (log["used"] < n_groups).double().mean().item(),
        "unmatched": 100 * (log["match"] < 0).double().mean().item(),
        "two or more": 100 * np.mean([seen.found >= 2 for seen in history]),
        "kinds": np.mean([len({shape_of(seen, chain) for chain in seen.candidates}) for seen in history]),
        "repeated": 100 * np.mean([len(set(map(tuple, s.candidates))) < len(s.candidates) for s in history]),
    }
    if all_chains:
        found["legal"] = 100 * np.mean([keeps_rules(seen, networks, chain) for seen, chain in all_chains])
    kept = {name: round(float(value), 4) for name, value in found.items()}
    kept |= {"M by groups": by_groups.mean(0).round(4).tolist()}
    kept |= {"none by groups": (100 * (by_groups == 0)).mean(0).round(4).tolist()}
    return kept | matched(history, networks)


def matched(history: Sequence[Round], networks: Networks) -> Kept:
    """Changes of the clients' teachers, and the sources of their blocks; two teachers of a client in words (Fig. 7)."""
    own: dict[int, list[tuple[int, Chain]]] = {}
    for t, seen in enumerate(history):
        for client, m in zip(seen.clients, seen.match, strict=True):
            if m >= 0:
                own.setdefault(client, []).append((t, seen.candidates[m]))
    if not own:
        return {}
    sources = np.mean([len({b for b, _ in chain}) for pairs in own.values() for _, chain in pairs])
    shapes = {i: [shape_of(history[t], chain) for t, chain in pairs] for i, pairs in own.items() if len(pairs) > 1}
    client = max(own, key=lambda i: len(own[i]))
    (first, one), (last, other) = own[client][0], own[client][-1]
    kept = {"sources": round(float(sources), 4), "client": client, "rounds": [first + 1, last + 1]}
    kept |= {"teachers in words": [in_words(history[t], networks, c) for t, c in ((first, one), (last, other))]}
    if shapes:
        kept["changed"] = round(100 * float(np.mean([shape[0] != shape[-1] for shape in shapes.values()])), 4)
    return kept


def teachers(result: fl.RunResult, federation: fl.Federation, history: Sequence[Round], networks: Networks) -> Kept:
    """Accuracy [%] of the last teachers on their clients' training images; teachers [%] that end in a client's head."""
    y, said = torch.from_numpy(federation.data.y), result.state.answers.argmax(1)
    own = [federation.train[i] for i in np.flatnonzero(result.state.matched.numpy() >= 0)]
    ends = [(seen.networks[b], h) for seen in history for m in seen.match if m >= 0 for b, h in seen.candidates[m][-1:]]
    if not ends:
        return {}
    right = [(said[i] == y[i]).double().mean().item() for i in own]
    heads = [networks[n][h - 1].head for n, h in ends]
    return {"teachers": round(100 * float(np.mean(right)), 4), "with a head": round(100 * float(np.mean(heads)), 4)}


def lessons(result: fl.RunResult, history: Sequence[Round], networks: Networks) -> Kept:
    """Every teacher of every round; the first and the last round in full.

    lessons: [round, client, accuracy of the teacher on the client's training images [%], blocks], the blocks being
    [client, architecture, h]; the client is -1 where the server has averaged clients. architectures: block names.
    """
    found = []
    for t, seen in enumerate(history, 1):
        averaged = len(seen.networks) < len(seen.clients)
        for client, m, right in zip(seen.clients, seen.match, seen.right, strict=True):
            chain = seen.candidates[m] if m >= 0 else []
            blocks = [[-1 if averaged else seen.clients[b], seen.networks[b], h] for b, h in chain]
            found += [[t, client, round(100 * right, 1), blocks]] if blocks else []
    names = {own.model.name: block_names(blocks) for own, blocks in zip(result.architectures, networks, strict=True)}
    full = [packed(t, history[t - 1]) for t in sorted({1, len(history)})]
    return {"lessons": found, "architectures": names, "full": full}


def packed(t: int, seen: Round) -> Kept:
    """A round as JSON: similarities of blocks in percent, the upper triangle."""
    upper = np.triu_indices(len(seen.distance), 1)
    row = {"round": t, "clients": seen.clients, "networks": seen.networks, "found": seen.found, "match": seen.match}
    row |= {"group": [[b, h, k] for (b, h), k in seen.group.items()], "candidates": seen.candidates}
    row |= {"right": [round(share, 3) for share in seen.right], "similarity": seen.similarity.round(3).tolist()}
    return row | {"alike": (100 / seen.distance[upper]).round().astype(int).tolist()}


def unpacked(row: Kept) -> Round:
    """The inverse of `packed`; a block has a similarity of 200 % with itself."""
    n = len(row["group"])
    alike = np.full((n, n), 200.0)
    alike[np.triu_indices(n, 1)] = row["alike"]
    alike = np.minimum(alike, alike.T)
    candidates = [[(b, h) for b, h in chain] for chain in row["candidates"]]
    group = {(b, h): k for b, h, k in row["group"]}
    same = {name: row[name] for name in ("clients", "networks", "found", "match", "right")}
    distance = 100 / np.maximum(alike, 1)
    return Round(group=group, distance=distance, candidates=candidates, similarity=np.array(row["similarity"]), **same)


def count(seen: Round, networks: Networks, k: int) -> int:
    """Number of candidates with k groups, from the distances of a round."""
    blocks = {(b, h): networks[seen.networks[b]][h - 1] for b, h in seen.group}
    pieces = [Piece(b, h, block.op, block.head) for (b, h), block in blocks.items()]
    return sum(map(len, chains(pieces, group(seen.distance.astype(float), [piece.h for piece in pieces], k))))


def shape_of(seen: Round, chain: Chain) -> tuple[tuple[int, int], ...]:
    """Architecture and depth of the blocks of a candidate, without their clients."""
    return tuple((seen.networks[b], h) for b, h in chain)


def keeps_rules(seen: Round, networks: Networks, chain: Chain) -> bool:
    """True if a candidate obeys R1 to R4, by the blocks of the networks."""
    blocks = [networks[seen.networks[b]][h - 1] for b, h in chain]
    deeper = all(after.h > before.h for before, after in pairwise(blocks))
    ordered = all(after.op >= before.op for before, after in pairwise(blocks))
    drawn = {seen.group[link] for link in chain}
    return deeper and ordered and {block.op for block in blocks} == {CONV, FC} and drawn == set(seen.group.values())


def in_words(seen: Round, networks: Networks, chain: Chain) -> list[str]:
    """The blocks of a candidate as in Fig. 7: "Conv2-M1"."""
    names = [block_names(blocks) for blocks in networks]
    return [f"{names[seen.networks[b]][h - 1]} of network {seen.networks[b] + 1}" for b, h in chain]
