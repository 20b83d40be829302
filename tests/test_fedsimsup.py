"""FedSimSup, its supervisors, and the limits of the baselines FedProto and FedPAC. Whole runs have oracles."""

import importlib

import numpy as np
import torch
from test_baselines import cohort_of
from trees import same_bits

import fedlib as fl
from fedlib.algorithm import architectures_of
from fedlib.methods.fedpac import head_weights, simplex_minimum
from fedlib.methods.fedsimsup.fedsimsup import pull
from fedlib.methods.fedsimsup.supervisors import SUPERVISORS
from fedlib.models import MODELS, build
from fedlib.runs.prepare import prepare
from fedlib.training.evaluation import Evaluation, class_features


def test_the_transformer_sees_patches_in_their_order_and_has_pytorchs_blocks():
    net, x = SUPERVISORS["small_vit"]((3, 8, 12), 10), torch.randn(2, 3, 8, 12)
    seen = []
    net.embedding.register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    net(x)
    assert seen[0].shape == (2, 6, 48)
    assert torch.equal(seen[0][:, 5].unflatten(1, (3, 4, 4)), x[:, :, 4:, 8:])
    net = SUPERVISORS["small_vit"]((3, 8, 8), 10).double().eval()
    block, oracle = net.blocks[0], torch.nn.TransformerEncoderLayer(64, 4, 128, 0.0, "gelu", 1e-5, True, True).double()
    names = {"self_attn.in_proj_": "qkv.", "self_attn.out_proj.": "out.", "linear1.": "mlp.0.", "linear2.": "mlp.2."}
    own = block.state_dict()
    for theirs, mine in names.items():
        own |= {theirs + part: own.pop(mine + part) for part in ("weight", "bias")}
    oracle.load_state_dict(own)
    z = torch.randn(3, 5, 64, dtype=torch.float64)
    torch.testing.assert_close(block(z), oracle.train()(z))


def test_siblings_and_mixed_supervisors_are_drawn_by_the_seed_but_independently(federation):
    theta, again, other = (build("lenet5_plain", MODELS["lenet5_plain"], (3, 16, 16), 4, seed) for seed in (1, 1, 2))
    first, same, else_ = (m.sibling("small_lenet", SUPERVISORS["small_lenet"]) for m in (theta, again, other))
    assert same_bits(first.weights, same.weights)
    assert not torch.equal(first.weights["classifier.weight"], else_.weights["classifier.weight"])
    kernels = first.weights["conv1.0.weight"].flatten()
    assert not torch.isin(kernels, theta.weights["conv1.0.weight"]).any()
    method = fl.fedsimsup("mixed")
    models = [prepare(method, federation, rounds=1, seed=seed).model for seed in (0, 1)]
    first, other = ([group.clients.tolist() for group in architectures_of(method, own, federation)] for own in models)
    assert first != other


def test_a_client_like_none_of_the_participants_keeps_its_model():
    theta, uploads = torch.randn(2, 3), torch.randn(4, 3)
    similarity = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    pulled = pull({"w": theta}, {"w": uploads}, similarity, torch.tensor([0.3, 0.0]))["w"]
    assert torch.equal(pulled, torch.stack([theta[0], uploads[1]]))


def test_the_means_of_features_are_the_same_all_at_once(federation, monkeypatch):
    cohort = cohort_of(federation, 0, method="fedavg", batch_size=16)
    models = {key: t + 0.01 * torch.arange(2.0).view(2, *[1] * t.dim()) for key, t in cohort.model.weights.items()}
    expected = class_features(cohort.subset([0, 1]), models)
    monkeypatch.setattr("fedlib.training.evaluation.Evaluation", lambda *given: Evaluation(*given[:2], stacked=True))
    torch.testing.assert_close(class_features(cohort.subset([0, 1]), models), expected)


def test_nobody_is_pulled_in_a_first_round_without_prototypes(federation):
    """FedProto is Local-Only, and FedPAC that trains the body alone has the body of a FedRep that does so, too."""
    once = dict(rounds=1, join_ratio=0.5, local_epochs=2, batch_size=16, lr=0.05, model="lenet5_plain", progress=False)
    a, b = (fl.run(method, federation, **once).models for method in (fl.fedproto(lam=9), "local_only"))
    assert same_bits(a, b)
    pac, rep = fl.fedpac(lam=9, head_epochs=0), fl.fedrep(body_epochs=2)
    a, b = (fl.run(method, federation, **once).state.w for method in (pac, rep))
    assert same_bits(a, b)


def test_the_weights_of_fedpac_in_the_limits_and_where_they_cannot_be_found(monkeypatch):
    same, v = torch.ones(4, 3, 2), torch.full((4,), 0.5)
    assert torch.allclose(head_weights(same, v), torch.full((4, 4), 0.25), atol=1e-6)  # equal clients share
    far = torch.eye(3).reshape(3, 3, 1) * 100
    assert torch.equal(head_weights(far, torch.full((3,), 1e-6)), torch.eye(3))  # below 1e-3: 0
    assert torch.equal(head_weights(far * torch.nan, torch.ones(3)), torch.eye(3))  # no solution: the own classifier
    np.testing.assert_allclose(simplex_minimum(np.diag([1.0, 3.0])), [0.75, 0.25])
    assert simplex_minimum(np.zeros((2, 2))).sum() == 1
    module, calls = importlib.import_module("fedlib.methods.fedpac"), []

    def solve(Q):
        calls.append(Q)
        if len(calls) == 1:
            raise RuntimeError("no convergence")
        return np.array([0.25, 0.25, 0.5])

    monkeypatch.setattr(module, "simplex_minimum", solve)
    weights = head_weights(torch.zeros(3, 2, 2), torch.ones(3))
    assert weights.tolist() == [[1, 0, 0], [0.25, 0.25, 0.5], [0.25, 0.25, 0.5]]
