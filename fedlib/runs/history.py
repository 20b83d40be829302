"""The history of a run: costs per round and results per evaluation and client, as tensors and as tidy tables."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from fedlib.federation import Federation
from fedlib.stack import Params
from fedlib.training.channel import Channel
from fedlib.training.cohort import Cohort
from fedlib.training.metrics import METRICS

COSTS = ("seconds", "bytes_down", "bytes_up", "train_loss")


@dataclass
class History:
    """Entries per round and per evaluation. `sizes`, int64 [parts, n_clients]: test and validation samples."""

    sizes: Tensor
    costs: list[tuple[float, ...]] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)  # (rounds done, 1 if after tuning)
    correct: list[Tensor] = field(default_factory=list)  # int64 [parts, n_clients]
    loss: list[Tensor] = field(default_factory=list)  # float64 [parts, n_clients]
    metrics: list[Tensor] = field(default_factory=list)  # float64 [parts, n_clients, 2]; empty unless requested
    trace: dict[str, list[Tensor]] = field(default_factory=dict)
    _pending: list[tuple[Any, Any, Channel, list[Tensor]]] = field(default_factory=list)  # of rounds not yet read back

    @classmethod
    def of(cls, federation: Federation) -> "History":
        """History before the first round."""
        return cls(torch.tensor([[len(index) for index in part] for part in federation.parts[1:]]))

    def add_round(self, start: Any, end: Any, cohort: Cohort) -> None:
        """Add a round between two times (see `mark`). Its numbers are read later, without waiting for a GPU."""
        self._pending.append((start, end, cohort.channel, cohort.losses))

    def add_evaluation(self, done: int, tuned: bool, results: Sequence[tuple[Tensor, ...]]) -> None:
        """Add the results of `MixedEvaluation` on each part after `done` rounds, before or after fine-tuning."""
        self.marks.append((done, int(tuned)))
        for column, values in zip((self.correct, self.loss, self.metrics), zip(*results, strict=True), strict=False):
            column.append(torch.stack(values).cpu())

    def add_trace(self, values: Params) -> None:
        """Add the trace of the algorithm at an evaluation."""
        for name, t in values.items():
            self.trace.setdefault(name, []).append(t.detach().to("cpu", copy=True))

    def _settle(self) -> None:
        for start, end, channel, losses in self._pending:
            loss = torch.stack([phase.mean() for phase in losses]).mean().item() if losses else 0.0
            self.costs.append((seconds(start, end), channel.bytes_down, channel.bytes_up, loss))
        self._pending.clear()

    def tensors(self) -> dict[str, Tensor]:
        """Tensors of a checkpoint; the inverse of `load`."""
        self._settle()
        empty = torch.empty(0, *self.sizes.shape)
        return {
            "history/costs": torch.tensor(self.costs, dtype=torch.float64).reshape(-1, len(COSTS)),
            "history/marks": torch.tensor(self.marks, dtype=torch.int64).reshape(-1, 2),
            "history/correct": torch.stack(self.correct) if self.correct else empty.long(),
            "history/loss": torch.stack(self.loss) if self.loss else empty.double(),
            "history/metrics": torch.stack(self.metrics) if self.metrics else empty[..., None],
        } | {f"trace/{name}": t for name, t in self.traced().items()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Continue from the tensors of a checkpoint."""
        self.costs = [tuple(row) for row in tensors["history/costs"].tolist()]
        self.marks = [tuple(row) for row in tensors["history/marks"].tolist()]
        self.correct, self.loss = list(tensors["history/correct"]), list(tensors["history/loss"])
        self.metrics = list(tensors.get("history/metrics", ()))  # older files lack it
        traced = {name: t for name, t in tensors.items() if name.startswith("trace/")}
        self.trace = {name.removeprefix("trace/"): list(t) for name, t in traced.items()}

    def accuracy(self) -> pd.DataFrame:
        """One row per evaluation and client, as in `RunResult.accuracy`."""
        return self._part(0)

    def validation(self) -> pd.DataFrame:
        """`accuracy` on the validation samples."""
        return self._part(1)

    def traced(self) -> Params:
        """Traces of all evaluations by name: [n_evaluations, ...]."""
        return {name: torch.stack(values) for name, values in self.trace.items()}

    def _part(self, part: int) -> pd.DataFrame:
        n = self.sizes[part]
        frames = [
            pd.DataFrame(
                {
                    "round": done,
                    "client": range(len(n)),
                    "n_test": n.numpy(),
                    "accuracy": (100 * correct[part] / n).numpy(),
                    "loss": loss[part].numpy(),
                    "when": "after" if tuned else "before",
                }
            )
            for (done, tuned), correct, loss in zip(self.marks, self.correct, self.loss, strict=True)
        ]
        for frame, values in zip(frames, self.metrics, strict=False):
            frame[list(METRICS)] = 100 * values[part].numpy()
        return pd.concat(frames, ignore_index=True)

    def rounds(self) -> pd.DataFrame:
        """One row per round: round, seconds, bytes_down, bytes_up (of the cohort), train_loss (0: no training)."""
        self._settle()
        frame = pd.DataFrame(self.costs, columns=list(COSTS)).astype({"bytes_down": int, "bytes_up": int})
        frame.insert(0, "round", range(1, len(frame) + 1))
        return frame


def mark(device: torch.device) -> Any:
    """Current time of the device's clock, without waiting for the device."""
    if device.type == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds(start: Any, end: Any) -> float:
    """Seconds between two marks; waits for the second one."""
    if isinstance(start, float):
        return end - start
    end.synchronize()
    return start.elapsed_time(end) / 1000
