"""pFedSim (Tan et al., 2023): the rules that judge its claims."""

from fedlib.papers.pfedsim.measure import DOMAINS, PAIRS
from fedlib.papers.pfedsim.sizes import ALPHAS, COLUMNS, DATA, LENET, MEASURES, METHODS, PERSONAL, RHOS, SINGLE
from fedlib.studies.claim import Claim, Numbers, lead, leads, numbers_of
from fedlib.studies.number import UNMEASURED, Number, equal, kth_largest, largest, mean, smallest
from fedlib.studies.verdict import Case

accuracy = numbers_of("table3", "{}", "{}", "dir={}")
rho = numbers_of("table6", "pfedsim", "{}", "{};rho={:g}")
time_ratio = numbers_of("table7", "{}", "{}", "dir=0.1", "relative_time")
cka = numbers_of("fig1", "local_only", "cifar10", "layer={}", "cka")
fig2 = numbers_of("fig2", "local_only", "cifar10", "{}", "margin")
pair = numbers_of("table2", "{}", "cifar10", "pair={}", "similarity")
over_domains = numbers_of("table8", "{}", "domainnet", "domain=Average")
scalars = numbers_of("table7", "{}", "cifar10", "dir=0.1", "scalars_{}")
std = numbers_of("table4", "partition", "{}", "dir={}", "std_of_sizes")
PRINTED = {("cifar10", 0.1): 487, ("cifar10", 0.5): 170, ("cinic10", 0.1): 1962, ("cinic10", 0.5): 843}  # of std
PRINTED |= {("emnist", 0.5): 782, ("tinyimagenet", 0.1): 118, ("tinyimagenet", 0.5): 38}
GENERATOR = 4_212 + 64  # scalars of FedGen's generator, with its BatchNorm statistics


def over_best(numbers: Numbers, columns: list[tuple[str, str]]) -> list[Case]:
    """pFedSim against the best of the eleven others, column by column."""
    return leads(numbers, "table3", "pfedsim", METHODS[:-1], columns)


def in_domain(numbers: Numbers, d: str) -> Number:
    """pFedSim against the best of the eleven others in a domain."""
    return lead(numbers, "table8", "pfedsim", METHODS[:-1], ("domainnet", f"domain={d}"))


def between(number: Number, low: float, high: float) -> Number:
    """Distance to the nearer end of an interval; positive inside it."""
    return smallest([number - low, high - number])


def largest_gain(numbers: Numbers) -> list[Case]:
    """ps10: the largest gain is on Tiny-ImageNet, and is at least 5 points."""
    tiny = [case.effect for case in over_best(numbers, COLUMNS[4:6])]
    others = [case.effect for case in over_best(numbers, COLUMNS[:4] + COLUMNS[6:])]
    return [Case("above all others", largest(tiny) - largest(others)), Case("at least 5 points", largest(tiny) - 5)]


def best_rho(numbers: Numbers, d: str, s: str) -> Number:
    """The share with the highest accuracy, as a number without noise; missing if an accuracy is missing."""
    values = {r: rho(numbers, d, s, r) for r in RHOS}
    if not all(number.known for number in values.values()):
        return UNMEASURED
    best = max(values, key=lambda r: values[r].value)
    return values[best]._replace(low=best, high=best, noise=0.0)


