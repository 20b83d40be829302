"""A run on a GPU, traced on a machine without one: nothing is left on the host, no round waits for it.

`fake_gpu` makes the trace, in a process of its own. It says nothing about numbers; `test_gpu` does, on a GPU.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from methods import FACTORIES, READ_BACK
from processes import python

from fedlib.engine.convolution import FORMS
from fedlib.models import MODELS

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
ARCHITECTURES = [name for name in MODELS if not name.endswith(("_pretrained", "_thin"))]  # need a file; are narrower


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> dict:
    if sys.platform != "linux":
        pytest.skip("a GPU can only be pretended on Linux")
    if torch.version.cuda is None:
        pytest.skip("this PyTorch was built without CUDA")
    if shutil.which("gcc") is None:
        pytest.skip("a GPU can only be pretended with the help of gcc, which is not installed")
    folder = tmp_path_factory.mktemp("gpu")
    library = folder / "libcuda.so.1"  # the name of NVIDIA's driver, for which PyTorch looks
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, HERE / "fake_gpu.c"], check=True)
    places = {"LD_LIBRARY_PATH": folder, "PYTHONPATH": HERE.parent}
    places = {name: f"{path}{os.pathsep}{os.environ.get(name, '')}".rstrip(os.pathsep) for name, path in places.items()}
    places |= {"LD_PRELOAD": library, "CUDA_VISIBLE_DEVICES": ""}
    found = json.loads(python(HERE / "fake_gpu.py", library, folder / "runs", **places).stdout)
    if "unusable" in found:
        pytest.skip(f"PyTorch {torch.__version__} does not compute with fake tensors as needed: {found['unusable']}")
    return found


def test_the_trace_notes_what_waits_for_the_gpu_and_nothing_else(traced):
    assert all(traced["waits"].values())
    assert not any(traced["goes on"].values())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_takes_a_step_on_a_gpu_in_every_form(architecture, form, traced):
    assert traced["steps"][f"{architecture}, {form}"] == "a step"


def test_a_gpu_takes_steps_as_graphs_where_these_are_wanted_and_what_test_gpu_says_of_replays_can_be_true(traced):
    assert (traced["one by one"], traced["as a graph"]) == (["a step", 0], ["a step", 1])
    assert set(traced["replayed"].values()) == {None}
    assert traced["measured"] == []  # to measure the form of convolutions is all that it waits for inside its rounds


@pytest.mark.parametrize("method", ["fedavg", "fedrep"])
def test_seeds_that_share_a_stack_are_joined_and_parted_on_the_gpu(method, traced):
    found = traced["together"][method]
    assert isinstance(found, dict), found
    assert (found["notes"], max(found["sizes"])) == ([], 3)


@pytest.mark.parametrize("method", FACTORIES)
def test_a_run_on_a_gpu_copies_nothing_and_waits_for_nothing_inside_its_rounds(method, traced):
    found = traced["runs"][method]
    assert isinstance(found, list), found
    waits = [note for note in found if note.startswith("waits")]
    assert found == waits
    assert bool(waits) == (method in READ_BACK), waits
