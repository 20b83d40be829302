"""The result of a run: tidy tables, the final models, and the folder of its files."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from fedlib.algorithm import State
from fedlib.checks import check_choice, check_count, check_kind
from fedlib.models import Assignment, Model
from fedlib.stack import Params, PerArchitecture, Tree, row
from fedlib.training.metrics import METRICS


class Evaluations:
    """All evaluations of a run, and summaries of them; `RunResult` describes the attributes."""

    accuracy: pd.DataFrame
    when: str
    validation: pd.DataFrame | None

    def curve(self) -> pd.DataFrame:
        """Summarise every evaluation over the clients.

        Returns:
            One row per evaluation: round, when, accuracy (pooled over all test images), client_mean, client_std [%].
        """
        rows = self.accuracy.assign(hits=self.accuracy["accuracy"] * self.accuracy["n_test"])
        evaluations = rows.groupby(["round", "when"], sort=True)
        frame = pd.DataFrame(
            {
                "accuracy": evaluations["hits"].sum() / evaluations["n_test"].sum(),
                "client_mean": evaluations["accuracy"].mean(),
                "client_std": evaluations["accuracy"].std(ddof=0),
            }
        )
        return frame.reset_index()

    def score(
        self,
        metric: str = "accuracy",
        *,
        over: Literal["samples", "clients"] = "samples",
        part: Literal["test", "validation"] = "test",
        last: int = 1,
        until: float = np.inf,
        clients: Sequence[int] | None = None,
        when: Literal["before", "after"] | None = None,
    ) -> float:
        """Reduce the evaluations to one number: a mean over the clients and over the last evaluations.

        Args:
            metric: column of `accuracy`: "accuracy", "loss", or with `client_metrics` "f1" or "auc".
            over: weight of a client: "samples", the number of its images; "clients", the same for all.
            part: the images to use, "test" or "validation".
            last: number of evaluations to average, at least 1.
            until: last round to include.
            clients: numbers of the clients. Default: all.
            when: "before" or "after" fine-tuning. Default: the attribute `when`.

        Returns:
            The mean, in the unit of the column [%, for the loss nats]; NaN without an evaluation or without clients.

        Raises:
            ValueError: an argument is not allowed, or the federation has no validation images.
        """
        check_choice("over", over, ("samples", "clients"))
        check_choice("part", part, ("test", "validation"))
        check_count("last", last)
        rows = self.accuracy if part == "test" else self._validated()
        check_choice("metric", metric, {"accuracy", "loss", *METRICS}.intersection(rows))
        check_choice("when", when or self.when, rows["when"].unique())
        check_kind("clients", clients, Collection | None, "a list of client numbers")
        for client in () if clients is None else clients:
            check_count("client", index(client), 0, rows["client"].nunique() - 1)
        rows = rows[(rows["when"] == (when or self.when)) & (rows["round"] <= until)]
        rows = rows if clients is None else rows[rows["client"].isin(clients)]
        weights = rows["n_test"] if over == "samples" else rows["n_test"] ** 0
        sums = pd.DataFrame({"round": rows["round"], "value": rows[metric] * weights, "weight": weights})
        sums = sums.groupby("round").sum()
        return float((sums["value"] / sums["weight"]).tail(last).mean())

    def best_round(
        self, over: Literal["samples", "clients"] = "clients", when: Literal["before", "after"] | None = None
    ) -> int:
        """Find the evaluation with the best accuracy on the validation images.

        Args:
            over: as for `score`.
            when: as for `score`.

        Returns:
            Its round; the first one of several equally good rounds.

        Raises:
            ValueError: an argument is not allowed, or the federation has no validation images.
        """
        rows = self._validated()
        check_choice("when", when or self.when, rows["when"].unique())
        rounds = sorted(rows.loc[rows["when"] == (when or self.when), "round"].unique())
        return int(max(rounds, key=lambda t: self.score(over=over, part="validation", until=t, when=when)))

    def _validated(self) -> pd.DataFrame:
        """`validation`, or `ValueError` without validation images."""
        if self.validation is None:
            raise ValueError("the federation has no validation images; give federate() a validation_fraction.")
        return self.validation


@dataclass(frozen=True, eq=False)
class RunResult(Evaluations):
    """A finished run, as `run` returns it. It cannot be pickled; the same call of `run` reads it again from `folder`.

    Attributes:
        config: everything that identifies the run: the content of `config.json` in `folder`.
        accuracy: one row per evaluation and client: round, client, n_test (test images), accuracy [%], loss, when
            ("before" or "after" fine-tuning); with `client_metrics` also weighted f1 [%] and auc [%].
        rounds: one row per round: round, seconds, bytes_down and bytes_up (sums over the clients), train_loss (0
            without training).
        trace: tensors that the algorithm records at every evaluation, by name: [n_evaluations, ...]; often empty.
        models: the models evaluated last, before fine-tuning: a stack [n_clients, ...], or `PerArchitecture`.
        state: the final state of the algorithm.
        model: the architecture, with its initial weights.
        architectures: the clients of each architecture; most methods have one architecture for all clients.
        folder: folder of the run in the run store.
        when: "after" for a method that is evaluated after fine-tuning, else "before".
        validation: as `accuracy`, on the validation images; None if the federation has none.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.iid(), clients=3)
        >>> result = fl.run("fedavg", federation, rounds=2, lr=0.1, progress=False)
        >>> result.accuracy.columns.tolist()
        ['round', 'client', 'n_test', 'accuracy', 'loss', 'when']
        >>> len(result.accuracy), len(result.curve())  # 2 evaluations of 3 clients
        (6, 2)
        >>> 0 <= result.score() <= 100  # accuracy [%] of the last evaluation
        True
        >>> result.summary().index.tolist()[-3:]
        ['bytes_down', 'bytes_up', 'seconds']
        >>> result.weights(client=0)["classifier.weight"].shape
        torch.Size([10, 84])
    """

    config: Mapping[str, object]
    accuracy: pd.DataFrame
    rounds: pd.DataFrame
    trace: Params
    models: Tree | PerArchitecture
    state: State
    model: Model
    architectures: Sequence[Assignment]
    folder: Path
    when: str
    validation: pd.DataFrame | None = None

    def __repr__(self) -> str:
        run = f"{self.config['algorithm']} on {self.config['data']}, {self.config['clients']} clients"
        return f"RunResult({run}, {len(self.rounds)} rounds: accuracy {self.score():.1f} % over all test images)"

    def weights(self, client: int) -> Tree:
        """Return the weights of a client's model at the last evaluation, before fine-tuning.

        Args:
            client: number of the client, from 0.

        Returns:
            The weights by name, [...], as views.

        Raises:
            ValueError: no client has this number.
        """
        check_count("client", index(client), 0, self.accuracy["client"].nunique() - 1)
        if not isinstance(self.models, PerArchitecture):
            return row(self.models, client)
        groups = zip(self.architectures, self.models.stacks, strict=True)
        [weights] = [row(stack, int(np.searchsorted(ids, client))) for (_, ids), stack in groups if client in ids]
        return weights

    @property
    def diverged(self) -> int | None:
        """First round whose training loss, or whose loss on test images, is not finite; None if there is none."""
        tested = self.accuracy[self.accuracy["n_test"] > 0]
        losses = self.rounds[["round", "train_loss"]], tested[["round", "loss"]]
        lost = np.concatenate([rows["round"][~np.isfinite(rows.iloc[:, 1])] for rows in losses])
        return int(lost.min()) if len(lost) else None

    def summary(self) -> pd.Series:
        """Summarise the last evaluation, before or after fine-tuning as in `when`, and the cost of all rounds.

        Returns:
            The last row of `curve`, and the sums bytes_down, bytes_up and seconds.
        """
        curve = self.curve()
        last = curve[curve["when"] == self.when].iloc[-1]
        return pd.concat([last, self.rounds[["bytes_down", "bytes_up", "seconds"]].sum()])
