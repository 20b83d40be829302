"""The figures of FedSimSup on constructed rows, and what is measured for them."""

import itertools
from functools import partial
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

import fedlib as fl
from fedlib.papers.fedsimsup import beside
from fedlib.papers.fedsimsup import study as fedsimsup
from fedlib.papers.fedsimsup.study import QUICK, Column, looks_of, similarities, supervisor_moves
from fedlib.report.style import method_style
from fedlib.studies.rows import Row
from fedlib.studies.study import study
from fedlib.studies.tasks import Images
from fedlib.training import on_device

COLUMN = Column("cifar10", 50, "dir", 0.5)


@pytest.fixture
def tiny(monkeypatch):
    """A profile with six clients and ninety train images."""
    sizes = QUICK._replace(
        data={"cifar10": Images("digits", (("copies", 1),), train=90)},
        clients={50: 6},
        dirichlet={"cifar10": (0.5,)},
        join_ratio=0.5,
        theta_epochs=1,
        batch_size=24,
        moves_rounds=3,
    )
    monkeypatch.setitem(fedsimsup.PROFILES, "tiny", sizes)
    return sizes


def task_of(sizes, rounds):
    return fedsimsup.run(sizes, COLUMN, fl.fedsimsup("small_lenet", 1), rounds)


def row(task, seed, correct, n_test=(10,), kept=None):
    """A run with so many right answers of each client after each round."""
    facts = {"when": "before", "n_test": n_test, "seconds": 1.0, "commit": None, "kept": kept or {}}
    facts["evaluations"] = [{"round": t, "when": "before", "correct": own} for t, own in enumerate(correct, 1)]
    return Row(task.name, seed, facts)


def test_the_line_with_the_weights_ends_where_the_runs_with_similarities_end():
    small, ends = study("fedsimsup", "smoke"), {"True": [6, 8], "False": [3, 5]}
    tasks = {cell.setting.split("similarity=")[1][:5]: cell.tasks[0] for cell in small.cells if cell.item == "fig3"}
    rows = {(tasks[k].name, seed): row(tasks[k], seed, [[1], [end]]) for k in ends for seed, end in enumerate(ends[k])}
    [ax] = small.replace(rows=rows).figure("fig3").axes
    plt.close(ax.figure)
    assert {text.get_text(): text.xy[1] for text in ax.texts} == {
        "weights $s_{ij}$": 70,
        "all $s_{ij}=1$": 40,
        "chance": 10,
    }


def test_a_kind_of_supervisor_gains_over_the_same_clients_and_rounds():
    cells = {cell.method: cell for cell in study("fedsimsup", "smoke").cells if cell.item == "table3_paired"}
    mixed, original = cells["fedsimsup-t"].tasks
    n_test, kept = (10, 30, 20), {"t": [0, 2], "c": [1]}
    rows = row(mixed, 0, [[4, 24, 8]], n_test, kept), row(original, 0, [[2, 27, 7], [9, 3, 18]], n_test)
    assert mixed.rounds == 1 < original.rounds
    assert [cells[f"fedsimsup-{kind}"].read(*rows) for kind in "tcl"] == pytest.approx([10, -10, np.nan], nan_ok=True)


def test_maps_are_compared_with_those_of_the_other_network_for_another_image(monkeypatch):
    theta = np.array([[0.9, 0.1, 0.2, 0.3], [0.8, 0.7, 0.0, 0.1], [0.0, 0.3, 1.0, 0.9]], np.float32)
    s = np.array([[0.6, 0.0, 0.1, 0.4], [0.2, 0.9, 0.0, 0.8], [0.3, 0.1, 0.2, 0.7]], np.float32)
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(4, 2)) for _ in range(2)]
    own = [{"1.weight": torch.zeros(2, 4), "1.bias": torch.zeros(2)} for _ in range(2)]
    own[0]["1.weight"][0, 0], own[1]["1.bias"][1] = 1, 0.5  # class 0 where the first pixel is seen
    maps = {0.0: theta, 0.5: s}
    monkeypatch.setattr(
        fedsimsup, "grad_cam", lambda net, x, y: torch.from_numpy(maps[net[1].bias[1].item()]).view(3, 2, 2)
    )
    two = SimpleNamespace(networks=[SimpleNamespace(net=net) for net in nets])
    batch = SimpleNamespace(x=torch.ones(3, 1, 2, 2), y=torch.zeros(3, dtype=torch.int64))
    pixels = SimpleNamespace(batch=lambda index, model: batch)
    table = looks_of(own, two, pixels, np.array([5, 7, 9]), np.array([0, 4]))
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


