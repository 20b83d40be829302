"""The benchmark: compared cases, and other libraries, do the same work; ratios are correct. No time is asserted."""

import os
import pickle
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import fedlib as fl
from fedlib.engine.loop import train_loop
from fedlib.runs.plan import cohorts
from fedlib.studies.timing import in_turns, peak_memory
from fedlib.tools.bench import __main__ as bench
from fedlib.tools.bench import cases, peers

CPU = torch.device("cpu")


def test_ratios_are_those_of_turns_side_by_side():
    clock, calls = iter(2 * [4.0, 2.0, 3.0, 3.0, 9.0, 1.0]), []
    works = {"plain": lambda: calls.append("plain"), "ours": lambda: calls.append("ours")}
    taken = in_turns(works, 3, lambda work: work() or next(clock))
    assert calls == ["plain", "ours"] * 4  # one turn to warm up
    assert taken == {"plain": [4.0, 3.0, 9.0], "ours": [2.0, 3.0, 1.0]}
    [_, line] = cases.compared(works, 3, lambda work: work() or next(clock), cohort=10)
    assert line == dict(variant="ours", cohort=10, seconds=2.0, ratio=2.0, least=1.0, most=9.0, to="plain")


def test_the_bare_loop_takes_the_same_steps_as_the_library():
    phase = cases.cohort_phase(2, 3, CPU)
    net = cases.bare_loop(phase).state_dict()
    assert {type(m) for m in cases.bare_loop(phase).modules() if "Pool" in type(m).__name__} == {nn.MaxPool2d}
    trained, _ = train_loop(phase)
    for name, t in trained.items():
        torch.testing.assert_close(net[name], t[1], rtol=1e-5, atol=1e-6)


def test_every_variant_is_measured_for_every_cohort(monkeypatch):
    monkeypatch.setattr(cases, "peak_memory", lambda *_: 1.0)
    for slow_or_absent_on_a_cpu in [name for name in cases.TRAINERS if name.startswith("stacked")]:
        monkeypatch.delitem(cases.TRAINERS, slow_or_absent_on_a_cpu)
    lines = list(cases.training(CPU, turns=1, steps=1))
    assert [(line["variant"], line["cohort"]) for line in lines] == [(v, k) for k in (10, 50) for v in cases.TRAINERS]
    assert all(line["samples_per_s"] * line["seconds"] == pytest.approx(line["cohort"] * 32) for line in lines)


def test_steps_are_measured_on_a_gpu_in_every_form_and_in_the_best_one(monkeypatch):
    assert list(cases.steps(CPU, 1)) == []
    monkeypatch.setattr(cases, "cohort_phase", lambda k, steps, device: k)
    monkeypatch.setattr(cases, "fastest_forms", lambda k, size, graphs: ["direct", f"of {size}"])
    monkeypatch.setattr(cases, "step_seconds", lambda k, size, form, graphs, rest: len(form) * len(rest) * k / size)
    lines = list(cases.steps(SimpleNamespace(type="cuda"), 2))
    assert [line["variant"] for line in lines[8:10]] == ["best, plain", "best, fused"]
    assert [line["cohort"] for line in lines] == [10] * 10 + [50] * 10
    assert (lines[2]["seconds"], lines[8]["ratio"]) == (1000 * len("patches") * len("plain"), len("grouped") / 2)


def test_a_round_of_the_bench_is_a_round_of_the_algorithm():
    method, seen = fl.fedavg(), []

    def spy(state, cohort):
        seen.append((cohort.round, cohort.ids.tolist(), cohort.n_samples.tolist()))
        return method.round(state, cohort)

    work = cases.a_round(method._replace(round=spy), 50, 3)
    work()
    work()
    expected = cohorts(50, 3 / 50, 2, 0)
    assert seen == [(t, ids.tolist(), [30.0] * 3) for t, ids in enumerate(expected)]


def grow(mib: int) -> None:
    np.ones(mib * 2**20, dtype=np.uint8)


def test_peak_memory_is_that_of_the_work_and_impossible_numbers_are_refused(capsys, tmp_path):
    assert 1000 < peak_memory(grow, 1000) < 2000  # PyTorch and the library take the rest
    assert bench.main(["--turns", "0", "--output", str(tmp_path / "bench")]) == 2
    assert "turns and steps must be at least 1." in capsys.readouterr().err
    assert not (tmp_path / "bench").exists()


