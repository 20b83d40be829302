"""One list of dependencies for every installer, and a tree without unknown files or private paths."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {name: [Requirement(text) for text in texts] for name, texts in PROJECT["optional-dependencies"].items()}
CORE = [Requirement(text) for text in PROJECT["dependencies"]]
DIRECT = [one for one in [*CORE, *chain(*EXTRAS.values())] if one.name != PROJECT["name"]]
LOCK = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
PINS = [Requirement(line) for line in LOCK]
TOP_LEVEL = {"README.md", "LICENSE", "Makefile", "environment.yml", "pyproject.toml", "requirements.lock"}
TOP_LEVEL |= {"fedlib", "figures", "notebooks", "tests", "CITATION.cff", "CONTRIBUTING.md", "CHANGELOG.md"}


def tracked() -> list[Path]:
    """The files of the project: committed ones, and new ones that git would take."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong to the project is not known")
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("requirement", DIRECT, ids=lambda requirement: requirement.name)
def test_every_direct_dependency_is_pinned_to_an_allowed_version(requirement):
    """There are several pins where versions of Python differ."""
    pins = [pin for pin in PINS if canonicalize_name(pin.name) == canonicalize_name(requirement.name)]
    assert pins
    assert all(requirement.specifier.contains(next(iter(pin.specifier)).version) for pin in pins)


def test_the_lock_holds_plain_pins_of_all_extras_one_of_a_package_for_this_machine_and_conda_installs_it():
    plain = re.compile(r"[a-z0-9-]+==[0-9][0-9a-z.]*( ; [a-z_]+ .+| ; \(.+)?")
    assert [line for line in LOCK if not plain.fullmatch(line)] == []
    here = [pin.name for pin in PINS if pin.marker is None or pin.marker.evaluate()]
    assert len(here) == len(set(here))
    [all_of_them] = [one for one in EXTRAS["test"] if one.name == PROJECT["name"]]
    assert all_of_them.extras == set(EXTRAS) - {"test"}
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    python, pip, packages = environment["dependencies"]
    assert Requirement(python).specifier.contains("3.11")
    assert PROJECT["requires-python"] in python
    assert (pip, packages) == ("pip", {"pip": ["-c requirements.lock", "-e .[notebooks]"]})


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder with the Makefile, and as PYTHON a script that makes and fills no environment but says what is asked."""
    if os.name != "posix":
        pytest.skip("make needs a POSIX shell")
    for name in ("Makefile", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
case "$*" in
  "-m pip config list") echo "$CONFIGURED"; exit 0 ;;
  "-m venv --clear "*) rm -rf "$4" && mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
  "-m pip install "*|"-m uv "*) [ "${{BREAKS#*$2}}" = "$BREAKS" ] || exit 1 ;;
  -c*) exit 0 ;;
esac
echo "$*" >> "{tmp_path}/asked"
"""
    )
    python.chmod(0o755)
    monkeypatch.delenv("MAKEFLAGS", raising=False)

    def make(*arguments, configured="global.index-url='https://pypi.example'", breaks=""):
        (tmp_path / "asked").write_text("")
        command = ["make", "-C", str(tmp_path), f"PYTHON={python}", *arguments]
        environment = os.environ | {"CONFIGURED": configured, "BREAKS": breaks}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, (tmp_path / "asked").read_text().splitlines(), done.stderr

    return make


NEW = "-m venv --clear .venv"
PIP = "-m pip install --quiet --disable-pip-version-check"
UV = "-m uv pip install --quiet --python .venv/bin/python"
NOTEBOOKS, TEST = (f"--constraint requirements.lock --editable .[{extra}]" for extra in ("notebooks", "test"))


def test_a_target_installs_the_extra_that_it_needs_once(checkout):
    code, asked, _ = checkout("figures")
    assert (code, asked[:2]) == (0, [NEW, f"{PIP} {NOTEBOOKS}"])
    assert [line.split()[1] for line in asked[2:]] == ["fedlib.tools.batch"]
    assert [line.split()[1] for line in checkout("bench")[1]] == ["fedlib.tools.bench"]
    assert checkout("lint")[1][0] == f"{PIP} {TEST}"


