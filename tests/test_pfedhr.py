"""pFedHR and its baselines FedMD, FedGH, FedKEMF, FCCL and pFedBayes: identities and oracles."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from phases import batches_of
from test_baselines import close, cohort_of
from torch.distributions import Normal, kl_divergence
from torch.func import grad

import fedlib as fl
from fedlib.models import MODELS, build
from fedlib.models.adapter import adapted
from fedlib.models.pair import pair, prefixed
from fedlib.reassembly.reassemble import Network, reassemble
from fedlib.runs.plan import prepare
from fedlib.stack import client_mean, select
from fedlib.streams import generator
from fedlib.training.backends import BACKENDS
from fedlib.training.batches import Batch, client_batches
from fedlib.training.contrastive import nt_xent, view
from fedlib.training.evaluate import logits
from fedlib.training.noise import mixed, normal
from fedlib.training.server import public_training, server_batches, views

PLAIN = "lenet5_plain"
MIXTURE = "lenet5_plain+lenet5"
SETTING = dict(rounds=2, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05, model=PLAIN)
EXACT = SETTING | {"dtype": "float64"}
QUICK = dict(server_epochs=1, server_batch=20, probes=24)


def module(name: str):
    """The module of an algorithm; in the package its name is that of the function."""
    return importlib.import_module(f"fedlib.algorithms.{name}")


def run(method, federation, **setting) -> fl.RunResult:
    return fl.run(method, federation, **EXACT | setting, progress=False)


def same_bits(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(t, b[name]) for name, t in a.items())


def start_of(method, federation, **setting):
    """The run's model and the initial state."""
    plan = prepare(method, federation, **EXACT | setting)
    return plan.model, plan.algorithm.init(plan.model, federation)


@pytest.mark.parametrize("method", ["pfedhr", "fedmd", "fedgh", "fedkemf", "fccl"])
def test_methods_that_need_public_images_say_so(method, federation):
    with pytest.raises(ValueError, match=f"{method} needs public images; give some to federate"):
        fl.run(method, replace(federation, public=None), **SETTING, progress=False)


# What the server learns from


def test_the_contrastive_loss_equals_numpy():
    z, t = np.random.default_rng(0).normal(size=(8, 5)), 0.3
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    cosines = np.exp(unit @ unit.T / t)
    oracle = np.mean([-np.log(cosines[i, (i + 4) % 8] / (cosines[i].sum() - cosines[i, i])) for i in range(8)])
    assert nt_xent(torch.from_numpy(z), t).item() == pytest.approx(oracle)
    x = torch.eye(4)
    assert nt_xent(torch.cat([x, x]), 0.05) < 1e-6 < 1 < nt_xent(torch.cat([x, x.roll(1, 0)]), 0.05)


