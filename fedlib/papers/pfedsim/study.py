"""pFedSim (Tan et al., 2023): its tables and figures."""

from fedlib.papers.pfedsim import accuracy, facts, similarities
from fedlib.papers.pfedsim.sizes import PROFILES
from fedlib.report.sentences import best_of_all, gaps_to_best, points_ahead
from fedlib.report.style import data_label
from fedlib.studies.item import Answer, items_in

__all__ = ["ITEMS", "PROFILES"]
ITEMS = items_in(similarities, accuracy, facts)


def answer(study):
    """The gaps to the best rival in Table 3, and what the similarities add."""
    gaps = gaps_to_best(
        study.numbers("table3"), ["pfedsim"], ("data", "dir"), lambda data, alpha: f"{data_label(data)}, Dir({alpha})"
    )
    gain, _ = accuracy.gain_of_weights(study)
    if len(gaps) < 2:
        return None
    says = f"Its weights by similarity are {points_ahead(gain, 'uniform or shuffled weights')}."
    numbers = [(f"{gap:+.1f}", f"points from {rival} on {place}") for place, (gap, rival) in gaps.items()][:2]
    numbers += [(f"{gain:+.1f}", "points by similarity instead of uniform or shuffled weights")]
    return Answer(f"{best_of_all('pFedSim', gaps)} {says}", numbers, "table3")
