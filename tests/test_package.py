"""The installed package: a wheel with all files, the command `fedlib`, and a core that works without any extra."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from processes import python

import fedlib as fl
from fedlib.__main__ import COMMANDS, main
from fedlib.extras import DISTRIBUTION

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BUILD = "import sys, hatchling.build as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def build(kind: str, source: Path, folder: Path) -> Path:
    """A wheel or an sdist of the project in `source`, as pip builds it, without the network."""
    return folder / python("-c", BUILD, f"build_{kind}", folder, cwd=source).stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder)) as archive:
        archive.extractall(folder, filter="data")
    return folder / f"fedlib_papers-{fl.__version__}"


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    return build("wheel", sdist, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    python("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", folder, wheel)
    return folder


def there(folder: Path) -> set[str]:
    paths = (path for path in (folder / "fedlib").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in paths}


def test_the_wheel_holds_every_file_of_the_library_and_nothing_else(wheel, installed):
    wanted = there(ROOT) - {"fedlib/conftest.py"}
    assert there(installed) == wanted
    assert {Path(file).suffix for file in wanted} >= {".py", ".csv", ".html", ".css"}
    assert "fedlib/py.typed" in wanted
    with zipfile.ZipFile(wheel) as zipped:
        top = {name.partition("/")[0] for name in zipped.namelist()}
    assert top == {"fedlib", f"fedlib_papers-{fl.__version__}.dist-info"}


def test_a_wheel_from_the_checkout_is_that_from_the_sdist_which_has_what_the_commands_need(wheel, tmp_path, sdist):
    assert build("wheel", ROOT, tmp_path).read_bytes() == wheel.read_bytes()
    names = "Makefile requirements.lock environment.yml CITATION.cff LICENSE notebooks tests figures"
    assert set(names.split()) <= {path.name for path in sdist.iterdir()}
    assert (sdist / "figures" / "reference" / "runs").is_dir()


def test_the_metadata_name_the_distribution_and_its_extras(wheel):
    with zipfile.ZipFile(wheel) as zipped:
        [name] = [name for name in zipped.namelist() if name.endswith("METADATA")]
        said = Parser().parsestr(zipped.read(name).decode())
    assert said["Name"] == DISTRIBUTION == PROJECT["name"]
    assert said["Name"] != "fedlib"  # another project's on PyPI
    assert said["Version"] == PROJECT["version"] == fl.__version__
    assert set(said.get_all("Provides-Extra")) >= {"notebooks", "ray", "hf", "site", "test"}
    core = {Requirement(text).name for text in said.get_all("Requires-Dist") if "extra ==" not in text}
    assert core == {Requirement(text).name for text in PROJECT["dependencies"]}
    assert core.isdisjoint({"matplotlib", "jupyterlab", "papermill", "ray", "datasets"})


def core() -> set[str]:
    """The distributions that the core needs, and all that these need."""
    waiting, found = [Requirement(text).name for text in PROJECT["dependencies"]], set()
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in found:
            found.add(name)
            needed = map(Requirement, metadata.requires(name) or [])
            waiting += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory) -> Path:
    """A new environment with the wheel and what it needs without any extra, as links to what is installed here."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for name in core():
        for file in metadata.files(name) or ():
            link = packages / file.parts[0]
            if file.parts[0] not in ("..", "__pycache__") and not link.exists():
                link.symlink_to(Path(metadata.distribution(name).locate_file(file.parts[0])))
    pip = "-m", "pip", "--python", folder / "bin" / "python"
    python(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel)
    python(*pip, "check")
    return folder / "bin"


