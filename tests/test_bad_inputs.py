"""Wrong values for every argument of a public function and every parameter of a notebook: one sentence, no trace."""

import inspect
import math
from pathlib import Path
from types import NoneType
from typing import get_args

import pytest
from refusals import refused

import fedlib as fl
from fedlib.tools import batch
from fedlib.tools.batch import BY_OPTION, cast, read_settings

SOURCES = sorted((Path(__file__).parent.parent / "notebooks").glob("[0-9][1-9]_*.ipynb"))
FUNCTIONS = {name: getattr(fl, name) for name in fl.__all__ if inspect.isfunction(getattr(fl, name))}
WRONG = ["no such value", [], math.nan, None, -1, object()]
CALLED = {"name": "dataset", "base": "algorithm"}  # arguments that the sentence calls by another word
FREE = {"grid", "algorithm"}  # one takes any arguments, the other decorates a function


def wrong_values(name: str, parameter: inspect.Parameter) -> list:
    allowed = {parameter.default} if parameter.default.__hash__ else set()
    allowed |= {None} if NoneType in get_args(parameter.annotation) else set()
    allowed |= {"no such value"} if parameter.name in ("root", "store", "ray", "path", "fresh") else set()
    allowed |= {-1} if (name, parameter.name) == ("pfedbayes", "rho") else set()
    return [value for value in WRONG if not any(value is one or value == one for one in allowed)]


ARGUMENTS = [
    pytest.param(name, parameter.name, wrong_values(name, parameter), id=f"{name}-{parameter.name}")
    for name, function in FUNCTIONS.items()
    if name not in FREE
    for parameter in inspect.signature(function).parameters.values()
    if parameter.kind is not parameter.VAR_KEYWORD
]


def test_every_public_function_with_arguments_is_in_the_matrix():
    without = {name for name, function in FUNCTIONS.items() if not inspect.signature(function).parameters}
    assert {argument.values[0] for argument in ARGUMENTS} | without | FREE == set(FUNCTIONS)
    assert all(argument.values[2] for argument in ARGUMENTS)


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> fl.RunResult:
    federation = fl.federate(fl.load("digits", copies=1), fl.iid(), clients=2)
    setting = dict(model="lenet5_plain", rounds=1, batch_size=256, progress=False)
    return fl.run(fl.private("fedavg"), federation, store=tmp_path_factory.mktemp("runs"), **setting)


@pytest.fixture
def valid(federation, result) -> dict:
    cell = {"algorithm": "fedavg", "federation": federation, "rounds": 1}
    validated = fl.federate(federation.data, fl.iid(), clients=2, validation_fraction=0.2)
    return {
        "dirichlet": {"alpha": 0.5},
        "dirichlet_groups": {"alpha": 0.5},
        "federate": {"data": federation.data, "partition": fl.iid(), "clients": 4},
        "load": {"name": "digits"},
        "study": {"paper": "pfedsim"},
        "compare": {"table": "pfedmb/table1", "algorithm": "fedavg", "profile": "smoke"},
        "run": cell,
        "run_early": cell | {"federation": validated, "patience": 1},
        "early_stopping": {"result": result, "patience": 1},
        "compressed": {"algorithm": "fedavg"},
        "private": {"algorithm": "fedavg"},
        "epsilon": {"result": result, "federation": fl.federate(fl.load("digits", copies=1), fl.iid(), clients=2)},
        "export": {"result": result, "client": 0},
        "pretrained": {"model": "lenet5_plain", "weights": result.weights(0)},
        "sweep": {"cells": [cell]},
    }


@pytest.mark.parametrize(("name", "argument", "values"), ARGUMENTS)
def test_a_wrong_value_is_one_sentence_that_names_the_argument(name, argument, values, valid, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in values:
        refused(CALLED.get(argument, argument), FUNCTIONS[name], **valid.get(name, {}) | {argument: value})
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_cell_of_a_sweep_is_named():
    refused("number of cells=0 is not allowed", fl.sweep, [], progress=False)
    refused(r"cells\[0\] is of type int; it must be a dict", fl.sweep, [3], progress=False)
    refused(r"cells\[0\] lacks 'federation'", fl.sweep, [{"algorithm": "fedavg"}], progress=False)


def test_a_method_is_called_by_its_hyper_parameters_and_has_a_name_of_its_own(federation):
    unknown = "hyper-parameter of pfedsim='generalisation' is unknown .did you mean 'generalization'"
    refused(unknown, fl.pfedsim, generalisation=0.5)
    kind = r"algorithm is of type function; it must be a method, such as fl.fedavg\(\)"
    refused(kind, fl.run, fl.fedavg, federation, rounds=1)
    refused("algorithm is of type Federation; it must be a method", fl.run, federation, "fedavg", rounds=1)

    def fedavg():
        return fl.local_only()

    refused("fedavg is the name of a method of the library", fl.algorithm, fedavg)
    assert fl.run("fedavg", federation, rounds=1, progress=False).config["algorithm"] == "fedavg"


@pytest.mark.parametrize(("name", "value"), [("store", "runs"), ("progress", False), ("debug", True)])
def test_what_all_runs_of_a_sweep_share_is_said_once(name, value, federation, tmp_path):
    cell = {"algorithm": "fedavg", "federation": federation, "rounds": 1}
    with pytest.raises(ValueError, match=rf"cells\[0\] holds '{name}', .*; use fl\.(sweep|run)\(.*{name}="):
        fl.sweep([cell | {name: value}], store=tmp_path)
    with_checkpoints = fl.sweep([cell | {"checkpoint_seconds": 5}], progress=False, store=tmp_path, jobs=1)
    assert with_checkpoints.results[0].folder == fl.run(**cell, progress=False, store=tmp_path).folder


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_wrong_parameter_of_a_notebook_is_one_sentence(source):
    known = batch.defaults(source)
    for name, default in known.items():
        assert name in BY_OPTION or cast(default, default) == default
        for value in wrong(default):
            refused(f"{name}=", read_settings, source, known, [f"{name}={value}"])


def wrong(default) -> list[str]:
    """Values, as source code, that a parameter with this default refuses."""
    if isinstance(default, list):
        return ["1", "text", *(f"[{value}]" for value in wrong(default[0]) if default)] if default else ["1", "text"]
    if isinstance(default, bool):
        return ["1", "text"]
    if isinstance(default, int | float):
        return ["text", "true", "-1", "[1]", ".nan", ".inf"]
    return []  # what is typed is the text
