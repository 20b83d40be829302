"""A number is never older than its code: an edit makes a new run, a new wording does not."""

import contextlib
import copy
import functools
import gc
import importlib
import json
import linecache
import pickle
import shutil
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from cloudpickle import dumps, loads
from processes import start
from refusals import refused
from trees import same_bits

import fedlib as fl
from fedlib.fingerprint import each_once, fingerprint
from fedlib.fingerprint.syntax import _source
from fedlib.runs.prepare import portable, prepare
from fedlib.runs.store import address

PACKAGE = Path(fl.__file__).parent
SETTING = dict(rounds=1, join_ratio=0.5, batch_size=8, lr=0.05, progress=False)
THIN = {"m1_thin", "m2_thin", "m3_thin", "m4_thin"}
POOLED = THIN | {"lenet4", "lenet5", "lenet5_bn", "lenet5_plain", "m1", "m2", "m3", "m4", "fedkemf", "library stacked"}
EVERY_RUN = {"library loop", "library stacked"}  # what all runs with a backend have in common
AVERAGING = {"fedavg", "ditto", "fedalt", "fedsim", "pfedsim", "fedcs"}  # by `fedavg_round`; fedcs around FedAvg

EDITS = {  # a helper of every kind: file, what stands there, what shall, and what is to be run again
    "server rule of one method": ("methods/pfedmb.py", "total > 1e-12).view", "total > 1e-9).view", {"pfedmb"}),
    "round that several share": ("methods/fedavg.py", "_samples)\n\n\n@", "_samples**2)\n\n\n@", AVERAGING),
    "constant beside a method": ("methods/fedpac.py", "SMALLEST = 1e-3", "SMALLEST = 1e-2", {"fedpac"}),
    "similarity": ("similarity.py", "distance.clamp(min=cap).log()", "distance.clamp(min=cap).sqrt()", {"pfedsim"}),
    "alignment": ("methods/fedcs/alignment.py", "(moved + moved.T) / 2", "(moved + moved.T) / 3", {"fedcs"}),
    "lambda in a table": ("methods/fedcs/alignment.py", "S, W: 0.001, lambda", "S, W: 0.002, lambda", {"fedcs"}),
    "search": ("methods/pfedhr/search.py", "pieces[i].h, next_network", "-pieces[i].h, next_network", {"pfedhr"}),
    "class that others hold": ("training/channel.py", "times * self._weight", "2 * self._weight", EVERY_RUN),
    "batches": ("training/batches.py", "// per_step, 1), per_step", "// per_step, 2), per_step", EVERY_RUN),
    "loss": ("training/losses.py", "batch.x), batch.y)", "batch.x), batch.y, label_smoothing=0.1)", EVERY_RUN),
    "loop backend": ("engine/loop.py", "alpha=-phase.lr)", "alpha=-2 * phase.lr)", {"library loop"}),
    "stacked backend": ("engine/program.py", "sqrt() + EPSILON", "sqrt() + 2 * EPSILON", {"library stacked"}),
    "evaluation": ("training/evaluation.py", "out.argmax(1) == y", "out.argmin(1) == y", EVERY_RUN),
    "normalisation": ("training/batches.py", "shift=-mean / std", "shift=-mean", EVERY_RUN),
    "random streams": ("streams.py", "json.dumps(stream)", "json.dumps([*stream, 0])", EVERY_RUN),
    "initial weights": ("models/model.py", '"weights", *names, j', '"weights", j, *names', EVERY_RUN),
    "weights of a plan": ("runs/prepare.py", "t.to(checked.torch_dtype)", "2 * t.to(checked.torch_dtype)", EVERY_RUN),
    "what a setting adds": ("runs/prepare.py", ".dropout, checked.s", ".stragglers, checked.s", EVERY_RUN),
    "history": ("runs/history.py", "100 * correct[part]", "99 * correct[part]", EVERY_RUN),
    "cached loss": ("methods/fedcs/ra_module.py", "*others, tensors =", "tensors, *others =", {"fedcs"}),
    "cached table": ("models/pooling.py", "return 2 * width * torch", "return 3 * width * torch", POOLED),
    "widths of a model": ("models/m1_to_m4.py", "(10, 64, 50)", "(10, 64, 51)", {"m1", "m1_thin", "fedkemf"}),
    "how thin a model is": ("models/__init__.py", '"m1": 2, "m2"', '"m1": 3, "m2"', {"m1_thin"}),
    "a supervisor": ("methods/fedsimsup/supervisors.py", "nn.Linear(16, n_", "nn.Linear(16, 1 * n_", {"fedsimsup"}),
}  # fmt: skip
REWORDED = {  # nothing is to be run again
    "a docstring": ("methods/fedavg.py", "With a single client this is local SGD.", "Local SGD for one client."),
    "a comment": ("methods/fedprox.py", "# ONE client", "# one client"),
    "formatting": ("training/losses.py", "return F.cross_entropy(batch.model(w, batch.x), batch.y)",
                   "return F.cross_entropy(\n        batch.model(w, batch.x),\n        batch.y,\n    )"),
    "annotations": ("methods/fedprox.py", "mu: NonNegative = 1.0) -> Algorithm:", "mu: float = 1.0) -> object:"),
    "the words of an error": ("algorithm.py", "public images; use federate", "public images: use federate"),
    "how a result is shown": ("runs/result.py", "% over all test images", "% over the test images"),
    "how a federation is shown": ("federation/federation.py", "return str(self)", "return f'<{self}>'"),
    "a cohort that is shown": ("training/cohort.py", "    def subset(",
                               "    def __repr__(self):\n        return 'cohort'\n\n    def subset("),
    "a check": ("checks.py", "allowed = sorted(allowed)", "allowed = sorted(set(allowed))"),
    "a new check": ("methods/fedprox.py", "        start = c", "        check_count('n', 1)\n        start = c"),
    "the store": ("runs/store.py", "remove_unfinished(self.path)", "remove_unfinished(Path(self.path))"),
    "a new model": ("models/__init__.py", "resnet18, resnet18_gn)}", "resnet18, resnet18_gn)} | {'other': m1}"),
    "a partition": ("federation/partition.py", "MAX_DRAWS = 1_000", "MAX_DRAWS = 2_000"),  # who owns what counts
}  # fmt: skip


