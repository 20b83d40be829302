"""Evidence: rows of finished runs, their runner, all rows in one file, and `fl.compare`."""

import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from conftest import stopped
from processes import alive, wait_for
from refusals import refused
from test_fingerprint import MINE, in_a_file

import fedlib as fl
from fedlib.papers.pfedsim.sizes import PROFILES, run
from fedlib.report.paper import PAPERS
from fedlib.runs.store import Checkpoint, RunFolder
from fedlib.studies import compare, recheck, rows, runner
from fedlib.studies import short_runs as trial
from fedlib.studies import tasks as tasks_of_studies
from fedlib.studies.__main__ import main
from fedlib.studies.rows import FOLDER, Row
from fedlib.studies.runner import Job, missing, perform, work
from fedlib.studies.study import study
from fedlib.studies.tasks import Images, Run, here
from fedlib.tools import parquet as dataset
from fedlib.training.batches import on_device

KINDS = [("table3", "fedavg"), ("table3", "local_only"), ("fig1", "local_only")]
TASK = run(PROFILES["smoke"], "cifar10", 0.5, fl.fedavg())


@pytest.fixture
def smoke(monkeypatch):
    monkeypatch.setattr(runner, "check_clean", lambda: "0123")
    return study("pfedsim", "smoke")


@pytest.fixture
def fedper(smoke):
    return next(cell.tasks[0] for cell in smoke.cells if (cell.item, cell.method) == ("table3", "fedper"))


def work_in(folder, jobs):
    return work(jobs, time.time() + 600, folder, folder / "store")


def test_a_row_says_what_the_run_says_also_after_a_stop(smoke, tmp_path):
    job = Job("pfedsim", run(PROFILES["smoke"], "cifar10", 0.5, fl.perfedavg()), 2)
    stopped(1, **job.task.arguments(job.seed), store=tmp_path / "store")
    facts = perform(job, tmp_path / "store")
    path = rows.write("pfedsim", facts, tmp_path / "rows")
    assert path.stat().st_size < 20_000
    row = rows.read("pfedsim", tmp_path / "rows")[job.task.name, job.seed]
    result = fl.run(**job.task.arguments(job.seed), store=tmp_path / "whole", progress=False)
    assert row.score() == pytest.approx(result.score(), abs=1e-4)
    assert row.when == "after"
    columns = ["round", "client", "n_test", "when"]
    assert row.accuracy[columns].equals(result.accuracy[columns])
    assert row.accuracy["accuracy"].to_numpy() == pytest.approx(result.accuracy["accuracy"].to_numpy(), abs=1e-4)
    assert not rows.changed(job.task, row)
    older = rows.Row(row.task, row.seed, {**row.facts, "code": "older"})
    assert rows.changed(job.task, older)


KEPT = """
    RATE = 2

    def halved(value):
        return value / RATE

    def half_of(when, result):
        return {"half": halved(result.score(when=when))}
"""


def test_files_are_free_to_move_and_functions_to_be_renamed(tmp_path, monkeypatch):
    """A method and what a row keeps, in another file and under another name: the same run, the same code."""
    monkeypatch.syspath_prepend(str(tmp_path))
    sources = KEPT, "    # moved\n" + KEPT.replace("half_of", "another_name"), KEPT.replace("value / RATE", "value")
    made = [in_a_file(source, tmp_path, f"keeps_{i}") for i, source in enumerate(sources)]
    keeps = [made[0].half_of, made[1].another_name, made[2].half_of]
    methods = [in_a_file(MINE, tmp_path, f"method_{i}").mine() for i in range(3)]
    tasks = [TASK._replace(algorithm=method) for method in methods]
    one, moved, changed = (task._replace(keep=partial(keep, "before")) for task, keep in zip(tasks, keeps, strict=True))
    assert one.name == moved.name == changed.name
    assert one.code() == moved.code()
    assert len({task.code() for task in (one, changed, tasks[0])}) == 3  # what a run keeps is part of its code


