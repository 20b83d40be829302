"""The papers' printed numbers, and measured numbers beside them."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from fedlib.checks import check_choice
from fedlib.report.style import label

PAPERS = ("pfedsim", "fedcs", "pfedhr", "pfedmb", "fedsimsup")
FOLDER = Path(__file__).resolve().parent.parent / "papers"

# Printed name -> name used here. Text after "+" or "-" marks a variant of the algorithm before it.
PRINTED_METHODS = {
    "Local": "local_only",
    "FedAvg": "fedavg",
    "FedAvg+FT": "fedavg+ft",
    "FedAvg+BN": "fedavg+bn",
    "FedProx": "fedprox",
    "FedDyn": "feddyn",
    "FedGen": "fedgen",
    "FedBN": "fedbn",
    "Per-FedAvg": "perfedavg",
    "FedPer": "fedper",
    "FedRep": "fedrep",
    "FedFomo": "fedfomo",
    "f-FedAP": "fedap",
    "pFedSim": "pfedsim",
    "PerFL": "fedalt",
    "FedCS-FC1": "fedcs-fc1",
    "FedCS-FC2": "fedcs-fc2",
    "FedCS-FC3": "fedcs-fc3",
    "FedMD": "fedmd",
    "FedGH": "fedgh",
    "FedKEMF": "fedkemf",
    "FCCL": "fccl",
    "pFedHR": "pfedhr",
    "pFedMe": "pfedme",
    "pFedBayes": "pfedbayes",
    "IFCA": "ifca",
    "FedAMP": "fedamp",
    "pFedMB": "pfedmb",
    "pFedMB-avg": "pfedmb-avg",
    "FedProto": "fedproto",
    "FedPAC": "fedpac",
    "FedSimSup": "fedsimsup",
    "FedSimSup-C": "fedsimsup-c",
    "FedSimSup-L": "fedsimsup-l",
    "FedSimSup-T": "fedsimsup-t",
    "Whole": "fedsimsup-whole",  # mixed supervisors, mean over all clients
    "Original": "fedsimsup",  # linear supervisors only: the row of its Table 1
}
# Rows that are no method: similarity measures and facts about the data; their names stay as printed.
QUANTITIES = ("DataSimilarity", "WDB", "MDB", "LDB", "CS", "partition")


@cache
def _read(paper: str) -> pd.DataFrame:
    frame = pd.read_csv(FOLDER / paper / "reported.csv", keep_default_na=False, na_values={"mean": [""], "std": [""]})
    frame["printed"] = frame["method"]
    frame["method"] = [name if name in QUANTITIES else PRINTED_METHODS[name] for name in frame["printed"]]
    return frame.astype({"mean": float, "std": float})


def reported(paper: str) -> pd.DataFrame:
    """All numbers a paper prints: item ("table3"), method, dataset, setting, metric, mean, std, printed.

    `method` is the name used here ("fedap"), `printed` the paper's ("f-FedAP"); accuracies are in percent.
    """
    check_choice("paper", paper, PAPERS)
    return _read(paper).copy()


def over_seeds(
    frame: pd.DataFrame,
    value: str = "accuracy",
    by: Sequence[str] = ("method", "dataset", "setting"),
) -> pd.DataFrame:
    """Mean and sample standard deviation over the rows of each group (one row per seed): mean, std, n_seeds.

    One seed has no standard deviation: NaN, not 0. Groups keep their order.
    """
    _need_columns(frame, (*by, value))
    groups = frame.groupby(list(by), sort=False, dropna=False)[value]
    return groups.agg(mean="mean", std="std", n_seeds="size").reset_index()


def beside(
    measured: pd.DataFrame,
    paper: str,
    item: str,
    on: Sequence[str] = ("dataset", "setting"),
    *,
    stands_for: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Measured rows beside the paper's: value, std, n_seeds, paper, paper_std, difference (measured - paper).

    `measured` has method, the columns `on`, mean and, if known, std and n_seeds (see `over_seeds`). Rows are
    matched by method and `on`, and by metric if `measured` has it. `stands_for={"digits": "cifar10"}`
    compares a measured data set, or setting, with another one of the paper. Rows without a printed number keep NaN.
    """
    printed = reported(paper)
    check_choice("item", item, printed["item"].unique())
    printed = printed[printed["item"] == item].drop(columns=["item", "printed"])
    keys = ["method", *on, *(["metric"] if "metric" in measured and "metric" not in on else [])]
    _need_columns(measured, (*keys, "mean"))
    rows = measured.copy()
    for column in ("std", "n_seeds"):
        if column not in rows:
            rows[column] = float("nan")
    _need_unique(rows, keys, "measured")
    printed = printed[printed["method"].isin(rows["method"])]
    _need_unique(printed, keys, f"the paper's {item}")

    lookup = rows[keys].copy()
    for column in on if stands_for else ():
        lookup[column] = lookup[column].replace(dict(stands_for))
    there = printed[[*keys, "mean", "std"]].rename(columns={"mean": "paper", "std": "paper_std"})
    matched = lookup.merge(there, on=keys, how="left")
    if matched["paper"].isna().all():
        ours, theirs = (dict(frame[keys].iloc[0]) if len(frame) else {} for frame in (lookup, there))
        raise ValueError(
            f"no measured row has a number in {item} of {paper!r}; measured e.g. {ours}, printed {theirs}."
        )
    table = rows[keys].reset_index(drop=True)
    table[["value", "std", "n_seeds"]] = rows[["mean", "std", "n_seeds"]].to_numpy()
    table[["paper", "paper_std"]] = matched[["paper", "paper_std"]].to_numpy()
    table["difference"] = table["value"] - table["paper"]
    return table.astype({"n_seeds": "Int64"})


def wide(table: pd.DataFrame, columns: Sequence[str] = ("dataset", "setting"), digits: int = 2) -> pd.DataFrame:
    """`beside`'s rows as the paper's layout: a line per method, one column per data set and setting.

    A cell reads "79.10 ± 0.52 (paper 84.30 ± 0.81)"; an empty cell was not measured.
    """
    _need_unique(table, ["method", *columns], "the table")
    cells = table[["method", *columns]].assign(
        cell=[
            f"{format_pm(ours, std, digits)} (paper {format_pm(theirs, paper_std, digits)})"
            for ours, std, theirs, paper_std in table[["value", "std", "paper", "paper_std"]].to_numpy(float)
        ]
    )
    cells["method"] = [name if name in QUANTITIES else label(name) for name in cells["method"]]
    cells["column"] = cells[list(columns)].agg(", ".join, axis=1)
    flat = cells.set_index(["method", "column"])["cell"].unstack()  # noqa: PD010 - text, nothing to aggregate
    return flat.loc[cells["method"].unique(), cells["column"].unique()].fillna("").rename_axis(columns=None)


def format_pm(mean: float, std: float = float("nan"), digits: int = 2) -> str:
    """Mean and standard deviation as text: "79.10 ± 0.52", "79.10" without the latter, "-" without a mean."""
    if pd.isna(mean):
        return "-"
    return f"{mean:.{digits}f}" if pd.isna(std) else f"{mean:.{digits}f} ± {std:.{digits}f}"


def _need_columns(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    missing = [column for column in columns if column not in frame]
    if missing:
        raise ValueError(f"the frame lacks {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}.")


def _need_unique(frame: pd.DataFrame, keys: list[str], what: str) -> None:
    double = frame[frame.duplicated(keys)]
    if len(double):
        raise ValueError(
            f"{what} has several rows for {dict(double[keys].iloc[0])}; add the column that tells them apart."
        )
