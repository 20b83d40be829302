"""What a run remembers: per round its cost, per evaluation every client's hits; as tensors and as tidy tables."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from fedlib.runs.clock import seconds
from fedlib.training.cohort import Meter

COSTS = ("seconds", "bytes_down", "bytes_up", "train_loss")


@dataclass
class History:
    """Grows by one row per round and per evaluation. `n_test` int64 [n_clients]."""

    n_test: Tensor
    costs: list[tuple[float, ...]] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)  # (rounds done, 1 if after tuning)
    correct: list[Tensor] = field(default_factory=list)  # int64 [n_clients]
    loss: list[Tensor] = field(default_factory=list)  # float64 [n_clients]
    _pending: list[tuple[Any, Any, Meter]] = field(default_factory=list)  # rounds a GPU may still be busy with

    def add_round(self, start: Any, end: Any, meter: Meter) -> None:
        """A round between two marks of the clock. Its numbers are read later, so that a GPU is never waited for."""
        self._pending.append((start, end, meter))

    def add_evaluation(self, done: int, tuned: bool, correct: Tensor, loss: Tensor) -> None:
        """Every client's correct answers and loss after `done` rounds, before or after tuning."""
        self.marks.append((done, int(tuned)))
        self.correct.append(correct.cpu())
        self.loss.append(loss.cpu())

    def _settle(self) -> None:
        for start, end, meter in self._pending:
            loss = torch.stack([phase.mean() for phase in meter.losses]).mean().item()
            self.costs.append((seconds(start, end), meter.bytes_down, meter.bytes_up, loss))
        self._pending.clear()

    def tensors(self) -> dict[str, Tensor]:
        """For a checkpoint; the inverse of `from_tensors`."""
        self._settle()
        empty = torch.empty(0, len(self.n_test))
        return {
            "history/costs": torch.tensor(self.costs, dtype=torch.float64).reshape(-1, len(COSTS)),
            "history/marks": torch.tensor(self.marks, dtype=torch.int64).reshape(-1, 2),
            "history/correct": torch.stack(self.correct) if self.correct else empty.long(),
            "history/loss": torch.stack(self.loss) if self.loss else empty.double(),
        }

    @classmethod
    def from_tensors(cls, n_test: Tensor, tensors: dict[str, Tensor]) -> "History":
        """From a checkpoint's tensors."""
        return cls(
            n_test,
            [tuple(row) for row in tensors["history/costs"].tolist()],
            [tuple(row) for row in tensors["history/marks"].tolist()],
            list(tensors["history/correct"]),
            list(tensors["history/loss"]),
        )

    def accuracy(self) -> pd.DataFrame:
        """One row per evaluation and client: round, client, n_test, accuracy [%], loss, when (before/after tuning)."""
        frames = [
            pd.DataFrame(
                {
                    "round": done,
                    "client": range(len(self.n_test)),
                    "n_test": self.n_test.numpy(),
                    "accuracy": (100 * correct / self.n_test).numpy(),
                    "loss": loss.numpy(),
                    "when": "after" if tuned else "before",
                }
            )
            for (done, tuned), correct, loss in zip(self.marks, self.correct, self.loss, strict=True)
        ]
        return pd.concat(frames, ignore_index=True)

    def rounds(self) -> pd.DataFrame:
        """One row per round: round, seconds, bytes_down, bytes_up (sums over the cohort), train_loss."""
        self._settle()
        frame = pd.DataFrame(self.costs, columns=list(COSTS)).astype({"bytes_down": int, "bytes_up": int})
        frame.insert(0, "round", range(1, len(frame) + 1))
        return frame
