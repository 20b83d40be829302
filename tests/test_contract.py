"""The contract that every algorithm fulfils, and identities between algorithms."""

import inspect

import pytest
import torch
from methods import FACTORIES, READ_BACK
from refusals import refused
from torch.utils._pytree import tree_leaves
from trees import distance, same_bits

import fedlib as fl
from fedlib.algorithm import ALGORITHMS, architectures_of
from fedlib.checkpoint import flatten
from fedlib.engine.backends import BACKENDS
from fedlib.runs.prepare import prepare
from fedlib.runs.session import Session
from fedlib.runs.setting import Setting
from fedlib.stack import keys
from fedlib.training.evaluation import MixedEvaluation

SETTING = dict(rounds=4, join_ratio=0.5, local_epochs=2, batch_size=12, lr=0.05, tune_epochs=0, progress=False)
SHORT = {"rounds": 1, "local_epochs": 1}
EVERY = {"rounds": 2, "evaluate_every": 1}

# Of each hyper-parameter the value that it has if a run says nothing else, which is part of every number and so changes
# knowingly, and values just outside of what is allowed.
HYPER = {
    "apfl": dict(alpha=(0.5, 1.5, -0.5), adaptive=(True, 1)),
    "ditto": dict(lam=(1, -1), personal_epochs=(None, -1)),
    "fccl": dict(warm_up=(10, -1), weight=(0.0051, -1), public_epochs=(1, 0), public_batch=(256, 1)),
    "fedalt": dict(warm_up=(0.5, 1.5, -1), part=("output", "body")),
    "fedamp": dict(sigma=(10, 0), alpha=(1, 0), lam=(1, -1)),
    "fedap": dict(warm_up=(0.5, 2, -1), self_weight=(0.5, -1, 1.1), evaluate=("mixed", "after")),
    "fedavg": dict(),
    "fedbabu": dict(tuned=("all", "classifier")),
    "fedbn": dict(affine=(True, 1)),
    "fedcs": dict(at=("fc1", "fc4"), base=("fedavg", "fedcr"), every=(5, 0), steps=("normalised", "printed"))
    | dict(beta=(0.1, 0, 1.1), side=("input", "behind"), centred=(True, 0), shifted=(False, 1), rank=(None, 0)),
    "feddyn": dict(alpha=(0.01, -0.1), clip=(10, 0)),
    "fedfomo": dict(neighbours=(5, 0), validation=(0.2, 0, 1), explore=(0.3, -1, 1.1), explore_decay=(0.05, -1, 1.1)),
    "fedgen": dict(alpha=(10, -1), beta=(10, -1), decay=(0.98, 0, 1.1), labels=(32, 1), noise=(32, 0))
    | dict(hidden=(32, 0), generator_steps=(5, 0), generator_lr=(3e-4, 0)),
    "fedgh": dict(width=(64, 0), header_steps=(100, 0), header_lr=(0.01, 0), public=(True, 1)),
    "fedkemf": dict(knowledge=("m1", "m5"), server_epochs=(3, -1), server_lr=(1e-3, 0), server_batch=(64, 0)),
    "fedmd": dict(warm_up=(10, -1), digest_epochs=(1, 0), shown=(5000, 0)),
    "fedpac": dict(lam=(1, -1), head_epochs=(1, -1)),
    "fedper": dict(),
    "fedproto": dict(lam=(1, -1)),
    "fedprox": dict(mu=(1, -1)),
    "fedrep": dict(body_epochs=(1, 0)),
    "fedsim": dict(warm_up=(0.5, 1.5, -1), part=("output", "body")),
    "fedsimsup": dict(supervisor=("small_lenet", "lenet"), supervisor_epochs=(2, -1), similarity=(True, 1)),
    "ifca": dict(clusters=(3, 0)),
    "local_only": dict(),
    "perfedavg": dict(alpha=(0.01, -1), beta=(1e-3, 0), hessian=("first_order", "full"), delta=(1e-3, 0))
    | dict(steps=(None, 0)),
    "pfedbayes": dict(zeta=(10, -1), rho=(-2.5, float("nan")), noise=(1, -1)),
    "pfedhr": dict(groups=(4, 1), lam=(0.2, -1), labelled=(True, 1), server_epochs=(3, 0), stitch_depth=(1, 0))
    | dict(stitch_relu=(True, 1), end_in_head=(False, 1), average=(False, 1), match=("similar", "best"))
    | dict(keep_teacher=(False, 1), most=(10, 0), probes=(512, 1), temperature=(0.5, 0), server_lr=(1e-3, 0))
    | dict(server_batch=(8, 1)),
    "pfedmb": dict(branches=(5, 0), share_alpha=(False, 1), weighted=(True, 1), alpha_lr=(1, -1), gain=(True, 1)),
    "pfedme": dict(lam=(15, 0), personal_lr=(0.01, 0), steps=(5, 0), beta=(1, 0)),
    "pfedsim": dict(generalization=(0.5, 1.5, -1), similarity=("per_class", "cosine"), cap=(1e-4, 0)),
    "scaffold": dict(server_lr=(1, 0)),
}
SETTINGS = dict(rounds=(inspect.Parameter.empty, 0), join_ratio=(1, 0, 1.01), local_epochs=(1, 0), batch_size=(32, 0))
SETTINGS |= dict(lr=(0.01, 0), momentum=(0, 1), optimizer=("sgd", "lion"), lr_decay=(1, 0, 1.1), lr_decay_every=(1, 0))
SETTINGS |= dict(seed=(0, -1), evaluate_every=(None, 0), tune_epochs=(None, -1), tune_every=(None, 0))
SETTINGS |= dict(tune_part=(None, "all"), statistics=("shared", "none"), pixels=("unit", "any"), dropout=(0, 1))
SETTINGS |= dict(stragglers=(0, 1.1), client_metrics=(None, 1), backend=("auto", "vmap"), device=("auto", "gpu"))
SETTINGS |= dict(dtype=("float32", "float16"), graphs=(True, 1), checkpoint_seconds=(30.0, -1))