PLACES = ("clients=100;dir=0.1", "clients=100;dir=0.5", "clients=100;pat=2")
IN = ("Dir(0.1)", "Dir(0.5)")


def with_networks(printed, places=PLACES[:1]):
    """A study of which only the control "network" has been measured, with two seeds, and what the tables print.

    In each further place all numbers, and what is printed, are three higher.
    """
    measured, usual = [], [{"method": "fedavg", "setting": "clients=50;dir=0.1", "paper": 1.0}]
    for k, place in enumerate(places):
        measured += [
            {
                "method": method,
                "setting": f"{place};network={network};accuracy={over}",
                "network": network,
                "accuracy": over,
                "value": value + gap + 3 * k,
                "paper": np.nan,
            }
            for method, network, value in (
                ("local_only", "lenet4", 87.0),
                ("local_only", "lenet5_plain", 85.0),
                ("fedavg", "lenet4", 52.0),
                ("fedavg", "lenet5_plain", 42.0),
                ("fedrep", "lenet5_plain", 70.0),
            )
            for over, shift in (("samples", 0.0), ("clients", 30.0))
            for gap in (shift, shift + 1.0)
        ]
        usual += [{"method": method, "setting": place, "paper": value + 3 * k} for method, value in printed.items()]
    return of_tables("network", measured, usual, fl.study("fedsimsup").cells)


def of_tables(item, measured, usual, cells, **more):
    """A study with these numbers of an item and of Tables 1 and 2."""
    numbers, printed = (pd.DataFrame(frame).assign(dataset="cifar10", item=item) for frame in (measured, usual))
    numbers["data"] = numbers.get("data", "cifar10")
    pathological = printed["setting"].str.contains("pat=")
    tables = {"table1": printed[~pathological], "table2": printed[pathological]}
    return SimpleNamespace(numbers={item: numbers}.__getitem__, table=tables.__getitem__, cells=cells, **more)


def test_what_is_printed_does_not_stand_beside_numbers_of_other_data():
    one = with_networks({"local_only": 86.0, "fedavg": 33.5, "fedrep": 60.0})
    frame, cells = one.numbers("network"), one.cells
    digits = frame.assign(data=np.where(frame["method"] == "fedavg", "digits for cifar10", frame["data"]))
    found = beside.beside_tables(of_tables("network", digits, one.table("table1"), cells), digits)
    assert found.groupby("method")["paper"].first().dropna().to_dict() == {"local_only": 86.0, "fedrep": 60.0}


def test_both_networks_stand_beside_what_is_printed():
    one = with_networks({"local_only": 86.0, "fedavg": 33.5, "fedrep": 60.0})
    assert beside.network_says(one) == (
        "Look at which dots lie at the red bars: the paper does not give the widths of its network. Accuracy with "
        "6-16-120-84 (with 32-64-512, printed): Local-Only 85.5 (87.5, 86.0); FedAvg 42.5 (52.5, 33.5). The mean "
        "distance from the printed numbers is 4.8 points with 6-16-120-84, 10.2 with 32-64-512."
    )
    more = with_networks({"local_only": 86.0, "fedavg": 33.5, "fedrep": 60.0}, PLACES)
    said = beside.network_says(more)
    assert (
        "Local-Only, Dir(0.1) 85.5 (87.5, 86.0); FedAvg, Dir(0.1) 42.5 (52.5, 33.5); Local-Only, Dir(0.5) 88.5" in said
    )
    assert "FedAvg, 2 classes each 48.5 (58.5, 39.5). The mean distance from the printed numbers is 4.8" in said
    figure = beside.network(more)
    assert [ax.get_title("left") for ax in figure.axes] == [
        f"CIFAR-10, {place}, 100 clients" for place in ("Dir(0.1)", "Dir(0.5)", "2 classes each")
    ]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["32-64-512", "6-16-120-84", "printed"]
    for k, ax in enumerate(figure.axes):
        assert [text.get_text() for text in ax.get_yticklabels()] == ["Local-Only", "FedAvg", "FedRep"]
        wide, narrow, paper, chance = (line.get_xdata() for line in ax.lines)
        np.testing.assert_allclose(wide, np.array([87.5, 52.5, np.nan]) + 3 * k)
        np.testing.assert_allclose(narrow, np.array([85.5, 42.5, 70.5]) + 3 * k)
        np.testing.assert_allclose(paper, np.array([86.0, 33.5, 60.0]) + 3 * k)
        assert chance[0] == (50 if k == 2 else 10)
    plt.close("all")


