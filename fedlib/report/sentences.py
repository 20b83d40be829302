"""Five kinds of sentences: leading method, paired difference, distance from printed ones, trend, extremes.

Each is made from a frame of numbers with a row per number and seed (`Study.numbers`), or from a series of means, and is
"" if nothing can be compared. `name(value)` writes a method or a column in words; `unit` is the unit of a difference;
`start` or `what` begins the sentence, and `word` stands before each name.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.report.panels import Columns, Words, in_words
from fedlib.report.style import label


class Gap(NamedTuple):
    """The lead of a method over the best other one."""

    points: float
    rival: str  # name of the other method
    noise: float  # the larger of the two methods' noises, see `noise_of`

    def __str__(self) -> str:
        return points_ahead(self.points, self.rival)

    @property
    def is_lead(self) -> bool:
        """Whether the method is ahead, to a tenth of a point."""
        return round(self.points, 1) > 0

    @property
    def within_noise(self) -> bool:
        """Whether the lead is not larger than its noise."""
        return bool(abs(self.points) <= self.noise)


def who_leads(numbers: pd.DataFrame, method: str, by: Columns = ("data", "setting"), name: Words = in_words) -> str:
    """Compare a method with its best rival in each column of a table (`by`): up to three gaps in words, or their range.

    Example:
        >>> frame = pd.DataFrame({"method": ["pfedsim", "fedavg"], "value": [80.0, 81.5], "data": "digits", "seed": 0})
        >>> who_leads(frame, "pfedsim", by=["data"])
        'pFedSim is 1.5 points behind FedAvg, the best other method measured (digits), with one seed.'
    """
    gaps = gaps_to_best(numbers, [method], by, name)
    if len(gaps) > 3:
        leads = f"{label(method)} leads in {sum(gap.is_lead for gap in gaps.values())} of {len(gaps)} columns"
        return f"{leads}; its difference from the best other method measured ranges {between(gaps)}."
    start, rival = f"{label(method)} is", ", the best other method measured"
    if len(gaps) > 1:
        start, rival = f"Compared with the best other method measured, {start}", ""
    told = (f"{gap}{rival} ({at}), {against_noise(gap.points, gap.noise)}" for at, gap in gaps.items())
    return f"{start} {'; '.join(told)}." if gaps else ""


def gap_to_best(numbers: pd.DataFrame, *methods: str) -> Gap | None:
    """The best of some methods minus the best other one [points]; None without either."""
    means = numbers.groupby("method")["value"].mean()
    rivals = means.drop([*methods], errors="ignore")
    if rivals.empty or len(rivals) == len(means):
        return None
    best, rival = str(means.drop(rivals.index).idxmax()), str(rivals.idxmax())
    return Gap(means[best] - means[rival], rival, noise_of(numbers)[[best, rival]].max(skipna=False))


def noise_of(numbers: pd.DataFrame, by: str = "method") -> pd.Series:
    """The larger of the standard deviations over seeds and in print, by method; NaN with one seed and none in print."""
    groups = numbers.groupby(by)
    stds = [groups["value"].std(), *([groups["paper_std"].max()] if "paper_std" in numbers else [])]
    return pd.concat(stds, axis=1).max(axis=1)


def gaps_to_best(numbers: pd.DataFrame, ours: Sequence[str], by: Columns, name: Words, named=label) -> dict[str, Gap]:
    """`gap_to_best` in each column of a table with a rival, with the printed name of the rival."""
    if numbers.empty:  # the columns `by` may be missing
        return {}
    gaps = {name(*key): gap_to_best(column, *ours) for key, column in numbers.groupby([*by], sort=False)}
    return {place: gap._replace(rival=named(gap.rival)) for place, gap in gaps.items() if gap}


def best_of_all(name: str, gaps: Mapping[str, Gap]) -> str:
    """Say whether a method leads everywhere by more than the noise, from its gap to the best other one by place."""
    leads = sum(gap.is_lead and not gap.within_noise for gap in gaps.values())
    word = {0: "No", len(gaps): "Yes"}.get(leads, f"In {leads} of {len(gaps)} cases")
    if len(gaps) > 3:
        alone = sum(np.isnan(gap.noise) for gap in gaps.values())
        seeds = f", {'all' if alone == len(gaps) else f'{alone} of them'} with one seed" if alone else ""
        return f"{word}: the lead of {name} over the best other method measured ranges {between(gaps)}{seeds}."
    return f"{word}: {name} is {gaps_in_words(gaps)}."


def gaps_in_words(gaps: Mapping[str, Gap]) -> str:
    """Enumerate gaps to the best other method: "0.3 points behind FedPer on CIFAR-10, and 1.0 points ..."."""
    *first, last = (f"{gap} on {place}{', within the noise' * gap.within_noise}" for place, gap in gaps.items())
    return ", ".join([*first, "and " * bool(first) + last])


def between(gaps: Mapping[str, Gap]) -> str:
    """The smallest and the largest gap, with their places."""
    low, high = (end(gaps, key=lambda place: gaps[place].points) for end in (min, max))
    return f"from {gaps[low].points:+.1f} points ({low}) to {gaps[high].points:+.1f} points ({high})"


def with_minus(text: str) -> str:
    """Replace the hyphen before a negative number by a minus sign."""
    return re.sub(r"(?<![\w-])-(?=\d)", "\N{MINUS SIGN}", text)


def paired_difference(numbers: pd.DataFrame, one: str, other: str, column: str = "method", name: Words = label) -> str:
    """Compare two values of a column for the same data, setting and seed: mean and standard deviation of the gap.

    If one of them has more seeds, the difference of the means over all seeds is added.

    Example:
        >>> two = pd.DataFrame({"method": ["fedrep", "fedavg"] * 2, "value": [9.0, 8, 8, 6], "seed": [0, 0, 1, 1]})
        >>> paired_difference(two, "fedrep", "fedavg")
        'FedRep minus FedAvg is +1.5 ± 0.7 points in 2 pairs of runs.'
    """
    keys = [key for key in ("dataset", "setting", "seed", "method") if key in numbers and key != column]
    if column != "method" and "setting" in keys:
        keys.remove("setting")  # it contains the column
    table = numbers.pivot_table(index=keys, columns=column, values="value").reindex(columns=[one, other])
    gaps = (table[one] - table[other]).dropna().to_numpy()
    if not len(gaps):
        return ""
    means = table.groupby([key for key in keys if key != "seed"] or (lambda _: 0)).mean()
    overall = (means[one] - means[other]).mean()
    unpaired = len(gaps) < table.count().max() and f"{overall:+.1f}" != f"{np.mean(gaps):+.1f}"
    text = f" (means over all seeds: {overall:+.1f} points)" if unpaired else ""
    return f"{name(one)} minus {name(other)} is {in_pairs(gaps)}{text}."


def in_pairs(gaps: Sequence[float] | np.ndarray) -> str:
    """Differences of paired runs: "+1.5 ± 0.7 points in 2 pairs of runs"."""
    if len(gaps) == 1:
        return f"{gaps[0]:+.1f} points in one pair of runs"
    return f"{np.mean(gaps):+.1f} ± {np.std(gaps, ddof=1):.1f} points in {len(gaps)} pairs of runs"


def nearer_to_print(distances: pd.DataFrame, word: str = "with ", start: str = "The") -> str:
    """Compare readings by their mean distance from the printed numbers: a row per number, a column per reading.

    Example:
        >>> nearer_to_print(pd.DataFrame({"few images": [6.0, 4.0], "all": [1.0, 2.0]}), start="On MNIST the")
        'On MNIST the results are nearer to the 2 printed numbers with all (mean distance 1.5 points) than
        with few images (5.0).'
    """
    if distances.empty or distances.shape[1] < 2:
        return ""
    many, (best, *others) = len(distances) > 1, distances.mean().sort_values(kind="stable").items()
    told = ", ".join(f"{word}{name} ({distance:.1f})" for name, distance in others)
    verb, end = ("results are", f"{len(distances)} printed numbers") if many else ("result is", "printed number")
    near, link = ("nearest", ", then") if len(others) > 1 else ("nearer", " than")
    if told.endswith(f"({best[1]:.1f})"):
        near, link = "equally near", " and"
    distance = f"{'mean ' * many}distance {best[1]:.1f} points"
    return f"{start} {verb} {near} to the {end} {word}{best[0]} ({distance}){link} {told}."


def trend(values: pd.Series, over: str, what: str = "Accuracy", unit: str = " %") -> str:
    """Describe values by their index, named `over`: the change between its ends, and extremes between them.

    Example:
        >>> trend(pd.Series([70.0, 74.0, 73.0], index=[1, 3, 5]), "branches")
        'Accuracy rises by 3.0 points from 1 to 5 branches; its maximum, 74.0 %, is at 3.'
    """
    values = values.sort_index()
    if len(values) < 2:
        return ""
    first, last = (f"{float(str(at)):g}" for at in (values.index[0], values.index[-1]))
    start, end = (f"{value:.1f}" for value in (values.iloc[0], values.iloc[-1]))
    inside = [
        f"its {name}, {values.iloc[i]:.1f}{unit}, is at {float(str(values.index[i])):g}"
        for name, i in (("maximum", int(values.argmax())), ("minimum", int(values.argmin())))
        if f"{values.iloc[i]:.1f}" not in (start, end)
    ]
    change = round(float(values.iloc[-1] - values.iloc[0]), 1)
    size = f"{abs(change):.1f}{unit.replace(' %', ' points')}"
    moves = f"{'rises' if change > 0 else 'falls'} by {size} from {first} to" if change else f"is equal at {first} and"
    ends = f", from {start} to {end}{unit}"
    return f"{what} {moves} {last} {over}{'; ' * bool(inside)}{' and '.join(inside) or ends}."


def extremes(values: pd.Series, what: str, unit: str = " %", name: Words = label) -> str:
    """Name the largest and the smallest value, or compare two values.

    Example:
        >>> extremes(pd.Series({"fedavg": 61.0, "fedrep": 72.5, "fedper": 70.0}), "Accuracy")
        'Accuracy is highest with FedRep (72.5 %) and lowest with FedAvg (61.0 %).'
    """
    if len(values) < 2:
        return ""
    high, low = name(str(values.idxmax())), name(str(values.idxmin()))
    top, least = (f"{end:z.1f}{unit}" for end in (values.max(), values.min()))
    if len(values) == 2:
        return f"{what} is {top} with {high} and {least} with {low}."
    return f"{what} is highest with {high} ({top}) and lowest with {low} ({least})."


def beside_printed(frame: pd.DataFrame, metric: str = "accuracy") -> str:
    """Compare two kinds of measured numbers with the printed ones, and say which kind is nearer on average."""
    # `frame` has a row per number and seed: what (its name), kind (in words; the first is the usual one), value, and
    # paper (the printed number or NaN); `metric` names the numbers, in percent.
    means = frame.pivot_table(index="what", columns="kind", values="value", sort=False).dropna()
    if means.empty or means.shape[1] < 2:
        return ""
    usual, other = frame["kind"].unique()
    means = means[[other, usual]].assign(printed=frame.groupby("what")["paper"].first())
    told = [
        f"{what}: {', '.join(f'{value:.1f} % {kind}' for kind, value in row.dropna().items())}"
        for what, row in means.iterrows()
    ]
    printed = means.dropna()
    nearer = nearer_to_print(printed[[usual, other]].sub(printed["printed"], axis=0).abs(), "")
    return f"{nearer} {metric[0].upper()}{metric[1:]} of {'; '.join(told)}.".strip()


def points_ahead(gap: float, other: str) -> str:
    """Write a gap [points] to `other` in words."""
    if abs(gap) < 0.05:
        return f"level with {other}"
    return f"{abs(gap):.1f} points {'ahead of' if gap > 0 else 'behind'} {other}"


def against_noise(gap: float, std: float) -> str:
    """Say whether a gap is larger than its noise, a standard deviation (NaN: one seed, and none printed)."""
    if pd.isna(std):
        return "with one seed"
    side = "within" if abs(gap) <= std else "outside"
    return f"{side} the noise (standard deviation {std:.1f})"


def nearest_kind(numbers: pd.DataFrame, key: Columns, word: str = "with ", start: str = "The") -> str:
    """`nearer_to_print` for a frame with a row per number, named by the columns `key`, and reading, the column kind."""
    gaps = numbers.assign(gap=numbers["value"] - numbers["paper"].astype(float))
    table = gaps.pivot_table(index=[*key], columns="kind", values="gap", sort=False).dropna()
    return nearer_to_print(table.abs(), word, start)
