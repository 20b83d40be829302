"""FedCS (Yan and Long, 2024): its tables and figures."""

from fedlib.papers.fedcs import controls, feature_map, groups, scores
from fedlib.papers.fedcs.sizes import PROFILES
from fedlib.report.sentences import best_of_all, gaps_to_best
from fedlib.report.style import data_label
from fedlib.studies.item import Answer, items_in

ITEMS = items_in(scores, feature_map, groups, controls)
CLIENTS = 50  # over which the printed standard deviations are taken
SUBSTITUTES = PROFILES["paper, other digits"], lambda cell: cell.dataset == "digit5"  # until Digit-5 has been run


def answer(study):
    """The gaps of the best variant to the best rival in Tables 1 to 3."""
    numbers = study.numbers("table1", "table2", "table3", metric="weighted_f1")
    ours = [method for method in numbers["method"].unique() if method.startswith("fedcs-")]
    gaps = gaps_to_best(numbers, ours, ["data"], data_label, scores.named)
    if len(gaps) < 3:
        return None
    says = best_of_all("the best variant of FedCS", gaps).replace("points", "points of weighted F1", 1)
    name = "points of weighted F1 relative to {} on {}".format
    columns = [(f"{gap.points:+.1f}", name(gap.rival, place)) for place, gap in gaps.items()]
    return Answer(says, columns, "table2")
