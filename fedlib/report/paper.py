"""The numbers printed in the papers, and the readings of unclear passages."""

import tomllib
from pathlib import Path

import pandas as pd

from fedlib.algorithm import LOOKS
from fedlib.checks import check_choice

PROFILES = ("smoke", "quick", "paper")  # sizes of a study
FOLDER = Path(__file__).resolve().parent.parent / "papers"
_ABOUT = {path.parent.name: tomllib.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*/paper.toml")}
PAPERS = tuple(sorted(_ABOUT, key=lambda paper: _ABOUT[paper]["number"]))  # in the order of their notebooks
TITLES = {paper: _ABOUT[paper]["title"] for paper in PAPERS}
QUESTIONS = {paper: _ABOUT[paper].get("question", "") for paper in PAPERS}  # answered by `Study.answer`
KEY = ["item", "method", "dataset", "setting", "metric"]  # columns that identify a number; in an item, the last four
PROTOCOLS = {"code": "authors' code", "inferred": "inferred settings", "text": "paper's text"}  # sources of a protocol

# Rows that are no method: similarity measures and facts about the data; their names stay as printed.
QUANTITIES = ("DataSimilarity", "WDB", "MDB", "LDB", "CS", "partition")


def printed_names() -> dict[str, str]:
    """The names of methods and of their variants, by printed name."""
    names = {}
    for name, look in LOOKS.items():
        names |= {look.label or name: name} | {text: variant for variant, (text, _) in look.variants.items()}
        names |= look.printed
    return names


def reported(paper: str) -> pd.DataFrame:
    """Read all numbers that a paper prints.

    Args:
        paper: one of `PAPERS`.

    Returns:
        One row per number: item ("table3"), method (the name used here, "fedap"), dataset, setting, metric, mean,
        std, printed (the name that the paper uses, "f-FedAP"). Accuracies are in percent.

    Raises:
        ValueError: the paper is unknown.

    Example:
        >>> table = fl.report.reported("pfedsim").query("item == 'table3' and setting == 'dir=0.1'")
        >>> table.loc[table["dataset"] == "cifar10", ["method", "mean", "std"]].head(2).values.tolist()
        [['local_only', 84.3, 0.81], ['fedavg', 24.77, 4.25]]
    """
    check_choice("paper", paper, PAPERS)
    frame = pd.read_csv(FOLDER / paper / "reported.csv", keep_default_na=False, na_values={"mean": [""], "std": [""]})
    names = printed_names() | {name: name for name in QUANTITIES}
    frame = frame.assign(method=frame["method"].map(names.__getitem__), printed=frame["method"])
    return frame.astype({"mean": float, "std": float})


def readings(paper: str) -> pd.DataFrame:
    """List the passages where a paper is silent or contradicts itself, with our choices.

    Args:
        paper: one of `PAPERS`.

    Returns:
        One row per passage: reading (its name in code and notebooks), question, choice, where (the function, argument
        or setting that implements the choice; "" if none does).

    Raises:
        ValueError: the paper is unknown.

    Example:
        >>> fl.report.readings("pfedsim").columns.tolist()
        ['reading', 'question', 'choice', 'where']
    """
    check_choice("paper", paper, PAPERS)
    return pd.read_csv(FOLDER / paper / "readings.csv", dtype=str, keep_default_na=False)


def format_pm(mean: float, std: float = float("nan"), digits: int = 2) -> str:
    """Mean ± standard deviation as text: "-" without a mean, only the mean without a deviation."""
    if pd.isna(mean):
        return "-"
    return f"{mean:.{digits}f}" if pd.isna(std) else f"{mean:.{digits}f} ± {std:.{digits}f}"