def test_the_picture_is_made_of_the_table():
    works = {"a": lambda: 1.0, "b": lambda: 0.5}
    lines = list(cases.compared(works, 1, lambda work: work(), case="training", cohort=10))
    for method in ("FedAvg", "pFedSim"):
        for n in (100, 1000):
            lines.append(dict(case="round", variant=f"{method}, {n}", clients=n, cohort=10, s_per_round=0.1))
    figure = bench.picture(pd.DataFrame(lines), "a machine")
    left, right = figure.axes
    assert [bar.get_width() for bar in left.patches] == [1.0, 2.0]
    assert [line.get_ydata().tolist() for line in right.lines] == [[100.0, 100.0]] * 2


@pytest.mark.slow
def test_flower_is_compared_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(cases, "find_spec", lambda name: None)
    assert list(cases.flower(CPU, 1)) == []
    monkeypatch.setattr(cases, "find_spec", lambda name: name)
    monkeypatch.setattr(cases, "cores", lambda: 2)
    few = fl.federate(cases.pictures(600), fl.iid(), clients=20, test_fraction=0.5)
    monkeypatch.setattr(cases, "flower_federation", lambda: few)
    done = SimpleNamespace(returncode=0, stdout="what Flower says\n[9.0, 2.0, 4.0]\n", stderr="")
    monkeypatch.setattr(cases.subprocess, "run", lambda *_, **__: done)
    lines = list(cases.flower(CPU, 1, rounds=2))
    assert [line["variant"] for line in lines][1:] == ["fl.run, one core", "fl.sweep of 2 runs, per run"]
    assert lines[0]["seconds"] == 3.0  # without the first round
    assert all(line["ratio"] == pytest.approx(3.0 / line["seconds"]) for line in lines)
    done.returncode, done.stderr = 1, "no Ray"
    with pytest.raises(RuntimeError, match="no Ray"):
        list(cases.flower(CPU, 1))


def test_a_client_of_flower_takes_the_steps_of_a_client_here():
    federation, _, net = cases.flower_world()
    w = {name: t.clone() for name, t in net.state_dict().items()}
    after, n = cases.flower_trained(3, w)
    assert n == len(federation.train[3]) == 150
    setting = cases.SETTING | dict(rounds=1, join_ratio=1.0, seed=0)
    result = fl.run("fedavg", replace(federation, train=20 * federation.train[3:4]), progress=False, **setting)
    kernels = [name for name, t in w.items() if t.dim() > 1]
    for name in kernels:  # other batches, the same number of steps of the same length
        t = result.state.w[name]
        moved, expected = (after[name] - w[name]).norm(), (t - w[name]).norm()
        assert 0.5 * expected < moved < 2 * expected, name


def test_the_page_about_runs_says_what_the_table_says():
    root = Path(__file__).parent.parent
    table = pd.read_csv(root / "figures/reference/bench/bench.csv").set_index(["case", "variant"])["ratio"]
    said = " ".join((root / "fedlib/tools/site/pages/runs.md").read_text(encoding="utf-8").split())
    for sentence, case, variant in (
        ("local training is {:.2f} times as fast", "training", "loop"),
        ("one thread has {:.1f} times the throughput", "four runs", "sweep, 2 workers"),
        ("A round of FedAvg on one core is {:.1f} times as fast as in Flower's", "FedAvg round", "fl.run, one core"),
        ("in a sweep of two runs it is {:.1f} times as fast", "FedAvg round", "fl.sweep of 2 runs, per run"),
    ):
        assert sentence.format(table.loc[[(case, variant)]].iloc[0]) in said


PFLLIB = '''
import numpy as np

class FedAvg:
    """Counts the images that it finds; its accuracy is their number over 10,000."""
    def __init__(self, args, times):
        self.args = args
    def train(self):
        places = [(part, i) for part in ("train", "test") for i in range(self.args.num_clients)]
        found = [np.load(f"../dataset/{self.args.dataset}/{part}/{i}.npz", allow_pickle=True) for part, i in places]
        self.Budget = [9.0, 9.0] + [0.5] * self.args.global_rounds
        self.rs_test_acc = [0, sum(len(one["data"].tolist()["y"]) for one in found) / 10_000]
'''


