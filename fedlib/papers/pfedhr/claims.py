"""pFedHR (Wang et al., NeurIPS 2023): the rules that judge its claims."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from scipy.stats import spearmanr

from fedlib.papers.pfedhr.sizes import DATA, FEW, HYPER, MAIN, MANY, NETS, RIVALS, SAME, SPLITS, both_kinds, where
from fedlib.studies.claim import Claim, Numbers, lead, numbers_of
from fedlib.studies.layout import item_title
from fedlib.studies.number import UNMEASURED, Number, kth_largest, largest, mean, smallest, strictly
from fedlib.studies.verdict import Case

by_images = numbers_of("fig1", "{}", MAIN, where("{}", "{}", images="{}"))
search = numbers_of("{}", "pfedhr", "{}", where("labeled", "{}"), "{}")
OTHERS = ("mnist", "cifar10")
SOURCES = (MAIN, "cifar10")  # SVHN, or its substitute
PANELS = list(product(RIVALS, SPLITS))
IN_TABLE4 = [*(("none", method) for method in SAME), ("labeled", "pfedhr")]  # public images and method


def over_rivals(n: Numbers, item: str, d: str, kind: str, split: str, printed: tuple[int, int, str] = FEW) -> Case:
    """pFedHR against the better of the two methods with the same public images."""
    return Case(f"{d} {kind} {split}", lead(n, item, "pfedhr", RIVALS[kind], (d, where(kind, split, printed))))


def labels_help(n: Numbers) -> Iterator[Case]:
    """ph03: with labelled public images pFedHR is better, and so is the mean of the three methods."""
    for d, split in product(DATA, SPLITS):
        has, lacks = ({m: n("table2", m, d, where(kind, split)) for m in (*RIVALS[kind], "pfedhr")} for kind in RIVALS)
        yield Case(f"pFedHR, {d} {split}", has["pfedhr"] - lacks["pfedhr"])
        yield Case(f"means, {d} {split}", mean(has.values()) - mean(lacks.values()))


def iid_is_easier(n: Numbers) -> Iterator[Case]:
    """ph04: IID over Non-IID in all 60 pairs of Tables 2 to 4."""
    rows = [("table2", kind, m, d, FEW) for d in DATA for kind, m in both_kinds()]
    rows += [("table3", kind, m, MAIN, MANY) for kind, m in both_kinds()]
    rows += [("table4", kind, m, d, (12, 4, net)) for net in NETS for d in DATA for kind, m in IN_TABLE4]
    for item, kind, m, d, printed in rows:
        iid, noniid = (n(item, m, d, where(kind, split, printed)) for split in SPLITS)
        public = [kind] * (kind != "none")
        yield Case(f"{item_title(item)}, {' '.join(filter(None, [d, *public, m, printed[2]]))}", iid - noniid)


def alone(n: Numbers, method: str, d: str, net: str, split: str) -> Number:
    """A number of Table 4."""
    return n("table4", method, d, where("labeled" if method == "pfedhr" else "none", split, (12, 4, net)))


def best_alone(n: Numbers, d: str, net: str, split: str) -> Number:
    """The best method of Table 4 without public images."""
    return largest(alone(n, m, d, net, split) for m in SAME)


def mnist_is_easy(n: Numbers) -> list[Case]:
    """ph08: M1 reaches 90 %; pFedHR is below the best other method, by one point at most."""
    cases = [Case(f"{m} {s}, 90 %", alone(n, m, "mnist", "M1", s) - 90) for s in SPLITS for m in (*SAME, "pfedhr")]
    for net, split in product(NETS, SPLITS):
        best, own = best_alone(n, "mnist", net, split), alone(n, "pfedhr", "mnist", net, split)
        cases += [Case(f"not above, {net} {split}", best - own), Case(f"within 1 point, {net} {split}", own + 1 - best)]
    return cases


def drop(n: Numbers, method: str, kind: str, split: str, name: str) -> Number:
    """Fig. 1: relative loss of accuracy [%] with these public images instead of those of the clients' domain."""
    matching = by_images(n, method, kind, split, MAIN)
    return (matching - by_images(n, method, kind, split, name)) / matching * 100