def apart() -> list[list[str]]:
    """Names of edits that reach different things and can be made in one copy."""
    groups: list[list[str]] = []
    for name, (*_, reached) in EDITS.items():
        taken = [set.union(*(EDITS[other][3] for other in own)) for own in groups]
        free = (own for own, by in zip(groups, taken, strict=True) if not (reached & by or by <= EVERY_RUN))
        fits = None if reached <= EVERY_RUN else next(free, None)
        groups.append([name]) if fits is None else fits.append(name)
    return groups


def read(tell, work: Path, edits: dict[str, list[tuple[str, str, str]]]) -> None:
    """Of a copy of the package, edited in one way after the other: the fingerprints of methods, models and backends."""
    sys.path.insert(0, str(work))
    sys.dont_write_bytecode = True
    gc.disable()  # it would look through all of PyTorch again and again
    for name, edit in edits.items():
        shutil.rmtree(work / "fedlib", ignore_errors=True)
        shutil.copytree(PACKAGE, work / "fedlib")  # with what Python has compiled of it
        for file, old, new in edit:
            source = (work / "fedlib" / file).read_text()
            assert source.count(old) == 1, (file, old, source.count(old))
            (work / "fedlib" / file).write_text(source.replace(old, new))
        for module in [module for module in sys.modules if module.partition(".")[0] == "fedlib"]:
            del sys.modules[module]
        import fedlib
        from fedlib.fingerprint import fingerprint
        from fedlib.models import MODELS
        from fedlib.runs.prepare import library

        assert fedlib.__file__.startswith(str(work))
        found = {f"library {backend}": library(backend) for backend in ("loop", "stacked")}
        if EDITS.get(name, [{}])[-1] is not EVERY_RUN:
            found |= {name: fingerprint(*getattr(fedlib, name)().made_of) for name in fedlib.algorithms()}
            found |= {name: fingerprint(builder) for name, builder in MODELS.items() if name != "other"}
        tell((name, found))


