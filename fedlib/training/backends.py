"""The two backends by name: one meaning, the same batches in the same order, the same numbers up to rounding."""

from collections.abc import Callable

from fedlib.training.loop import train_loop
from fedlib.training.phase import Trainer
from fedlib.training.stacked import Stacked

BACKENDS: dict[str, Callable[[], Trainer]] = {"loop": lambda: train_loop, "stacked": Stacked}