def smallest_loss(n: Numbers) -> list[Case]:
    """ph11: pFedHR loses least in six of eight cases, and on average in every panel."""
    gaps, cases = [], []
    for kind, split in PANELS:
        lost = {m: [drop(n, m, kind, split, name) for name in OTHERS] for m in (*RIVALS[kind], "pfedhr")}
        own = lost.pop("pfedhr")
        gaps += [smallest(theirs) - mine for *theirs, mine in zip(*lost.values(), own, strict=True)]
        cases.append(Case(f"smallest mean loss, {kind} {split}", smallest(map(mean, lost.values())) - mean(own)))
    return [Case("smallest loss in six of eight", kth_largest(gaps, 6)), *cases]


def on_first(n: Numbers, names: Sequence[str], cases: Callable[[Numbers, str], Iterable[Case]]) -> list[Case]:
    """The cases on the first of these data sets with a measured case."""
    found = [[*cases(n, d)] for d in names]
    return next((own for own in found if any(not case.effect.missing for case in own)), found[0])


def figure(n: Numbers, item: str, d: str, x: float, split: str, kind: str = "labeled") -> Number:
    """A number of Figs 3 to 6."""
    return n(item, "pfedhr", d, where(kind, split, **{HYPER[item][0]: x}))


def higher(n: Numbers, d: str, item: str, *pairs: tuple[float, float]) -> Iterator[Case]:
    """Accuracy with one value of a hyper-parameter is higher than with another."""
    for split, (a, b) in product(SPLITS, pairs):
        yield Case(f"{split}: {a} above {b}", figure(n, item, d, a, split) - figure(n, item, d, b, split))


def more_groups(n: Numbers, d: str) -> list[Case]:
    """ph14: K = 5 beats K = 3 in all panels (a positive rank correlation of three values); no step falls in three."""
    at = {(k, panel): figure(n, "fig4", d, k, panel[1], panel[0]) for k in (3, 4, 5) for panel in PANELS}
    whole = [Case(f"{' '.join(panel)}: K = 5 above K = 3", at[5, panel] - at[3, panel]) for panel in PANELS]
    steps = [smallest([at[5, panel] - at[4, panel], at[4, panel] - at[3, panel]]) for panel in PANELS]
    return [*whole, Case("no fall in three of four panels", kth_largest(steps, 3))]


def more_epochs(n: Numbers, d: str) -> Iterator[Case]:
    """ph17: the rank correlation with the epochs is negative, and three are better than ten."""
    values = (3, 4, 5, 10)
    for split in SPLITS:
        numbers = [figure(n, "fig6", d, x, split) for x in values]
        yield Case(f"{split}: negative rank correlation", falling(values, numbers))
        yield Case(f"{split}: 3 epochs above 10", numbers[0] - numbers[-1])


def falling(values: Sequence[float], numbers: Sequence[Number]) -> Number:
    """The negative of Spearman's correlation with the values; missing if one of the numbers is missing."""
    joined = mean(numbers)
    if not joined.known:
        return UNMEASURED
    correlation = -float(spearmanr(values, [own.value for own in numbers]).statistic)
    return joined._replace(low=correlation, high=correlation, noise=0.0)


def few_with_many_groups(n: Numbers, d: str) -> list[Case]:
    """ph15: from K = 2 to 6, M never rises and rounds without candidates never become rarer; some K has such rounds."""
    metrics = {
        "fall of M": "number of candidates never rises",
        "rise of none": "share of rounds without candidates never falls",
    }
    cases = [Case(f"{text}, {s}", search(n, "composition", d, s, m)) for m, text in metrics.items() for s in SPLITS]
    some = {s: search(n, "composition", d, s, "most without any") for s in SPLITS}
    return cases + [Case(f"rounds without candidates at some K, {s}", strictly(share)) for s, share in some.items()]


def teachers_change(n: Numbers, d: str) -> list[Case]:
    """ph18: the teachers of 80 % of the clients change; teachers mix blocks of two clients, and obey R1 to R4."""
    least = {
        "changed": ("clients whose teacher changes", 80),
        "sources": ("clients per teacher", 2),
        "legal": ("R1 to R4", 100),
    }
    return [Case(f"{text}, {s}", search(n, "fig7", d, s, m) - low) for m, (text, low) in least.items() for s in SPLITS]


