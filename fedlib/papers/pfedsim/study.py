"""pFedSim (Tan et al., 2023): its tables and figures."""

from fedlib.papers.pfedsim import accuracy, facts, similarities, sizes
from fedlib.report.panels import in_words
from fedlib.report.sentences import against_noise, best_of_all, gaps_in_words, gaps_to_best, points_ahead
from fedlib.studies.item import Answer, items_in

ITEMS, PROFILES = items_in(similarities, accuracy, facts), sizes.PROFILES


def answer(study):
    """The gaps to the best rival in Table 3, and the gain from similarity weights."""

    def gaps_in(item):
        numbers, by = study.numbers(item), ["data", "setting"]
        complete = numbers.groupby(by)["method"].transform("nunique") == numbers["method"].nunique()
        return gaps_to_best(numbers[complete], ["pfedsim"], by, in_words)

    gaps, with_text = gaps_in("table3"), gaps_in("table3_text")
    gain, noise = accuracy.gain_of_weights(study)
    if len(gaps) < 2:
        return None
    by_text = [f"pFedSim is {gaps_in_words(with_text)}"] if with_text else []
    by_text += [
        f"similarity weights are {points_ahead(gain, 'uniform or shuffled ones')}, {against_noise(gain, noise)}"
    ]
    says = f"{best_of_all('pFedSim', gaps)} The protocol is that of the authors' code; by the paper's text, "
    says += f"{'; and '.join(by_text)}."
    numbers = [(f"{gap.points:+.1f}", f"points relative to {gap.rival} on {place}") for place, gap in gaps.items()][:2]
    numbers += [(f"{gain:+.1f}", "points relative to uniform or shuffled weights")]
    return Answer(says, numbers, "table3")
