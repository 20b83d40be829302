"""A stored result is never older than its inputs: every change of a computation makes a new run or is refused.

A case is a cell of a notebook, another one that changes something, and what happens to the address of the same run.
The first cell defines `scale()`, which the loss of a method reads, or `net`, the model.
"""

import contextlib
import copy
import json
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from cloudpickle import dumps, loads
from refusals import refused
from test_fingerprint import in_a_cell
from trees import same_bits

import fedlib as fl
from fedlib.runs.prepare import prepare
from fedlib.runs.store import address

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
    "a property": (
        "class Cfg:\n    @property\n    def s(self): return 2", "Cfg().s", "Cfg.s = property(lambda self: 3)",
    ),
    "a static method": (
        "class Cfg:\n    @staticmethod\n    def s(): return 2", "Cfg.s()",
        "def three(): return 3\nCfg.s = staticmethod(three)",
    ),
    "a default of a method": ("class Cfg:\n    def s(self, t=2): return t", "Cfg().s()", "Cfg.s.__defaults__ = (3,)"),
    "a partial method": (
        "class Cfg:\n    def t(self, n): return n\n    s = functools.partialmethod(t, 2)", "Cfg().s()",
        "Cfg.s = functools.partialmethod(Cfg.t, 3)",
    ),
    "a cached property": (
        "class Cfg:\n    t = 2\n    @functools.cached_property\n    def s(self): return self.t", "Cfg().s", "Cfg.t = 3",
    ),
    "a descriptor": (
        "class Two:\n    def __get__(self, *_): return 2\nclass Cfg: s = Two", "Cfg.s()",
        "Two.__get__ = lambda *_: 3\n",
    ),
    "a data class": ("@dataclass\nclass Cfg: s: int = 2\nCFG = Cfg()", "CFG.s", "CFG.s = 3"),
    "a default of a data class": ("@dataclass\nclass Cfg: s: int = 2", "Cfg().s", "@dataclass\nclass Cfg: s: int = 3"),
    "a factory of a data class": (
        "@dataclass\nclass Cfg: s: list = field(default_factory=lambda: [2])", "Cfg().s[0]",
        "@dataclass\nclass Cfg: s: list = field(default_factory=lambda: [3])",
    ),
    "an attribute beside the fields": (
        "@dataclass\nclass Cfg: s: int = 2\nCFG = Cfg()", "getattr(CFG, 't', 1)", "CFG.t = 3",
    ),
    "a data class with slots": ("@dataclass(slots=True)\nclass Cfg: s: int = 2\nCFG = Cfg()", "CFG.s", "CFG.s = 3"),
    "a member of an enumeration": ("class Mode(Enum): A = 2", "Mode.A.value", "class Mode(Enum): A = 3"),
    "a method of an enumeration": (
        "class Mode(Enum):\n    A = 2\n    def s(self): return 2\nMODE = Mode.A", "MODE.s()", "Mode.s = lambda self: 3",
    ),
    "a default of a named tuple": ("class Cfg(NamedTuple): s: int = 2", "Cfg().s", "class Cfg(NamedTuple): s: int = 3"),
    "a method of a named tuple": (
        "class Cfg(NamedTuple):\n    s: int = 2\n    def t(self): return 2\nCFG = Cfg()", "CFG.t()",
        "Cfg.t = lambda self: 3",
    ),
    "a namespace": ("CFG = types.SimpleNamespace(s=2)", "CFG.s", "CFG.s = 3"),
    "a number of a class of its own": (
        "class Twice(float):\n    def __mul__(self, other): return 2 * float(self) * other\nS = Twice(2)", "S",
        "Twice.__mul__ = lambda self, other: other",
    ),
    "a dict of a class of its own": (
        "class Dict(dict):\n    def __missing__(self, key): return 2\nD = Dict()", "D['s']",
        "Dict.__missing__ = lambda self, key: 3",
    ),
    "an attribute of a list of a class of its own": (
        "class List(list): pass\nD = List([1])\nD.s = 2", "D.s", "D.s = 3",
    ),
    "the factory of a default dict": ("D = defaultdict(lambda: 2)", "D['s']", "D.default_factory = lambda: 3"),
    "an attribute of a function": ("def scale(): return scale.s\nscale.s = 2", "", "scale.s = 3"),
    "a variable around a class": (
        "def maker(width):\n" + textwrap.indent(NET.replace("self.width", "width"), "    ")
        + "\n    return Net\nnet = maker(8)", "",
        "net = maker(16)",
    ),
    "a class that is defined again": (NET + "\nnet = Net", "", NET.replace("nn.ReLU", "nn.Tanh") + "\nnet = Net"),
    "a wrapper around a function": (
        "def times(f, s):\n    @functools.wraps(f)\n    def call(*a): return s * f(*a)\n    return call\n"
        "def one(): return 1\nscale = times(one, 2)", "", "scale = times(one, 3)",
    ),
    "what a wrapper does": (
        "def times(f):\n    @functools.wraps(f)\n    def call(*a): return 2 * f(*a)\n    return call\n"
        "def one(): return 1\nscale = times(one)", "",
        "def times(f):\n    @functools.wraps(f)\n    def call(*a): return 3 * f(*a)\n    return call\n"
        "scale = times(one)",
    ),
    "what a decorator does": (
        "def times(f):\n    @functools.wraps(f)\n    def call(*a): return 2 * f(*a)\n    return call\n@times", "1",
        "def times(f):\n    @functools.wraps(f)\n    def call(*a): return 3 * f(*a)\n    return call\n",
    ),
    "what a wrapper of PyTorch holds": (
        "def total(x, y): return (x * y).sum()\nf = torch.vmap(total, in_dims=(0, None))",
        "f(torch.eye(2), torch.eye(2)).sum()", "f = torch.vmap(total, in_dims=(None, 0))",
    ),
    "a helper of a cached function": (
        "def one(): return 1.0\n@functools.lru_cache", "2 * one()", "def one(): return 3.0",
    ),
    "one of two definitions": (
        "FAST = True\nif FAST:\n    def scale(): return 2\nelse:\n    def scale(): return 1", "",
        "if FAST:\n    def scale(): return 3\nelse:\n    def scale(): return 1",
    ),
    "a function of autograd": (
        "class F(torch.autograd.Function):\n    s = 2\n    @staticmethod\n    def forward(ctx, x): return F.s * x\n"
        "    @staticmethod\n    def backward(ctx, g): return F.s * g", "F.apply(torch.ones(()))", "F.s = 3",
    ),
    "a member of a set": ("S = {'a', 'b'}", "len(S)", "S.add('c')"),
    "an array": ("S = np.ones(3)", "S[0]", "S[0] = 2"),
    "a tensor in half precision": ("S = torch.ones(3, dtype=torch.bfloat16)", "S[0]", "S[0] = 2"),
    "another type of the same values": ("S = (1, 2)", "S", "S = [1, 2]"),
    "True for 1": ("S = 1", "S", "S = True"),
    "a round that is defined again": ("", "", textwrap.dedent(METHOD).replace("n_samples)", "n_samples**2)")),
    "a default of a hyper-parameter": (
        "@fl.algorithm\ndef other(s=1):\n    return fl.fedavg()\nmethod = other()", "",
        "@fl.algorithm\ndef other(s=2):\n    return fl.fedavg()\nmethod = other()",
    ),
    "a round that is replaced": (
        "def round(state, cohort): return state\nmethod = mine()._replace(round=round)", "",
        "def round(state, cohort): return state._replace()\nmethod = mine()._replace(round=round)",
    ),
    "a hyper-parameter that is a function": (
        "def two(): return 2\n@fl.algorithm\ndef other(f=two):\n    return fl.fedavg()\nmethod = other()", "",
        "def two(): return 3\nmethod = other(two)",
    ),
    "a hyper-parameter that is an array": (
        "@fl.algorithm\ndef other(s):\n    return fl.fedavg()\nmethod = other(np.ones(2))", "",
        "method = other(np.zeros(2))",
    ),
    "a constant of another module": ("import config", "config.S", "config.S = 3"),
    "a constant that a function imports": (
        "def scale():\n    from config import S\n    return S", "", "import config\nconfig.S = 3",
    ),
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
        "os.environ",
    ),
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
    "a generator of a class": (
        "class Cfg: rng = np.random.default_rng(0)\ndef scale(): return Cfg.rng.random()",
        "rng is or holds a Generator",
    ),
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


