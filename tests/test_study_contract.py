"""Properties of the study of every paper: its cells, its runs, its claims, and its items while nothing is measured."""

from types import SimpleNamespace

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from studies import drawn_and_said, given, official, with_numbers

from fedlib.report.paper import FOLDER, KEY, PAPERS, PROFILES, reported
from fedlib.studies.claim import Numbers
from fedlib.studies.differences import first_protocol
from fedlib.studies.item import Item, Unmeasured, enough
from fedlib.studies.pages import summary
from fedlib.studies.study import study
from fedlib.studies.tasks import Run

IMAGES = {"emnist": "emnist_byclass"}  # the name of a paper's data set in `fl.load`, where it is another one
WITHOUT_RUNS = {("pfedsim", "fig3"), ("pfedsim", "fig5a"), ("pfedhr", "partitions")}  # drawn from data or other items


@pytest.fixture(params=PAPERS)
def paper(request):
    return request.param


def test_every_printed_number_has_a_cell_on_the_papers_data(paper):
    cells = {cell.key: cell for cell in official(study(paper)).cells}
    printed = [tuple(key) for key in reported(paper).query("item != 'text'")[KEY].to_numpy()]
    assert set(printed) <= set(cells)
    for key in printed:
        assert {task.images.name for task in cells[key].tasks} <= {IMAGES.get(key[2], key[2]), ""}, key


@pytest.mark.parametrize("profile", PROFILES)
def test_keys_are_unique_one_name_is_one_run_and_stand_ins_are_declared(paper, profile):
    cells, runs = study(paper, profile).cells, {}
    assert len({cell.key for cell in cells}) == len(cells)
    for dataset, task in [(c.dataset, t) for c in cells for t in c.wanted if isinstance(t, Run)]:
        words = str(task.algorithm), task.images, str(task.partition), task.clients, str(task.setting), task.model
        kept = getattr(task.keep, "func", task.keep)
        assert runs.setdefault(task.name, (*words, task.public, kept)) == (*words, task.public, kept)
        own = profile == "paper" and task.images.name == IMAGES.get(dataset, dataset)
        assert own or task.images.stands_for == dataset


def test_every_claim_has_a_judge_and_cells_for_all_that_it_asks_for(paper):
    one = study(paper)
    assert [claim.id for claim in one.claims] == pd.read_csv(FOLDER / paper / "claims.csv")["id"].tolist()
    declared = {cell.key for cell in one.cells}
    for claim in one.claims:
        numbers = Numbers(paper, 1, one.cells, pd.DataFrame())
        claim.cases(numbers)
        assert numbers.asked, claim.id
        assert set(numbers.asked) <= declared, claim.id


@pytest.mark.parametrize("profile", PROFILES)
def test_every_item_has_a_title_and_draws_and_says_nothing_while_nothing_is_measured(paper, profile):
    one = study(paper, profile).replace(rows={})
    assert {cell.item for cell in one.cells} <= set(one.shown)
    for name, item in one.shown.items():
        assert item.title.endswith((".", ")"))
        assert not item.drawing or len(item.alt) > 10
        assert one.says(name) == ""
        assert profile == "quick" or (paper, name) in WITHOUT_RUNS or drawn_and_said(one, name) == ""


def test_a_sentence_needs_no_figure_and_an_item_with_too_few_numbers_has_neither():
    one, drawn = Item("one", "One."), []

    @one.shows
    def _(study):
        enough(study.rows)
        yield "A sentence."
        drawn.append(True)
        yield plt.figure()

    some = study("pfedsim", "smoke").replace(
        cells=(), shown={"one": one}, rows={("a run", 0): SimpleNamespace(diverged=None)}
    )
    assert (some.says("one"), drawn) == ("A sentence.", [])
    assert some.figure("one").axes == []
    none = some.replace(rows={})
    assert none.says("one") == ""
    assert none.figure("one").axes[0].texts[0].get_text().startswith("Nothing of this")
    assert drawn == [True]
    means = pd.Series({"a": 1.0, "b": 2.0, "c": 3.0})
    assert enough(means, "c", "a").tolist() == [3, 1]
    with pytest.raises(Unmeasured):
        enough(means, "a", "d")


def test_an_item_with_two_protocols_puts_both_beside_the_printed_numbers_and_counts_the_first_once():
    paper = study("pfedsim")
    key = ("fedavg", "cifar10", "dir=0.1", "accuracy")
    values = [("table3", *key, 26.0), ("table3_text", *key, 40.0)]
    one = with_numbers(paper, given(*values))
    wide = one.side_by_side("table3")
    assert wide.columns.tolist() == [
        ("CIFAR-10, Dir(0.1)", name) for name in ("paper", "authors' code", "paper's text")
    ]
    assert wide.loc["FedAvg"].tolist() == ["24.77 ± 4.25", "26.00", "40.00"]
    assert one.numbers("table3", "table3_text")["paper"].tolist() == [24.77, 24.77]
    assert one.says("table3").endswith("authors' code (distance 1.2 points; with the paper's text: 15.2).")
    board = one.scoreboard().query("n_seeds > 0").set_index("protocol")
    assert board["difference"].round(2).to_dict() == {"text": 15.23, "code": 1.23}
    assert first_protocol(board)["value"].tolist() == [26.0]
    row = summary("pFedSim", one.scoreboard(), one.ledger())
    assert (row["printed"], row["measured"]) == (296, 1)
    assert [row[name] for name in ("authors' code", "inferred settings", "paper's text")] == ["1 of 1", "", "0 of 1"]
    [code, text] = one.differences()[["item", "says"]].to_numpy().tolist()
    assert (code[0], text[0]) == ("table3", "table3_text")
    assert '"weights"' in text[1]  # the control
    assert "within 3 points" in code[1]


def test_protocols_are_compared_where_their_runs_differ_and_small_profiles_have_the_first_only():
    paper, place = study("fedsimsup"), ("cifar10", "clients=100;dir=0.1", "accuracy")
    items = ("table1", "table1_inferred")
    numbers = [(item, method, *place, 50.0) for item in items for method in ("fedavg", "perfedavg")]
    says = with_numbers(paper, given(*numbers)).says("table1")
    assert "equally near to the printed number" in says  # FedAvg has one run for both protocols
    assert "near to" not in with_numbers(paper, given(*numbers[::2])).says("table1")
    for profile in ("smoke", "quick"):
        assert not {cell.item for cell in study("fedsimsup", profile).cells} & {"table1_inferred", "table2_inferred"}
