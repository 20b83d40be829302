"""Local BatchNorm statistics, which are never sent, as in the published code of several papers."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves, tree_map

from fedlib.algorithm import Algorithm, architectures_of, tuned
from fedlib.models.model import is_statistic
from fedlib.stack import PerArchitecture, copies, for_each, keys
from fedlib.training.cohort import with_statistics


class WithStatistics(NamedTuple):
    """State of a method with local BatchNorm statistics."""

    base: Any  # state of the method
    statistics: PerArchitecture  # running means and variances, by their path in the weights


def keeping_statistics(method: Algorithm) -> Algorithm:
    """`method` with running means and variances local to each client, in training and in evaluation."""
    # They are neither sent nor counted as bytes. Statistics that the method computes itself, such as averages, are
    # unused.

    def init(model, federation):
        stacks = []
        for network, clients in architectures_of(method, model, federation):
            initial = zip(keys(network.weights), tree_leaves(network.weights), strict=True)
            statistics = {"/".join(path): t for path, t in initial if is_statistic(path[-1])}
            stacks.append(copies(statistics, len(clients)))
        return WithStatistics(method.init(model, federation), PerArchitecture(tuple(stacks)))

    def round(state, cohort):
        return WithStatistics(method.round(state.base, replace(cohort, statistics=state.statistics)), state.statistics)

    def models(state):
        models, stacks = method.models(state.base), state.statistics.stacks
        if isinstance(models, PerArchitecture):
            return PerArchitecture(tuple(map(with_statistics, models.stacks, stacks)))
        [local] = stacks
        return with_statistics(for_each(models, len(next(iter(local.values())))), local) if local else models

    def tune(state, everyone):
        copied = tree_map(torch.clone, state.statistics)
        return tuned(method, state.base, replace(everyone, statistics=copied))

    trace = method.trace and (lambda state: method.trace(state.base))
    made_of = (keeping_statistics, *method.made_of)
    return method._replace(init=init, round=round, models=models, tune=tune, trace=trace, made_of=made_of)