def test_a_network_has_the_same_colour_where_the_other_one_has_not_been_run():
    both, alone = with_networks({}), with_networks({}, PLACES[1:2])
    frame = alone.numbers("network")
    frame = pd.concat([both.numbers("network"), frame[frame["network"] == "lenet5_plain"]])
    one = of_tables("network", frame, both.table("table1"), both.cells)
    colours = [[line.get_color() for line in ax.lines[:2]] for ax in beside.network(one).axes]
    np.testing.assert_allclose(colours[0], colours[1])
    wide, narrow = (line.get_xdata() for line in plt.gcf().axes[1].lines[:2])
    assert np.isnan(wide).all()
    assert narrow.tolist() == [85.5, 42.5, 70.5]
    legend = [text.get_text() for text in plt.gcf().legends[0].get_texts()]
    assert legend == ["32-64-512", "6-16-120-84"]  # nothing is printed
    plt.close("all")


def test_networks_are_compared_where_nothing_is_printed():
    assert beside.network_says(with_networks({"fedrep": 60.0})) == (
        "Look at which dots lie at the red bars: the paper does not give the widths of its network. Accuracy with "
        "6-16-120-84 (with 32-64-512): Local-Only 85.5 (87.5); FedAvg 42.5 (52.5)."
    )


def with_long_runs(printed, *methods, places=PLACES[:1]):
    """A study of which only the control "long" has been measured, at rounds 10 to 30, and what the tables print.

    In the second place all numbers are 3 points lower, and what is printed 2 points higher.
    """
    points = {"fedavg": (40.0, 35.0, 45.0), "local_only": (85.0, 86.0, 86.5)}
    ends = {"fedavg": (30.0, 47.0), "local_only": (86.0, 86.8)}
    measured, usual, rows, cells = [], [{"method": "fedavg", "setting": "clients=50;dir=0.1", "paper": 1.0}], {}, []

    def curve(method, less):
        accuracy = np.subtract(points[method], less)
        return pd.DataFrame({"round": range(10, 31, 10), "accuracy": accuracy, "when": "before"})

    for i, (place, m) in enumerate(itertools.product(places, methods)):
        k = i // len(methods)
        of = {"paper": np.nan, "metric": "accuracy", "method": m}
        for t, value in enumerate(points[m], 1):
            setting = f"{place};round={10 * t}"
            measured.append(of | {"setting": setting, "round": str(10 * t), "value": value - 3 * k})
        for metric, value in zip(("lowest", "highest"), ends[m], strict=True):
            measured.append(of | {"metric": metric, "setting": place, "round": np.nan, "value": value - 3 * k})
        usual += [{"method": m, "setting": place, "paper": printed[m] + 2 * k}] if m in printed else []
        task = f"{m} {k}"
        rows[task] = [SimpleNamespace(curve=partial(curve, m, 3 * k), when="before", seed=0)]
        cells += [SimpleNamespace(item="long", method=m, setting=f"{place};round=10", tasks=(task,))]
    cells += [SimpleNamespace(item="long", method="fedrep", setting=f"{PLACES[2]};round=10", tasks=("not run",))]
    return of_tables("long", measured, usual, cells, rows_of=lambda task: rows.get(task, []))


def test_more_rounds_stand_beside_fewer_and_what_is_printed():
    one = with_long_runs({"fedavg": 33.5, "local_only": 86.0}, "local_only", "fedavg")
    assert beside.long_says(one) == (
        "Look at what the later rounds change. Accuracy after 30 rounds (after 10 rounds, printed): Local-Only 86.5 "
        "(85.0, 86.0); FedAvg 45.0 (40.0, 33.5). The mean distance from the printed numbers is 6.0 points after 30 "
        "rounds, 3.8 after 10 rounds. In the last fifth FedAvg, the least steady one, is between 30.0 and 47.0."
    )
    figure = beside.long(one)
    (ax,) = figure.axes
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["paper"]
    crosses = [
        (line.get_color(), *line.get_xdata(), *line.get_ydata()) for line in ax.lines if line.get_marker() == "x"
    ]
    assert sorted(crosses, key=lambda cross: cross[2]) == [
        (method_style("fedavg")["color"], 30, 33.5),
        (method_style("local_only")["color"], 30, 86.0),
    ]
    plt.close("all")