def test_views_are_other_pictures_of_the_same_and_come_from_the_generator():
    x = torch.rand(400, 3, 12, 12)
    one, again, other = (view(x, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert one.shape == x.shape
    assert (one.min() >= 0, one.max() <= 1) == (True, True)
    grey = (one - one.mean(1, keepdim=True)).abs().amax((1, 2, 3)) < 1e-5
    assert 0.12 < grey.float().mean() < 0.28
    plain = view(torch.full((400, 3, 12, 12), 0.5), np.random.default_rng(0))  # constant: no crop is seen
    assert (plain - plain.mean((2, 3), keepdim=True)).abs().max() < 1e-5
    level = plain.mean((1, 2, 3))
    assert ((level - 0.5).abs() < 1e-3).float().mean() == pytest.approx(0.2, abs=0.06)  # four of five are changed
    assert level.min() >= 0.3 - 1e-6
    assert level.max() <= 0.7 + 1e-6


def test_half_of_the_views_are_mirrored_and_a_crop_keeps_most_of_the_image():
    ramp = torch.linspace(0, 1, 32).expand(400, 1, 32, 32)  # from left to right
    seen = view(ramp, np.random.default_rng(0))
    up = seen[:, 0, 16, -1] > seen[:, 0, 16, 0]
    assert 0.4 < up.float().mean() < 0.6
    rows = torch.linspace(0, 1, 32)[:, None].expand(400, 1, 32, 32)
    down = view(rows, np.random.default_rng(0))
    assert (down[:, 0, -1, 16] > down[:, 0, 0, 16]).all()  # never upside down


def test_both_views_of_a_batch_are_normalised_as_the_images_are(federation):
    images = cohort_of(federation, 0, method="fedavg", **EXACT).public
    batches = server_batches(images, 2, 16, (0, 1))
    assert batches.shape == (2 * 3, 16)
    assert sorted(set(batches[:3].flatten().tolist())) == list(range(40))
    pairs = views(images, batches, (3,))
    assert [tuple(x.shape) for x in pairs] == [(32, 1, 16, 16)] * 6
    pixels = (torch.cat(pairs) - images.shift) / images.scale
    assert (pixels.min() > -1e-6, pixels.max() < 255 + 1e-6) == (True, True)


@pytest.mark.parametrize("labelled", [True, False])
def test_training_on_public_images_equals_bare_pytorch_and_leaves_the_weights_as_they_were(labelled, federation):
    cohort = cohort_of(federation, 0, **EXACT)
    model, images, stream = cohort.model, cohort.public, (0, "server", 0)
    before = {name: t.clone() for name, t in model.weights.items()}
    trained = public_training(images, labelled, 2, 16, 1e-3, 0.5, stream)(model, model.weights, 0)
    assert same_bits(model.weights, before)
    net = model.net.double().train()
    net.load_state_dict(model.weights)
    adam, batches = torch.optim.Adam(net.parameters(), 1e-3), server_batches(images, 2, 16, stream)
    for step, index in enumerate(batches):
        adam.zero_grad()
        x, y, *_ = images.batch(index, model)
        error = F.cross_entropy(net(x), y) if labelled else nt_xent(net(views(images, batches, stream)[step]), 0.5)
        error.backward()
        adam.step()
    for name, t in net.named_parameters():
        torch.testing.assert_close(trained[name], t.detach(), rtol=1e-6, atol=1e-10)


# pFedHR


@pytest.mark.parametrize("model", [PLAIN, MIXTURE])
@pytest.mark.parametrize("method", [fl.pfedhr(lam=0, **QUICK), fl.pfedhr(lam=0, keep_teacher=True, **QUICK)])
def test_without_lambda_it_is_local_training_to_the_bit(method, model, federation):
    """So the server's work has left the uploads as they were, too."""
    ours, local = (run(own, federation, model=model, rounds=3, join_ratio=0.7) for own in (method, fl.local_only()))
    assert same_bits(ours.models, local.models)
    assert (ours.state.log["match"] >= 0).all()


def test_a_client_without_a_teacher_trains_alone(federation):
    ours, local = (run(m, federation, rounds=1) for m in (fl.pfedhr(lam=5, **QUICK), fl.local_only()))
    assert same_bits(ours.models, local.models)
    again = run(fl.pfedhr(lam=5, **QUICK), federation, join_ratio=1.0)
    assert not same_bits(again.models, run("local_only", federation, join_ratio=1.0).models)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("labelled", [True, False])
def test_two_rounds_equal_distillation_from_the_teacher_itself(labelled, keep, federation):
    """The run keeps the teacher's answers; here the teacher itself answers in every step. Clients come and go."""
    method = fl.pfedhr(groups=3, lam=0.7, labelled=labelled, keep_teacher=keep, most=4, **QUICK)
    result = run(method, federation, rounds=3)
    nets, teachers, since = {}, {}, {}
    for t in range(3):
        cohort = cohort_of(federation, t, method=method, **EXACT | {"rounds": 3})
        model, stream = cohort.model, (0, "server", t)
        for i in cohort.ids.tolist():
            nets.setdefault(i, model.weights)
            told = i in teachers and (keep or since[i] == t - 1)
            nets[i] = distilled(cohort, nets[i], i, t, 0.7, teachers[i] if told else None)
        pool = [Network(model, nets[i]) for i in cohort.ids.tolist()]
        chosen = generator(0, "pfedhr", "probes").permutation(40)[:24]
        tried = reassemble(pool, cohort.public.batch(torch.from_numpy(chosen), model).x, 3, 4, 1, stream)
        train = public_training(cohort.public, labelled, 1, 20, 1e-3, 0.5, stream)
        tuned = [(c, train(c, c.weights, m)) for m, c in enumerate(tried.candidates)]
        for row, (i, own) in enumerate(zip(cohort.ids.tolist(), pool, strict=True)):
            copy = logits(model, train(*own, len(tuned) + row), cohort.public, torch.arange(40))
            cosines = [
                F.cosine_similarity(copy, logits(c, w, cohort.public, torch.arange(40))).mean() for c, w in tuned
            ]
            best = int(torch.stack(cosines).argmax())
            assert result.state.log["match"][t, row] == best
            torch.testing.assert_close(result.state.log["similarity"][t, row, : len(tuned)], torch.stack(cosines))
            teachers[i], since[i] = tuned[best], t
    assert len(since) > 3  # some are there for one round only, some come back later
    for i, w in nets.items():
        for name, t in w.items():
            torch.testing.assert_close(result.models[name][i], t, rtol=1e-6, atol=1e-10)


def distilled(cohort, w, i, t, lam, teacher):
    """Bare PyTorch: client i's local epochs in round t."""
    net = cohort.model.net.double()
    net.load_state_dict(w)
    sgd = torch.optim.SGD(net.parameters(), 0.05)
    for index in client_batches(cohort.federation.train[i], range(2), 8, batches_of(t, i)):
        batch = cohort.images.batch(index, cohort.model)
        own = net.train()(batch.x)
        error = F.cross_entropy(own, batch.y)
        if teacher is not None:
            q = logits(*teacher, cohort.images, index).softmax(1)
            error = error + lam * (q * (q.log() - own.log_softmax(1))).sum(1).mean()
        sgd.zero_grad()
        error.backward()
        sgd.step()
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def test_no_candidate_is_handled_and_counted(federation, monkeypatch):
    """No chain fits: everybody trains alone and keeps the model it has."""
    monkeypatch.setattr("fedlib.reassembly.reassemble.chains", lambda pieces, groups: [[] for _ in groups])
    ours, local = (run(m, federation, join_ratio=1.0) for m in (fl.pfedhr(**QUICK), fl.local_only()))
    assert same_bits(ours.models, local.models)
    log = ours.state.log
    assert log["found"].tolist() == [0, 0]
    assert log["used"].tolist() == [2, 2]
    assert (log["match"] == -1).all()
    assert ours.rounds["bytes_down"].tolist() == [0, 0]


def test_the_log_holds_every_round_and_survives_an_interruption(federation, tmp_path):
    class Stop(Exception):
        pass

    def stop(t):
        if t == 2:
            raise Stop

    method, setting = fl.pfedhr(**QUICK), EXACT | {"rounds": 4, "model": MIXTURE}
    whole = fl.run(method, federation, **setting, progress=False, store=tmp_path / "whole")
    with pytest.raises(Stop):
        fl.run(method, federation, **setting, progress=stop, store=tmp_path / "parts", checkpoint_seconds=0)
    resumed = fl.run(method, federation, **setting, progress=False, store=tmp_path / "parts")
    assert same_bits(whole.state.log, resumed.state.log)
    assert same_bits(whole.models, resumed.models)
    assert {len(t) for t in whole.state.log.values()} == {4}
    cohorts = [cohort_of(federation, t, method=method, **setting).ids.tolist() for t in range(4)]
    assert whole.state.log["clients"].tolist() == cohorts


def test_what_is_sent_is_the_own_model_up_and_the_candidate_down(federation):
    result = fl.run(fl.pfedhr(**QUICK), federation, **SETTING | {"rounds": 1}, progress=False)
    log, row = result.state.log, result.rounds.iloc[0]
    assert row["bytes_down"] == 4 * log["size"][0, log["match"][0]].sum()  # a network without BatchNorm
    assert row["bytes_up"] == 4 * 3 * sum(t.numel() for t in result.model.weights.values())


def test_the_pool_of_the_variant_for_many_clients_are_means_by_architecture(federation, monkeypatch):
    pools = []

    def spy(pool, *arguments):
        pools.append(pool)
        return reassemble(pool, *arguments)

    monkeypatch.setattr(module("pfedhr"), "reassemble", spy)
    one = dict(model=MIXTURE, rounds=1, join_ratio=1.0)
    result = run(fl.pfedhr(average=True, **QUICK), federation, **one)
    [pool] = pools
    n = torch.tensor([len(own) for own in federation.train])
    for network, group in zip(pool, result.groups, strict=True):
        stack = select(result.models, group.model.weights)  # after one round these are the uploads
        assert close(network.w, client_mean(stack, n[torch.from_numpy(group.clients)]))
    assert result.state.log["network"].tolist() == [[0, 1, -1, -1, -1, -1]]
    assert (result.state.log["match"] >= 0).all()
    log = run(fl.pfedhr(**QUICK), federation, **one).state.log
    of = {i: j for j, group in enumerate(result.groups) for i in group.clients.tolist()}
    assert log["network"].tolist() == [[of[i] for i in range(6)]]


def test_a_random_match_is_another_one(federation):
    similar, chance = (
        run(fl.pfedhr(match=match, **QUICK), federation, join_ratio=1.0).state.log["match"]
        for match in ("similar", "random")
    )
    assert not torch.equal(similar, chance)
    assert (chance >= 0).all()


def test_a_model_is_most_like_itself():
    z = torch.randn(3, 20, 4)
    alike = module("pfedhr").alike(z, torch.cat([2 * z, -z]))
    torch.testing.assert_close(alike[:, :3].diagonal(), torch.ones(3))
    torch.testing.assert_close(alike[:, 3:].diagonal(), -torch.ones(3))
    oracle = torch.stack([F.cosine_similarity(z[0], own).mean() for own in z])
    torch.testing.assert_close(alike[0, :3], oracle)


# FedMD


@pytest.mark.parametrize("shown", [5000, 17])
def test_fedmd_digests_the_mean_and_then_revisits(shown, federation):
    method = fl.fedmd(warm_up=1, shown=shown)
    result = run(method, federation, rounds=1, model=MIXTURE)
    cohort = cohort_of(federation, 0, method=method, **EXACT | {"rounds": 1, "model": MIXTURE})
    chosen = np.sort(generator(0, "server", 0, "shown").permutation(40)[:shown])
    nets, answers = {}, []
    for part in cohort.parts():
        for i in part.ids.tolist():
            net = part.model.net.double()
            net.load_state_dict(part.model.weights, strict=False)
            steps(net, part, part.public, client_batches(np.arange(40), [0], 8, batches_of(0, i, "public warm up")))
            steps(net, part, part.images, client_batches(federation.train[i], [0], 8, batches_of(0, i, "warm up")))
            nets[i] = {name: t.clone() for name, t in net.state_dict().items()}
            answers.append(logits(part.model, nets[i], part.public, torch.from_numpy(chosen)))
    mean = torch.zeros(40, 4).double()
    mean[chosen] = torch.stack(answers).mean(0)
    for part in cohort.parts():
        for i in part.ids.tolist():
            net = part.model.net.double()
            net.load_state_dict(nets[i], strict=False)
            steps(net, part, part.public, client_batches(chosen, [0], 8, batches_of(0, i, "digest")), mean)
            steps(net, part, part.images, client_batches(federation.train[i], range(2), 8, batches_of(0, i)))
            [group] = [group for group in result.groups if i in group.clients]
            row = np.searchsorted(group.clients, i)
            for name, t in net.named_parameters():
                torch.testing.assert_close(result.models[name][row], t.detach(), rtol=1e-6, atol=1e-9)
    assert result.rounds[["bytes_up", "bytes_down"]].to_numpy().tolist() == [[8 * 3 * min(shown, 40) * 4] * 2]


def steps(net, part, images, batches, target=None) -> None:
    """Bare PyTorch on the labels, or on the mean absolute difference to `target`."""
    sgd = torch.optim.SGD(net.train().parameters(), 0.05)
    for index in batches:
        batch = images.batch(index, part.model)
        answer = net(batch.x)
        error = F.cross_entropy(answer, batch.y) if target is None else (answer - target[index]).abs().mean()
        sgd.zero_grad()
        error.backward()
        sgd.step()


@pytest.mark.parametrize("method", [fl.fedmd(warm_up=1), fl.fccl(warm_up=1)])
def test_a_client_warms_up_once(method, federation):
    result = run(method, federation, rounds=3)
    met = {i for t in range(3) for i in cohort_of(federation, t, **EXACT | {"rounds": 3}).ids.tolist()}
    assert result.state.met.nonzero().flatten().tolist() == sorted(met)
    cohort = cohort_of(federation, 0, method=method, **EXACT | {"join_ratio": 1.0})
    _, state = start_of(method, federation)
    phases = []
    for _ in range(2):
        before = len(cohort.meter.losses)
        state = method.round(state, cohort)
        phases.append(len(cohort.meter.losses) - before)
    assert phases[0] - phases[1] == {"fedmd": 2, "fccl": 1}[method.name]


# FedGH


def test_the_adapter_leaves_the_rest_of_the_network_as_it_was():
    model = build("lenet5", MODELS["lenet5"], (1, 16, 16), 4, seed=0)
    other = adapted(model, 7)
    assert all(torch.equal(t, other.weights[name]) for name, t in model.weights.items() if name in other.weights)
    assert {name: tuple(other.weights[name].shape) for name in set(other.weights) - set(model.weights)} == {
        "classifier.0.weight": (7, 84), "classifier.0.bias": (7,),
        "classifier.2.weight": (4, 7), "classifier.2.bias": (4,),
    }  # fmt: skip
    assert other.classifier == {"classifier.2.weight", "classifier.2.bias"}
    x = torch.randn(3, 1, 16, 16)
    z, answer = other.penultimate(other.weights, x)
    assert (z >= 0).all()
    weight, bias = other.head(other.weights)
    torch.testing.assert_close(answer, z @ weight.T + bias)


@pytest.mark.parametrize("public", [True, False])
def test_the_header_of_fedgh_learns_from_the_class_means(public, federation):
    method = fl.fedgh(width=5, header_steps=7, header_lr=0.3, public=public)
    result = run(method, federation, rounds=1, join_ratio=1.0, model=MIXTURE)
    _, start = start_of(method, federation, model=MIXTURE)
    z, y = [], []
    for group in result.groups:
        group.model.net.double().eval()
        for row, i in enumerate(group.clients.tolist()):
            w = {name: t[row] for name, t in select(result.models, group.model.weights).items()}
            cohort = cohort_of(federation, 0, method=method, **EXACT | {"model": MIXTURE})
            sets = [(cohort.images, federation.train[i]), *([(cohort.public, np.arange(40))] if public else [])]
            for images, index in sets:
                batch = images.batch(torch.from_numpy(index), group.model)
                features = group.model.penultimate(w, batch.x)[0].detach()
                for c in batch.y.unique():
                    z.append(features[batch.y == c].mean(0))
                    y.append(c)
    z, y = torch.stack(z), torch.stack(y)
    weight, bias = start.weight.clone(), start.bias.clone()
    for _ in range(7):
        slope = (z @ weight.T + bias).softmax(1) - F.one_hot(y, 4)
        weight, bias = weight - 0.3 * slope.T @ z / len(z), bias - 0.3 * slope.mean(0)
    torch.testing.assert_close(result.state.weight, weight)
    torch.testing.assert_close(result.state.bias, bias)
    again = run(method, federation, rounds=2, join_ratio=1.0, model=MIXTURE)
    assert not torch.equal(again.state.weight, weight)


def test_a_round_of_fedgh_starts_from_the_global_header(federation):
    method = fl.fedgh(width=5, public=False)
    cohort = cohort_of(federation, 0, method=method, **EXACT | {"join_ratio": 1.0})
    _, state = start_of(method, federation)
    state = state._replace(weight=torch.full_like(state.weight, 0.25), bias=torch.ones_like(state.bias))
    [part], begun = cohort.parts(), []
    trainer = cohort.trainer
    spied = lambda phase: begun.append(phase.w) or trainer(phase)  # noqa: E731
    method.round(state, cohort.__class__(**{**vars(cohort), "trainer": spied}))
    weight, bias = part.model.head(begun[0])
    assert (weight == 0.25).all()
    assert (bias == 1).all()


# FedKEMF


def test_each_of_two_networks_learns_from_the_labels_and_from_the_other():
    own, known = (build(name, MODELS[name], (1, 16, 16), 4, seed=0) for name in (PLAIN, "lenet5"))
    both, x, y = pair(own, known), torch.randn(6, 1, 16, 16), torch.arange(6) % 4
    both.net.eval()
    w = prefixed("theta", own.weights) | prefixed("lenet5", known.weights)
    found = grad(lambda free: module("fedkemf").mutual_loss(w | free, Batch(x, y, both)))(select(w, both.trainable))
    for prefix, model, peer in (("theta", own, known), ("lenet5", known, own)):
        target = peer(peer.weights, x).softmax(1).detach()

        def alone(free, model=model, target=target):
            z = model(model.weights | free, x)
            return F.cross_entropy(z, y) + (target * (target.log() - z.log_softmax(1))).sum(1).mean()

        for name, t in grad(alone)(select(model.weights, model.trainable)).items():
            torch.testing.assert_close(found[f"{prefix}.{name}"], t, rtol=1e-4, atol=1e-7)


def test_the_knowledge_network_is_the_mean_and_then_learns_from_the_ensemble(federation, monkeypatch):
    seen = []
    monkeypatch.setattr(module("fedkemf"), "client_mean", lambda *a: seen.append((a, client_mean(*a))) or seen[-1][1])
    once = dict(rounds=1, join_ratio=1.0, model=MIXTURE)
    plain = run(fl.fedkemf(knowledge=PLAIN, server_epochs=0), federation, **once)
    (copies, n), mean = seen.pop()
    assert same_bits(plain.state.w, mean)
    order = np.concatenate([group.clients for group in plain.groups])
    assert n.tolist() == [len(federation.train[i]) for i in order]
    trained = run(fl.fedkemf(knowledge=PLAIN, server_epochs=40), federation, **once)
    assert same_bits(trained.models, plain.models)
    cohort = cohort_of(federation, 0, **EXACT)
    model, every = cohort.model, torch.arange(40)
    one = [{name: t[i] for name, t in copies.items()} for i in range(6)]
    target = torch.stack([logits(model, w, cohort.public, every).softmax(1) for w in one]).mean(0)
    far = [
        F.kl_div(logits(model, own.state.w, cohort.public, every).log_softmax(1), target, reduction="batchmean")
        for own in (plain, trained)
    ]
    assert far[1] < 0.2 * far[0]


# FCCL


def test_the_correlation_loss_equals_numpy():
    rng = np.random.default_rng(0)
    own, mean = rng.normal(size=(30, 4)), rng.normal(size=(30, 4))
    a, b = ((z - z.mean(0)) / (z.std(0, ddof=1) + 1e-6) for z in (own, mean))
    m = a.T @ b / 30
    same, other = np.diag(m), m[~np.eye(4, dtype=bool)]
    oracle = ((1 - same) ** 2).sum() + 0.3 * ((1 + other) ** 2).sum()
    found = module("fccl").correlation_loss(torch.from_numpy(own), torch.from_numpy(mean), 0.3)
    assert found.item() == pytest.approx(oracle)


def test_fccl_learns_from_the_mean_and_forgets_neither_its_last_round_nor_its_warm_up(federation):
    """Two rounds against the loss with frozen copies of the models themselves."""
    method = fl.fccl(warm_up=1, weight=0.1, public_batch=16)
    result = run(method, federation, rounds=2, join_ratio=1.0)
    nets, first = {}, {}
    for t in range(2):
        cohort = cohort_of(federation, t, method=method, **EXACT | {"join_ratio": 1.0})
        model, net = cohort.model, cohort.model.net.double()
        for i in range(6 if t == 0 else 0):
            net.load_state_dict(model.weights)
            steps(net, cohort, cohort.images, client_batches(federation.train[i], [0], 8, batches_of(0, i, "warm up")))
            nets[i] = first[i] = {name: value.clone() for name, value in net.state_dict().items()}
        mean = torch.stack([logits(model, nets[i], cohort.public, torch.arange(40)) for i in range(6)]).mean(0)
        for i in range(6):
            net.load_state_dict(nets[i])
            sgd = torch.optim.SGD(net.parameters(), 0.05)
            for index in client_batches(np.arange(40), [0], 16, batches_of(t, i, "public")):
                sgd.zero_grad()
                answer = net.train()(cohort.public.batch(index, model).x)
                module("fccl").correlation_loss(answer, mean[index], 0.1).backward()
                sgd.step()
            for index in client_batches(federation.train[i], range(2), 8, batches_of(t, i)):
                batch, learnt = cohort.images.batch(index, model), net.state_dict()
                teachers = [logits(model, own[i], cohort.images, index).softmax(1) for own in (nets, first)]
                own = net.train()(batch.x)
                error = F.cross_entropy(own, batch.y)
                for q in teachers:
                    error = error + (q * (q.log() - own.log_softmax(1))).sum(1).mean()
                sgd.zero_grad()
                error.backward()
                sgd.step()
                assert learnt.keys() == nets[i].keys()
            nets[i] = {name: value.clone() for name, value in net.state_dict().items()}
    for i, w in nets.items():
        for name, value in w.items():
            torch.testing.assert_close(result.models[name][i], value, rtol=1e-6, atol=1e-9)


# pFedBayes


def test_the_numbers_are_those_of_splitmix64():
    """Its reference in Java, here with Python's integers: the n-th number of seed 0 is mix(n * golden)."""

    def reference(counter):
        mask = (1 << 64) - 1
        z = counter * 0x9E3779B97F4A7C15 & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31

    counters = [0, 1, 2, 3, 12345, 2**62 - 1]
    assert [n % (1 << 64) for n in mixed(torch.tensor(counters)).tolist()] == [reference(n) for n in counters]
    assert reference(1) == 0xE220A8397B1DCDAF  # the first number of seed 0, as published


def test_normal_numbers_are_normal_and_independent_of_each_other():
    like = torch.zeros(200_000, dtype=torch.float64)
    a, again, b = (normal(torch.tensor(seed), like) for seed in (1, 1, 2))
    assert torch.equal(a, again)
    assert abs(a.mean()) < 0.01
    assert a.std().item() == pytest.approx(1, abs=0.01)
    assert (a.abs() < 1.96).double().mean().item() == pytest.approx(0.95, abs=0.003)
    pairs = torch.corrcoef(torch.stack([a[1:], a[:-1], b[1:]]))
    assert (pairs - torch.eye(3)).abs().max() < 0.01


def test_the_divergence_is_that_of_gaussians():
    (mu, mu_w), (sigma, sigma_w) = torch.randn(2, 9).double(), torch.rand(2, 9).double() + 0.1
    found = module("pfedbayes").divergence((mu, sigma), (mu_w, sigma_w))
    torch.testing.assert_close(found, kl_divergence(Normal(mu, sigma), Normal(mu_w, sigma_w)).sum())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_narrow_posterior_without_a_prior_is_local_training(backend, federation):
    setting = dict(backend=backend, model="lenet5", rounds=1)
    ours, local = (run(m, federation, **setting) for m in (fl.pfedbayes(zeta=0, rho=-30), fl.local_only()))
    assert close(ours.models, local.models, 1e-6)
    _, start = start_of(fl.pfedbayes(zeta=0, rho=-30), federation, model="lenet5")
    assert close(ours.state.w, start.w, 1e-12)  # nobody pulls the global distribution


def test_the_two_distributions_pull_at_each_other(federation):
    """One step: w moves down zeta / n KL(q || w) with q held fixed, q down its loss with w held fixed."""
    once = dict(rounds=1, local_epochs=1, batch_size=200, join_ratio=1.0)
    _, state = start_of(fl.pfedbayes(), federation, **once)
    n, v = np.array([len(own) for own in federation.train]), {name: t + 0.1 for name, t in state.v.items()}
    pulled, free = (
        fl.pfedbayes(zeta=zeta).round(
            state._replace(v={name: t.clone() for name, t in v.items()}), cohort_of(federation, 0, **EXACT | once)
        )
        for zeta in (0.05, 0.0)
    )
    for name in (name for name in state.w if not name.startswith("rho of ")):
        here = [v[name][0], v["rho of " + name][0], state.w[name], state.w["rho of " + name]]
        mu, rho, mu_w, rho_w = (t.clone().requires_grad_() for t in here)
        far = kl_divergence(Normal(mu, F.softplus(rho)), Normal(mu_w, F.softplus(rho_w))).sum()
        slopes = torch.autograd.grad(0.05 * far, [mu, rho, mu_w, rho_w])  # each client takes its share 1 / n_i of it
        for prefix, own, other in (("", *slopes[::2]), ("rho of ", *slopes[1::2])):
            step = pulled.v[prefix + name][0] - free.v[prefix + name][0]
            torch.testing.assert_close(step, -0.05 * own / n[0], rtol=1e-5, atol=1e-9)
            mean = pulled.w[prefix + name] - free.w[prefix + name]  # all q_i are equal here
            torch.testing.assert_close(mean, -0.05 * other * np.mean(1 / n), rtol=1e-5, atol=1e-9)


def test_what_is_drawn_is_another_sample_in_every_step(federation):
    """With a frozen start the loss of two equal epochs differs by the draw alone."""
    method = fl.pfedbayes(zeta=0, rho=-1.0)
    cohort = cohort_of(federation, 0, **EXACT | {"lr": 1e-12, "join_ratio": 1.0})
    for _ in range(2):
        method.round(start_of(method, federation)[1], cohort)
    one, other = cohort.meter.losses
    assert not torch.allclose(one, other, rtol=1e-3)