@pytest.fixture(scope="module")
def changed(tmp_path_factory) -> dict[str, set[str]]:
    """For every edited copy of the package: the methods, models and backends that get another fingerprint."""
    edits = {"": []} | {own[0]: [EDITS[name][:3] for name in own] for own in apart()}
    edits["reworded"] = list(REWORDED.values())
    process, told = start(read, tmp_path_factory.mktemp("copy"), edits)
    found = dict(told)
    process.join()
    assert process.exitcode == 0
    plain = found.pop("")
    assert len(set(plain.values())) > len(plain) - 4  # SiloBN and the like apart, no two are the same
    return {name: {what for what, value in own.items() if value != plain[what]} for name, own in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("edits", apart(), ids="; ".join)
def test_an_edited_helper_is_a_new_run_of_whatever_reaches_it(edits, changed):
    expected = set.union(*(EDITS[edit][3] for edit in edits))
    assert (changed[edits[0]] >= EVERY_RUN) if EDITS[edits[0]][3] is EVERY_RUN else (changed[edits[0]] == expected)


@pytest.mark.slow
def test_what_is_only_reworded_is_the_same_run(changed):
    assert changed["reworded"] == set()


# The user's own code; changes in cells: below

MINE = """
    import torch
    import fedlib as fl
    from fedlib.algorithm import Algorithm, Global, one_for_all, init_global
    from fedlib.stack import client_mean
    from fedlib.training import cross_entropy, train

    RATE = 0.5

    def weight(n):
        \"\"\"Of a client.\"\"\"
        return n * RATE

    @fl.algorithm
    def mine(power: int = 1):
        def round(state, cohort):
            w = cohort.receive(train(cohort, cross_entropy, cohort.broadcast(state.w)))
            return Global(client_mean(w, weight(cohort.n_samples) ** power))

        return Algorithm("mine", init_global, round, models=one_for_all)
"""


def in_a_file(source: str, folder: Path, name: str = "my_method"):
    """A module of the user's, imported from a file."""
    (folder / f"{name}.py").write_text(textwrap.dedent(source))
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def in_a_cell(source: str, place: str, space: dict) -> dict:
    """What a notebook does: the source is only in Python's cache of lines."""
    source = textwrap.dedent(source)
    linecache.cache[place] = len(source), None, source.splitlines(keepends=True), place
    exec(compile(source, place, "exec"), space)
    return space


def code_of(method) -> str:
    return fingerprint(*method.made_of)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    sys.modules.pop("my_method", None)


@pytest.mark.parametrize("new", ["n + RATE", "n * RATE * 1"])
def test_code_that_has_changed_between_its_import_and_its_first_run_is_refused(new, folder, federation, run_store):
    """What is in the memory is the old code; its numbers must not get the address of the new one, nor do they later."""
    method = in_a_file(MINE, folder).mine()
    (folder / "my_method.py").write_text(textwrap.dedent(MINE.replace("n * RATE", new)))
    refused("has changed since weight was imported from it; restart Python", fl.run, method, federation, **SETTING)
    assert not run_store.exists()
    (folder / "my_method.py").write_text("\n\n# a comment\n" + textwrap.dedent(MINE).replace("Of a client", "Of each"))
    first = fl.run(method, federation, **SETTING).folder
    (folder / "my_method.py").write_text(textwrap.dedent(MINE.replace("n * RATE", new)))
    assert fl.run(method, federation, **SETTING).folder == first


def test_code_that_is_replaced_in_its_place_counts(folder):
    """As the extension autoreload does it: the function stays, its code is another one."""
    module = in_a_file(MINE, folder)
    method, before = module.mine(), code_of(module.mine())
    (folder / "my_method.py").write_text(textwrap.dedent(MINE.replace("n * RATE", "n + RATE")))
    module.weight.__code__ = in_a_cell("def weight(n):\n    return n + RATE", module.__file__, {})["weight"].__code__
    assert code_of(method) != before


def test_a_worker_without_the_source_takes_the_fingerprint_that_was_taken_where_it_is(federation):
    space = in_a_cell(MINE, "<cell 9>", {"__name__": "__main__"})
    method = space["mine"]()
    plan = prepare(method, federation, rounds=1)
    sent, bare = (pickle.loads(cloudpickle.dumps(own)) for own in (portable(method), method))
    del linecache.cache["<cell 9>"]
    _source.cache_clear()  # another process has read nothing yet
    assert prepare(sent, federation, rounds=1).config == plan.config
    refused("the source of mine cannot be found; define it in a file or", prepare, bare, federation, rounds=1)
    assert portable(fl.fedcs()).made_of == fl.fedcs().made_of  # so a worker with another version of it is noticed


@pytest.mark.parametrize(
    ("where", "real"),
    [("training.metrics", "scipy.stats"), ("similarity", "scipy.stats"), ("methods.fedpac", "scipy.optimize"),
     ("methods.pfedhr.grouping", "kmedoids")],
)  # fmt: skip
def test_what_is_imported_late_has_the_fingerprint_of_what_it_stands_for(where, real):
    """So that a faster import leaves the address of every run as it is."""
    late = getattr(importlib.import_module(f"fedlib.{where}"), real.rpartition(".")[2])
    assert late is not importlib.import_module(real)
    assert fingerprint(late) == fingerprint(importlib.import_module(real))


@pytest.mark.parametrize("folder", ["dist-packages", "site-packages"])
def test_installed_packages_are_known_by_their_names_wherever_they_are(folder, tmp_path, monkeypatch):
    """A user's or a system's packages are not in the environment's own folder."""
    (tmp_path / folder).mkdir()
    file = tmp_path / folder / "of_the_system.py"
    file.write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(file.parent)
    import of_the_system

    file.write_text("def f():\n    return 22\n")
    assert fingerprint(of_the_system.f)  # the source of other code must not have changed
    monkeypatch.delitem(sys.modules, "of_the_system")


def test_what_pip_has_put_into_a_folder_of_its_own_is_installed_and_what_stands_beside_it_is_not(folder):
    (folder / "theirs").mkdir()
    (folder / "theirs" / "__init__.py").write_text("N = 2\ndef two(): return N\n")
    (folder / "theirs-1.0.dist-info").mkdir()
    (folder / "theirs-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (folder / "theirs-1.0.dist-info" / "RECORD").write_text("theirs/__init__.py,,\n")
    mine = in_a_file("import theirs\nM = 1\ndef own(): return M * theirs.two()\n", folder)
    first = fingerprint(mine.own)
    mine.theirs.N = 3
    assert fingerprint(mine.own) == first
    mine.M = 2
    assert fingerprint(mine.own) != first


def test_a_fingerprint_does_not_depend_on_what_has_been_imported_before(monkeypatch):
    def is_known(check):
        from lzma import is_check_supported  # which is defined in another module

        return is_check_supported(check)

    monkeypatch.delitem(sys.modules, "lzma", raising=False)
    before = fingerprint(is_known)
    importlib.import_module("lzma")
    assert fingerprint(is_known) == before


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        ("def f(x, n):\n    return x + n", True),
        ("def f(x, n):\n    x = check_number('x', x, low=0)\n    _check_sum(x, n)\n    return x + n", True),
        ("def f(x, n):\n    for k in (): pass\n    return x + n", False),
        ("def f(x, n):\n    return check_count('x', n) + n", False),
        ("def f(x, n):\n    n = check_count('x', x)\n    return x + n", False),
        ("def f(x, n):\n    recheck_count('n', n)\n    return x + n", False),
        ("def f(x, n):\n    n.check_count('n', n)\n    return x + n", False),
    ],
)
def test_checks_of_the_library_are_not_hashed(other, equal, folder):
    """In the user's code everything is, because a function that is called `check_…` may do anything there."""
    texts = {}
    for text in ("def f(x, n):\n    check_count('n', n)\n    return x + check_count('n', n, low=2)", other):
        code = in_a_file(text, folder).f.__code__
        for library in (True, False):
            texts.setdefault(library, []).append(_source(code, code.co_filename, library)[:2])
    assert (texts[True][0] == texts[True][1]) == equal
    assert texts[False][0] != texts[False][1]


