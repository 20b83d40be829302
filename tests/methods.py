"""Every method, with hyper-parameters that fit runs as small as those of the tests."""

from functools import partial

import fedlib as fl

FACTORIES = {name: getattr(fl, name) for name in fl.algorithms()} | {
    "fccl": partial(fl.fccl, warm_up=2),
    "fedgh": partial(fl.fedgh, header_steps=10, header_lr=0.1),
    "fedkemf": partial(fl.fedkemf, knowledge="lenet5_plain"),  # no dropout, which the backends draw differently
    "fedmd": partial(fl.fedmd, warm_up=1),
    "fedsimsup": partial(fl.fedsimsup, supervisor_epochs=1),  # two local epochs: one for each network
    "pfedbayes": partial(fl.pfedbayes, zeta=0.1),  # SGD needs lr zeta / n_i below 2 sigma^2
    "pfedhr": partial(fl.pfedhr, most=3, server_epochs=1, server_batch=20),
    "pfedme": partial(fl.pfedme, steps=2),
    "perfedavg": partial(fl.perfedavg, alpha=0.05, beta=0.05),  # it has rates of its own: here those of the tests
}
READ_BACK = {  # once a round
    "fccl",  # who has yet to warm up
    "fedmd",
    "fedpac",  # its server solves its quadratic programmes on the host
    "pfedhr",  # its server searches and matches there
}
