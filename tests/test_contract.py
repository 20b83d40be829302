"""The contract that every algorithm keeps, and the identities that tie the algorithms together."""

import inspect
from dataclasses import fields

import numpy as np
import pytest
import torch
from methods import FACTORIES, READ_BACK
from phases import batches_of
from torch.utils._pytree import tree_leaves
from trees import distance, same_bits

import fedlib as fl
from fedlib.algorithm import ALGORITHMS, architectures_of
from fedlib.engine.backends import BACKENDS
from fedlib.runs.plan import cohorts
from fedlib.runs.prepare import prepare
from fedlib.runs.session import Session
from fedlib.runs.setting import Setting
from fedlib.runs.store import flatten
from fedlib.stack import for_each, keys
from fedlib.training.batches import on_device
from fedlib.training.evaluation import MixedEvaluation

SETTING = dict(rounds=4, join_ratio=0.5, local_epochs=2, batch_size=12, lr=0.05, tune_epochs=0, progress=False)
SHORT = {"rounds": 1, "local_epochs": 1}
EVERY = {"rounds": 2, "evaluate_every": 1}

# What a method or a run has that says nothing else; it is part of every number, so it changes knowingly.
DEFAULTS = {
    "apfl": dict(alpha=0.5, adaptive=True),
    "ditto": dict(lam=1, personal_epochs=None),
    "fccl": dict(warm_up=10, weight=0.0051, public_epochs=1, public_batch=256),
    "fedalt": dict(warm_up=0.5, part="output"),
    "fedamp": dict(sigma=10, alpha=1, lam=1),
    "fedap": dict(warm_up=0.5, self_weight=0.5, evaluate="mixed"),
    "fedavg": dict(),
    "fedbabu": dict(tuned="all"),
    "fedbn": dict(affine=True),
    "fedcs": dict(at="fc1", base="fedavg", every=5, steps="normalised", beta=0.1)
    | dict(side="input", centred=True, shifted=False, rank=None),
    "feddyn": dict(alpha=0.01, clip=10),
    "fedfomo": dict(neighbours=5, validation=0.2, explore=0.3, explore_decay=0.05),
    "fedgen": dict(alpha=10, beta=10, decay=0.98, labels=32, noise=32, hidden=32, generator_steps=5, generator_lr=3e-4),
    "fedgh": dict(width=64, header_steps=100, header_lr=0.01, public=True),
    "fedkemf": dict(knowledge="m1", server_epochs=3, server_lr=1e-3, server_batch=64),
    "fedmd": dict(warm_up=10, digest_epochs=1, shown=5000),
    "fedpac": dict(lam=1, head_epochs=1),
    "fedper": dict(),
    "fedproto": dict(lam=1),
    "fedprox": dict(mu=1),
    "fedrep": dict(body_epochs=1),
    "fedsim": dict(warm_up=0.5, part="output"),
    "fedsimsup": dict(supervisor="small_lenet", supervisor_epochs=2, similarity=True),
    "ifca": dict(clusters=3),
    "local_only": dict(),
    "perfedavg": dict(alpha=0.01, beta=1e-3, hessian="first_order", delta=1e-3, steps=None),
    "pfedbayes": dict(zeta=10, rho=-2.5),
    "pfedhr": dict(groups=4, lam=0.2, labelled=True, server_epochs=3, stitch_depth=1, stitch_relu=True)
    | dict(end_in_head=False, average=False, match="similar", keep_teacher=False, most=10, probes=512)
    | dict(temperature=0.5, server_lr=1e-3, server_batch=8),
    "pfedmb": dict(branches=5, share_alpha=False, weighted=True, alpha_lr=1, gain=True),
    "pfedme": dict(lam=15, personal_lr=0.01, steps=5, beta=1),
    "pfedsim": dict(generalization=0.5, similarity="per_class", cap=1e-4),
    "scaffold": dict(server_lr=1),
}
SETTINGS = dict(join_ratio=1, local_epochs=1, batch_size=32, lr=0.01, momentum=0, optimizer="sgd", lr_decay=1) | dict(
    lr_decay_every=1, seed=0, evaluate_every=None, tune_epochs=None, tune_every=None, tune_part=None
)
SETTINGS |= dict(
    statistics="shared",
    pixels="unit",
    dropout=0,
    stragglers=0,
    client_metrics=None,
    backend="auto",
    device="auto",
    dtype="float32",
    graphs=True,
    checkpoint_seconds=30.0,
)


