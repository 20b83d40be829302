"""The state of a method as tensors by path, as a checkpoint holds it, and the check that it can be restored."""

import functools
import pickle
import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from fedlib.fingerprint import fingerprint
from fedlib.stack import Shared, Tree, keys

if TYPE_CHECKING:
    from fedlib.training import Cohort

Function = Callable[..., Any]


def flatten(state: Tree) -> dict[str, Tensor]:
    """Tensors of a state by their paths: `state/field/name`. Raises `TypeError` for any other content."""
    for path, value in zip(keys(state), tree_leaves(state), strict=True):
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{'/'.join(path)} in the state of this algorithm is {value!r}; a state consists of tensors, such as "
                f"torch.tensor({value or 0!r})."
            )
    return {"/".join(("state", *path)): t for path, t in zip(keys(state), tree_leaves(state), strict=True)}


def unflatten(tensors: dict[str, Tensor], template: Tree, device: torch.device | str = "cpu") -> Tree:
    """Inverse of `flatten`, on `device`; `template`, a state of the same algorithm, gives the structure."""
    # A `Shared` tree of the template may be a stack in `tensors`, and an empty dict may have entries.

    def read(value: Tree, path: str) -> Tree:
        if isinstance(value, Tensor):
            return tensors[path].to(device)
        if isinstance(value, Shared) and not any(name.startswith(f"{path}/tree/") for name in tensors):
            return read(value.tree, path)
        if isinstance(value, dict) and not value:
            names = [name for name in tensors if name.startswith(f"{path}/")]
            return {name.removeprefix(f"{path}/"): tensors[name].to(device) for name in names}
        if isinstance(value, dict):
            return {name: read(inner, f"{path}/{name}") for name, inner in value.items()}
        if hasattr(value, "_fields"):
            return type(value)(*(read(getattr(value, name), f"{path}/{name}") for name in value._fields))
        return tuple(read(inner, f"{path}/{i}") for i, inner in enumerate(value))

    return read(template, "state")


def resumable(name: str, init: Function, round: Function, own: bool) -> Function:
    """The `round` of a method, with a check that an interrupted run ends with the same bits."""
    # It raises `TypeError` if a checkpoint does not restore the state, and `ValueError` if a method from outside the
    # library (`own`) draws global random numbers of NumPy or Python, or changes a value outside its state in round 1.
    began: dict[str, Any] = {}  # the federation and the structure of the first state

    @functools.wraps(round)
    def checked(state: Tree, cohort: "Cohort") -> Tree:
        first, where, before = cohort.round == 0, f"round {cohort.round + 1} of {name}", keys(state)
        code, drawn = own and first and _code_of(round), own and _global_numbers()
        if first:
            flatten(state)  # raises for anything but tensors
            began["of"] = cohort.federation
            began["as"] = tree_map(functools.partial(torch.empty_like, device="meta"), state)
        new = round(state, cohort)
        if own and drawn != _global_numbers():
            raise ValueError(f"{where} draws random numbers without a seed; use np.random.default_rng(seed), or torch.")
        if own and first and code != _code_of(round):
            raise ValueError(f"{where} changes a value outside its state, which no checkpoint holds.")
        if type(new) is type(state) and (first or keys(new) != before):
            tensors = flatten(new)
            with torch.random.fork_rng([]), suppress(KeyError):  # the round loop names missing entries
                known = began.get("of") is cohort.federation  # else the run was resumed
                template = began["as"] if known else init(cohort.model, cohort.federation)
                if added := {*keys(new)} - {*keys(unflatten(tensors, template, cohort.clients.device))}:
                    text = f"{'/'.join(min(added))} in its state; `init` must return a state with all entries."
                    raise TypeError(f"{where} returned {text}")
        return new

    return checked


def _code_of(round: Function) -> str:
    """Fingerprint of a function and all values that it uses; "" on a machine without its source."""
    with suppress(ValueError):
        return fingerprint(round)
    return ""


def _global_numbers() -> bytes:
    """The states of the global random numbers of NumPy and Python."""
    return pickle.dumps((np.random.get_state(), random.getstate()))  # noqa: NPY002 - just these are meant
