"""FedSimSup, its supervisors and the baselines that came with it: FedProto, FedPAC and Per-FedAvg without a Hessian."""

import importlib
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import test_baselines
import torch
from archives import pictures
from phases import batches_of, phase
from test_baselines import close
from torch.func import grad
from torch.utils._pytree import tree_leaves, tree_map
from trees import same_bits

import fedlib as fl
from fedlib.algorithm import architectures_of
from fedlib.data import Dataset
from fedlib.engine.backends import BACKENDS
from fedlib.methods.fedpac import head_weights, simplex_minimum
from fedlib.methods.fedproto import Prototypes, mean_prototypes
from fedlib.methods.fedsimsup.fedsimsup import Pair, label_similarity, pull, self_weight
from fedlib.methods.fedsimsup.supervisors import SUPERVISORS
from fedlib.methods.perfedavg import hessian_free
from fedlib.models import MODELS, Model, build
from fedlib.models.ensemble import Ensemble
from fedlib.runs.plan import cohorts
from fedlib.runs.prepare import prepare
from fedlib.stack import repeat, take
from fedlib.training.batches import client_batches
from fedlib.training.cohort import Cohort
from fedlib.training.evaluation import Evaluation, class_features
from fedlib.training.local import train
from fedlib.training.losses import cross_entropy

SETTING = dict(rounds=3, join_ratio=0.5, local_epochs=2, batch_size=16, lr=0.05, model="lenet5_plain")
EXACT = SETTING | {"dtype": "float64"}
KINDS = sorted(SUPERVISORS)


def cohort_of(federation: fl.Federation, t: int, method="fedavg", backend: str = "loop", **setting) -> Cohort:
    """The cohort of round t (the first is 0) of a run with this setting."""
    return test_baselines.cohort_of(federation, t, backend, method, **EXACT | setting)


def start_of(method: fl.Algorithm, federation: fl.Federation, **setting) -> tuple[Model, object]:
    """The run's model and the initial state."""
    plan = prepare(method, federation, **EXACT | setting)
    return plan.model, plan.algorithm.init(plan.model, federation)


# Supervisors, and two networks as one


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("small_lenet", (10_318, 11_778, 8_074)),
        ("small_lenet4", (146_301, 153_756, 100_844)),
        ("small_cnn", (1_562, 3_092, 2_302)),
        ("small_vit", (142_026, 147_876, 142_398)),
    ],
)
def test_supervisors_have_their_sizes_on_cifar10_cifar100_and_femnist(kind, parameters):
    for expected, shape, n_classes in zip(
        parameters, [(3, 32, 32), (3, 32, 32), (1, 28, 28)], (10, 100, 62), strict=True
    ):
        model = build(kind, SUPERVISORS[kind], shape, n_classes, seed=0)
        assert sum(w.numel() for w in model.weights.values()) == expected
        assert model.classifier == {"classifier.weight", "classifier.bias"}
        assert model(model.weights, torch.zeros(2, *shape)).shape == (2, n_classes)
    assert kind not in MODELS


@pytest.mark.parametrize(("kind", "name"), [("small_lenet", "lenet5_plain"), ("small_lenet4", "lenet4")])
def test_the_small_lenet_is_a_sixth_of_the_large_one(kind, name):
    for shape, n_classes in (((3, 32, 32), 10), ((3, 32, 32), 100), ((1, 28, 28), 62)):
        small, large = (
            sum(w.numel() for w in build("m", builder, shape, n_classes, 0).weights.values())
            for builder in (SUPERVISORS[kind], MODELS[name])
        )
        assert small * 6 / large == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("kind", "shape", "reason"),
    [
        ("small_lenet", (3, 15, 32), "small_lenet needs images of at least 16x16 pixels"),
        ("small_cnn", (3, 7, 32), "small_cnn needs images of at least 8x8 pixels"),
        ("small_vit", (3, 30, 32), "small_vit needs a height and a width divisible by 4"),
    ],
)
def test_images_that_a_supervisor_cannot_take_are_refused(kind, shape, reason):
    with pytest.raises(ValueError, match=reason):
        build(kind, SUPERVISORS[kind], shape, 10, seed=0)


