"""Fairness: the spread of a run's accuracy over its clients."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedlib.checks import check_count, check_kind
from fedlib.runs.result import RunResult


def fairness(results: RunResult | Sequence[RunResult]) -> pd.DataFrame:
    """Compare the fairness of runs: the spread of the clients' accuracies [%] in the last evaluation.

    Args:
        results: a finished run, or several.

    Returns:
        One row per run: algorithm, seed, mean, std (over clients, with n - 1), worst_tenth (mean of the tenth of the
        clients with the lowest accuracies, at least one), worst (the lowest accuracy), gini (Gini coefficient: 0 if all
        are equal, close to 1 if all but one are zero). Clients without test images do not count.

    Source:
        Li et al., "Fair Resource Allocation in Federated Learning", ICLR 2020, section 4 (worst tenth, and the
        variance, whose root is `std`).

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(alpha=0.3), clients=5, test_fraction=0.5)
        >>> runs = [fl.run(name, federation, rounds=1, progress=False) for name in ("fedavg", "local_only")]
        >>> fl.fairness(runs).columns.tolist()
        ['algorithm', 'seed', 'mean', 'std', 'worst_tenth', 'worst', 'gini']
    """
    several, lines = [results] if isinstance(results, RunResult) else results, []
    check_kind("results", several, Sequence, "a RunResult or a list of them")
    check_count("number of results", len(several))
    for result in several:
        check_kind("results", result, RunResult, "a RunResult, as fl.run returns it, or a list of them")
        rows = result.accuracy[(result.accuracy["when"] == result.when) & (result.accuracy["n_test"] > 0)]
        a = np.sort(rows.loc[rows["round"] == rows["round"].max(), "accuracy"].to_numpy())
        n = len(a)
        gini = float((2 * np.arange(1, n + 1) - n - 1) @ a / (n * a.sum())) if a.sum() else 0.0
        std, worst_tenth = a.std(ddof=1) if n > 1 else 0.0, a[: math.ceil(n / 10)].mean()
        lines.append((result.config["algorithm"], result.config["seed"], a.mean(), std, worst_tenth, a[0], gini))
    return pd.DataFrame(lines, columns=["algorithm", "seed", "mean", "std", "worst_tenth", "worst", "gini"])
