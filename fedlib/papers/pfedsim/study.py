"""pFedSim (Tan et al., 2023): its tables and figures."""

from fedlib.papers.pfedsim import accuracy, facts, similarities
from fedlib.papers.pfedsim.sizes import PROFILES
from fedlib.report.sentences import best_of_all, gaps_to_best, points_ahead
from fedlib.report.style import data_label
from fedlib.studies.item import Answer, items_in

__all__ = ["ITEMS", "PROFILES"]
ITEMS = items_in(similarities, accuracy, facts)


def answer(study):
    """The gaps to the best rival in Table 3, and the gain from weights by similarity."""

    def gaps_in(numbers):
        by = ["data", "dir"]
        return gaps_to_best(numbers, ["pfedsim"], by, lambda data, alpha: f"{data_label(data)}, Dir({alpha})")

    text, code = study.numbers("table3"), study.numbers("table3_code")
    complete = code.groupby("setting")["method"].transform("nunique") == text["method"].nunique()
    gaps, with_code = gaps_in(text), gaps_in(code[complete])
    gain, _ = accuracy.gain_of_weights(study)
    if len(gaps) < 2:
        return None
    says = f"Its weights by similarity are {points_ahead(gain, 'uniform or shuffled weights')}."
    for place, (gap, rival) in with_code.items():
        says += f" With the protocol of the authors' code pFedSim is {points_ahead(gap, rival)} on {place}."
    numbers = [(f"{gap:+.1f}", f"points relative to {rival} on {place}") for place, (gap, rival) in gaps.items()][:2]
    numbers += [(f"{gain:+.1f}", "points relative to uniform or shuffled weights")]
    return Answer(f"{best_of_all('pFedSim', gaps)} {says}", numbers, "table3")