def test_a_block_of_the_transformer_is_that_of_pytorch():
    net = SUPERVISORS["small_vit"]((3, 8, 8), 10).double().eval()
    block, oracle = net.blocks[0], torch.nn.TransformerEncoderLayer(64, 4, 128, 0.0, "gelu", 1e-5, True, True).double()
    names = {"self_attn.in_proj_": "qkv.", "self_attn.out_proj.": "out.", "linear1.": "mlp.0.", "linear2.": "mlp.2."}
    own = block.state_dict()
    for theirs, mine in names.items():
        own |= {theirs + part: own.pop(mine + part) for part in ("weight", "bias")}
    oracle.load_state_dict(own)
    z = torch.randn(3, 5, 64, dtype=torch.float64)
    torch.testing.assert_close(block(z), oracle.train()(z))


def test_the_transformer_sees_patches_in_their_order():
    net, x = SUPERVISORS["small_vit"]((3, 8, 12), 10), torch.randn(2, 3, 8, 12)
    seen = []
    net.embedding.register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    net(x)
    assert seen[0].shape == (2, 6, 48)
    assert torch.equal(seen[0][:, 5].unflatten(1, (3, 4, 4)), x[:, :, 4:, 8:])


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_a_pair_is_the_same_by_loop_and_by_stack(kind):
    theta = build("lenet5_plain", MODELS["lenet5_plain"], (3, 16, 16), 4, seed=0)
    both, one = Ensemble(Pair(theta, theta.sibling(kind, SUPERVISORS[kind]))), np.zeros(12, np.int64)
    data = Dataset(
        "tiny", pictures(12, 3, 16, 16), np.arange(12) % 4, tuple("abcd"), one.astype(np.uint8), one, ("tiny",)
    )
    clients = phase(both, data, np.arange(12).reshape(2, 6), batch_size=6)
    (loop, _), (stacked, _) = (
        BACKENDS[backend](torch.device("cpu"), None, True)(clients) for backend in ("loop", "stacked")
    )
    assert close(loop, stacked)
    before = zip(tree_leaves(loop), tree_leaves(both.weights), strict=True)
    assert not any(torch.equal(t[0], w.double()) for t, w in before)


def test_a_pair_answers_with_the_sum_of_its_logits():
    theta = build("lenet5", MODELS["lenet5"], (3, 16, 16), 4, seed=0)
    s = theta.sibling("small_cnn", SUPERVISORS["small_cnn"])
    both, x = Ensemble(Pair(theta, s)), torch.randn(5, 3, 16, 16)
    assert both.weights == Pair(theta.weights, s.weights)
    both.net.eval()
    assert torch.equal(both(both.weights, x), theta(theta.weights, x) + s(s.weights, x))


def test_a_sibling_is_drawn_from_the_same_seed_but_independently():
    theta, again, other = (build("lenet5_plain", MODELS["lenet5_plain"], (3, 16, 16), 4, seed) for seed in (1, 1, 2))
    first, same, else_ = (m.sibling("small_lenet", SUPERVISORS["small_lenet"]) for m in (theta, again, other))
    assert same_bits(first.weights, same.weights)
    assert not torch.equal(first.weights["classifier.weight"], else_.weights["classifier.weight"])
    kernels = first.weights["conv1.0.weight"].flatten()
    assert not torch.isin(kernels, theta.weights["conv1.0.weight"]).any()


# The equations of FedSimSup


def test_the_similarity_of_labels_by_hand():
    counts = torch.tensor([[3.0, 1.0, 0.0], [6.0, 2.0, 0.0], [0.0, 0.0, 5.0], [4.0, 0.0, 3.0]], dtype=torch.float64)
    s = label_similarity(counts, counts)
    assert torch.allclose(s[0, 1], torch.ones(()).double())  # the same distribution
    assert s[0, 2] == 0  # no class in common
    assert s[0, 3].item() == pytest.approx(12 / (10**0.5 * 5))
    assert torch.equal(s, s.T)
    assert torch.allclose(s.diagonal(), torch.ones(4).double())
    assert (s <= 1).all()
    shares = counts / counts.sum(1, keepdim=True)
    assert torch.allclose(s, label_similarity(shares, shares))  # counts or proportions