def test_more_rounds_have_a_panel_for_each_partition():
    one = with_long_runs({"fedavg": 93.5}, "local_only", "fedavg", places=PLACES[:2])
    assert beside.long_says(one) == (
        "Look at what the later rounds change. Accuracy after 30 rounds (after 10 rounds, printed): "
        f"Local-Only, {IN[0]} 86.5 (85.0); FedAvg, {IN[0]} 45.0 (40.0, 93.5); "
        f"Local-Only, {IN[1]} 83.5 (82.0); FedAvg, {IN[1]} 42.0 (37.0, "
        "95.5). The mean distance from the printed numbers is 51.0 points after 30 rounds, 56.0 after 10 rounds. "
        f"In the last fifth FedAvg, {IN[0]}, the least steady one, is between 30.0 and 47.0."
    )
    figure = beside.long(one)
    assert [ax.get_title("left") for ax in figure.axes] == [*IN]
    crosses = [
        [(line.get_color(), *line.get_ydata()) for line in ax.lines if line.get_marker() == "x"] for ax in figure.axes
    ]
    colour = method_style("fedavg")["color"]
    assert crosses == [[(colour, 93.5)], [(colour, 95.5)]]
    assert all(cross[0][1] < ax.get_ylim()[1] for ax, cross in zip(figure.axes, crosses, strict=True))
    ends = [{float(line.get_ydata()[-1]) for line in ax.lines} for ax in figure.axes]
    assert {86.5, 45.0} <= ends[0]
    assert {83.5, 42.0} <= ends[1]
    plt.close("all")


def test_one_method_has_no_average():
    assert beside.long_says(with_long_runs({"fedavg": 33.5}, "fedavg")) == (
        "Look at what the later rounds change. Accuracy after 30 rounds (after 10 rounds, printed): FedAvg 45.0 (40.0, "
        "33.5). The distance from the printed number is 11.5 points after 30 rounds, 6.5 after 10 rounds."
    )


def test_one_method_alone_is_not_called_the_least_steady():
    said = beside.long_says(with_long_runs({}, "local_only"))
    assert said == (
        "Look at what the later rounds change. Accuracy after 30 rounds (after 10 rounds): Local-Only 86.5 (85.0)."
    )


def with_steps(printed, accuracies, *lost):
    """A study of which only the control "to_fedpac" has been run: accuracy by place, step, seed and round.

    Steps in `lost` have rows, but no numbers.
    """
    measured, rows, cells = [], {}, []
    for place, steps in accuracies.items():
        for step, values in zip(beside.STEPS, steps, strict=True):
            setting, task = f"{place};step={step}", f"{place} {step}"
            where = {"setting": setting, "step": step, "method": "fedpac", "paper": 1.0}
            cells.append(SimpleNamespace(item="to_fedpac", method="fedpac", setting=setting, tasks=(task,)))
            measured += [where | {"seed": seed, "value": own[-1]} for seed, own in values.items() if step not in lost]
            rows[task] = [
                SimpleNamespace(
                    curve=partial(pd.DataFrame, {"round": range(1, 1 + len(own)), "accuracy": own, "when": "before"}),
                    when="before",
                    seed=seed,
                )
                for seed, own in values.items()
            ]
    usual = [{"method": "fedprox", "setting": place, "paper": 2.0} for place in accuracies]
    usual += [{"method": method, "setting": place, "paper": value} for (method, place), value in printed.items()]
    return of_tables("to_fedpac", measured, usual, cells, rows_of=lambda task: rows.get(task, []))


