"""FedSimSup (anonymous, submitted to ICLR 2025): its tables and figures."""

from functools import partial

from fedlib.papers.fedsimsup import accuracy, controls, networks, similarities, sizes
from fedlib.report.sentences import best_of_all, gaps_to_best, points_ahead
from fedlib.studies.item import Answer, items_in

ITEMS, PROFILES = items_in(similarities, networks, accuracy, controls), sizes.PROFILES


def answer(study):
    """The smallest and the largest gap to the best rival in Table 1, and the gain from similarity weights (Fig. 3)."""
    gaps = gaps_to_best(study.numbers("table1"), ["fedsimsup"], ("data", "setting"), partial(accuracy.place, study))
    similar, equal = study.means("fig3", "similarity", "True", "False", metric="mean_over_rounds")
    if len(gaps) < 2:
        return None
    ends, gain = (max(gaps, key=gaps.__getitem__), min(gaps, key=gaps.__getitem__)), similar - equal
    says = f"{best_of_all('FedSimSup', {place: gaps[place] for place in ends})} Averaged over the rounds, its "
    says += f"accuracy with similarity weights is {points_ahead(gain, 'that with equal weights')}."
    numbers = [(f"{gaps[place][0]:+.1f}", f"points relative to {gaps[place][1]} on {place}") for place in ends]
    return Answer(
        says, [*numbers, (f"{gain:+.1f}", "points relative to equal weights, averaged over the rounds")], "fig3"
    )