def test_the_self_weight_by_hand():
    assert self_weight(torch.tensor([30.0]), torch.tensor([30.0, 30.0, 30.0])).item() == 0.5
    alpha = self_weight(torch.tensor([40.0, 20.0, 1.0, 1e6]), torch.tensor([10.0, 30.0]))  # 20 on average
    assert alpha[:3].tolist() == pytest.approx([2 / 3, 1 / 2, 1 / 21])
    assert ((alpha > 0) & (alpha < 1)).all()


def test_the_server_step_equals_numpy():
    rng = np.random.default_rng(0)
    theta, uploads, alpha = rng.normal(size=(5, 3, 2)), rng.normal(size=(2, 3, 2)), rng.uniform(size=5)
    similarity = rng.uniform(size=(5, 2)) * (np.arange(5) != 3)[:, None]
    pulled = pull({"w": torch.tensor(theta)}, {"w": torch.tensor(uploads)}, *map(torch.tensor, (similarity, alpha)))
    for i in (0, 1, 2, 4):
        expected = alpha[i] * theta[i] + (1 - alpha[i]) * np.average(uploads, axis=0, weights=similarity[i])
        np.testing.assert_allclose(pulled["w"][i], expected)
    assert torch.equal(pulled["w"][3], torch.tensor(theta[3]))  # like none of them: to the bit


def test_the_server_step_on_equal_models_is_the_identity():
    w = torch.randn(3, 2, dtype=torch.float64)
    similarity, alpha = torch.rand(4, 3).double(), torch.rand(4).double()
    pulled = pull({"w": w.expand(4, 3, 2)}, {"w": w.expand(3, 3, 2)}, similarity, alpha)
    torch.testing.assert_close(pulled["w"], w.expand(4, 3, 2))


def test_what_is_frozen_stays_to_the_bit(federation):
    once = EXACT | {"rounds": 1}
    only_s, only_theta = (
        fl.run(fl.fedsimsup(supervisor_epochs=epochs), federation, **once, progress=False).state for epochs in (2, 0)
    )
    _, before = start_of(fl.fedsimsup(), federation)
    [sampled] = cohorts(6, 0.5, 1, seed=0)
    assert close(only_s.theta, before.theta, 1e-12)  # the server mixes what is equal
    assert same_bits(take(only_s.theta, torch.from_numpy(sampled)), take(before.theta, torch.from_numpy(sampled)))
    assert same_bits(only_theta.s, before.s)
    [s], [first] = only_s.s.stacks, before.s.stacks
    moved = torch.stack([(t != first[name]).flatten(1).any(1) for name, t in s.items()]).any(0)
    assert moved.nonzero().flatten().tolist() == sampled.tolist()
    assert not close(only_theta.theta, before.theta, 1e-3)


def test_a_silent_supervisor_leaves_local_sgd(federation):
    """Supervisor weights 0, no epochs for it, everybody takes part: Local-Only to the bit."""
    whole = EXACT | {"join_ratio": 1.0}
    method = fl.fedsimsup(supervisor_epochs=0)
    _, state = start_of(method, federation, join_ratio=1.0)
    state = state._replace(s=tree_map(torch.zeros_like, state.s))
    for t in range(3):
        state = method.round(state, cohort_of(federation, t, method, join_ratio=1.0))
    local = fl.run("local_only", federation, **whole, progress=False).models
    assert same_bits(state.theta, local)
    assert not any(t.any() for t in tree_leaves(state.s))


def test_mixed_supervisors_stacked_equal_loop(federation):
    method = fl.fedsimsup("mixed", supervisor_epochs=1)
    loop, stacked = (
        fl.run(method, federation, **EXACT | {"rounds": 2}, tune_epochs=1, backend=b, progress=False) for b in BACKENDS
    )
    assert close(loop.models, stacked.models)
    assert np.allclose(loop.accuracy["loss"], stacked.accuracy["loss"], rtol=1e-9)


def test_mixed_supervisors_are_drawn_anew_for_every_seed(federation):
    method, drawn = fl.fedsimsup("mixed"), []
    for seed in range(4):
        plan = prepare(method, federation, **EXACT | {"seed": seed})
        groups = architectures_of(method, plan.model, federation)
        assert sorted(np.concatenate([group.clients for group in groups]).tolist()) == list(range(6))
        assert all((np.diff(group.clients) > 0).all() for group in groups)
        drawn.append({i: group.model.name for group in groups for i in group.clients.tolist()})
    assert {name for kinds in drawn for name in kinds.values()} == {
        f"lenet5_plain+{kind}" for kind in ("small_lenet", "small_cnn", "small_vit")
    }
    assert all(a != b for a, b in pairwise(drawn))


