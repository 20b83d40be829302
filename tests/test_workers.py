"""Sweeps in several local processes, which are started once for all of these tests."""

from test_own_models import SETTING, Mine, in_a_notebook
from test_run import same
from trees import same_bits

import fedlib as fl
from fedlib.models import MODELS


def test_two_workers_one_worker_and_no_worker_give_the_same_bits(federation, tmp_path):
    cells = fl.grid(algorithm=[fl.fedavg(), fl.pfedsim()], federation=federation, seed=[0, 1], **SETTING)
    one, two = (fl.sweep(cells, jobs=n, store=tmp_path / str(n), progress=False) for n in (1, 2))
    here = [fl.run(**cell, store=tmp_path / "here", progress=False) for cell in cells]
    for a, b, c in zip(one.results, two.results, here, strict=True):
        assert same(a, b)
        assert same(b, c)
    assert two.cells["algorithm"].tolist() == ["fedavg", "fedavg", "pfedsim", "pfedsim"]
    assert two.cells["seed"].tolist() == [0, 1, 0, 1]
    named = fl.sweep([dict(cells[2], algorithm="pfedsim")], jobs=1, store=tmp_path / "1", progress=False)
    assert named.cells.equals(two.cells.iloc[[2]][named.cells.columns].reset_index(drop=True))
    assert len(two.summary()) == 4


def test_workers_write_into_the_store_of_their_sweep(federation, tmp_path, monkeypatch):
    for seed, name in enumerate("ab"):  # the second sweep has the same processes
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        cells = fl.grid(algorithm=["fedavg", "local_only"], federation=federation, **SETTING | {"seed": seed})
        fl.sweep(cells, jobs=2, store="runs", progress=False)
    assert [len([*(tmp_path / name / "runs").glob("*-*/run.safetensors")]) for name in "ab"] == [2, 2]


def test_own_models_reach_the_processes_of_a_sweep(federation, tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "a_name", in_a_notebook("<own>"))
    models = [in_a_notebook("<own>"), Mine, "a_name", ["lenet5_plain", "a_name"]]
    cells = fl.grid(algorithm="local_only", federation=federation, model=models, **SETTING)
    cells += fl.grid(algorithm=fl.fedkemf(knowledge="a_name"), federation=federation, **SETTING)
    swept = fl.sweep(cells, jobs=2, progress=False, store=tmp_path / "workers")
    assert swept.cells["model"].tolist() == ["mine", "Mine", "a_name", "lenet5_plain+a_name", "lenet5"]
    for cell, result in zip(cells, swept.results, strict=True):
        here = fl.run(**cell, progress=False, store=tmp_path / "here")
        assert here.folder.name == result.folder.name
        assert same_bits(here.models, result.models)
