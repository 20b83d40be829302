"""Taking networks apart, grouping their blocks, searching chains, stitching: rules, identities and oracles."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle_reassembly import cka, medoids, search
from refusals import refused
from torch import nn

from fedlib.methods.pfedhr.blocks import CONV, FC, decompose, outputs
from fedlib.methods.pfedhr.grouping import block_distances, group
from fedlib.methods.pfedhr.reassemble import Network, reassemble
from fedlib.methods.pfedhr.record import NOTHING, appended, record, replay
from fedlib.methods.pfedhr.search import Piece, chains
from fedlib.methods.pfedhr.stitch import Link, added, assemble
from fedlib.models import MODELS, build

THIN = [f"m{i}_thin" for i in (1, 2, 3, 4)]
X = torch.from_numpy(np.random.default_rng(0).normal(size=(24, 3, 32, 32))).float()


def model_of(name: str, seed: int = 0):
    return build(name, MODELS[name], (3, 32, 32), 10, seed)


def pool_of(names=THIN, seed: int = 0) -> list[Network]:
    models = [model_of(name, seed + i) for i, name in enumerate(names)]
    return [Network(model, model.weights) for model in models]


# Blocks
def test_m1_to_m4_are_taken_apart_as_the_papers_blocks():
    """Types, channels and sides, features: the table of the four architectures."""
    expected = {
        "m1": "C10x14 C64x5 F50 F10",
        "m2": "C10x14 C64x5 C128x1 F128 F50 F10",
        "m3": "C6x28 C16x24 C32x20 C64x8 C128x4 F1024 F128 F64 F10",
        "m4": "C32x32 C64x16 C128x16 C128x8 C256x8 C256x4 F1024 F512 F256 F10",
    }
    for name, text in expected.items():
        blocks = decompose(model_of(name))
        said = [f"{'CF'[b.op]}{b.out_shape[0]}" + (f"x{b.out_shape[1]}" if b.op == CONV else "") for b in blocks]
        assert " ".join(said) == text
        assert [b.h for b in blocks] == list(range(1, len(blocks) + 1))
        assert [b.head for b in blocks] == [False] * (len(blocks) - 1) + [True]
        assert [b.in_shape for b in blocks] == [(3, 32, 32), *(b.out_shape for b in blocks[:-1])]
    widths = {"m1": [3, 10, 1600, 50], "m2": [3, 10, 64, 128, 128, 50]}
    assert all([b.width for b in decompose(model_of(name))] == own for name, own in widths.items())


def test_networks_that_are_no_sequence_are_refused():
    refused("'mobilenetv2' cannot be cut into blocks; it is not a sequence", decompose, model_of("mobilenetv2"))
    odd = build("odd", lambda s, n: nn.Sequential(nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, n)), (3, 2, 2), 4, 0)
    refused("model='odd' cannot be cut into blocks; 1 is an unknown LayerNorm", decompose, odd)


# Distances and groups
def test_distances_are_those_of_the_equation():
    pool = pool_of(["m1_thin", "m2_thin"])
    answers = [outputs(decompose(model), w, X) for model, w in pool]
    distances = block_distances(X, answers)
    inputs = [[X, *own[:-1]] for own in answers]
    flat_in, flat_out = ([t.double() for own in side for t in own] for side in (inputs, answers))
    blocks = list(zip(flat_in, flat_out, strict=True))
    oracle = [[1 / (cka(x, u) + cka(y, v)) for u, v in blocks] for x, y in blocks]
    np.testing.assert_allclose(distances, oracle, rtol=1e-4)
    assert np.array_equal(distances, distances.T)


def test_dead_blocks_are_far():
    x, y = (torch.from_numpy(np.random.default_rng(seed).normal(size=(20, 5))) for seed in (0, 1))
    dead = torch.zeros(20, 4, dtype=torch.float64)
    np.testing.assert_allclose(block_distances(x, [[y], [dead]])[1], 1)  # the images are alike, the answers are not
    assert block_distances(torch.zeros_like(x), [[dead, y]])[0, 1] == pytest.approx(1e8)  # in and out: the cap of eq. 3


def test_blocks_of_which_none_is_nearer_to_another_one_make_as_many_groups():
    assert sorted(map(len, group(np.full((4, 4), 0.5), [1, 2, 3, 4], 4))) == [1, 1, 1, 1]


@given(seed=st.integers(0, 10_000), n=st.integers(2, 30), k=st.integers(1, 12))
def test_groups_are_those_of_a_second_implementation_in_the_order_of_their_mean_depth(seed, n, k):
    rng = np.random.default_rng(seed)
    distances, depth = rng.uniform(0.5, 9, (n, n)), rng.integers(1, 9, n)
    distances = (distances + distances.T) / 2 * (1 - np.eye(n)) + 0.5 * np.eye(n)
    expected = sorted(medoids(distances, min(n, k)), key=lambda own: (depth[own].mean(), own))
    assert group(distances, depth, k) == expected
    assert sorted(i for members in expected for i in members) == list(range(n))


# The search
def pieces_of(shapes: list[tuple[int, int]]) -> list[Piece]:
    """Blocks of networks, so many convolutions and then so many linear layers each."""
    sizes = [(b, n_conv, n_conv + n_fc) for b, (n_conv, n_fc) in enumerate(shapes)]
    return [Piece(b, h, CONV if h <= n_conv else FC, h == n) for b, n_conv, n in sizes for h in range(1, n + 1)]


@st.composite
def grouped(draw):
    """Blocks of networks dealt to groups in any order."""
    pieces = pieces_of(draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=4)))
    k = draw(st.integers(2, min(6, len(pieces))))
    labels = draw(st.lists(st.integers(0, k - 1), min_size=len(pieces), max_size=len(pieces)))
    groups = [[i for i, label in enumerate(labels) if label == j] for j in range(k)]
    return pieces, [members for members in groups if members]


@given(grouped(), st.booleans())
def test_the_search_finds_what_a_second_implementation_finds(case, end_in_head):
    expected = search(*case, end_in_head)
    assert [(k, [*chain]) for k, own in enumerate(chains(*case, end_in_head)) for chain in own] == expected


def test_the_candidate_of_figure_7_comes_out_of_its_groups():
    """Conv2-M1, Conv3-M2, Conv4-M3, Conv5-M3, FC3-M2: all blocks of M1 to M4 are there, several fit at each step."""
    shapes = [(2, 2), (3, 3), (5, 4), (6, 4)]
    pieces = pieces_of(shapes)
    names = [f"Conv{p.h}-M{p.b + 1}" if p.op == CONV else f"FC{p.h - shapes[p.b][0]}-M{p.b + 1}" for p in pieces]
    place = {name: i for i, name in enumerate(names)}
    words = [
        "Conv1-M1 Conv1-M2 Conv1-M3 Conv1-M4 Conv2-M1 Conv2-M2 Conv2-M3 Conv2-M4 Conv3-M2 Conv3-M3 Conv3-M4 FC1-M1",
        "Conv4-M3 Conv4-M4 Conv5-M4 FC1-M2 FC2-M2",
        "Conv5-M3 Conv6-M4 FC1-M3 FC1-M4",
        "FC2-M1 FC3-M2 FC4-M3 FC4-M4",
    ]
    heads, hidden = words[-1], "FC2-M3 FC3-M3 FC2-M4 FC3-M4"

    def from_conv2_m1(last, **reading):
        groups = [[place[name] for name in text.split()] for text in (*words[:3], last)]
        assert sum(map(len, groups)) == 29 - (last == heads) * len(hidden.split())
        (own, *others) = chains(pieces, groups, **reading)
        assert others == [[], [], []]  # nothing of the first group is deep enough to follow
        [chain] = [chain for chain in own if chain[0] == place["Conv2-M1"]]
        return [list(place)[i] for i in chain]

    printed = ["Conv2-M1", "Conv3-M2", "Conv4-M3", "Conv5-M3", "FC3-M2"]
    assert from_conv2_m1(heads) == printed
    assert from_conv2_m1(f"{heads} {hidden}") == [*printed[:4], "FC2-M3"]  # a head only where nothing else fits
    assert from_conv2_m1(f"{heads} {hidden}", end_in_head=True) == printed


# Stitches
def test_candidates_hold_copies_of_the_blocks_and_drawn_stitches():
    pool = pool_of()
    blocks = [decompose(model) for model, _ in pool]
    before = [{name: t.clone() for name, t in w.items()} for _, w in pool]
    chain = [Link(0, blocks[0][1]), Link(2, blocks[2][2]), Link(3, blocks[3][3]), Link(1, blocks[1][3])]
    first, again, other = (assemble(chain, [w for _, w in pool], pool[0].model, 2, (seed,)) for seed in (0, 0, 1))
    assert all(torch.equal(t, again.weights[name]) for name, t in first.weights.items())
    drawn = [name for name, t in first.weights.items() if not torch.equal(t, other.weights[name])]
    assert {name.partition(".")[0] for name in drawn} == {"stitch1", "stitch2", "stitch3", "stitch4", "classifier"}
    assert torch.equal(first.weights["block2.0.weight"], pool[2].w["conv3.0.weight"])
    assert added(first) == sum(first.weights[name].numel() for name in drawn)
    assert first.net.train()(X).shape == (24, 10)
    for t in first.weights.values():
        t.add_(1)
    assert all(torch.equal(t, before[b][name]) for b, (_, w) in enumerate(pool) for name, t in w.items())


@given(grouped=st.integers(2, 6), seed=st.integers(0, 3))
def test_every_candidate_of_m1_to_m4_answers_logits(grouped, seed):
    tried = reassemble(pool_of(seed=seed), X, grouped, most=4, depth=1, stream=(seed,))
    assert 1 <= len(tried.candidates) <= 4
    for candidate in tried.candidates:
        assert candidate(candidate.weights, X[:2]).shape == (2, 10)


# A whole reassembly, and its record
def test_a_pool_without_convolutions_gives_no_candidate():
    def linear(shape, n_classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 8), nn.ReLU(), nn.Linear(8, n_classes))

    model = build("linear", linear, (3, 32, 32), 10, 0)
    tried = reassemble([Network(model, model.weights)] * 2, X, 4, 10, 1, (0,))
    assert (tried.found, tried.candidates, len(tried.groups)) == (0, [], 2)


def test_a_record_says_what_was_tried_and_is_read_back():
    pool, deepest = pool_of(["m2_thin", "m1_thin"]), 9
    tried = reassemble(pool, X, 3, most=4, depth=1, stream=(0,))
    k, n = len(tried.candidates), [len(decompose(model)) for model, _ in pool]
    models, similarity = [model_of(name) for name in ("m3_thin", "m1_thin", "m2_thin")], torch.rand(3, 4)[:, :k]
    row = record(tried, pool, models, 4, torch.tensor([2, 5, 9]), similarity, [1, 0, 1], torch.tensor([0.5, -1, 1]))
    log = appended(appended({}, row), row)
    assert {name: tuple(t.shape) for name, t in log.items()} == {
        "clients": (2, 3), "network": (2, 3), "group": (2, 3, deepest), "distance": (2, 3, deepest, 3, deepest),
        "found": (2,), "used": (2,), "chain": (2, 4, deepest, 2), "added": (2, 4), "size": (2, 4),
        "similarity": (2, 3, 4), "match": (2, 3), "right": (2, 3),
    }  # fmt: skip
    assert (row["group"] != NOTHING).sum(1).tolist() == [*n, 0]
    assert (row["distance"].isfinite().sum(), row["used"]) == (sum(n) ** 2, len(tried.groups))
    assert row["added"].tolist() == [*map(added, tried.candidates)] + (4 - k) * [NOTHING]
    sizes = [sum(own.weights[name].numel() for name in own.trainable) for own in tried.candidates]
    assert row["size"].tolist() == sizes + (4 - k) * [NOTHING]

    said, places = replay(log, 1), [(piece.b, piece.h) for piece in tried.pieces]
    assert (said.clients, said.networks, said.match, said.found) == ([2, 5, 9], [2, 1], [1, 0, 1], tried.found)
    assert said.right == [0.5, -1, 1]
    assert said.group == {places[i]: j for j, members in enumerate(tried.groups) for i in members}
    assert list(said.group) == places
    np.testing.assert_allclose(said.distance, tried.distances, rtol=1e-6)
    assert said.candidates == [[places[i] for i in chain] for chain in tried.chains]
    np.testing.assert_array_equal(said.similarity, similarity)


def test_records_of_rounds_with_more_and_with_fewer_clients_are_read_back():
    rows = []
    for kinds, clients in ((["m2_thin", "m1_thin"], [2, 5]), (["m1_thin", "m2_thin", "m3_thin"], [1, 4, 9])):
        pool, k = pool_of(kinds), len(clients)
        tried = reassemble(pool, X, 3, most=4, depth=1, stream=(0,))
        models = [model_of("m3_thin"), *map(model_of, kinds[:2])]
        similarity = torch.rand(k, 4)[:, : len(tried.candidates)]
        rows.append(record(tried, pool, models, 4, torch.tensor(clients), similarity, [0] * k, torch.rand(k)))
    for order in (rows, rows[::-1]):
        log = appended(appended({}, order[0]), order[1])
        short = int(order is not rows)
        assert (log["clients"][short].tolist(), log["match"][short].tolist()) == ([2, 5, NOTHING], [0, 0, NOTHING])
        assert (log["similarity"][short, 2] == -torch.inf).all()
        assert (log["distance"][short, 2] == torch.inf).all()
        for t, row in enumerate(order):
            whole, alone = replay(log, t), replay(appended({}, row), 0)
            for found, expected in zip(whole, alone, strict=True):
                assert np.array_equal(found, expected) if isinstance(found, np.ndarray) else found == expected