@pytest.fixture(params=sorted(FACTORIES))
def method(request) -> fl.Algorithm:
    return FACTORIES[request.param]()


@pytest.fixture(scope="module")
def plain(federation, tmp_path_factory):
    """A function that runs a method with `SETTING` and changes; a run that several tests want is run once."""
    store = tmp_path_factory.mktemp("plain")
    return lambda method, **changes: fl.run(method, federation, **SETTING | changes, store=store)


@pytest.mark.parametrize("name", fl.algorithms())
def test_defaults_of_hyper_parameters(name):
    parameters = inspect.signature(ALGORITHMS[name]).parameters.values()
    assert {own.name: own.default for own in parameters} == DEFAULTS[name]


def test_defaults_of_a_run():
    assert {own.name: own.default for own in fields(Setting) if own.name != "rounds"} == SETTINGS


def test_models_have_the_shapes_and_dtype_of_the_stack(method, federation, plain):
    plan = prepare(method, federation, rounds=1)
    [group] = architectures_of(method, plan.model, federation)
    models = plain(method).models
    shapes = dict(zip(keys(models), (t.shape for t in tree_leaves(models)), strict=True))
    initial = zip(keys(group.model.weights), tree_leaves(group.model.weights), strict=True)
    assert shapes == {way: (federation.n_clients, *t.shape) for way, t in initial}
    assert {t.dtype for t in tree_leaves(models)} == {torch.float32}
    assert all(t.isfinite().all() for t in tree_leaves(models))


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(method, federation, plain):
    first, again = plain(method), fl.run(method, federation, **SETTING)
    assert first.folder != again.folder  # it was run again
    assert same_bits(first.models, again.models)
    assert first.accuracy.equals(again.accuracy)
    one, other = (plain(method, **SHORT, seed=seed).models for seed in (0, 8))
    assert not same_bits(one, other)


def test_training_lowers_the_loss(method, federation):
    rounds = {"fedgen": 9, "perfedavg": 6}.get(method.name, 3)  # these two are slow
    how = dict(rounds=rounds, join_ratio=1.0, batch_size=8, momentum=0.8, evaluate_every=1)
    result = fl.run(method, federation, **SETTING | how)
    loss = result.accuracy.groupby("round")["loss"].mean()
    assert loss.iloc[-1] < 0.8 * loss.iloc[0]


def test_a_client_that_was_never_sampled_keeps_its_personal_entries(method, federation):
    result = fl.run(method, federation, **SETTING | {"rounds": 1, "join_ratio": 0.2})
    state, before = result.state, prepare(method, federation, **without_progress(SETTING))
    field = {"pfedbayes": "q", "pfedmb": "z"}.get(method.name, "v")
    if field not in state._fields:  # nothing is personal: one model serves everybody, or one of IFCA's clusters
        alike = all((t == t[:1]).all() for t in tree_leaves(result.models))
        assert alike or method.name in ("ifca", "fedsimsup")
        return
    first = before.algorithm.init(before.model, federation)
    v, first = (for_each(getattr(s, field), federation.n_clients) for s in (state, first))
    pairs = zip(tree_leaves(v), tree_leaves(first), strict=True)
    changed = torch.stack([(t != initial).flatten(1).any(1) for t, initial in pairs]).any(0)
    [sampled] = cohorts(federation.n_clients, 0.2, 1, seed=0)  # floor(0.2 * 6) = 1 client
    assert changed.nonzero().flatten().tolist() == sampled.tolist()


def without_progress(setting: dict) -> dict:
    return {name: value for name, value in setting.items() if name != "progress"}


