"""The public surface: what notebooks and methods may import, how it is shown, and its docstrings."""

import ast
import importlib
import inspect
import json
import re
import shutil
from pathlib import Path

import pytest
from processes import python

import fedlib as fl
from fedlib import data, models, report, similarity, stack
from fedlib.models import MODELS, build, ensemble

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PUBLIC = re.compile(
    r"fedlib(\.(algorithm|checks|data|federation|models|report|runs|similarity|stack|training)|\.methods\.\w+|\.papers\.\w+(\.\w+)?)?"
)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_import_the_public_surface_only(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    code = re.sub(r"^(\s*)[%!].*$", r"\1pass", code, flags=re.MULTILINE)
    found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    for module, name in ((node.module, name.name) for node in found for name in node.names):
        if module.startswith("fedlib"):
            assert PUBLIC.fullmatch(module), f"{module} is not public"
            package = importlib.import_module(module)
            assert not name.startswith("_")
            assert name in getattr(package, "__all__", vars(package)) or importlib.import_module(f"{module}.{name}")


def test_what_a_package_lists_is_there_and_neighbouring_folders_have_no_files_of_one_name():
    for module in ("fedlib", "fedlib.data", "fedlib.models", "fedlib.runs", "fedlib.training", "fedlib.report"):
        package = importlib.import_module(module)
        assert [name for name in package.__all__ if not hasattr(package, name)] == []
    names = [path.name for path in (ROOT / "fedlib").glob("*/*.py") if not path.name.startswith("__")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


MODULES = (fl, data, models, report, similarity, stack, ensemble)
# Methods and builders of models, which all return the same: an `Algorithm`, an `nn.Module`.
LEFT_OUT = ("fedlib.methods.", "fedlib.models.lenet5.", "fedlib.models.mobilenetv2.")


def public() -> dict[str, object]:
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


def test_what_people_look_at_is_shown_in_one_line():
    """A result: `tests/test_result.py`."""
    federation = fl.federate(fl.load("digits", copies=1), fl.shards(2), clients=3)
    assert repr(federation) == "digits shards(per_client=2), 3 clients"
    assert repr([fl.iid(), fl.fedprox(mu=0.5)]) == "[iid(), fedprox(mu=0.5)]"
    model = build("lenet5", MODELS["lenet5"], (3, 32, 32), 10, 0)
    n = sum(weight.numel() for weight in model.net.parameters())
    assert repr(model) == f"Model('lenet5': {n:,} trainable weights, images 3x32x32, 10 classes)"
    study = fl.study("pfedmb", "smoke")
    assert repr(study).startswith(f"Study('pfedmb', 'smoke': {len(study.cells)} numbers of ")
    assert repr(study).endswith(" items, 20 claims)")


ONE_FILE = '''"""Twice (nobody, 2026): FedAvg under another name."""

import fedlib as fl
from fedlib.algorithm import Algorithm, algorithm


@algorithm(label="Twice", colour="pink", marker="o")
def twice() -> Algorithm:
    """FedAvg under another name."""
    return fl.fedavg()._replace(name="twice")
'''
FOUND_IN = """
from types import SimpleNamespace
import fedlib as fl
from fedlib.report.playground import Setting
from fedlib.tools.site import evidence, library

assert "twice" in fl.__all__ and "twice" in fl.algorithms()
assert fl.report.label("twice") == "Twice"
assert fl.report.method_style("twice") == fl.report.method_style("ditto") | {"marker": "o", "linestyle": "-"}
assert Setting(method="twice").algorithm().name == "twice"
pages = library.methods(SimpleNamespace(board=evidence.table(evidence.FOLDER / "scoreboard.csv")))
assert "[Twice](twice.html) | `fl.twice` | Twice (nobody, 2026)" in pages["methods/index.md"]
assert "| `twice` | Twice (nobody, 2026) | - |" in library.write_readme()
"""


@pytest.mark.slow
def test_a_method_in_one_file_is_found_everywhere(tmp_path):
    for name in ("fedlib", "figures/reference/evidence", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name)  # with what Python has compiled of it
    (tmp_path / "fedlib/methods/twice.py").write_text(ONE_FILE)
    python("-c", FOUND_IN, cwd=tmp_path)
