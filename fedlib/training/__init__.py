"""Local training and evaluation, for the `round` of a method, on a GPU or a CPU."""

from fedlib.training.batches import Batch, Images, client_batches, on_device
from fedlib.training.cohort import Cohort
from fedlib.training.evaluation import Evaluation, class_features, client_logits, evaluate, logits, mean_loss
from fedlib.training.local import train
from fedlib.training.losses import cross_entropy

__all__ = ["Batch", "Cohort", "Evaluation", "Images", "class_features", "client_batches"]
__all__ += ["client_logits", "cross_entropy", "evaluate", "logits", "mean_loss", "on_device", "train"]