def diverse(n: Numbers, d: str) -> Iterator[Case]:
    """ph19: two candidates in 90 % of the rounds, two architectures on average, no two equal candidates."""
    for split in SPLITS:
        two, kinds, repeated = (search(n, "composition", d, split, m) for m in ("two or more", "kinds", "repeated"))
        yield Case(f"two candidates in 90 % of the rounds, {split}", two - 90)
        yield Case(f"two architectures on average, {split}", kinds - 2)
        yield Case(f"no two equal candidates, {split}", 0 - repeated)


def teacher_helps(n: Numbers) -> Iterator[Case]:
    """ph20: pFedHR beats Local-Only, and pFedHR with a random candidate as the teacher."""
    for d, split in product((MAIN, "cifar10"), SPLITS):
        own = n("table2", "pfedhr", d, where("labeled", split))
        without = n("table2", "local_only", d, where("none", split))
        other = n("other_teachers", "pfedhr", d, where("labeled", split, teacher="random candidate"))
        yield Case(f"above Local-Only, {d} {split}", strictly(own - without))
        yield Case(f"above a random teacher, {d} {split}", strictly(own - other))


CLAIMS = [
    # the text of ph01 and ph02 says "on every data set and split", their predicates allow one exception in six
    Claim("ph01", lambda n: [over_rivals(n, "table2", d, "labeled", s) for d in DATA for s in SPLITS]),
    Claim("ph02", lambda n: [over_rivals(n, "table2", d, "unlabeled", s) for d in DATA for s in SPLITS]),
    Claim("ph03", labels_help),
    # for the printed accuracies; the predicate also has those on all classes
    Claim("ph04", iid_is_easier, figure="table2"),
    Claim("ph05", lambda n: [over_rivals(n, "table3", MAIN, kind, s, MANY) for kind, s in PANELS]),
    Claim("ph06", lambda n: [Case(f"{kind} {m} {s}", n("table2", m, MAIN, where(kind, s))
                                  - n("table3", m, MAIN, where(kind, s, MANY)))
                             for s in SPLITS for kind, m in both_kinds()], figure="table3"),
    Claim("ph07", lambda n: [Case(f"{d}, {net}, {s}", alone(n, "pfedhr", d, net, s) - best_alone(n, d, net, s))
                             for d in (MAIN, "cifar10") for net in NETS for s in SPLITS]),
    Claim("ph08", mnist_is_easy),
    Claim("ph09", lambda n: [Case(f"{m} {d} {s}", alone(n, m, d, "M4", s) - alone(n, m, d, "M1", s) - 15)
                             for _, m in IN_TABLE4 for d in (MAIN, "cifar10") for s in SPLITS]),
    Claim("ph10", lambda n: [Case(f"{m} {kind} {s} {name}", drop(n, m, kind, s, name))
                             for kind, m in both_kinds() for s in SPLITS for name in OTHERS]),
    Claim("ph11", smallest_loss),
    Claim("ph12", lambda n: [Case(f"{kind} {s} {name}", by_images(n, "pfedhr", kind, s, name) + 1
                                  - largest(by_images(n, m, kind, s, MAIN) for m in RIVALS[kind]))
                             for kind, s in PANELS for name in OTHERS], "most", 4),
    Claim("ph13", lambda n: on_first(n, SOURCES, lambda n, d: higher(n, d, "fig3", (0.1, 0.05), (0.05, 0.02)))
          + on_first(n, SOURCES, lambda n, d: higher(n, d, "fig3", (0.1, 0.02)))),
    Claim("ph14", lambda n: on_first(n, SOURCES, more_groups)),
    Claim("ph15", lambda n: on_first(n, SOURCES[::-1], few_with_many_groups), figure="composition"),
    Claim("ph16", lambda n: on_first(n, SOURCES, lambda n, d: higher(n, d, "fig5", (1, 2), (2, 3)))),
    Claim("ph17", lambda n: on_first(n, SOURCES, more_epochs)),
    Claim("ph18", lambda n: on_first(n, SOURCES[::-1], teachers_change)),
    Claim("ph19", lambda n: on_first(n, SOURCES[::-1], diverse), figure="composition"),
    Claim("ph20", teacher_helps, figure="other_teachers"),
]  # fmt: skip