def run_of(cell, federation) -> str:
    return address(prepare(cell.space["method"], federation, cell.space["net"], rounds=1).config)


@pytest.mark.parametrize("case", NEW)
def test_what_is_changed_is_a_new_run(case, cell, federation):
    define, scale, change = NEW[case]
    addresses = []
    for source in (f"{define}\ndef scale(): return {scale}" if scale else define, "", change, ""):
        cell(source)
        addresses.append(run_of(cell, federation))
    assert addresses[0] == addresses[1] != addresses[2] == addresses[3]


@pytest.mark.parametrize("case", REFUSED)
def test_what_nothing_tells_is_refused_in_one_sentence(case, cell, federation):
    define, names = REFUSED[case]
    cell(define)
    assert names in refused(r"cannot be fingerprinted|source of", run_of, cell, federation)


@pytest.mark.parametrize("case", HARMLESS)
def test_what_changes_nothing_is_the_same_run(case, cell, federation):
    addresses = []
    for source in HARMLESS[case]:
        cell(source)
        addresses.append(run_of(cell, federation))
    assert addresses[0] == addresses[1]


def test_a_cache_is_emptied_before_its_function_is_used_again(cell, federation):
    cell("def one(): return 1.0\n@functools.lru_cache\ndef scale(): return 2 * one()")
    run_of(cell, federation)
    assert cell.space["scale"]() == 2
    cell("def one(): return 3.0")
    run_of(cell, federation)
    assert cell.space["scale"]() == 6


COPIED = {"itself": lambda value: value, "a copy": copy.deepcopy, "another process": lambda v: loads(dumps(v))}


@pytest.mark.parametrize("copied", COPIED)
@pytest.mark.parametrize(
    "array", ["data.x", "data.y", "data.split", "data.x.flat", "train[1]", "validation[1]", "test[1]"]
)
def test_images_and_labels_and_whose_they_are_cannot_be_changed_in_place(array, copied, tiny):
    federation = COPIED[copied](fl.federate(tiny, fl.iid(), clients=3, validation_fraction=0.2))
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


@pytest.mark.parametrize("setting", OUTSIDE)
def test_what_torch_is_set_to_outside_of_a_run_changes_no_bit(setting, federation, tmp_path):
    def trained(store):
        return fl.run("pfedsim", federation, rounds=2, lr=0.05, tune_epochs=1, progress=False, store=tmp_path / store)

    expected = trained("as usual")
    with OUTSIDE[setting]():
        found = trained("otherwise")
    assert same_bits(found.models, expected.models)
    assert found.accuracy.equals(expected.accuracy)


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
