"""What a run returns: tidy tables, the final models, and where they are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlib.algorithm import State
from fedlib.checks import check_choice, check_count
from fedlib.models import Group, Model
from fedlib.stack import Params, PerArchitecture, Tree, row


@dataclass(frozen=True, eq=False)
class RunResult:
    """A finished run.

    accuracy   DataFrame: round, client, n_test, accuracy [%], loss, when ("before"/"after" tuning); with
               `client_metrics` also weighted f1 and auc [%]
    validation the same on the clients' validation parts, n_test being their size; None if the federation has none
    rounds     DataFrame: round, seconds, bytes_down, bytes_up, train_loss
    trace      what the algorithm writes down at every evaluation: {name: [n_evaluations, ...]}; often empty
    models     the models evaluated last, before tuning: a stack [n_clients, ...], or `PerArchitecture`
    groups     who has which architecture: [Group(model, clients)], one group of all clients for most methods
    state      the algorithm's final state; `model` the architecture and initial weights; `folder` in the store
    when       "after" for a method that is evaluated after fine-tuning, else "before"
    """

    config: dict[str, Any]
    accuracy: pd.DataFrame
    rounds: pd.DataFrame
    trace: Params
    models: Tree | PerArchitecture
    state: State
    model: Model
    groups: Sequence[Group]
    folder: Path
    when: str
    validation: pd.DataFrame | None = None

    def weights(self, client: int) -> Tree:
        """The weights with which `client` (an int from 0) was evaluated last, before tuning: [...]."""
        if not isinstance(self.models, PerArchitecture):
            return row(self.models, client)
        for group, stack in zip(self.groups, self.models.stacks, strict=True):
            if client in group.clients:
                return row(stack, int(np.searchsorted(group.clients, client)))
        raise ValueError(f"client={client} is not allowed; there is none with this number.")

    @property
    def diverged(self) -> int | None:
        """The first round whose training loss is not finite; None if there is none."""
        lost = self.rounds.loc[~np.isfinite(self.rounds["train_loss"]), "round"]
        return None if lost.empty else int(lost.iloc[0])

    def curve(self) -> pd.DataFrame:
        """Per evaluation: round, when, accuracy pooled over test samples, mean and std over clients [%]."""
        rows = self.accuracy.assign(hits=self.accuracy["accuracy"] * self.accuracy["n_test"])
        groups = rows.groupby(["round", "when"], sort=True)
        frame = pd.DataFrame(
            {
                "accuracy": groups["hits"].sum() / groups["n_test"].sum(),
                "client_mean": groups["accuracy"].mean(),
                "client_std": groups["accuracy"].std(ddof=0),
            }
        )
        return frame.reset_index()

    def score(
        self,
        metric: str = "accuracy",
        *,
        over: str = "samples",
        part: str = "test",
        last: int = 1,
        until: float = np.inf,
        clients: Sequence[int] | None = None,
        when: str | None = None,
    ) -> float:
        """One number [%]: `metric` of the last evaluation, or the mean of the `last` ones, no later than round `until`.

        Each is a mean over `clients` (default: all): over "samples", a client counting as often as it has samples to
        test (pooled), or over "clients", all alike. `part` may be "validation", `when` "before" or "after" tuning
        (default: as the method is defined).
        """
        check_choice("over", over, ("samples", "clients"))
        check_choice("part", part, ("test", "validation"))
        check_count("last", last)
        rows = self.accuracy if part == "test" else self.validation
        rows = rows[(rows["when"] == (when or self.when)) & (rows["round"] <= until)]
        rows = rows if clients is None else rows[rows["client"].isin(clients)]
        weights = rows["n_test"] if over == "samples" else rows["n_test"] ** 0
        sums = pd.DataFrame({"round": rows["round"], "value": rows[metric] * weights, "weight": weights})
        sums = sums.groupby("round").sum()
        return float((sums["value"] / sums["weight"]).tail(last).mean())

    def best_round(self, over: str = "clients", when: str | None = None) -> int:
        """The evaluation with the best accuracy on the validation parts, the first of equal ones; see `score`."""
        rounds = sorted(self.validation.loc[self.validation["when"] == (when or self.when), "round"].unique())
        return int(max(rounds, key=lambda t: self.score(over=over, part="validation", until=t, when=when)))

    def summary(self) -> pd.Series:
        """The last evaluation (see `curve`) with the cost of all rounds: bytes down and up, seconds.

        It is that before tuning, or after it for a method that is defined so (`when`).
        """
        curve = self.curve()
        last = curve[curve["when"] == self.when].iloc[-1]
        return pd.concat([last, self.rounds[["bytes_down", "bytes_up", "seconds"]].sum()])
