"""pFedHR (Wang et al., NeurIPS 2023): its tables and figures."""

from fedlib.models import architectures
from fedlib.papers.pfedhr import accuracy, distillation, reassembly
from fedlib.papers.pfedhr.sizes import PROFILES
from fedlib.studies.item import Cell, items_in
from fedlib.studies.tasks import Run


def slow(cell: Cell) -> bool:
    """True if all runs behind a number have several architectures and all images of CIFAR-10."""
    runs = [task for task in cell.tasks if isinstance(task, Run) and task.images == PROFILES["paper"].data["cifar10"]]
    return len(runs) == len(cell.tasks) and all(len(architectures(task.model)) > 1 for task in runs)


ITEMS = items_in(accuracy, distillation, reassembly)
SUBSTITUTES = PROFILES["paper, few images"], slow  # where M1 to M4 train on CIFAR-10, which takes hours
