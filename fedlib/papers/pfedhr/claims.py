"""pFedHR (Wang et al., NeurIPS 2023): how its claims are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product

from scipy.stats import spearmanr

from fedlib.papers.pfedhr.distillation import control
from fedlib.papers.pfedhr.sizes import DATA, FEW, HYPER, MAIN, MANY, NETS, RIVALS, SAME, SPLITS, both_kinds, where
from fedlib.studies.claim import Claim, Numbers
from fedlib.studies.number import Number, kth_largest, largest, mean, missing, smallest, strictly
from fedlib.studies.verdict import Case


def over_rivals(n: Numbers, item: str, d: str, kind: str, split: str, printed: tuple[int, int, str] = FEW) -> Case:
    """pFedHR against the better of the two methods with the same public images."""
    setting = where(kind, split, printed)
    return Case(
        f"{d} {kind} {split}", n(item, "pfedhr", d, setting) - largest(n(item, m, d, setting) for m in RIVALS[kind])
    )


def labels_help(n: Numbers) -> list[Case]:
    """ph03: with labels pFedHR is better, and so is the mean of the three methods."""
    cases = []
    for d, split in product(DATA, SPLITS):
        both = [{m: n("table2", m, d, where(kind, split)) for m in (*RIVALS[kind], "pfedhr")} for kind in RIVALS]
        own, group = ([each["pfedhr"] for each in both], [mean(each.values()) for each in both])
        cases += [Case(f"pFedHR, {d} {split}", own[0] - own[1]), Case(f"means, {d} {split}", group[0] - group[1])]
    return cases


def iid_is_easier(n: Numbers) -> list[Case]:
    """ph04: IID over Non-IID in all 60 pairs of Tables 2 to 4."""
    rows = [("table2", kind, m, d, FEW) for d in DATA for kind, m in both_kinds()]
    rows += [("table3", kind, m, MAIN, MANY) for kind, m in both_kinds()]
    rows += [("table4", kind, m, d, (12, 4, net)) for net in NETS for d in DATA for kind, m in same()]
    return [
        Case(
            f"{item} {d} {kind} {m} {printed[2]}",
            n(item, m, d, where(kind, "iid", printed)) - n(item, m, d, where(kind, "noniid", printed)),
        )
        for item, kind, m, d, printed in rows
    ]


def same() -> list[tuple[str, str]]:
    """Public images and method, as in Table 4."""
    return [*(("none", method) for method in SAME), ("labeled", "pfedhr")]


def more_clients(n: Numbers) -> list[Case]:
    """ph06: 12 clients over 100."""
    return [
        Case(
            f"{kind} {m} {split}",
            n("table2", m, MAIN, where(kind, split)) - n("table3", m, MAIN, where(kind, split, MANY)),
        )
        for split, (kind, m) in product(SPLITS, both_kinds())
    ]


def alone(n: Numbers, method: str, d: str, net: str, split: str) -> Number:
    """A number of Table 4."""
    return n("table4", method, d, where("labeled" if method == "pfedhr" else "none", split, (12, 4, net)))


def best_alone(n: Numbers, d: str, net: str, split: str) -> Number:
    """The best method of Table 4 without public images."""
    return largest(alone(n, m, d, net, split) for m in SAME)


def mnist_is_easy(n: Numbers) -> list[Case]:
    """ph08: M1 reaches 90 %; pFedHR is below the best other method, by one point at most."""
    cases = [Case(f"90 %, {m} {split}", alone(n, m, "mnist", "M1", split) - 90) for split in SPLITS for _, m in same()]
    for net, split in product(NETS, SPLITS):
        best, own = best_alone(n, "mnist", net, split), alone(n, "pfedhr", "mnist", net, split)
        cases += [Case(f"below, {net} {split}", best - own), Case(f"close, {net} {split}", own + 1 - best)]
    return cases


def by_images(n: Numbers, method: str, kind: str, split: str, name: str) -> Number:
    """A number of Fig. 1, with public images of one kind."""
    return n("fig1", method, MAIN, where(kind, split, images=name))


OTHERS = ("mnist", "cifar10")
PANELS = list(product(RIVALS, SPLITS))


def drop(n: Numbers, method: str, kind: str, split: str, name: str) -> Number:
    """Fig. 1: accuracy lost with these public images, relative to those of the clients' kind [%]."""
    matching = by_images(n, method, kind, split, MAIN)
    return (matching - by_images(n, method, kind, split, name)) / matching * 100


