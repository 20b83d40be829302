"""Every notebook runs from top to bottom in the smoke profile and leaves what it promises."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from fedlib import batch
from fedlib.report import Ledger, reported

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


IN_SMOKE = {  # paper: notebook, claims, parameters (without `output`), figures
    "pfedsim": ("01", 25, 31, "fig1 fig2 fig3 curves learned table6_curve fig5a table8_map"),
    "pfedmb": ("04", 20, 31, "partitions fig3 fig3_rand fig4 fig5"),
    "pfedhr": ("03", 20, 43, "partitions round fig1 fig3_to_6 fig7"),
    "fedsimsup": ("05", 20, 46, "fig5 similarity fig2 fig3 fig4 fig4_clients moves"),
    "fedcs": ("02", 21, 32, "lag fig1 fig2 fig3 fig4 fig5 fig6_7_8 fig9 fig10 toy"),
}


def execute(paper: str, root: Path) -> Path:
    """The output folder of a paper's notebook in the smoke profile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLIB_RUNS", str(root / "runs"))
        chosen = ["--notebook", IN_SMOKE[paper][0], "--output", str(root), "--notebooks", str(NOTEBOOKS)]
        assert batch.main(["--profile", "smoke", "--jobs", "1", *chosen]) == 0  # the other core has other tests
    return root / "smoke" / paper


@pytest.fixture(scope="module")
def pfedsim(tmp_path_factory) -> Path:
    return execute("pfedsim", tmp_path_factory.mktemp("pfedsim"))


@pytest.fixture(scope="module")
def pfedhr(tmp_path_factory) -> Path:
    return execute("pfedhr", tmp_path_factory.mktemp("pfedhr"))


@pytest.fixture(scope="module")
def pfedmb(tmp_path_factory) -> Path:
    return execute("pfedmb", tmp_path_factory.mktemp("pfedmb"))


@pytest.fixture(scope="module")
def fedsimsup(tmp_path_factory) -> Path:
    return execute("fedsimsup", tmp_path_factory.mktemp("fedsimsup"))


@pytest.fixture(scope="module")
def fedcs(tmp_path_factory) -> Path:
    return execute("fedcs", tmp_path_factory.mktemp("fedcs"))


@pytest.fixture(params=IN_SMOKE)
def executed(request) -> Path:
    """Each of them in turn."""
    return request.getfixturevalue(request.param)


def test_every_claim_of_the_paper_is_in_the_ledger(executed):
    paper = executed.name
    ledger = pd.read_csv(executed / "claims.csv", keep_default_na=False)
    assert len(ledger) == IN_SMOKE[paper][1]
    assert ledger["id"].tolist() == Ledger(paper).frame()["id"].tolist()
    judged = ledger[ledger["verdict"] != "not tested at this size"]
    assert (judged["measured"] != "").all()


@pytest.mark.parametrize(
    ("paper", "identities"),
    [("pfedsim", ["ps15"]), ("pfedmb", ["pb18", "pb19"]), ("fedsimsup", ["fs19", "fs20"]), ("fedcs", ["cs18", "cs21"])],
)  # no claim of pfedhr is one: what it says of the rules of its search has a test of its own
def test_claims_that_hold_whatever_the_size_hold(paper, identities, request):
    ledger = pd.read_csv(request.getfixturevalue(paper) / "claims.csv").set_index("id")
    assert set(ledger.loc[identities, "verdict"]) == {"holds"}


def test_tables_stand_beside_the_papers_numbers(pfedsim):
    printed = reported("pfedsim")
    for item, n_rows in {"table2": 20, "table3": 24, "table4": 2, "table6": 3}.items():
        table = pd.read_csv(pfedsim / f"{item}.csv")
        assert len(table) == n_rows, item
        assert table["value"].notna().all(), item
        assert set(table["paper"]) <= set(printed.loc[printed["item"] == item, "mean"]), item


