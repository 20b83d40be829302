"""pFedMB (Mori et al., IJCNN 2023): the rules that judge its claims."""

from collections.abc import Iterable, Iterator, Mapping

from fedlib.papers.pfedmb.mixture_weights import LAYERS
from fedlib.papers.pfedmb.sizes import COLUMNS, COMPLEX, COSTED, FIG5, METHODS, PAIRS, PROFILES, RIVALS, SIMPLE
from fedlib.studies.claim import Claim, Numbers, lead, leads, numbers_of
from fedlib.studies.number import UNMEASURED, Number, equal, fact, largest, mean, point, smallest, strictly
from fedlib.studies.verdict import Case

SINGLE = ("fedavg", "fedprox")
OTHERS = [method for method in RIVALS if method not in SINGLE]
on_pairs = numbers_of("table1", "{}", "cifar10", PAIRS)
fig3_of = numbers_of("fig3", "{}", "cifar10", PAIRS, "{}")
with_branches = numbers_of("five_pairs", "pfedmb", "cifar10", f"{PAIRS};branches={{}}")
picked = numbers_of("table3", "pfedmb", "{}", "{}", "num_branches")


def rounds(n: Numbers, method: str, aim: str) -> Number:
    """Rounds of a method to the accuracy of another one; their noise is at least the distance of two evaluations."""
    number = n("fig4", method, "cifar10", f"{PAIRS};aim={aim}", "rounds")
    return number._replace(noise=max(number.noise, PROFILES["paper"].pair_tune_every))


def table2_of(n: Numbers, at: tuple[str, str], methods: Iterable[str]) -> list[Number]:
    """Accuracies of one column."""
    return [n("table2", method, *at) for method in methods]


def mean_rank(n: Numbers) -> list[Case]:
    """pb10: the mean rank of pFedMB is lower than that of every other method."""
    columns: list[dict[str, Number]] = [dict(zip(METHODS, table2_of(n, at, METHODS), strict=True)) for at in COLUMNS]
    if not any(all(number.known for number in column.values()) for column in columns):
        return [Case("mean rank", UNMEASURED)]
    ranks = {m: mean(_rank(m, column) for column in columns) for m in METHODS}
    return [Case("mean rank", smallest(ranks[m] for m in RIVALS) - ranks["pfedmb"])]


def _rank(method: str, column: Mapping[str, Number]) -> Number:
    """Rank of a method, 1 for the best; its noise is the number of methods whose gap is within the noise."""
    if not all(number.known for number in column.values()):
        return Number(1.0, float(len(column)))
    others = [column[m] - column[method] for m in column if m != method]
    close = sum(gap.noise > 0 and abs(gap.value) <= gap.noise for gap in others)
    return point(1.0 + sum(gap.value > 0 for gap in others), float(close), column[method].stand_in)


def over_fedavg(n: Numbers, method: str, sign: int = 1, margin: float = 0.0) -> list[Case]:
    """A method is above FedAvg with two classes per client, or, with `sign=-1`, below it in all other columns."""
    effects = {at: lead(n, "table2", method, ["fedavg"], at) for at in (SIMPLE if sign > 0 else COMPLEX)}
    return [Case(f"{method}, {' '.join(at)}", effect * sign + margin) for at, effect in effects.items()]


def peak(n: Numbers) -> list[Case]:
    """pb17: the best number of branches lies between 6 and 14; it beats 2 and 20 branches."""
    sizes = PROFILES["paper"]
    tried = sorted({*sizes.branches, *sizes.many_branches})
    at = {b: n("fig5", "pfedmb", FIG5[0], f"{FIG5[1]};branches={b}") for b in tried}
    inside = [at[b] for b in tried if 6 <= b <= 14]
    outside = {"best at 6-14": [at[b] for b in tried if not 6 <= b <= 14], "above 2": [at[2]], "above 20": [at[20]]}
    return [Case(where, largest(inside) - largest(others)) for where, others in outside.items()]


def cost(n: Numbers, b: int, name: str) -> Number:
    """A cost of pFedMB with b branches, or of FedAvg (b = 0)."""
    return n("cost", "pfedmb" if b else "fedavg", "cifar10", f"branches={b}" if b else "", name)