def test_each_step_to_fedpac_is_told_with_the_one_that_changes_most():
    """In its best round, so that a run that is lost later counts."""
    printed = {("fedrep", PLACES[0]): 50.0, ("fedrep", PLACES[1]): 72.0, ("fedpac", PLACES[1]): 66.0}
    steps = {
        PLACES[0]: ({0: [88.0, 89.0]}, {0: [87.5, 88.0]}, {}, {0: [91.0, 92.0]}),  # one step has not been run
        PLACES[1]: (
            {0: [65.0, 63.0], 1: [90.0, 20.0]},  # the second seed has one step only
            {0: [61.0, 62.5]},
            {0: [61.5, 10.0]},
            {0: [70.0, 77.0]},
        ),
    }
    one = with_steps(printed, steps, beside.STEPS[2])
    assert beside.to_fedpac_says(one) == (
        "Look at the distances between the lines, here in the best round of each. Dir(0.5): from FedRep, 65.0 (printed "
        "72.0), to FedPAC, 77.0 (printed 66.0), in points: one epoch for the classifier -2.5, classifiers combined "
        "-1.0, features aligned (FedPAC) +15.5. Most changes with 'features aligned (FedPAC)': from one seed."
    )
    upper, lower = beside.to_fedpac(one).axes
    assert (upper.get_title("left"), lower.get_title("left")) == IN
    ends = [{float(line.get_ydata()[-1]) for line in ax.lines if len(line.get_ydata()) == 2} for ax in (upper, lower)]
    assert {89.0, 88.0, 92.0} <= ends[0]
    assert {62.5, 10.0, 77.0} <= ends[1]
    crosses = [
        {(line.get_color(), *line.get_xdata(), *line.get_ydata()) for line in ax.lines if line.get_marker() == "x"}
        for ax in (upper, lower)
    ]
    rep, pac = (method_style(method)["color"] for method in ("fedrep", "fedpac"))
    assert crosses == [{(rep, 2, 50.0)}, {(rep, 2, 72.0), (pac, 2, 66.0)}]
    assert [text.get_text() for text in plt.gcf().legends[0].get_texts()] == ["paper"]
    plt.close("all")


def test_a_step_down_can_be_the_one_that_changes_most_and_seeds_are_compared_with_themselves():
    steps = {
        PLACES[0]: ({0: [80.0], 2: [90.0]}, {0: [71.0], 2: [79.0]}, {0: [75.0], 2: [85.0]}, {0: [77.0], 2: [86.0]})
    }
    assert beside.to_fedpac_says(with_steps({}, steps)) == (
        "Look at the distances between the lines, here in the best round of each. Dir(0.1): from FedRep, 85.0, to "
        "FedPAC, 81.5, in points: one epoch for the classifier -10.0, classifiers combined +5.0, features aligned "
        "(FedPAC) +1.5. Most changes with 'one epoch for the classifier': more than seeds differ (standard deviation "
        "1.4)."
    )
    partly = {PLACES[0]: ({0: [80.0]}, {1: [71.0]}, {0: [75.0]}, {0: [77.0]})}
    assert beside.to_fedpac_says(with_steps({}, partly)) == ""


def with_classifiers(printed, *places):
    """FedRep with its classifiers as they are, 60, and trained again, 64; 3 points more in each further place."""
    measured = [
        {"method": "fedrep", "setting": f"{place};classifier={name}", "classifier": name, "value": value + 3 * k}
        for k, place in enumerate(places)
        for name, value in (("as it is", 60.0), ("trained again", 64.0))
    ]
    usual = [{"method": "fedrep", "setting": place, "paper": value} for place, value in printed.items()]
    usual += [{"method": "fedper", "setting": place, "paper": 1.0} for place in places]
    measured = [number | {"paper": np.nan} for number in measured]
    return of_tables("fresh", measured, usual, fl.study("fedsimsup").cells)


def test_classifiers_trained_again_stand_beside_what_is_printed():
    one = with_classifiers({PLACES[0]: 63.0, PLACES[1]: 72.0}, *PLACES[:2])
    assert beside.fresh_says(one) == (
        "Look at the distance of the two dots: the body moves on while a client is away. Accuracy with the classifier "
        "trained again (with the classifier as it is, printed): FedRep, Dir(0.1) 64.0 (60.0, 63.0); FedRep, Dir(0.5) "
        "67.0 (63.0, 72.0). The mean distance from the printed numbers is 3.0 points with the classifier trained "
        "again, 6.0 with the classifier as it is."
    )
    figure = beside.fresh(one)
    assert [ax.get_title("left") for ax in figure.axes] == [f"CIFAR-10, {name}, 100 clients" for name in IN]
    found = [[float(line.get_xdata()[0]) for line in ax.lines] for ax in figure.axes]
    assert found == [[60.0, 64.0, 63.0, 10.0], [63.0, 67.0, 72.0, 10.0]]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["as it is", "trained again", "printed"]
    plt.close("all")


def test_where_classifiers_were_not_trained_again_nothing_is_said():
    one = with_classifiers({}, PLACES[1])
    half = one.numbers("fresh").query("classifier == 'as it is'")
    assert beside.fresh_says(of_tables("fresh", half, one.table("table1"), one.cells)) == ""