@pytest.fixture(scope="module")
def plain(federation, tmp_path_factory):
    """A function that runs a method with `SETTING` and changes; a run that several tests want is run once."""
    store = tmp_path_factory.mktemp("plain")
    return lambda method, **changes: fl.run(method, federation, **SETTING | changes, store=store)


@pytest.mark.parametrize("name", [*fl.algorithms(), "run"])
def test_every_hyper_parameter_and_every_setting_has_its_default_and_a_range(name):
    function, known, rest = (Setting, SETTINGS, {"rounds": 1}) if name == "run" else (ALGORITHMS[name], HYPER[name], {})
    parameters = inspect.signature(function).parameters.values()
    assert {own.name: own.default for own in parameters} == {argument: own[0] for argument, own in known.items()}
    for argument, (_, *outside) in known.items():
        assert outside
        for value in outside:
            called = {"base": "algorithm"}.get(argument, argument)
            with pytest.raises(ValueError, match=rf"^{called}={value!r} is (unknown|not allowed).*; (it must|allowed)"):
                function(**rest | {argument: value})


def test_models_have_the_shapes_and_dtype_of_the_stack(method, federation, plain):
    plan = prepare(method, federation, rounds=1)
    [group] = architectures_of(method, plan.model, federation)
    models = plain(method).models
    shapes = dict(zip(keys(models), (t.shape for t in tree_leaves(models)), strict=True))
    initial = zip(keys(group.model.weights), tree_leaves(group.model.weights), strict=True)
    assert shapes == {way: (federation.n_clients, *t.shape) for way, t in initial}
    assert {t.dtype for t in tree_leaves(models)} == {torch.float32}
    assert all(t.isfinite().all() for t in tree_leaves(models))


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

    Every operation there is slow: two clients a round, two steps. In a stack a third client drops out.
    """
    if method.name in READ_BACK:
        pytest.skip("its server works on the host")
    lossy = {"join_ratio": 0.5, "seed": 22, "dropout": 0.4, "stragglers": 0.6} if backend == "stacked" else {}
    setting = without_progress(SETTING) | dict(rounds=2, join_ratio=0.34, batch_size=32) | lossy
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
    table = tuned.accuracy
    before, after = (table[table["when"] == when].reset_index(drop=True) for when in ("before", "after"))
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


def test_no_personal_epochs_leave_the_personal_models_alone(plain):
    result = plain(fl.ditto(personal_epochs=0), **SHORT)
    assert all(torch.equal(t, result.model.weights[name].expand_as(t)) for name, t in result.models.items())
