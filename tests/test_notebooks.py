"""Every notebook runs from top to bottom in the smoke profile and leaves what it promises."""

import json
from pathlib import Path

import pandas as pd
import pytest

from fedlib import batch
from fedlib.report import reported

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


@pytest.fixture(scope="module")
def pfedsim(tmp_path_factory) -> Path:
    """The output folder of notebook 01 in the smoke profile."""
    root = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLIB_RUNS", str(root / "runs"))
        arguments = ["--profile", "smoke", "--notebook", "01", "--output", str(root), "--notebooks", str(NOTEBOOKS)]
        assert batch.main(arguments) == 0
    return root / "smoke" / "pfedsim"


def test_every_claim_of_the_paper_is_in_the_ledger(pfedsim):
    ledger = pd.read_csv(pfedsim / "claims.csv", keep_default_na=False)
    assert ledger["id"].tolist() == [f"ps{i:02d}" for i in range(1, 26)]
    judged = ledger[ledger["verdict"] != "not tested at this size"]
    assert (judged["measured"] != "").all()
    assert ledger.set_index("id").loc["ps15", "verdict"] == "holds"  # an identity, whatever the size


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


def test_every_figure_is_there_as_png_and_svg(pfedsim):
    for name in ("fig1", "fig2", "fig3", "curves", "learned", "table6_curve", "fig5a", "table8_map"):
        assert (pfedsim / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (pfedsim / f"{name}.svg").read_text()


def test_provenance_says_what_was_run(pfedsim):
    facts = json.loads((pfedsim / "provenance.json").read_text())
    assert facts["parameters"]["clients"] == 6
    assert facts["parameters"]["profile"] == "smoke"
    assert len(facts["parameters"]) == 29  # the cell tagged `parameters` without `output`, nothing else
    assert len(facts["data"]["digits"]) == 16
    assert facts["packages"]["torch"]


def test_the_executed_notebook_shows_figures_with_alternative_text(pfedsim):
    notebook = json.loads((pfedsim / "01_pfedsim.ipynb").read_text())
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    described = [output for output in pictures if output["metadata"].get("image/png", {}).get("alt")]
    assert len(described) == 8
    said = "".join(line for output in outputs if output.get("name") == "stderr" for line in output["text"])
    assert "100%" in said  # the bars of the sweeps, at their end
    assert "Warning" not in said