def smallest_loss(n: Numbers) -> list[Case]:
    """ph11: pFedHR loses least in six of eight cases, and on average in every panel."""
    gaps, cases = [], []
    for kind, split in PANELS:
        lost = {m: [drop(n, m, kind, split, name) for name in OTHERS] for m in (*RIVALS[kind], "pfedhr")}
        own = lost.pop("pfedhr")
        gaps += [smallest(theirs) - mine for *theirs, mine in zip(*lost.values(), own, strict=True)]
        cases.append(Case(f"mean, {kind} {split}", smallest(map(mean, lost.values())) - mean(own)))
    return [Case("sixth of eight", kth_largest(gaps, 6)), *cases]


def as_good_with_others(n: Numbers) -> list[Case]:
    """ph12: pFedHR with foreign public images against the others with matching ones, less a point."""
    return [
        Case(
            f"{kind} {split} {name}",
            by_images(n, "pfedhr", kind, split, name)
            + 1
            - largest(by_images(n, m, kind, split, MAIN) for m in RIVALS[kind]),
        )
        for (kind, split), name in product(PANELS, OTHERS)
    ]


def on_first(names: Sequence[str], cases: Callable[[str], list[Case]]) -> list[Case]:
    """The cases on the first of these data sets on which one of them was measured."""
    found = [cases(name) for name in names]
    return next((own for own in found if any(not case.effect.missing for case in own)), found[0])


def figure(n: Numbers, item: str, d: str, x: float, split: str, kind: str = "labeled") -> Number:
    """A number of Figs 3 to 6."""
    key, _ = HYPER.get(item, ("share", ""))
    return n(item, "pfedhr", d, where(kind, split, **{key: x}))


def ordered(n: Numbers, item: str, best_first: Sequence[float]) -> list[Case]:
    """Every value against the next one, on SVHN or what stands for it."""

    def cases(d: str) -> list[Case]:
        return [
            Case(f"{split}: {a} over {b}", figure(n, item, d, a, split) - figure(n, item, d, b, split))
            for split in SPLITS
            for a, b in pairwise(best_first)
        ]

    return on_first((MAIN, "cifar10"), cases)


def more_public(n: Numbers) -> list[Case]:
    """ph13: every step up, and the whole way."""

    def whole(d: str) -> list[Case]:
        return [
            Case(f"{s}: 0.1 over 0.02", figure(n, "fig3", d, 0.1, s) - figure(n, "fig3", d, 0.02, s)) for s in SPLITS
        ]

    return ordered(n, "fig3", (0.1, 0.05, 0.02)) + on_first((MAIN, "cifar10"), whole)


def more_groups(n: Numbers) -> list[Case]:
    """ph14: K = 5 over K = 3 in all panels (a positive rank correlation of three values), no step down in three."""

    def cases(d: str) -> list[Case]:
        at = {(k, panel): figure(n, "fig4", d, k, panel[1], panel[0]) for k in (3, 4, 5) for panel in PANELS}
        whole = [Case(f"{' '.join(panel)}: 5 over 3", at[5, panel] - at[3, panel]) for panel in PANELS]
        steps = [smallest([at[5, panel] - at[4, panel], at[4, panel] - at[3, panel]]) for panel in PANELS]
        return [*whole, Case("smallest step, third of four panels", kth_largest(steps, 3))]

    return on_first((MAIN, "cifar10"), cases)


def more_epochs(n: Numbers) -> list[Case]:
    """ph17: the rank correlation with the epochs is negative, and three are better than ten."""

    def cases(d: str) -> list[Case]:
        found, values = [], (3, 4, 5, 10)
        for split in SPLITS:
            numbers = [figure(n, "fig6", d, x, split) for x in values]
            found += [Case(f"{split}: rank correlation", falling(values, numbers))]
            found += [Case(f"{split}: 3 over 10", numbers[0] - numbers[-1])]
        return found

    return on_first((MAIN, "cifar10"), cases)


def falling(values: Sequence[float], numbers: Sequence[Number]) -> Number:
    """Spearman's correlation with the values, negative; missing if one of the numbers is."""
    joined = mean(numbers)
    if not joined.known:
        return missing("rank correlation")
    correlation = -float(spearmanr(values, [own.value for own in numbers]).statistic)
    return joined._replace(low=correlation, high=correlation, noise=0.0)


def search(n: Numbers, item: str, metric: str, d: str, split: str) -> Number:
    """A number about the candidates of a run of Table 2 with labels."""
    return n(item, "pfedhr", d, where("labeled", split), metric)


