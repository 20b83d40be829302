"""BatchNorm statistics that never leave their client, as the published code of several papers has it."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves, tree_map

from fedlib.algorithm import Algorithm, groups_of, tuned
from fedlib.models.model import is_statistic
from fedlib.stack import PerArchitecture, copies, for_each, keys
from fedlib.training.cohort import with_statistics


class Kept(NamedTuple):
    """State of a method whose clients keep their BatchNorm statistics."""

    base: Any  # of the method
    statistics: PerArchitecture  # running means and variances, by the way to them


def keeping_statistics(method: Algorithm) -> Algorithm:
    """`method`, but that a client has its own running means and variances in whatever it trains or is tested with.

    They follow its training, are not sent, and are not counted as bytes. What a method makes of statistics itself, an
    average, say, nobody sees.
    """

    def init(model, federation):
        stacks = []
        for network, clients in groups_of(method, model, federation):
            initial = zip(keys(network.weights), tree_leaves(network.weights), strict=True)
            statistics = {"/".join(way): t for way, t in initial if is_statistic(way[-1])}
            stacks.append(copies(statistics, len(clients)))
        return Kept(method.init(model, federation), PerArchitecture(tuple(stacks)))

    def round(state, cohort):
        return Kept(method.round(state.base, replace(cohort, statistics=state.statistics)), state.statistics)

    def models(state):
        models, kept = method.models(state.base), state.statistics.stacks
        if isinstance(models, PerArchitecture):
            return PerArchitecture(tuple(map(with_statistics, models.stacks, kept)))
        [kept] = kept
        return with_statistics(for_each(models, len(next(iter(kept.values())))), kept) if kept else models

    def tune(state, everyone):
        copied = tree_map(torch.clone, state.statistics)
        return tuned(method, state.base, replace(everyone, statistics=copied))

    trace = method.trace and (lambda state: method.trace(state.base))
    made_of = (keeping_statistics, *method.made_of)
    return method._replace(init=init, round=round, models=models, tune=tune, trace=trace, made_of=made_of)
