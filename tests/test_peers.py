"""Other libraries compared with fedlib: all get the same partition, and a failing one is reported."""

import os
import pickle
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import torch

from fedlib.tools.bench import __main__ as bench
from fedlib.tools.bench import peers

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
    monkeypatch.setattr(peers, "METHODS", {"fedavg": "FedAvg"})
    monkeypatch.delitem(peers.PEERS, "Flower")
    left_out: dict[str, str] = {}
    mine, other = peers.compare(tmp_path, 1, 3, left_out)
    assert left_out == {"FL-bench": "ImportError: no hydra here", "BlazeFL": "it was not found"}
    assert (mine["variant"], mine["ratio"], mine["version"]) == ("fedlib", 1, peers.fl.__version__)
    assert (other["variant"], other["version"]) == ("PFLlib", "unknown")
    assert other["s_per_round"] == (9 + 0.5) / 2  # without the first round
    assert other["samples_per_s"] == pytest.approx(2 * 3200 / 4.75)
    assert other["ratio"] == mine["s_per_round"] / 4.75
    assert other["accuracy"] == pytest.approx(64)  # 6,400 images


def test_the_table_names_what_is_left_out(monkeypatch, tmp_path):
    def compare(checkouts, turns, rounds, left_out):
        yield {"case": "FedAvg", "variant": "fedlib", "version": "0", "accuracy": 50.0}
        left_out["PFLlib"] = "ImportError: no h5py."

    monkeypatch.setattr(peers, "compare", compare)
    assert bench.main(["--peers", str(tmp_path), "--rounds", "3", "--output", str(tmp_path)]) == 0
    assert "PFLlib is left out: ImportError: no h5py." in (tmp_path / "peers.md").read_text()
    assert pd.read_csv(tmp_path / "peers.csv")["accuracy [%]"].tolist() == [50]
    assert bench.main(["--peers", str(tmp_path), "--rounds", "2"]) == 2
