"""Docstrings of public functions describe arguments and results and have an example, which runs as a test."""

import inspect
import re

import pytest

import fedlib as fl
from fedlib import data, models, report, similarity, stack
from fedlib.models import ensemble

MODULES = (fl, data, models, report, similarity, stack, ensemble)
# Methods and builders of models, which all return the same: an `Algorithm`, an `nn.Module`.
LEFT_OUT = ("fedlib.methods.", "fedlib.models.lenet5.", "fedlib.models.mobilenetv2.")


def public() -> dict[str, object]:
    """The functions and classes that the modules offer, by full name."""
    offered = {}
    for module in MODULES:
        for name in getattr(module, "__all__", vars(module)):
            code = getattr(module, name)
            if (inspect.isfunction(code) or inspect.isclass(code)) and code.__module__.startswith(module.__name__):
                offered[f"{code.__module__}.{code.__qualname__}"] = code
    return {n: code for n, code in offered.items() if not (n.startswith(LEFT_OUT) or code.__name__.startswith("_"))}


@pytest.mark.parametrize("name", public())
def test_a_docstring_has_its_sections(name):
    code = public()[name]
    sections = re.findall(r"^(\w+):$", inspect.getdoc(code), re.MULTILINE)
    if inspect.isclass(code):
        assert {"Attributes", "Args"} & set(sections)
        return
    signature = inspect.signature(code)
    assert ">>> " in inspect.getdoc(code)
    assert "Example" in sections
    assert "Args" in sections or not signature.parameters
    assert "Returns" in sections or signature.return_annotation is None