def test_stacked_equals_loop_after_a_round_in_float32(method, plain):
    loop, stacked = (
        plain(method, **SHORT | ({} if backend == "loop" else {"backend": backend})) for backend in ("loop", "stacked")
    )
    assert [own.config["backend"] for own in (loop, stacked)] == ["loop", "stacked"]
    assert loop.folder != stacked.folder
    assert distance(loop.models, stacked.models) < 1e-5


def test_stacked_equals_loop_over_a_run_in_float64(method, federation):
    setting = SETTING | {"dtype": "float64", "rounds": 2}
    loop, stacked = (fl.run(method, federation, **setting, backend=b) for b in ("loop", "stacked"))
    assert distance(loop.models, stacked.models) < 1e-5
    assert {t.dtype for t in tree_leaves(stacked.models)} == {torch.float64}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_round_reads_nothing_back_from_the_device(backend, method, federation):
    """On torch's device "meta" there is nothing to read: the host would fail instead of waiting for a GPU.

    Every operation there is slow: two clients a round, two steps.
    """
    if method.name in READ_BACK:
        pytest.skip("its server works on the host")
    setting = without_progress(SETTING) | dict(rounds=2, join_ratio=0.34, batch_size=32)
    plan, meta = prepare(method, federation, **setting), torch.device("meta")
    session = Session(plan, meta, trainer=BACKENDS[backend](torch.device("cpu"), None, True))
    state = session.init()
    for t in range(2):
        state = plan.algorithm.round(state, session.cohort(t))
    models = plan.algorithm.models(state)
    assert {t.device for t in tree_leaves(models)} == {meta}
    MixedEvaluation(session.images, federation.test, session.architectures, stacked=True)(models)


def test_tuning_is_recorded_and_thrown_away(method, federation, plain):
    """After the first of two rounds, too."""
    untuned, tuned = plain(method, **EVERY), fl.run(method, federation, **SETTING | EVERY | {"tune_epochs": 1})
    assert same_bits(untuned.models, tuned.models)
    assert same_bits(flatten(untuned.state), flatten(tuned.state))
    before, after = (
        tuned.accuracy[tuned.accuracy["when"] == when].reset_index(drop=True) for when in ("before", "after")
    )
    assert before.equals(untuned.accuracy)
    assert (before["loss"] != after["loss"]).all()


def test_bytes_are_what_the_tensors_weigh(federation, plain):
    plan = prepare("fedavg", federation, rounds=1)
    whole = sum(t.numel() * 4 for t in plan.model.weights.values())
    classifier = sum(plan.model.weights[name].numel() * 4 for name in plan.model.classifier)
    norms = sum(plan.model.weights[name].numel() * 4 for name in plan.model.batchnorm)
    expected = {
        "local_only": 0,
        "fedavg": whole,
        "fedprox": whole,
        "feddyn": whole,
        "perfedavg": whole,
        "pfedsim": whole,
        "pfedme": whole,
        "fedamp": whole,
        "fedper": whole - classifier,
        "fedrep": whole - classifier,
        "fedbn": whole - norms,
        "ditto": whole,
        "apfl": whole,
        "fedbabu": whole - classifier,
    }
    for name, per_client in expected.items():
        rounds = plain(FACTORIES[name]()).rounds
        assert set(rounds["bytes_down"]) == set(rounds["bytes_up"]) == {3 * per_client}, name