def test_costs_and_domains_are_measured_for_every_method(pfedsim):
    costs = pd.read_csv(pfedsim / "table7.csv").set_index("method")
    assert costs.loc["fedavg", ["value / FedAvg", "bytes_down / FedAvg", "bytes_up / FedAvg"]].tolist() == [1, 1, 1]
    assert costs.loc["pfedsim", ["bytes_down / FedAvg", "bytes_up / FedAvg"]].tolist() == [1, 1]
    assert costs.loc["fedgen", "bytes_down"] - costs.loc["fedavg", "bytes_down"] == 4 * (4212 + 64)
    flags = pd.read_csv(pfedsim / "table1.csv").set_index("method")
    assert flags["uploads more than a model"].to_dict() == dict(fedfomo=True, fedgen=True, fedap=True, pfedsim=False)
    assert not flags["looks at data of others"].any()
    domains = pd.read_csv(pfedsim / "table8.csv")
    assert len(domains) == 12 * 7
    assert domains["value"].notna().all()
    assert (domains["setting"] == "domain=Average").sum() == domains["paper"].notna().sum() == 12


def test_pfedsim_without_personalization_is_fedavg_in_the_tables_too(pfedsim):
    average = pd.read_csv(pfedsim / "table3.csv").query("method == 'fedavg' and setting == 'dir=0.1'")["value"].item()
    all_warm = pd.read_csv(pfedsim / "table6.csv").query("setting == 'dir=0.1;rho=1'")["value"].item()
    assert average == all_warm


