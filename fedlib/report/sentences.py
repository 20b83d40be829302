"""Five kinds of sentences about measured numbers: who leads, a paired difference, nearer to print, a trend, extremes.

Each is made of a frame of numbers (`Study.numbers`) or of a series, and is "" where nothing can be compared.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from fedlib.report.style import data_label, label


def who_leads(
    numbers: pd.DataFrame, method: str, by: Sequence[str] = ("data", "setting"), name: Callable[..., str] | None = None
) -> str:
    """Compare a method with its best rival, column by column.

    Args:
        numbers: a row per number and seed: method, value, and the columns of `by`.
        method: the method that the sentence is about.
        by: the columns that name a column of the table.
        name: `name(*key)` is a column in words. Default: data set and setting.

    Returns:
        The gap in every column, for up to three; else the number of columns that the method leads, and the range.

    Example:
        >>> import pandas as pd
        >>> from fedlib.report.sentences import who_leads
        >>> frame = pd.DataFrame({"method": ["pfedsim", "fedavg"], "value": [80.0, 81.5], "data": "digits"})
        >>> who_leads(frame, "pfedsim", by=["data"])
        'pFedSim is 1.5 points behind FedAvg, the best other method, from one seed.'
    """
    gaps, texts = {}, []
    for key, column in numbers.groupby([*by], sort=False):
        table = column.groupby("method")["value"].agg(["mean", "std"])
        rivals = table.drop(method, errors="ignore")["mean"]
        if method not in table.index or rivals.empty:
            continue
        rival = str(rivals.idxmax())
        place = name(*key) if name else ", ".join([data_label(str(key[0])), *map(str, key[1:])])
        gaps[place] = table.loc[method, "mean"] - rivals.max()
        noise = table.loc[[method, rival], "std"].max()
        texts.append((points_ahead(gaps[place], label(rival)), against_seeds(gaps[place], noise)))
    if len(gaps) < 2:
        return "".join(f"{label(method)} is {ahead}, the best other method, {noise}." for ahead, noise in texts)
    if len(gaps) <= 3:
        places = "; ".join(f"{place}: {ahead}, {noise}" for place, (ahead, noise) in zip(gaps, texts, strict=True))
        return f"{label(method)} against the best other method: {places}."
    low, high = min(gaps, key=gaps.__getitem__), max(gaps, key=gaps.__getitem__)
    return (
        f"{label(method)} leads in {sum(gap > 0 for gap in gaps.values())} of {len(gaps)} columns; its gap to the best "
        f"other method lies between {gaps[low]:+.1f} ({low}) and {gaps[high]:+.1f} points ({high})."
    )


def paired_difference(
    numbers: pd.DataFrame, one: str, other: str, column: str = "method", name: Callable[[str], str] = label
) -> str:
    """Compare two values of a column on the same data, setting and seed.

    Args:
        numbers: a row per number and seed.
        one: the value that the sentence is about.
        other: the value that it is compared with.
        column: the column of both.
        name: `name(value)` is one in words.

    Returns:
        Mean and standard deviation of the difference over all pairs.

    Example:
        >>> import pandas as pd
        >>> from fedlib.report.sentences import paired_difference
        >>> two = pd.DataFrame({"method": ["fedrep", "fedavg"] * 2, "value": [9.0, 8, 8, 6], "seed": [0, 0, 1, 1]})
        >>> paired_difference(two, "fedrep", "fedavg")
        'FedRep minus FedAvg: +1.5 ± 0.7 points in 2 pairs of runs.'
    """
    keys = [key for key in ("dataset", "setting", "seed", "method") if key in numbers and key != column]
    if column != "method" and "setting" in keys:
        keys.remove("setting")  # which holds the column
    table = numbers.pivot_table(index=keys, columns=column, values="value")
    if not {one, other} <= {*table}:
        return ""
    gaps = (table[one] - table[other]).dropna().to_numpy()
    return f"{name(one)} minus {name(other)}: {in_pairs(gaps)}." if len(gaps) else ""


def in_pairs(gaps: Sequence[float] | np.ndarray, unit: str = "points") -> str:
    """Differences of paired runs: "+1.5 ± 0.7 points in 2 pairs of runs"."""
    if len(gaps) == 1:
        return f"{gaps[0]:+.1f} {unit} in one pair of runs"
    return f"{np.mean(gaps):+.1f} ± {np.std(gaps, ddof=1):.1f} {unit} in {len(gaps)} pairs of runs"


def nearer_to_print(distances: pd.DataFrame) -> str:
    """Name the column with the smallest mean distance from the printed numbers.

    Args:
        distances: absolute differences [points], a row per printed number, a column per reading.

    Returns:
        The sentence.

    Example:
        >>> import pandas as pd
        >>> from fedlib.report.sentences import nearer_to_print
        >>> nearer_to_print(pd.DataFrame({"few images": [6.0, 4.0], "all images": [1.0, 2.0]}))
        'The mean distance from 2 printed numbers is 5.0 points with few images, 1.5 points with all images.'
    """
    if distances.empty:
        return ""
    kinds = ", ".join(f"{distances[name].mean():.1f} points with {name}" for name in distances)
    return f"The mean distance from {len(distances)} printed numbers is {kinds}."


def trend(values: pd.Series, over: str, unit: str = "points", x: Callable[[float], str] = "{:g}".format) -> str:
    """Describe values along a number, from its smallest to its largest, with the maximum.

    Args:
        values: mean values, indexed by the number.
        over: the number in words, such as "branches".
        unit: of the values' change.
        x: `x(number)` is one in words.

    Returns:
        The sentence.

    Example:
        >>> import pandas as pd
        >>> from fedlib.report.sentences import trend
        >>> trend(pd.Series([70.0, 74.0, 73.0], index=[1, 3, 5]), "branches")
        'From 1 to 5 branches the change is +3.0 points; the maximum, 74.0, is at 3.'
    """
    values = values.sort_index()
    if len(values) < 2:
        return ""
    first, last, top = (x(float(str(at))) for at in (values.index[0], values.index[-1], values.idxmax()))
    change = f"From {first} to {last} {over} the change is {values.iloc[-1] - values.iloc[0]:+.1f} {unit}"
    return f"{change}; the maximum, {values.max():.1f}, is at {top}."


def extremes(values: pd.Series, what: str, unit: str = " %", name: Callable[[str], str] = label) -> str:
    """Name the largest and the smallest value.

    Args:
        values: mean values, indexed by name.
        what: the quantity, as the sentence begins.
        unit: of the values.
        name: `name(index)` is an index in words.

    Returns:
        The sentence.

    Example:
        >>> import pandas as pd
        >>> from fedlib.report.sentences import extremes
        >>> extremes(pd.Series({"fedavg": 61.0, "fedrep": 72.5}), "Accuracy")
        'Accuracy is highest with FedRep (72.5 %) and lowest with FedAvg (61.0 %).'
    """
    if len(values) < 2:
        return ""
    high, low = str(values.idxmax()), str(values.idxmin())
    return (
        f"{what} is highest with {name(high)} ({values[high]:.1f}{unit}) and lowest with {name(low)} "
        f"({values[low]:.1f}{unit})."
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
        >>> from fedlib.report.sentences import beside_printed
        >>> two = pd.DataFrame({"what": "FedAvg", "kind": ["as usual", "longer"], "value": [40.0, 46.0], "paper": 42.0})
        >>> print(beside_printed(two).replace(". ", ".\n"))
        Accuracy longer (as usual, printed): FedAvg 46.0 (40.0, 42.0).
        The distance from the printed number is 4.0 points longer, 2.0 as usual.
    """
    if frame.empty:
        return ""
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


