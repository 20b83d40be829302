"""The work of a sweep: cells to run, and which of them run together as one stack."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedlib.runs.engine import engine, rules
from fedlib.runs.lockstep import lockstep
from fedlib.runs.loop import carry_out
from fedlib.runs.plan import Plan, cohort_size, prepare
from fedlib.training.phase import Trainer
from fedlib.training.stacked import AT_ONCE


class Work(NamedTuple):
    """`cells` are arguments of `fl.run`, none of them finished; `groups` are positions of those that go together."""

    cells: list[dict[str, Any]]
    groups: list[list[int]]
    store: str | Path | None


def together(plans: Sequence[Plan]) -> list[list[int]]:
    """Positions of plans that can share a stack: same method, data, model and setting, but for the seed."""
    groups: dict[Any, list[list[int]]] = defaultdict(list)
    for i, plan in enumerate(plans):
        own, federation = plan.setting, plan.federation
        if own.backend != "stacked":
            groups[i] = [[i]]
            continue
        setting = tuple((asdict(own) | {"seed": None}).items())
        method = plan.algorithm.name, repr(plan.algorithm.hyper), repr(plan.config["code"])
        same = groups[*method, federation.data.fingerprint, plan.model.name, setting]
        if not same or (len(same[-1]) + 1) * cohort_size(federation.n_clients, own.join_ratio) > AT_ONCE:
            same.append([])
        same[-1].append(i)
    return [group for same in groups.values() for group in same]


def run_group(cells: Sequence[Mapping[str, Any]], store: str | Path | None, tells: Sequence[Callable[[int], None]]):
    """Run the cells of one group; results go to the run store, rounds done to `tells`, one per cell."""
    plans = [prepare(**cell) for cell in cells]
    with rules(plans[0].setting.device):
        own = engine(plans[0], store)
        if len(plans) == 1:
            return [carry_out(plans[0], own, tells[0], store)]

        def start(plan: Plan, tell: Callable[[int], None]) -> Callable[[Trainer], Any]:
            plan = plan._replace(algorithm=plans[0].algorithm)  # equal, and its loss the same function
            return lambda trainer: carry_out(plan, replace(own, trainer=trainer), tell, store)

        works = [start(plan, tell) for plan, tell in zip(plans, tells, strict=True)]
        return lockstep(works, own.trainer)
