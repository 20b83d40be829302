"""FedCS (Yan and Long, 2024): the rules that judge its claims."""

from collections.abc import Iterable, Iterator
from functools import partial

from fedlib.papers.fedcs.diagnosis import SPREAD
from fedlib.papers.fedcs.sizes import ADAPTING, BASELINES, CURVES, METRICS, OURS, RIVALS, SHIFT, TABLES
from fedlib.studies.claim import Claim, Numbers, numbers_of
from fedlib.studies.number import UNMEASURED, Number, equal, largest, smallest
from fedlib.studies.verdict import Case

AUC, F1 = "weighted_auc", "weighted_f1"
OTHERS = [method for method in (*BASELINES, *OURS) if method != "fedrep"]
COLUMNS = range(1, len(SPREAD) + 1)  # of Phi in the toy problem
ENOUGH = "safe;alignments=100"  # of the toy problem

of_toy = numbers_of("{}", "fedcs", "toy", "{}", "{}")
fig2 = numbers_of("fig2", "{}", "cifar10", "label-shift", "{}")
fig10 = numbers_of("fig10", "{}", "digit5", "feature-shift", "{}")
cosine = numbers_of("eq12", "fedcs", "toy", "column {}, {}", "cosine")
ratio = numbers_of("eq5", "{}", "{}", "J ratio", "j_ratio")
separability = numbers_of("fig1", "{}", "{}", "separability of {}", "separability")
section5 = numbers_of("sec5", "{}", "mnist", "label-shift", "{}")


def score(numbers: Numbers, name: str, method: str, metric: str = F1) -> Number:
    """A number of Tables 1 to 3."""
    return numbers(TABLES[name], method, name, SHIFT[name], metric)


def best(numbers: Numbers, name: str, methods: Iterable[str], metric: str = F1) -> Number:
    """The largest score of some methods; a bound if one is missing."""
    return largest(score(numbers, name, method, metric) for method in methods)


def worst(numbers: Numbers, name: str, methods: Iterable[str], metric: str = F1) -> Number:
    """The smallest score of some methods; a bound if one is missing."""
    return smallest(score(numbers, name, method, metric) for method in methods)


def all_are_ahead(numbers: Numbers, name: str, margin: float) -> list[Case]:
    """cs02, cs03: the worst variant is ahead of the best baseline, in F1 by a margin."""
    lead = {m: worst(numbers, name, OURS, m) - best(numbers, name, BASELINES, m) for m in METRICS}
    return [Case(AUC, lead[AUC]), Case(F1, lead[F1] - margin)]


def highest_and_narrowest(numbers: Numbers) -> Iterator[Case]:
    """cs16: the highest mean accuracy and the narrowest band."""
    for name, item in CURVES.items():
        at, methods = partial(numbers, item, dataset=name, setting=SHIFT[name]), (*BASELINES, *OURS)
        mean, std = ({m: at(m, metric=metric) for m in methods} for metric in ("accuracy", "accuracy_std"))
        top = largest(mean[k] for k in OURS)
        band = std[max(OURS, key=lambda k: mean[k].value)] if top.known else UNMEASURED
        yield Case(f"{name}: highest mean", top - largest(mean[m] for m in BASELINES))
        yield Case(f"{name}: narrowest band", smallest(std[m] for m in BASELINES) - band)


