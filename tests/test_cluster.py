"""A sweep on a real Ray cluster: a head and a node, separate processes on this machine; the node is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from processes import free_port, wait_for
from refusals import refused
from torch.distributed import FileStore

import fedlib as fl
from fedlib.runs import cluster
from fedlib.runs.store import RunFolder
from fedlib.studies import rows, runner

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'fedlib-papers[ray]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="the processes of a node are found in /proc"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]

PORT = free_port()
ADDRESS = f"127.0.0.1:{PORT}"
KEPT = ("fedper", "partition")  # methods of the evidence
SETTING = dict(rounds=12, join_ratio=1.0, local_epochs=1, batch_size=8, lr=0.05)


class Node:
    """`ray start --block` in a session of its own."""

    def __init__(self, log: Path, *arguments: str):
        command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
        command += ["--node-ip-address=127.0.0.1", "--object-store-memory=100000000", "--num-cpus=1", *arguments]
        command.append("--include-log-monitor=false")
        with log.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def kill(self) -> None:
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getsid(int(entry.name)) == self.process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """A head and a node, of one core each; this process is connected as the driver."""
    logs = tmp_path_factory.mktemp("ray")
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # no warning about what Ray does to CUDA_VISIBLE_DEVICES
    started = [Node(logs / "head", "--head", f"--port={PORT}", "--no-monitor", "--include-dashboard=false")]
    try:
        wait_for(_connected)
        started.append(Node(logs / "node", f"--address={ADDRESS}"))
        wait_for(lambda: ray.cluster_resources().get("CPU", 0) == 2)
        yield started
    finally:
        ray.shutdown()
        for node in started:
            node.kill()


def _connected() -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            ray.init(address=ADDRESS, _node_ip_address="127.0.0.1", log_to_driver=False, logging_level="critical")
    except ConnectionError:
        return False
    return True


@pytest.fixture
def written(monkeypatch) -> Counter:
    """Number of times that this process wrote each run, by folder."""
    count, real = Counter(), cluster._keep
    monkeypatch.setattr(cluster, "_keep", lambda cell, name, *more: count.update([name]) or real(cell, name, *more))
    return count


@fl.algorithm
def slow_average(starts: str, pause: float = 0.3):
    """A slow FedAvg, so that a machine can be killed in the middle of the sweep.

    The file `starts` counts the runs that start; the first one waits for the second.
    """

    def round(state, cohort):
        if cohort.round == 0:
            FileStore(starts).add("runs", 1)
            for _ in range(600):
                if FileStore(starts).add("runs", 0) > 1:
                    break
                time.sleep(0.2)
        time.sleep(pause)
        return fl.fedavg().round(state, cohort)

    return fl.fedavg()._replace(name="slow_average", round=round)


del fl.algorithm.__globals__["ALGORITHMS"]["slow_average"]  # not one of the library's


def test_a_machine_lost_in_mid_sweep_costs_no_cell_and_no_number(nodes, written, federation, tmp_path):
    starts = str(tmp_path / "starts")
    cells = fl.grid(algorithm=slow_average(starts), federation=federation, seed=[0, 1, 2], **SETTING)
    killed = threading.Event()
    real = cluster.board

    def watched(rounds, read, progress):
        def tell():
            done = read()
            if not killed.is_set() and ((done > 1) & (done < 9)).sum() == 2:  # both nodes are in the middle of a cell
                killed.set()
                nodes[1].kill()
            return done

        return real(rounds, tell, progress)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "board", watched)
        there = fl.sweep(cells, ray=ADDRESS, progress=False, store=tmp_path / "cluster")
    assert killed.is_set()
    assert FileStore(starts).add("runs", 0) == len(cells) + 1  # a cell began again
    assert (set(written.values()), len(written)) == ({1}, len(cells))
    quick = [cell | {"algorithm": slow_average(starts, pause=0.0)} for cell in cells]
    here = fl.sweep(quick, jobs=1, progress=False, store=tmp_path / "here")
    for a, b in zip(there.results, here.results, strict=True):
        assert all(torch.equal(t, b.models[name]) for name, t in a.models.items())
        assert a.accuracy.equals(b.accuracy)
        assert (a.folder / "accuracy.csv").read_bytes() == (b.folder / "accuracy.csv").read_bytes()


def test_the_cluster_goes_on_from_a_checkpoint_and_reads_what_is_finished(nodes, written, federation, run_store):
    from conftest import stopped  # not at the top: the workers import this file
    from test_models import in_a_notebook

    model = in_a_notebook("<own>")
    cells = fl.grid(algorithm="fedper", federation=federation, model=model, seed=[0, 1], **SETTING)
    stopped(8, **cells[0])
    half = RunFolder(fl.run(**cells[1], progress=False).config).path.name  # seed 1 is finished
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", ADDRESS)
        swept = fl.sweep(cells, progress=False)
    assert half not in written
    assert len(written) == 1
    seconds = swept.results[0].rounds["seconds"]
    assert len(seconds) == SETTING["rounds"]
    alone = fl.run(**cells[0], progress=False, store=run_store / "alone")
    assert all(torch.equal(t, alone.models[name]) for name, t in swept.results[0].models.items())


def test_a_failing_cell_costs_no_other_and_gpus_that_are_not_there_are_refused(nodes, written, federation):
    cells = fl.grid(algorithm=[fl.fedrep(body_epochs=3), "fedper"], federation=federation, seed=[0, 1], **SETTING)
    with pytest.raises(ValueError, match="body_epochs=3 is not allowed; it must be a whole number") as error:
        fl.sweep(cells, ray=ADDRESS, progress=False)
    assert error.value.__notes__[-1].endswith("seed 0; 2 of 4 cells failed, the others are finished")
    assert sorted(name.partition("-")[0] for name in written) == ["fedper"] * 2
    cells = [dict(algorithm="fedavg", federation=federation, **SETTING)]
    refused(r"gpus=0\.5 is not allowed", fl.sweep, cells, ray=ADDRESS, gpus=0.5, progress=False)
    with pytest.raises(ValueError, match=r"device='cuda' is not allowed with gpus=0"):
        fl.sweep([cells[0] | {"device": "cuda"}], ray=ADDRESS, progress=False)
    refused(r"gpus=0\.5 is not allowed without a Ray cluster", fl.sweep, cells, gpus=0.5, progress=False)


def test_without_ray_one_sentence_says_how_to_get_it(federation, monkeypatch, run_store):
    monkeypatch.setitem(sys.modules, "ray", None)
    cells = [dict(algorithm="fedavg", federation=federation, **SETTING)]
    with pytest.raises(ValueError, match=r'needs Ray, which is not installed: pip install "fedlib-papers\[ray\]"'):
        fl.sweep(cells, ray=ADDRESS, progress=False)
    assert not run_store.exists()


def test_evidence_from_the_cluster_is_that_of_one_machine(nodes, tmp_path, monkeypatch):
    """Runs on the cluster, measurements here; rows say the same as those of one process."""
    monkeypatch.setattr(runner, "check_clean", lambda: "0123")
    smoke = fl.study("pfedsim", "smoke")
    wanted = [cell for cell in smoke.cells if cell.item in ("table3", "table8a") and cell.method in KEPT]
    jobs = runner.missing([smoke.replace(cells=wanted)], folder=tmp_path / "rows")
    assert len(jobs) == 2 + 1
    later = time.time() + 600
    assert runner.in_batches(jobs, ADDRESS, later, tmp_path / "rows", tmp_path / "store") == 3
    assert runner.work(jobs, later, tmp_path / "alone", tmp_path / "other") == 3
    both = [rows.read("pfedsim", tmp_path / name) for name in ("rows", "alone")]
    clock = {"seconds", "seconds_of_rounds"}
    facts = [{key: {k: v for k, v in row.facts.items() if k not in clock} for key, row in one.items()} for one in both]
    assert facts[0] == facts[1]
    assert runner.in_batches(jobs[:1], ADDRESS, time.time() - 1, tmp_path / "late", tmp_path / "store") == 0