def points_ahead(gap: float, other: str) -> str:
    """Say which of two is ahead.

    Args:
        gap: accuracy of the one that the sentence is about, less that of the other [percentage points].
        other: the other one.

    Returns:
        The words.

    Example:
        >>> from fedlib.report.sentences import points_ahead
        >>> points_ahead(1.24, "FedAvg"), points_ahead(-0.3, "FedAvg"), points_ahead(-0.04, "FedAvg")
        ('1.2 points ahead of FedAvg', '0.3 points behind FedAvg', 'level with FedAvg')
    """
    if abs(gap) < 0.05:
        return f"level with {other}"
    return f"{abs(gap):.1f} points {'ahead of' if gap > 0 else 'behind'} {other}"


def against_seeds(gap: float, std: float) -> str:
    """Say whether a difference is larger than what seeds differ by.

    Args:
        gap: the difference.
        std: the standard deviation over seeds, in its unit; NaN: there is one seed only.

    Returns:
        The words.

    Example:
        >>> from fedlib.report.sentences import against_seeds
        >>> against_seeds(-1.2, 0.3), against_seeds(1.2, float("nan"))
        ('more than seeds differ (standard deviation 0.3)', 'from one seed')
    """
    if pd.isna(std):
        return "from one seed"
    side = "within the noise of the seeds" if abs(gap) <= std else "more than seeds differ"
    return f"{side} (standard deviation {std:.1f})"