CLAIMS = [
    Claim("cs01", lambda n: [Case(m, best(n, "mnist", OURS, m) - best(n, "mnist", BASELINES, m) + 0.1)
                             for m in METRICS]),
    Claim("cs02", lambda n: all_are_ahead(n, "cifar10", 1.0)),
    Claim("cs03", lambda n: all_are_ahead(n, "digit5", 0.0)),
    Claim("cs04", lambda n: [Case(m, worst(n, "cifar10", BASELINES, f"{m}_std") - best(n, "cifar10", OURS, f"{m}_std"))
                             for m in METRICS]),
    Claim("cs05", lambda n: [Case(f"{d} {m}", worst(n, d, OTHERS, m) - score(n, d, "fedrep", m))
                             for d in ("mnist", "cifar10") for m in METRICS]),
    Claim("cs06", lambda n: [Case(d, score(n, d, "fedcs-fc1") - score(n, d, "fedavg+ft") - 5) for d in TABLES],
          figure="table2"),
    Claim("cs07", lambda n: [Case(f"{d} {k}", score(n, d, k) - best(n, d, ("fedbn", "fedrep", "fedalt")))
                             for d in TABLES for k in OURS], figure="table2"),
    Claim("cs08", lambda n: [Case(f"{d} {m}", score(n, d, "fedcs-fc1", m) - best(n, d, ADAPTING, m) + 1)
                             for d in TABLES for m in METRICS], figure="table2"),
    Claim("cs09", lambda n: [Case(f"{d} {m}", points - (best(n, d, OURS, m) - worst(n, d, OURS, m)))
                             for d in TABLES for m, points in ((AUC, 0.5), (F1, 1.0))], figure="table2"),
    Claim("cs10", lambda n: [Case(f"{d} {k}", score(n, d, k) - score(n, d, "fedavg")) for d in TABLES for k in OURS],
          figure="table2"),
    Claim("cs11", lambda n: [Case(d, score(n, d, "fedcs-fc1") - score(n, d, "fedavg+bn")) for d in TABLES],
          figure="table2"),
    Claim("cs12", lambda n: [Case(m, fig2(n, m, "gap") - 2) for m in RIVALS]),
    Claim("cs13", lambda n: [Case("difference at most 5 points", 5 - abs(fig2(n, "fedcs-fc1", "gap"))),
                             Case("difference smaller than that of FedBN", abs(fig2(n, "fedbn", "gap"))
                                  - abs(fig2(n, "fedcs-fc1", "gap")))]),
    Claim("cs14", lambda n: [Case(m, fig2(n, m, "spread") - fig2(n, "fedcs-fc1", "spread")) for m in RIVALS]),
    Claim("cs15", lambda n: [Case(f"more even over {parts} than {m}", fig10(n, m, width) - fig10(n, "fedcs-fc1", width))
                             for parts, width in (("groups", "width"), ("domains", "domain_width")) for m in RIVALS]
          + [Case("loss of FedCS at most 5 points", 5 - abs(fig10(n, "fedcs-fc1", "gap")))]
          + [Case(f"loss of {m} on unseen clients", fig10(n, m, "gap")) for m in RIVALS]),
    Claim("cs16", highest_and_narrowest, figure="fig7"),
    Claim("cs17", lambda n: [Case("exact: correct digits beyond ten", of_toy(n, "eq13", "exact", "digits") - 10),
                             Case("federated below 0.1", 0.1 - of_toy(n, "eq13", ENOUGH, "residual"))], "identity"),
    Claim("cs18", lambda n: [Case(f"column {k} at least 0.999", cosine(n, k, "upper") - 0.999) for k in COLUMNS]
          + [Case("lower triangle below 0.999", 0.999 - smallest(cosine(n, k, "lower") for k in COLUMNS))], "identity"),
    Claim("cs19", lambda n: [Case(f"{d} {k} at least 0.9", ratio(n, k, d) - 0.9) for d in TABLES for k in OURS]
          + [Case("toy problem at least 0.99", of_toy(n, "eq5", ENOUGH, "j_ratio") - 0.99)]),
    Claim("cs20", lambda n: [Case(f"{d} {k}", separability(n, k, d, "c") - separability(n, k, d, "z"))
                             for d in TABLES for k in OURS]),
    Claim("cs21", lambda n: [Case(f"{k}: {text}", equal(section5(n, k, m), 1)) for k in OURS
                             for m, text in (("models", "one model"), ("same_bits", "the same bits"))], "identity"),
]  # fmt: skip