CLAIMS = [
    Claim("ps01", lambda n: [Case(f"layer {k} above layer 4", cka(n, k) - cka(n, 4)) for k in range(4)]
          + [Case("layer 0 above layer 3", cka(n, 0) - cka(n, 3))], figure="fig1"),
    Claim("ps02", lambda n: [Case("layer 0 at least 0.8", cka(n, 0) - 0.8),
                             Case("layer 0 at least 0.2 above layer 4", cka(n, 0) - cka(n, 4) - 0.2)]),
    Claim("ps03", lambda n: [Case(f"{a} above {b}", pair(n, "CS", a) - pair(n, "CS", b))
                             for a, b in zip(list(PAIRS), list(PAIRS)[1:], strict=False)]),
    Claim("ps04", lambda n: [Case("over all pairs", fig2(n, "rows")),
                             Case("at least 0.2 in each pair", fig2(n, "gap") - 0.2)]),
    Claim("ps05", lambda n: [Case("tau of CS is 1", fig2(n, "tau CS") - 1)]
          + [Case(f"{k} of CS above that of {m}", fig2(n, f"{k} CS") - fig2(n, f"{k} {m}"))
             for k in ("tau", "r") for m in MEASURES[1:4]]),
    Claim("ps06", lambda n: [Case("tau of WDB below 1", 1 - fig2(n, "tau WDB") - 1e-6)]),
    Claim("ps07", lambda n: [Case(f"{d}: Dir(0.1) above 1.5 times Dir(0.5)", std(n, d, 0.1) - 1.5 * std(n, d, 0.5))
                             for d in DATA]
          + [Case(f"{d}: Dir({a}) near the printed value", 0.4 * own - abs(std(n, d, a) - own))
             for (d, a), own in PRINTED.items()]),
    Claim("ps08", lambda n: over_best(n, COLUMNS), "most", 7),
    Claim("ps09", lambda n: [Case("mean gain", between(mean(case.effect for case in over_best(n, COLUMNS)), 1.5, 6))]),
    Claim("ps10", largest_gain),
    Claim("ps11", lambda n: [Case(f"{m} {d}", accuracy(n, m, d, 0.5) - accuracy(n, m, d, 0.1))
                             for m in ("fedavg", "fedprox", "fedgen") for d in DATA]
          + [Case(f"{m} {d}", accuracy(n, m, d, 0.1) - accuracy(n, m, d, 0.5))
             for m in ("local_only", "fedper", "fedrep", "fedfomo", "pfedsim") for d in DATA]),
    Claim("ps12", lambda n: [Case(d, smallest(accuracy(n, m, d, 0.1) for m in (*PERSONAL, "pfedsim"))
                                  - largest(accuracy(n, m, d, 0.1) for m in SINGLE)) for d in DATA]),
    Claim("ps13", lambda n: leads(n, "table3", "pfedsim", ["fedap"], COLUMNS)),
    Claim("ps14", lambda n: [Case(f"above {m} {' '.join(at)}", lead(n, "table3", "pfedsim", [m], at))
                             for m in ("fedrep", "fedper") for at in COLUMNS]),
    Claim("ps15", lambda n: [Case(f"{d} {s}", 0.0 - abs(n("table6", "pfedsim", d, f"{s};rho=1", "minus FedAvg")))
                             for d, s in COLUMNS], "identity"),
    Claim("ps16", lambda n: [Case(d, smallest(rho(n, d, "dir=0.1", r) for r in RHOS[:-1]) - rho(n, d, "dir=0.1", 1.0))
                             for d in DATA]),
    Claim("ps17", lambda n: [Case(f"{d} {s}", smallest(rho(n, d, s, r) for r in (0.3, 0.5, 0.7)) - rho(n, d, s, 0.0))
                             for d, s in COLUMNS if (d, s) != ("cinic10", "dir=0.5")]),
    Claim("ps18", lambda n: [Case(f"{d} {s}", rho(n, d, s, 0.7) - rho(n, d, s, 0.9)) for d, s in COLUMNS]),
    Claim("ps19", lambda n: [Case(f"{d} {s}", 4 - (largest(rho(n, d, s, r) for r in RHOS)
                                                   - smallest(rho(n, d, s, r) for r in (0.3, 0.5, 0.7))))
                             for d, s in COLUMNS if (d, s) != ("cinic10", "dir=0.5")]),
    Claim("ps20", lambda n: [Case(f"{d} {s}", best_rho(n, d, s)
                                  - largest(best_rho(n, "tinyimagenet", f"dir={a}") for a in ALPHAS) - 0.05)
                             for d, s in LENET], "most", 5),
    Claim("ps21", lambda n: [Case(d, 0.02 - abs(time_ratio(n, "pfedsim", d) - 1)) for d in DATA]),
    Claim("ps22", lambda n: [Case(f"{m} {d}", time_ratio(n, m, d) - least)
                             for m, least in (("fedfomo", 1.10), ("fedgen", 1.05)) for d in DATA]),
    Claim("ps23", lambda n: [
        Case("pFedSim as FedAvg, down", equal(scalars(n, "pfedsim", "down"), scalars(n, "fedavg", "down"))),
        Case("pFedSim as FedAvg, up", equal(scalars(n, "pfedsim", "up"), scalars(n, "fedavg", "up"))),
        Case("FedFomo: six models, down", equal(scalars(n, "fedfomo", "down"), 6 * scalars(n, "fedavg", "down"))),
        Case("FedGen: model and generator, down",
             equal(scalars(n, "fedgen", "down"), scalars(n, "fedavg", "down") + GENERATOR))], "identity"),
    Claim("ps24", lambda n: [Case("average", in_domain(n, "Average")),
                             Case("fourth best domain", kth_largest([in_domain(n, d) for d in DOMAINS], 4))]),
    Claim("ps25", lambda n: [Case("average", smallest(over_domains(n, m) for m in SINGLE)
                                  - largest(over_domains(n, m) for m in PERSONAL[:4]))]),
]  # fmt: skip
