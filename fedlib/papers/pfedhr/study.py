"""pFedHR (Wang et al., NeurIPS 2023): its tables and figures."""

from fedlib.models import architectures
from fedlib.papers.pfedhr import accuracy, distillation, reassembly
from fedlib.papers.pfedhr.sizes import NOBODY, PRINTED, PROFILES
from fedlib.report.sentences import against_noise, points_ahead
from fedlib.report.style import data_label
from fedlib.studies.item import Answer, Cell, enough, items_in
from fedlib.studies.tasks import Run


def slow(cell: Cell) -> bool:
    """True if all runs behind a number have several architectures and all images of CIFAR-10."""
    runs = [task for task in cell.tasks if isinstance(task, Run) and task.images == PROFILES["paper"].data["cifar10"]]
    return len(runs) == len(cell.tasks) and all(len(architectures(task.model)) > 1 for task in runs)


ITEMS = items_in(accuracy, distillation, reassembly)
TRAINING = {"local_epochs": 10}  # as printed; 5 here (reading A26)
SUBSTITUTES = PROFILES["paper, few images"], slow  # where M1 to M4 train on CIFAR-10, which takes hours


def answer(study):
    """The gain of the clients over Local-Only, and the accuracy of teachers and clients in the last round."""
    rows, final = distillation.by_client(study), distillation.first(study)
    at, teacher, client = distillation.taught_last(rows)
    table = final.pivot_table(index="seed", columns="teacher", values="value").reindex(columns=[PRINTED, NOBODY])
    gains = enough((table[PRINTED] - table[NOBODY]).dropna())
    gain, noise = gains.mean(), gains.std()  # NaN: one seed
    word = ("Yes" if gain > 0 else "No") if abs(gain) > noise else "Not decided"
    data = data_label(final["data"].iloc[0])
    says = (
        f"{word}{study.shortened('other_teachers')}: on {data}, pFedHR is {points_ahead(gain, 'Local-Only')}, "
        f"{against_noise(gain, noise)}. In round {at} the teachers classify on average {teacher:.0f} % of their "
        f"clients' training images correctly, and these clients {client:.0f} % of their test images."
    )
    numbers = [(f"{gain:+.1f}", "points relative to Local-Only"), (f"{teacher:.0f} %", "accuracy of the teachers")]
    return Answer(says, [*numbers, (f"{client:.0f} %", "accuracy of their clients in that round")], "teachers")