def test_bytes_of_the_methods_that_send_more_than_one_model(federation, plain):
    """Sums over the 3 sampled of 6 clients, round by round; floats of 4 bytes."""
    plan = prepare("fedavg", federation, rounds=1)
    n = {name: w.numel() for name, w in plan.model.weights.items()}
    whole, norms = sum(n.values()), sum(n[name] for name in plan.model.batchnorm)
    rest, statistics = whole - norms, norms // 2  # mean and std, where BatchNorm has scale and shift, too
    phi = prototypes = 4 * 84 + 4  # means and counts of 4 classes
    generator = (4 + 32) * 32 + 32 + 4 * 32 + 84 * 32 + 84  # 4 classes
    d = 16  # what the first linear layer sees of 16x16 pixels
    header = 4 * 64 + 4  # 64 features
    knowledge = whole - norms  # LeNet5 without BatchNorm
    branches, layers = 5 * (whole - statistics), 7  # 5 linear and convolution layers, 2 of BatchNorm
    down = {
        "fedgen": [3 * whole] + 3 * [3 * (whole + generator)],
        "fedfomo": [3 * whole] + 3 * [3 * (1 + 3) * whole],  # M = 5, but only 3 took part in the last round
        "fedap": [3 * rest, 3 * rest, (6 + 3) * rest, 3 * rest],
        "pfedmb": 4 * [3 * branches],
        "ifca": 4 * [3 * 3 * whole],
        "fedsimsup": 4 * [3 * whole],
        "fedproto": [0] + 3 * [3 * prototypes],
        "fedcs": [3 * (whole + d**2)] + 3 * [3 * (whole + d**2)],  # Phi, then P
        "fedalt": 2 * [3 * whole] + 2 * [3 * (whole - phi)],
        "fedpac": [3 * whole] + 3 * [3 * (whole + prototypes)],  # the combined classifiers come after the body
        "fedmd": 4 * [3 * 40 * 4],  # logits of 40 public images
        "fccl": 4 * [3 * 40 * 4],
        "fedgh": 4 * [3 * header],
        "fedkemf": 4 * [3 * knowledge],
        "pfedbayes": 4 * [3 * 2 * rest],  # mean and deviation
        "scaffold": 4 * [3 * (2 * whole - statistics)],  # a control variate for all but running statistics
    }
    up = {
        "fedgen": 4 * [3 * (whole + 4)],
        "fedfomo": [3 * whole] + 3 * [3 * (whole + 3)],
        "fedap": [3 * rest, 3 * rest, 3 * rest + 6 * statistics, 3 * rest],
        "pfedmb": 4 * [3 * (branches + 5 * layers)],
        "ifca": 4 * [3 * whole],
        "fedsimsup": [3 * whole + 6 * 4] + 3 * [3 * whole],  # label counts of all clients, once
        "fedproto": 4 * [3 * prototypes],
        "fedcs": [3 * (whole + 2 * d**2 + d)] + 3 * [3 * whole],  # S, Phi and the mean of z
        "fedalt": 2 * [3 * whole] + 2 * [3 * (whole - phi)],
        "fedpac": 4 * [3 * (whole + prototypes + 4 * 84 + 1)],  # h and V of the received model
        "fedmd": 4 * [3 * 40 * 4],
        "fccl": 4 * [3 * 40 * 4],
        "fedgh": 4 * [3 * 2 * header],  # class means of train part and public images; and who has which class
        "fedkemf": 4 * [3 * knowledge],
        "pfedbayes": 4 * [3 * 2 * rest],
        "scaffold": 4 * [3 * (2 * whole - statistics)],
    }
    for name in down:
        rounds = plain(FACTORIES[name]()).rounds
        assert rounds["bytes_down"].tolist() == [4 * floats for floats in down[name]], name
        assert rounds["bytes_up"].tolist() == [4 * floats for floats in up[name]], name


IDENTITIES = {
    "FedProx with mu=0 is FedAvg": (fl.fedprox(mu=0), fl.fedavg()),
    "pFedSim with rho=1 is FedAvg": (fl.pfedsim(generalization=1), fl.fedavg()),
    "FedGen without its generator's terms is FedAvg": (fl.fedgen(alpha=0, beta=0), fl.fedavg()),
    "pFedHR without its teachers is Local-Only": (fl.pfedhr(lam=0, server_epochs=1), fl.local_only()),
    "FedProto without its regulariser is Local-Only": (fl.fedproto(lam=0), fl.local_only()),
    "f-FedAP that only warms up is FedBN": (fl.fedap(warm_up=1), fl.fedbn()),
    "f-FedAP alone from the start is Local-Only": (fl.fedap(warm_up=0, self_weight=1), fl.local_only()),
    "Ditto without its pull is Local-Only": (fl.ditto(lam=0), fl.local_only()),
    "APFL that mixes nothing in is Local-Only": (fl.apfl(alpha=1, adaptive=False), fl.local_only()),
    "FedBABU is FedRep that never trains a classifier": (fl.fedbabu(), fl.fedrep(body_epochs=2)),
}


