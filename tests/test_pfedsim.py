"""pFedSim against an oracle in NumPy and the properties its specification lists."""

import math

import numpy as np
import pytest
import torch

import fedlib as fl
from fedlib.runs.plan import cohorts, prepare

SETTING = dict(rounds=4, join_ratio=0.5, local_epochs=1, batch_size=8, lr=0.05)


def personalization_round(federation, t, v, similarity, seed=0):
    """One round of phase 2 by the formulas, in NumPy; local training by the library. Returns (v, Phi)."""
    plan = prepare("pfedsim", federation, **SETTING)
    from fedlib.training.batches import on_device
    from fedlib.training.cohort import Cohort
    from fedlib.training.loop import train_loop
    from fedlib.training.losses import cross_entropy

    clients = cohorts(federation.n_clients, 0.5, 4, seed)[t]
    start = {}
    for name, stack in v.items():
        rows = stack[clients].copy()
        if name not in plan.model.classifier:
            for row, i in enumerate(clients):
                weights = similarity[i] / similarity[i].sum()
                rows[row] = sum(weights[j] * stack[j] for j in range(federation.n_clients))
        start[name] = torch.tensor(rows)
    cohort = Cohort(
        model=plan.model, images=on_device(federation.data, torch.device("cpu")), federation=federation, ids=clients,
        clients=torch.tensor(clients), n_samples=torch.ones(len(clients)), round=t, rounds=4, local_epochs=1,
        batch_size=8, lr=0.05, momentum=0.0, seed=seed, trainer=train_loop,
    )  # fmt: skip
    trained = {name: w.numpy() for name, w in cohort.train(cross_entropy, start).items()}
    v = {name: stack.copy() for name, stack in v.items()}
    for name in v:
        v[name][clients] = trained[name]
    phi = trained["classifier.weight"].astype(float)
    for a, i in enumerate(clients):
        for b, j in enumerate(clients):
            if i != j:
                cosines = [
                    x @ y / (np.linalg.norm(x) * np.linalg.norm(y) + 1e-8) for x, y in zip(phi[a], phi[b], strict=True)
                ]
                similarity[i, j] = np.mean([-math.log(1 - min(max(0, s), 1 - 1e-4)) for s in cosines])
    return v, similarity


def test_a_whole_run_equals_the_formulas(federation):
    """rho = 0.5 of 4 rounds: two rounds of FedAvg, then two rounds by equations (3) and (4)."""
    half = fl.run("fedavg", federation, **SETTING | {"rounds": 2}, progress=False)
    v = {name: np.repeat(w[None].numpy(), 6, axis=0) for name, w in half.state.w.items()}
    similarity = -math.log(1e-4) * np.eye(6)
    for t in (2, 3):
        v, similarity = personalization_round(federation, t, v, similarity)
    result = fl.run(fl.pfedsim(generalization=0.5), federation, **SETTING, progress=False)
    assert np.allclose(result.state.similarity.numpy(), similarity, rtol=1e-5)
    for name, stack in result.models.items():
        assert np.allclose(stack.numpy(), v[name], rtol=1e-4, atol=1e-6), name


def test_phi_is_symmetric_non_negative_with_the_largest_entry_on_the_diagonal(federation):
    phi = fl.run("pfedsim", federation, **SETTING | {"rounds": 8}, progress=False).state.similarity
    assert torch.equal(phi, phi.T)
    assert (phi >= 0).all()
    assert torch.allclose(phi.diagonal(), torch.full((6,), -math.log(1e-4), dtype=phi.dtype))
    assert (phi <= phi.diagonal()[0] + 1e-12).all()
    assert (phi.fill_diagonal_(0) > 0).any()  # some pair was sampled together


def test_a_client_without_neighbours_gets_its_own_extractor_back(federation):
    """join_ratio 1/6: nobody is ever sampled together with anybody, so phase 2 is local training."""
    alone = SETTING | {"join_ratio": 1 / 6, "rounds": 6}
    result = fl.run(fl.pfedsim(generalization=0), federation, **alone, progress=False)
    local = fl.run("local_only", federation, **alone, progress=False)
    assert torch.equal(result.state.similarity, -math.log(1e-4) * torch.eye(6, dtype=torch.float64))
    for name, t in local.models.items():
        assert torch.allclose(result.models[name], t, rtol=1e-6, atol=1e-8), name


@pytest.mark.parametrize(("rho", "warm"), [(0.0, 0), (0.29, 2), (0.3, 3), (0.7, 7), (1.0, 10)])
def test_the_warm_up_lasts_floor_rho_t_rounds(rho, warm, federation):
    """0.7 * 10 is 7.000000000000001 or 6.999..., depending on how it is computed: the floor must be 7."""
    setting = SETTING | {"rounds": 10, "evaluate_every": 1, "join_ratio": 0.2}
    personal = fl.run(fl.pfedsim(generalization=rho), federation, **setting, progress=False)
    average = fl.run("fedavg", federation, **setting, progress=False)
    merged = personal.accuracy.merge(average.accuracy, on=["round", "client"])
    same = merged.groupby("round").apply(lambda g: (g["loss_x"] == g["loss_y"]).all())
    assert same[same].index.tolist() == list(range(1, warm + 1))
