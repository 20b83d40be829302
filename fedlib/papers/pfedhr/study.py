"""pFedHR (Wang et al., NeurIPS 2023): its tables and figures."""

from fedlib.models import architectures
from fedlib.papers.pfedhr import accuracy, distillation, reassembly
from fedlib.papers.pfedhr.sizes import NOBODY, PRINTED, PROFILES
from fedlib.report.sentences import points_ahead
from fedlib.report.style import data_label
from fedlib.studies.item import Answer, Cell, enough, items_in
from fedlib.studies.tasks import Run


def slow(cell: Cell) -> bool:
    """True if all runs behind a number have several architectures and all images of CIFAR-10."""
    runs = [task for task in cell.tasks if isinstance(task, Run) and task.images == PROFILES["paper"].data["cifar10"]]
    return len(runs) == len(cell.tasks) and all(len(architectures(task.model)) > 1 for task in runs)


ITEMS = items_in(accuracy, distillation, reassembly)
SUBSTITUTES = PROFILES["paper, few images"], slow  # where M1 to M4 train on CIFAR-10, which takes hours


def answer(study):
    """The gain of the clients over Local-Only, and the accuracy of teachers and clients in the last round."""
    rows, final = distillation.by_client(study), distillation.first(study).groupby("teacher")["value"].mean()
    at, teacher, client = distillation.taught_last(rows)
    ours, alone = enough(final, PRINTED, NOBODY)
    gain, pairs = ours - alone, distillation.gain(study, PRINTED, NOBODY).rpartition(" points in ")[2][:-1]
    data = data_label(distillation.first(study)["data"].iloc[0])
    says = (
        f"In {pairs}, {'yes' if gain > 0 else 'no'}: on {data}, pFedHR is {points_ahead(gain, 'Local-Only')}. In round "
        f"{at} the mean accuracy of its teachers on their clients' training images is {teacher:.0f} %, and that of "
        f"these clients on their test images {client:.0f} %."
    )
    numbers = [(f"{gain:+.1f}", "points relative to Local-Only"), (f"{teacher:.0f} %", "accuracy of the teachers")]
    return Answer(says, [*numbers, (f"{client:.0f} %", "accuracy of their clients in that round")], "teachers")