@pytest.mark.parametrize("identity", IDENTITIES)
def test_identity_to_the_bit(identity, plain):
    a, b = map(plain, IDENTITIES[identity])
    assert a.folder != b.folder
    assert same_bits(a.models, b.models)


@pytest.mark.parametrize("lam", [0, 1])
def test_the_global_model_of_ditto_is_that_of_fedavg(lam, plain):
    """To the bit, whatever the personal models do."""
    ditto, fedavg = plain(fl.ditto(lam=lam)), plain(fl.fedavg())
    assert same_bits(ditto.state.w, fedavg.state.w)
    assert not same_bits(ditto.models, fedavg.models)


def test_apfl_that_serves_the_global_model_is_fedavg(plain):
    """To the bit with one client a round, where all ways to average are one; the personal models are never trained."""
    alone = {"join_ratio": 0.2}  # floor(0.2 * 6) = 1 client
    apfl, fedavg = plain(fl.apfl(alpha=0, adaptive=False), **alone), plain(fl.fedavg(), **alone)
    assert same_bits(apfl.models, fedavg.models)
    trained = apfl.model.trainable
    assert all(
        torch.equal(apfl.state.v[name], apfl.model.weights[name].expand(6, *[-1] * t.dim()))
        for name, t in apfl.state.w.items()
        if name in trained
    )


def test_scaffold_without_drift_is_fedavg(tiny, plain):
    """To the bit as long as all control variates are 0; with a single client they cancel out, but for rounding."""
    first = {"join_ratio": 0.2, "rounds": 1}
    assert same_bits(plain(fl.scaffold(), **first).models, plain(fl.fedavg(), **first).models)
    assert not same_bits(plain(fl.scaffold()).models, plain(fl.fedavg()).models)
    alone = fl.federate(tiny, fl.iid(), clients=1)
    scaffold, fedavg = (fl.run(name, alone, **SETTING | {"join_ratio": 1.0}) for name in ("scaffold", "fedavg"))
    assert distance(scaffold.models, fedavg.models) < 1e-4
    assert max(t.abs().max() for t in scaffold.state.c.values()) > 0.01


def test_a_control_variate_of_scaffold_is_the_mean_gradient_with_momentum_too(federation):
    """Everybody takes part once: the mean of all c_i is c; a client that never did has none."""
    setting = SETTING | dict(rounds=1, momentum=0.6, local_epochs=1, batch_size=1000, join_ratio=1.0)
    state = fl.run("scaffold", federation, **setting).state  # one step: lr times the gradient
    w = prepare("scaffold", federation, **without_progress(setting)).model.weights
    for name, c in state.c.items():
        assert torch.allclose(c, state.c_i[name].mean(0), atol=1e-6)
        assert torch.allclose(c, (w[name] - state.w[name]) / 0.05, atol=1e-4)


def test_scaffold_refuses_adam(federation):
    with pytest.raises(ValueError, match="optimizer='adam' is not allowed; scaffold needs 'sgd'"):
        fl.run("scaffold", federation, **SETTING, optimizer="adam")


def test_fedrep_that_trains_the_body_in_every_epoch_leaves_the_classifier_as_it_was(federation):
    result = fl.run(fl.fedrep(body_epochs=2), federation, **SETTING)
    initial = prepare("fedrep", federation, **without_progress(SETTING)).model.weights
    assert all(torch.equal(t, initial[name].expand_as(t)) for name, t in result.state.v.items())
    assert not all(torch.equal(t, initial[name]) for name, t in result.state.w.items())