def same_inference(n: Numbers) -> Iterator[Case]:
    """pb18: a merged network has the parameters and calls of the plain one, and the mixed outputs of all branches."""
    for b in COSTED:
        names = "merged", "plain", "calls", "calls_plain", "error"
        merged, plain, calls, usual, error = (cost(n, b, name) for name in names)
        yield Case(f"B={b}: 62,006 parameters", fact(merged.value == plain.value == 62_006, merged, plain))
        yield Case(f"B={b}: a call per layer", fact(calls.value == usual.value == len(LAYERS), calls, usual))
        yield Case(f"B={b}: eq. 2", fact(error.value <= 1e-4, error))


CLAIMS = [
    Claim("pb01", lambda n: [Case("0.5 points above FedAvg", on_pairs(n, "pfedmb") - on_pairs(n, "fedavg") - 0.5)]),
    Claim("pb02", lambda n: [Case("above sample-weighted", on_pairs(n, "pfedmb") - on_pairs(n, "pfedmb-avg"))]),
    Claim("pb03", lambda n: [Case("distance within pairs at most 0.2", 0.2 - fig3_of(n, "pfedmb", "within")),
                             Case("at most a quarter of that between pairs", fig3_of(n, "pfedmb", "between") * 0.25
                                  - fig3_of(n, "pfedmb", "within"))]),
    Claim("pb04", lambda n: [Case("in two thirds of the seeds", fig3_of(n, "pfedmb", "all_apart") - 0.66)]),
    Claim("pb05", lambda n: [Case("pairs share a branch at the end", 4.5 - fig3_of(n, "pfedmb-avg", "branches_used")),
                             Case("fewer branches during training", strictly(
                                  fig3_of(n, "pfedmb", "mean_branches") - fig3_of(n, "pfedmb-avg", "mean_branches")))]),
    Claim("pb06", lambda n: [Case("fewer rounds", rounds(n, "pfedmb-avg", "pfedmb-avg")
                                  - rounds(n, "pfedmb", "pfedmb-avg"))]),
    Claim("pb07", lambda n: [Case("fewer rounds", rounds(n, "fedavg", "fedavg") - rounds(n, "pfedmb", "fedavg"))]),
    Claim("pb08", lambda n: leads(n, "table2", "pfedmb", RIVALS, COLUMNS), "most", 4),
    Claim("pb09", lambda n: leads(n, "table2", "pfedmb", RIVALS, COLUMNS, least=-1)),
    Claim("pb10", mean_rank),
    Claim("pb11", lambda n: [Case(" ".join(at), largest(table2_of(n, at, SINGLE))
                                  - largest(table2_of(n, at, OTHERS)) + 0.5) for at in SIMPLE]),
    Claim("pb12", lambda n: over_fedavg(n, "fedamp", -1) + over_fedavg(n, "fedfomo", -1)),
    Claim("pb13", lambda n: over_fedavg(n, "fedamp") + over_fedavg(n, "fedfomo", margin=1.0)),
    Claim("pb14", lambda n: over_fedavg(n, "ifca", -1)),
    Claim("pb15", lambda n: [Case(" ".join(at), 10.5 - picked(n, *at)) for at in COLUMNS]),
    Claim("pb16", lambda n: [Case("largest on CIFAR-100 below smallest on CIFAR-10",
                                  smallest(picked(n, *at) for at in COLUMNS if at[0] == "cifar10")
                                  - largest(picked(n, *at) for at in COLUMNS if at[0] == "cifar100") - 0.5)]),
    Claim("pb17", peak),
    Claim("pb18", same_inference, "identity", figure="cost"),
    Claim("pb19", lambda n: [Case(f"B={b}, {way}", equal(cost(n, b, floats), b * cost(n, 0, floats) + b * alphas))
                             for b in COSTED
                             for way, floats, alphas in (("up", "floats_up", len(LAYERS)), ("down", "floats_down", 0))],
          "identity", figure="cost"),
    Claim("pb20", lambda n: [Case(f"5 branches against {b}", on_pairs(n, "pfedmb") - with_branches(n, b) + 0.3)
                             for b in (2, 3, 4, 8, 10)], figure="five_pairs"),
]  # fmt: skip