def test_seeds_with_mixed_supervisors_equal_separate_runs(federation, tmp_path):
    setting = EXACT | dict(algorithm=fl.fedsimsup("mixed", 1), federation=federation, backend="stacked", rounds=2)
    cells = fl.grid(seed=[0, 1], **setting)
    together = fl.sweep(cells, jobs=1, progress=False, store=tmp_path / "together")
    for cell, result in zip(cells, together.results, strict=True):
        alone = fl.run(**cell, progress=False, store=tmp_path / "alone")
        assert close(alone.models, result.models)
        assert [g.clients.tolist() for g in alone.architectures] == [g.clients.tolist() for g in result.architectures]


def test_more_supervisor_epochs_than_local_epochs_are_refused(federation):
    with pytest.raises(ValueError, match="supervisor_epochs=3 is not allowed; it must be a whole number, from 0 to 2"):
        fl.run(fl.fedsimsup(supervisor_epochs=3), federation, **SETTING, progress=False)


def test_writers_of_the_embedded_characters_are_clients():
    data = fl.load("characters", writers=12)
    federation = fl.federate(data, fl.domains(), clients=12, test_fraction=0.1)
    assert [np.unique(data.domain[own]).tolist() for own in federation.train] == [[i] for i in range(12)]
    assert [np.unique(data.domain[own]).tolist() for own in federation.test] == [[i] for i in range(12)]
    assert federation.sizes.tolist() == 12 * [62]
    assert {len(own) for own in federation.test} == {6}


# Features, and FedProto


def evaluation(all_at_once, images, samples, stacked):
    """As on this device, or as on a GPU."""
    return Evaluation(images, samples, stacked=all_at_once)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("name", ["lenet5", "lenet5_plain"])
def test_the_means_of_features_equal_numpy(name, stacked, federation, monkeypatch):
    monkeypatch.setattr("fedlib.training.evaluation.Evaluation", partial(evaluation, stacked))
    cohort = cohort_of(federation, 0, model=name)
    models = {key: t + 0.01 * torch.arange(2.0).view(2, *[1] * t.dim()) for key, t in cohort.model.weights.items()}
    means, squares = class_features(cohort.subset([0, 1]), models)
    net = cohort.model.net.double().eval()
    for i, own in enumerate(cohort.samples[:2]):
        net.load_state_dict({key: t[i] for key, t in models.items()}, strict=False)
        x, y, *_ = cohort.images.batch(torch.from_numpy(own), cohort.model)
        z = net[:-1](x).detach().numpy()
        assert squares[i].item() == pytest.approx((z**2).sum(1).mean())
        for c in range(4):
            mine = z[y.numpy() == c]
            expected = mine.mean(0) if len(mine) else np.zeros(84)
            np.testing.assert_allclose(means[i, c], expected, rtol=1e-9)
    assert not cohort.model.net.classifier._forward_pre_hooks


def test_prototypes_by_hand():
    """Two clients, three classes: both have the first, one the second, nobody the third."""
    z, counts = torch.tensor([[[1.0], [5.0], [0.0]], [[4.0], [0.0], [0.0]]]), torch.tensor([[2.0, 1.0, 0], [1.0, 0, 0]])
    mean = mean_prototypes(z, counts, Prototypes(torch.tensor([[9.0], [9.0], [7.0]]), torch.tensor([0.0, 0.0, 1.0])))
    assert mean.z.flatten().tolist() == [2.0, 5.0, 7.0]
    assert mean.known.tolist() == [1.0, 1.0, 1.0]
    nothing = mean_prototypes(z, 0 * counts, Prototypes(torch.zeros(3, 1), torch.zeros(3)))
    assert not nothing.known.any()


def test_nobody_is_pulled_in_a_first_round_without_prototypes(federation):
    """FedProto is Local-Only, and FedPAC that trains the body alone has the body of a FedRep that does so, too."""
    once = SETTING | {"rounds": 1, "progress": False}
    a, b = (fl.run(method, federation, **once).models for method in (fl.fedproto(lam=9), "local_only"))
    assert same_bits(a, b)
    pac, rep = fl.fedpac(lam=9, head_epochs=0), fl.fedrep(body_epochs=2)
    a, b = (fl.run(method, federation, **once).state.w for method in (pac, rep))
    assert same_bits(a, b)


