"""pFedSim (Tan et al., 2023): its tables and figures."""

from fedlib.papers.pfedsim import accuracy, facts, similarities, sizes
from fedlib.report.panels import in_words
from fedlib.report.sentences import against_noise, best_of_all, gaps_in_words, gaps_to_best, in_pairs, points_ahead
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
    says, moved = best_of_all("pFedSim", gaps), study.numbers("other_partitions").query("seed == 0")
    by_partition = moved.pivot_table("value", "partition", "method").reindex(columns=["pfedsim", "fedrep"]).dropna()
    if len(by_partition) > 1:
        leads = in_pairs(by_partition["pfedsim"] - by_partition["fedrep"])
        says += f" Over different partitions of CIFAR-10 at Dir(0.1), pFedSim minus FedRep is {leads}."
    says += " The settings are those of the authors' code."
    says += f" With those of the paper's text, pFedSim is {gaps_in_words(with_text)}." if with_text else ""
    lead = points_ahead(gain, "the better of uniform and shuffled weights")
    says += f" Similarity weights are {lead}, {against_noise(gain, noise)}."
    numbers = [(f"{gap.points:+.1f}", f"points relative to {gap.rival} on {place}") for place, gap in gaps.items()][:2]
    numbers += [(f"{gain:+.1f}", "points relative to the better of uniform and shuffled weights")]
    return Answer(says, numbers, "table3")
