"""Fixtures for docstring examples: each example runs in an empty folder with a new run store and data folder."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

import fedlib as fl
from fedlib.algorithm import ALGORITHMS

torch.set_num_threads(1)
mpl.use("agg")


@pytest.fixture(autouse=True)
def nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctest_namespace: dict[str, object]
) -> Iterator[None]:
    """Import what all examples use; remove files, methods, figures and figure styles after each example."""
    doctest_namespace.update(fl=fl, np=np, pd=pd, plt=plt, torch=torch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLIB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "data"))
    with mock.patch.dict(ALGORITHMS), mpl.rc_context():
        yield
    plt.close("all")