# FedPAC


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_weights_of_fedpac_are_those_of_a_search_over_the_simplex(k, seed):
    rng = np.random.default_rng(seed)
    h, v = rng.normal(size=(k, 4, 5)) * rng.choice([0.1, 1]), rng.uniform(0.1, 3, k)
    weights = head_weights(torch.tensor(h), torch.tensor(v)).numpy()
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(1), 1)
    steps = np.linspace(0, 1, 401)
    first = np.stack(np.meshgrid(*[steps] * (k - 1)), -1).reshape(-1, k - 1)
    grid = np.column_stack([first, 1 - first.sum(1)])
    grid = grid[(grid >= 0).all(1)]
    for i in range(k):

        def objective(a, i=i):
            return (a**2 * v).sum(-1) + ((h[i].ravel() - a @ h.reshape(k, -1)) ** 2).sum(-1)

        assert objective(weights[i]) <= objective(grid).min() + 1e-5
        assert np.abs(weights[i] - grid[objective(grid).argmin()]).max() < 0.02


def test_the_weights_of_fedpac_in_the_limits():
    same, v = torch.ones(4, 3, 2), torch.full((4,), 0.5)
    assert torch.allclose(head_weights(same, v), torch.full((4, 4), 0.25), atol=1e-6)  # equal clients share
    far = torch.eye(3).reshape(3, 3, 1) * 100
    assert torch.equal(head_weights(far, torch.full((3,), 1e-6)), torch.eye(3))  # below 1e-3: 0
    assert torch.equal(head_weights(far * torch.nan, torch.ones(3)), torch.eye(3))  # no solution: the own classifier
    np.testing.assert_allclose(simplex_minimum(np.diag([1.0, 3.0])), [0.75, 0.25])
    assert simplex_minimum(np.zeros((2, 2))).sum() == 1


def test_a_client_whose_weights_fedpac_cannot_find_keeps_its_own_classifier(monkeypatch):
    module, calls = importlib.import_module("fedlib.methods.fedpac"), []

    def solve(Q):
        calls.append(Q)
        if len(calls) == 1:
            raise RuntimeError("no convergence")
        return np.array([0.25, 0.25, 0.5])

    monkeypatch.setattr(module, "simplex_minimum", solve)
    weights = head_weights(torch.zeros(3, 2, 2), torch.ones(3))
    assert weights.tolist() == [[1, 0, 0], [0.25, 0.25, 0.5], [0.25, 0.25, 0.5]]


def test_fedpac_without_head_epochs_never_trains_the_classifier(federation):
    result = fl.run(fl.fedpac(head_epochs=0), federation, **SETTING | {"rounds": 1}, progress=False)
    plan = prepare("fedpac", federation, **SETTING | {"rounds": 1})
    phi = {name: plan.model.weights[name] for name in plan.model.classifier}
    assert all(torch.allclose(result.state.v[name][i], t) for name, t in phi.items() for i in range(6))


def test_more_head_epochs_than_local_epochs_are_refused(federation):
    with pytest.raises(ValueError, match="head_epochs=3 is not allowed; it must be a whole number, from 0 to 2"):
        fl.run(fl.fedpac(head_epochs=3), federation, **SETTING, progress=False)


# Per-FedAvg without a Hessian

A = torch.tensor([[2.0, 0.5, 0, 0], [0.5, 1, 0, 0.3], [0, 0, 3, 0], [0, 0.3, 0, 1]], dtype=torch.float64)


