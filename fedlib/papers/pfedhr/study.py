"""pFedHR (Wang et al., NeurIPS 2023): its tables and figures."""

from fedlib.models import architectures
from fedlib.papers.pfedhr import accuracy, distillation, reassembly
from fedlib.papers.pfedhr.sizes import FEW_IMAGES, PROFILES
from fedlib.studies.item import Cell, cells_of, items_in, replaced
from fedlib.studies.tasks import Run

ITEMS = items_in(accuracy, distillation, reassembly)


def cells(profile: str) -> list[Cell]:
    """All numbers at one size; where M1 to M4 train on CIFAR-10, which takes hours, on fewer images."""
    cells = cells_of(ITEMS, PROFILES[profile])
    return replaced(cells, cells_of(ITEMS, FEW_IMAGES), slow) if profile == "paper" else cells


def slow(cell: Cell) -> bool:
    """True if all runs behind a number have several architectures and all images of CIFAR-10."""
    runs = [task for task in cell.tasks if isinstance(task, Run) and task.images == PROFILES["paper"].data["cifar10"]]
    return len(runs) == len(cell.tasks) and all(len(architectures(task.model)) > 1 for task in runs)
