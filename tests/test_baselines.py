"""pFedSim and its baselines: limiting cases, and formulas by hand. Whole runs have oracles."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from phases import phase
from refusals import refused
from trees import close

import fedlib as fl
from fedlib.methods.fedap import neighbour_weights
from fedlib.methods.fedfomo import State, hold_out, models_for
from fedlib.runs.prepare import prepare
from fedlib.runs.session import Session
from fedlib.stack import Shared
from fedlib.training.cohort import Cohort
from fedlib.training.local import _drawn
from fedlib.training.phase import kind

SETTING = dict(rounds=4, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05)
EXACT = SETTING | {"dtype": "float64"}


def cohort_of(federation: fl.Federation, t: int, backend: str = "loop", method="fedavg", **setting) -> Cohort:
    return Session(prepare(method, federation, **EXACT | setting, backend=backend)).cohort(t)


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
    refused(r"client \d has one training sample; it needs at least two", fl.run, "fedfomo", only, **SETTING)


def test_phases_that_clip_or_draw_differently_do_not_share_a_stack(federation):
    model = prepare("fedavg", federation, **SETTING).model
    plain = phase(model, federation.data, federation.train[:2])
    draws = tuple({"z": torch.zeros(len(steps), 4)} for steps in plain.batches)
    kinds = [kind(p) for p in (plain, plain._replace(clip=1.0), plain._replace(clip=2.0), plain._replace(draws=draws))]
    assert len({(kind[0], *map(str, kind[1:])) for kind in kinds}) == 4


def test_feddyn_at_alpha_0_is_the_limit_of_small_ones(federation):
    setting = EXACT | {"rounds": 2, "progress": False}
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


def test_with_few_neighbours_a_client_gets_each_once_and_then_its_own_model(federation):
    cohort = cohort_of(federation, 1)
    state = State({}, torch.eye(6), cohort.clients)  # all three took part in the last round, too
    for own, *others in models_for(cohort, state, neighbours=5, explore=0.0).tolist():
        assert others[-1] == own
        assert sorted(others) == cohort.ids.tolist()