def test_the_same_code_is_read_once_inside_a_block_and_again_after_it(folder):
    mine = in_a_file("M = 1\ndef own(): return M\ndef other(): return 2 * M\n", folder)
    first = fingerprint(mine.own)
    with each_once():
        assert fingerprint(mine.own) == first != fingerprint(mine.other)
        assert fingerprint(mine.own, mine.other) not in (first, fingerprint(mine.other))
        mine.M = 2
        assert fingerprint(mine.own) == first
        assert len({fingerprint(functools.partial(mine.own, k)) for k in range(50)}) == 50  # each gone before the next
    assert fingerprint(mine.own) != first


METHOD = """
    import functools, os, random, sys, time, types
    from collections import defaultdict
    from dataclasses import dataclass, field
    from datetime import datetime
    from enum import Enum
    from pathlib import Path
    from typing import NamedTuple
    import numpy as np
    import torch
    from torch import nn
    import fedlib as fl
    from fedlib.algorithm import Algorithm, Global, init_global, one_for_all
    from fedlib.stack import client_mean
    from fedlib.training import cross_entropy, train

    def scale():
        return 1.0

    net = "lenet5"

    def loss(w, batch):
        return scale() * cross_entropy(w, batch)

    @fl.algorithm
    def mine():
        def round(state, cohort):
            w = cohort.receive(train(cohort, loss, cohort.broadcast(state.w)))
            return Global(client_mean(w, cohort.n_samples))

        return Algorithm("mine", init_global, round, models=one_for_all)

    method = mine()
"""
MODULES = ("config", "this")  # of the user; Python has a module `this`, too
NET = """
class Net(nn.Module):
    width = 8

    def __init__(self, shape, n_classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(256, self.width), nn.ReLU())
        self.head = nn.Linear(self.width, n_classes)

    def forward(self, x):
        return self.head(self.layers(x))
"""
NEW = {  # what is defined, an expression for `scale()` or none, and what changes it
    "an attribute of a class": ("class Cfg: s = 2", "Cfg.s", "Cfg.s = 3"),
    "an inherited attribute": ("class A: s = 2\nclass B(A): t = 1", "B.s", "A.s = 3"),
    "an attribute of a metaclass": ("class Meta(type): s = 2\nclass Cfg(metaclass=Meta): t = 1", "Cfg.s", "Meta.s = 3"),
    "a property": ("class Cfg:\n    @property\n    def s(self): return 2", "Cfg().s", "Cfg.s = property(lambda _: 3)"),
    "a static method": ("class Cfg:\n    @staticmethod\n    def s(): return 2", "Cfg.s()",
        "def three(): return 3\nCfg.s = staticmethod(three)"),
    "a default of a method": ("class Cfg:\n    def s(self, t=2): return t", "Cfg().s()", "Cfg.s.__defaults__ = (3,)"),
    "a partial method": ("class Cfg:\n    def t(self, n): return n\n    s = functools.partialmethod(t, 2)", "Cfg().s()",
        "Cfg.s = functools.partialmethod(Cfg.t, 3)"),
    "a cached property": ("class Cfg:\n    t = 2\n    @functools.cached_property\n    def s(self): return self.t",
        "Cfg().s", "Cfg.t = 3"),
    "the function of a cached property": ("class Cfg:\n    @functools.cached_property\n    def s(self): return 2",
        "Cfg().s", "Cfg.s.func = lambda _: 3"),
    "a descriptor": ("class Two:\n    def __get__(self, *_): return 2\nclass Cfg: s = Two", "Cfg.s()",
        "Two.__get__ = lambda *_: 3\n"),
    "a data class": ("@dataclass\nclass Cfg: s: int = 2\nCFG = Cfg()", "CFG.s", "CFG.s = 3"),
    "a default of a data class": ("@dataclass\nclass Cfg: s: int = 2", "Cfg().s", "@dataclass\nclass Cfg: s: int = 3"),
    "a factory of a data class": ("@dataclass\nclass Cfg: s: list = field(default_factory=lambda: [2])", "Cfg().s[0]",
        "@dataclass\nclass Cfg: s: list = field(default_factory=lambda: [3])"),
    "one beside the fields": ("@dataclass\nclass Cfg: s: int = 2\nCFG = Cfg()", "getattr(CFG, 't', 1)", "CFG.t = 3"),
    "a data class with slots": ("@dataclass(slots=True)\nclass Cfg: s: int = 2\nCFG = Cfg()", "CFG.s", "CFG.s = 3"),
    "a member of an enumeration": ("class Mode(Enum): A = 2", "Mode.A.value", "class Mode(Enum): A = 3"),
    "a method of an enumeration": (
        "class Mode(Enum):\n    A = 2\n    def s(self): return 2\nMODE = Mode.A", "MODE.s()", "Mode.s = lambda _: 3"),
    "a default of a named tuple": ("class Cfg(NamedTuple): s: int = 2", "Cfg().s", "class Cfg(NamedTuple): s: int = 3"),
    "a method of a named tuple": (
        "class Cfg(NamedTuple):\n    s: int = 2\n    def t(self): return 2\nCFG = Cfg()", "CFG.t()",
        "Cfg.t = lambda self: 3"),
    "a namespace": ("CFG = types.SimpleNamespace(s=2)", "CFG.s", "CFG.s = 3"),
    "a number of a class of its own": (
        "class Twice(float):\n    def __mul__(self, other): return 2 * float(self) * other\nS = Twice(2)", "S",
        "Twice.__mul__ = lambda self, other: other"),
    "a dict of a class of its own": (
        "class Dict(dict):\n    def __missing__(self, key): return 2\nD = Dict()", "D['s']",
        "Dict.__missing__ = lambda self, key: 3"),
    "an attribute of a list of its own class": ("class List(list): pass\nD = List([1])\nD.s = 2", "D.s", "D.s = 3"),
    "the factory of a default dict": ("D = defaultdict(lambda: 2)", "D['s']", "D.default_factory = lambda: 3"),
    "an attribute of a function": ("def scale(): return scale.s\nscale.s = 2", "", "scale.s = 3"),
    "a variable around a class": ("def maker(width):\n" + textwrap.indent(NET.replace("self.width", "width"), "    ")
        + "\n    return Net\nnet = maker(8)", "", "net = maker(16)"),
    "a class that is defined again": (NET + "\nnet = Net", "", NET.replace("nn.ReLU", "nn.Tanh") + "\nnet = Net"),
    "a wrapper around a function": (
        "def times(f, s):\n    @functools.wraps(f)\n    def call(*a): return s * f(*a)\n    return call\n"
        "def one(): return 1\nscale = times(one, 2)", "", "scale = times(one, 3)"),
    "what a wrapper does": (
        "def times(f):\n    @functools.wraps(f)\n    def call(*a): return 2 * f(*a)\n    return call\n"
        "def one(): return 1\nscale = times(one)", "",
        "def times(f):\n    @functools.wraps(f)\n    def call(*a): return 3 * f(*a)\n    return call\n"
        "scale = times(one)"),
    "what a decorator does": (
        "def times(f):\n    @functools.wraps(f)\n    def call(*a): return 2 * f(*a)\n    return call\n@times", "1",
        "def times(f):\n    @functools.wraps(f)\n    def call(*a): return 3 * f(*a)\n    return call\n"),
    "what a wrapper of PyTorch holds": (
        "def total(x, y): return (x * y).sum()\nf = torch.vmap(total, in_dims=(0, None))",
        "f(torch.eye(2), torch.eye(2)).sum()", "f = torch.vmap(total, in_dims=(None, 0))"),
    "a helper of a cached one": ("def one(): return 1.0\n@functools.lru_cache", "2 * one()", "def one(): return 3.0"),
    "one of two definitions": ("FAST = True\nif FAST:\n    def scale(): return 2\nelse:\n    def scale(): return 1", "",
        "if FAST:\n    def scale(): return 3\nelse:\n    def scale(): return 1"),
    "a function of autograd": (
        "class F(torch.autograd.Function):\n    s = 2\n    @staticmethod\n    def forward(ctx, x): return F.s * x\n"
        "    @staticmethod\n    def backward(ctx, g): return F.s * g", "F.apply(torch.ones(()))", "F.s = 3"),
    "a member of a set": ("S = {'a', 'b'}", "len(S)", "S.add('c')"),
    "an array": ("S = np.ones(3)", "S[0]", "S[0] = 2"),
    "a tensor in half precision": ("S = torch.ones(3, dtype=torch.bfloat16)", "S[0]", "S[0] = 2"),
    "another type of the same values": ("S = (1, 2)", "S", "S = [1, 2]"),
    "True for 1": ("S = 1", "S", "S = True"),
    "a round that is defined again": ("", "", textwrap.dedent(METHOD).replace("n_samples)", "n_samples**2)")),
    "a default of a hyper-parameter": ("@fl.algorithm\ndef other(s=1):\n    return fl.fedavg()\nmethod = other()", "",
        "@fl.algorithm\ndef other(s=2):\n    return fl.fedavg()\nmethod = other()"),
    "a round that is replaced": ("def round(state, cohort): return state\nmethod = mine()._replace(round=round)", "",
        "def round(state, cohort): return state._replace()\nmethod = mine()._replace(round=round)"),
    "a hyper-parameter that is a function": (
        "def two(): return 2\n@fl.algorithm\ndef other(f=two):\n    return fl.fedavg()\nmethod = other()", "",
        "def two(): return 3\nmethod = other(two)"),
    "a hyper-parameter that is an array": (
        "@fl.algorithm\ndef other(s):\n    return fl.fedavg()\nmethod = other(np.ones(2))", "",
        "method = other(np.zeros(2))"),
    "a constant of another module": ("import config", "config.S", "config.S = 3"),
    "a constant that a function imports": (
        "def scale():\n    from config import S\n    return S", "", "import config\nconfig.S = 3"),
    "a constant that a function of another module reads": ("import config", "config.read()", "config.S = 3"),
    "a constant of a module that is named like one of Python": ("import this", "this.read()", "this.S = 3"),
    "a partial": ("scale = functools.partial(float, 2)", "", "scale = functools.partial(float, 3)"),
    "what a lambda holds": ("def maker(s): return lambda: s\nscale = maker(2)", "", "scale = maker(3)"),
    "a default that is a lambda": ("def scale(f=lambda: 2): return f()", "", "def scale(f=lambda: 3): return f()"),
    "one of two lambdas in a line": ("f, g = lambda: 2, lambda: 3\nh = f", "h()", "h = lambda: 3"),
    "the other of two lambdas in a line": ("f, g = lambda: 2, lambda: (lambda: 3)()\nh = f", "h()", "h = g"),
}  # fmt: skip
REFUSED = {  # what is defined, and what the sentence names
    "the environment": ("def scale(): return float(os.environ['S'])", "os.environ"),
    "the environment by a function": ("def scale(): return float(os.getenv('S', '1'))", "os.getenv"),
    "the environment by its name": ("from os import environ\ndef scale(): return len(environ)", "environ"),
    "the environment in an import": ("def scale():\n    from os import environ\n    return len(environ)", "environ"),
    "the environment of a model": (
        "def net(shape, n): return nn.Sequential(nn.Flatten(), nn.Linear(256, n), nn.Linear(n, n, len(os.environ)))",
        "os.environ"),
    "a file": ("def scale(): return float(open('s.txt').read())", "open"),
    "a path": ("def scale(): return float(Path('s.txt').read_text())", "read_text"),
    "an array in a file": ("def scale(): return np.load('s.npy')", "np.load"),
    "weights in a file": ("def scale(): return torch.load('s.pt')", "torch.load"),
    "the time": ("def scale(): return time.time() % 2", "time.time"),
    "the date": ("def scale(): return datetime.now().day", "datetime.now"),
    "Python's random numbers": ("def scale(): return random.random()", "random.random"),
    "NumPy's random numbers": ("def scale(): return np.random.normal()", "np.random.normal"),
    "a generator without a seed": ("def scale(): return np.random.default_rng().normal()", "np.random.default_rng"),
    "a generator": ("RNG = np.random.default_rng(0)\ndef scale(): return RNG.normal()", "RNG is or holds a Generator"),
    "a generator of a class": ("class Cfg: rng = np.random.default_rng(0)\ndef scale(): return Cfg.rng.random()",
        "rng is or holds a Generator"),
    "all globals": ("def scale(): return globals()['S']", "globals"),
    "source in a text": ("S = '2'\ndef scale(): return eval(S)", "eval"),
    "a function without a source": ("exec('def scale(): return 2')", "the source of scale cannot be found"),
    "a module as a whole": ("import config\ndef scale(): return getattr(config, 'S')", "the module config is used as"),
    "an object": ("class Cfg: pass\nCFG = Cfg()\ndef scale(): return CFG.s", "CFG is or holds a Cfg"),
    "a method of an object": ("class Cfg:\n    def s(self): return 2\nscale = Cfg().s", "scale is or holds a Cfg"),
    "a list in itself": ("S = []\nS.append(S)\ndef scale(): return len(S)", "S is or holds a value that contains"),
    "objects in an array": ("S = np.array([{}])\ndef scale(): return S", "S is or holds an array of objects"),
    "an open file": ("S = open(os.devnull)\ndef scale(): return S.read()", "S is or holds a TextIOWrapper"),
}  # fmt: skip
HARMLESS = {  # what is defined, and what is defined again
    "a seeded generator": ("def scale(): return np.random.default_rng(0).normal()",) * 2,
    "a pause": ("def scale(): return time.sleep(0) or 1",) * 2,
    "a class": ("class Cfg: s = 2\ndef scale(): return Cfg.s",) * 2,
    "an import": ("def scale():\n    import torch.nn.functional as F\n    return F.relu(torch.ones(()))",) * 2,
    "a decorator of PyTorch": ("@torch.no_grad()\ndef scale(): return 2",) * 2,
    "a name of the library": ("def scale(): return fl.load.__doc__ and 1",) * 2,
    "a lambda in another line": ("scale = lambda: 2", "# two\n\nscale = lambda: 2"),
    "an annotation": ("def scale(s: int = 1): return s", "def scale(s: float = 1): return s"),
    "comments and docstrings": ("def scale(): return 2", "def scale() -> int:\n    'Two.'\n    return 2  # two"),
    "another class that is not used": ("class Cfg: s = 2\ndef scale(): return 2", "class Cfg: s = 3"),
}  # fmt: skip


