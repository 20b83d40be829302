"""BatchNorm statistics that never leave their client, as the published code of several papers has it."""

from dataclasses import replace
from typing import Any, NamedTuple

from fedlib.algorithm import Algorithm, groups_of, tuned
from fedlib.stack import Params, own, select


class Kept(NamedTuple):
    """State of a method whose clients keep their BatchNorm statistics."""

    base: Any  # of the method
    statistics: Params  # running means and variances [n_clients, ...]


def keeping_statistics(method: Algorithm) -> Algorithm:
    """`method`, but that a client has its own running means and variances in whatever it trains or is tested with.

    They follow its training, are not sent, and are not counted as bytes. What a method makes of statistics itself, an
    average, say, nobody sees.
    """

    def init(model, federation):
        initial = {name: t for group in groups_of(method, model, federation) for name, t in group.model.weights.items()}
        statistics = {name for group in groups_of(method, model, federation) for name in group.model.statistics}
        return Kept(method.init(model, federation), own(select(initial, statistics), federation.n_clients))

    def round(state, cohort):
        return Kept(method.round(state.base, replace(cohort, statistics=state.statistics)), state.statistics)

    def models(state):
        shared, kept = method.models(state.base), state.statistics
        rows = max(len(t) for t in (shared | kept).values())
        return {name: t.expand(rows, *t.shape[1:]) for name, t in shared.items()} | select(kept, shared)

    def tune(state, everyone):
        copies = {name: t.clone() for name, t in state.statistics.items()}
        return tuned(method, state.base, replace(everyone, statistics=copies))

    trace = method.trace and (lambda state: method.trace(state.base))
    made_of = (keeping_statistics, *method.made_of)
    return method._replace(init=init, round=round, models=models, tune=tune, trace=trace, made_of=made_of)