def alone(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"FEDLIB_RUNS": str(folder / "runs"), "PYTHONWARNINGS": "error"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


CORE = """
import sys
import fedlib as fl

late = {"scipy.stats", "scipy.optimize", "scipy.ndimage", "sklearn", "kmedoids", "torchvision"} & set(sys.modules)
assert not late, f"{late} imported by import fedlib"

fed = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.1, min_size=10), 10)
setting = dict(federation=fed, rounds=1, join_ratio=0.3, batch_size=16)
assert fl.run("fedavg", client_metrics=True, **setting).score() > 0
assert len(fl.sweep(fl.grid(algorithm=["fedper", "fedpac"], **setting), jobs=1).summary()) == 2
assert {"report", "study", "fedavg"} <= set(dir(fl))

uses = [lambda: fl.report, lambda: fl.study("pfedsim"), lambda: fl.evidence("pfedsim"), lambda: fl.load("characters")]
for use in (*uses, lambda: __import__("fedlib.studies.runner")):
    try:
        use()
    except ModuleNotFoundError as error:
        print(error)
try:
    fl.no_such_name
except AttributeError as error:
    print(error)
"""


def test_the_core_works_without_any_extra_and_says_which_one_something_needs(clean, tmp_path):
    done = alone(clean / "python", "-c", CORE, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    *sentences, last = done.stdout.splitlines()
    assert last == "module 'fedlib' has no attribute 'no_such_name'"
    assert len(sentences) == 5
    for sentence in sentences:
        assert sentence.endswith(', which is not installed: pip install "fedlib-papers[notebooks]".'), sentence
    assert sentences[0].startswith("fedlib.report needs ")
    assert sentences[3].startswith("The data set 'characters' needs matplotlib")


SAY = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from fedlib.__main__ import main

found = {}
for name in sys.argv[1:]:
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as error:
        code = main([name])
    found[name] = code, out.getvalue(), error.getvalue()
print(json.dumps(found))
"""


def test_the_command_is_installed_and_one_that_needs_an_extra_says_so(clean, tmp_path):
    needing = sorted(set(COMMANDS) - {"slurm"})
    done = alone(clean / "python", "-c", SAY, *needing, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == needing
    for name, (code, out, error) in found.items():
        assert (code, out) == (2, ""), name
        [sentence] = error.splitlines()
        assert re.fullmatch(r'(fedlib \w+|fedlib\.report) needs \w+, which is not .*\[(notebooks|site)\]"\.', sentence)
    done = alone(clean / "fedlib", "--help", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: fedlib COMMAND")


@pytest.mark.parametrize(("arguments", "code"), [("--help", 0), ("", 0), ("figure", 2)])
def test_the_command_lists_its_commands(capsys, monkeypatch, arguments, code):
    monkeypatch.setattr(sys, "argv", ["fedlib"])
    assert main(arguments.split()) == code
    out, error = capsys.readouterr()
    assert error == ""
    assert [name for name in COMMANDS if f"fedlib {name} " not in out] == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["bench", "--turns", "0"], 2, "turns and steps must be at least 1."),
        (["figures"], 2, "holds no notebook named like 01_paper.ipynb"),
        (["evidence", "run", "--help"], 0, "--budget"),
        (["diff", "a", "b"], 2, "does not exist"),
    ],
    ids=["bench", "figures", "evidence", "diff"],
)
def test_the_command_does_what_python_m_does(tmp_path, monkeypatch, capfd, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    for module in ("tools.batch", "tools.diff", "tools.bench.__main__", "studies.__main__"):  # as if not yet imported
        monkeypatch.delitem(sys.modules, f"fedlib.{module}", raising=False)
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == code
    assert said in "".join(capfd.readouterr())


def test_the_citation_says_what_the_format_asks_for_and_zenodo_is_told_the_same():
    """Citation File Format 1.2.0: the keys that its schema requires; for Zenodo as `cffconvert` writes it."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["cff-version"] == "1.2.0"
    preferred = cited["preferred-citation"]
    assert {"type", "title", "authors"} <= preferred.keys()
    assert preferred["type"] == cited["type"] == "software"
    for entry in (cited, preferred):
        assert entry["authors"] == PROJECT["authors"] == [{"name": "The fedlib authors"}]
        assert entry["version"] == PROJECT["version"]
        assert entry["title"].startswith("fedlib: ")
    assert (cited["license"], cited["keywords"]) == (PROJECT["license"], PROJECT["keywords"])
    told = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    assert told["license"] == {"id": cited["license"]}
    assert (told["creators"], told["description"]) == (cited["authors"], cited["abstract"])
    assert all(told[key] == cited[key] for key in ("title", "version", "keywords"))


def test_every_study_can_be_made_where_there_is_no_module_resource():
    """As on Windows."""
    code = "import sys; sys.modules['resource'] = None; import fedlib as fl; [fl.study(p) for p in fl.report.PAPERS]"
    python("-c", code)