@pytest.fixture
def cell(tmp_path, monkeypatch):
    """Executes cells in one namespace, and returns the address of the run of its `method` and `net`."""
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text("S = 2\ndef read(): return S\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    space, count = {"__name__": "__main__"}, iter(range(99))

    def execute(source):
        in_a_cell(source, f"<{tmp_path.name} {next(count)}>", space)

    execute(METHOD)
    execute.space, execute.folder = space, tmp_path
    yield execute
    for name in MODULES:
        sys.modules.pop(name, None)
    getattr(space.get("S"), "close", int)()


def runs_of(cell, federation, *sources: str) -> list[str]:
    """The address of the run after each of these cells."""
    addresses = []
    for source in sources:
        cell(source)
        addresses.append(address(prepare(cell.space["method"], federation, cell.space["net"], rounds=1).config))
    return addresses


@pytest.mark.parametrize("case", NEW)
def test_what_is_changed_is_a_new_run(case, cell, federation):
    define, scale, change = NEW[case]
    first = f"{define}\ndef scale(): return {scale}" if scale else define
    before, again, after, later = runs_of(cell, federation, first, "", change, "")
    assert before == again != after == later


@pytest.mark.parametrize("case", REFUSED)
def test_what_nothing_tells_is_refused_in_one_sentence(case, cell, federation):
    define, names = REFUSED[case]
    assert names in refused(r"cannot be fingerprinted|source of", runs_of, cell, federation, define)


@pytest.mark.parametrize("case", HARMLESS)
def test_what_changes_nothing_is_the_same_run(case, cell, federation):
    assert len(set(runs_of(cell, federation, *HARMLESS[case]))) == 1


def test_a_cache_is_emptied_before_its_function_is_used_again(cell, federation):
    cached = "def one(): return 1.0\n@functools.lru_cache\ndef scale(): return 2 * one()"
    for source, value in ((cached, 2), ("def one(): return 3.0", 6)):
        runs_of(cell, federation, source)
        assert cell.space["scale"]() == value


COPIED = {"itself": lambda value: value, "a copy": copy.deepcopy, "another process": lambda v: loads(dumps(v))}


@pytest.mark.parametrize("copied", COPIED)
def test_images_and_labels_and_whose_they_are_cannot_be_changed_in_place(copied, tiny):
    federation = COPIED[copied](fl.federate(tiny, fl.iid(), clients=3, validation_fraction=0.2))
    for array in ("data.x", "data.y", "data.split", "data.x.flat", "train[1]", "validation[1]", "test[1]"):
        with pytest.raises(ValueError, match="read-only"):
            exec(f"federation.{array}[0] = 1", {"federation": federation})


@contextlib.contextmanager
def set_to(setter, value, default):
    setter(value)
    try:
        yield
    finally:
        setter(default)


OUTSIDE = {  # settings of torch that belong to a user's notebook, not to a run
    "float64": lambda: set_to(torch.set_default_dtype, torch.float64, torch.float32),
    "another device": lambda: torch.device("meta"),
    "half precision": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "faster products": lambda: set_to(torch.set_float32_matmul_precision, "medium", "highest"),
    "a seed": lambda: set_to(torch.manual_seed, 7, 0),
    "one more thread": lambda: set_to(torch.set_num_threads, 2, torch.get_num_threads()),
}

USUAL = dict(rounds=2, lr=0.05, tune_epochs=1, progress=False)


@pytest.fixture(scope="module")
def as_usual(federation, tmp_path_factory) -> fl.RunResult:
    return fl.run("pfedsim", federation, **USUAL, store=tmp_path_factory.mktemp("usual"))


@pytest.mark.parametrize("setting", OUTSIDE)
def test_what_torch_is_set_to_outside_of_a_run_changes_no_bit(setting, federation, as_usual):
    with OUTSIDE[setting]():
        found = fl.run("pfedsim", federation, **USUAL)
    assert same_bits(found.models, as_usual.models)
    assert found.accuracy.equals(as_usual.accuracy)


def test_runs_in_threads_have_the_bits_of_runs_one_after_the_other(federation, tmp_path):
    """PyTorch has one random state for all threads."""

    def trained(seed, store):
        return fl.run("fedper", federation, rounds=2, lr=0.05, seed=seed, progress=False, store=tmp_path / store)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(trained, range(4), 4 * ["threads"]))
    for seed, one in enumerate(found):
        assert same_bits(one.models, trained(seed, "alone").models)
        assert same_bits(one.model.weights, trained(seed, "alone").model.weights)


