"""One list of dependencies, whatever installs them; and a tree that speaks of itself only."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DIRECT = [Requirement(text) for text in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]]
LOCK = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
PINS = [Requirement(line) for line in LOCK]
TOP_LEVEL = {"README.md", "LICENSE", "Makefile", "environment.yml", "pyproject.toml", "requirements.lock"}
TOP_LEVEL |= {"fedlib", "figures", "notebooks", "tests", "CITATION.cff", "CONTRIBUTING.md", "CHANGELOG.md"}


def pinned(name: str) -> list[str]:
    """The versions that the lock pins for a package (more than one where Python versions differ)."""
    return [next(iter(pin.specifier)).version for pin in PINS if canonicalize_name(pin.name) == canonicalize_name(name)]


def tracked() -> list[Path]:
    """The files of the project: committed ones, and new ones that git would take."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong to the project is not known")
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("requirement", DIRECT, ids=lambda requirement: requirement.name)
def test_every_direct_dependency_is_pinned_to_an_allowed_version(requirement):
    versions = pinned(requirement.name)
    assert versions
    assert all(requirement.specifier.contains(version) for version in versions)


def test_the_lock_holds_plain_pins_only():
    plain = re.compile(r"[a-z0-9-]+==[0-9][0-9a-z.]*( ; [a-z_]+ .+| ; \(.+)?")
    assert [line for line in LOCK if not plain.fullmatch(line)] == []


def test_at_most_one_pin_of_a_package_applies_here():
    here = [pin.name for pin in PINS if pin.marker is None or pin.marker.evaluate()]
    assert len(here) == len(set(here))


def test_conda_installs_the_same_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    python, pip, packages = environment["dependencies"]
    assert Requirement(python).specifier.contains("3.11")
    assert PROJECT["requires-python"] in python
    assert (pip, packages) == ("pip", {"pip": ["-r requirements.lock", "-e ."]})


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="the packages of .venv are checked")
def test_the_installed_packages_are_the_pinned_ones():
    here = {pin.name: pin.specifier for pin in PINS if pin.marker is None or pin.marker.evaluate()}
    installed = {name: metadata.version(name) for name in here}
    assert {name: version for name, version in installed.items() if not here[name].contains(version)} == {}


def test_the_top_level_is_the_agreed_one():
    visible = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in visible if not name.startswith(".")} <= TOP_LEVEL


def test_no_file_holds_a_path_of_somebodys_machine():
    foreign = re.compile(rb"(?<![\w.])/(?:home|root|Users|work|mnt|scratch)/\w[^\s\"']*")
    found = {path.relative_to(ROOT): foreign.search(path.read_bytes()) for path in tracked()}
    binary = {".png", ".npz", ".parquet", ".safetensors"}
    assert {str(path): hit[0] for path, hit in found.items() if hit and path.suffix not in binary} == {}
