"""Methods beyond the whole runs of their oracles: limiting cases, formulas by hand, tuning of a part, public images."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from archives import pictures
from phases import batches_of, phase
from refusals import refused
from trees import close, same_bits

import fedlib as fl
from fedlib.algorithm import architectures_of, tune_personal
from fedlib.data import Dataset
from fedlib.engine.backends import BACKENDS
from fedlib.methods.fedap import neighbour_weights
from fedlib.methods.fedfomo import State, hold_out, models_for
from fedlib.methods.fedpac import head_weights, simplex_minimum
from fedlib.methods.fedsimsup.fedsimsup import pull
from fedlib.methods.fedsimsup.supervisors import SUPERVISORS
from fedlib.methods.pfedbayes import mixed
from fedlib.methods.pfedmb import SHARED, branch_mean
from fedlib.models import MODELS, build
from fedlib.runs.prepare import prepare
from fedlib.runs.session import Session
from fedlib.stack import Shared, for_each, repeat
from fedlib.training.batches import client_batches
from fedlib.training.cohort import TUNE, Cohort
from fedlib.training.evaluation import Evaluation, class_features
from fedlib.training.local import _drawn, train
from fedlib.training.losses import cross_entropy
from fedlib.training.phase import kind

SETTING = dict(rounds=4, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05)
EXACT = SETTING | {"dtype": "float64"}
QUIET = SETTING | {"progress": False}
FC3 = {"classifier.weight", "classifier.bias"}


def cohort_of(federation: fl.Federation, t: int, backend: str = "loop", method="fedavg", **setting) -> Cohort:
    return Session(prepare(method, federation, **EXACT | setting, backend=backend)).cohort(t)


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def test_draws_differ_between_the_clients_and_the_trainings_of_a_round(federation):
    def draws(rng, client, steps):
        return {"z": rng.standard_normal((steps, 4))}

    cohort = cohort_of(federation, 1)
    first, again, second = (_drawn(cohort, draws, [torch.zeros(3, 8)] * cohort.size, number) for number in (0, 0, 1))
    assert torch.equal(first[0]["z"], again[0]["z"])
    assert not torch.equal(first[0]["z"], second[0]["z"])
    assert not torch.equal(first[0]["z"], first[1]["z"])


def test_a_part_of_the_train_samples_is_held_out_by_fedfomo(federation):
    cohort = cohort_of(federation, 0)
    kept, held_out = hold_out(cohort, 0.2)
    for i, a, b in zip(cohort.ids, kept, held_out, strict=True):
        assert np.array_equal(np.concatenate([a, b]), federation.train[i])
        assert len(b) == round(0.2 * len(federation.train[i]))
    assert [len(b) for b in hold_out(cohort, 1e-6)[1]] == 3 * [1]
    assert [len(a) for a in hold_out(cohort, 1 - 1e-6)[0]] == 3 * [1]
    two = replace(cohort, federation=replace(federation, train=tuple(own[:2] for own in federation.train)))
    assert [[len(own) for own in part] for part in hold_out(two, 0.2)] == [3 * [1], 3 * [1]]
    only = replace(federation, train=tuple(own[:1] for own in federation.train))
    refused(r"client \d has one training sample; it needs at least two", fl.run, "fedfomo", only, **SETTING)


def test_phases_that_clip_or_draw_differently_do_not_share_a_stack(federation):
    model = prepare("fedavg", federation, **SETTING).model
    plain = phase(model, federation.data, federation.train[:2])
    draws = tuple({"z": torch.zeros(len(steps), 4)} for steps in plain.batches)
    kinds = [kind(p) for p in (plain, plain._replace(clip=1.0), plain._replace(clip=2.0), plain._replace(draws=draws))]
    assert len({(kind[0], *map(str, kind[1:])) for kind in kinds}) == 4


def test_feddyn_at_alpha_0_is_the_limit_of_small_ones(federation):
    setting = QUIET | {"rounds": 2, "dtype": "float64"}
    zero, small = (fl.run(fl.feddyn(alpha), federation, **setting).state for alpha in (0, 1e-9))
    assert close(zero.w, small.w, 1e-6)


def test_the_weights_of_fedap_where_nobody_is_nearer():
    twins = neighbour_weights(torch.zeros(3, 3, dtype=torch.float64), 0.5)  # clients with equal statistics
    assert torch.allclose(twins, torch.full((3, 3), 0.25, dtype=torch.float64).fill_diagonal_(0.5))
    assert neighbour_weights(torch.zeros(1, 1), 0.5).item() == 1


@pytest.mark.parametrize("rho", [0.58, 0.59])
def test_a_warm_up_lasts_floor_rho_t_rounds(rho, federation):
    """0.58 * 50 is 28.999999999999996, which counts as 29; 0.59 * 50 is 29.5."""
    for method in (fl.pfedsim(rho), *(make(warm_up=rho) for make in (fl.fedap, fl.fedalt))):
        for t, shared in ((28, True), (29, False)):
            cohort = cohort_of(federation, t, method=method, rounds=50)
            state = method.round(method.init(cohort.model, federation), cohort)
            assert any(isinstance(part, Shared) for part in state) == shared, method


def test_with_few_neighbours_a_client_of_fedfomo_gets_each_once_and_then_its_own_model(federation):
    cohort = cohort_of(federation, 1)
    state = State({}, torch.eye(6), cohort.clients)  # all three took part in the last round, too
    for own, *others in models_for(cohort, state, neighbours=5, explore=0.0).tolist():
        assert others[-1] == own
        assert sorted(others) == cohort.ids.tolist()


def test_eq_5_of_pfedmb_with_one_hot_alphas_is_the_mean_of_each_cluster_and_a_branch_without_weight_stays():
    w, before, chosen = normal(4, 3, 5), normal(3, 5, seed=1), F.one_hot(torch.tensor([2, 0, 2, 0]), 3).double()
    [mean] = branch_mean({"a": w}, {SHARED: chosen}, torch.tensor([3.0, 1.0, 4.0, 1.0]), {"a": before}).values()
    expected = (w[1, 0] + w[3, 0]) / 2, before[1], (3 * w[0, 2] + 4 * w[2, 2]) / 7
    assert torch.allclose(mean, torch.stack(expected))


# The personal part
@pytest.mark.parametrize(("method", "names"), [("fedrep", FC3), ("fedalt", FC3), ("fedsim", FC3), ("fedbn", None)])
def test_only_the_personal_part_is_tuned(method, names, federation):
    everyone = replace(cohort_of(federation, 0, join_ratio=1.0, model="lenet5_bn"), purpose=TUNE)
    made = getattr(fl, method)()
    state = made.init(everyone.model, federation)
    models = for_each(made.models(state), 6)
    tuned = tune_personal(state, everyone) if made.tune is None else made.tune(state, everyone)
    moved = {name for name, t in tuned.items() if not torch.equal(t, models[name])}
    if names is None:  # BatchNorm, statistics included
        assert moved == everyone.model.batchnorm
    else:  # statistics follow every pass
        assert moved == names | everyone.model.statistics


def test_a_run_can_be_told_to_tune_the_personal_part_alone(federation):
    whole, part = (fl.run("fedbn", federation, **QUIET, tune_epochs=1, tune_part=p) for p in (None, "personal"))
    assert whole.folder != part.folder
    assert same_bits(whole.models, part.models)
    frames = [run.accuracy.set_index(["when", "round", "client"])["loss"] for run in (whole, part)]
    assert frames[0]["before"].equals(frames[1]["before"])
    assert (frames[0]["after"] != frames[1]["after"]).all()


def test_methods_without_a_personal_part_refuse(federation, run_store):
    for method, reason in {"fedavg": "has no personal part", "pfedmb": "defines its own tuning"}.items():
        sentence = f"tune_part='personal' is not allowed; {method} {reason}"
        refused(sentence, fl.run, method, federation, **SETTING, tune_epochs=1, tune_part="personal")
    assert not run_store.exists()


def test_fine_tuning_that_a_run_adds_does_not_change_what_a_method_is_judged_by(federation):
    assert fl.run("fedavg", federation, **QUIET, tune_epochs=1).when == "before"
    assert fl.run("perfedavg", federation, **QUIET).when == "after"


# FedSimSup, FedProto and FedPAC
def test_the_transformer_of_fedsimsup_sees_patches_in_their_order_and_has_pytorchs_blocks():
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


def test_siblings_and_mixed_supervisors_of_fedsimsup_are_drawn_by_the_seed_but_independently(federation):
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


def test_a_client_like_none_of_the_participants_keeps_its_model_in_fedsimsup():
    theta, uploads = torch.randn(2, 3), torch.randn(4, 3)
    similarity = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    pulled = pull({"w": theta}, {"w": uploads}, similarity, torch.tensor([0.3, 0.0]))["w"]
    assert torch.equal(pulled, torch.stack([theta[0], uploads[1]]))


def test_the_means_of_features_are_the_same_all_at_once_in_fedproto_and_fedpac(federation, monkeypatch):
    cohort = cohort_of(federation, 0, method="fedavg", batch_size=16)
    models = {key: t + 0.01 * torch.arange(2.0).view(2, *[1] * t.dim()) for key, t in cohort.model.weights.items()}
    expected = class_features(cohort.subset([0, 1]), models)
    monkeypatch.setattr("fedlib.training.evaluation.Evaluation", lambda *given: Evaluation(*given[:2], stacked=True))
    torch.testing.assert_close(class_features(cohort.subset([0, 1]), models), expected)


def test_nobody_is_pulled_in_a_first_round_of_fedproto_or_fedpac(federation):
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


# Public images and several architectures
@pytest.mark.parametrize("method", ["pfedhr", "fedmd", "fedgh", "fedkemf", "fccl"])
def test_methods_that_need_public_images_say_so(method, federation):
    refused(f"{method} needs public images; use federate", fl.run, method, replace(federation, public=None), **SETTING)


def test_that_pfedhr_finds_no_candidate_is_handled_and_counted(federation, monkeypatch):
    module = importlib.import_module("fedlib.methods.pfedhr.reassemble")
    monkeypatch.setattr(module, "chains", lambda pieces, groups, _: [[] for _ in groups])
    setting = EXACT | dict(rounds=2, join_ratio=1.0, model="lenet5_plain", progress=False)
    quick = fl.pfedhr(server_epochs=1, server_batch=20, probes=24)
    ours, local = (fl.run(method, federation, **setting) for method in (quick, "local_only"))
    assert same_bits(ours.models, local.models)
    log = ours.state.log
    assert (log["found"].tolist(), log["used"].tolist()) == ([0, 0], [2, 2])
    assert (log["match"] == -1).all()
    assert ours.rounds["bytes_down"].tolist() == [0, 0]


def test_the_numbers_of_pfedbayes_are_those_of_splitmix64():
    """The first one of seed 0, as published; the others: `test_oracles_pfedhr`."""
    assert mixed(torch.tensor([1])).item() % (1 << 64) == 0xE220A8397B1DCDAF


def test_other_public_images_are_those_of_all_clients_who_stay_as_they_were_and_make_another_run(tiny, federation):
    bare = replace(federation, public=None)
    assert len({bare.fingerprint, federation.fingerprint, federation.with_public(tiny).fingerprint}) == 3
    runs = [fl.run("fedavg", own, **QUIET) for own in (bare, federation)]
    assert runs[0].folder != runs[1].folder
    assert all(torch.equal(t, runs[1].models[name]) for name, t in runs[0].models.items())
    assert runs[1].config["public"] == "40 images of tiny"
    assert "public" not in runs[0].config
    public = replace(federation.public, y=np.sort(federation.public.y))
    cohort = cohort_of(federation.with_public(public), 0).on_public(np.arange(12))
    assert cohort.class_counts.tolist() == [[10, 2, 0, 0]] * cohort.size


def seen_twice(w, batch, table):
    """A loss that looks its samples up by their place."""
    return cross_entropy(w, batch) + (table["y"][batch.index] - batch.y).abs().sum() + batch.split(2)[1].index.sum()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_says_which_samples_it_holds(backend, federation):
    cohort = cohort_of(federation, 0, backend)
    start, labels = repeat(cohort.model.weights, cohort.size), torch.from_numpy(federation.data.y)
    train(cohort, seen_twice, start, {"y": labels.expand(cohort.size, -1)}, epochs=[0], batches_per_step=2)
    seen = cohort.losses.pop().double()
    train(cohort, cross_entropy, start, epochs=[0], batches_per_step=2)
    steps = [client_batches(federation.train[i], [0], 8, batches_of(0, i), 2) for i in cohort.ids]
    expected = torch.tensor([own[:, 8:].sum(1).double().mean() for own in steps])
    torch.testing.assert_close(seen - cohort.losses[0], expected, rtol=1e-5, atol=1e-3)


def test_mixtures_and_public_images_that_make_no_sense_are_refused(federation):
    refused(r"model='m1\+m1' is not .* be named only once", fl.run, "local_only", federation, "m1+m1", **SETTING)
    refused("model='m5' is unknown", fl.run, "local_only", federation, "m1+m5", **SETTING)
    one = np.zeros(4, np.int64)
    other = Dataset("other", pictures(4, 3, 16, 16), np.arange(4), tuple("abcd"), one.astype(np.uint8), one, ("a",))
    refused(r"other cannot be public for tiny: it has images of \(3, 16, 16\) and 4", federation.with_public, other)