def test_uv_installs_where_pip_has_no_settings_and_pip_where_uv_fails(checkout):
    uv = [NEW, f"{PIP} uv", f"{UV} {NOTEBOOKS}"]
    assert checkout("figures", configured="")[1][:4] == [*uv, "-m fedlib.tools.batch --profile quick"]
    code, asked, _ = checkout("lint", configured="", breaks="uv")
    assert (code, asked[:2]) == (0, [f"{PIP} uv", f"{PIP} {TEST}"])


def test_an_interrupted_installation_starts_anew(checkout):
    for target in ("figures", "lint"):  # at first, and with another extra there already
        code, asked, _ = checkout(target, breaks="pip")
        assert code != 0
        assert not any("fedlib" in line for line in asked)
        assert checkout(target)[1][0] == NEW
    assert checkout("figures")[1][0] == f"{PIP} {NOTEBOOKS}"  # they went with the environment


def test_pytorch_without_cuda_comes_from_its_own_index(checkout):
    first = "--no-deps --index-url https://download.pytorch.org/whl/cpu --constraint requirements.lock"
    first += " torch torchvision"
    code, asked, _ = checkout("figures", "TORCH=cpu")
    assert (code, asked[1:3]) == (0, [f"{PIP} {first}", f"{PIP} {NOTEBOOKS}"])
    asked = checkout("lint", "TORCH=cpu", configured="")[1]
    assert asked[:4] == [f"{PIP} uv", f"{UV} {first}", f"{PIP} uv", f"{UV} {TEST}"]
    code, asked, said = checkout("test-browser", "TORCH=gpu", "VENV=.other")
    assert (code, asked) == (2, [])
    assert "TORCH=gpu is unknown; allowed: cpu." in said


def test_a_release_is_made_from_a_commit_only(checkout, tmp_path):
    subprocess.run(["git", "-C", str(tmp_path), "init", "--quiet"], check=True)
    code, asked, said = checkout("release")
    assert (code, asked) == (2, [])
    assert "A release is made from a commit without further changes." in said


MACHINES = [".github/workflows/*.yml", ".devcontainer/*", ".binder/*", ".pre-commit-config.yaml"]


def test_machines_elsewhere_are_told_of_targets_and_files_that_exist():
    text = "\n".join(path.read_text(encoding="utf-8") for one in MACHINES for path in sorted(ROOT.glob(one)))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = {word for words in re.findall(r"\bmake ((?:[a-z-]+ ?)+)(?=[A-Z\n\"&]|$)", text) for word in words.split()}
    assert {"lint", "test", "test-all", "figures", "site", "setup", "lock"} <= asked <= targets
    copied = [name for line in re.findall(r"^COPY --chown=\d+ (.*) \S+$", text, re.MULTILINE) for name in line.split()]
    assert {"Makefile", "requirements.lock", "fedlib", "notebooks"} <= set(copied)
    named = [*copied, *re.findall(r"--constraint (?:\.\./)?(\S+)", text), *re.findall(r"\btests/\w+\.py", text)]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_public_tests_run_with_the_versions_of_python_that_the_package_names():
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if line.startswith("Programming Language")]
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))["jobs"]
    assert [jobs[name]["strategy"]["matrix"]["python"] for name in ("test", "windows")] == [named, named]
    python, *_ = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    assert [Requirement(python).specifier.contains(version) for version in named] == [True] * len(named)


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="the packages of .venv are checked")
def test_the_installed_packages_are_the_pinned_ones():
    here = {pin.name: pin.specifier for pin in PINS if pin.marker is None or pin.marker.evaluate()}
    installed = {name: metadata.version(name) for name in here}
    assert {name: version for name, version in installed.items() if not here[name].contains(version)} == {}


def test_the_top_level_is_the_agreed_one_and_no_file_holds_a_path_of_somebodys_machine():
    visible = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in visible if not name.startswith(".")} <= TOP_LEVEL
    foreign = re.compile(rb"(?<![\w.])/(?:home|root|Users|work|mnt|scratch)/\w[^\s\"']*")
    found = {path.relative_to(ROOT): foreign.search(path.read_bytes()) for path in tracked()}
    binary = {".png", ".npz", ".parquet", ".safetensors"}
    assert {str(path): hit[0] for path, hit in found.items() if hit and path.suffix not in binary} == {}
