"""Invented: the rules that decide its claims."""

from functools import partial

from fedlib.studies.claim import Claim
from fedlib.studies.number import largest
from fedlib.studies.verdict import Case


def at(numbers, method):
    """Accuracy in Table 1."""
    return numbers("table1", method, "cifar10", "dir=0.1")


def epochs(numbers, n):
    """Accuracy in Table 2."""
    return numbers("table2", "fedavg", "cifar10", f"epochs={n}")


def best(numbers):
    """in02: FedProx against the better of the others."""
    other = partial(at, numbers)
    return [Case("Table 1", other("fedprox") - largest([other("local_only"), other("fedavg")]))]


CLAIMS = [
    Claim("in01", lambda n: [Case("Table 1", at(n, "local_only") - at(n, "fedavg"))]),
    Claim("in02", best),
    Claim("in03", lambda n: [Case("Table 2", epochs(n, 2) - epochs(n, 1))], figure="table2"),
]
