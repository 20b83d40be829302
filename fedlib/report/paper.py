"""The numbers printed in the papers, and the readings of unclear passages."""

from functools import cache
from pathlib import Path

import pandas as pd

from fedlib.checks import check_choice

PROFILES = ("smoke", "quick", "paper")  # sizes of a study
PAPERS = ("pfedsim", "fedcs", "pfedhr", "pfedmb", "fedsimsup")
FOLDER = Path(__file__).resolve().parent.parent / "papers"
KEY = ["item", "method", "dataset", "setting", "metric"]  # columns that name a number; in an item, the last four do

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


def points_ahead(gap: float, other: str) -> str:
    """Say which of two is ahead.

    Args:
        gap: accuracy of the one that the sentence is about, less that of the other [percentage points].
        other: the other one.

    Returns:
        The words.

    Example:
        >>> from fedlib.report.paper import points_ahead
        >>> points_ahead(1.24, "FedAvg"), points_ahead(-0.3, "FedAvg"), points_ahead(-0.04, "FedAvg")
        ('1.2 points ahead of FedAvg', '0.3 points behind FedAvg', 'level with FedAvg')
    """
    if abs(gap) < 0.05:
        return f"level with {other}"
    return f"{abs(gap):.1f} points {'ahead of' if gap > 0 else 'behind'} {other}"


def nearest_to_print(apart: pd.DataFrame) -> str:
    """Which dots of `marks.shaded_dots` lie nearest to the red bars: `apart` is how far, a row per printed number."""
    if apart.empty:
        return ""
    told = ", ".join(f"{apart[name].mean():.1f} points with {name}" for name in apart)
    return (
        f"Look at which dots lie at the red bars: the mean distance from {len(apart)} printed numbers is {told}. "
        f"It is smallest with {apart.mean().idxmin()}."
    )


def beside_printed(frame: pd.DataFrame, metric: str = "accuracy") -> str:
    r"""Set two measured numbers of each thing beside the printed one, and say which kind is nearer on average.

    Args:
        frame: a row per number and seed: what (its name), kind (in words, of the first row: the usual one), value, and
            paper, the printed number or NaN.
        metric: what these are numbers of, in percent.

    Returns:
        The sentences; "" if nothing has numbers of both kinds.

    Example:
        >>> import pandas as pd
        >>> from fedlib.report.paper import beside_printed
        >>> two = pd.DataFrame({"what": "FedAvg", "kind": ["as usual", "longer"], "value": [40.0, 46.0], "paper": 42.0})
        >>> print(beside_printed(two).replace(". ", ".\n"))
        Accuracy longer (as usual, printed): FedAvg 46.0 (40.0, 42.0).
        The distance from the printed number is 4.0 points longer, 2.0 as usual.
    """
    usual, *others = frame["kind"].unique()
    means = frame.pivot_table(index="what", columns="kind", values="value", sort=False)
    if not others or means.dropna().empty:
        return ""
    [other] = others
    means = means.dropna().assign(paper=frame.groupby("what")["paper"].first())
    told = []
    for what, row in means.iterrows():
        beside = ", ".join(f"{value:.1f}" for value in row[[usual, "paper"]].dropna())
        told.append(f"{what} {row[other]:.1f} ({beside})")
    printed = means.dropna()
    text = f"{metric[0].upper()}{metric[1:]} {other} ({usual}{', printed' if len(printed) else ''}): {'; '.join(told)}."
    if printed.empty:
        return text
    far = printed[[usual, other]].sub(printed["paper"], axis=0).abs().mean()
    words = "The mean distance from the printed numbers" if len(printed) > 1 else "The distance from the printed number"
    return f"{text} {words} is {far[other]:.1f} points {other}, {far[usual]:.1f} {usual}."


def against_seeds(gap: float, std: float) -> str:
    """Say whether a difference is larger than what seeds differ by.

    Args:
        gap: the difference.
        std: the standard deviation over seeds, in its unit; NaN: there is one seed only.

    Returns:
        The words.

    Example:
        >>> from fedlib.report.paper import against_seeds
        >>> against_seeds(-1.2, 0.3), against_seeds(1.2, float("nan"))
        ('more than seeds differ (standard deviation 0.3)', 'from one seed')
    """
    if pd.isna(std):
        return "from one seed"
    side = "within the noise of the seeds" if abs(gap) <= std else "more than seeds differ"
    return f"{side} (standard deviation {std:.1f})"
