"""Shared fixtures: a separate run store for every test, one thread, and seeded randomness."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported; worker processes inherit it
os.environ["MPLBACKEND"] = "Agg"

import hypothesis
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from methods import FACTORIES

import fedlib as fl
from fedlib.algorithm import ALGORITHMS
from fedlib.data import Dataset

sys.modules["rfc3987_syntax"] = None  # jsonschema does without; its import takes more than a second
os.fsync = lambda handle: None  # no test survives a power failure
torch.set_num_threads(1)
gc.set_threshold(100_000)  # with the usual 700 a tenth of all time goes into looking for garbage
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
hypothesis.settings.register_profile("fedlib", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("fedlib")

collect_ignore = ["fake_gpu.py"]  # a program; only to import it takes seconds

# Files test_*.py.
SLOW = ("site", "notebooks", "fake_gpu", "evidence_report", "browser", "evidence", "bench", "kernels", "package")
SLOW += ("cluster", "surface", "study_contract", "batch", "engine", "contract", "unreliable", "slurm")
SLOW += ("influence", "run", "models")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow files first, so that no worker is left with one of them at the end."""
    rank = {f"test_{name}": place for place, name in enumerate(SLOW)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(SLOW)))


@pytest.fixture(autouse=True)
def run_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty run store: no test reads results of other tests or of the user."""
    store = tmp_path / "runs"
    monkeypatch.setenv("FEDLIB_RUNS", str(store))
    return store


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Remove the methods, figures and settings of figures of a test after it."""
    with mock.patch.dict(ALGORITHMS), mpl.rc_context():
        yield
    plt.close("all")


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of the real data sets, named by FEDLIB_DATA; the test is skipped where it is not set."""
    if not os.environ.get("FEDLIB_DATA"):
        pytest.skip("FEDLIB_DATA is not set: this test needs real data sets")
    root = Path(os.environ["FEDLIB_DATA"])
    assert root.is_dir(), f"FEDLIB_DATA={str(root)!r} is not a folder"
    return root


def corners(n: int, seed: int) -> Dataset:
    """n images 1x16x16 of 4 classes, 2 domains: noise with a bright corner that shows the class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    x = rng.integers(0, 120, (n, 1, 16, 16), dtype=np.uint8)
    for i, c in enumerate(y):
        x[i, 0, 8 * (c // 2) : 8 * (c // 2) + 8, 8 * (c % 2) : 8 * (c % 2) + 8] += 100
    domain = 2 * np.arange(n) // n
    return Dataset("tiny", x, y, tuple("abcd"), np.zeros(n, np.uint8), domain, ("left", "right"))


def stopped(after: int, *arguments: Any, **setting: Any) -> None:
    """A run that is stopped after this round, which has a checkpoint."""

    def stop(t: int) -> None:
        if t == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fl.run(*arguments, **setting | {"progress": stop, "checkpoint_seconds": 0})


@pytest.fixture(scope="session")
def tiny() -> Dataset:
    """240 of the `corners`."""
    return corners(240, seed=0)


@pytest.fixture(params=sorted(FACTORIES))
def method(request: pytest.FixtureRequest) -> fl.Algorithm:
    return FACTORIES[request.param]()


@pytest.fixture(scope="session")
def federation(tiny: Dataset) -> fl.Federation:
    """Six ragged clients of the tiny data set, and 40 public images like theirs."""
    dealt = fl.federate(tiny, fl.dirichlet(alpha=0.5, min_size=12), clients=6, seed=1)
    return dealt.with_public(corners(40, seed=1))
