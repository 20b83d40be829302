"""A number is never older than its code: an edit makes a new run, a new wording does not."""

import functools
import gc
import importlib
import linecache
import pickle
import shutil
import sys
import textwrap
from pathlib import Path

import cloudpickle
import pytest
from processes import start
from refusals import refused

import fedlib as fl
from fedlib.fingerprint import each_once, fingerprint
from fedlib.fingerprint.syntax import _source
from fedlib.runs.prepare import portable, prepare

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
    "annotations": ("methods/fedprox.py", "at_least(0)] = 1.0) -> Algorithm:", "at_least(-1)] = 1.0) -> object:"),
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


# The user's own code; changes in cells: `test_never_older`

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


def test_what_was_imported_keeps_its_address_while_its_file_changes(folder, federation):
    method = in_a_file(MINE, folder).mine()
    first = fl.run(method, federation, **SETTING).folder
    (folder / "my_method.py").write_text(textwrap.dedent(MINE.replace("n * RATE", "n + RATE")))
    assert fl.run(method, federation, **SETTING).folder == first


@pytest.mark.parametrize("new", ["n + RATE", "n * RATE * 1"])
def test_code_that_has_changed_between_its_import_and_its_first_run_is_refused(new, folder, federation, run_store):
    """What is in the memory is the old code; its numbers must not get the address of the new one."""
    method = in_a_file(MINE, folder).mine()
    (folder / "my_method.py").write_text(textwrap.dedent(MINE.replace("n * RATE", new)))
    refused("has changed since weight was imported from it; restart Python", fl.run, method, federation, **SETTING)
    assert not run_store.exists()
    (folder / "my_method.py").write_text("\n\n# a comment\n" + textwrap.dedent(MINE).replace("Of a client", "Of each"))
    assert fl.run(method, federation, **SETTING).folder.exists()


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
    with pytest.raises(ValueError, match="the source of mine cannot be found; define it in a file or in a notebook"):
        prepare(bare, federation, rounds=1)


def test_a_worker_fingerprints_the_librarys_own_methods_itself():
    """So one with another version of a method is noticed."""
    assert portable(fl.fedcs()).made_of == fl.fedcs().made_of


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