def test_the_loss_of_a_row_is_the_mean_over_all_test_images(federation):
    shares = federation.test[0][:1], federation.test[3][:9]
    dealt = replace(federation, train=(federation.train[0], federation.train[3]), test=shares)
    result = fl.run("fedavg", dealt, rounds=1, lr=0.2, batch_size=8, progress=False)
    facts = rows.row_of(TASK, 2, result, 1.0).facts
    x, y, *_ = on_device(dealt.data, torch.device("cpu")).batch(torch.from_numpy(np.concatenate(shares)), result.model)
    with torch.no_grad():
        z = result.model(result.weights(0), x)
    loss, hit = F.cross_entropy(z, y, reduction="none"), z.argmax(1) == y
    assert abs(loss[:1].mean() - loss[1:].mean()) > 0.01
    assert facts["evaluations"][-1]["loss"] == pytest.approx(loss.mean().item(), abs=2e-5)
    assert (facts["evaluations"][-1]["correct"], facts["n_test"]) == ([hit[:1].sum(), hit[1:].sum()], [1, 9])


def test_few_train_images_come_with_as_large_a_share_of_the_test_images(tiny, monkeypatch):
    data = replace(tiny.subset(range(150)), split=(np.arange(150) % 3 == 0).astype(np.uint8))
    monkeypatch.setattr(fl, "load", lambda name: data)
    some = tasks_of_studies.images(Images("a hundred and fifty", train=20))
    assert np.bincount(some.split).tolist() == [20, 10]
    assert len({x.tobytes() for x in some.x}) == 30


def test_what_is_missing_is_run_once_and_nothing_else(smoke, tmp_path, capsys):
    cells = [cell for cell in smoke.cells if (cell.item, cell.method) in KINDS]
    small = smoke.replace(cells=cells)
    jobs = missing([small], folder=tmp_path)
    assert len(jobs) == 5  # two methods at two alphas, and one measurement
    assert work_in(tmp_path, jobs) == 5
    assert missing([small], folder=tmp_path) == []
    assert work_in(tmp_path, jobs) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    measured = small.replace(rows=rows.read("pfedsim", tmp_path)).measured()
    assert len(measured) == len(cells)
    assert not measured["changed"].any()
    assert measured["value"].notna().all()


def test_the_missing_runs_of_an_item_or_a_name_and_what_is_timed_if_it_is_asked_for(smoke, tmp_path):
    cell = next(cell for cell in smoke.cells if cell.item == "table3")
    timed = smoke.replace(cells=[cell._replace(item="times", tasks=(cell.tasks[0]._replace(timed=True),))], claims=())
    assert [len(missing([timed], items, tmp_path)) for items in ((), ["times"])] == [0, 1]

    def names(*items):
        return {one.task.name for one in missing([smoke], list(items), tmp_path)}

    name = missing([smoke], ["table3"], tmp_path)[-1].task.name
    assert names(name) == {name} < names("table4", name)
    assert names("table4", "table6") == names("table4") | names("table6")


def test_a_job_that_another_process_does_is_left_to_it(smoke, tmp_path):
    job = missing([smoke], ["table3"], tmp_path)[0]
    with runner._lock(job, tmp_path / "store"):
        assert work_in(tmp_path, [job]) == 0
    assert work_in(tmp_path, [job]) == 1


def test_tensors_of_a_state_may_share_memory(tmp_path):
    t = torch.arange(6.0)
    folder = RunFolder({"algorithm": "shared"}, tmp_path)
    with folder:
        folder.save(Checkpoint(3, {"a": t, "b": t, "c": t[2:4]}))
    read = {name: value.tolist() for name, value in folder.load().tensors.items()}
    assert read == {"a": [0, 1, 2, 3, 4, 5], "b": [0, 1, 2, 3, 4, 5], "c": [2, 3]}


