"""`fl.compare`: a method in the setting of a paper's table."""

import pytest
from refusals import refused

import fedlib as fl
from fedlib.studies import compare, rows, study
from fedlib.studies.rows import Row


@pytest.fixture
def asked(monkeypatch) -> list:
    """The requested runs; all data exist, and a run ends at once with the row of another run."""
    runs, stored = [], fl.study("pfedsim").rows
    [facts] = [row.facts for (name, seed), row in stored.items() if name.startswith("fedper-cifar10") and seed == 1][:1]

    def run_all(todo, jobs, progress):
        runs.extend((task.algorithm.name, seed) for task, seed in todo)
        return {(task.name, seed): Row(task.name, seed, facts) for task, seed in todo}

    monkeypatch.setattr(study, "here", lambda task: True)
    monkeypatch.setattr(compare, "here", lambda task: True)
    monkeypatch.setattr(study, "_run_all", run_all)
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
        (("pfedsim/table4", "fedavg", "smoke"), "like='' has no runs of its own in 'pfedsim/table4'"),
        (("pfedsim/table3", "fedavg"), "the data of 'pfedsim/table3' are not here: cifar10, "),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, message, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    refused(message, fl.compare, *arguments)
