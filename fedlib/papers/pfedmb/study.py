"""pFedMB (Mori et al., IJCNN 2023): its tables and figures."""

from fedlib.papers.pfedmb import accuracy, controls, costs, mixture_weights, sizes
from fedlib.report.sentences import gap_to_best, who_leads
from fedlib.report.style import label
from fedlib.studies.item import Answer, enough, items_in

ITEMS, PROFILES = items_in(mixture_weights, accuracy, controls, costs), sizes.PROFILES


def answer(study):
    """The branches and clusters that the five pairs find (Fig. 3), and the gap to the best rival (Table I)."""
    found = study.numbers("fig3").query("method == 'pfedmb'").groupby("metric")["value"].mean()
    used, rand = enough(found, "branches_used", "rand_indices")
    table1 = study.numbers("table1")
    gap = gap_to_best(table1, "pfedmb")
    if not gap:
        return None
    says = f"{'Yes' if rand > 0.95 else 'Not always'}: 5 pairs of clients with the same classes settle on {used:.2g} "
    says += f"different branches, although no label is exchanged. {who_leads(table1, 'pfedmb', ['data'])}"
    numbers = [(f"{used:.2g}", "branches for five pairs"), (f"{rand:.2f}", "adjusted Rand index of branches and pairs")]
    numbers.append((f"{round(gap.points, 1) + 0.0:+.1f}", f"points relative to {label(gap.rival)}"))
    return Answer(says, numbers, "fig3")
