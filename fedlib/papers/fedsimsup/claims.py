"""FedSimSup (anonymous, submitted to ICLR 2025): the rules that judge its claims."""

from collections.abc import Iterator
from functools import partial
from itertools import product

from fedlib.papers.fedsimsup.accuracy import EARLY
from fedlib.papers.fedsimsup.sizes import ALPHAS, CLASSES, DIRICHLET, PATHOLOGICAL, RIVALS, SHAPES, SIZES, WRITERS
from fedlib.studies.claim import Claim, Numbers, lead, leads, numbers_of
from fedlib.studies.number import equal, fact, largest, mean
from fedlib.studies.verdict import Case

fluctuation = numbers_of("fig2", "fedsimsup", "{}", "dir={}", "fluctuation")
with_similarity = numbers_of("fig3", "fedsimsup", "cifar10", "dir=0.1;similarity={}", "mean_over_rounds")
cam = numbers_of("fig4", "fedsimsup", "cifar10", "class=cat", "{}")
messages = numbers_of("messages", "fedsimsup", "digits", "supervisor=mixed", "{}")
parameters = numbers_of("parameters", "fedsimsup", "{}", "network={}", "parameters")
loss_by_mixing = partial(leads, item="table3", method="fedsimsup", rivals=["fedsimsup-whole"], columns=DIRICHLET)
ahead = partial(lead, method="fedsimsup", rivals=RIVALS)  # over the best of seven; bounded if some are missing


def few_values(numbers: Numbers) -> Iterator[Case]:
    """fs07: at most c + 1 values of s_ij where class shares are equal, and over 10 c at Dir(0.1)."""
    for name, n in product(CLASSES, SIZES):
        at = partial(numbers, "similarity", "partition", name)
        fine = at(f"clients={n};dir=0.1", "distinct")
        for c in CLASSES[name]:
            found, even = (at(f"clients={n};pat={c}", metric) for metric in ("distinct", "equal shares"))
            if even.value == 0:  # the claim is about equal shares
                continue
            few, many = fact(found.value <= c + 1, found), fact(fine.value > 10 * c, found, fine)
            for where, effect in ((f"{c} classes", few), (f"Dir(0.1) against {c} classes", many)):
                yield Case(f"{name}, {n} clients, {where}", effect)


def loss_of_lead(numbers: Numbers) -> Iterator[Case]:
    """fs08: the mean lead is smaller in Table 2 than in Table 1, on each data set."""
    tables = {"table1": DIRICHLET, "table2": PATHOLOGICAL}
    for d in CLASSES:
        one, two = (mean(ahead(numbers, t, column=c) for c in columns if c[0] == d) for t, columns in tables.items())
        yield Case(d, one - two)


def a_sixth(numbers: Numbers) -> Iterator[Case]:
    """fs19: parameters of L, as a share of those of theta."""
    for name in SHAPES:
        share = parameters(numbers, name, "l") / parameters(numbers, name, "theta")
        yield Case(f"{name}: a sixth of theta", fact(0.15 <= share.value <= 0.18, share))
        yield Case(f"{name}: total at most 1.2 times theta", fact(1 + share.value <= 1.2, share))


STRONG = [column for column in DIRICHLET if column[1].endswith("dir=0.1")]
HUNDRED = [column for column in DIRICHLET if column[0] == "cifar100"]
CLAIMS = [
    Claim("fs01", lambda n: leads(n, "table1", "fedsimsup", RIVALS, [*DIRICHLET, WRITERS])),
    Claim("fs02", lambda n: leads(n, "table1", "fedsimsup", RIVALS, HUNDRED, least=3)),
    Claim("fs03", lambda n: leads(n, "table1", "fedsimsup", RIVALS, [WRITERS], least=1)),
    Claim("fs04", lambda n: [Case(f"perfedavg {' '.join(at)}", lead(n, "table1", "fedsimsup", ["perfedavg"], at))
                             for at in DIRICHLET]),
    Claim("fs05", lambda n: [Case(f"{m} {' '.join(at)}", lead(n, "table1", "local_only", [m], at))
                             for m in ("fedavg", "fedprox") for at in STRONG]),
    Claim("fs06", lambda n: [Case("first in a column", largest(ahead(n, "table2", column=at) for at in PATHOLOGICAL)),
                             Case("not first in a column",
                                  largest(0 - ahead(n, "table2", column=at) for at in PATHOLOGICAL))]),
    Claim("fs07", few_values, "identity", figure="similarity"),
    Claim("fs08", loss_of_lead, figure="table2"),
    Claim("fs09", lambda n: [Case("mean over rounds", with_similarity(n, True) - with_similarity(n, False))]),
    Claim("fs10", lambda n: [case for a in ALPHAS for case in (
        Case(f"dir={a}: behind at the start", 0 - ahead(n, "fig2", column=("cifar100", f"dir={a};round={EARLY}"))),
        Case(f"dir={a}: ahead at the end", ahead(n, "fig2", column=("cifar100", f"dir={a}", "last_tenth"))))]),
    Claim("fs11", lambda n: [Case(d, fluctuation(n, d, 0.5) - fluctuation(n, d, 0.1)) for d in CLASSES]),
    Claim("fs12", lambda n: leads(n, "table3", "fedsimsup-t", ["fedsimsup-c", "fedsimsup-l"], DIRICHLET)),
    Claim("fs13", loss_by_mixing),
    Claim("fs14", lambda n: [Case(where, 7 - gap) for where, gap in loss_by_mixing(n)]),
    Claim("fs15", lambda n: [Case("T above Original in a column", largest(
        lead(n, "table3", "fedsimsup-t", ["fedsimsup"], column) for column in DIRICHLET))]),
    Claim("fs16", lambda n: [Case("correlation below 0.7", 0.7 - cam(n, "correlation"))]),
    Claim("fs17", lambda n: [  # the first case alone would also hold for a large map beside the object
        Case("area of s above that of theta", cam(n, "area s") - cam(n, "area theta")),
        Case("masking the map of s costs more", cam(n, "kept, another image") - cam(n, "kept"))]),
    Claim("fs18", lambda n: [Case("rank correlation", n(
        "supervisor_moves", "fedsimsup", "cifar10", "with=gain", "rank correlation"))], figure="supervisor_moves"),
    Claim("fs19", a_sixth, "identity", figure="parameters"),
    Claim("fs20", lambda n: [
        Case("round 1: theta and counts", equal(messages(n, "beyond theta, round 1"), messages(n, "counts"))),
        Case("round 2: theta", equal(messages(n, "beyond theta, round 2"), 0)),
        Case("three kinds", equal(messages(n, "kinds"), 3))], "identity", figure="messages"),
]  # fmt: skip