def test_every_figure_is_there_as_png_and_svg(executed):
    for name in IN_SMOKE[executed.name][3].split():
        assert (executed / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (executed / f"{name}.svg").read_text()


def test_provenance_says_what_was_run(executed):
    facts = json.loads((executed / "provenance.json").read_text())
    assert facts["parameters"]["profile"] == "smoke"
    assert len(facts["parameters"]) == IN_SMOKE[executed.name][2]
    assert {len(fingerprint) for fingerprint in facts["data"].values()} == {16}
    assert facts["packages"]["torch"]


def test_the_executed_notebook_shows_figures_with_alternative_text(executed):
    paper = executed.name
    number, *_, figures = IN_SMOKE[paper]
    notebook = json.loads((executed / f"{number}_{paper}.ipynb").read_text())
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert all(output["metadata"]["image/png"]["alt"] for output in pictures)
    drawn = [output for output in pictures if "application/vnd.jupyter.widget-view+json" not in output["data"]]
    assert len(drawn) == len(figures.split())
    said = "".join(line for output in outputs if output.get("name") == "stderr" for line in output["text"])
    assert "100%" in said  # the bars of the sweeps, at their end
    assert "Warning" not in said


def test_tables_of_pfedmb_stand_beside_the_papers_numbers(pfedmb):
    printed = reported("pfedmb")
    for item, n_rows in {"table1": 4, "table2": 27, "table3": 3}.items():
        table = pd.read_csv(pfedmb / f"{item}.csv")
        assert len(table) == n_rows, item
        assert table["value"].notna().all(), item
        assert table["paper"].notna().all(), item
        assert set(table["paper"]) <= set(printed.loc[printed["item"] == item, "mean"]), item


def test_what_a_prediction_costs_does_not_depend_on_the_number_of_branches(pfedmb):
    cost = pd.read_csv(pfedmb / "cost.csv").set_index("branches")
    assert set(cost["parameters, merged"]) == {62_006}
    assert cost.loc[2, "parameters"] == 2 * 62_006
    assert cost.loc[2, "floats up"] == 2 * 62_006 + 2 * 5  # and alpha, of two branches in each of five layers


def test_tables_of_fedsimsup_stand_beside_the_papers_numbers(fedsimsup):
    printed = reported("fedsimsup")
    for item, n_rows in {"table1": 10, "table2": 2, "table3": 5}.items():  # no CIFAR-100, two methods by writer
        table = pd.read_csv(fedsimsup / f"{item}.csv")
        assert len(table) == n_rows, item
        assert table["value"].notna().all(), item
        assert table["paper"].notna().all(), item
        assert set(table["paper"]) <= set(printed.loc[printed["item"] == item, "mean"]), item


def test_maps_of_fedsimsup_are_measured_against_chance(fedsimsup):
    energies = pd.read_csv(fedsimsup / "cam_ink.csv").set_index(["laid", "network"])
    assert energies[["energy", "another image's ink", "area"]].apply(lambda column: column.between(0, 1)).all(axis=None)
    assert energies["area"].nunique() == 2  # a uniform map: the same for both networks
    assert (energies.loc["in place", "area"] > energies.loc["stretched", "area"]).all()  # digits are in the middle
    compared = pd.read_csv(fedsimsup / "cam.csv").set_index("class")
    assert compared.loc["all", "images"] == compared["images"].sum() / 2
    assert compared.loc["all", ["correlation", "with another image"]].between(-1, 1).all()


def test_the_same_clients_make_up_both_sides_of_the_table_of_supervisors(fedsimsup):
    paired = pd.read_csv(fedsimsup / "table3_paired.csv").set_index("method")
    kinds = paired.drop(index="fedsimsup-whole")
    assert kinds["clients"].sum() == paired.loc["fedsimsup-whole", "clients"] == 6
    n = kinds["test samples"]
    for side in ("accuracy", "same clients, all L"):
        assert (n * kinds[side]).sum() / n.sum() == pytest.approx(paired.loc["fedsimsup-whole", side])


def test_tables_of_fedcs_stand_beside_the_papers_numbers(fedcs):
    printed = reported("fedcs")
    for item in ("table1", "table2", "table3"):
        table = pd.read_csv(fedcs / f"{item}.csv")
        assert len(table) == 2 * 10, item  # the nine methods of the paper and FedAvg, two metrics
        assert table[["value", "std"]].notna().all().all(), item
        assert table["paper"].notna().sum() == 2 * 9, item
        assert set(table["paper"].dropna()) == set(printed.loc[printed["item"] == item, "mean"]), item


def test_clients_unseen_in_training_are_reported_with_and_without_tuning(fedcs):
    table = pd.read_csv(fedcs / "unseen.csv")
    both = table.groupby(["study", "method"])["when"].apply(set)
    assert {method for (_, method), when in both.items() if when == {"before"}} == {
        "local_only", "fedcs-fc1", "fedcs-fc2", "fedcs-fc3",
    }  # fmt: skip
    assert {"fedavg", "fedbn", "fedrep", "fedalt"} <= {m for (_, m), when in both.items() if "after" in when}
    assert table[["training clients", "unseen clients"]].notna().all().all()


def test_tables_of_pfedhr_stand_beside_the_papers_numbers(pfedhr):
    printed = reported("pfedhr")
    for item, n_rows in {"table2": 14, "table3": 6, "table4": 6}.items():
        table = pd.read_csv(pfedhr / f"{item}.csv")
        assert len(table) == n_rows, item
        assert table["value"].notna().all(), item
        assert (table["paper"].isna() == (table["method"] == "local_only")).all(), item
        assert set(table["paper"].dropna()) <= set(printed.loc[printed["item"] == item, "mean"]), item


def test_what_pfedhr_and_its_baselines_need_is_measured(pfedhr):
    facts = pd.read_csv(pfedhr / "table1.csv").set_index(["method", "public images"])
    assert (facts["uses their labels"] == (facts.index.get_level_values(1) == "labeled")).all()
    assert facts["sends"].to_dict() == {
        ("FedMD", "labeled"): "public logits",
        ("FedGH", "labeled"): "class means",
        ("pFedHR", "labeled"): "own model",
        ("FedKEMF", "unlabeled"): "knowledge network",
        ("FCCL", "unlabeled"): "public logits",
        ("pFedHR", "unlabeled"): "own model",
    }


def test_every_candidate_of_pfedhr_keeps_the_rules(pfedhr):
    ledger = pd.read_csv(pfedhr / "claims.csv").set_index("id")
    kept, candidates = map(int, re.search(r"(\d+) of (\d+) keep R1 to R4", ledger.loc["ph18", "measured"]).groups())
    assert kept == candidates > 0


def test_the_server_of_pfedhr_counts_its_candidates_and_its_time(pfedhr):
    candidates = pd.read_csv(pfedhr / "candidates.csv").set_index("K")
    assert candidates.index.tolist() == list(range(2, 9))
    assert (candidates["M, least"] <= candidates["M, most"]).all()
    tried = pd.read_csv(pfedhr / "tried.csv")
    assert (tried["kept"] <= 2).all()  # `most`
    assert tried[["fewer groups", "without"]].isin([0, 0.5, 1]).all(axis=None)  # two rounds, all clients or none
    share = pd.read_csv(pfedhr / "cost_paper.csv")["share of the server"]
    assert share.is_monotonic_decreasing  # with the public images
    assert share.between(0, 1).all()
