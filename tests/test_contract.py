"""The contract that every algorithm fulfils, and identities between algorithms."""

import inspect
from dataclasses import fields

import pytest
import torch
from methods import FACTORIES, READ_BACK
from refusals import refused
from torch.utils._pytree import tree_leaves
from trees import distance, same_bits

import fedlib as fl
from fedlib.algorithm import ALGORITHMS, architectures_of
from fedlib.engine.backends import BACKENDS
from fedlib.runs.prepare import prepare
from fedlib.runs.session import Session
from fedlib.runs.setting import Setting
from fedlib.runs.store import flatten
from fedlib.stack import keys
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
SETTINGS |= dict(statistics="shared", pixels="unit", dropout=0, stragglers=0, client_metrics=None, backend="auto")
SETTINGS |= dict(device="auto", dtype="float32", graphs=True, checkpoint_seconds=30.0)


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


def test_another_seed_gives_other_models(method, plain):
    """The same seed gives the same bits: `test_run`, where one of two runs is stopped and resumed."""
    one, other = (plain(method, **SHORT, seed=seed).models for seed in (0, 8))
    assert not same_bits(one, other)


def without_progress(setting: dict) -> dict:
    return {name: value for name, value in setting.items() if name != "progress"}


def test_stacked_equals_loop_after_a_round_in_float32(method, plain):
    """Over a run in float64: `test_unreliable`."""
    loop, stacked = (plain(method, **SHORT, backend=backend) for backend in ("loop", "stacked"))
    assert [own.config["backend"] for own in (loop, stacked)] == ["loop", "stacked"]
    assert loop.folder != stacked.folder
    assert distance(loop.models, stacked.models) < 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_round_reads_nothing_back_from_the_device(backend, method, federation):
    """Torch's device "meta" has no values to read: the host would fail instead of waiting for a GPU.

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
    """Sums over the 3 sampled of 6 clients, round by round; floats of 4 bytes."""
    plan = prepare("fedavg", federation, rounds=1)
    n = {name: w.numel() for name, w in plan.model.weights.items()}
    whole, norms, phi = (sum(n[name] for name in names) for names in (n, plan.model.batchnorm, plan.model.classifier))
    rest, statistics = whole - norms, norms // 2  # mean and std, where BatchNorm has scale and shift, too
    prototypes = 4 * 84 + 4  # means and counts of 4 classes
    generator = (4 + 32) * 32 + 32 + 4 * 32 + 84 * 32 + 84  # 4 classes
    d = 16  # what the first linear layer sees of 16x16 pixels
    header = 4 * 64 + 4  # 64 features
    scores = 40 * 4  # logits of 40 public images
    variates = 2 * whole - statistics  # a control variate for all but running statistics
    branches, layers = 5 * (whole - statistics), 7  # 5 linear and convolution layers, 2 of BatchNorm
    warm_up = 2 * [3 * whole]
    whole_model = ("fedavg", "fedprox", "feddyn", "perfedavg", "pfedsim", "pfedme", "fedamp", "ditto", "apfl")
    alike = dict.fromkeys(whole_model, whole) | dict.fromkeys(("fedper", "fedrep", "fedbabu"), whole - phi)
    alike |= {"local_only": 0, "fedbn": rest, "fedmd": scores, "fccl": scores, "scaffold": variates}
    alike |= {"fedkemf": rest, "pfedbayes": 2 * rest}  # LeNet5 without BatchNorm; mean and deviation
    sent = {name: (4 * [3 * each], 4 * [3 * each]) for name, each in alike.items()} | {
        "fedgen": ([3 * whole] + 3 * [3 * (whole + generator)], 4 * [3 * (whole + 4)]),
        # M = 5, but only 3 took part in the last round
        "fedfomo": ([3 * whole] + 3 * [3 * (1 + 3) * whole], [3 * whole] + 3 * [3 * (whole + 3)]),
        "fedap": ([3 * rest] * 2 + [(6 + 3) * rest, 3 * rest], [3 * rest] * 2 + [3 * rest + 6 * statistics, 3 * rest]),
        "pfedmb": (4 * [3 * branches], 4 * [3 * (branches + 5 * layers)]),
        "ifca": (4 * [3 * 3 * whole], 4 * [3 * whole]),
        "fedsimsup": (4 * [3 * whole], [3 * whole + 6 * 4] + 3 * [3 * whole]),  # label counts of all clients, once
        "fedproto": ([0] + 3 * [3 * prototypes], 4 * [3 * prototypes]),
        # Phi, then P; S, Phi and the mean of z
        "fedcs": (4 * [3 * (whole + d**2)], [3 * (whole + 2 * d**2 + d)] + 3 * [3 * whole]),
        "fedalt": (warm_up + 2 * [3 * (whole - phi)], warm_up + 2 * [3 * (whole - phi)]),
        # the combined classifiers come after the body; h and V of the received model
        "fedpac": ([3 * whole] + 3 * [3 * (whole + prototypes)], 4 * [3 * (whole + prototypes + 4 * 84 + 1)]),
        "fedgh": (4 * [3 * header], 4 * [3 * 2 * header]),  # class means of train part and public images
    }
    for name, floats in sent.items():
        rounds = plain(FACTORIES[name]()).rounds
        for direction, column in zip(floats, ("bytes_down", "bytes_up"), strict=True):
            assert rounds[column].tolist() == [4 * each for each in direction], (name, column)


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
    "FedAlt that only warms up is FedAvg": (fl.fedalt(warm_up=1), fl.fedavg()),
    "FedSim that only warms up is FedAvg": (fl.fedsim(warm_up=1), fl.fedavg()),
    "FedSim without a warm-up is FedPer": (fl.fedsim(warm_up=0), fl.fedper()),
    "FedBABU is FedRep that never trains a classifier": (fl.fedbabu(), fl.fedrep(body_epochs=2)),
    "APFL that serves the global model is FedAvg": (fl.apfl(alpha=0, adaptive=False), fl.fedavg(), {"join_ratio": 0.2}),
    "SCAFFOLD without drift is FedAvg": (fl.scaffold(), fl.fedavg(), {"join_ratio": 0.2, "rounds": 1}),
}


@pytest.mark.parametrize("identity", IDENTITIES)
def test_identity_to_the_bit(identity, plain):
    """With one client a round, floor(0.2 * 6), where the methods average in different ways."""
    *methods, changes = (*IDENTITIES[identity], {})[:3]
    a, b = (plain(method, **changes) for method in methods)
    assert a.folder != b.folder
    assert same_bits(a.models, b.models)


OUTSIDE = {  # values just outside of what each hyper-parameter allows
    "apfl": dict(alpha=[1.5, -0.5], adaptive=1),
    "ditto": dict(lam=-1, personal_epochs=-1),
    "fccl": dict(warm_up=-1, weight=-1, public_epochs=0, public_batch=1),
    "fedalt": dict(warm_up=[1.5, -1], part="body"),
    "fedamp": dict(sigma=0, alpha=0, lam=-1),
    "fedap": dict(warm_up=[2, -1], self_weight=[-1, 1.1], evaluate="after"),
    "fedbabu": dict(tuned="classifier"),
    "fedbn": dict(affine=1),
    "fedcs": dict(at="fc4", base="fedcr", every=0, steps="printed", beta=[0, 1.1], side="behind", rank=0)
    | dict(centred=0, shifted=1),
    "feddyn": dict(alpha=-0.1, clip=0),
    "fedfomo": dict(neighbours=0, validation=[0, 1], explore=[-1, 1.1], explore_decay=[-1, 1.1]),
    "fedgen": dict(alpha=-1, beta=-1, decay=[0, 1.1], labels=1, noise=0, hidden=0, generator_steps=0, generator_lr=0),
    "fedgh": dict(width=0, header_steps=0, header_lr=0, public=1),
    "fedkemf": dict(knowledge="m5", server_epochs=-1, server_lr=0, server_batch=0),
    "fedmd": dict(warm_up=-1, digest_epochs=0, shown=0),
    "fedpac": dict(lam=-1, head_epochs=-1),
    "fedproto": dict(lam=-1),
    "fedprox": dict(mu=-1),
    "fedrep": dict(body_epochs=0),
    "fedsim": dict(warm_up=[1.5, -1], part="body"),
    "fedsimsup": dict(supervisor="lenet", supervisor_epochs=-1, similarity=1),
    "ifca": dict(clusters=0),
    "perfedavg": dict(alpha=-1, beta=0, hessian="full", delta=0, steps=0),
    "pfedbayes": dict(zeta=-1, rho=float("nan")),
    "pfedhr": dict(groups=1, lam=-1, labelled=1, server_epochs=0, stitch_depth=0, stitch_relu=1, end_in_head=1)
    | dict(average=1, match="best", keep_teacher=1, most=0, probes=1, temperature=0, server_lr=0, server_batch=1),
    "pfedmb": dict(branches=0, share_alpha=1, weighted=1, alpha_lr=-1, gain=1),
    "pfedme": dict(lam=0, personal_lr=0, steps=0, beta=0),
    "pfedsim": dict(generalization=[1.5, -1], similarity="cosine", cap=0),
    "scaffold": dict(server_lr=0),
}


@pytest.mark.parametrize("name", fl.algorithms())
def test_every_hyper_parameter_has_a_range(name):
    assert OUTSIDE.get(name, {}).keys() == DEFAULTS[name].keys()
    for argument, values in OUTSIDE.get(name, {}).items():
        for value in values if isinstance(values, list) else [values]:
            called = {"base": "algorithm"}.get(argument, argument)
            with pytest.raises(ValueError, match=rf"^{called}={value!r} is (unknown|not allowed).*; (it must|allowed)"):
                getattr(fl, name)(**{argument: value})


@pytest.mark.parametrize(
    ("method", "setting", "sentence"),
    [
        (fl.fedrep(body_epochs=3), {}, "body_epochs=3 is not allowed; it must be a whole number, from 1 to 2"),
        (fl.fedpac(head_epochs=3), {}, "head_epochs=3 is not allowed; it must be a whole number, from 0 to 2"),
        (fl.fedsimsup(supervisor_epochs=3), {}, "supervisor_epochs=3 is not allowed; .*, from 0 to 2"),
        (fl.scaffold(), {"optimizer": "adam"}, "optimizer='adam' is not allowed; scaffold needs 'sgd'"),
        (fl.pfedme(lam=30), {}, r"lr \* lam=1.5 is not allowed; it must be a number in \[0, 1\]"),
    ],
    ids=str,
)
def test_a_method_refuses_a_setting_that_it_cannot_have(method, setting, sentence, federation):
    refused(sentence, fl.run, method, federation, **SETTING | setting)


def test_the_mean_of_few_of_many_clients_reads_their_rows_only():
    n = 3 * fl.stack.LARGE
    weights, values = torch.zeros(2, n), torch.full((n, 2), torch.nan)
    weights[0, 5], weights[1, 7], weights[1, 5] = 1.0, 0.75, 0.25
    values[5], values[7] = torch.tensor([2.0, -1.0]), torch.tensor([4.0, 3.0])
    assert fl.stack.mix(weights, {"w": values})["w"].tolist() == [[2.0, -1.0], [3.5, 2.0]]
    assert fl.stack.mix(weights[1], {"w": values})["w"].tolist() == [3.5, 2.0]
