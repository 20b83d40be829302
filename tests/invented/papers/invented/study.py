"""Invented (nobody, 2026): two tables and a figure."""

from typing import NamedTuple

import fedlib as fl
from fedlib.report.panels import line_panels, method_panels
from fedlib.report.sentences import trend, who_leads
from fedlib.studies.item import Cell, drawing, item
from fedlib.studies.tasks import Images, Run

METHODS = {"local_only": fl.local_only(), "fedavg": fl.fedavg(), "fedprox": fl.fedprox(mu=0.1)}


class Sizes(NamedTuple):
    """Sizes of one profile."""

    images: Images = Images("cifar10")
    rounds: int = 50
    clients: int = 20


DIGITS = Images("digits", (("copies", 1),), stands_for="cifar10")
PROFILES = {"paper": Sizes(), "quick": Sizes(DIGITS, 6, 5), "smoke": Sizes(DIGITS, 2, 4)}


def run(sizes: Sizes, method: str, **setting) -> Run:
    """A run of one method."""
    setting = {"rounds": sizes.rounds, "lr": 0.05, "evaluate_every": 1} | setting
    return Run(METHODS[method], sizes.images, fl.dirichlet(0.1, 10), sizes.clients, setting)


@item("Table 1: accuracy [%] of three methods.", alt="Dots by method.")
def table1(sizes):
    for method in METHODS:
        yield Cell(method, "cifar10", "dir=0.1", (run(sizes, method),))


@table1.draw
def _(study):
    return method_panels(study.numbers("table1"))


@table1.says
def _(study):
    return who_leads(study.numbers("table1"), "fedprox")


@item("Table 2: accuracy [%] of FedAvg by local epochs.", rows="epochs", explains=("table1",))
def table2(sizes):
    for epochs in (1, 2):
        yield Cell("fedavg", "cifar10", f"epochs={epochs}", (run(sizes, "fedavg", local_epochs=epochs),))


@table2.says
def _(study):
    numbers = study.numbers("table2")
    return trend(numbers.assign(x=numbers["setting"].str[7:].astype(int)).groupby("x")["value"].mean(), "epochs")


@drawing("Fig. 1: accuracy [%] over the rounds.", alt="A line for each method.")
def fig1(study):
    return line_panels(study.curves("table1"), "round", y="accuracy")


ITEMS = [table1, table2, fig1]
