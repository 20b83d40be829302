"""FedSimSup (anonymous, submitted to ICLR 2025): its tables and figures."""

from functools import partial

from fedlib.papers.fedsimsup import accuracy, controls, networks, similarities, sizes
from fedlib.report.sentences import best_of_all, between, gaps_to_best, points_ahead
from fedlib.studies.item import Answer, items_in, means

ITEMS, PROFILES = items_in(similarities, networks, accuracy, controls), sizes.PROFILES
TRAINING = {"rounds": 1000}  # as printed; most runs have 100 here (reading A24)


def answer(study):
    """The smallest and the largest gap to the best rival in Table 1, and the gain from similarity weights (Fig. 3)."""
    gaps, with_text = (
        gaps_to_best(study.numbers(item), ["fedsimsup"], ("data", "setting"), partial(accuracy.place, study))
        for item in ("table1", "table1_text")
    )
    similar, equal = study.means("fig3", "similarity", "True", "False", metric="mean_over_rounds")
    last, last_equal = means(accuracy.last_round(study.numbers("fig3")), "similarity", "True", "False")
    if len(gaps) < 2:
        return None
    gain, places = similar - equal, sorted(gaps, key=lambda place: gaps[place].points)
    start = best_of_all("FedSimSup", gaps).replace(":", f"{study.shortened('table1')}:", 1)
    says = f"{start} The settings are the inferred ones."
    says += f" With those of the paper's text, the lead ranges {between(with_text)}." if with_text else ""
    says += f" Averaged over the rounds, similarity weights are {points_ahead(gain, 'equal weights')}; "
    says += f"after the last round they are {points_ahead(last - last_equal, 'them')}."
    ends = [(places[0], gaps[places[0]]), (places[-1], gaps[places[-1]])]
    numbers = [(f"{gap.points:+.1f}", f"points relative to {gap.rival} on {at}") for at, gap in ends]
    numbers.append((f"{gain:+.1f}", "points relative to equal weights, averaged over the rounds"))
    return Answer(says, numbers, "fig3")
