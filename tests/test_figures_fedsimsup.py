"""FedSimSup's rows and measurements against independent computations."""

from types import SimpleNamespace

import numpy as np
import pytest
import studies
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

import fedlib as fl
from fedlib.papers.fedsimsup import gradcam
from fedlib.papers.fedsimsup.measure import similarities, supervisor_moves
from fedlib.papers.fedsimsup.sizes import PROFILES, QUICK, Column, run
from fedlib.studies.study import study
from fedlib.studies.tasks import Images
from fedlib.training import on_device

COLUMN = Column("cifar10", 50, "dir", 0.5)


@pytest.fixture
def tiny(monkeypatch):
    """A profile with six clients and ninety training images."""
    images = {"cifar10": Images("digits", (("copies", 1),), train=90)}
    sizes = QUICK._replace(data=images, clients={50: 6}, dirichlet={"cifar10": (0.5,)}, join_ratio=0.5, theta_epochs=1)
    sizes = sizes._replace(batch_size=24, moves_rounds=3)
    monkeypatch.setitem(PROFILES, "tiny", sizes)
    return sizes


def task_of(sizes, rounds):
    return run(sizes, COLUMN, fl.fedsimsup("small_lenet", 1), rounds)


def row(task, seed, correct, n_test=(10,), **facts):
    """A run with so many right answers of each client after each round."""
    evaluations = [(t, "before", right) for t, right in enumerate(correct, 1)]
    return studies.row(task.name, seed, *evaluations, n_test=n_test, **facts)


def test_the_line_with_the_weights_ends_where_the_runs_with_similarities_end():
    small, ends = study("fedsimsup", "smoke"), {"True": [6, 8], "False": [3, 5]}
    tasks = {cell.setting.split("similarity=")[1][:5]: cell.tasks[0] for cell in small.cells if cell.item == "fig3"}
    rows = {(tasks[k].name, seed): row(tasks[k], seed, [[1], [end]]) for k in ends for seed, end in enumerate(ends[k])}
    [ax] = small.replace(rows=rows).figure("fig3").axes
    ends_at = {text.get_text(): text.xy[1] for text in ax.texts}
    assert ends_at == {"weights $s_{ij}$": 70, "all $s_{ij}=1$": 40, "chance": 10}


def test_a_kind_of_supervisor_gains_over_the_same_clients_and_rounds():
    cells = {cell.method: cell for cell in study("fedsimsup", "smoke").cells if cell.item == "table3_paired"}
    mixed, original = cells["fedsimsup-t"].tasks
    n_test, kept = (10, 30, 20), {"t": [0, 2], "c": [1]}
    rows = row(mixed, 0, [[4, 24, 8]], n_test, kept=kept), row(original, 0, [[2, 27, 7], [9, 3, 18]], n_test)
    assert mixed.rounds == 1 < original.rounds
    assert [cells[f"fedsimsup-{kind}"].read(*rows) for kind in "tcl"] == pytest.approx([10, -10, np.nan], nan_ok=True)


def test_maps_are_compared_with_those_of_the_other_network_for_another_image(monkeypatch):
    theta = np.array([[0.9, 0.1, 0.2, 0.3], [0.8, 0.7, 0.0, 0.1], [0.0, 0.3, 1.0, 0.9]], np.float32)
    s = np.array([[0.6, 0.0, 0.1, 0.4], [0.2, 0.9, 0.0, 0.8], [0.3, 0.1, 0.2, 0.7]], np.float32)
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(4, 2)) for _ in range(2)]
    own = [{"1.weight": torch.zeros(2, 4), "1.bias": torch.zeros(2)} for _ in range(2)]
    own[0]["1.weight"][0, 0], own[1]["1.bias"][1] = 1, 0.5  # class 0 where the first pixel is seen
    maps = {0.0: torch.from_numpy(theta), 0.5: torch.from_numpy(s)}
    monkeypatch.setattr(gradcam, "grad_cam", lambda net, x, y: maps[net[1].bias[1].item()].view(3, 2, 2))
    two = SimpleNamespace(networks=[SimpleNamespace(net=net) for net in nets])
    batch = SimpleNamespace(x=torch.ones(3, 1, 2, 2), y=torch.zeros(3, dtype=torch.int64))
    pixels = SimpleNamespace(batch=lambda index, model: batch)
    table = gradcam.on_client(own, two, pixels, np.array([5, 7, 9]), np.array([0, 4]))
    other = s[[2, 0, 1]]
    for name, there in (("correlation", s), ("with another image", other)):
        expected = [np.corrcoef(a, b)[0, 1] for a, b in zip(theta, there, strict=True)]
        np.testing.assert_allclose(table[name], expected, atol=1e-6)
    assert table["area theta"].tolist() == [0.25, 0.5, 0.5]
    assert table["area s"].tolist() == [0.25, 0.5, 0.25]
    np.testing.assert_allclose(table["overlap"], [1, 1 / 3, 1 / 2])
    assert table["kept, theta"].tolist() == [0, 0, 1]
    assert table["kept"].tolist() == [0, 1, 1]
    assert table["kept, another image"].tolist() == [1, 0, 1]
    np.testing.assert_array_equal(np.stack(table["maps"]).reshape(3, 3, 4), np.stack([theta, s, other], 1))
    assert table[["both", "theta", "s"]].to_numpy().tolist() == [[True, True, False]] * 3
    assert table[["own both", "own theta", "own s", "main s"]].to_numpy().tolist() == [[False, False, True, True]] * 3


def test_gains_are_over_the_model_that_the_client_sent_when_it_last_took_part(tiny):
    points = np.array(supervisor_moves(36, "tiny")["points"])
    federation = task_of(tiny, 3).arguments(36)["federation"]
    pixels = on_device(federation.data, torch.device("cpu"))
    after = [None, *(fl.run(**task_of(tiny, t).arguments(36), progress=False) for t in (1, 2, 3))]
    two = after[1].architectures[0].model

    def loss(i, theta, s):
        batch = pixels.batch(torch.from_numpy(federation.train[i]), two)
        logits = [functional_call(one.net, own, batch.x) for one, own in zip(two.networks, (theta, s), strict=True)]
        return F.cross_entropy(sum(logits), batch.y).item()

    expected = []
    for i in (4, 5):  # sampled: 3 4 5, then 0 2 3, then 3 4 5; the server leaves alone what client 3 has sent
        theta, s = after[2].weights(i)
        received, moved = loss(i, theta, s), after[3].weights(i).s
        gain = loss(i, after[1].weights(i).theta, s) - received
        expected.append([received, gain, sum((moved[name] - s[name]).square().sum().item() for name in s) ** 0.5])
    np.testing.assert_allclose(points, expected, atol=1e-4)


def test_similarities_are_those_of_the_clients_of_the_runs(tiny):
    counts = task_of(tiny, 1).arguments(0)["federation"].train_counts
    assert counts.sum() == 90
    found = similarities(0, "tiny", *COLUMN)
    assert found["counts"] == counts.tolist()
    unit = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[np.triu_indices(6, 1)]
    assert found["median"] == pytest.approx(np.median(cosines), abs=1e-3)
    assert found["zero"] == pytest.approx(100 * np.mean(cosines == 0))
    assert found["share of top class"] == pytest.approx(np.mean(counts.max(1) / counts.sum(1)))
