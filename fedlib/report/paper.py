"""The numbers printed in the papers, measured numbers beside them, and the readings of unclear passages."""

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
    """Read all numbers that a paper prints.

    Args:
        paper: one of `PAPERS`.

    Returns:
        One row per number: item ("table3"), method (the name used here, "fedap"), dataset, setting, metric, mean,
        std, printed (the name that the paper uses, "f-FedAP"). Accuracies are in percent.

    Raises:
        ValueError: the paper is unknown.

    Example:
        >>> import fedlib as fl
        >>> table = fl.report.reported("pfedsim").query("item == 'table3' and setting == 'dir=0.1'")
        >>> table.loc[table["dataset"] == "cifar10", ["method", "mean", "std"]].head(2).values.tolist()
        [['local_only', 84.3, 0.81], ['fedavg', 24.77, 4.25]]
    """
    check_choice("paper", paper, PAPERS)
    return _read(paper).copy()


def readings(paper: str) -> pd.DataFrame:
    """List where a paper is silent or contradicts itself, and how it is read here.

    Args:
        paper: one of `PAPERS`.

    Returns:
        One row per place: reading (the name by which code and notebooks call it), question, choice (what is done
        here), where (the function, argument or setting that does it; "" if none does).

    Raises:
        ValueError: the paper is unknown.

    Example:
        >>> import fedlib as fl
        >>> fl.report.readings("pfedsim").columns.tolist()
        ['reading', 'question', 'choice', 'where']
    """
    check_choice("paper", paper, PAPERS)
    return pd.read_csv(FOLDER / paper / "readings.csv", dtype=str, keep_default_na=False)


def over_seeds(
    frame: pd.DataFrame,
    value: str = "accuracy",
    by: Sequence[str] = ("method", "dataset", "setting"),
) -> pd.DataFrame:
    """Compute mean and sample standard deviation over seeds.

    Args:
        frame: one row per seed and combination of the columns `by`.
        value: column to average.
        by: columns to group by.

    Returns:
        One row per combination, in the order of the frame: the columns `by`, mean, std (NaN for one seed), n_seeds.

    Raises:
        ValueError: a column is missing.

    Example:
        >>> import pandas as pd
        >>> import fedlib as fl
        >>> runs = pd.DataFrame({"method": ["fedavg", "fedavg"], "seed": [0, 1], "accuracy": [45.0, 47.0]})
        >>> fl.report.over_seeds(runs, by=["method"]).round(2).to_dict("records")
        [{'method': 'fedavg', 'mean': 46.0, 'std': 1.41, 'n_seeds': 2}]
    """
    _need_columns(frame, (*by, value))
    values = frame.groupby(list(by), sort=False, dropna=False)[value]
    return values.agg(mean="mean", std="std", n_seeds="size").reset_index()


def beside(
    measured: pd.DataFrame,
    paper: str,
    item: str,
    on: Sequence[str] = ("dataset", "setting"),
    *,
    stands_for: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Put measured numbers beside those of a paper, matched by method, the columns `on`, and metric if it is a column.

    Args:
        measured: one row per number: method, the columns `on`, mean, and if known std and n_seeds; see `over_seeds`.
        paper: one of `PAPERS`.
        item: table or figure of the paper, such as "table3".
        on: columns that identify a number, besides the method.
        stands_for: measured values of the columns `on` and the values of the paper to compare them with, such as
            {"digits": "cifar10"}.

    Returns:
        One row per measured number: method, `on`, value, std, n_seeds, paper, paper_std (NaN without a printed number)
        and difference (value - paper).

    Raises:
        ValueError: the paper or item is unknown, a column is missing, rows are not unique, or no row has a printed
            number.

    Example:
        >>> import pandas as pd
        >>> import fedlib as fl
        >>> means = pd.DataFrame({"method": ["fedavg"], "dataset": ["digits"], "setting": ["dir=0.1"], "mean": [45.0]})
        >>> table = fl.report.beside(means, "pfedsim", "table3", stands_for={"digits": "cifar10"})
        >>> table[["method", "dataset", "value", "paper", "difference"]].round(2).to_dict("records")
        [{'method': 'fedavg', 'dataset': 'digits', 'value': 45.0, 'paper': 24.77, 'difference': 20.23}]
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
    if stands_for:
        for column in on:
            lookup[column] = lookup[column].replace(dict(stands_for))
    printed = printed[[*keys, "mean", "std"]].rename(columns={"mean": "paper", "std": "paper_std"})
    matched = lookup.merge(printed, on=keys, how="left")
    if matched["paper"].isna().all():
        first = [dict(frame[keys].iloc[0]) if len(frame) else {} for frame in (lookup, printed)]
        raise ValueError(
            f"no measured row has a number in {item} of {paper!r}; measured e.g. {first[0]}, printed {first[1]}."
        )
    table = rows[keys].reset_index(drop=True)
    table[["value", "std", "n_seeds"]] = rows[["mean", "std", "n_seeds"]].to_numpy()
    table[["paper", "paper_std"]] = matched[["paper", "paper_std"]].to_numpy()
    table["difference"] = table["value"] - table["paper"]
    return table.astype({"n_seeds": "Int64"})


def wide(table: pd.DataFrame, columns: Sequence[str] = ("dataset", "setting"), digits: int = 2) -> pd.DataFrame:
    """Lay out the rows of `beside` as a paper does: one line per method, one column per data set and setting.

    Args:
        table: rows of `beside`.
        columns: columns whose values become the column names.
        digits: decimals.

    Returns:
        Text in cells, "79.10 ± 0.52 (paper 84.30 ± 0.81)"; an empty cell was not measured.

    Raises:
        ValueError: rows are not unique.

    Example:
        >>> import pandas as pd
        >>> import fedlib as fl
        >>> means = pd.DataFrame({"method": ["fedavg"], "dataset": ["cifar10"], "setting": ["dir=0.1"], "mean": [45.0]})
        >>> fl.report.wide(fl.report.beside(means, "pfedsim", "table3"))
                        cifar10, dir=0.1
        method
        FedAvg  45.00 (paper 24.77 ± 4.25)
    """
    _need_unique(table, ["method", *columns], "the table")
    cells = table[["method", *columns]].assign(
        cell=[
            f"{format_pm(value, std, digits)} (paper {format_pm(printed, printed_std, digits)})"
            for value, std, printed, printed_std in table[["value", "std", "paper", "paper_std"]].to_numpy(float)
        ]
    )
    cells["method"] = [name if name in QUANTITIES else label(name) for name in cells["method"]]
    cells["column"] = cells[list(columns)].agg(", ".join, axis=1)
    flat = cells.set_index(["method", "column"])["cell"].unstack()  # noqa: PD010 - text, nothing to aggregate
    flat = flat.reindex(index=cells["method"].unique(), columns=cells["column"].unique()).fillna("")
    flat.columns.name = None
    return flat


def format_pm(mean: float, std: float = float("nan"), digits: int = 2) -> str:
    """Write mean and standard deviation as text.

    Args:
        mean: the mean; NaN: "-".
        std: the standard deviation; NaN: it is left out.
        digits: decimals.

    Returns:
        The text.

    Example:
        >>> import fedlib as fl
        >>> fl.report.format_pm(79.1, 0.52), fl.report.format_pm(79.1)
        ('79.10 ± 0.52', '79.10')
    """
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
