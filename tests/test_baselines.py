"""pFedSim and its baselines: limits, formulas by hand, and what the library has for them. Whole runs have oracles."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from phases import phase
from trees import close

import fedlib as fl
from fedlib.methods.fedap import neighbour_weights
from fedlib.methods.fedfomo import hold_out
from fedlib.methods.fedgen.generator import STATISTICS, new_generator
from fedlib.runs.prepare import prepare
from fedlib.runs.session import Session
from fedlib.stack import drop
from fedlib.training.cohort import Cohort
from fedlib.training.local import _drawn
from fedlib.training.phase import kind

SETTING = dict(rounds=4, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05)
EXACT = SETTING | {"dtype": "float64"}


def cohort_of(federation: fl.Federation, t: int, backend: str = "loop", method="fedavg", **setting) -> Cohort:
    """The cohort of round t (the first is 0) of a run with this setting."""
    return Session(prepare(method, federation, **EXACT | setting, backend=backend)).cohort(t)


# What the library has for them


def test_draws_differ_between_the_clients_and_the_trainings_of_a_round(federation):
    def draws(rng, client, steps):
        return {"z": rng.standard_normal((steps, 4))}

    cohort = cohort_of(federation, 1)
    first, again, second = (_drawn(cohort, draws, [torch.zeros(3, 8)] * cohort.size, number) for number in (0, 0, 1))
    assert torch.equal(first[0]["z"], again[0]["z"])
    assert not torch.equal(first[0]["z"], second[0]["z"])
    assert not torch.equal(first[0]["z"], first[1]["z"])


def test_a_part_of_the_train_samples_is_held_out(federation):
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
    with pytest.raises(ValueError, match=r"client \d has one train sample; it needs at least two"):
        fl.run("fedfomo", only, **SETTING, progress=False)


def test_phases_that_clip_or_draw_differently_do_not_share_a_stack(federation):
    model = prepare("fedavg", federation, **SETTING).model
    plain = phase(model, federation.data, federation.train[:2])
    draws = tuple({"z": torch.zeros(len(steps), 4)} for steps in plain.batches)
    kinds = [kind(p) for p in (plain, plain._replace(clip=1.0), plain._replace(clip=2.0), plain._replace(draws=draws))]
    assert len({(kind[0], *map(str, kind[1:])) for kind in kinds}) == 4


def test_feddyn_at_alpha_0_is_the_limit_whose_first_step_is_twice_that_of_a_uniform_fedavg(federation):
    once = EXACT | {"rounds": 1, "join_ratio": 1.0}
    initial = prepare("feddyn", federation, **once).model
    equal = replace(federation, train=tuple(own[:6] for own in federation.train))  # a uniform mean, then
    average = fl.run("fedavg", equal, **once, progress=False).state.w
    zero = fl.run(fl.feddyn(alpha=0, clip=None), equal, **once, progress=False).state
    for name, w in average.items():
        factor = 2 if name in initial.trainable else 1
        assert torch.allclose(zero.w[name], initial.weights[name] + factor * (w - initial.weights[name])), name
    two = EXACT | {"rounds": 2}
    zero, small = (fl.run(fl.feddyn(alpha), federation, **two, progress=False).state for alpha in (0, 1e-9))
    assert close(zero.w, small.w, 1e-6)


# f-FedAP


def test_the_weights_of_fedap_where_nobody_is_nearer():
    twins = neighbour_weights(torch.zeros(3, 3, dtype=torch.float64), 0.5)  # clients with equal statistics
    assert torch.allclose(twins, torch.full((3, 3), 0.25, dtype=torch.float64).fill_diagonal_(0.5))
    assert neighbour_weights(torch.zeros(1, 1), 0.5).item() == 1


# FedGen


def test_the_generator_has_the_parameters_of_the_specification():
    g = new_generator(np.random.default_rng(0), n_classes=10, noise=32, hidden=32, p=84)
    assert sum(t.numel() for t in drop(g, STATISTICS).values()) == 4212
    assert sum(g[name].numel() for name in STATISTICS) == 64


# pFedSim


@pytest.mark.parametrize(("rho", "warm"), [(0.0, 0), (0.29, 2), (0.3, 3), (0.7, 7), (1.0, 10)])
def test_the_warm_up_of_pfedsim_lasts_floor_rho_t_rounds(rho, warm, federation):
    """0.7 * 10 is 7.000000000000001 or 6.999..., depending on how it is computed: the floor must be 7."""
    setting = SETTING | {"rounds": 10, "evaluate_every": 1, "join_ratio": 0.2, "local_epochs": 1}
    personal = fl.run(fl.pfedsim(generalization=rho), federation, **setting, progress=False)
    average = fl.run("fedavg", federation, **setting, progress=False)
    merged = personal.accuracy.merge(average.accuracy, on=["round", "client"])
    same = merged.groupby("round").apply(lambda g: (g["loss_x"] == g["loss_y"]).all())
    assert same[same].index.tolist() == list(range(1, warm + 1))