def few_with_many_groups(n: Numbers) -> list[Case]:
    """ph15: over K = 2 to 6 candidates do not become more nor rounds without any fewer; for some K there is one."""

    def cases(d: str) -> list[Case]:
        metrics = {"fall of M": "M never rises", "rise of none": "rounds without any never fall"}
        metrics |= {"most without any": "some K without any"}
        found = [Case(f"{text}, {s}", search(n, "search", m, d, s)) for m, text in metrics.items() for s in SPLITS]
        return [case._replace(effect=strictly(case.effect)) if "some K" in case.where else case for case in found]

    return on_first(("cifar10", MAIN), cases)


def teachers_change(n: Numbers) -> list[Case]:
    """ph18: teachers of 80 % of the clients change, are made of two clients' blocks at least, and keep R1 to R4."""

    def cases(d: str) -> list[Case]:
        least = {"changed": 80, "sources": 2, "legal": 100}
        return [Case(f"{m}, {s}", search(n, "fig7", m, d, s) - low) for m, low in least.items() for s in SPLITS]

    return on_first(("cifar10", MAIN), cases)


def diverse(n: Numbers) -> list[Case]:
    """ph19: two candidates in 90 % of the rounds, two architectures on average, no two alike."""

    def cases(d: str) -> list[Case]:
        found = []
        for split in SPLITS:
            own = {m: search(n, "search", m, d, split) for m in ("two or more", "kinds", "repeated")}
            found += [Case(f"M >= 2 in 90 % of rounds, {split}", own["two or more"] - 90)]
            found += [
                Case(f"architectures, {split}", own["kinds"] - 2),
                Case(f"none twice, {split}", 0 - own["repeated"]),
            ]
        return found

    return on_first(("cifar10", MAIN), cases)


def teacher_helps(n: Numbers) -> list[Case]:
    """ph20: over Local-Only, and over a random candidate as the teacher."""
    cases = []
    for d, split in product((MAIN, "cifar10"), SPLITS):
        own, without = (
            n("table2", "pfedhr", d, where("labeled", split)),
            n("table2", "local_only", d, where("none", split)),
        )
        other = n("other_teachers", "pfedhr", d, control(split, "random candidate"))
        cases.append(Case(f"over Local-Only, {d} {split}", strictly(own - without)))
        cases.append(Case(f"over a random teacher, {d} {split}", strictly(own - other)))
    return cases


CLAIMS = [
    # the text of ph01 and ph02 says "on every data set and split", their predicates allow for one exception in six
    Claim("ph01", lambda n: [over_rivals(n, "table2", d, "labeled", s) for d in DATA for s in SPLITS]),
    Claim("ph02", lambda n: [over_rivals(n, "table2", d, "unlabeled", s) for d in DATA for s in SPLITS]),
    Claim("ph03", labels_help),
    Claim("ph04", iid_is_easier),  # of the printed accuracies; its predicate has those on all classes, too
    Claim("ph05", lambda n: [over_rivals(n, "table3", MAIN, kind, s, MANY) for kind, s in PANELS]),
    Claim("ph06", more_clients, figure="table3"),
    Claim("ph07", lambda n: [Case(f"{d} {net} {s}", alone(n, "pfedhr", d, net, s) - best_alone(n, d, net, s))
                             for d in (MAIN, "cifar10") for net in NETS for s in SPLITS]),
    Claim("ph08", mnist_is_easy),
    Claim("ph09", lambda n: [Case(f"{m} {d} {s}", alone(n, m, d, "M4", s) - alone(n, m, d, "M1", s) - 15)
                             for _, m in same() for d in (MAIN, "cifar10") for s in SPLITS]),
    Claim("ph10", lambda n: [Case(f"{m} {kind} {s} {name}", drop(n, m, kind, s, name))
                             for kind, m in both_kinds() for s in SPLITS for name in OTHERS]),
    Claim("ph11", smallest_loss),
    Claim("ph12", as_good_with_others, "most", 4),
    Claim("ph13", more_public),
    Claim("ph14", more_groups),
    Claim("ph15", few_with_many_groups, figure="search"),
    Claim("ph16", lambda n: ordered(n, "fig5", (1, 2, 3))),
    Claim("ph17", more_epochs),
    Claim("ph18", teachers_change),
    Claim("ph19", diverse, figure="search"),
    Claim("ph20", teacher_helps, figure="other_teachers"),
]  # fmt: skip