def test_a_run_needs_its_public_images_too(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    absent = Images("svhn")
    assert here(TASK)
    assert here(TASK._replace(public=(Images("digits"), 0.5)))
    assert not here(TASK._replace(public=(absent, 0.5)))
    assert not here(TASK._replace(images=absent))
    (tmp_path / "svhn.npz").touch()
    assert here(TASK._replace(public=(absent, 0.5)))


def test_a_run_that_fails_is_told_and_the_others_are_done(smoke, tmp_path, monkeypatch, capsys):
    bad, *good = missing([smoke], ["table3"], tmp_path)[:3]

    def perform_some(job, *given):
        if job == bad:
            raise RuntimeError("no weights")
        return perform(job, *given)

    monkeypatch.setattr(runner, "perform", perform_some)
    refused("1 of 3 runs have failed", work_in, tmp_path, [bad, *good])
    assert f"{bad.name} has failed: RuntimeError: no weights\n" in capsys.readouterr().out
    assert {*rows.read("pfedsim", tmp_path)} == {(job.task.name, job.seed) for job in good}


def first_rounds(task, rounds):
    return json.loads(json.dumps(trial.trial(task, 1, rounds, "cpu")))


@pytest.fixture
def rechecked(smoke, tmp_path, monkeypatch):
    """A recheck of all rows by one round, with the outcomes of the short runs of today's code and of that of a commit.

    It returns how many rows agree, how many differ, and the commits and short runs for which it has asked.
    """

    def recheck_with(outcomes):
        asked = []

        def short_runs(code, paper, rounds, wanted):
            today = code == recheck.ROOT
            asked.append((today, paper, rounds, wanted))
            return outcomes(today, wanted)

        monkeypatch.setattr(recheck, "unpack", lambda commit, folder: asked.append(commit))
        monkeypatch.setattr(recheck, "outcomes", short_runs)
        return *recheck.recheck(["pfedsim"], 1, tmp_path), asked

    monkeypatch.setattr(recheck, "check_clean", lambda: "89ab")
    monkeypatch.setattr(recheck, "study", lambda paper: smoke)
    return recheck_with


def test_a_row_of_older_code_is_rechecked_by_a_short_run_of_both(fedper, rechecked, tmp_path):
    one, two = (first_rounds(fedper, rounds) for rounds in (1, 2))
    assert one == first_rounds(fedper, 1)
    assert one["models"] != two["models"]
    for seed in (1, 2):
        facts = perform(Job("pfedsim", fedper, seed), tmp_path / "store") | {"code": "older", "commit": "4567"}
        path = rows.write("pfedsim", facts, tmp_path)
    written, short = path.read_text(), (fedper.name, 1, "cpu")
    for old in (two, one | {"train_loss": []}, None):
        assert rechecked(lambda today, wanted, old=old: {short: one if today else old})[:2] == (0, 2)
    assert path.read_text() == written
    both = (False, "pfedsim", 1, [short]), (True, "pfedsim", 1, [short])  # one seed speaks for all
    assert rechecked(lambda today, wanted: {short: one}) == (2, 0, ["4567", *both])
    row = rows.read_one("pfedsim", fedper, 2, tmp_path)
    assert row.facts == json.loads(written) | row.facts | {"commit": "4567"}
    assert row.facts["rechecked"] == {"commit": "89ab", "rounds": 1}
    assert not rows.changed(fedper, row)
    assert rechecked(None) == (0, 0, [])


def test_a_row_of_a_gpu_is_rechecked_on_a_gpu(smoke, fedper, rechecked, tmp_path, monkeypatch):
    facts = perform(Job("pfedsim", fedper, 1), tmp_path / "store") | {"code": "older"}
    rows.write("pfedsim", facts, tmp_path)
    rows.write("pfedsim", facts | {"seed": 2, "config": facts["config"] | {"device": "cuda"}}, tmp_path)
    for gpu, seeds in ((True, [1, 2]), (False, [1])):
        monkeypatch.setattr(torch.cuda, "is_available", lambda gpu=gpu: gpu)
        assert [row.seed for _, row in recheck.older(smoke, tmp_path)] == seeds
    refused("torch finds no GPU", trial.trial, fedper, 2, 1, "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    of_gpu_changed = rechecked(lambda today, wanted: {one: today and one[2] == "cuda" for one in wanted})
    assert of_gpu_changed[:2] == (1, 1)
    assert sorted(of_gpu_changed[2][-1][3]) == [(fedper.name, 1, "cpu"), (fedper.name, 2, "cuda")]


def test_a_measurement_of_older_code_is_done_anew(smoke, rechecked, tmp_path):
    *_, task = (cell.tasks[0] for cell in smoke.cells if cell.item == "table1")
    facts = trial.trial(task, 0, 1, "cpu") | {"code": "older", "commit": None}
    name = next(iter(facts["kept"]))
    found = recheck.outcomes(recheck.ROOT, "pfedsim", 1, [(task.name, 0, "cpu")])
    for wrong in (1, 0):
        rows.write("pfedsim", facts | {"kept": facts["kept"] | {name: facts["kept"][name] + wrong}}, tmp_path)
        assert rechecked(lambda today, wanted: found)[:2] == (1 - wrong, wrong)
        assert rows.changed(task, rows.read_one("pfedsim", task, 0, tmp_path)) == bool(wrong)


def test_a_working_tree_that_differs_is_refused_and_the_library_of_a_commit_can_be_unpacked(monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "commit", lambda: "0123+changes")
    refused("the working tree differs from its commit", runner.check_clean)
    monkeypatch.setattr(runner, "commit", lambda: None)
    refused("run it in a git checkout", runner.check_clean)
    recheck.unpack("HEAD", tmp_path)
    assert (tmp_path / "fedlib" / "studies" / "short_runs.py").is_file()
    refused("commit 0000000 of some rows is not in this clone", recheck.unpack, 40 * "0", tmp_path)


def test_the_rows_that_are_committed_can_be_read():
    paths = list(rows.FOLDER.glob("*/*.json"))
    assert len(paths) > 100
    tasks = {paper: study(paper, "paper").tasks for paper in PAPERS}
    for path in paths:
        facts = json.loads(path.read_text(encoding="utf-8"))
        assert path.stat().st_size < 100_000
        assert path.name == f"{facts['task']}-s{facts['seed']}.json"
        assert not facts["commit"].endswith("+changes")
        assert facts["task"] in tasks[path.parent.name], path.name  # a number needs it


EVIDENCE_OF_SLEEPERS = """
import runpy, sys
from fedlib.studies import runner
from processes import note_and_sleep
runner.check_clean, runner._worker = (lambda: "0123"), note_and_sleep
sys.argv = ["fedlib.studies", "run", "--paper", "pfedsim", "--item", "table6", "--jobs", "2"]
runner.missing = lambda *given, **more: [runner.Job("pfedsim", runner.study("pfedsim", "smoke").cells[0].tasks[0], 0)]
runpy.run_module("fedlib.studies", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_a_kill_ends_the_workers_too(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_RUNS", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    process = subprocess.Popen([sys.executable, "-c", EVIDENCE_OF_SLEEPERS])
    wait_for(lambda: len(list(tmp_path.glob("[0-9]*"))) == 2)
    workers = [int(path.name) for path in tmp_path.glob("[0-9]*")]
    process.terminate()
    assert process.wait(60) == 130
    wait_for(lambda: not any(alive(worker) for worker in workers))


def test_a_budget_is_in_hours(monkeypatch):
    deadlines, start = [], time.time()
    monkeypatch.setattr(runner, "check_clean", lambda: "")
    monkeypatch.setattr(runner, "missing", lambda *_, **__: [Job("pfedsim", TASK, 0)])
    monkeypatch.setattr(runner, "in_batches", lambda todo, ray, deadline: deadlines.append(deadline))
    runner.evidence(["pfedsim"], budget=2.0, ray="auto")
    assert deadlines == [pytest.approx(start + 7200, abs=600)]


def test_a_number_that_makes_no_sense_is_refused_before_anything_runs(monkeypatch, capsys):
    for argument, error in {"--jobs=0": "at least 1", "--budget=soon": "use for example 2h"}.items():
        monkeypatch.setattr(sys, "argv", ["fedlib.studies", "run", argument])
        with pytest.raises(SystemExit, match=r"^2$"):
            sys.exit(main())
        assert error in capsys.readouterr().err


def test_what_a_row_keeps_of_a_run_is_computed_with_one_thread_as_well(tmp_path):
    task = TASK._replace(keep=lambda result: {"threads": torch.get_num_threads()})
    torch.set_num_threads(2)
    try:
        assert perform(Job("pfedsim", task, 0), tmp_path / "store")["kept"] == {"threads": 1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_a_measurement_is_not_older_than_the_sizes_of_another_profile(monkeypatch):
    from fedlib.papers.fedsimsup import sizes as module

    def code(profile):
        cells = [cell for cell in study("fedsimsup", profile).cells if cell.item == "supervisor_moves"]
        return {cell.item: cell.tasks[0].code() for cell in cells}

    before = code("paper")
    monkeypatch.setitem(module.PROFILES, "quick", module.PROFILES["quick"]._replace(moves_rounds=99))
    assert code("paper") == before
    monkeypatch.setitem(module.PROFILES, "paper", module.PROFILES["paper"]._replace(moves_rounds=99))
    assert code("paper") != before


@pytest.mark.parametrize("paper", fl.report.PAPERS)
def test_the_code_of_a_run_is_the_same_before_and_after_its_data_are_loaded(paper, monkeypatch):
    federations = tasks_of_studies._FEDERATIONS
    monkeypatch.setattr(tasks_of_studies, "_FEDERATIONS", type(federations)())
    tasks = [task for task in fl.study(paper, "smoke").tasks.values() if isinstance(task, Run)]
    before = [task.code() for task in tasks]
    tasks[0].arguments(0)
    assert tasks_of_studies._FEDERATIONS
    assert [task.code() for task in tasks] == before


@pytest.fixture
def asked(monkeypatch) -> list:
    """The requested runs; all data exist, and a run ends at once with the row of another run."""
    runs, stored = [], fl.study("pfedsim").rows
    [facts] = [row.facts for (name, seed), row in stored.items() if name.startswith("fedper-cifar10") and seed == 1][:1]

    def run_all(todo, jobs, progress):
        runs.extend((task.algorithm.name, seed) for task, seed in todo)
        return {(task.name, seed): Row(task.name, seed, facts) for task, seed in todo}

    monkeypatch.setattr("fedlib.studies.study.here", lambda task: True)
    monkeypatch.setattr(compare, "here", lambda task: True)
    monkeypatch.setattr("fedlib.studies.study._run_all", run_all)
    return runs


def test_a_method_runs_as_the_others_of_the_table():
    small, method = fl.study("fedsimsup", "smoke"), fl.fedprox(mu=0.5)
    both = fl.compare("fedsimsup/table2", method, profile="smoke", like="fedrep", jobs=1, progress=False)
    setting = small.arguments("table2", "fedrep") | {"algorithm": method}
    table = both.study.table("table2").set_index("method")
    assert both.method == "fedprox(mu=0.5)"  # the paper prints a FedProx, although none runs at this size
    alone = fl.run(**setting, progress=False)
    assert table.loc[both.method, "value"] == pytest.approx(alone.score(last=5), abs=1e-4)
    usual = small.run("table2", jobs=1, progress=False).table("table2").set_index("method")
    assert table.drop(index=both.method)["value"].equals(usual["value"])
    page = both._repr_html_()
    assert page.count("<img") == page.count("<table") == 1
    assert both.sentence.startswith("FedProx(mu=0.5) is ")
    assert both.sentence in page
    assert all(text in str(both) for text in (both.table.iloc[-1, -1], both.sentence))


def test_at_the_papers_size_only_the_method_runs_beside_the_committed_rows(asked):
    both, full = fl.compare("pfedsim/table3", fl.fedprox(mu=0.5), seeds=3, progress=False), fl.study("pfedsim")
    assert {name for name, _ in asked} == {"fedprox"}
    assert {seed for _, seed in asked} == {0, 1, 2}
    assert both.method == "fedprox(mu=0.5)"  # the paper prints another FedProx
    table = both.study.table("table3").set_index(["dataset", "setting", "method"])
    before = full.table("table3").set_index(["dataset", "setting", "method"])
    assert table.loc[before.index, "value"].equals(before["value"])
    assert (table.xs("fedprox(mu=0.5)", level="method")["n_seeds"] == 3).all()
    both = fl.compare("pfedmb/table2", fl.fedprox(mu=0.5), progress=False)
    settings = {task.setting["tune_epochs"] for c in both.study.cells if c.method == both.method for task in c.tasks}
    assert settings == {5}  # those of FedAvg: Local-Only is not fine-tuned


def test_a_committed_row_is_used_unless_its_code_has_changed(asked, monkeypatch):
    stored = fl.study("pfedsim").table("table3").query("method == 'fedavg'").set_index("setting")["value"]["dir=0.1"]
    for older in (False, True):
        asked.clear()
        monkeypatch.setattr(rows, "changed", lambda task, row, older=older: older)
        both = fl.compare("pfedsim/table3", "fedavg", seeds=1, progress=False)
        mine = both.study.table("table3").query("method == 'fedavg()' and dataset == 'cifar10'").set_index("setting")
        assert (mine["value"]["dir=0.1"] == stored) is not older
        assert bool(len(asked) == 8) is older  # four data sets, two levels of label skew


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pfedsim", "fedavg"), "table='pfedsim' is unknown"),
        (("pfedsim/table33", "fedavg"), "did you mean 'table3"),
        (("pfedsin/table3", "fedavg"), "did you mean 'pfedsim'"),
        (("pfedsim/table3", "fedavgg"), "did you mean 'fedavg'"),
        (("pfedsim/table3", "fedavg", "smoke", 1, "scaffold"), "like='scaffold' is unknown"),
        (("pfedsim/table4", "fedavg", "smoke"), "table='pfedsim/table4' compares no runs of FedAvg or "),
        (("pfedsim/table3", "fedavg"), "the data of 'pfedsim/table3' are not on this machine: cifar10, "),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, message, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    refused(message, fl.compare, *arguments)


def test_missing_runs_are_said_with_the_data_that_are_not_here_and_unknown_items_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    monkeypatch.setattr(runner, "check_clean", lambda: None)
    runner.evidence(["pfedmb"], ["table2"])
    said = "all runs with data on this machine are done; not here: cifar10, cifar100 (FEDLIB_DATA).\n"
    assert capsys.readouterr().out == said
    refused("item='tabel2' is unknown .did you mean 'table2'", runner.evidence, ["pfedmb"], ["tabel2"])


PAPER = "pfedhr"
FILES = [json.loads(path.read_text()) for path in sorted((FOLDER / PAPER).glob("*.json"))]


@pytest.fixture(scope="module")
def parquet_folder(tmp_path_factory):
    parquet_folder = tmp_path_factory.mktemp("dataset")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "PAPERS", (PAPER,))
        assert dataset.main(parquet_folder) == 0
    return parquet_folder


@pytest.fixture(scope="module")
def frame(parquet_folder) -> pd.DataFrame:
    return pd.read_parquet(parquet_folder / "rows.parquet")


def test_every_file_of_a_row_is_a_row_with_its_accuracies(frame):
    assert sorted(zip(frame["task"], frame["seed"], strict=True)) == sorted((one["task"], one["seed"]) for one in FILES)
    assert list(frame) == list(dataset.COLUMNS)
    assert all(len(items) for items in frame["items"])
    table, checked = frame.set_index(["task", "seed"]), 0
    for one in FILES:
        row = table.loc[(one["task"], one["seed"])]
        if "config" not in one:
            assert pd.isna(row["accuracy"])
            assert json.loads(row["kept"]) == one["kept"]
            continue
        shown = [each for each in one["evaluations"] if each["when"] == one["when"]]
        assert row["curve_round"].tolist() == [each["round"] for each in shown]
        n_test = np.array(one["n_test"])
        assert row["accuracy"] == pytest.approx(100 * sum(shown[-1]["correct"]) / n_test.sum())
        assert row["client_accuracy"] == pytest.approx(100 * np.array(shown[-1]["correct"]) / n_test)
        assert row["curve_accuracy"] == pytest.approx([100 * sum(each["correct"]) / n_test.sum() for each in shown])
        assert json.loads(row["config"]) == one["config"]
        assert (row["algorithm"], row["bytes_up"]) == (one["config"]["algorithm"], one["bytes_up"])
        checked += len(set(n_test.tolist())) > 1
    assert checked


def test_metadata_describe_the_file_and_all_of_its_columns(parquet_folder, frame):
    metadata = json.loads((parquet_folder / "croissant.json").read_text())
    [file], [records] = metadata["distribution"], metadata["recordSet"]
    assert file["sha256"] == hashlib.sha256((parquet_folder / file["contentUrl"]).read_bytes()).hexdigest()
    fields = {field["source"]["extract"]["column"]: field for field in records["field"]}
    assert list(fields) == list(frame)
    lists = {name for name in frame if any(isinstance(value, np.ndarray) for value in frame[name])}
    assert {name for name, field in fields.items() if field.get("repeated")} == lists
    assert f"{len(frame)}, of" in (parquet_folder / "README.md").read_text()


def test_seed_0_of_all_jobs_comes_first(smoke, tmp_path):
    cells = [cell._replace(seeds=2) for cell in smoke.cells if cell.item in ("table3", "table6")]
    seeds = [job.seed for job in missing([smoke.replace(cells=cells)], folder=tmp_path)]
    assert set(seeds) == {0, 1}
    assert seeds == sorted(seeds)