def test_the_partition_that_is_handed_over_is_ours(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDLIB_DATA", raising=False)
    federation = peers.partition()
    peers.write(federation, tmp_path)
    there = peers.world(str(tmp_path))
    x, _ = peers.pixels(there)
    assert {len(index) for index in federation.train} == {320}  # whole batches: some libraries leave out the others
    raw = torch.from_numpy(federation.data.x).float() / 255
    mean, std = (raw.mean((0, 2, 3), keepdim=True), raw.std((0, 2, 3), keepdim=True))
    torch.testing.assert_close(x, (raw - mean) / std, rtol=1e-3, atol=1e-3)
    found = pickle.loads((tmp_path / "data/fedlib/partition.pkl").read_bytes())
    assert found["separation"]["total"] == federation.n_clients == 10
    for part in ("train", "test"):
        for i, index in enumerate(getattr(federation, part)):
            assert np.array_equal(getattr(there[0], part)[i], index)
            assert np.array_equal(found["data_indices"][i][part], index)
            own = np.load(tmp_path / f"dataset/fedlib/{part}/{i}.npz", allow_pickle=True)["data"].tolist()
            assert np.array_equal(own["y"], federation.data.y[index])
            assert np.array_equal(own["x"], x[index].numpy())


def test_the_two_parts_of_the_network_are_the_network(tmp_path):
    net = peers.world_of(peers.partition(), "lenet5_plain")[2]
    base, head = peers.parts(net)
    x = torch.randn(3, 3, 32, 32)
    assert torch.equal(head(base(x)), net(x))
    assert base(x).shape == (3, 84)


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_work_and_memory_of_started_processes_count():
    code = "import time; x = b'1' * 100 * 2**20\nwhile time.process_time() < 0.5: pass\nprint(flush=True); input()"
    before, mine = peers.clock(), time.process_time()
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        assert peers.clock() - before - (time.process_time() - mine) > 0.4
        assert peers.memory(os.getpid()) > 100 + peers.memory(child.pid) > 200
        child.communicate(b"\n")


@pytest.mark.slow
def test_a_library_is_measured_beside_ours_and_one_that_fails_is_reported(monkeypatch, tmp_path):
    (tmp_path / "PFLlib/system/flcore/servers").mkdir(parents=True)
    (tmp_path / "PFLlib/system/flcore/servers/serveravg.py").write_text(PFLLIB)
    (tmp_path / "FL-bench/src/server").mkdir(parents=True)
    (tmp_path / "FL-bench/src/server/fedavg.py").write_text("raise ImportError('no hydra here')")
    monkeypatch.delenv("FEDLIB_DATA", raising=False)
    few = fl.federate(cases.pictures(640), fl.shards(2), clients=10, test_fraction=0.5)
    monkeypatch.setattr(peers, "partition", lambda: few)
    monkeypatch.setattr(peers, "METHODS", {"fedavg": "FedAvg"})
    monkeypatch.delitem(peers.PEERS, "Flower")
    left_out: dict[str, str] = {}
    mine, other = peers.compare(tmp_path, 1, 3, left_out)
    assert left_out == {"FL-bench": "ImportError: no hydra here", "BlazeFL": "it was not found"}
    assert (mine["variant"], mine["ratio"], mine["version"]) == ("fedlib", 1, peers.fl.__version__)
    assert (other["variant"], other["version"]) == ("PFLlib", "unknown")
    assert other["s_per_round"] == (9 + 0.5) / 2  # without the first round
    assert other["samples_per_s"] == pytest.approx(2 * 320 / 4.75)
    assert other["ratio"] == mine["s_per_round"] / 4.75
    assert other["accuracy"] == pytest.approx(6.4)  # 640 images


def test_the_short_run_that_tries_a_library_does_not_count(monkeypatch, tmp_path):
    def measured(peer, method, folder, checkouts, rounds):
        return {"seconds": [9.0, 2.0], "memory_mib": 100.0 * rounds, "accuracy": 10.0 * rounds}

    few = SimpleNamespace(train=[range(4)], n_clients=1)
    here = {"measured": measured, "partition": lambda: few, "write": print, "which": lambda *_: "1.0"}
    for name, made in here.items():
        monkeypatch.setattr(peers, name, made)
    lines = list(peers.compare(tmp_path, 2, 5, {}))
    assert {(line["memory_mib"], line["accuracy"]) for line in lines} == {(500.0, 50.0)}  # the trial has three rounds


def test_the_table_names_what_is_left_out(monkeypatch, tmp_path):
    def compare(checkouts, turns, rounds, left_out):
        yield {"case": "FedAvg", "variant": "fedlib", "version": "0", "accuracy": 50.0}
        left_out["PFLlib"] = "ImportError: no h5py."

    monkeypatch.setattr(peers, "compare", compare)
    assert bench.main(["--peers", str(tmp_path), "--rounds", "3", "--output", str(tmp_path)]) == 0
    assert "PFLlib is left out: ImportError: no h5py." in (tmp_path / "peers.md").read_text()
    assert pd.read_csv(tmp_path / "peers.csv")["accuracy [%]"].tolist() == [50]
    assert bench.main(["--peers", str(tmp_path), "--rounds", "2"]) == 2
