"""pFedMB: values that the rows of its runs keep, and numbers that are read from them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

import fedlib as fl
from fedlib.methods.pfedmb import SHARED
from fedlib.studies.rows import Row
from fedlib.studies.tasks import Kept, Task

PAIR = np.repeat(range(5), 2)  # the pair of each of the ten clients of section V-B


def evaluated(config: Mapping[str, object]) -> Literal["before", "after"]:
    """The evaluation of a run that counts: "after" fine-tuning, if it has any."""
    return "after" if config["tune_epochs"] else "before"


def scores(result: fl.RunResult) -> Kept:
    """Accuracies [%], mean over clients, at the round with the highest validation accuracy."""
    when = evaluated(result.config)
    best = result.best_round(over="clients", when=when)
    return {
        "accuracy": result.score(over="clients", until=best, when=when),
        "before": result.score(over="clients", until=best, when="before"),
        "validation": result.score(over="clients", until=best, part="validation", when=when),
        "round": best,
    }


def branch_use(result: fl.RunResult) -> Kept:
    """`scores`, and for each layer at the end: the largest alpha, and the number of clients that share a branch."""
    if result.diverged:
        return scores(result)
    alpha = {name: t[-1].double().numpy() for name, t in result.trace.items()}  # [clients, B] of each layer
    largest = [float(a.max(1).mean()) for a in alpha.values()]
    shared = [float((a.sum(0) ** 2 / (a**2).sum(0) * a.mean(0)).sum()) for a in alpha.values()]
    use = {"largest_alpha": float(np.mean(largest)), "clients_per_branch": float(np.mean(shared))}
    return dict(scores(result)) | use | {"layers": list(alpha), "largest_alphas": largest, "clients_by_layer": shared}


def rand_indices(alpha: np.ndarray) -> list[float]:
    """Adjusted Rand index, by round, of the largest alpha [rounds, clients, B] with the pairs."""
    from sklearn.metrics import adjusted_rand_score  # imported late: it takes a second

    return [round(float(adjusted_rand_score(PAIR, a.argmax(1))), 4) for a in alpha]


def choices(result: fl.RunResult) -> Kept:
    """`scores`, for Fig. 3 alpha after up to 40 rounds; by round branches used, L1 distances, adjusted Rand index."""
    if result.diverged:
        return scores(result)
    alpha = result.trace[SHARED].double().numpy()  # [rounds, clients, B]
    of_pair = alpha.reshape(len(alpha), 5, 2, -1).mean(2)  # [rounds, pairs, B]
    apart = np.abs(alpha[:, :, None] - alpha[:, None]).sum(-1)  # [rounds, clients, clients]
    same = PAIR[:, None] == PAIR
    every = np.arange(1, len(alpha) + 1)
    shown = every if len(alpha) <= 40 else np.unique(np.geomspace(1, len(alpha), 40).round().astype(int))
    return dict(scores(result)) | {
        "rand_indices": rand_indices(alpha),
        "branches_used": [len(set(a.argmax(1).tolist())) for a in of_pair],
        "within": apart[:, same & ~np.eye(10, dtype=bool)].mean(1).round(5).tolist(),
        "between": apart[:, ~same].mean(1).round(5).tolist(),
        "alpha_rounds": shown.tolist(),
        "alpha": alpha[shown - 1].round(3).tolist(),
    }


def choices_by_layer(result: fl.RunResult) -> Kept:
    """`scores`, and with one alpha for each layer: alpha at the end, and the adjusted Rand index by round."""
    if result.diverged:
        return scores(result)
    alpha = {name: t.double().numpy() for name, t in result.trace.items()}  # [rounds, clients, B] of each layer
    last = {name: a[-1].round(3).tolist() for name, a in alpha.items()}
    rand = {name: rand_indices(a) for name, a in alpha.items()}
    return dict(scores(result)) | {"layers": list(alpha), "rand_indices": rand, "alpha": last}


def best(rows: Sequence[Row]) -> Row:
    """The run with the highest validation accuracy."""
    return max(rows, key=lambda row: row.kept["validation"])


def best_rows(study, item: str, method: str) -> list[Row]:
    """For each seed, the best row among the runs behind the first number of a method in an item."""
    return best_of(study, next((cell.tasks for cell in study.cells if (cell.item, cell.method) == (item, method)), ()))


def best_of(study, tasks: Sequence[Task]) -> list[Row]:
    """For each seed that all of some runs have, their best row."""
    runs = [{row.seed: row for row in study.rows_of(task)} for task in tasks] or [{}]
    return [best([rows[seed] for rows in runs]) for seed in sorted(set.intersection(*map(set, runs)))]


def chosen(name: str, *rows: Row) -> float:
    """A value that the best run keeps."""
    return float(best(rows).kept.get(name, np.nan))


accuracy = partial(chosen, "accuracy")


def reported_curve(row: Row) -> pd.Series:
    """Accuracy [%] by round, mean over clients."""
    return row.curve().query(f"when == '{evaluated(row.facts['config'])}'").set_index("round")["client_mean"]


def rounds_to(n: int, *rows: Row) -> float:
    """Rounds until the best of `n` runs has 99 % of the final accuracy of the best other run; never: all plus one."""
    ours, theirs = (_smooth(best(some)) for some in (rows[:n], rows[n:]))
    there = ours.index[ours >= 0.99 * theirs.iloc[-1]]
    return float(there[0] if len(there) else ours.index[-1] + 1)


def _smooth(row: Row) -> pd.Series:
    """Accuracy by round, as a mean over the last five rounds."""
    config = row.facts["config"]
    step = int(config.get("tune_every", 1)) if evaluated(config) == "after" else 1
    return reported_curve(row).rolling(max(1, 5 // step), min_periods=1).mean()
