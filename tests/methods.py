"""Every method, with hyper-parameters that fit runs as small as those of the tests."""

from functools import partial

import fedlib as fl

FACTORIES = {name: getattr(fl, name) for name in fl.algorithms()} | {
    "fedsimsup": partial(fl.fedsimsup, supervisor_epochs=1),  # two local epochs: one for each network
    "pfedme": partial(fl.pfedme, steps=2),
    "perfedavg": partial(fl.perfedavg, alpha=0.05, beta=0.05),  # it has rates of its own: here those of the tests
}
READ_BACK = {"fedpac"}  # its server solves its quadratic programmes on the host, once a round