def test_one_client_federated_is_plain_local_sgd(tiny):
    """FedAvg, FedPer, FedBN and Local-Only with one client against a bare PyTorch loop."""
    alone = fl.federate(tiny, fl.iid(), clients=1)
    setting = SETTING | {"join_ratio": 1.0}
    plan = prepare("fedavg", alone, **without_progress(setting))
    from fedlib.training.batches import client_batches

    net, images = plan.model.net, on_device(tiny, torch.device("cpu"))
    net.load_state_dict(plan.model.weights, strict=False)
    net.train()
    sgd = torch.optim.SGD(net.parameters(), 0.05)
    for t in range(4):
        for index in client_batches(alone.train[0], range(2), 12, batches_of(t, 0)):
            x, y, *_ = images.batch(index, plan.model)
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            sgd.step()
    oracle = {name: t[None] for name, t in net.state_dict().items()}
    for method in ("fedavg", "fedper", "fedbn", "local_only"):
        assert distance(oracle, fl.run(method, alone, **setting).models) < 1e-6, method


def test_the_order_of_clients_changes_nothing(federation):
    """FedAvg's mean and pFedSim's similarities do not depend on how clients are numbered inside a cohort."""
    from fedlib.similarity import similarity_matrix
    from fedlib.stack import client_mean

    torch.manual_seed(0)
    stack, n_samples = {"w": torch.randn(5, 3, 2)}, torch.tensor([3.0, 1.0, 4.0, 1.0, 5.0])
    order = torch.tensor([4, 2, 0, 1, 3])
    mean, permuted = client_mean(stack, n_samples), client_mean({"w": stack["w"][order]}, n_samples[order])
    assert torch.allclose(mean["w"], permuted["w"], atol=1e-6)
    phi = similarity_matrix(stack["w"])
    assert torch.allclose(similarity_matrix(stack["w"][order]), phi[order][:, order])