def quadratic(w, batch):
    """1/2 (b - m)' A (b - m), m the shares of the labels: gradient A (b - m), Hessian A."""
    b = w["classifier.bias"] - (batch.y[:, None] == torch.arange(4)).to(A.dtype).mean(0)
    return b @ A @ b / 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_of_per_fedavg_on_a_quadratic_has_the_exact_hessian(backend, federation):
    """b' = b - alpha A (b - m1); b -= beta (I - alpha A) A (b' - m2)."""
    alpha, beta = 0.3, 0.1
    cohort = cohort_of(federation, 0, backend=backend, batch_size=6)
    start = repeat(cohort.model.weights, cohort.size)
    loss = hessian_free(quadratic, alpha, delta=1e-3)
    trained = train(cohort, loss, start, lr=beta, batches_per_step=3)["classifier.bias"]
    for row, i in enumerate(cohort.ids):
        b = cohort.model.weights["classifier.bias"]
        for index in client_batches(federation.train[i], range(2), 6, batches_of(0, i), per_step=3):
            y = torch.tensor(federation.data.y)[index].split(6)
            m1, m2, _ = ((own[:, None] == torch.arange(4)).double().mean(0) for own in y)
            g = A @ (b - alpha * A @ (b - m1) - m2)
            b = b - beta * (g - alpha * A @ g)
        torch.testing.assert_close(trained[row], b)


def test_the_gradient_without_a_hessian_is_that_with_it(federation):
    """On the network: g - alpha H g, H g as the gradient of <grad, g> on the third batch."""
    cohort, alpha = cohort_of(federation, 0), 0.1
    model, w = cohort.model, cohort.model.weights
    batch = cohort.images.batch(torch.from_numpy(federation.train[0][:12]), model)
    parts = batch.split(3)
    slopes = [grad(lambda w, part=part: cross_entropy(w, part)) for part in parts]
    v = {name: t - alpha * slopes[0](w)[name] for name, t in w.items()}
    g = slopes[1](v)
    product = grad(lambda w: sum((t * g[name]).sum() for name, t in slopes[2](w).items()))(w)
    found = grad(lambda w: hessian_free(cross_entropy, alpha, 1e-4)(w, batch))(w)
    for name, t in found.items():
        torch.testing.assert_close(t, g[name] - alpha * product[name], rtol=1e-5, atol=1e-9)
    value = hessian_free(cross_entropy, alpha, 1e-4)(w, batch)
    assert value.item() == pytest.approx(cross_entropy(v, parts[1]).item())


@pytest.mark.parametrize("backend", BACKENDS)
def test_batchnorm_follows_the_second_of_three_batches_only(backend, federation):
    cohort = cohort_of(federation, 0, backend=backend, batch_size=4, model="lenet5")
    few = [federation.train[i][:12] for i in cohort.ids]  # three batches: one step
    start = repeat(cohort.model.weights, cohort.size)
    trained = train(cohort, hessian_free(cross_entropy, 0.0, 1e-3), start, epochs=[0], samples=few, batches_per_step=3)
    for row, (i, own) in enumerate(zip(cohort.ids, few, strict=True)):
        [index] = client_batches(own, [0], 4, batches_of(0, i), per_step=3)
        w = {name: t.clone() for name, t in cohort.model.weights.items()}
        cohort.model.net.train()
        cohort.model(w, cohort.images.batch(index[4:8], cohort.model).x)
        for name in cohort.model.statistics:
            assert torch.allclose(trained[name][row], w[name]), name


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("steps", [1, 4])
def test_a_client_takes_no_more_steps_than_it_is_told(steps, backend, federation):
    """A slope of 1, whatever the samples: the way is the number of steps; a client with one batch an epoch, too."""
    few = replace(federation, train=(federation.train[0][:5], *federation.train[1:]))
    cohort = cohort_of(few, 0, backend=backend, join_ratio=1.0)
    start = repeat(cohort.model.weights, cohort.size)

    def slope_of_one(w, batch):
        return w["classifier.bias"].sum()

    trained = train(cohort, slope_of_one, start, epochs=range(steps), steps=steps, lr=0.5, batches_per_step=3)
    way = start["classifier.bias"] - trained["classifier.bias"]
    torch.testing.assert_close(way, torch.full_like(way, 0.5 * steps))


@pytest.mark.parametrize("hessian", ["first_order", "free"])
def test_per_fedavg_with_a_number_of_steps_does_not_depend_on_the_local_epochs(hessian, federation):
    method = fl.perfedavg(alpha=0.05, beta=0.05, hessian=hessian, steps=4)
    one, five = (
        fl.run(method, federation, **EXACT | {"local_epochs": e, "rounds": 1}, progress=False).models for e in (1, 5)
    )
    assert same_bits(one, five)
