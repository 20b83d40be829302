"""FedCS: the recursions against the eigenproblem and scikit-learn, the map in a model, and the method around others."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from methods import FACTORIES
from refusals import refused
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from test_methods import cohort_of, normal
from torch import Tensor, nn
from torch.func import vmap
from trees import close

import fedlib as fl
from fedlib.checkpoint import flatten
from fedlib.methods.fedcs import alignment
from fedlib.methods.fedcs.alignment import closed_form, orthonormal, ra_pass, rotation_step, scatters, trace_ratio
from fedlib.methods.fedcs.ra_module import Aligned, Alignment, linear_layer, plugged_in
from fedlib.models import MODELS, build, features
from fedlib.stack import for_each
from fedlib.training.channel import Channel

SETTING = dict(rounds=3, join_ratio=0.5, local_epochs=1, batch_size=8, lr=0.05, progress=False)
REFUSED = ["fedgh", "fedkemf", "fedsimsup", "pfedmb"]  # their clients train something else than the run's model
OTHERS = sorted(set(FACTORIES) - {"fedcs", *REFUSED})
D, CLIENTS = 20, 40


class Toy(NamedTuple):
    root: Tensor  # W^(1/2) [D, D]
    means: Tensor  # [CLIENTS, D], their mean is 0
    vectors: Tensor  # eigenvectors [D, 4] of W^(-1/2) B W^(-1/2)
    W: Tensor  # eigenvalues 0.1 to 10
    B: Tensor


@pytest.fixture(scope="module")
def toy() -> Toy:
    Q, vectors, A = orthonormal(normal(D, D)), orthonormal(normal(D, 4, seed=2)), normal(CLIENTS, 4, seed=1)
    root = Q @ torch.diag(torch.logspace(-0.5, 0.5, D, dtype=torch.float64)) @ Q.T
    spread = torch.tensor([41, 10, 2.9, 0.5], dtype=torch.float64).sqrt()
    means = orthonormal(A - A.mean(0)) * CLIENTS**0.5 * spread @ vectors.T @ root
    return Toy(root, means, vectors, root @ root, means.T @ means / CLIENTS)


# The recursions
@pytest.mark.parametrize("start", ["identity", "first"])
def test_the_whitening_recursion_reaches_the_inverse_square_root(toy, start):
    S = torch.eye(D, dtype=torch.float64) if start == "identity" else alignment.first_whitening(toy.W)
    for _ in range(2000):
        S = alignment.whitening_step(S, toy.W, 0.05)
    assert (S @ toy.W @ S - torch.eye(D)).norm() / D**0.5 < 1e-10
    assert torch.equal(S, S.T)


def test_the_safe_rate_keeps_the_whitening_positive_definite_and_without_a_difference_nothing_is_rotated():
    for seed in range(100):
        A, Z = normal(6, 6, seed=seed), 10.0 ** (seed % 7 - 3) * normal(3, 6, seed=1000 + seed)
        S, W = A @ A.T + 1e-3 * torch.eye(6), Z.T @ Z  # of rank 3
        assert torch.linalg.eigvalsh(alignment.whitening_step(S, W, alignment.whitening_rate(S, W))).min() > 0
    Phi, u = normal(5, 3), normal(5, seed=1)
    assert alignment.rotation_rate(u).item() == pytest.approx(0.1 / (u @ u).item())
    assert torch.equal(rotation_step(Phi, 0 * u, alignment.rotation_rate(0 * u)), Phi)


def test_the_rotation_recursion_finds_the_eigenvectors_in_order(toy):
    u = torch.linalg.solve(toy.root, toy.means.T).T  # W^(-1/2) (mean of a client - mean of all)
    Phi = orthonormal(normal(D, D, seed=3))
    for _ in range(1200):  # clients take one step each, the server averages
        Phi = vmap(rotation_step, (None, 0, None))(Phi, u, 0.02).mean(0)
    cosines = (Phi[:, :4] * toy.vectors).sum(0) / Phi[:, :4].norm(dim=0)
    assert (cosines.abs() > 0.999).all()


def test_neither_the_scale_of_the_features_nor_units_that_never_fire_nor_batches_without_scatter_do_harm(toy):
    z, ra = normal(6, 16, D) @ toy.root + toy.means[0], {"Phi": orthonormal(normal(D, D)), "z_g": toy.means[1]}
    one, many = ra_pass(z, ra, "normalised"), ra_pass(100 * z, ra | {"z_g": 100 * ra["z_g"]}, "normalised")
    assert close(one, {"S": 100 * many["S"], "Phi": many["Phi"], "z": many["z"] / 100})
    z = normal(40, 16, D).float() @ toy.root.float() + toy.means[0].float()
    z[..., :5] = 0
    ra = ra_pass(z, {"Phi": orthonormal(normal(D, D).float()), "z_g": toy.means[1].float()}, "normalised")
    assert all(t.isfinite().all() for t in ra.values())
    assert torch.linalg.eigvalsh(ra["S"]).min() > 0
    nothing = ra_pass(torch.zeros(3, 16, D), {"Phi": ra["Phi"], "z_g": torch.zeros(D)}, "normalised")
    assert torch.equal(nothing["S"], torch.eye(D))
    assert torch.equal(nothing["Phi"], ra["Phi"])


# The eigenproblem
@pytest.fixture(scope="module")
def clients() -> tuple[Tensor, Tensor]:
    """Latents [240, 6] of four clients of different sizes, and the client of each."""
    client = torch.from_numpy(np.repeat([2, 5, 7, 9], [30, 90, 50, 70]))
    return normal(240, 6) @ normal(6, 6, seed=1) + 2 * normal(10, 6, seed=2)[client], client


def test_scatters_are_those_of_numpy_and_the_closed_form_leaves_out_units_that_never_fire(clients):
    z, client = clients
    within, between = scatters(z, client)
    shares = {i: z[client == i].numpy() for i in client.unique().tolist()}
    expected = sum(len(own) * np.cov(own, rowvar=False, bias=True) for own in shares.values()) / len(z)
    assert np.allclose(within, expected)
    assert np.allclose(within + between, np.cov(z.numpy(), rowvar=False, bias=True))
    P = closed_form(*scatters(torch.cat([z, torch.zeros(len(z), 2).double()], 1), client), 3)
    assert torch.allclose(P[:6].abs(), closed_form(*scatters(z, client), 3).abs(), rtol=1e-6)
    assert P[6:].abs().max() == 0


def test_the_closed_form_is_scikit_learns_discriminant_analysis(clients):
    z, client = clients
    within, between = scatters(z, client)
    P, lda = closed_form(within, between, 3), LinearDiscriminantAnalysis(solver="eigen").fit(z.numpy(), client.numpy())
    theirs = torch.from_numpy(lda.scalings_[:, :3])
    assert torch.allclose((P * theirs.sign()).abs(), theirs.abs(), rtol=1e-8)
    assert torch.allclose(P.T @ within @ P, torch.eye(3, dtype=torch.float64), atol=1e-10)
    values = torch.linalg.eigvals(torch.linalg.solve(within, between)).real.sort(descending=True).values
    assert trace_ratio(P, within, between).item() == pytest.approx(values[:3].sum().item())
    assert trace_ratio(P @ normal(3, 3), within, between).item() == pytest.approx(values[:3].sum().item())
    assert trace_ratio(normal(6, 3, seed=4), within, between) < values[:3].sum()


# The map in a model
@pytest.mark.parametrize(("shifted", "bias"), [(False, True), (True, True), (False, False)])
@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_the_folded_map_is_the_map_as_a_layer(at, side, shifted, bias):
    def builder(shape, n_classes):
        net = MODELS["lenet5_plain"](shape, n_classes)
        linear = [module for module in net.modules() if isinstance(module, nn.Linear)][at - 1]
        linear.bias = linear.bias if bias else None
        return net

    model = build("lenet5", builder, (3, 32, 32), 10, seed=0)
    w = {name: t.double().requires_grad_() for name, t in model.weights.items()}
    layer, x, y = linear_layer(w, at), normal(5, 3, 32, 32), torch.arange(5)
    d = w[f"{layer}.weight"].shape[side == "input"]
    P, shift = normal(d, d) / d**0.5, normal(d, seed=1) if shifted else None
    place = Alignment(layer, side, P, shift)
    answers = Aligned(model, place)(w, x), model(place.fold(w), x)
    assert torch.allclose(*answers, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(answers[0], model(w, x), rtol=1e-2)
    slopes = [torch.autograd.grad(F.cross_entropy(out, y), list(w.values())) for out in answers]
    assert all(torch.allclose(a, b, rtol=1e-8, atol=1e-11) for a, b in zip(*slopes, strict=True))
    z, logits = Aligned(model, place).penultimate(w, x)
    assert torch.allclose(F.linear(z, *Aligned(model, place).head(w)), logits, rtol=1e-10, atol=1e-12)
    assert torch.equal(logits, answers[0])
    stack = {name: torch.stack([t, 2 * t]).detach() for name, t in w.items()}
    folded = place.fold(stack)
    assert close({name: t[0] for name, t in folded.items()}, place.fold(w))
    assert linear_layer(stack, at, stacked=True) == layer
    outputs = features(model, w, x, {"before": {1: "conv2", 2: "fc1", 3: "fc2"}[at], "behind": layer})
    assert torch.equal(place.latents(model, w, x), outputs["before" if side == "input" else "behind"])


def test_a_model_with_fewer_linear_layers_is_refused():
    model = build("lenet5", MODELS["lenet5"], (3, 32, 32), 10, seed=0)
    refused(r"fc4 does not exist; the model has 3 linear layer\(s\)", linear_layer, model.weights, 4)


# Around another method
@pytest.mark.parametrize("name", OTHERS)
def test_any_method_with_the_identity_plugged_in_is_that_method(name, federation):
    method = FACTORIES[name]()
    cohort = cohort_of(federation, 1, model="lenet5_plain", local_epochs=2 if name == "fedrep" else 1)
    identity = Alignment("fc2.0", "input", torch.eye(120, dtype=torch.float64))
    states = []
    for own in (cohort, plugged_in(cohort, identity)[0]):
        own = replace(own, channel=Channel(), losses=[])
        state = method.round(method.init(cohort.model, federation), replace(own, round=0))
        states.append(flatten(method.round(state, own)))
    assert close(*states)


ALIGNED = FACTORIES | {"fedalt": lambda: fl.fedalt(warm_up=0)}


@pytest.mark.parametrize("name", ["fedprox", "fedper", "fedproto", "perfedavg", "ifca", "fedrep", "fedalt"])
def test_a_map_is_in_all_that_a_method_does(name, federation):
    """With P in front of FC2 a method does what it does with W P' for W, if only the other layers are trained."""
    method = ALIGNED[name]()
    cohort = cohort_of(federation, 0, model="lenet5_plain")
    place = Alignment("fc2.0", "input", normal(120, 120) / 120**0.5)
    fixed = tuple(n for n in cohort.model.trainable if not n.startswith("fc2.0"))
    draw = {name: t.double() for name, t in cohort.model.redraw(1).items()}
    model = cohort.model._replace(trainable=fixed, redraw=lambda j: draw)
    folded = model._replace(weights=place.fold(model.weights), redraw=lambda j: place.fold(draw))
    plugged = plugged_in(replace(cohort, model=model), place)[0]
    a = method.round(method.init(model, federation), plugged)
    b = method.round(method.init(folded, federation), replace(cohort, model=folded, channel=Channel(), losses=[]))
    ours, theirs = (for_each(method.models(state), 6) for state in (a, b))
    assert close(place.fold(ours), theirs, 1e-8)


@pytest.mark.parametrize("base", REFUSED)
def test_methods_with_models_of_their_own_are_refused(base, federation):
    refused("do not train the run's model", lambda: fl.run(fl.fedcs(base=FACTORIES[base]()), federation, **SETTING))


def test_the_source_of_the_base_is_part_of_the_address():
    named, made = fl.fedcs(base="fedprox"), fl.fedcs(base=fl.fedprox(0.5))
    assert named.made_of == made.made_of == fl.fedcs().made_of[:1] + fl.fedprox().made_of
    assert fl.fedcs().made_of == fl.fedcs(base=fl.fedavg()).made_of != made.made_of
    assert made.hyper["base"] == "fedprox(mu=0.5)"


def test_a_base_that_is_evaluated_after_fine_tuning_stays_so(federation):
    result = fl.run(fl.fedcs(base="fedbabu"), federation, **SETTING)
    assert result.when == fl.run("fedbabu", federation, **SETTING).when == "after"