def test_the_weighted_mean_equals_numpy():
    from fedlib.stack import client_mean

    stack, n = np.random.default_rng(0).normal(size=(4, 3, 2)), np.array([1.0, 2.0, 3.0, 10.0])
    mean = client_mean({"w": torch.tensor(stack)}, torch.tensor(n))["w"]
    assert np.allclose(mean.numpy(), np.average(stack, axis=0, weights=n))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fl.fedprox(mu=-1), r"mu=-1 is not allowed; it must be a number in \[0, inf\)"),
        (lambda: fl.pfedsim(generalization=1.5), r"generalization=1.5 is not allowed"),
        (lambda: fl.pfedsim(similarity="cosine"), "similarity='cosine' is unknown"),
        (lambda: fl.pfedsim(cap=0), "cap=0 is not allowed"),
        (lambda: fl.fedrep(body_epochs=0), "body_epochs=0 is not allowed"),
        (lambda: fl.feddyn(alpha=-0.1), "alpha=-0.1 is not allowed"),
        (lambda: fl.feddyn(clip=0), r"clip=0 is not allowed; it must be a number in \(0, inf\)"),
        (lambda: fl.fedgen(alpha=-1), "alpha=-1 is not allowed"),
        (lambda: fl.fedgen(beta=-1), "beta=-1 is not allowed"),
        (lambda: fl.fedgen(decay=1.1), r"decay=1.1 is not allowed; it must be a number in \(0, 1\]"),
        (lambda: fl.fedgen(labels=1), "labels=1 is not allowed; it must be a whole number, at least 2"),
        (lambda: fl.fedgen(noise=0), "noise=0 is not allowed"),
        (lambda: fl.fedgen(hidden=0), "hidden=0 is not allowed"),
        (lambda: fl.fedgen(generator_steps=0), "generator_steps=0 is not allowed"),
        (lambda: fl.fedgen(generator_lr=0), "generator_lr=0 is not allowed"),
        (lambda: fl.perfedavg(alpha=-1), "alpha=-1 is not allowed"),
        (lambda: fl.perfedavg(beta=0), "beta=0 is not allowed"),
        (lambda: fl.perfedavg(hessian="full"), "hessian='full' is unknown.*allowed: first_order, free"),
        (lambda: fl.perfedavg(delta=0), "delta=0 is not allowed"),
        (lambda: fl.perfedavg(steps=0), "steps=0 is not allowed; it must be a whole number, at least 1"),
        (lambda: fl.fedsimsup(supervisor="lenet"), "supervisor='lenet' is unknown.*allowed: mixed, small_cnn"),
        (lambda: fl.fedsimsup(supervisor_epochs=-1), "supervisor_epochs=-1 is not allowed"),
        (lambda: fl.fedproto(lam=-1), "lam=-1 is not allowed"),
        (lambda: fl.fedpac(lam=-1), "lam=-1 is not allowed"),
        (lambda: fl.fedpac(head_epochs=-1), "head_epochs=-1 is not allowed"),
        (lambda: fl.fedcs(at="fc4"), r"at='fc4' is unknown.*allowed: fc1, fc2, fc3"),
        (lambda: fl.fedcs(base="fedcr"), "algorithm='fedcr' is unknown"),
        (lambda: fl.fedcs(every=0), "every=0 is not allowed; it must be a whole number, at least 1"),
        (lambda: fl.fedcs(steps="printed"), "steps='printed' is unknown; allowed: normalised, paper, whitening"),
        (lambda: fl.fedcs(beta=0), r"beta=0 is not allowed; it must be a number in \(0, 1\]"),
        (lambda: fl.fedcs(rank=0), "rank=0 is not allowed; it must be a whole number, at least 1"),
        (lambda: fl.fedcs(side="behind"), "side='behind' is unknown; allowed: input, output"),
        (lambda: fl.fedalt(warm_up=1.5), r"warm_up=1.5 is not allowed; it must be a number in \[0, 1\]"),
        (lambda: fl.fedalt(part="body"), "part='body' is unknown; allowed: input, output"),
        (lambda: fl.fedsim(warm_up=-1), "warm_up=-1 is not allowed"),
        (lambda: fl.fedfomo(neighbours=0), "neighbours=0 is not allowed"),
        (lambda: fl.fedfomo(validation=1), r"validation=1 is not allowed; it must be a number in \(0, 1\)"),
        (lambda: fl.fedfomo(explore=1.1), r"explore=1.1 is not allowed; it must be a number in \[0, 1\]"),
        (lambda: fl.fedfomo(explore_decay=-1), "explore_decay=-1 is not allowed"),
        (lambda: fl.fedap(warm_up=2), "warm_up=2 is not allowed"),
        (lambda: fl.fedap(self_weight=-1), "self_weight=-1 is not allowed"),
        (lambda: fl.fedap(evaluate="after"), "evaluate='after' is unknown; allowed: mixed, own"),
        (lambda: fl.pfedmb(branches=0), "branches=0 is not allowed; it must be a whole number, at least 1"),
        (lambda: fl.pfedmb(alpha_lr=-1), "alpha_lr=-1 is not allowed"),
        (lambda: fl.pfedme(lam=0), r"lam=0 is not allowed; it must be a number in \(0, inf\)"),
        (lambda: fl.pfedme(personal_lr=0), "personal_lr=0 is not allowed"),
        (lambda: fl.pfedme(steps=0), "steps=0 is not allowed"),
        (lambda: fl.pfedme(beta=0), "beta=0 is not allowed"),
        (lambda: fl.ifca(clusters=0), "clusters=0 is not allowed; it must be a whole number, at least 1"),
        (lambda: fl.pfedhr(groups=1), "groups=1 is not allowed; it must be a whole number, at least 2"),
        (lambda: fl.pfedhr(lam=-1), "lam=-1 is not allowed"),
        (lambda: fl.pfedhr(server_epochs=0), "server_epochs=0 is not allowed"),
        (lambda: fl.pfedhr(stitch_depth=0), "stitch_depth=0 is not allowed"),
        (lambda: fl.pfedhr(match="best"), "match='best' is unknown; allowed: random, similar"),
        (lambda: fl.pfedhr(most=0), "most=0 is not allowed"),
        (lambda: fl.pfedhr(probes=1), "probes=1 is not allowed; it must be a whole number, at least 2"),
        (lambda: fl.pfedhr(temperature=0), "temperature=0 is not allowed"),
        (lambda: fl.pfedhr(server_lr=0), "server_lr=0 is not allowed"),
        (lambda: fl.pfedhr(server_batch=1), "server_batch=1 is not allowed"),
        (lambda: fl.fedmd(warm_up=-1), "warm_up=-1 is not allowed"),
        (lambda: fl.fedmd(digest_epochs=0), "digest_epochs=0 is not allowed"),
        (lambda: fl.fedmd(shown=0), "shown=0 is not allowed"),
        (lambda: fl.fedgh(width=0), "width=0 is not allowed"),
        (lambda: fl.fedgh(header_steps=0), "header_steps=0 is not allowed"),
        (lambda: fl.fedgh(header_lr=0), "header_lr=0 is not allowed"),
        (lambda: fl.fedkemf(knowledge="m5"), "knowledge='m5' is unknown"),
        (lambda: fl.fedkemf(server_epochs=-1), "server_epochs=-1 is not allowed"),
        (lambda: fl.fedkemf(server_lr=0), "server_lr=0 is not allowed"),
        (lambda: fl.fedkemf(server_batch=0), "server_batch=0 is not allowed"),
        (lambda: fl.fccl(warm_up=-1), "warm_up=-1 is not allowed"),
        (lambda: fl.fccl(weight=-1), "weight=-1 is not allowed"),
        (lambda: fl.fccl(public_epochs=0), "public_epochs=0 is not allowed"),
        (lambda: fl.fccl(public_batch=1), "public_batch=1 is not allowed"),
        (lambda: fl.pfedbayes(zeta=-1), "zeta=-1 is not allowed"),
        (lambda: fl.pfedbayes(rho=float("nan")), "rho=nan is not allowed"),
        (lambda: fl.ditto(lam=-1), r"lam=-1 is not allowed; it must be a number in \[0, inf\)"),
        (lambda: fl.ditto(personal_epochs=-1), "personal_epochs=-1 is not allowed"),
        (lambda: fl.scaffold(server_lr=0), r"server_lr=0 is not allowed; it must be a number in \(0, inf\)"),
        (lambda: fl.apfl(alpha=1.5), r"alpha=1.5 is not allowed; it must be a number in \[0, 1\]"),
        (lambda: fl.apfl(alpha=-0.5), "alpha=-0.5 is not allowed"),
        (lambda: fl.apfl(adaptive=1), "adaptive=1 is not allowed; it must be True or False"),
        (lambda: fl.fedbabu(tuned="classifier"), "tuned='classifier' is unknown.*allowed: all, body, head"),
        (lambda: fl.fedamp(sigma=0), "sigma=0 is not allowed"),
        (lambda: fl.fedamp(alpha=0), "alpha=0 is not allowed"),
        (lambda: fl.fedamp(lam=-1), "lam=-1 is not allowed"),
    ],
)
def test_every_hyper_parameter_has_a_range(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_fedrep_refuses_more_body_epochs_than_local_epochs(federation):
    with pytest.raises(ValueError, match="body_epochs=3 is not allowed; it must be a whole number, from 1 to 2"):
        fl.run(fl.fedrep(body_epochs=3), federation, **SETTING)


def test_the_mean_of_few_of_many_clients_reads_their_rows_only():
    n = 3 * fl.stack.LARGE
    weights, values = torch.zeros(2, n), torch.full((n, 2), torch.nan)
    weights[0, 5], weights[1, 7], weights[1, 5] = 1.0, 0.75, 0.25
    values[5], values[7] = torch.tensor([2.0, -1.0]), torch.tensor([4.0, 3.0])
    assert fl.stack.mix(weights, {"w": values})["w"].tolist() == [[2.0, -1.0], [3.5, 2.0]]
    assert fl.stack.mix(weights[1], {"w": values})["w"].tolist() == [3.5, 2.0]