NUMBERS = {
    "rounds": (np.int64(2), 2),
    "seed": (np.uint8(3), 3),
    "batch_size": (np.int32(16), 16),
    "lr": (np.int64(1), 1),
    "join_ratio": (np.float64(0.5), 0.5),
    "momentum": (np.float32(0.1), 0.1),
    "client_metrics": (np.True_, True),
    "optimizer": (np.str_("sgd"), "sgd"),
    "algorithm": (fl.fedprox(mu=np.float32(0.1)), fl.fedprox(mu=0.1)),
    "federation": ({"clients": np.int64(4), "test_fraction": np.float32(0.3), "seed": np.int16(2)},
                   {"clients": 4, "test_fraction": 0.3, "seed": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_of_numpy_has_the_address_of_the_plain_number(name, tiny):
    def config(value):
        arguments = {"algorithm": "fedavg", "federation": {"clients": 3}, "rounds": 1} | {name: value}
        arguments["federation"] = fl.federate(tiny, fl.dirichlet(np.float64(0.5)), **arguments["federation"])
        return prepare(**arguments).config

    found, expected = map(config, NUMBERS[name])
    assert address(found) == address(expected)
    assert json.dumps(found) == json.dumps(expected)


@pytest.mark.parametrize("value", [True, torch.tensor(2), "2", 2.5, np.float64("nan"), np.array([2]), None, np.True_])
def test_what_is_no_whole_number_stays_refused(value, federation):
    refused("rounds", prepare, "fedavg", federation, rounds=value)
