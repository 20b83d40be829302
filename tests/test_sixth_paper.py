"""A sixth paper is only a folder and a notebook: tested with an invented one."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from processes import python

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
INVENTED = ROOT / "tests" / "invented"
LINES = 150


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """The folder of its results, made in a copy of this repository."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("fedlib", "figures/reference"):
        shutil.copytree(ROOT / name, folder / name)  # with what Python has compiled of it
    shutil.copytree(INVENTED / "papers", folder / "fedlib" / "papers", dirs_exist_ok=True)
    shutil.copytree(INVENTED / "notebooks", folder / "notebooks")
    command = "-m", "fedlib.tools.batch", "--profile", "smoke", "--notebook", "06", "--jobs", "1"
    python(*command, cwd=folder, PYTHONPATH=folder, FEDLIB_RUNS=folder / "runs")
    return folder / "figures"


def test_it_takes_no_more_lines_than_it_should():
    files = [path for path in INVENTED.rglob("*") if path.suffix in (".py", ".csv", ".toml")]
    cells = json.loads(next(INVENTED.rglob("*.ipynb")).read_text())["cells"]
    lines = sum(len(path.read_text().splitlines()) for path in files) + sum(len(cell["source"]) for cell in cells)
    assert lines <= LINES


def test_its_notebook_makes_tables_a_figure_and_verdicts(figures):
    made = figures / "smoke" / "invented"
    names = {path.name for path in made.iterdir()}
    assert {"table1.csv", "table1.svg", "table2.csv", "fig1.svg", "claims.csv"} <= names
    table = pd.read_csv(made / "table1.csv")
    assert table["value"].between(0, 100).all()
    assert table["paper"].tolist() == [70.0, 40.0, 41.0]
    assert "digits for CIFAR-10" in (made / "table1.md").read_text()
    claims = pd.read_csv(made / "claims.csv").set_index("id")
    assert set(claims["full_size"]) == {"not tested"}
    assert set(claims["stand_in"]) == {"digits for cifar10"}
    assert (figures / "smoke" / "index.html").exists()
    assert "Invented" in (figures / "smoke" / "index.html").read_text()
